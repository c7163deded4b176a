"""One simulated life of a job: generations that begin, overlap, stumble, are killed and end, over one store, one checkpoint directory and one target.

The store front, claim, ledger, loop, attempts and checkpoint storage are the real ones; processes are actors (sim_turns), rows live in memory (sim_parts).
"""

import json
import random
import threading
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sim_parts
from sim_plan import drawn_plan
from sim_turns import Actor, Killed, Process, Turns, VirtualClock

from tidegate import failpoint
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.coordinator import claim as claiming
from tidegate.coordinator.claim import Claimant, Submission
from tidegate.coordinator.ending import Owned, end, status_of
from tidegate.coordinator.registry import Known, look
from tidegate.coordinator.supervisor import TakenOver
from tidegate.coordinator.wish import RestoreWish, Start
from tidegate.driver.registration import register
from tidegate.home import Home
from tidegate.model.engine import EngineSettings
from tidegate.model.errors import TidegateError
from tidegate.model.job import BlockKind, JobMode
from tidegate.model.plan import PipelinePlan
from tidegate.model.records import FINISHED, PIPELINES, JobRecord, JobStatus, PipelineStatus, ProcessRef
from tidegate.pipeline.attempts import run_pipeline
from tidegate.pipeline.engine import Batch, Written
from tidegate.pipeline.graph import Graph
from tidegate.pipeline.ledger import Ledger
from tidegate.pipeline.loop import Surroundings
from tidegate.pipeline.meter import Meter
from tidegate.runner.orders import driver_order
from tidegate.store.backend import Transaction
from tidegate.store.base import Store
from tidegate.store.open import open_store
from tidegate.testing.failpoints import failpoint_names
from tidegate.testing.faulty_store import Fault, FaultyBackend, Operation, faulty_store, seeded
from tidegate.testing.plain_engine import PlainEngine

JOB = 7
STEPS_MAX = 20_000
GENERATIONS_MAX = 5
CALM_STARTS_MAX = 4
ALL_FAILPOINTS = ",".join(f"{name}=raise" for name in failpoint_names())  # what happens there is the world's to say, see World.at


class Broken(Exception):
    """A promise was not kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Weather:
    """How bad this life is, as probabilities: of a kill, an exception and a long pause at a failpoint, of a fault in a call of the store, and so on."""

    kill: float
    stumble: float
    store_fault: float
    takeover: float
    damage: float
    fresh: float
    switching: float
    freeze: float

    @staticmethod
    def drawn(rng: random.Random) -> "Weather":
        return Weather(
            kill=rng.choice([0.0, 0.01, 0.03]),
            stumble=rng.choice([0.0, 0.01, 0.03]),
            store_fault=rng.choice([0.0, 0.02, 0.1]),
            takeover=rng.choice([0.001, 0.003, 0.01]),
            damage=rng.choice([0.0, 0.5, 1.0]),
            fresh=rng.choice([0.0, 0.0, 0.2]),
            switching=rng.choice([0.1, 0.3, 0.6]),
            freeze=rng.choice([0.0, 0.01, 0.04]),
        )


class FarAway(Claimant):
    """A leader that cannot reach the processes of its predecessors: only the fences protect it from them."""

    def _bury(self, known: Known) -> None:
        """They may well be alive."""


class YieldingEngine(PlainEngine):
    """Lets others run between the tasks too."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns

    def run(self, graph: Graph, batch: Batch) -> Written:
        self.turns.here("engine.run")
        return super().run(graph, batch)


