"""Clusters of real processes: servers and workers, started by their commands, killed, paused and
restarted. Used by test_cluster_*.py.

Everything uses public interfaces: REST, files, the records of the store, `kill`. Whatever was
started in a cluster, drivers and their JVMs too, is found again by the cluster's own directory in
its environment, and ended by pid with the cluster.
"""

import fcntl
import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow.dataset
from cluster_members import POLL_S, SPARK_TIMEOUT_S, TIMEOUT_S, Member, Server, until
from cluster_observer import ClusterObserver

from tidegate.coordinator.job_snapshot import JobSnapshot, read_job
from tidegate.home import Home
from tidegate.model.document import from_document
from tidegate.model.records import (
    ASSIGNMENTS,
    CHECKPOINT_HISTORY,
    DRIVERS,
    JOB_STATES,
    LEASES,
    METRICS,
    PENDING_CLEANUPS,
    PIPELINES,
    RUNNING_JOBS,
    WORKERS,
    DriverRecord,
    JobStatus,
    Lease,
    PipelineState,
    WorkerRecord,
)
from tidegate.runner.process import kill_session, session_members
from tidegate.store.open import open_store

T = TypeVar("T")
LEASE_MS = 1_000
WORKER_LEASE_MS = 1_500
CLEANUP_DELAY_MS = 1_000


