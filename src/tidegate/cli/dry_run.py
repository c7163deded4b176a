"""The dry runs `connect` and `sample`, without a store, a checkpoint or Spark. They write nothing.

`connect` reads the tables of every source and checks whether every sink's target can be reached.
`sample` also reads a few rows of each source, passes them through the transforms that need no SQL,
and shows what would arrive at the sinks.
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
    detail: str = ""

    def __str__(self) -> str:
        return (
            f"{self.operator} ({self.plugin}):"
            f" {self.verdict}{': ' if self.detail else ''}{self.detail}"
        )


@dataclass(kw_only=True, slots=True)
class Sample:
    """The rows that a sink would receive."""

    rows: dict[str, int] = field(default_factory=dict)
    shown: list[str] = field(default_factory=list)


def graphs_of(plan: Plan) -> list[Graph]:
    """Build the operators of a job that does not run."""
    job = JobRecord(job_id=1, name=plan.job_name, initialization_ms=0, lineage="", plan=plan)
    return [build(job, part) for part in plan.pipelines]


def check_connections(graph: Graph) -> Iterator[OperatorFinding]:
    """Check the connection of every operator of a pipeline."""
    for name, node in graph.nodes.items():
        try:
            verdict, words = _check_operator(node)
        except TidegateError as error:
            verdict, words = FAILED, str(error)
        except Exception as error:  # of the connector or its server
            verdict, words = FAILED, f"{type(error).__name__}: {error}"
        yield OperatorFinding(
            operator=name, plugin=node.connector.name, verdict=verdict, detail=words
        )


def _check_operator(node: Node) -> tuple[str, str]:
    match node.operator:
        case Source() if node.connector.spark:
            return SKIPPED, "Spark itself reads it"
        case Source() as source:
            return VALIDATED, ", ".join(table.path for table in source.tables())
        case Sink() as sink if sink.check_connection():
            return VALIDATED, ""
        case Sink():
            return SKIPPED, "nothing to check before rows arrive"
        case _:
            return SKIPPED, "no external system"


def reason_not_sampled(node: Node) -> str:
    """Return why a source or transform cannot be sampled; empty if it can."""
    match node.operator:
        case Source() if node.connector.spark:
            return "needs Spark"
        case Source() if node.connector.resources:
            return "would create something on its server"
        case Transform() if not node.action.fusable:
            return "needs Spark"
    return ""


def sample_pipeline(graph: Graph, limit: int, *, show: bool) -> dict[str, Sample]:
    """Return the first rows of every source, as they would arrive at the sinks."""
    samples = {name: Sample() for name in graph.sinks}
    readers = {
        name: tuple(reader for reader in found if not reason_not_sampled(graph.nodes[reader]))
        for name, found in graph.readers.items()
    }
    for name, source in graph.sources.items():
        if reason_not_sampled(graph.nodes[name]):
            continue
        start = source.initial()
        end = source.latest(start, Limit(rows=limit))
        splits = [] if start == end else source.splits(start, end, 1)
        few = _LimitedSource(source, limit)
        tasks = FusedTasks(
            sources={name: cast(Source, few)},
            transforms=graph.transforms,
            sinks={
                sink: _SampleSink(graph.sinks[sink], samples[sink], show) for sink in graph.sinks
            },
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


class _LimitedSource:
    """A source that stops after `limit` rows."""

    def __init__(self, source: Source, limit: int) -> None:
        self.source = source
        self.left = limit

    def read(self, split: Any) -> Iterator["pa.RecordBatch"]:
        """Yield rows until the limit is reached."""
        if not self.left:
            return
        for batch in self.source.read(split):
            few = batch.slice(0, self.left)
            self.left -= few.num_rows
            yield few
            if not self.left:
                return


class _SampleSink(Sink):
    """A sink that counts rows and writes nothing."""

    def __init__(self, sink: Sink, sample: Sample, show: bool) -> None:
        super().__init__(sink.values, sink.context)
        self.sample = sample
        self.show = show

    def writer(self, task: WriteTask) -> Writer:  # noqa: ARG002  # the contract's signature
        return _SampleWriter(self.sample, self.show)

    def committer(self) -> Any:
        raise AssertionError("a dry run commits nothing")


class _SampleWriter(Writer):
    def __init__(self, sample: Sample, show: bool) -> None:
        self.sample = sample
        self.show = show

    def write(self, table: Table, batch: "pa.RecordBatch") -> None:
        """Count the rows that would be written."""
        self.sample.rows[table.path] = self.sample.rows.get(table.path, 0) + batch.num_rows
        if self.show:
            self.sample.shown += [f"{table.path} {_text(row)}" for row in batch.to_pylist()]

    def close(self) -> Message:
        """Return an empty message, because nothing is committed."""
        return {"rows": 0}

    def abort(self) -> None:
        pass


def _text(row: Mapping[str, Any]) -> str:
    return json.dumps(row, default=str, ensure_ascii=False)
