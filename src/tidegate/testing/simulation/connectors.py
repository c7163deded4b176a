"""Rows of a simulated world: a source, a sink that is exactly-once as a database is, and an engine
that takes its time. They outlive every process.

The source is as awkward as the contract allows: where it begins and how far a batch goes is drawn
anew whenever it is asked. The sink keeps rows and record in one step, the record by checkpoint, and
refuses generations older than the one that opened it last.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from tidegate.model.errors import Fenced, TerminalError, TransientError
from tidegate.model.job import BlockKind, JobEnv, JobMode
from tidegate.model.plan import PipelinePlan
from tidegate.model.records import JobRecord
from tidegate.model.types import Table
from tidegate.pipeline.engine import Batch, TaskCount, Written
from tidegate.pipeline.graph import Graph, Node
from tidegate.plugin.connector import Connector
from tidegate.plugin.contract import (
    AlreadyCommitted,
    BatchCommitted,
    Commit,
    Committer,
    Limit,
    OperatorContext,
    Sink,
    SinkRestore,
    Source,
    Split,
    TargetRecord,
    Writer,
    WriteTask,
)

ROWS_A_SECOND = 1.5  # of a stream


@dataclass(eq=False)
class MemoryTable:
    """What one sink of one lineage holds, with its records."""

    generation: int = 0
    rows: dict[int, list[int]] = field(default_factory=dict)
    records: dict[int, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(eq=False)
class MemoryTarget:
    """The world outside: shelves by (lineage, pipeline, sink).

    `at` is called wherever a fault may happen, `broken` receives violations.
    """

    rng: random.Random
    at: Callable[[str], None]
    broken: Callable[[str], None]
    now_s: Callable[[], float]
    shelves: dict[tuple[str, int, str], MemoryTable] = field(default_factory=dict)

    @property
    def available(self) -> int:
        """Rows that a stream has by now."""
        return int(self.now_s() * ROWS_A_SECOND)


class SimSource(Source):
    """Numbers from `first` on, `rows` of them where it is bounded.

    The offset is {"first", "at"}.
    """

    target: MemoryTarget

    def tables(self) -> tuple[Table, ...]:
        return ()

    def initial(self) -> Any:
        return {"first": self.values["base"] + self.target.rng.randrange(1000), "at": 0}

    def latest(self, start: Any, limit: Limit) -> Any:
        self.target.at("source.latest")
        total = self.values["rows"] if self.bounded else self.target.available
        left = min(total - start["at"], limit.rows if limit.rows is not None else total)
        single = self.bounded and limit.rows is None
        return {
            **start,
            "at": (
                start["at"]
                + ((left if single else self.target.rng.randint(1, left)) if left > 0 else 0)
            ),
        }

    def splits(
        self,
        start: Any,  # noqa: ARG002  # never asked
        end: Any,  # noqa: ARG002  # never asked
        count: int,  # noqa: ARG002  # never asked
    ) -> Sequence[Split]:
        raise AssertionError("the simulated engine reads ranges")

    def read(self, split: Split) -> Iterator[Any]:  # noqa: ARG002  # never asked
        raise AssertionError("the simulated engine reads ranges")

    def is_exhausted(self, offset: Any) -> bool:
        return self.bounded and bool(offset["at"] >= self.values["rows"])


class SimCommitter(Committer):
    """Rows and record in one step."""

    def __init__(self, target: MemoryTarget, pipeline: int, sink: str) -> None:
        self.target = target
        self.pipeline = pipeline
        self.sink = sink
        self.shelf = MemoryTable()
        self.generation = 0

    def target_record(self, resume: SinkRestore) -> TargetRecord:
        """The newest batch that is there."""
        shelf = self.target.shelves.get((resume.lineage, self.pipeline, self.sink), MemoryTable())
        return TargetRecord(target=self.sink, checkpoint=max(shelf.rows, default=0))

    def open(self, resume: SinkRestore) -> None:
        """Fence, and drop what is newer."""
        self.shelf, self.generation = (
            self.target.shelves.setdefault(
                (resume.lineage, self.pipeline, self.sink), MemoryTable()
            ),
            resume.generation,
        )
        self.target.at("sink.open.before")
        self._fence()
        self.shelf.generation = self.generation
        for newer in [c for c in self.shelf.rows if c > resume.checkpoint and c != resume.pending]:
            del self.shelf.rows[newer]
            self.shelf.records.pop(newer, None)
        self.target.at("sink.open.after")

    def commit(self, commit: Commit) -> BatchCommitted | AlreadyCommitted:
        self.target.at("sink.commit.before")
        self._fence()
        outcome = self._once(
            commit, sorted(i for message in commit.messages for i in message["ids"])
        )
        self.target.at("sink.commit.after")
        return outcome

    def retain(self, oldest: int) -> None:
        """Records that no restore point needs may go."""
        if self.shelf.generation == self.generation:
            self.shelf.records = {
                c: offsets for c, offsets in self.shelf.records.items() if c >= oldest
            }

    def _fence(self) -> None:
        if self.shelf.generation > self.generation:
            raise Fenced(f"the sink {self.sink}", self.generation, self.shelf.generation)

    def _once(self, commit: Commit, ids: list[int]) -> BatchCommitted | AlreadyCommitted:
        n, shelf = commit.checkpoint, self.shelf
        what = (
            f"{self.sink} of {commit.lineage}/{self.pipeline}, checkpoint {n} of generation"
            f" {commit.generation}"
        )
        if n not in shelf.rows:
            if shelf.rows and n < max(shelf.rows):
                self.target.broken(f"a batch came after a later one: {what}")
            shelf.rows[n], shelf.records[n] = ids, commit.offsets
            return BatchCommitted()
        if n not in shelf.records:
            self.target.broken(
                f"a batch was repeated after it was sure that it never would be: {what}"
            )
        if shelf.records[n] != commit.offsets or shelf.rows[n] != ids:
            self.target.broken(f"a batch was repeated with other offsets or rows: {what}")
        return AlreadyCommitted()


class SimSink(Sink):
    target: MemoryTarget

    def writer(self, task: WriteTask) -> Writer:  # noqa: ARG002  # never asked
        raise AssertionError("the simulated engine stages by itself")

    def committer(self) -> Committer:
        return SimCommitter(self.target, self.context.pipeline, self.context.operator)


class FaultPlan:
    """How one driver behaves; the engine asks before every batch."""

    def __init__(self, rng: random.Random, calm: Callable[[], bool]) -> None:
        self.rng = rng
        self.calm = calm
        self.name = "good"
        self.hangs = False
        self.batches = 0

    def become(self, env: JobEnv) -> None:
        """As the job is.

        A single batch may take what it takes, so one that hangs would never be found out.
        """
        self.name, self.hangs = (
            str(env.custom_parameters["fault_plan"]),
            env.checkpoint_interval_ms is not None,
        )

    @property
    def deaf(self) -> bool:
        """Whether it hears no request, but only force."""
        return self.name == "deaf"

    def next(self) -> str:
        """What the next batch does: write, raise, fail, exit, hang."""
        self.batches += 1
        if self.name == "failing" and self.batches > 1:
            return "fail"
        if self.name == "dying":
            return "exit"
        if self.name == "hanging":
            return "hang"
        if self.name == "flaky" and not self.calm():
            return self.rng.choice(
                [
                    "write",
                    "write",
                    "write",
                    "write",
                    "raise",
                    "exit",
                    "hang" if self.hangs else "raise",
                ]
            )
        return "write"


class SimEngine:
    """Runs batches in simulated time. `pause` and `leave` are the process's."""

    def __init__(
        self, fault_plan: FaultPlan, pause: Callable[[float], None], leave: Callable[[int], None]
    ) -> None:
        self.fault_plan = fault_plan
        self.pause = pause
        self.leave = leave
        self.cancelled: set[int] = set()

    def run(self, graph: Graph, batch: Batch) -> Written:
        """Read and stage, or do what the fault plan says."""
        act = self.fault_plan.next()
        self.pause(self.fault_plan.rng.choice([0.05, 0.2, 0.7]))
        while act == "hang":
            self._heed(batch.pipeline)
            self.pause(1.0)
        self._heed(batch.pipeline)
        if act == "exit":
            self.leave(1)
        if act == "fail":
            raise TerminalError("failing")
        if act == "raise":
            raise TransientError("stumbled")
        ranges = {name: r for name, r in batch.ranges.items() if name in graph.sources}
        ids = [
            r.start["first"] + i for r in ranges.values() for i in range(r.start["at"], r.end["at"])
        ]
        return Written(
            rows_read={name: r.end["at"] - r.start["at"] for name, r in ranges.items()},
            messages={name: [{"rows": len(ids), "ids": ids}] for name in graph.sinks},
        )

    def tasks(self, pipeline: int) -> TaskCount:  # noqa: ARG002  # the engine's signature
        return TaskCount(0, 0)

    def cancel(self, pipeline: int) -> None:
        """The running batch raises soon, if it listens."""
        if not self.fault_plan.deaf:
            self.cancelled.add(pipeline)

    def close(self) -> None:
        pass

    def _heed(self, pipeline: int) -> None:
        if pipeline in self.cancelled:
            self.cancelled.discard(pipeline)
            raise TransientError("the batch was interrupted")


def build(job: JobRecord, plan: PipelinePlan, target: MemoryTarget) -> Graph:
    """The operators of one pipeline; in place of pipeline.graph.build."""
    nodes = {}
    for action in plan.actions:
        context = OperatorContext(
            job_id=job.job_id,
            job_name=job.name,
            pipeline=plan.id,
            operator=action.operator,
            mode=job.plan.env.mode,
            parallelism=1,
        )
        operator: SimSource | SimSink = (SimSource if action.kind is BlockKind.SOURCE else SimSink)(
            dict(action.options), context
        )
        operator.target = target
        nodes[action.operator] = Node(
            action=action, connector=cast(Connector, None), operator=operator
        )
    return Graph(pipeline=plan.id, nodes=nodes)


def expected(job: JobRecord, pipeline: int, initial: Mapping[str, Any]) -> list[int]:
    """All rows that the sinks of a bounded pipeline hold in the end."""
    assert job.plan.env.mode is JobMode.BATCH
    plan = next(p for p in job.plan.pipelines if p.id == pipeline)
    return sorted(
        i
        for a in plan.of_kind(BlockKind.SOURCE)
        for i in range(
            initial[a.operator]["first"], initial[a.operator]["first"] + a.options["rows"]
        )
    )
