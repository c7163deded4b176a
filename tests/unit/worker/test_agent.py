"""The decisions of a worker, turn by turn, on a host that the test plays."""

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
class Hands:
    """A clock that stands still until it is turned."""

    at_s: float = 1000.0

    def now_ms(self) -> int:
        return int(self.at_s * 1000)

    def monotonic_s(self) -> float:
        return self.at_s

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.at_s += seconds
        return event.is_set()


@dataclass
class Puppet:
    """A driver that lives until the test says otherwise."""

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
class Stage:
    """A host: what was started, adopted and cleared there."""

    started: list[tuple[DriverSpec, bool]] = field(default_factory=list)
    adopted: list[ProcessRef] = field(default_factory=list)
    cleared: list[tuple[int, int]] = field(default_factory=list)
    puppets: dict[ProcessRef, Puppet] = field(default_factory=dict)
    turns: int = 0

    def start(self, order: DriverSpec, *, plain: bool) -> Puppet:
        self.started.append((order, plain))
        return self._puppet(process(100 + len(self.started)))

    def adopt(self, process: ProcessRef, job_id: int) -> Puppet:
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

    def _puppet(self, ref: ProcessRef) -> Puppet:
        self.puppets[ref] = Puppet(ref)
        return self.puppets[ref]

    @property
    def last(self) -> Puppet:
        return list(self.puppets.values())[-1]


def process(pid: int, host: str = "here") -> ProcessRef:
    return ProcessRef(pid=pid, started=pid, boot="boot", host=host)


class World:
    """A store, a host and a worker; the test is the leader and the drivers."""

    def __init__(self, store: Store, *, warm: int = 0) -> None:
        self.store = store
        self.stage = Stage()
        self.clock = Hands()
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

    def running(self) -> Puppet:
        """A driver that was started here and has registered."""
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
def world(store: Store) -> World:
    return World(store)


def test_a_worker_puts_itself_on_record_under_its_lease(world: World) -> None:
    world.turn()
    entry = world.store.get(WORKERS, "w")
    assert entry is not None
    assert from_document(WorkerRecord, entry.value) == world.me
    version = entry.version
    world.turn(3)
    assert world.store.get(WORKERS, "w").version == version  # type: ignore[union-attr]  # it is there


def test_a_worker_whose_lease_was_taken_away_claims_it_anew_and_goes_on(world: World) -> None:
    puppet = world.running()
    world.store.transact([], [Delete(LEASES, "worker/w"), Delete(WORKERS, "w")])
    world.clock.at_s += 5
    world.turn(2)
    assert world.store.get(WORKERS, "w") is not None
    assert len(world.stage.started) == 1
    puppet.state = Exited(code=0, proof="exit")
    world.turn()
    assert world.end is not None


def test_a_driver_is_started_once_for_a_generation_with_what_it_has_to_know(world: World) -> None:
    world.assign()
    world.turn(5)
    assert len(world.stage.started) == 1
    order = world.stage.started[0][0]
    assert (order.job_id, order.generation, order.worker, order.detached) == (JOB, 3, "w", True)
    assert order.store_url.startswith("sqlite:////nowhere/")


def test_what_is_assigned_to_another_worker_is_left_alone(world: World) -> None:
    world.assign(worker="other")
    world.turn(3)
    assert world.stage.started == []


@pytest.mark.parametrize(
    "order",
    [DriverCommand.STOP, DriverCommand.INTERRUPT, DriverCommand.TERMINATE, DriverCommand.KILL],
)
def test_nothing_is_started_for_an_assignment_that_shall_end(
    world: World, order: DriverCommand
) -> None:
    world.assign(order)
    world.turn(3)
    assert world.stage.started == []


def test_a_driver_that_ends_is_reported_once_with_code_and_last_words(world: World) -> None:
    puppet = world.running()
    puppet.state = Exited(code=70, proof="exit", stderr_tail="x" * 1000 + "the JVM died")
    world.turn()
    end = world.end
    assert end is not None
    assert (end.code, end.proof, end.stderr_tail[-12:], len(end.stderr_tail)) == (
        70,
        "exit",
        "the JVM died",
        500,
    )
    assert world.stage.cleared == [(JOB, 3)]
    world.turn(5)
    assert world.end == end
    assert len(world.stage.started) == 1
    assert world.worker.drivers == {}


