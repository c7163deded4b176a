"""What `--dry-run connect` and `--dry-run sample` do: ask what is outside, and read a few rows,
without a store, a checkpoint or Spark. Nothing is written.

`connect` asks every source for its tables and every sink whether its target can be reached.
`sample` also reads a few rows of each source, moves them through the transforms that need no SQL,
and tells what would arrive at the sinks.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from tidegate.model.errors import TidegateError
from tidegate.model.plan import Plan
from tidegate.model.records import JobRecord
from tidegate.model.types import Table
from tidegate.pipeline.fused import FusedTasks
from tidegate.pipeline.graph import Graph, Node, build
from tidegate.plugin.contract import Limit, Message, Sink, Source, Transform, Writer, WriteTask

if TYPE_CHECKING:
    import pyarrow as pa

VALIDATED, SKIPPED, FAILED = "VALIDATED", "SKIPPED", "FAILED"


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorFinding:
    """One operator: VALIDATED, SKIPPED or FAILED, and why."""

    operator: str
    plugin: str
    verdict: str
    words: str = ""

    def __str__(self) -> str:
        return (
            f"{self.operator} ({self.plugin}):"
            f" {self.verdict}{': ' if self.words else ''}{self.words}"
        )


@dataclass(kw_only=True, slots=True)
class Sample:
    """What a sink would get."""

    rows: dict[str, int] = field(default_factory=dict)
    shown: list[str] = field(default_factory=list)


def graphs_of(plan: Plan) -> list[Graph]:
    """The operators of a job that is not going to run."""
    job = JobRecord(job_id=1, name=plan.job_name, initialization_ms=0, lineage="", plan=plan)
    return [build(job, part) for part in plan.pipelines]


def connected(graph: Graph) -> Iterator[OperatorFinding]:
    """Every operator of a pipeline, asked."""
    for name, node in graph.nodes.items():
        try:
            verdict, words = _asked(node)
        except TidegateError as error:
            verdict, words = FAILED, str(error)
        except Exception as error:  # whatever a connector or its server says
            verdict, words = FAILED, f"{type(error).__name__}: {error}"
        yield OperatorFinding(
            operator=name, plugin=node.connector.name, verdict=verdict, words=words
        )


def _asked(node: Node) -> tuple[str, str]:
    match node.operator:
        case Source() if node.connector.spark:
            return SKIPPED, "Spark itself reads it"
        case Source() as source:
            return VALIDATED, ", ".join(table.path for table in source.tables())
        case Sink() as sink if sink.reach():
            return VALIDATED, ""
        case Sink():
            return SKIPPED, "there is nothing to ask before rows come"
        case _:
            return SKIPPED, "nothing outside"


def unsampled(node: Node) -> str:
    """Why a source or transform gives no sample; empty where it does."""
    match node.operator:
        case Source() if node.connector.spark:
            return "needs Spark"
        case Source() if node.connector.resources:
            return "would create something on its server"
        case Transform() if not node.action.fusable:
            return "needs Spark"
    return ""


def sampled(graph: Graph, limit: int, *, show: bool) -> dict[str, Sample]:
    """The first rows of every source, as they would arrive at the sinks."""
    samples = {name: Sample() for name in graph.sinks}
    readers = {
        name: tuple(reader for reader in found if not unsampled(graph.nodes[reader]))
        for name, found in graph.readers.items()
    }
    for name, source in graph.sources.items():
        if unsampled(graph.nodes[name]):
            continue
        start = source.initial()
        end = source.latest(start, Limit(rows=limit))
        splits = [] if start == end else source.splits(start, end, 1)
        few = _Few(source, limit)
        tasks = FusedTasks(
            sources={name: cast(Source, few)},
            transforms=graph.transforms,
            sinks={sink: _Glass(graph.sinks[sink], samples[sink], show) for sink in graph.sinks},
            readers=readers,
            tables={name: {table.path: table for table in graph.tables[name]}},
            splits=[(name, split) for split in splits],
            lineage="",
            checkpoint=0,
            generation=0,
        )
        for index in range(len(splits)):
            for _ in tasks.run(index):
                pass
    return samples


class _Few:
    """A source that stops after so many rows."""

    def __init__(self, source: Source, limit: int) -> None:
        self.source = source
        self.left = limit

    def read(self, split: Any) -> Iterator["pa.RecordBatch"]:
        """The rows that are still wanted."""
        if not self.left:
            return
        for batch in self.source.read(split):
            few = batch.slice(0, self.left)
            self.left -= few.num_rows
            yield few
            if not self.left:
                return


class _Glass(Sink):
    """A sink that only looks."""

    def __init__(self, sink: Sink, sample: Sample, show: bool) -> None:
        super().__init__(sink.values, sink.context)
        self.sample = sample
        self.show = show

    def writer(self, task: WriteTask) -> Writer:  # noqa: ARG002  # the contract's signature
        return _Looking(self.sample, self.show)

    def committer(self) -> Any:
        raise AssertionError("a dry run commits nothing")


class _Looking(Writer):
    def __init__(self, sample: Sample, show: bool) -> None:
        self.sample = sample
        self.show = show

    def write(self, table: Table, batch: "pa.RecordBatch") -> None:
        """Rows that would be written."""
        self.sample.rows[table.path] = self.sample.rows.get(table.path, 0) + batch.num_rows
        if self.show:
            self.sample.shown += [f"{table.path} {_text(row)}" for row in batch.to_pylist()]

    def close(self) -> Message:
        """Nothing to tell a committer."""
        return {"rows": 0}

    def abort(self) -> None:
        pass


def _text(row: Mapping[str, Any]) -> str:
    return json.dumps(row, default=str, ensure_ascii=False)