class Cluster:
    """Servers, workers and jobs that share a store and a home."""

    def __init__(
        self, root: Path, *, state_url: str = "", spark: bool = False, built_in: bool = False
    ) -> None:
        self.root = root
        self.home = Home(root / "home")
        self.spark = spark
        self.built_in = built_in
        self.timeout_s = SPARK_TIMEOUT_S if spark else TIMEOUT_S
        self.home.create()
        self.url = state_url or self.home.store_url
        self.config = root / "tidegate.yaml"
        self.configure()
        self.store = open_store(self.url)
        self.numbers = itertools.count(1)
        self.members: list[Member] = []
        self.jobs: list[Job] = []
        self.observer = ClusterObserver(
            self.url, lambda: [(server.id, server.running) for server in self.servers]
        )
        self.observer.start()

    def configure(self, *, cleanup_delay_ms: int = CLEANUP_DELAY_MS) -> None:
        """The settings of those that are started from now on."""
        self.config.write_text(f"""tidegate:
  state.url: "{self.url}"
  state-cleanup-delay-ms: {cleanup_delay_ms}
  coordinator.lease-ms: {LEASE_MS}
  worker.lease-ms: {WORKER_LEASE_MS}
  spark.master: local[2]
""")

    @property
    def servers(self) -> list[Server]:
        """Those that run, the oldest first."""
        return [
            m for m in self.members if isinstance(m, Server) and m.alive and not m.paused and m.id
        ]

    @property
    def workers(self) -> list[Member]:
        return [m for m in self.members if not isinstance(m, Server) and m.alive and not m.paused]

    def server(self, *, worker: bool = False, failpoint: str = "") -> Server:
        """A server that answers; with its own worker or without."""
        return self._ready(self.start_server(worker=worker, failpoint=failpoint))

    def start_server(self, *, worker: bool = False, failpoint: str = "") -> Server:
        """A server that is on its way."""
        server = Server(
            self, ["server", "--http-port", "0", *([] if worker else ["--no-worker"])], failpoint
        )
        self.members.append(server)
        return server

    def start_worker(self, *, failpoint: str = "", host: str = "") -> Member:
        """A worker that is on its way.

        Its drivers have the same failpoints, and are on the same host.
        """
        worker = Member(self, ["worker"], failpoint, host)
        self.members.append(worker)
        return worker

    def worker(self, *, failpoint: str = "", host: str = "") -> Member:
        """A worker that is on record."""
        worker = self.start_worker(failpoint=failpoint, host=host)
        until("a worker", lambda: self.worker_id(worker), describe=worker.output)
        return worker

    def worker_id(self, member: Member) -> str:
        """The name of the worker in a process; empty until the worker prints it."""
        records = (from_document(WorkerRecord, entry.value) for entry in self.store.list(WORKERS))
        return next(
            (record.id for record in records if record.process.pid == member.process.pid), ""
        )

    def worker_of(self, driver: DriverRecord) -> Member:
        """The process of the worker that started a driver."""

        def found() -> Member | None:
            return next(
                (
                    member
                    for member in self.members
                    if member.alive and self.worker_id(member) == driver.worker
                ),
                None,
            )

        worker = until("the worker of a driver", found, describe=self.describe)
        assert worker is not None
        return worker

    def complete(self, servers: int = 3, workers: int = 2) -> None:
        """Start the missing processes in parallel, and wait for a leader."""
        new = [self.start_server(worker=self.built_in) for _ in range(servers - len(self.servers))]
        new_workers = [
            self.start_worker() for _ in range(0 if self.built_in else workers - len(self.workers))
        ]
        for server in new:
            self._ready(server)
        for worker in new_workers:
            until("a worker", lambda worker=worker: self.worker_id(worker), describe=worker.output)
        self.leader()

    def _ready(self, server: Server) -> Server:
        def port() -> int:
            assert server.alive, server.output()
            return int(
                server.output().partition("ready at http://127.0.0.1:")[2].partition(",")[0] or 0
            )

        server.port = until("a server", port, describe=server.output)
        server.id = until("an answer", lambda: server.get("/health")["server"]["id"])
        return server

    def term(self) -> int:
        """The number of the leadership that is on record."""
        entry = self.store.get(LEASES, "coordinator")
        return from_document(Lease, entry.value).term if entry else 0

    def leader(self) -> Server:
        """The server that leads, of those that run."""

        def found() -> Server | None:
            entry = self.store.get(LEASES, "coordinator")
            holder = from_document(Lease, entry.value).holder if entry else ""
            return next((server for server in self.servers if server.id == holder), None)

        leader = until("a leader", found, describe=self.describe)
        assert leader is not None
        return leader

    def follower(self) -> Server:
        """A server that does not lead."""
        leader = self.leader()
        return next(server for server in self.servers if server is not leader)

    def pause(self, pid: int) -> None:
        """SIGSTOP at any moment, but not while it holds the lock of the embedded store: that one
        has one writer at a time, also if that one hangs.
        """
        lock = self.home.root / "store" / "tidegate.db.lock"
        while True:
            os.kill(pid, signal.SIGSTOP)
            if not lock.exists() or _free_within(lock, 1.0):
                return
            os.kill(pid, signal.SIGCONT)

    def submit(
        self, text: str, *, at: Server | None = None, job_id: int | None = None, query: str = ""
    ) -> "Job":
        """A job, taken in by a server. `{out}` in its text is its own directory for rows."""
        job = Job(self, job_id or 100 + len(self.jobs))
        server = at or self.servers[0]
        server.post(
            f"/submit-job?format=hocon&jobId={job.id}&jobName=job-{job.id}{query}",
            text.replace("{out}", str(job.out)),
        )
        self.jobs.append(job)
        return job

    def kill_everything(self) -> None:
        """SIGKILL to all that runs here, as the end of a container would."""
        for member in self.members:
            member.kill()
        for pid in self._processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        until("the end of every process", lambda: not list(self._processes()))

    def has_process(self, pid: int) -> bool:
        """Whether one of the processes of this cluster has this number."""
        return pid in self._processes()

    def _processes(self) -> Iterator[int]:
        """Whatever has this cluster's home in its environment and is not a zombie."""
        for pid in (
            int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()
        ):
            try:
                if str(self.home.root).encode() in Path(f"/proc/{pid}/environ").read_bytes():
                    yield pid
            except OSError:
                continue

    def describe(self) -> str:
        """Describe the jobs and the last output of every process, for a test that times out."""
        jobs = [job.describe() for job in self.jobs if not job.ended()]
        members = [
            f"{m.log.name} ({'alive' if m.alive else 'dead'}): {m.output()[-500:]}"
            for m in self.members
        ]
        return "\n".join([*members, *jobs])[-6_000:]

    def close(self) -> None:
        self.observer.stop()
        self.kill_everything()
        self.store.close()


