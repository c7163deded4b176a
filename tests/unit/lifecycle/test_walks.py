"""Seeded random walks: the machine against a small model of workers, drivers and leaders, in which
everything dies, hangs or gets cut off.
"""

import random
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from tidegate.lifecycle.decision import Decision, Transition
from tidegate.lifecycle.machine import decide, edges
from tidegate.lifecycle.observation import (
    DriverSupervision,
    JobHealth,
    JobObservation,
    LifecycleLimits,
    Placement,
    Unplaceable,
)
from tidegate.model.job import JobEnv
from tidegate.model.plan import Plan
from tidegate.model.records import (
    Assignment,
    CheckpointHealth,
    CheckpointRef,
    DesiredState,
    DriverCommand,
    DriverEnd,
    DriverRecord,
    JobIntent,
    JobRecord,
    JobState,
    JobStatus,
    PipelineState,
    PipelineStatus,
    ProcessRef,
    SavepointRequest,
    SavepointStatus,
)

LEASE_MS, STALL_MS = 5_000, 60_000
HOSTS = {"a1": "a", "a2": "a", "b1": "b"}
CHAOS_STEPS, KIND_STEPS = 60, 400
LIMITS = LifecycleLimits(savepoint_ms=100_000)
ENDED = (PipelineStatus.FINISHED, PipelineStatus.CANCELED, PipelineStatus.FAILED)


@dataclass
class Process:
    """One driver as it really is."""

    generation: int
    worker: str
    pid: int
    alive: bool = True
    registered: bool = False
    hangs: bool = False  # neither works nor reads its order
    unkillable_failure: bool = False  # no signal ends it
    sign_ms: int = 0
    progress_ms: int = 0