class Watch:
    """Looks at every transaction that the store takes, and says what must never be in one."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.last: dict[str, dict[str, Any]] = {}
        self.gone: dict[str, dict[str, Any]] = {}  # of a job that has finished
        self.completed_by: dict[tuple[str, str, int], int] = {}
        self.begun: dict[tuple[str, str, int], Any] = {}
        self.ending = False  # whether the transaction is a terminal one

    def see(self, transaction: Transaction) -> None:
        self.ending = any(write.map == FINISHED for write in transaction.writes)
        for write in transaction.writes:
            if write.map == PIPELINES:
                if write.text is None:  # two may carry out one cleanup, each from its beginning
                    self.gone[write.key] = self.last.pop(write.key, None) or self.gone[write.key]
                else:
                    self._pipeline(write.key, json.loads(write.text))

    def _pipeline(self, key: str, state: dict[str, Any]) -> None:
        before = self.last.get(key)
        self.last[key] = state
        writer = self.world.turns.current.process if self.world.turns.current else None
        if writer is not None and not writer.claimed and (before is None or state["generation"] > before["generation"]):
            writer.generation = state["generation"]  # this is its fence; a claim that was overtaken may make another
        # Whoever ends a job moves what stays to a generation of its own, so that nobody can write there any more.
        if writer is not None and writer.generation is not None and writer.generation + self.ending != state["generation"]:
            self.world.broken(f"generation {writer.generation} wrote the state of generation {state['generation']}")
        same_lineage = before is not None and before["lineage"] == state["lineage"]
        if before is not None and state["generation"] < before["generation"]:
            self.world.broken(f"the generation went back from {before['generation']} to {state['generation']}")
        if same_lineage and before is not None and state["next_checkpoint"] < before["next_checkpoint"]:
            self.world.broken(f"checkpoint ids went back from {before['next_checkpoint']} to {state['next_checkpoint']}")
        if state["pending"] is not None:
            self._pending(key, state)
        known = {ref["checkpoint"] for ref in before["retained"]} if same_lineage and before is not None else set()
        for ref in state["retained"]:
            if ref["checkpoint"] not in known:
                self._completed(key, state, ref, before if same_lineage else None)
            elif ref["path"] not in self.world.damaged and not (self.world.storage.root / ref["path"] / "_manifest.json").exists():
                self.world.broken(f"checkpoint {ref['checkpoint']} of pipeline {key} of generation {state['generation']} is retained, and somebody deleted it")

    def _pending(self, key: str, state: dict[str, Any]) -> None:
        pending = state["pending"]
        if self.begun.setdefault((state["lineage"], key, pending["checkpoint"]), pending["ranges"]) != pending["ranges"]:
            self.world.broken(f"batch {pending['checkpoint']} of pipeline {key} got other ranges")

    def _completed(self, key: str, state: dict[str, Any], ref: dict[str, Any], before: dict[str, Any] | None) -> None:
        name = (state["lineage"], key, ref["checkpoint"])
        if self.completed_by.setdefault(name, ref["generation"]) != ref["generation"]:
            self.world.broken(f"checkpoint {name} was completed by generations {self.completed_by[name]} and {ref['generation']}")
        if before is None or before["pending"] is None or before["pending"]["checkpoint"] != ref["checkpoint"]:
            self.world.broken(f"checkpoint {name} was completed without having begun")
        damage = self.world.storage.damage(ref["path"])
        if damage:
            self.world.broken(f"checkpoint {name} was completed and is not there: {damage}")


@dataclass(eq=False)
class Front:
    """A process's own way to the store."""

    store: Store
    backend: FaultyBackend


