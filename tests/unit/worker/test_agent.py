"""The decisions of a worker, cycle by cycle, on a simulated host."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tidegate.home import Home
from tidegate.model.document import from_document, to_document
from tidegate.model.engine import DriverSpec, EngineSettings, WorkerSettings
from tidegate.model.job import JobEnv
from tidegate.model.plan import Plan
from tidegate.model.records import (
    ASSIGNMENTS,
    DRIVERS,
    JOB_STATES,
    LEASES,
    RUNNING_JOBS,
    WORKERS,
    Assignment,
    DriverCommand,
    DriverEnd,
    DriverRecord,
    JobRecord,
    JobState,
    JobStatus,
    ProcessRef,
    WorkerRecord,
)
from tidegate.store import Delete, Put, Store, open_store
from tidegate.testing.faulty_store import Fault, faulty_store
from tidegate.worker.agent import Worker
from tidegate.worker.driver_handle import Alive, Exited

JOB = 7


@dataclass
class ManualClock:
    """A clock that advances only when the test advances it."""

    at_s: float = 1000.0

    def now_ms(self) -> int:
        return int(self.at_s * 1000)

    def monotonic_s(self) -> float:
        return self.at_s

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.at_s += seconds
        return event.is_set()


@dataclass
class FakeDriver:
    """A driver that is alive until the test ends it."""

    ref: ProcessRef
    state: Alive | Exited = field(default_factory=Alive)
    acts: list[str] = field(default_factory=list)

    def poll(self) -> Alive | Exited:
        return self.state

    def terminate(self) -> None:
        self.acts.append("terminate")

    def kill(self) -> None:
        self.acts.append("kill")


@dataclass
class FakeHost:
    """A host that records what was started, adopted and cleared."""

    started: list[tuple[DriverSpec, bool]] = field(default_factory=list)
    adopted: list[ProcessRef] = field(default_factory=list)
    cleared: list[tuple[int, int]] = field(default_factory=list)
    puppets: dict[ProcessRef, FakeDriver] = field(default_factory=dict)
    turns: int = 0

    def start(self, order: DriverSpec, *, plain: bool) -> FakeDriver:
        self.started.append((order, plain))
        return self._puppet(process(100 + len(self.started)))

    def adopt(self, process: ProcessRef, job_id: int) -> FakeDriver:
        assert job_id == JOB
        self.adopted.append(process)
        return self._puppet(process)

    def clear(self, job_id: int, generation: int, process: ProcessRef) -> None:
        assert process in self.puppets
        self.cleared.append((job_id, generation))

    def maintain(self) -> None:
        self.turns += 1

    def close(self) -> None:
        return

    def _puppet(self, ref: ProcessRef) -> FakeDriver:
        self.puppets[ref] = FakeDriver(ref)
        return self.puppets[ref]

    @property
    def last(self) -> FakeDriver:
        return list(self.puppets.values())[-1]


def process(pid: int, host: str = "here") -> ProcessRef:
    return ProcessRef(pid=pid, started=pid, boot="boot", host=host)


class Scenario:
    """A store, a host and a worker; the test is the leader and the drivers."""

    def __init__(self, store: Store, *, warm: int = 0) -> None:
        self.store = store
        self.stage = FakeHost()
        self.clock = ManualClock()
        self.me = WorkerRecord(id="w", host="here", boot="boot", process=process(1), slots=2)
        settings = EngineSettings(worker=WorkerSettings(lease_ms=4000, warm=warm))
        self.worker = Worker(
            store, settings, self.me, Home(Path("/nowhere")), self.stage, self.clock
        )
        self.state(JobState(job_id=JOB, status=JobStatus.SCHEDULED, generation=3))

    def state(self, state: JobState) -> None:
        self.store.transact([], [Put(JOB_STATES, str(JOB), to_document(state))])

    def assign(
        self, order: DriverCommand = DriverCommand.RUN, *, worker: str = "w", generation: int = 3
    ) -> None:
        it = Assignment(
            job_id=JOB, initialization_ms=1, generation=generation, worker=worker, command=order
        )
        self.store.transact([], [Put(ASSIGNMENTS, str(JOB), to_document(it))])

    def unassign(self) -> None:
        self.store.transact([], [Delete(ASSIGNMENTS, str(JOB))])

    def register(
        self, ref: ProcessRef, *, generation: int = 3, end: DriverEnd | None = None
    ) -> None:
        record = DriverRecord(job_id=JOB, generation=generation, process=ref, worker="w", end=end)
        self.store.transact([], [Put(DRIVERS, str(JOB), to_document(record))])

    @property
    def driver(self) -> DriverRecord | None:
        entry = self.store.get(DRIVERS, str(JOB))
        return from_document(DriverRecord, entry.value) if entry else None

    @property
    def end(self) -> DriverEnd | None:
        return self.driver.end if self.driver else None

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.clock.at_s += 0.2
            self.worker.step()

    def running(self) -> FakeDriver:
        """Return a driver that was started here and has registered."""
        self.assign()
        self.turn()
        puppet = self.stage.last
        self.register(puppet.ref)
        self.turn()
        return puppet


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store("memory:")
    yield store
    store.close()


@pytest.fixture
def scenario(store: Store) -> Scenario:
    return Scenario(store)


def test_a_worker_records_itself_under_its_lease(scenario: Scenario) -> None:
    scenario.turn()
    entry = scenario.store.get(WORKERS, "w")
    assert entry is not None
    assert from_document(WorkerRecord, entry.value) == scenario.me
    version = entry.version
    scenario.turn(3)
    assert scenario.store.get(WORKERS, "w").version == version  # type: ignore[union-attr]  # it is there


def test_a_worker_that_lost_its_lease_acquires_it_again(scenario: Scenario) -> None:
    puppet = scenario.running()
    scenario.store.transact([], [Delete(LEASES, "worker/w"), Delete(WORKERS, "w")])
    scenario.clock.at_s += 5
    scenario.turn(2)
    assert scenario.store.get(WORKERS, "w") is not None
    assert len(scenario.stage.started) == 1
    puppet.state = Exited(code=0, proof="exit")
    scenario.turn()
    assert scenario.end is not None


def test_a_driver_is_started_once_per_generation_with_its_spec(scenario: Scenario) -> None:
    scenario.assign()
    scenario.turn(5)
    assert len(scenario.stage.started) == 1
    order = scenario.stage.started[0][0]
    assert (order.job_id, order.generation, order.worker, order.detached) == (JOB, 3, "w", True)
    assert order.store_url.startswith("sqlite:////nowhere/")


def test_assignments_of_other_workers_are_ignored(scenario: Scenario) -> None:
    scenario.assign(worker="other")
    scenario.turn(3)
    assert scenario.stage.started == []


@pytest.mark.parametrize(
    "order",
    [DriverCommand.STOP, DriverCommand.INTERRUPT, DriverCommand.TERMINATE, DriverCommand.KILL],
)
def test_no_driver_is_started_for_an_assignment_that_must_end(
    scenario: Scenario, order: DriverCommand
) -> None:
    scenario.assign(order)
    scenario.turn(3)
    assert scenario.stage.started == []


def test_an_exited_driver_is_reported_once_with_code_and_stderr(scenario: Scenario) -> None:
    puppet = scenario.running()
    puppet.state = Exited(code=70, proof="exit", stderr_tail="x" * 1000 + "the JVM died")
    scenario.turn()
    end = scenario.end
    assert end is not None
    assert (end.code, end.proof, end.stderr_tail[-12:], len(end.stderr_tail)) == (
        70,
        "exit",
        "the JVM died",
        500,
    )
    assert scenario.stage.cleared == [(JOB, 3)]
    scenario.turn(5)
    assert scenario.end == end
    assert len(scenario.stage.started) == 1
    assert scenario.worker.drivers == {}


def test_a_driver_that_dies_before_registration_is_recorded_as_dead(scenario: Scenario) -> None:
    scenario.assign()
    scenario.turn()
    scenario.stage.last.state = Exited(code=1, proof="exit", stderr_tail="no such module")
    scenario.turn(3)
    assert scenario.driver is not None
    assert (scenario.driver.generation, scenario.driver.process, scenario.driver.worker) == (
        3,
        scenario.stage.last.ref,
        "w",
    )
    assert scenario.end is not None
    assert scenario.end.stderr_tail == "no such module"
    assert len(scenario.stage.started) == 1


@pytest.mark.parametrize(
    "now",
    [
        JobState(job_id=JOB, status=JobStatus.SCHEDULED, generation=4),
        JobState(job_id=JOB, status=JobStatus.CANCELED, generation=3),
        None,
    ],
)
def test_a_death_before_registration_is_ignored_after_a_newer_generation(
    scenario: Scenario, now: JobState | None
) -> None:
    scenario.assign()
    scenario.turn()
    scenario.store.transact([], [Delete(JOB_STATES, str(JOB))])
    if now is not None:
        scenario.state(now)
    scenario.stage.last.state = Exited(code=75, proof="exit")
    scenario.turn(2)
    assert scenario.driver is None
    assert scenario.worker.drivers == {}
    assert scenario.stage.cleared == [(JOB, 3)]


def test_a_child_that_lost_the_registration_is_dropped_and_the_winner_adopted(
    scenario: Scenario,
) -> None:
    scenario.assign()
    scenario.turn()
    loser, winner = scenario.stage.last, process(999)
    scenario.register(winner)
    loser.state = Exited(code=75, proof="exit")
    scenario.turn(2)
    assert scenario.stage.adopted == [winner]
    assert scenario.end is None
    assert scenario.stage.cleared == []  # the winner works there
    assert set(scenario.worker.drivers) == {winner}


def test_a_driver_that_another_worker_started_is_adopted_and_not_started_again(
    scenario: Scenario,
) -> None:
    there = process(50)
    scenario.register(there)
    scenario.assign()
    scenario.turn(3)
    assert (scenario.stage.started, scenario.stage.adopted) == ([], [there])
    scenario.stage.last.state = Exited()
    scenario.turn()
    assert scenario.end is not None
    assert (scenario.end.code, scenario.end.proof) == (None, "session empty")


def test_a_driver_of_another_host_is_ignored(scenario: Scenario) -> None:
    scenario.register(process(50, host="elsewhere"))
    scenario.assign()
    scenario.turn(3)
    assert (scenario.stage.started, scenario.stage.adopted, scenario.end) == ([], [], None)


def test_a_recorded_exit_is_neither_adopted_nor_restarted(
    scenario: Scenario,
) -> None:
    scenario.register(process(50), end=DriverEnd(at_ms=1, code=0))
    scenario.assign()
    scenario.turn(3)
    assert (scenario.stage.started, scenario.stage.adopted) == ([], [])


def test_a_new_generation_gets_a_new_driver(scenario: Scenario) -> None:
    puppet = scenario.running()
    puppet.state = Exited(code=-9, proof="exit")
    scenario.turn()
    scenario.state(JobState(job_id=JOB, status=JobStatus.SCHEDULED, generation=4))
    scenario.assign(generation=4)
    scenario.turn(2)
    assert [order.generation for order, _ in scenario.stage.started] == [3, 4]


def test_terminate_is_applied_once_and_kill_until_the_driver_is_dead(scenario: Scenario) -> None:
    puppet = scenario.running()
    scenario.assign(DriverCommand.STOP)
    scenario.turn(2)
    scenario.assign(DriverCommand.INTERRUPT)
    scenario.turn(2)
    assert puppet.acts == []  # those two the driver reads by itself
    scenario.assign(DriverCommand.TERMINATE)
    scenario.turn(3)
    assert puppet.acts == ["terminate"]
    scenario.assign(DriverCommand.KILL)
    scenario.turn(2)
    assert puppet.acts == ["terminate", "kill", "kill"]


def test_a_command_reaches_an_unregistered_driver(scenario: Scenario) -> None:
    scenario.assign()
    scenario.turn()
    scenario.assign(DriverCommand.KILL)
    scenario.turn()
    assert scenario.stage.last.acts == ["kill"]


def test_a_driver_without_assignment_is_killed_and_reported(scenario: Scenario) -> None:
    puppet = scenario.running()
    scenario.unassign()
    scenario.turn()
    assert puppet.acts == ["kill"]
    puppet.state = Exited(code=-9, proof="exit")
    scenario.turn()
    assert scenario.end is not None
    assert scenario.end.code == -9


def test_a_driver_of_an_older_generation_is_killed(scenario: Scenario) -> None:
    puppet = scenario.running()
    scenario.assign(worker="other", generation=4)
    scenario.turn()
    assert puppet.acts == ["kill"]


def test_a_driver_assigned_to_another_worker_is_left_alone(scenario: Scenario) -> None:
    puppet = scenario.running()
    scenario.assign(DriverCommand.KILL, worker="other")
    scenario.turn(2)
    assert puppet.acts == []


def test_an_assignment_that_cannot_be_read_kills_nothing(scenario: Scenario) -> None:
    puppet = scenario.running()
    scenario.store.transact([], [Put(ASSIGNMENTS, str(JOB), {"version": 99})])
    scenario.turn(2)
    assert puppet.acts == []


def test_an_unkillable_driver_does_not_block_the_others(scenario: Scenario) -> None:
    puppet = scenario.running()
    scenario.assign(DriverCommand.KILL)
    it = Assignment(job_id=8, initialization_ms=1, generation=1, worker="w")
    scenario.store.transact(
        [],
        [
            Put(ASSIGNMENTS, "8", to_document(it)),
            Put(
                JOB_STATES,
                "8",
                to_document(JobState(job_id=8, status=JobStatus.SCHEDULED, generation=1)),
            ),
        ],
    )
    scenario.turn()
    assert puppet.acts == ["kill"]
    assert [order.job_id for order, _ in scenario.stage.started] == [JOB, 8]


def test_a_report_is_repeated_after_a_conflict(scenario: Scenario) -> None:
    puppet = scenario.running()
    puppet.state = Exited(code=0, proof="exit")
    original = scenario.store.transact
    beaten: list[int] = []

    def beat_it(checks: object = (), writes: object = ()) -> int:
        if not beaten and any(isinstance(w, Put) and w.map == DRIVERS for w in writes):  # type: ignore[attr-defined]  # a Put has it
            beaten.append(1)
            scenario.register(puppet.ref)
        return original(checks, writes)  # type: ignore[arg-type]  # as they came

    scenario.worker.store.transact = beat_it  # type: ignore[method-assign]  # a test double
    scenario.turn()
    assert scenario.end is None
    scenario.turn()
    assert scenario.end is not None


def test_an_unreachable_store_delays_the_report_and_ends_no_driver(store: Store) -> None:
    down: list[bool] = []
    front, _ = faulty_store(store, lambda _: Fault.UNAVAILABLE if down else Fault.NONE)
    scenario = Scenario(front)
    puppet = scenario.running()
    down.append(True)
    puppet.state = Exited(code=0, proof="exit")
    scenario.turn(10)
    assert puppet.acts == []
    down.clear()
    scenario.turn(2)
    assert scenario.end is not None


@pytest.mark.parametrize(
    ("env", "plain"),
    [
        (JobEnv(), True),
        (JobEnv(spark={"spark.driver.memory": "2g"}), False),
        (JobEnv(jars=("a.jar",)), False),
    ],
)
def test_only_a_job_without_spark_settings_gets_a_warm_driver(
    store: Store, env: JobEnv, plain: bool
) -> None:
    scenario = Scenario(store, warm=1)
    record = JobRecord(
        job_id=JOB,
        name="j",
        initialization_ms=1,
        lineage="7-1",
        plan=Plan(job_name="j", env=env, pipelines=()),
    )
    store.transact([], [Put(RUNNING_JOBS, str(JOB), to_document(record))])
    scenario.assign()
    scenario.turn()
    assert scenario.stage.started[0][1] is plain


def test_a_leaving_worker_deletes_its_record_and_lease(scenario: Scenario) -> None:
    scenario.running()
    scenario.worker.leave()
    assert scenario.store.get(WORKERS, "w") is None
    assert scenario.store.get(LEASES, "worker/w") is None
    assert scenario.end is None
