"""Workers and detached drivers as real processes, on the plain engine: killed, paused, adopted,
stopped. The test plays the leader.
"""

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow.dataset
import pytest

from tidegate.cli.job_file import load_plan
from tidegate.coordinator.job_snapshot import JobSnapshot, read_job
from tidegate.home import Home
from tidegate.model.document import from_document, to_document
from tidegate.model.engine import EngineSettings
from tidegate.model.records import (
    ASSIGNMENTS,
    JOB_STATES,
    LEASES,
    METRICS,
    PIPELINES,
    RUNNING_JOBS,
    WORKERS,
    Assignment,
    DriverCommand,
    DriverRecord,
    JobRecord,
    JobState,
    JobStatus,
    PipelineMetrics,
    PipelineState,
    PipelineStatus,
    WorkerRecord,
)
from tidegate.runner.driver_spec import driver_spec
from tidegate.runner.exits import DriverExit
from tidegate.runner.launch import DriverProcess, Program, launch
from tidegate.runner.process import kill_session, session_members
from tidegate.store import Delete, Put
from tidegate.store.open import open_store

TIMEOUT_S = 60
LEASE_MS = 1500
JOB = 7
WORKER = """
import os, sys, threading
from tidegate.home import Home
from tidegate.model.engine import EngineSettings, WorkerSettings
from tidegate.clock import SystemClock
from tidegate.store.open import open_store
from tidegate.worker.host import WorkerThread, open_worker
home, clock = Home(__import__("pathlib").Path(sys.argv[1])), SystemClock()
settings = EngineSettings(
    worker=WorkerSettings(lease_ms=int(sys.argv[2]), slots=2, warm=int(sys.argv[3]))
)
worker = open_worker(
    open_store(home.store_url), settings, home, clock, os.environ,
    module="tidegate.testing.plain_driver",
)
print(worker.me.id, flush=True)
thread = WorkerThread(worker, clock)
thread.start()
sys.stdin.read()
thread.stop()
"""


class Installation:
    """A home with one job, its leader (the test) and its workers (processes)."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = Home(root / "home")
        self.out = root / "out"
        self.home.create()
        self.store = open_store(self.home.store_url)
        self.workers: dict[str, subprocess.Popen[str]] = {}
        self.drivers: list[DriverProcess] = []
        self.seen: list[DriverRecord] = []

    def submit(self, *, rows: int = 100_000, mode: str = "STREAMING", rate: int = 100) -> None:
        file = self.root / "job.conf"
        file.write_text(
            f"""env {{ job.mode = "{mode}", job.name = "orders", checkpoint.interval = 50
  read_limit.rows_per_second = {rate} }}
source {{ FakeSource {{ row.num = {rows}, plugin_output = "t", bigint.fake.mode = "SEQUENCE",
  schema {{ fields {{ id = bigint }} }} }} }}