@dataclass(eq=False)
class World:
    """One life."""

    seed: int
    root: Path
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.weather = Weather.drawn(self.rng)
        self.calm = False
        self.turns = Turns(random.Random(self.seed + 1), self.weather.switching)
        self.clock = VirtualClock(self.turns)
        self.store = open_store("memory:", compaction_threshold=self.rng.choice([20, 10_000]))
        self.storage = CheckpointStorage(self.root / "checkpoints")
        self.home = Home(self.root)
        self.watch = Watch(self)
        self._watch_store()
        self.scene = sim_parts.Scene(rng=random.Random(self.seed + 2), at=self.at, broken=self.broken, losing=self.weather.stumble, available=15)
        sim_parts.open_scene(self.scene)
        self.plan = drawn_plan(self.rng)
        self.streaming = self.plan.env.mode is JobMode.STREAMING
        self.fronts: list[Front] = []
        self.processes: list[Process] = []
        self.leaders: dict[Process, Actor] = {}
        self.damaged: set[str] = set()
        self.ended = False
        tokens = random.Random(self.seed + 3)
        uuid.uuid4 = lambda: uuid.UUID(int=tokens.getrandbits(128))
        failpoint.arm(ALL_FAILPOINTS)
        failpoint._act = self.at
        claiming.is_alive = lambda _: False  # as a leader on another host, which nobody can ask

    def _watch_store(self) -> None:
        apply = self.store.backend.apply

        def watched(transaction: Transaction) -> int:
            revision = apply(transaction)
            self.watch.see(transaction)
            return revision

        self.store.backend.apply = watched  # type: ignore[method-assign]  # the backend of this life only

    # -- what happens ------------------------------------------------------------------------------------------------------------------------

    def broken(self, what: str) -> None:
        self.complaints.append(what)
        raise Broken(what)

    def at(self, place: str) -> None:
        """A place where a process may be killed, may stumble, or may have to wait."""
        actor = self.turns.current
        if actor is None:
            return
        if not self.calm:
            luck = self.rng.random()
            if luck < self.weather.kill:
                self.turns.note(actor.name, f"KILLED at {place}")
                actor.process.alive = False
                raise Killed
            if luck < self.weather.kill + self.weather.stumble:
                self.turns.note(actor.name, f"stumbles at {place}")
                raise RuntimeError(f"stumbled at {place}")
            if luck > 1 - self.weather.freeze:  # as a long pause of the machine: others may have done much when it ends
                self.turns.note(actor.name, f"frozen at {place}")
                self.turns.pause(self.rng.choice([0.02, 0.2, 2.0, 10.0]))
        self.turns.here(place)

    def front(self) -> Front:
        faults = seeded(self.rng.randrange(1 << 30), self.weather.store_fault)

        def choose(operation: Operation) -> Fault:
            self.turns.here(f"store.{operation.value}")
            return Fault.NONE if self.calm else faults(operation)

        made = Front(*faulty_store(self.store, choose))
        self.fronts.append(made)
        return made

    def begin(self, wish: str) -> Process:
        """A new process that takes the job up."""
        number = len(self.processes) + 1
        process = Process(f"p{number}")
        self.processes.append(process)
        store = self.front().store
        self.leaders[process] = self.turns.spawn(process, f"{process.name}-leader", lambda: self._lead(process, store, wish))
        return process

    def _lead(self, process: Process, store: Store, wish: str) -> None:
        """As `tidegate run`: claim, drive, end."""
        me = ProcessRef(pid=len(self.processes), started=1, boot="b", host="elsewhere")
        submission = Submission(
            job_id=JOB, name="sim", plan=self.plan, file="", wish=RestoreWish.parse(wish), me=me, now_ms=self.clock.now_ms() + len(self.processes)
        )
        claim = FarAway(store, self.storage, self.home).claim(submission)
        process.generation, process.claimed = claim.generation, True
        self.turns.note(process.name, f"claimed {claim.generation} {claim.start} {dict(claim.restored)} {claim.notes}")
        if claim.start is not Start.NOTHING:
            register(store, driver_order(EngineSettings(), self.home, job_id=JOB, generation=claim.generation), self.clock.now_ms())
            self._drive(process, store, claim.job)
        known = look(store, JOB)
        if claim.start is not Start.NOTHING and (known.state is None or known.state.value.leader != me):
            raise TakenOver("by another process")
        outcome = end(store, self.storage, Owned(JOB, claim.generation), status_of(known) or JobStatus.FAILED, self.clock.now_ms())
        self.turns.note(process.name, f"ended {outcome.status}")
        self.ended = self.ended or outcome.status is JobStatus.FINISHED

    def _drive(self, process: Process, store: Store, job: JobRecord) -> None:
        finished = {p.value.pipeline for p in look(store, JOB).pipelines if p.value.status is PipelineStatus.FINISHED}
        plans = [plan for plan in job.plan.pipelines if plan.id not in finished]
        actors = [self.turns.spawn(process, f"{process.name}-{plan.id}", lambda plan=plan: self._run(process, store, job, plan)) for plan in plans]
        while not all(actor.done for actor in actors):
            self.turns.pause(0.05)
        for actor in actors:
            if actor.error is not None:
                raise actor.error

    def _run(self, process: Process, store: Store, job: JobRecord, plan: PipelinePlan) -> None:
        assert process.generation is not None
        ledger = Ledger(store, JOB, plan.id, process.generation, clock=self.clock, abandon=threading.Event())
        around = Surroundings(
            job=job,
            storage=self.storage,
            engine=YieldingEngine(self.turns),
            clock=self.clock,
            stop=process.stop,
            retained_max=job.plan.env.checkpoints_retained_max or 3,
            interval_s=1.0,
        )
        if run_pipeline(around, plan, ledger, Meter(plan.id, process.generation)) is PipelineStatus.FAILED:
            process.stop.set()

    # -- a life ------------------------------------------------------------------------------------------------------------------------------

    def live(self) -> None:
        """Chaos, then calm, then the reckoning. Broken says what went wrong."""
        steps = 0
        while len(self.processes) < GENERATIONS_MAX and not self.ended and steps < STEPS_MAX:
            steps += 1
            idle = not self.turns.alive()
            if idle or self.rng.random() < self.weather.takeover:
                self._damage()
                self.begin("fresh" if self.rng.random() < self.weather.fresh else "auto")
            if self.rng.random() < 0.02:
                self.scene.available += 3
                self._deliver()
            self.turns.step()
            self._judge()
        self.calm, self.scene.losing = True, 0.0
        self._settle()
        self._reckon()

    def _settle(self) -> None:
        """No more faults: the last ones to start must bring it to its end, whatever the old ones still do."""
        self._deliver()
        for _ in range(CALM_STARTS_MAX):
            if self.ended:
                break
            self.begin("auto")
            for step in range(STEPS_MAX):
                if not self.turns.step():
                    break
                self._judge()
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
            self._judge()
        self.broken("stuck: old processes do not end")

    def _deliver(self) -> None:
        for front in self.fronts:
            front.backend.deliver()

    def _damage(self) -> None:
        """Empty the manifest of the newest checkpoint, where there is an older one."""
        if self.turns.alive() or self.rng.random() >= self.weather.damage:
            return
        for pipeline in look(self.store, JOB).pipelines:
            retained = pipeline.value.retained
            manifest = self.storage.root / retained[-1].path / "_manifest.json" if retained else None
            # Without a manifest the job has finished, and its cleanup was killed in the middle.
            if manifest and manifest.exists() and len(retained) > 1 and all(ref.path not in self.damaged for ref in retained):
                manifest.write_bytes(b"")
                self.damaged.add(retained[-1].path)
                self.turns.note("world", f"damaged {retained[-1].path}")

    def _judge(self) -> None:
        """Nobody may end with an error that is not one of ours, or that says that something impossible was seen."""
        if self.complaints:
            raise Broken(self.complaints[0])
        for actor in self.turns.actors:
            error = actor.error
            if error is None or isinstance(error, Killed | TidegateError) or (isinstance(error, RuntimeError) and "stumbled" in str(error)):
                continue
            raise Broken(f"{actor.name} ended with {type(error).__name__}: {error}") from error
        for actor in self.turns.actors:
            if actor.error is not None and not isinstance(actor.error, Killed):
                self.turns.note(actor.name, f"{type(actor.error).__name__}: {actor.error}")
        self.turns.actors = self.turns.alive()

    # -- the reckoning -----------------------------------------------------------------------------------------------------------------------

    def _expected(self, pipeline: int, initial: dict[str, Any]) -> list[int]:
        plan = next(p for p in self.plan.pipelines if p.id == pipeline)
        ids = []
        for action in plan.of_kind(BlockKind.SOURCE):
            first = initial[action.operator]["first"]
            rows = self.scene.available if self.streaming else action.options["rows"]
            ids += range(first, first + rows)
        return sorted(ids)

    def _initials(self) -> dict[int, tuple[str, dict[str, Any]]]:
        """Where the sources of every pipeline began, of the newest lineage; also where the job has ended and the store has let go of it."""
        states = {int(key.split("/")[1]): state for key, state in {**self.watch.gone, **self.watch.last}.items()}
        return {number: (state["lineage"], state["initial"]) for number, state in states.items() if state["initial"] is not None}

    def _held(self, lineage: str, pipeline: int, sink: str) -> list[int]:
        shelf = self.scene.shelves.get((lineage, pipeline, sink), sim_parts.Shelf())
        return sorted(i for ids in shelf.rows.values() for i in ids)

    def _caught_up(self) -> bool:
        initials = self._initials()
        return len(initials) == len(self.plan.pipelines) and all(
            self._held(lineage, pipeline, sink.operator) == self._expected(pipeline, initial)
            for pipeline, (lineage, initial) in initials.items()
            for sink in next(p for p in self.plan.pipelines if p.id == pipeline).of_kind(BlockKind.SINK)
        )

    def _reckon(self) -> None:
        known = look(self.store, JOB)
        assert known.state is not None
        wanted = JobStatus.CANCELED if self.streaming else JobStatus.FINISHED
        if known.state.value.status is not wanted:
            self.broken(f"the job is {known.state.value.status} in the end, not {wanted}")
        for pipeline, (lineage, initial) in self._initials().items():
            for sink in next(p for p in self.plan.pipelines if p.id == pipeline).of_kind(BlockKind.SINK):
                held, expected = self._held(lineage, pipeline, sink.operator), self._expected(pipeline, initial)
                if held != expected:
                    lost, doubled = sorted(set(expected) - set(held)), sorted({i for i in held if held.count(i) > 1})
                    self.broken(
                        f"{sink.operator} of pipeline {pipeline}: lost {lost[:5]}, doubled {doubled[:5]}, strange {sorted(set(held) - set(expected))[:5]}"
                    )
        self._reckon_checkpoints(known)

    def _reckon_checkpoints(self, known: Known) -> None:
        owned = set()
        for pipeline in known.pipelines:
            for ref in pipeline.value.retained:
                damage = self.storage.damage(ref.path)
                if damage and ref.path not in self.damaged:
                    self.broken(f"a checkpoint was lost: {damage}")
            owned |= {ref.path for ref in (*pipeline.value.retained, *pipeline.value.doomed)}
        there = {p.relative_to(self.storage.root).as_posix() for p in self.storage.root.glob("*/*/*")}
        if there - owned:
            self.broken(f"directories without an owner: {sorted(there - owned)}")
