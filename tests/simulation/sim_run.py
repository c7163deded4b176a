"""One simulated run of a job: generations that start, overlap, fail, are killed and end, over one
store, one checkpoint directory and one target.

The store client, claim, ledger, loop, attempts and checkpoint storage are the real ones; processes
are actors (sim_turns), rows live in memory (sim_parts).
"""

import contextlib
import random
import threading
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sim_parts
from sim_plan import drawn_plan
from sim_turns import Actor, Killed, Process, Turns, VirtualClock
from sim_watch import Watch

from tidegate import failpoint
from tidegate.checkpoints.savepoints import Savepoints
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.coordinator import claim as claiming
from tidegate.coordinator.claim import Claimant, Submission
from tidegate.coordinator.job_snapshot import JobSnapshot, read_job
from tidegate.coordinator.restore.options import RestoreOptions, StartMode
from tidegate.coordinator.savepoint_requests import request_savepoint
from tidegate.coordinator.supervisor import TakenOver
from tidegate.coordinator.terminal_transaction import OwnedGeneration, end_job, status_of
from tidegate.driver.registration import register
from tidegate.home import Home
from tidegate.model.engine import EngineSettings
from tidegate.model.errors import TidegateError, TransientError
from tidegate.model.job import BlockKind, JobMode
from tidegate.model.plan import PipelinePlan
from tidegate.model.records import (
    JobRecord,
    JobStatus,
    PipelineStatus,
    ProcessRef,
    SavepointRequest,
)
from tidegate.pipeline.attempts import run_pipeline
from tidegate.pipeline.context import PipelineContext
from tidegate.pipeline.engine import Batch, Written
from tidegate.pipeline.graph import Graph
from tidegate.pipeline.ledger import Ledger
from tidegate.pipeline.progress import PipelineProgress
from tidegate.pipeline.savepoints import SavepointCoordinator
from tidegate.runner.driver_spec import driver_spec
from tidegate.store.backend import Transaction
from tidegate.store.base import Store
from tidegate.store.open import open_store
from tidegate.testing.failpoints import failpoint_names
from tidegate.testing.faulty_store import Fault, FaultyBackend, StoreCall, faulty_store, seeded
from tidegate.testing.plain_engine import PlainEngine

JOB = 7
STEPS_MAX = 20_000
GENERATIONS_MAX = 5
QUIET_STARTS_MAX = 4
ALL_FAILPOINTS = ",".join(
    f"{name}=raise" for name in failpoint_names()
)  # the simulation decides what happens there, see Simulation.at


class Broken(Exception):
    """An invariant of the product was violated."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultRates:
    """Probabilities of faults in this run: of a kill, an exception and a long pause at a failpoint,
    of a fault in a store call, and so on.
    """

    kill: float
    stumble: float
    store_fault: float
    takeover: float
    damage: float
    fresh: float
    switching: float
    freeze: float
    lost_store: float
    back: float
    power_cut: float
    savepoint: float

    @staticmethod
    def drawn(rng: random.Random) -> "FaultRates":
        return FaultRates(
            kill=rng.choice([0.0, 0.005, 0.01, 0.03]),
            stumble=rng.choice([0.0, 0.01, 0.03]),
            store_fault=rng.choice([0.0, 0.02, 0.1]),
            takeover=rng.choice([0.001, 0.003, 0.01]),
            damage=rng.choice([0.0, 0.5, 1.0]),
            fresh=rng.choice([0.0, 0.0, 0.2]),
            switching=rng.choice([0.1, 0.3, 0.6]),
            freeze=rng.choice([0.0, 0.01, 0.04]),
            lost_store=rng.choice([0.0, 0.0, 0.2, 0.6]),
            back=rng.choice([0.0, 0.0, 0.5, 1.0]),
            power_cut=rng.choice([0.0, 0.002, 0.006]),
            savepoint=rng.choice([0.0, 0.0, 0.005, 0.02]),
        )


class UnreachableClaimant(Claimant):
    """A leader that cannot reach the processes of its predecessors: only the fences protect it from
    them.
    """

    def _kill_and_confirm(self, snapshot: JobSnapshot) -> None:
        """Do nothing: the processes may well be alive."""


class YieldingEngine(PlainEngine):
    """Yields to other actors between the tasks too."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns

    def run(self, graph: Graph, batch: Batch) -> Written:
        self.turns.here("engine.run")
        return super().run(graph, batch)