@dataclass
class World:
    """One job, the store's records of it, and what is really there."""

    seed: int
    edges: Counter = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.now_ms = 1_000_000
        self.leaderless = 0
        self.workers = {"a1", "b1"}
        self.cut_off: set[str] = set()
        self.processes: list[Process] = []
        self.started: set[tuple[str, int]] = set()
        self.written_off: set[int] = (
            set()
        )  # generations that count as dead because nobody saw or heard them: fenced, perhaps alive
        self.assignment: Assignment | None = None
        self.driver: DriverRecord | None = None
        self.state_since_ms = self.order_since_ms = self.now_ms
        self.embedded_alive: bool | None = None
        self.savepoint: SavepointRequest | None = None
        self.savepoint_since_ms = self.now_ms
        chance = self.random.random
        env = JobEnv(retry_times=self.random.choice([0, 1, 3]), retry_interval_s=1)
        self.record = JobRecord(
            job_id=1,
            name="j",
            initialization_ms=1,
            lineage="l",
            plan=Plan(job_name="j", env=env, pipelines=()),
        )
        status = JobStatus.INITIALIZING if chance() < 0.1 else JobStatus.CREATED
        self.state = JobState(job_id=1, status=status, generation=4)
        left = self.random.choice(
            [PipelineStatus.CREATED, PipelineStatus.FAILED, PipelineStatus.CANCELED]
        )
        self.pipelines = [
            PipelineState(job_id=1, pipeline=n, lineage="l", generation=4, status=left)
            for n in range(1, self.random.choice([2, 3]))
        ]
        if chance() < 0.1:
            self._inherit()
        if chance() < 0.1:
            self.embedded_alive = self.random.choice([True, None])
            status = self.random.choice(
                [
                    status,
                    JobStatus.PENDING,
                    JobStatus.SCHEDULED,
                    JobStatus.RUNNING,
                    JobStatus.RECOVERING,
                ]
            )
            self.state = replace(
                self.state, status=status, leader=ProcessRef(pid=99, started=1, boot="b", host="h")
            )

    def _inherit(self) -> None:
        """A driver of an earlier incarnation is on record, and perhaps there."""
        old = Process(
            generation=3,
            worker="a1",
            pid=1000,
            registered=True,
            alive=self.random.random() < 0.5,
            hangs=True,
        )
        self.processes.append(old)
        self.driver = self._name(old)

    # --- what happens

    def chaos(self) -> None:
        """One step of a bad world."""
        self._pass(self.random.choice([10, 300, 2_000, 20_000]))
        for _ in range(self.random.choice([1, 2])):
            self.random.choice(self.BAD)(self)
        self.turns()

    def kind(self) -> None:
        """One step of a world in which nothing more goes wrong."""
        self._pass(1_000)
        self.turns()

    def turns(self) -> None:
        for worker in sorted(self.workers):
            if HOSTS[worker] not in self.cut_off:
                self._worker(worker)
        for process in self.processes:
            if process.alive and not process.hangs and self.host(process) not in self.cut_off:
                self._driver(process)
        self._leader()

    def _pass(self, ms: int) -> None:
        self.now_ms += ms

    def _wish(self) -> None:
        if (
            self.random.random() < 0.15
            and self.record.intent.desired is not DesiredState.FORCE_STOP
        ):
            desired = self.random.choice([DesiredState.CANCEL, DesiredState.FORCE_STOP])
            self.record = replace(self.record, intent=JobIntent(desired=desired))
        elif self.random.random() < 0.2 and (
            self.savepoint is None or self.savepoint.status is SavepointStatus.FAILED
        ):
            stop = self.random.random() < 0.7
            self.savepoint = SavepointRequest(
                job_id=1, initialization_ms=1, id=str(self.now_ms), stop=stop, asked_ms=self.now_ms
            )
            self.savepoint_since_ms = self.now_ms

    def _kill_driver(self) -> None:
        for process in self.processes:
            process.alive = process.alive and process.unkillable_failure

    def _hang_driver(self) -> None:
        for process in self.processes:
            process.hangs = True
            process.unkillable_failure = process.unkillable_failure or self.random.random() < 0.3

    def _terminate_driver(self) -> None:
        """The host is shut down in good order: its drivers stop at a checkpoint."""
        for process in self.processes:
            if process.alive and process.registered and not process.hangs:
                self._end_pipelines(process, PipelineStatus.CANCELED)
                process.alive = False

    def _finish_driver(self) -> None:
        """Everything is read, just now."""
        for process in self.processes:
            if (
                process.alive
                and process.registered
                and not process.hangs
                and self.random.random() < 0.3
            ):
                self._end_pipelines(process, PipelineStatus.FINISHED)
                process.alive = self.random.random() < 0.3

    def _slow_down(self) -> None:
        """Alive, and without progress for long."""
        for process in self.processes:
            process.progress_ms -= 2 * STALL_MS

    def _kill_worker(self) -> None:
        if self.workers:
            self.workers.discard(self.random.choice(sorted(self.workers)))

    def _start_worker(self) -> None:
        self.workers.add(self.random.choice(sorted(HOSTS)))

    def _cut_off(self) -> None:
        host = self.random.choice(["a", "b"])
        self.cut_off = self.cut_off ^ {host}
        self.workers -= {w for w, h in HOSTS.items() if h in self.cut_off}

    def _change_leader(self) -> None:
        self.state_since_ms = self.order_since_ms = self.now_ms

    def _lose_leader(self) -> None:
        self.leaderless = 4

    def _kill_run(self) -> None:
        if self.embedded_alive is not None:
            self.embedded_alive = False

    def _nothing(self) -> None:
        pass

    BAD = (
        _wish,
        _kill_driver,
        _hang_driver,
        _terminate_driver,
        _finish_driver,
        _slow_down,
        _kill_worker,
        _start_worker,
        _start_worker,
        _cut_off,
        _change_leader,
        _lose_leader,
        _kill_run,
        _nothing,
        _nothing,
        _nothing,
        _nothing,
    )

    # --- workers and drivers

    def host(self, process: Process) -> str:
        return HOSTS[process.worker]

    def _name(self, process: Process, end: DriverEnd | None = None) -> DriverRecord:
        ref = ProcessRef(pid=process.pid, started=1, boot="b", host=self.host(process))
        return DriverRecord(
            job_id=1,
            generation=process.generation,
            process=ref,
            worker=process.worker,
            started_ms=self.now_ms,
            end=end,
        )

    def _worker(self, worker: str) -> None:
        mine = self.assignment
        if mine is None or mine.worker != worker or self.random.random() < 0.3:
            return
        if (
            mine.command is DriverCommand.RUN
            and (worker, mine.generation) not in self.started
            and self.driver_of(mine.generation) is None
        ):
            self.started.add((worker, mine.generation))
            self.processes.append(
                Process(
                    generation=mine.generation,
                    worker=worker,
                    pid=len(self.processes) + 1,
                    sign_ms=self.now_ms,
                )
            )
        for process in self.processes:
            if process.generation != mine.generation or self.host(process) != HOSTS[worker]:
                continue
            if mine.command in (DriverCommand.TERMINATE, DriverCommand.KILL):
                process.alive = process.alive and process.unkillable_failure
            if not process.alive:
                self._report(process)

    def _report(self, process: Process) -> None:
        end = DriverEnd(at_ms=self.now_ms, code=-9, proof="exit")
        if process.registered:
            if (
                self.driver is not None
                and self.driver.generation == process.generation
                and self.driver.end is None
            ):
                self.driver = replace(self.driver, end=end)
        elif (
            self.state.generation == process.generation
            and self.driver_of(process.generation) is None
        ):
            self.driver = self._name(process, end)

    def driver_of(self, generation: int) -> DriverRecord | None:
        return (
            self.driver
            if self.driver is not None and self.driver.generation == generation
            else None
        )

    def _driver(self, process: Process) -> None:
        if self.state.generation != process.generation or self.state.status.terminal:
            process.alive = False  # fenced
            return
        if not process.registered:
            if self.random.random() < 0.5:
                self._register(process)
            return
        process.sign_ms = self.now_ms
        order = (
            self.assignment.command
            if self.assignment and self.assignment.generation == process.generation
            else DriverCommand.RUN
        )
        if order is not DriverCommand.RUN and self.random.random() < 0.5:
            self._end_pipelines(process, PipelineStatus.CANCELED)
        elif self.savepoint is not None and self.random.random() < 0.4:
            self._save(process, self.savepoint)
        elif self.random.random() < 0.4:
            self._work(process)
        if all(p.status in ENDED for p in self.pipelines) and self.random.random() < 0.7:
            process.alive = False

    def _save(self, process: Process, request: SavepointRequest) -> None:
        """Make the savepoint, or say why not; with one that is done the pipelines end, if they were
        to.
        """
        if request.status is SavepointStatus.WANTED:
            done = self.random.random() < 0.6
            self.savepoint = replace(
                request,
                status=SavepointStatus.DONE if done else SavepointStatus.FAILED,
                reason="" if done else "no space",
            )
        elif request.status is SavepointStatus.DONE and request.stop:
            self._end_pipelines(process, PipelineStatus.CANCELED)

    def _answer(self, reason: str) -> None:
        if (
            reason
            and self.savepoint is not None
            and self.savepoint.status is SavepointStatus.WANTED
        ):
            self.savepoint = replace(self.savepoint, status=SavepointStatus.FAILED, reason=reason)

    def _register(self, process: Process) -> None:
        if self.driver is not None and self.driver.generation >= process.generation:
            process.alive = False
            return
        process.registered, process.sign_ms, process.progress_ms = True, self.now_ms, self.now_ms
        self.driver = self._name(process)

    def _work(self, process: Process) -> None:
        at = self.random.randrange(len(self.pipelines))
        pipeline = self.pipelines[at]
        assert pipeline.generation == process.generation, "two generations at work"
        if pipeline.status in ENDED:
            return
        ref = CheckpointRef(
            checkpoint=pipeline.next_checkpoint,
            path="",
            generation=process.generation,
            begun_ms=self.now_ms,
            completed_ms=self.now_ms,
        )
        status = self.random.choice(
            [PipelineStatus.RUNNING] * 8 + [PipelineStatus.FINISHED, PipelineStatus.FAILED]
        )
        self.pipelines[at] = replace(
            pipeline, status=status, retained=(ref,), next_checkpoint=ref.checkpoint + 1
        )
        process.progress_ms = self.now_ms

    def _end_pipelines(self, process: Process, status: PipelineStatus) -> None:
        for at, pipeline in enumerate(self.pipelines):
            if pipeline.generation == process.generation and pipeline.status not in ENDED:
                ref = CheckpointRef(
                    checkpoint=9,
                    path="",
                    generation=process.generation,
                    begun_ms=self.now_ms,
                    completed_ms=self.now_ms,
                )
                self.pipelines[at] = replace(pipeline, status=status, retained=(ref,))

    # --- the leader

    def _leader(self) -> None:
        if self.leaderless:
            self.leaderless -= 1
            return
        decision = decide(self.view())
        if self.random.random() < 0.1:
            return  # it died between deciding and recording
        if isinstance(decision, Transition):
            self._go(decision)
        else:
            self._order(decision)
        self.check()

    def view(self) -> JobObservation:
        process = self._on_record()
        silent = process is None or self.now_ms - process.sign_ms > LEASE_MS
        hung = (
            process is not None
            and self.now_ms - process.progress_ms > STALL_MS
            and self.state.status is JobStatus.RUNNING
        )
        watcher, adopter = self._watcher()
        places = sorted(self.workers)
        return JobObservation(
            now_ms=self.now_ms,
            record=self.record,
            state=self.state,
            pipelines=tuple(self.pipelines),
            driver=self.driver,
            assignment=self.assignment,
            supervision=watcher,
            adopter=adopter,
            driver_silent=silent,
            state_age_ms=self.now_ms - self.state_since_ms,
            command_age_ms=self.now_ms - self.order_since_ms,
            savepoint=self.savepoint,
            savepoint_age_ms=self.now_ms - self.savepoint_since_ms,
            health=JobHealth(CheckpointHealth.STALLED, "no trigger") if hung else JobHealth(),
            placement=(
                Placement(self.random.choice(places))
                if places
                else Unplaceable("no worker is running", rejected=self.random.random() < 0.1)
            ),
            limits=LIMITS,
            embedded_alive=self.embedded_alive,
        )

    def _on_record(self) -> Process | None:
        return next(
            (
                p
                for p in self.processes
                if self.driver is not None and p.pid == self.driver.process.pid
            ),
            None,
        )

    def _watcher(self) -> tuple[DriverSupervision, str]:
        if self.assignment is None:
            return DriverSupervision.NONE, ""
        if self.assignment.worker in self.workers:
            return DriverSupervision.ALIVE, ""
        here = sorted(
            w
            for w in self.workers
            if self.driver_of(self.assignment.generation) and HOSTS[w] == self.driver.process.host
        )
        return (DriverSupervision.REPLACEABLE, here[0]) if here else (DriverSupervision.GONE, "")

    def _order(self, decision: Decision) -> None:
        self._answer(decision.savepoint)
        before = self.assignment
        if before is None:
            if decision.command is None or decision.worker is None:
                return
            generation = self.driver.generation if self.driver else self.state.generation
            self.assignment = Assignment(
                job_id=1,
                initialization_ms=1,
                generation=generation,
                worker=decision.worker,
                command=decision.command,
            )
        else:
            self.assignment = replace(
                before,
                command=decision.command or before.command,
                worker=decision.worker or before.worker,
            )
        if self.assignment != before:
            self.order_since_ms = self.now_ms

    def _go(self, go: Transition) -> None:
        before = self.state
        assert not before.status.terminal, "terminal is terminal"
        self.edges[before.status, go.to] += 1
        self.state_since_ms = self.now_ms
        self.state = replace(
            before,
            status=go.to,
            restarts=(0 if go.healed else before.restarts) + go.restart,
            failures=(*before.failures, *([go.failure] if go.failure else []))[-20:],
            reason=go.reason,
            not_before_ms=go.not_before_ms,
        )
        if go.proof and self.driver is not None:
            self.written_off.add(self.driver.generation)
            self.driver = replace(self.driver, end=DriverEnd(at_ms=self.now_ms, proof=go.proof))
        if go.to is JobStatus.SCHEDULED:
            self._schedule(go)
        elif go.to.terminal:
            self._answer("it ended")
            self._fence(self.state.generation + 1)
            self.assignment = None
        elif go.to is JobStatus.PENDING:
            self.assignment = None
        else:
            self._order(go)

    def _schedule(self, go: Transition) -> None:
        there = [
            p
            for p in self.processes
            if p.alive and p.registered and p.generation not in self.written_off
        ]
        assert there == [], "a driver is started beside one that lives"
        assert go.worker is not None
        self.state = replace(self.state, generation=self.state.generation + 1)
        self._fence(self.state.generation)
        self.pipelines = [
            p if p.status is PipelineStatus.FINISHED else replace(p, status=PipelineStatus.CREATED)
            for p in self.pipelines
        ]
        self.assignment = Assignment(
            job_id=1, initialization_ms=1, generation=self.state.generation, worker=go.worker
        )
        self.order_since_ms = self.now_ms

    def _fence(self, generation: int) -> None:
        self.pipelines = [replace(p, generation=generation) for p in self.pipelines]

    # --- what must hold

    def check(self) -> None:
        can_write = [
            p
            for p in self.processes
            if p.alive and p.registered and p.generation == self.pipelines[0].generation
        ]
        assert len(can_write) <= 1, "two drivers can make something visible"
        assert self.state.restarts <= self.record.plan.env.retry_times, "more restarts than allowed"

    def at_rest(self) -> bool:
        if self.state.status.terminal:
            return True
        process = self._on_record()
        led_elsewhere = self.state.leader is not None and self.embedded_alive is not False
        running = (
            self.state.status is JobStatus.RUNNING
            and process is not None
            and process.alive
            and self.record.intent.desired is DesiredState.RUN
        )
        saving = (
            self.savepoint is not None
            and self.savepoint.stop
            and self.savepoint.status is not SavepointStatus.FAILED
        )
        running = running and not saving
        return led_elsewhere or running


