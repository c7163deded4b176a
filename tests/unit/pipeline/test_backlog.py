"""Pacing of the real loop: a stream with a backlog does not wait for its interval.

The clock is simulated. A log is written at some rate; a batch takes a fixed time and more with its
rows. Time passes only in batches and pauses.
"""

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.model.document import to_document
from tidegate.model.job import BlockKind, JobEnv, JobMode
from tidegate.model.plan import Action, PipelinePlan, Plan
from tidegate.model.records import (
    PIPELINES,
    JobRecord,
    PendingBatch,
    PipelineState,
    PipelineStatus,
    SourceRange,
)
from tidegate.pipeline.context import PipelineContext
from tidegate.pipeline.engine import Batch, TaskCount, Written
from tidegate.pipeline.graph import Graph, Node
from tidegate.pipeline.ledger import Ledger
from tidegate.pipeline.loop import BatchLoop
from tidegate.pipeline.progress import PipelineProgress
from tidegate.pipeline.savepoints import NoSavepoints
from tidegate.plugin.connector import Connector
from tidegate.plugin.contract import (
    BatchCommitted,
    Commit,
    Committer,
    Limit,
    OperatorContext,
    Sink,
    SinkRestore,
    Source,
    Split,
    Writer,
    WriteTask,
)
from tidegate.store.base import Put, Store
from tidegate.store.open import open_store

FIXED_S = 0.3
ROWS_A_SECOND = 200_000


@dataclass
class Scenario:
    """The simulated time and the log. `stop` is set after `until_s`."""

    backlog: int = 0
    rate: float = 0.0
    burst: int = 0  # rows that come all at once when 100 s are over
    until_s: float = 60.0
    now_s: float = 0.0
    stop: threading.Event = field(default_factory=threading.Event)
    batches: list[tuple[float, int]] = field(default_factory=list)  # when each began, and its rows
    looks: int = 0

    @property
    def written(self) -> int:
        return self.backlog + int(self.rate * self.now_s) + (self.burst if self.now_s >= 100 else 0)

    def pass_by(self, seconds: float) -> None:
        self.now_s += seconds
        if self.now_s >= self.until_s:
            self.stop.set()

    # The clock.

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.now_s

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.pass_by(max(0.0, seconds))
        return event.is_set()

    # The engine.

    def run(self, graph: Graph, batch: Batch) -> Written:
        (source,) = graph.sources
        rows = batch.ranges[source].end - batch.ranges[source].start
        self.batches.append((self.now_s, rows))
        self.pass_by(FIXED_S + rows / ROWS_A_SECOND)
        return Written(
            rows_read={source: rows}, messages={name: [{"rows": rows}] for name in graph.sinks}
        )

    def tasks(self, pipeline: int) -> TaskCount:  # noqa: ARG002  # the engine's signature
        return TaskCount(0, 0)

    def cancel(self, pipeline: int) -> None:
        raise AssertionError(pipeline)

    def close(self) -> None:
        pass


class Log(Source):
    """Rows by number; the offset is how many are read."""

    scenario: Scenario
    more = True

    def tables(self) -> tuple[Any, ...]:
        return ()

    def initial(self) -> int:
        return 0

    def latest(self, start: int, limit: Limit) -> int:
        self.scenario.looks += 1
        end = (
            min(self.scenario.written, start + limit.rows)
            if limit.rows is not None
            else self.scenario.written
        )
        self.more = end < self.scenario.written
        return end

    def has_backlog(self, offset: int) -> bool | None:  # noqa: ARG002  # the last look knows
        return self.more

    def splits(self, start: int, end: int, count: int) -> list[Split]:
        raise AssertionError((start, end, count))

    def read(self, split: Split) -> Any:
        raise AssertionError(split)


class Silent(Log):
    def has_backlog(self, offset: int) -> bool | None:  # noqa: ARG002  # nothing is known
        return None


class DiscardSink(Sink, Committer):
    """A sink that discards all rows."""

    def writer(self, task: WriteTask) -> Writer:
        raise AssertionError(task)

    def committer(self) -> Committer:
        return self

    def open(self, resume: SinkRestore) -> None:
        pass

    def commit(self, commit: Commit) -> BatchCommitted:  # noqa: ARG002  # it keeps nothing
        return BatchCommitted()


def action(kind: BlockKind) -> Action:
    return Action(
        operator=kind.value, label=kind.value, kind=kind, plugin="Log", options={}, fusable=True
    )