@dataclass(frozen=True)
class Job:
    """A job that was submitted."""

    cluster: Cluster
    id: int

    @property
    def out(self) -> Path:
        return self.cluster.root / f"out-{self.id}"

    def until(self, what: str, condition: Callable[[], T], timeout_s: float = 0.0) -> T:
        """Wait until the condition holds; describe this job on a timeout."""
        return until(
            f"{what} of job {self.id}",
            condition,
            max(timeout_s, self.cluster.timeout_s),
            self.cluster.describe,
        )

    def known(self) -> JobSnapshot:
        return read_job(self.cluster.store, self.id)

    def describe(self) -> str:
        """Describe its records without its plan, and the driver's last output."""
        known, error_log = self.known(), self.cluster.home.logs(self.id) / "driver.err"
        words = error_log.read_text(errors="replace")[-500:] if error_log.exists() else ""
        return (
            f"job {self.id}: {known.state}; {known.assignment}; {known.driver}; {known.pipelines};"
            f" {words}"
        )

    def status(self) -> JobStatus | None:
        """Its state, or how it ended."""
        known = self.known()
        if known.state is not None:
            return known.state.value.status
        return known.outcome.status if known.outcome else None

    def ended(self) -> bool:
        status = self.status()
        return status is not None and status.terminal

    def generation(self) -> int:
        state = self.known().state
        return state.value.generation if state else 0

    def driver(self) -> DriverRecord:
        """The driver on record, of the current generation, that has not ended."""

        def found() -> DriverRecord | None:
            known = self.known()
            record = known.driver.value if known.driver else None
            return (
                record
                if record
                and known.state
                and record.generation == known.state.value.generation
                and record.end is None
                else None
            )

        record = self.until("a driver", found)
        assert record is not None
        return record

    def kill_driver(self) -> None:
        """SIGKILL to the whole session of its driver."""
        kill_session(self.driver().process)

    def pipelines(self) -> list[PipelineState]:
        return [p.value for p in self.known().pipelines]

    def checkpoint(self) -> int:
        """The newest checkpoint of the pipeline that has the oldest one."""
        return min((p.latest.checkpoint if p.latest else 0 for p in self.pipelines()), default=0)

    def makes_progress(self, checkpoints: int = 3) -> None:
        """Wait for more checkpoints than there are now."""
        before = self.checkpoint()
        self.until("more checkpoints", lambda: self.checkpoint() >= before + checkpoints)

    def rows(self) -> list[int]:
        """The ids in the sink."""
        files = sorted(map(str, self.out.glob("[!._]*.parquet")))
        return (
            sorted(
                pyarrow.dataset.dataset(files, format="parquet")
                .to_table(columns=["id"])["id"]
                .to_pylist()
            )
            if files
            else []
        )

    def stop(self, at: Server | None = None, *, force: bool = False) -> None:
        """Have it stopped, and wait for that."""
        (at or self.cluster.servers[0]).post(
            "/stop-job", {"jobId": self.id, "isStopWithSavePoint": False, "force": force}
        )
        self.ends(JobStatus.CANCELED)

    def ends(self, status: JobStatus) -> None:
        """Wait for its end; then every server knows it, and none lists it as running.

        (From then on the observer checks that.)
        """
        self.until(f"{status}", self.ended)
        assert self.status() is status, self.known()
        for server in self.cluster.servers:
            self.until(
                f"{status} at {server.id}",
                lambda server=server: server.get(f"/job-info/{self.id}")["jobStatus"] == status,
            )  # type: ignore[misc]  # bound default
            self.until(
                f"a list without it at {server.id}",
                lambda server=server: self.id not in server.running(),
            )  # type: ignore[misc]  # bound default

    def is_exactly_once(self, rows: int | None = None) -> None:
        """Each row is in the sink once, from the first to the last."""
        ids = self.rows()
        wanted = len(ids) if rows is None else rows
        assert ids == list(range(wanted)), (
            f"{len(ids)} rows, {len(set(ids))} different ones, {wanted} wanted"
        )

    def is_cleaned_up(self) -> None:
        """Nothing of it is left but its outcome, what a restore needs, and no process."""
        store, key = self.cluster.store, str(self.id)
        self.until("the cleanup", lambda: store.get(PENDING_CLEANUPS, key) is None)
        assert [
            map for map in (RUNNING_JOBS, ASSIGNMENTS, DRIVERS) if store.get(map, key) is not None
        ] == []
        assert store.list(METRICS, f"{key}/") == []
        if self.status() is JobStatus.FINISHED:
            assert store.get(JOB_STATES, key) is None
            assert [
                *store.list(PIPELINES, f"{key}/"),
                *store.list(CHECKPOINT_HISTORY, f"{key}/"),
            ] == []
            assert not (self.cluster.home.checkpoints / key).exists()

    def has_no_process(self) -> None:
        """No session of a driver of it is left."""
        driver = self.known().driver
        assert driver is None or not session_members(driver.value.process)


def _free_within(lock: Path, seconds: float) -> bool:
    """Whether the lock of the embedded store can be had."""
    end_s = time.monotonic() + seconds
    with lock.open("rb") as file:
        while time.monotonic() < end_s:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(POLL_S / 10)  # poll interval for other processes
                continue
            return True  # and let go with the file
    return False