def test_a_driver_that_dies_before_it_could_register_is_put_on_record_as_dead(world: World) -> None:
    world.assign()
    world.turn()
    world.stage.last.state = Exited(code=1, proof="exit", stderr_tail="no such module")
    world.turn(3)
    assert world.driver is not None
    assert (world.driver.generation, world.driver.process, world.driver.worker) == (
        3,
        world.stage.last.ref,
        "w",
    )
    assert world.end is not None
    assert world.end.stderr_tail == "no such module"
    assert len(world.stage.started) == 1


@pytest.mark.parametrize(
    "now",
    [
        JobState(job_id=JOB, status=JobStatus.SCHEDULED, generation=4),
        JobState(job_id=JOB, status=JobStatus.CANCELED, generation=3),
        None,
    ],
)
def test_a_death_before_registration_is_no_news_to_a_job_that_has_moved_on(
    world: World, now: JobState | None
) -> None:
    world.assign()
    world.turn()
    world.store.transact([], [Delete(JOB_STATES, str(JOB))])
    if now is not None:
        world.state(now)
    world.stage.last.state = Exited(code=75, proof="exit")
    world.turn(2)
    assert world.driver is None
    assert world.worker.drivers == {}
    assert world.stage.cleared == [(JOB, 3)]


def test_a_child_that_lost_the_race_to_register_is_forgotten_and_the_winner_adopted(
    world: World,
) -> None:
    world.assign()
    world.turn()
    loser, winner = world.stage.last, process(999)
    world.register(winner)
    loser.state = Exited(code=75, proof="exit")
    world.turn(2)
    assert world.stage.adopted == [winner]
    assert world.end is None
    assert world.stage.cleared == []  # the winner works there
    assert set(world.worker.drivers) == {winner}


def test_a_driver_that_another_worker_started_is_adopted_and_not_started_again(
    world: World,
) -> None:
    there = process(50)
    world.register(there)
    world.assign()
    world.turn(3)
    assert (world.stage.started, world.stage.adopted) == ([], [there])
    world.stage.last.state = Exited()
    world.turn()
    assert world.end is not None
    assert (world.end.code, world.end.proof) == (None, "session empty")


def test_a_driver_of_another_host_is_not_for_this_worker_to_judge(world: World) -> None:
    world.register(process(50, host="elsewhere"))
    world.assign()
    world.turn(3)
    assert (world.stage.started, world.stage.adopted, world.end) == ([], [], None)


def test_a_driver_on_record_that_has_ended_is_neither_adopted_nor_started_again(
    world: World,
) -> None:
    world.register(process(50), end=DriverEnd(at_ms=1, code=0))
    world.assign()
    world.turn(3)
    assert (world.stage.started, world.stage.adopted) == ([], [])


def test_a_new_generation_gets_a_new_driver(world: World) -> None:
    puppet = world.running()
    puppet.state = Exited(code=-9, proof="exit")
    world.turn()
    world.state(JobState(job_id=JOB, status=JobStatus.SCHEDULED, generation=4))
    world.assign(generation=4)
    world.turn(2)
    assert [order.generation for order, _ in world.stage.started] == [3, 4]


def test_terminate_is_carried_out_once_and_kill_until_it_is_dead(world: World) -> None:
    puppet = world.running()
    world.assign(DriverCommand.STOP)
    world.turn(2)
    world.assign(DriverCommand.INTERRUPT)
    world.turn(2)
    assert puppet.acts == []  # those two the driver reads by itself
    world.assign(DriverCommand.TERMINATE)
    world.turn(3)
    assert puppet.acts == ["terminate"]
    world.assign(DriverCommand.KILL)
    world.turn(2)
    assert puppet.acts == ["terminate", "kill", "kill"]


