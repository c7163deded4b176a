"""Thousands of jobs on one server: how quickly they are taken, listed and looked after, and how
quickly another server takes them over. Called by __main__.py.

The servers are real processes, and so are the store and the worker; the drivers exist only in the
store (fleet.py). Nothing is measured inside a server: what counts is what a client sees, what the
kernel says of the process, and what the disk holds.
"""

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from benchmarks.figures import Figure, median
from benchmarks.installation import Connection, Server, helper, until
from benchmarks.memory import cpu_s
from benchmarks.parts import Bench
from benchmarks.stores import StorePlace, store_places
from tidegate.model.ids import JOB_ID_MAX

PART = "serve"
CLIENTS = (1, 4, 16)
LEASE_S = 3.0
INTERVAL_MS = 10_000
SUBMITS_AIM, LIST_MS_AIM, FAILOVER_S_AIM = 200.0, 50.0, LEASE_S + 1.0
WHOLE = (
    "sqlite",
    "tmpfs",
)  # the others have a quarter of the jobs, and are measured where it matters which store it is
MIB = 1 << 20
JOB = json.dumps(
    {
        "env": {"job.mode": "STREAMING", "job.name": "orders", "checkpoint.interval": INTERVAL_MS},
        "source": [
            {
                "plugin_name": "FakeSource",
                "plugin_output": "orders",
                "schema": {
                    "fields": {
                        "id": "bigint",
                        "customer": "string",
                        "city": "string",
                        "price": "double",
                        "paid": "boolean",
                    }
                },
            }
        ],
        "transform": [
            {
                "plugin_name": "Sql",
                "plugin_input": "orders",
                "plugin_output": "paid",
                "query": "select id, customer, price from orders where paid",
            }
        ],
        "sink": [{"plugin_name": "Console", "plugin_input": "paid"}],
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    bench: Bench
    store: StorePlace
    home: Path
    name: str

    def server(self) -> Server:
        """One more, without a worker of its own."""
        return Server(
            self.home,
            {"state.url": self.store.url, "coordinator.lease-ms": int(LEASE_S * 1000)},
            worker=False,
        )

    def add(self, what: str, value: float, unit: str, **more: object) -> None:
        """A figure of this installation."""
        self.bench.report.add(
            Figure(part=PART, name=f"{self.name}: {what}", value=value, unit=unit, **more)
        )  # type: ignore[arg-type]  # fields of Figure


def serve(bench: Bench) -> None:
    """All of it on SQLite; what it costs to be on several hosts with the others."""
    for place in store_places(PART, bench.place, bench.shm, bench.stores):
        with place as store:
            home = bench.place / f"serve-{store.name}"
            home.mkdir(parents=True, exist_ok=True)
            measure(
                World(bench=bench, store=store, home=home, name=store.name),
                whole=store.name in WHOLE,
            )


def measure(here: World, *, whole: bool) -> None:
    jobs = here.bench.jobs if whole else max(16, here.bench.jobs // 4)
    with ExitStack() as stack:
        server = stack.enter_context(here.server())
        stack.enter_context(
            helper(
                "fleet",
                str(here.home),
                here.store.url,
                str(INTERVAL_MS),
                said=here.home / "fleet.log",
            )
        )
        until("a worker", 30, lambda: overview(server)["workers"] == "1")
        submits(here, server, jobs)
        if whole:
            reads(here, server, jobs, "while all of them start")
        running_s = until("all jobs run", 600, lambda: running(server) == jobs, every_s=0.5)
        here.add(f"{jobs:,} jobs submitted -> all run", running_s, "s")
        time.sleep(min(10.0, INTERVAL_MS / 1000))  # the first checkpoints of all of them
        rest(here, server, jobs)
        if whole:
            reads(here, server, jobs, "at rest")
        failover(here, server)


def overview(server: Server) -> dict[str, str]:
    with server.connect() as line:
        counts: dict[str, str] = json.loads(line.get("/overview"))
        return counts


def running(server: Server) -> int:
    """How many jobs run: those that wait for a driver do not."""
    with server.connect() as line:
        return line.get("/running-jobs").count(b'"jobStatus":"RUNNING"')


def submits(here: World, server: Server, jobs: int) -> None:
    """A share of the jobs by one client, then by several at once: the leader schedules them and the
    worker takes them up meanwhile.
    """
    left = jobs
    for clients in CLIENTS:
        share = left if clients == CLIENTS[-1] else jobs // 5
        left -= share
        before_s = cpu_s(server.process.pid)
        seconds, each = submit_all(server, clients, share)
        used_ms = (cpu_s(server.process.pid) - before_s) * 1000 / share
        each.sort()
        here.add(
            f"submits, {clients} at a time",
            share / seconds,
            "/s",
            spread=(percentile(each, 0.5) * 1000, percentile(each, 0.99) * 1000),
            against=f"p50 - p99 ms; CPU {used_ms:.1f} ms each",
            aim=f">= {SUBMITS_AIM:g}/s" if clients == CLIENTS[-1] else "",
            met=share / seconds >= SUBMITS_AIM if clients == CLIENTS[-1] else None,
        )


def submit_all(server: Server, clients: int, count: int) -> tuple[float, list[float]]:
    """Submit so many jobs by so many clients: seconds in all, and of each."""
    each: list[float] = []
    troubles: list[BaseException] = []

    def client(share: int) -> None:
        try:
            with server.connect() as line:
                for _ in range(share):
                    began_s = time.perf_counter()
                    line.post("/submit-job", JOB)
                    each.append(time.perf_counter() - began_s)
        except BaseException as error:
            troubles.append(error)

    threads = [
        threading.Thread(target=client, args=(count // clients + (n < count % clients),))
        for n in range(clients)
    ]
    began_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if troubles:
        raise troubles[0]
    return time.perf_counter() - began_s, each


def reads(here: World, server: Server, jobs: int, when: str) -> None:
    """Answers to one client while the fleet runs."""
    with server.connect() as line:
        ids = [job["jobId"] for job in json.loads(line.get("/running-jobs"))]
        size = len(line.get("/running-jobs"))
        latency(
            here,
            line,
            f"all {jobs:,} listed, {when} ({size / MIB:.1f} MiB)",
            lambda _: "/running-jobs",
            100,
            judged=when == "at rest",
        )
        latency(
            here,
            line,
            f"a page of 20 listed, {when}",
            lambda _: "/running-jobs?page=2&rows=20",
            200,
            judged=False,
        )
        latency(
            here,
            line,
            f"one job shown, {when}",
            lambda n: f"/job-info/{ids[n * 7919 % len(ids)]}",
            400,
            judged=when == "at rest",
        )


def latency(
    here: World,
    line: Connection,
    what: str,
    path: Callable[[int], str],
    count: int,
    *,
    judged: bool,
) -> None:
    """p50 and p99 of an answer."""
    count = max(20, count * here.bench.repeats // 5)
    each = sorted(timed(line, path(n)) * 1000 for n in range(count))
    p99 = percentile(each, 0.99)
    here.add(
        what,
        p99,
        "ms",
        spread=(percentile(each, 0.5), each[-1]),
        against="p99; spread: p50 - max",
        aim=f"<= {LIST_MS_AIM:g} ms" if judged else "",
        met=p99 <= LIST_MS_AIM if judged else None,
    )


def timed(line: Connection, path: str) -> float:
    began_s = time.perf_counter()
    line.get(path)
    return time.perf_counter() - began_s


def percentile(each: Sequence[float], share: float) -> float:
    return each[min(len(each) - 1, int(len(each) * share))]


def rest(here: World, server: Server, jobs: int) -> None:
    """What jobs cost that only live and make checkpoints: processor and memory of the server, bytes
    of the store.
    """
    process = psutil.Process(server.process.pid)
    shares = []
    for _ in range(here.bench.repeats):
        before, began_s = process.cpu_times(), time.perf_counter()
        time.sleep(INTERVAL_MS / 1000 / 2)
        after, ended_s = process.cpu_times(), time.perf_counter()
        shares.append(
            (after.user + after.system - before.user - before.system) / (ended_s - began_s) * 100
        )
    used = process.memory_full_info()
    here.add(
        "server at rest, CPU for 100 jobs",
        median(shares) / jobs * 100,
        "%",
        spread=(min(shares) / jobs * 100, max(shares) / jobs * 100),
        against="of one core",
    )
    here.add(
        "server at rest, memory",
        used.rss / MIB,
        "MiB",
        rss_mib=used.rss // MIB,
        uss_mib=used.uss // MIB,
    )
    here.add(
        "store, bytes for each job",
        here.store.bytes() / jobs / 1024,
        "KiB",
        against=f"{here.store.bytes() / MIB:.1f} MiB in all",
    )


def _sees_jobs(server: Server) -> bool:
    return running(server) > 0


def failover(here: World, leader: Server) -> None:
    """Kill the leader; another one has to notice, take over and check every job."""
    seconds = []
    follower = here.server()
    try:
        until("a second server sees all jobs", 60, lambda: running(follower) > 0)
        for turn in range(here.bench.repeats):
            seconds.append(taken_over(leader, follower, JOB_ID_MAX - here.bench.repeats + turn))
            leader, follower = follower, here.server()
            until("the next server sees all jobs", 60, partial(_sees_jobs, follower))
    finally:
        follower.stop()
        leader.stop()
    here.add(
        "kill -9 of the leader -> all jobs looked at",
        median(seconds),
        "s",
        spread=(min(seconds), max(seconds)),
        against=f"lease {LEASE_S:g} s",
        aim=f"<= {FAILOVER_S_AIM:g} s",
        met=median(seconds) <= FAILOVER_S_AIM,
    )


def taken_over(leader: Server, follower: Server, last_id: int) -> float:
    """Seconds from the kill until the other one leads and has looked at all jobs: a leader begins
    with all of them, by their ids, so a job with the highest id, which is submitted when nobody
    leads, is the last one that it touches.
    """
    assert leader.leads(), "the one that is killed must lead"
    with follower.connect() as line:
        leader.kill()
        killed_s = time.perf_counter()
        line.post(f"/submit-job?jobId={last_id}", JOB)
        until(
            "another leader",
            60,
            lambda: (
                json.loads(line.get(f"/job-info/{last_id}"))["jobStatus"]
                not in ("INITIALIZING", "CREATED")
            ),
        )
        return time.perf_counter() - killed_s