def walk(seed: int) -> World:
    """A life in a bad world, and then in a kind one."""
    world = World(seed)
    for _ in range(CHAOS_STEPS):
        world.chaos()
        if world.state.status.terminal:
            break
    ended = world.state if world.state.status.terminal else None
    world.cut_off = set()
    world.workers = {"a1", "b1"}
    for _ in range(KIND_STEPS):
        world.kind()
        if world.state.status.terminal:
            break
    for _ in range(3 if world.state.status.terminal else 0):
        ended = ended or world.state
        world.chaos()
        assert world.state == ended
    assert world.at_rest(), f"not at rest: {world.state}, wished: {world.record.intent.desired}"
    return world


@pytest.mark.parametrize("runs", [2_500, pytest.param(100_000, marks=pytest.mark.soak)])
def test_every_job_comes_to_rest_with_one_driver_at_most_and_every_exit_is_used(runs: int) -> None:
    used: Counter = Counter()
    for seed in range(runs):
        try:
            used += walk(seed).edges
        except Exception as error:
            error.add_note(f"walk({seed})")
            raise
    assert set(edges()) - set(used) == set()


def walk_many(runs: int) -> None:
    for seed in range(runs):
        walk(seed)


def test_a_leader_without_commands_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "_order", lambda *_: None)
    with pytest.raises(AssertionError, match="not at rest"):
        walk_many(200)


def test_a_machine_that_starts_beside_a_living_driver_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "tidegate.lifecycle.states.recovering.escalate", lambda *_: Transition(to=JobStatus.PENDING)
    )
    monkeypatch.setattr(
        JobObservation,
        "driver_may_live",
        property(
            lambda view: (
                view.state.status is not JobStatus.PENDING and view.driver and not view.driver.end
            )
        ),
    )
    with pytest.raises(AssertionError, match="a driver is started beside one that lives"):
        walk_many(500)


def test_a_state_that_waits_for_ever_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.lifecycle.stopping._overdue", lambda _: False)
    with pytest.raises(AssertionError, match="not at rest"):
        walk_many(500)
