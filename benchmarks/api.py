"""The API under load: what one server answers in a second, and how late the slowest answers are,
with 1,000 jobs that run and 10,000 that have ended; and what 200 listeners of its events cost.
Called by __main__.py.

The server is a real process on SQLite; the jobs that run are the fleet's (fleet.py), those that
have ended are in the store as their ends have left them (history.py). Each question is asked by one
client and by sixteen, each of them again as soon as it is answered, while the fleet runs.
"""

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import psutil

from benchmarks.clients import Listeners, ask_for
from benchmarks.control_plane import (
    INTERVAL_MS,
    JOB,
    LEASE_S,
    MIB,
    overview,
    percentile,
    running,
    submit_all,
)
from benchmarks.figures import Figure
from benchmarks.history import put_history
from benchmarks.installation import Server, helper, until
from benchmarks.parts import Bench
from benchmarks.stores import sqlite
from tidegate.clock import SystemClock
from tidegate.model.ids import JOB_ID_MAX

PART = "api"
CLIENTS = (1, 16)
LISTENERS = 200
ENDED_FOR_EACH = 10  # of jobs that have ended, for one that runs
PAGE_MS_AIM, LIST_MS_AIM, REST_SHARE_AIM = 50.0, 100.0, 5.0
SECONDS_MAX = 5.0  # of each request, and of each CPU measurement
WRITES = 20  # jobs that listeners hear of, for each repeat
HEARD_S_MAX = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What is asked: the path of the n-th request."""

    name: str
    path: Callable[[int], str]
    aim_ms: float = PAGE_MS_AIM
    headers: tuple[str, ...] = ()
    wanted: int = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    bench: Bench
    server: Server
    rest: float = 0.0  # per cent of a core that it uses when nobody asks

    @property
    def seconds(self) -> float:
        """How long each question is asked."""
        return min(SECONDS_MAX, float(self.bench.repeats))

    def add(self, what: str, value: float, unit: str, **more: object) -> None:
        fields: dict[str, Any] = {"name": what, "value": value, "unit": unit, **more}
        figure = Figure(part=PART, **fields)
        self.bench.report.add(figure)

    def cpu_share(self) -> float:
        """Per cent of one core that the server uses, of a while."""
        process = psutil.Process(self.server.process.pid)
        before, began_s = process.cpu_times(), time.perf_counter()
        time.sleep(2 * self.seconds)
        after, took_s = process.cpu_times(), time.perf_counter() - began_s
        return (after.user + after.system - before.user - before.system) / took_s * 100

    def rss_mib(self) -> float:
        return float(psutil.Process(self.server.process.pid).memory_info().rss / MIB)


def api(bench: Bench) -> None:
    """Half of the jobs of the control plane, and ten times as many that have ended."""
    jobs = max(10, bench.jobs // 2)
    home = bench.place / "api"
    home.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        store = stack.enter_context(sqlite(bench.place / "api-store"))
        put_history(store.url, jobs * ENDED_FOR_EACH, SystemClock().now_ms())
        server = stack.enter_context(
            Server(
                home,
                {"state.url": store.url, "coordinator.lease-ms": int(LEASE_S * 1000)},
                worker=False,
            )
        )
        here = Place(bench=bench, server=server)
        time.sleep(2 * here.seconds)  # what a start leaves to do
        listeners_at_rest(here, "nothing changes")
        stack.enter_context(
            helper("fleet", str(home), store.url, str(INTERVAL_MS), said=home / "fleet.log")
        )
        start_jobs(server, jobs)
        here = replace(here, rest=here.cpu_share())
        here.add(
            f"nobody asks, {jobs:,} jobs run: CPU of the server",
            here.rest,
            "%",
            against="of a core; left out of the CPU below",
        )
        for question in questions(server, jobs):
            for clients in CLIENTS:
                measure(here, question, clients)
        here.add(
            f"memory of the server, {jobs:,} jobs run, {jobs * ENDED_FOR_EACH:,} have ended",
            here.rss_mib(),
            "MiB",
        )
        listeners_at_rest(here, f"{jobs:,} jobs run")
        told(here)


def start_jobs(server: Server, jobs: int) -> None:
    """All of them run, and have made their first checkpoint."""
    until("a worker", 60, lambda: overview(server)["workers"] == "1")
    submit_all(server, CLIENTS[-1], jobs)
    until("all jobs run", 600, lambda: running(server) == jobs, every_s=0.5)
    time.sleep(INTERVAL_MS / 1000)


def questions(server: Server, jobs: int) -> list[Question]:
    """What is asked, in the order in which it is shown."""
    with server.connect() as line:
        ids = [job["jobId"] for job in json.loads(line.get("/running-jobs"))]
        size = len(line.get("/running-jobs"))
    ended = jobs * ENDED_FOR_EACH
    same = (f"If-None-Match: {tag_of(server)}",)
    return [
        Question(
            name=f"v2: all {jobs:,} running jobs, {size / MIB:.1f} MiB",
            path=lambda _: "/running-jobs",
            aim_ms=LIST_MS_AIM,
        ),
        Question(
            name="v2: running jobs, a page of 20",
            path=lambda n: f"/running-jobs?page={n % 5 + 1}&rows=20",
        ),
        Question(
            name="v2: one job that runs", path=lambda n: f"/job-info/{ids[n * 7919 % len(ids)]}"
        ),
        Question(
            name="v2: one job that has ended", path=lambda n: f"/job-info/{n * 7919 % ended + 1}"
        ),
        Question(
            name=f"v2: a page of 20 of {ended * 8 // 10:,} finished jobs",
            path=lambda n: f"/finished-jobs/FINISHED?page={n % 50 + 1}&rows=20",
        ),
        Question(name=f"v1: a page of 50 of {jobs + ended:,} jobs", path=lambda _: "/api/v1/jobs"),
        Question(
            name="v1: a page of 50, by status and name",
            path=lambda _: "/api/v1/jobs?status=FAILED&name=nightly-1",
        ),
        Question(
            name="v1: a page of 50, not modified (304)",
            path=lambda _: "/api/v1/jobs?ended=true",
            headers=same,
            wanted=304,
        ),
        Question(
            name="v1: one job that runs", path=lambda n: f"/api/v1/jobs/{ids[n * 7919 % len(ids)]}"
        ),
        Question(name="metrics for Prometheus", path=lambda _: "/metrics", aim_ms=LIST_MS_AIM),
        Question(
            name="the page of the jobs, 100 rows", path=lambda _: "/ui/jobs", aim_ms=LIST_MS_AIM
        ),
    ]


def tag_of(server: Server) -> str:
    """The mark of a page that does not change: that of the jobs that have ended."""
    with server.connect() as line:
        line.line.request("GET", "/api/v1/jobs?ended=true")
        answer = line.line.getresponse()
        answer.read()
        return answer.headers["ETag"] or "none"


def measure(here: Place, question: Question, clients: int) -> None:
    """Answers in a second, and how long they take."""
    before, began_s = psutil.Process(here.server.process.pid).cpu_times(), time.perf_counter()
    answers = ask_for(
        here.server.port,
        question.path,
        clients=clients,
        seconds=here.seconds,
        headers=question.headers,
        wanted=question.wanted,
    )
    after, took_s = (
        psutil.Process(here.server.process.pid).cpu_times(),
        time.perf_counter() - began_s,
    )
    each, p99 = answers.each, percentile(answers.each, 0.99) * 1000
    used_s = after.user + after.system - before.user - before.system - here.rest / 100 * took_s
    cpu_ms = max(0.0, used_s) * 1000 / len(each)
    here.add(
        f"{question.name}; {clients} at a time",
        answers.rate,
        "/s",
        spread=(percentile(each, 0.5) * 1000, p99),
        against=(
            f"p50 - p99 ms; CPU {cpu_ms:.2f} ms"
            f" each{f'; {answers.refused} refused' if answers.refused else ''}"
        ),
        aim=f"p99 <= {question.aim_ms:g} ms",
        met=p99 <= question.aim_ms,
    )


def listeners_at_rest(here: Place, when: str) -> None:
    """What the server uses without listeners, and what more with them."""
    alone, alone_mib = here.cpu_share(), here.rss_mib()
    with Listeners(here.server.port, LISTENERS) as listeners:
        until("every listener is greeted", HEARD_S_MAX, lambda: listeners.greeted == LISTENERS)
        events, share = listeners.events, here.cpu_share()
        rate = (listeners.events - events) / (2 * here.seconds) / LISTENERS
        more_mib = here.rss_mib() - alone_mib
    here.add(
        f"{LISTENERS} listeners, {when}: CPU of the server",
        share - alone,
        "%",
        against=(
            f"of a core, above {alone:.1f} %; {rate:.2f} events/s each; {more_mib:.1f} MiB more"
        ),
        aim=f"<= {REST_SHARE_AIM:g} %",
        met=share - alone <= REST_SHARE_AIM,
    )


def told(here: Place) -> None:
    """Jobs are submitted one after the other: how long until the first listener, and the last one,
    has heard of each.
    """
    first, last, count = [], [], WRITES * here.bench.repeats
    with Listeners(here.server.port, LISTENERS) as listeners, here.server.connect() as line:
        until("every listener is greeted", HEARD_S_MAX, lambda: listeners.greeted == LISTENERS)
        for number in range(count):
            job_id = JOB_ID_MAX - number
            listeners.expect(job_id)
            began_s = time.perf_counter()
            line.post(f"/submit-job?jobId={job_id}", JOB)
            times = listeners.told(job_id, HEARD_S_MAX)
            first.append((times[0] - began_s) * 1000)
            last.append((times[-1] - began_s) * 1000)
    for name, each in (("the first", first), (f"all {LISTENERS}", last)):
        each.sort()
        here.add(
            f"a job is submitted -> {name} of the listeners know",
            percentile(each, 0.5),
            "ms",
            spread=(each[0], percentile(each, 0.99)),
            against="p50; spread: fastest - p99",
        )