def run(
    scenario: Scenario, place: Path, source: type[Log] = Log, store: Store | None = None, **env: Any
) -> PipelineState:
    """Run the loop of a stream with this log until the scenario ends."""
    settings = JobEnv(mode=JobMode.STREAMING, **{"checkpoint_interval_ms": 10_000, **env})
    plan = PipelinePlan(id=1, actions=(action(BlockKind.SOURCE), action(BlockKind.SINK)))
    job = JobRecord(
        job_id=1,
        name="j",
        initialization_ms=0,
        lineage="l",
        plan=Plan(job_name="j", env=settings, pipelines=(plan,)),
    )
    nodes = {}
    for one, kind in zip(plan.actions, (source, DiscardSink), strict=True):
        operator = kind(
            {},
            OperatorContext(
                job_id=1,
                job_name="j",
                pipeline=1,
                operator=one.operator,
                mode=settings.mode,
                parallelism=1,
            ),
        )
        if isinstance(operator, Log):
            operator.scenario = scenario
        nodes[one.operator] = Node(action=one, connector=cast(Connector, None), operator=operator)
    store = store or new_store()
    ledger = Ledger(store, 1, 1, 1, clock=scenario, abandon=threading.Event())
    context = PipelineContext(
        job=job,
        storage=CheckpointStorage(place),
        engine=scenario,
        clock=scenario,
        stop=scenario.stop,
        retained_max=2,
        interval_s=10.0,
        savepoints=NoSavepoints(scenario),
    )
    assert (
        BatchLoop(context, Graph(pipeline=1, nodes=nodes), ledger, PipelineProgress(1, 1)).run()
        is PipelineStatus.CANCELED
    )
    return ledger.load()


def new_store(pending: PendingBatch | None = None) -> Store:
    store = open_store("memory:")
    state = PipelineState(
        job_id=1,
        pipeline=1,
        lineage="l",
        generation=1,
        initial={"source": 0} if pending else None,
        pending=pending,
        next_checkpoint=2,
    )
    store.transact([], [Put(PIPELINES, "1/1", to_document(state))])
    return store


def test_a_backlog_is_read_without_a_pause_in_batches_that_grow(tmp_path: Path) -> None:
    scenario = Scenario(backlog=5_000_000, until_s=60)
    run(scenario, tmp_path)
    ends = [began_s + FIXED_S + rows / ROWS_A_SECOND for began_s, rows in scenario.batches]
    assert sum(rows for _, rows in scenario.batches) == 5_000_000
    assert [began_s for began_s, _ in scenario.batches] == [0.0, *ends[:-1]]
    assert len(scenario.batches) <= 6
    assert [rows for _, rows in scenario.batches[:2]] == [250_000, 1_000_000]
    assert ends[-1] < 5_000_000 / ROWS_A_SECOND + 6 * FIXED_S + 0.001


def test_a_stream_that_keeps_up_makes_one_batch_each_interval(tmp_path: Path) -> None:
    scenario = Scenario(rate=1000, until_s=100)
    run(scenario, tmp_path)
    assert [began_s for began_s, _ in scenario.batches] == [10.0 * n for n in range(1, 10)]


def test_after_a_backlog_the_interval_is_kept_again(tmp_path: Path) -> None:
    scenario = Scenario(backlog=1_000_000, rate=1000, until_s=100)
    run(scenario, tmp_path)
    caught_up = next(
        n for n, (_, rows) in enumerate(scenario.batches) if n and rows < 750_000 + 10_000
    )
    began_s = [began_s for began_s, _ in scenario.batches]
    assert {
        round(b - a, 6) for a, b in zip(began_s[caught_up:], began_s[caught_up + 1 :], strict=False)
    } == {10.0}


def test_an_idle_stream_polls_once_an_interval_and_writes_nothing(tmp_path: Path) -> None:
    scenario = Scenario(until_s=100)
    state = run(scenario, tmp_path)
    assert scenario.batches == []  # the first one is empty, and needs no engine
    assert state.latest is not None
    assert (state.latest.checkpoint, scenario.looks) == (2, 10)


def test_batches_that_are_kept_tiny_are_at_most_two_a_second(tmp_path: Path) -> None:
    scenario = Scenario(backlog=1_000_000, until_s=5)
    run(scenario, tmp_path, batch_rows_max=10)
    assert len(scenario.batches) == 10
    assert {rows for _, rows in scenario.batches} == {10}


def test_a_burst_after_an_idle_time_is_split_into_batches(tmp_path: Path) -> None:
    """Batches that were small because there was little to read say nothing about how much one can
    take.
    """
    scenario = Scenario(rate=1000, until_s=200, burst=50_000_000)
    run(scenario, tmp_path)
    assert (
        max(rows for _, rows in scenario.batches) < 1.1 * 10 * ROWS_A_SECOND
    )  # about one interval
    assert sum(rows for _, rows in scenario.batches) > 0.9 * 90 * ROWS_A_SECOND


def test_a_source_that_cannot_tell_is_read_once_an_interval(tmp_path: Path) -> None:
    scenario = Scenario(backlog=1_000_000, until_s=30)
    run(scenario, tmp_path, Silent)
    assert [began_s for began_s, _ in scenario.batches] == [0.0, 10.0]


def test_a_repeated_batch_is_followed_at_once_by_a_poll(tmp_path: Path) -> None:
    scenario = Scenario(backlog=100_000, until_s=30)
    pending = PendingBatch(
        checkpoint=1, ranges={"source": SourceRange(0, 50_000)}, generation=1, begun_ms=0
    )
    run(scenario, tmp_path, store=new_store(pending))
    assert scenario.batches == [(0.0, 50_000), (FIXED_S + 50_000 / ROWS_A_SECOND, 50_000)]