@dataclass(eq=False)
class StoreConnection:
    """A process's own connection to the store, with its faults."""

    store: Store
    backend: FaultyBackend


@dataclass(eq=False)
class Simulation:
    seed: int
    root: Path
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.fault_rates = FaultRates.drawn(self.rng)
        self.quiet = False
        self.turns = Turns(random.Random(self.seed + 1), self.fault_rates.switching)
        self.clock = VirtualClock(self.turns)
        self.store = open_store("memory:", compaction_threshold=self.rng.choice([20, 10_000]))
        self.place = self.root / "checkpoints"
        self.storage = CheckpointStorage(self.place)
        self.savepoints = Savepoints(self.place)
        self.home = Home(self.root)
        self.watch = Watch(self)
        self._watch_store()
        self.scene = sim_parts.Scene(
            rng=random.Random(self.seed + 2),
            at=self.at,
            broken=self.broken,
            losing=self.fault_rates.stumble,
            available=15,
        )
        sim_parts.open_scene(self.scene)
        self.plan = drawn_plan(self.rng)
        self.streaming = self.plan.env.mode is JobMode.STREAMING
        self.connections: list[StoreConnection] = []
        self.processes: list[Process] = []
        self.leaders: dict[Process, Actor] = {}
        self.damaged: set[str] = set()
        self.lost_stores = self.backs = self.damages = self.ahead = self.asked = (
            self.from_savepoints
        ) = 0
        self.ended = False
        tokens = random.Random(self.seed + 3)
        uuid.uuid4 = lambda: uuid.UUID(int=tokens.getrandbits(128))
        failpoint.arm(ALL_FAILPOINTS)
        failpoint._act = self.at
        claiming.is_alive = lambda _: False  # as a leader on another host, which cannot be checked

    def _watch_store(self) -> None:
        apply = self.store.backend.apply

        def watched(transaction: Transaction) -> int:
            revision = apply(transaction)
            self.watch.see(transaction)
            return revision

        self.store.backend.apply = watched  # type: ignore[method-assign]  # a test double

    # -- what happens
    # ----------------------------------------------------------------------------------------------

    def broken(self, what: str) -> None:
        self.complaints.append(what)
        raise Broken(what)

    def at(self, place: str) -> None:
        """Kill the current process, raise in it, or pause it here, by its fault rates."""
        actor = self.turns.current
        if actor is None:
            return
        self.ahead += place == "ledger.repeat.after"
        if not self.quiet:
            luck = self.rng.random()
            if luck < self.fault_rates.kill:
                self.turns.note(actor.name, f"KILLED at {place}")
                actor.process.alive = False
                raise Killed
            if luck < self.fault_rates.kill + self.fault_rates.stumble:
                self.turns.note(actor.name, f"stumbles at {place}")
                raise RuntimeError(f"stumbled at {place}")
            if (
                luck > 1 - self.fault_rates.freeze
            ):  # a long pause of the machine, during which others make progress
                self.turns.note(actor.name, f"frozen at {place}")
                self.turns.pause(self.rng.choice([0.02, 0.2, 2.0, 10.0]))
        self.turns.here(place)

    def connect(self) -> StoreConnection:
        faults = seeded(self.rng.randrange(1 << 30), self.fault_rates.store_fault)

        def choose(operation: StoreCall) -> Fault:
            self.turns.here(f"store.{operation.value}")
            return Fault.NONE if self.quiet else faults(operation)

        made = StoreConnection(*faulty_store(self.store, choose))
        self.connections.append(made)
        return made

    def begin(self, restore: str) -> Process:
        """Start a new process that claims the job."""
        number = len(self.processes) + 1
        process = Process(f"p{number}")
        self.processes.append(process)
        store = self.connect().store
        self.leaders[process] = self.turns.spawn(
            process, f"{process.name}-leader", lambda: self._lead(process, store, restore)
        )
        return process

    def _lead(self, process: Process, store: Store, restore: str) -> None:
        """Do what `tidegate run` does: claim, drive, end."""
        me = ProcessRef(pid=len(self.processes), started=1, boot="b", host="elsewhere")
        submission = Submission(
            job_id=JOB,
            name="sim",
            plan=self.plan,
            file="",
            options=RestoreOptions.parse(restore),
            me=me,
            now_ms=self.clock.now_ms() + len(self.processes),
        )
        claim = UnreachableClaimant(store, self.storage, self.home).claim(submission)
        process.generation = claim.generation
        process.claimed = True
        self.turns.note(
            process.name,
            f"claimed {claim.generation} {claim.start} {dict(claim.restored)} {claim.notes}",
        )
        if claim.start is not StartMode.NOTHING:
            register(
                store,
                driver_spec(EngineSettings(), self.home, job_id=JOB, generation=claim.generation),
                self.clock.now_ms(),
            )
            self._drive(process, store, claim.job)
        snapshot = read_job(store, JOB)
        if claim.start is not StartMode.NOTHING and (
            snapshot.state is None or snapshot.state.value.leader != me
        ):
            raise TakenOver("by another process")
        outcome = end_job(
            store,
            self.storage,
            OwnedGeneration(JOB, claim.generation),
            status_of(snapshot) or JobStatus.FAILED,
            self.clock.now_ms(),
        )
        self.turns.note(process.name, f"ended {outcome.status}")
        self.ended = self.ended or outcome.status is JobStatus.FINISHED

    def _drive(self, process: Process, store: Store, job: JobRecord) -> None:
        finished = {
            p.value.pipeline
            for p in read_job(store, JOB).pipelines
            if p.value.status is PipelineStatus.FINISHED
        }
        plans = [plan for plan in job.plan.pipelines if plan.id not in finished]
        savepoints = SavepointCoordinator(store, job, self.savepoints, self.clock)
        process.driving = True
        self.turns.spawn(
            process, f"{process.name}-savepoints", lambda: self._serve(process, savepoints)
        )
        actors = [
            self.turns.spawn(
                process,
                f"{process.name}-{plan.id}",
                lambda plan=plan: self._run(process, store, job, plan, savepoints),
            )
            for plan in plans
        ]
        while not all(actor.done for actor in actors):
            self.turns.pause(0.05)
        process.driving = False
        for actor in actors:
            if actor.error is not None:
                raise actor.error

    def _request_savepoint(self) -> None:
        """Request a savepoint as a user, sometimes one that stops the job."""
        store, stop = self.connect().store, self.rng.random() < 0.3
        self.asked += 1
        self.turns.spawn(
            Process(f"u{self.asked}"),
            f"u{self.asked}",
            lambda: self._note_request(
                request_savepoint(store, self.savepoints, self.clock, JOB, stop=stop)
            ),
        )

    def _note_request(self, request: SavepointRequest) -> None:
        self.turns.note(
            "user", f"requested savepoint {request.id}, stop={request.stop}, {request.status}"
        )

    def _serve(self, process: Process, savepoints: SavepointCoordinator) -> None:
        """Run the coordinator's steps in place of its own thread."""
        while process.driving:
            with contextlib.suppress(TransientError):
                savepoints.step()
            self.turns.pause(0.3)

    def _run(
        self,
        process: Process,
        store: Store,
        job: JobRecord,
        plan: PipelinePlan,
        savepoints: SavepointCoordinator,
    ) -> None:
        assert process.generation is not None
        ledger = Ledger(
            store, JOB, plan.id, process.generation, clock=self.clock, abandon=threading.Event()
        )
        context = PipelineContext(
            job=job,
            storage=self.storage,
            engine=YieldingEngine(self.turns),
            clock=self.clock,
            stop=process.stop,
            retained_max=job.plan.env.checkpoints_retained_max or 3,
            interval_s=1.0,
            savepoints=savepoints,
        )
        # an exception counts as that: as in the driver, one pipeline that fails stops the others at
        # their next checkpoint
        ended = PipelineStatus.FAILED
        try:
            ended = run_pipeline(
                context, plan, ledger, PipelineProgress(plan.id, process.generation, context.clock)
            )
        finally:
            if ended is PipelineStatus.FAILED:
                process.stop.set()

    # -- a run
    # ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Inject faults, then none, then run the final checks; raise Broken on a violation."""
        steps = 0
        while len(self.processes) < GENERATIONS_MAX and not self.ended and steps < STEPS_MAX:
            steps += 1
            idle = not self.turns.alive()
            if idle or self.rng.random() < self.fault_rates.takeover:
                self._damage()
                self._lose_store()
                self.begin(self._restore_options())
            if self.rng.random() < 0.02:
                self.scene.available += 3
                self._deliver()
            if self.rng.random() < self.fault_rates.power_cut:
                self.turns.note("simulation", "the power is cut")
                for process in self.processes:
                    process.alive = False
            if not idle and self.rng.random() < self.fault_rates.savepoint:
                self._request_savepoint()
            self.turns.step()
            self._check_actors()
        self.quiet = True
        self.scene.losing = 0.0
        self._settle()
        self._check_end()

    def _settle(self) -> None:
        """Stop injecting faults: the last processes must bring the job to its end."""
        self._deliver()
        for _ in range(QUIET_STARTS_MAX):
            if self.ended:
                break
            self.begin("auto")
            for step in range(STEPS_MAX):
                if not self.turns.step():
                    break
                self._check_actors()
                if self.streaming and step % 20 == 0 and self._caught_up():
                    for process in self.processes:
                        process.stop.set()
            else:
                self.broken("stuck: it does not come to an end")
            if self.streaming and self._caught_up():
                return
        for _ in range(STEPS_MAX):
            if not self.turns.step():
                return
            self._check_actors()
        self.broken("stuck: old processes do not end")

    def _deliver(self) -> None:
        for connect in self.connections:
            connect.backend.deliver()

    def _restore_options(self) -> str:
        """Draw the restore options of the next process: auto, fresh, or, if no process is alive, a
        savepoint or an older checkpoint.
        """
        if self.rng.random() < self.fault_rates.fresh:
            return "fresh"
        saved = [savepoint.id for savepoint in self.savepoints.list(JOB)]
        if saved and not self.turns.alive() and self.rng.random() < 0.5:
            self.from_savepoints += 1
            return f"savepoint:{self.rng.choice(saved)}"
        retained = [
            ref.checkpoint
            for pipeline in read_job(self.store, JOB).pipelines
            for ref in pipeline.value.retained[:-1]
        ]
        if self.turns.alive() or not retained or self.rng.random() >= self.fault_rates.back:
            return "auto"
        self.backs += 1
        return f"checkpoint:{self.rng.choice(retained)}"

    def _damage(self) -> None:
        """Empty the manifests of the newest checkpoints, where there is an older one."""
        if self.turns.alive() or self.rng.random() >= self.fault_rates.damage:
            return
        for pipeline in read_job(self.store, JOB).pipelines:
            retained = pipeline.value.retained
            # Without a manifest the job has finished, and its cleanup was killed in the middle.
            if len(retained) < 2 or not all(
                (self.place / ref.path / "_manifest.json").exists() and ref.path not in self.damaged
                for ref in retained
            ):
                continue
            for ref in retained[-self.rng.randint(1, len(retained) - 1) :]:
                (self.place / ref.path / "_manifest.json").write_bytes(b"")
                self.damaged.add(ref.path)
                self.damages += 1
                self.turns.note("simulation", f"damaged {ref.path}")

    def _lose_store(self) -> None:
        """Lose everything but the checkpoint storage and the targets.

        Only while no process is alive: no fence reaches one that still writes to the old store.
        """
        if (
            self.turns.alive()
            or self.rng.random() >= self.fault_rates.lost_store
            or not self.processes
        ):
            return
        self.turns.note("simulation", "lost the store")
        self.lost_stores += 1
        self.connections.clear()
        self.store = open_store("memory:", compaction_threshold=self.rng.choice([20, 10_000]))
        self.watch.forget()
        self._watch_store()
        left = [
            path.relative_to(self.place).as_posix() for path in self.place.glob("[0-9]*/*/[0-9]*")
        ]
        self.damaged |= {path for path in left if self.storage.damage(path)}

    def may_differ(self, state: dict[str, Any], checkpoint: int) -> bool:
        """Whether a batch may have other ranges than it had: no sink has it and the store is lost,
        or all keep only their newest record, a later one.
        """
        sink_data = [
            data
            for (lineage, number, _), data in self.scene.sink_data.items()
            if (lineage, number) == (state["lineage"], state["pipeline"])
        ]
        newest_only = all(
            sink.options["newest_only"]
            for sink in self.plan.pipelines[state["pipeline"] - 1].of_kind(BlockKind.SINK)
        )
        if newest_only and any(
            checkpoint < record for data in sink_data for record in data.records
        ):
            return True
        return self.lost_stores > 0 and all(checkpoint not in data.rows for data in sink_data)

    def _check_actors(self) -> None:
        """Raise Broken for a violation, or an actor that ended with an unexpected error."""
        if self.complaints:
            raise Broken(self.complaints[0])
        for actor in self.turns.actors:
            error = actor.error
            if (
                error is None
                or isinstance(error, Killed | TidegateError)
                or (isinstance(error, RuntimeError) and "stumbled" in str(error))
            ):
                continue
            raise Broken(f"{actor.name} ended with {type(error).__name__}: {error}") from error
        for actor in self.turns.actors:
            if actor.error is not None and not isinstance(actor.error, Killed):
                self.turns.note(actor.name, f"{type(actor.error).__name__}: {actor.error}")
        self.turns.actors = self.turns.alive()

    # -- the final checks
    # ----------------------------------------------------------------------------------------------

    def _expected(self, pipeline: int, initial: dict[str, Any]) -> list[int]:
        plan = next(p for p in self.plan.pipelines if p.id == pipeline)
        ids = []
        for action in plan.of_kind(BlockKind.SOURCE):
            first = initial[action.operator]["first"]
            rows = self.scene.available if self.streaming else action.options["rows"]
            ids += range(first, first + rows)
        return sorted(ids)

    def _initials(self) -> dict[int, tuple[str, dict[str, Any]]]:
        """Return the initial offsets of every pipeline's newest lineage, also of an ended job."""
        states = {
            int(key.split("/")[1]): state
            for key, state in {**self.watch.gone, **self.watch.last}.items()
        }
        return {
            number: (state["lineage"], state["initial"])
            for number, state in states.items()
            if state["initial"] is not None
        }

    def _held(self, lineage: str, pipeline: int, sink: str) -> list[int]:
        data = self.scene.sink_data.get((lineage, pipeline, sink), sim_parts.SinkData())
        return sorted(i for ids in data.rows.values() for i in ids)

    def _caught_up(self) -> bool:
        initials = self._initials()
        return len(initials) == len(self.plan.pipelines) and all(
            self._held(lineage, pipeline, sink.operator) == self._expected(pipeline, initial)
            for pipeline, (lineage, initial) in initials.items()
            for sink in next(p for p in self.plan.pipelines if p.id == pipeline).of_kind(
                BlockKind.SINK
            )
        )

    def _check_end(self) -> None:
        snapshot = read_job(self.store, JOB)
        assert snapshot.state is not None
        wanted = JobStatus.CANCELED if self.streaming else JobStatus.FINISHED
        if snapshot.state.value.status is not wanted:
            self.broken(f"the job is {snapshot.state.value.status} in the end, not {wanted}")
        for pipeline, (lineage, initial) in self._initials().items():
            for sink in next(p for p in self.plan.pipelines if p.id == pipeline).of_kind(
                BlockKind.SINK
            ):
                held, expected = (
                    self._held(lineage, pipeline, sink.operator),
                    self._expected(pipeline, initial),
                )
                if held != expected:
                    lost, doubled = (
                        sorted(set(expected) - set(held)),
                        sorted({i for i in held if held.count(i) > 1}),
                    )
                    self.broken(
                        f"{sink.operator} of pipeline {pipeline}: lost {lost[:5]}, doubled"
                        f" {doubled[:5]}, strange {sorted(set(held) - set(expected))[:5]}"
                    )
        self._check_checkpoints(snapshot)

    def _check_checkpoints(self, snapshot: JobSnapshot) -> None:
        owned = set()
        for pipeline in snapshot.pipelines:
            for ref in pipeline.value.retained:
                damage = self.storage.damage(ref.path)
                if damage and ref.path not in self.damaged:
                    self.broken(f"a checkpoint was lost: {damage}")
            owned |= {
                ref.path for ref in (*pipeline.value.retained, *pipeline.value.pending_deletion)
            }
        there = {p.relative_to(self.place).as_posix() for p in self.place.glob("[0-9]*/*/*")}
        if there - owned:
            self.broken(f"directories without an owner: {sorted(there - owned)}")