sink {{ LocalFile {{ plugin_input = "t", path = "{self.out}", file_format_type = "parquet" }}
  Console {{ plugin_input = "t" }} }}"""
        )
        plan = load_plan(str(file), (), strict=False)
        record = JobRecord(job_id=JOB, name="orders", initialization_ms=1, lineage="7-1", plan=plan)
        pipelines = [
            PipelineState(job_id=JOB, pipeline=p.id, lineage="7-1", generation=1)
            for p in plan.pipelines
        ]
        self.store.transact(
            [],
            [
                Put(RUNNING_JOBS, str(JOB), to_document(record)),
                Put(
                    JOB_STATES,
                    str(JOB),
                    to_document(
                        JobState(
                            job_id=JOB,
                            status=JobStatus.SCHEDULED,
                            initialization_ms=1,
                            generation=1,
                        )
                    ),
                ),
                *(Put(PIPELINES, f"{JOB}/{p.pipeline}", to_document(p)) for p in pipelines),
            ],
        )

    def assign(
        self, worker: str, order: DriverCommand = DriverCommand.RUN, generation: int = 1
    ) -> None:
        assignment = Assignment(
            job_id=JOB, initialization_ms=1, generation=generation, worker=worker, command=order
        )
        self.store.transact([], [Put(ASSIGNMENTS, str(JOB), to_document(assignment))])

    def fence(self) -> None:
        """The next generation, in the job and in its pipelines; assigned to nobody."""
        known = self.known
        assert known.state is not None
        generation = known.state.value.generation + 1
        pipelines = [replace(p.value, generation=generation) for p in known.pipelines]
        self.store.transact(
            [],
            [
                Put(
                    JOB_STATES,
                    str(JOB),
                    to_document(replace(known.state.value, generation=generation)),
                ),
                Delete(ASSIGNMENTS, str(JOB)),
                *(Put(PIPELINES, f"{JOB}/{p.pipeline}", to_document(p)) for p in pipelines),
            ],
        )

    def worker(self, *, warm: int = 0, failpoint: str = "") -> str:
        id = self.start_worker(warm, failpoint)
        self.until(lambda: self.store.get(WORKERS, id) is not None)
        return id

    def start_worker(self, warm: int = 0, failpoint: str = "") -> str:
        process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(self.home.root), str(LEASE_MS), str(warm)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TIDEGATE_FAILPOINT": failpoint},
            start_new_session=True,
        )
        assert process.stdout is not None
        id = process.stdout.readline().strip()
        self.workers[id] = process
        return id

    def run(self, **job: object) -> str:
        """A worker that runs the job."""
        self.submit(**job)  # type: ignore[arg-type]  # names of its arguments
        id = self.worker()
        self.assign(id)
        self.until(lambda: self.checkpoints() >= 2)
        return id

    def kill(self, worker: str) -> None:
        self.workers[worker].kill()
        self.workers[worker].wait()

    @property
    def known(self) -> JobSnapshot:
        snapshot = read_job(self.store, JOB)
        if snapshot.driver is not None:
            self.seen.append(snapshot.driver.value)
        return snapshot

    @property
    def driver(self) -> DriverRecord:
        driver = self.known.driver
        assert driver is not None
        return driver.value

    def checkpoints(self) -> int:
        return sum(p.value.checkpoints for p in self.known.pipelines)

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < end, f"not within {TIMEOUT_S} s: {self.known}"
            time.sleep(0.02)  # poll interval for another process

    def ended(self) -> bool:
        driver = self.known.driver
        return driver is not None and driver.value.end is not None

    def until_more(self) -> None:
        before = self.checkpoints()
        self.until(lambda: self.checkpoints() >= before + 3)

    def ids(self) -> list[int]:
        return sorted(
            pyarrow.dataset.dataset(str(self.out), format="parquet").to_table()["id"].to_pylist()
        )

    def rows_written(self) -> int:
        return len(self.ids())

    def close(self) -> None:
        for process in self.workers.values():
            process.kill()
            process.communicate()
        if (driver := read_job(self.store, JOB).driver) is not None:
            self.seen.append(driver.value)
        for record in self.seen:
            kill_session(record.process)
        for started in self.drivers:
            started.kill()
            started.close()
        self.store.close()


@pytest.fixture
def installation(memory_disk: Path) -> Iterator[Installation]:
    it = Installation(memory_disk)
    yield it
    it.close()


def test_a_worker_starts_the_driver_of_its_assignment_and_reports_its_end(
    installation: Installation,
) -> None:
    installation.submit(rows=20, mode="BATCH", rate=1000)
    id = installation.worker()
    record = from_document(WorkerRecord, installation.store.get(WORKERS, id).value)
    assert (record.id, record.slots) == (id, 2)
    installation.assign(id)
    installation.until(installation.ended)
    driver = installation.driver
    assert driver.end is not None
    assert (driver.end.code, driver.end.proof, driver.worker) == (DriverExit.ENDED, "exit", id)
    assert {p.value.status for p in installation.known.pipelines} == {PipelineStatus.FINISHED}
    assert installation.ids() == list(range(20))
    assert (installation.home.logs(JOB) / "console.log").read_text().count(
        "SeaTunnelRow#kind"
    ) == 20
    installation.until(lambda: not list(installation.home.work_root.iterdir()))


def test_a_driver_outlives_its_worker_and_the_next_worker_adopts_it_and_reports_its_end(
    installation: Installation,
) -> None:
    first = installation.run()
    process = installation.driver.process
    installation.kill(first)
    installation.until_more()
    second = installation.worker()
    installation.assign(second)
    installation.until_more()
    assert installation.driver.process == process
    assert installation.driver.end is None
    installation.assign(second, DriverCommand.STOP)
    installation.until(installation.ended)
    end = installation.driver.end
    assert end is not None
    assert (end.code, end.proof) == (None, "session empty")
    assert installation.driver.process == process
    assert {p.value.status for p in installation.known.pipelines} == {PipelineStatus.CANCELED}
    assert installation.ids() == list(range(installation.rows_written()))


def test_a_driver_killed_while_nobody_watched_is_reported_by_the_worker_that_adopts_it(
    installation: Installation,
) -> None:
    first = installation.run()
    installation.kill(first)
    assert kill_session(installation.driver.process)
    second = installation.worker()
    installation.assign(second)
    installation.until(installation.ended)
    assert installation.driver.end is not None
    assert installation.driver.end.proof == "session empty"


def test_a_killed_driver_is_reported_with_its_signal_and_started_again_only_for_a_new_generation(
    installation: Installation,
) -> None:
    id = installation.run()
    process = installation.driver.process
    os.kill(process.pid, signal.SIGKILL)
    installation.until(installation.ended)
    assert installation.driver.end is not None
    assert (installation.driver.end.code, installation.driver.end.proof) == (-9, "exit")
    installation.until(lambda: not list(installation.home.work_root.iterdir()))
    installation.fence()
    installation.assign(id, generation=2)
    installation.until(lambda: installation.driver.generation == 2)
    assert installation.driver.process != process
    installation.until_more()
    installation.assign(id, DriverCommand.STOP, generation=2)
    installation.until(installation.ended)
    assert installation.ids() == list(range(installation.rows_written()))


# A driver that receives SIGTERM in its first moments, before it listens to signals, dies of the
# signal: that is an end too.
@pytest.mark.parametrize(
    ("order", "codes"),
    [
        (DriverCommand.STOP, {0}),
        (DriverCommand.INTERRUPT, {0}),
        (DriverCommand.TERMINATE, {0, -15}),
        (DriverCommand.KILL, {-9}),
    ],
)
def test_an_order_ends_the_driver(
    installation: Installation, order: DriverCommand, codes: set[int]
) -> None:
    id = installation.run()
    process = installation.driver.process
    installation.assign(id, order)
    installation.until(installation.ended)
    assert installation.driver.end is not None
    assert installation.driver.end.code in codes
    assert not session_members(process)


def test_a_stop_needs_no_worker(installation: Installation) -> None:
    first = installation.run()
    process = installation.driver.process
    installation.kill(first)
    installation.assign(first, DriverCommand.STOP)
    installation.until(
        lambda: {p.value.status for p in installation.known.pipelines} == {PipelineStatus.CANCELED}
    )
    installation.until(lambda: not session_members(process))


def test_a_driver_whose_generation_was_moved_ends_itself_and_writes_nothing_more(
    installation: Installation,
) -> None:
    first = installation.run()
    process = installation.driver.process
    installation.kill(first)
    installation.fence()
    before = installation.known.pipelines
    installation.until(lambda: not session_members(process))
    assert installation.known.pipelines == before


def test_a_second_driver_for_one_generation_is_refused(installation: Installation) -> None:
    id = installation.run()
    process = installation.driver.process
    order = driver_spec(
        EngineSettings(), installation.home, job_id=JOB, generation=1, worker=id, detached=True
    )
    second = launch(order, Program(environ=os.environ, module="tidegate.testing.plain_driver"))
    installation.drivers.append(second)
    assert second.process.wait(TIMEOUT_S) == DriverExit.FENCED
    assert installation.driver.process == process
    installation.until_more()


def test_a_driver_that_dies_before_it_could_register_is_reported_with_its_last_words(
    installation: Installation,
) -> None:
    installation.submit()
    id = installation.worker(failpoint="driver.register.before")
    installation.assign(id)
    installation.until(installation.ended)
    end = installation.driver.end
    assert end is not None
    assert (end.code, end.stderr_tail) == (-9, "failpoint driver.register.before: kill")
    assert (installation.driver.generation, installation.driver.worker) == (1, id)


def test_a_worker_that_was_paused_past_its_lease_writes_nothing_until_it_has_a_new_one(
    installation: Installation,
) -> None:
    first = installation.run()
    process = installation.driver.process
    lease = installation.store.get(LEASES, f"worker/{first}")
    assert lease is not None
    os.kill(installation.workers[first].pid, signal.SIGSTOP)
    second = installation.worker()
    installation.store.transact([], [Delete(LEASES, f"worker/{first}"), Delete(WORKERS, first)])
    installation.assign(second)
    kill_session(process)
    installation.until(installation.ended)
    report = installation.driver
    os.kill(installation.workers[first].pid, signal.SIGCONT)
    installation.until(lambda: installation.store.get(WORKERS, first) is not None)
    renewed = installation.store.get(LEASES, f"worker/{first}")
    assert renewed is not None
    assert renewed.version > lease.version
    assert installation.driver == report
    assert report.end is not None
    assert report.end.proof == "session empty"  # the second one's: it was not its child


@pytest.mark.parametrize(
    "place",
    [
        "worker.announce.before",
        "worker.announce.after",
        "driver.launch.before",
        "driver.launch.after",
        "driver.handover.before",
        "driver.handover.after",
        "worker.report.before",
        "worker.report.after",
    ],
)
def test_a_worker_killed_anywhere_is_replaced_and_the_job_ends_once(
    installation: Installation, place: str
) -> None:
    installation.submit(rows=20, mode="BATCH", rate=100)
    warm = int("handover" in place)
    first = installation.start_worker(warm, place)
    installation.until(
        lambda: not warm or bool(list(installation.home.work_root.glob("warm/*/ready")))
    )
    installation.assign(first)
    assert installation.workers[first].wait(TIMEOUT_S) == -9
    second = installation.worker()
    installation.assign(second)
    installation.until(installation.ended)
    installation.until(
        lambda: {p.value.status for p in installation.known.pipelines} == {PipelineStatus.FINISHED}
    )
    assert installation.ids() == list(range(20))
    installation.until(lambda: not session_members(installation.driver.process))


@pytest.mark.parametrize("place", ["worker.leave.before", "worker.leave.after"])
def test_a_worker_killed_while_it_leaves_is_as_one_that_was_killed_before(
    installation: Installation, place: str
) -> None:
    installation.submit()
    first = installation.worker(failpoint=place)
    installation.assign(first)
    installation.until(lambda: installation.checkpoints() >= 1)
    process = installation.workers[first]
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None
    assert process.wait(TIMEOUT_S) == -9
    driver = installation.driver.process
    second = installation.worker()
    installation.assign(second)
    installation.until_more()
    assert installation.driver.process == driver


def test_an_idle_driver_gives_signs_of_life(installation: Installation) -> None:
    installation.submit(rows=5, rate=1000)  # a streaming job that has read all there is
    id = installation.worker()
    installation.assign(id)

    def last_sign() -> int:
        entry = installation.store.get(METRICS, f"{JOB}/1")
        return from_document(PipelineMetrics, entry.value).at_ms if entry else 0

    installation.until(lambda: last_sign() > 0)
    signs: set[int] = set()

    def three_signs() -> bool:
        signs.add(last_sign())
        return len(signs) >= 3

    installation.until(three_signs)
    ordered = sorted(signs)
    assert all(later - earlier < 5000 for earlier, later in itertools.pairwise(ordered))


def test_a_driver_that_waits_warm_takes_the_job_and_another_one_takes_its_place(
    installation: Installation,
) -> None:
    installation.submit(rows=20, mode="BATCH", rate=1000)
    id = installation.worker(warm=1)
    warm = installation.home.work_root / "warm"
    installation.until(lambda: bool(list(warm.glob("*/ready"))))
    waiting = next(warm.glob("*/ready")).parent.name
    installation.assign(id)
    installation.until(installation.ended)
    assert waiting == f"{installation.driver.process.pid}.{installation.driver.process.started}"
    assert installation.driver.end is not None
    assert installation.driver.end.code == DriverExit.ENDED
    assert (installation.home.logs(JOB) / "console.log").read_text().count(
        "SeaTunnelRow#kind"
    ) == 20
    installation.until(
        lambda: (
            bool(ready := list(warm.glob("*/ready")))
            and waiting not in {p.parent.name for p in ready}
        )
    )
    installation.kill(id)  # and those that wait end with it

    def gone() -> bool:
        return not any(Path("/proc", p.name.split(".")[0]).exists() for p in warm.glob("*"))

    installation.until(gone)


def test_a_worker_that_leaves_in_order_leaves_its_drivers_running(
    installation: Installation,
) -> None:
    id = installation.run()
    process = installation.workers[id]
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None
    assert process.wait(TIMEOUT_S) == 0
    assert installation.store.get(WORKERS, id) is None
    assert installation.store.get(LEASES, f"worker/{id}") is None
    installation.until_more()