def test_an_order_reaches_a_driver_that_has_not_registered(world: World) -> None:
    world.assign()
    world.turn()
    world.assign(DriverCommand.KILL)
    world.turn()
    assert world.stage.last.acts == ["kill"]


def test_a_driver_whose_assignment_is_gone_is_killed_and_still_reported(world: World) -> None:
    puppet = world.running()
    world.unassign()
    world.turn()
    assert puppet.acts == ["kill"]
    puppet.state = Exited(code=-9, proof="exit")
    world.turn()
    assert world.end is not None
    assert world.end.code == -9


def test_a_driver_of_an_older_generation_is_killed(world: World) -> None:
    puppet = world.running()
    world.assign(worker="other", generation=4)
    world.turn()
    assert puppet.acts == ["kill"]


def test_a_driver_that_was_given_to_another_worker_is_left_alone(world: World) -> None:
    puppet = world.running()
    world.assign(DriverCommand.KILL, worker="other")
    world.turn(2)
    assert puppet.acts == []


def test_an_assignment_that_cannot_be_read_kills_nothing(world: World) -> None:
    puppet = world.running()
    world.store.transact([], [Put(ASSIGNMENTS, str(JOB), {"version": 99})])
    world.turn(2)
    assert puppet.acts == []


def test_one_driver_that_does_not_die_does_not_hold_up_the_others(world: World) -> None:
    puppet = world.running()
    world.assign(DriverCommand.KILL)
    it = Assignment(job_id=8, initialization_ms=1, generation=1, worker="w")
    world.store.transact(
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
    world.turn()
    assert puppet.acts == ["kill"]
    assert [order.job_id for order, _ in world.stage.started] == [JOB, 8]


def test_a_report_that_meets_a_change_looks_again(world: World) -> None:
    puppet = world.running()
    puppet.state = Exited(code=0, proof="exit")
    original = world.store.transact
    beaten: list[int] = []

    def beat_it(checks: object = (), writes: object = ()) -> int:
        if not beaten and any(isinstance(w, Put) and w.map == DRIVERS for w in writes):  # type: ignore[attr-defined]  # a sequence
            beaten.append(1)
            world.register(puppet.ref)
        return original(checks, writes)  # type: ignore[arg-type]  # as they came

    world.worker.store.transact = beat_it  # type: ignore[method-assign]  # somebody is quicker by a moment
    world.turn()
    assert world.end is None
    world.turn()
    assert world.end is not None


def test_a_store_out_of_reach_ends_nothing_and_the_report_follows(store: Store) -> None:
    down: list[bool] = []
    front, _ = faulty_store(store, lambda _: Fault.UNAVAILABLE if down else Fault.NONE)
    world = World(front)
    puppet = world.running()
    down.append(True)
    puppet.state = Exited(code=0, proof="exit")
    world.turn(10)
    assert puppet.acts == []
    down.clear()
    world.turn(2)
    assert world.end is not None


@pytest.mark.parametrize(
    ("env", "plain"),
    [
        (JobEnv(), True),
        (JobEnv(spark={"spark.driver.memory": "2g"}), False),
        (JobEnv(jars=("a.jar",)), False),
    ],
)
def test_only_a_job_without_wishes_of_its_own_gets_a_driver_that_waits(
    store: Store, env: JobEnv, plain: bool
) -> None:
    world = World(store, warm=1)
    record = JobRecord(
        job_id=JOB,
        name="j",
        initialization_ms=1,
        lineage="7-1",
        plan=Plan(job_name="j", env=env, pipelines=()),
    )
    store.transact([], [Put(RUNNING_JOBS, str(JOB), to_document(record))])
    world.assign()
    world.turn()
    assert world.stage.started[0][1] is plain


def test_a_worker_that_leaves_takes_its_record_and_its_lease_with_it(world: World) -> None:
    world.running()
    world.worker.leave()
    assert world.store.get(WORKERS, "w") is None
    assert world.store.get(LEASES, "worker/w") is None
    assert world.end is None
