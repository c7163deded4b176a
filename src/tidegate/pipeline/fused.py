"""Fused execution of a batch: a task reads, transforms and stages in one Python worker.

Called in the tasks of the Spark engine and by the plain engine of the test kit. It uses no
DataFrame, and one read serves all sinks.
"""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate.model.throughput import Volume, Volumes, add_volumes, total_volume
from tidegate.model.types import Table
from tidegate.pipeline.engine import Batch, Written
from tidegate.pipeline.graph import Graph
from tidegate.plugin.contract import (
    MULTIPLE_TABLES,
    Sink,
    Source,
    Split,
    Transform,
    Writer,
    WriteTask,
)

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True, slots=True)
class FusedTasks:
    """All tasks of one batch, serializable for the Python workers: task i handles splits[i]."""

    sources: Mapping[str, Source]
    transforms: Mapping[str, Transform]
    sinks: Mapping[str, Sink]
    readers: Mapping[str, tuple[str, ...]]
    tables: Mapping[str, Mapping[str, Table]]
    splits: Sequence[tuple[str, Split]]
    lineage: str
    checkpoint: int
    generation: int

    def run(self, index: int) -> Iterator[str]:
        """Run one task; yield its messages as JSON: source, transforms, then every sink."""
        name, split = self.splits[index]
        writers = {
            sink: operator.writer(self._write_task(index)) for sink, operator in self.sinks.items()
        }
        passed = Tally()
        try:
            for batch in self.sources[name].read(split):
                table = self.tables[name][table_of(split, batch)]
                plain = batch.replace_schema_metadata(None)
                passed.add(name, table, plain)
                self._deliver(name, table, plain, writers, passed)
            closed = {sink: writer.close() for sink, writer in writers.items()}
        except BaseException:
            for writer in writers.values():
                writer.abort()
            raise
        yield encode(name, None, passed.of(name))
        for transform in self.transforms:
            if volumes := passed.of(transform):
                yield encode(transform, None, volumes)
        for sink, message in closed.items():
            yield encode(sink, message, passed.of(sink))

    def _write_task(self, index: int) -> WriteTask:
        return WriteTask(
            lineage=self.lineage,
            checkpoint=self.checkpoint,
            generation=self.generation,
            subtask=index,
            token=uuid.uuid4().hex,
        )

    def _deliver(
        self,
        name: str,
        table: Table,
        batch: "pa.RecordBatch",
        writers: Mapping[str, Writer],
        passed: "Tally",
    ) -> None:
        """Pass a batch to every reader of this operator."""
        for reader in self.readers[name]:
            if reader in writers:
                writers[reader].write(table, batch)
                passed.add(reader, table, batch)
                continue
            transform = self.transforms[reader]
            after = transform.table(table)
            if after is not None:
                changed = transform.arrow(table, batch)
                passed.add(reader, after, changed)
                self._deliver(reader, after, changed, writers, passed)


class Tally:
    """Volumes of one task by operator and table: output of sources and transforms, sinks' input."""

    def __init__(self) -> None:
        self._volumes: dict[str, dict[str, Volume]] = {}

    def add(self, operator: str, table: Table, batch: "pa.RecordBatch") -> None:
        into = self._volumes.setdefault(operator, {})
        into[table.path] = into.get(table.path, Volume()) + Volume(batch.num_rows, batch.nbytes)

    def of(self, operator: str) -> Mapping[str, Volume]:
        """The tables of one operator."""
        return self._volumes.get(operator, {})


def table_of(split: Split, batch: "pa.RecordBatch") -> str:
    """The table whose rows a batch holds."""
    return (
        split.table if split.table != MULTIPLE_TABLES else batch.schema.metadata[b"table"].decode()
    )


def encode(operator: str, message: Mapping[str, Any] | None, passed: Mapping[str, Volume]) -> str:
    """Encode a task's report about an operator: its volumes, and a sink's message."""
    return json.dumps(
        {
            "operator": operator,
            "message": message,
            "passed": {table: [volume.rows, volume.bytes] for table, volume in passed.items()},
        }
    )


def collect(
    graph: Graph, texts: Iterator[str] | Sequence[str], counted: Volumes | None = None
) -> Written:
    """Merge the reports of all tasks by operator; `counted` has the engine's own volumes."""
    parts: list[Volumes] = [counted or {}]
    messages: dict[str, list[dict[str, Any]]] = {sink: [] for sink in graph.sinks}
    for text in texts:
        report = json.loads(text)
        parts.append(
            {
                report["operator"]: {
                    table: Volume(*numbers) for table, numbers in report["passed"].items()
                }
            }
        )
        if report["message"] is not None:
            messages[report["operator"]].append(report["message"])
    volumes = add_volumes(*parts)
    return Written(
        rows_read={name: total_volume(volumes.get(name, {})).rows for name in graph.sources},
        messages=messages,
        volumes=volumes,
    )


def fused_tasks(graph: Graph, batch: Batch, count: int) -> FusedTasks:
    """The tasks of a batch, in about `count` splits for each source."""
    splits = [
        (name, split)
        for name, source in graph.sources.items()
        for split in shared_splits_of(source, batch, name, count)
    ]
    return FusedTasks(
        sources=graph.sources,
        transforms=graph.transforms,
        sinks=graph.sinks,
        readers=graph.readers,
        tables={name: {t.path: t for t in tables} for name, tables in graph.tables.items()},
        splits=splits,
        lineage=batch.lineage,
        checkpoint=batch.checkpoint,
        generation=batch.generation,
    )


def shared_splits_of(source: Source, batch: Batch, name: str, count: int) -> Sequence[Split]:
    """As splits_of, but one split may contain several tables."""
    source_range = batch.ranges.get(name)
    return (
        []
        if source_range is None or source_range.start == source_range.end
        else source.shared_splits(source_range.start, source_range.end, count)
    )


def splits_of(source: Source, batch: Batch, name: str, count: int) -> Sequence[Split]:
    """Return the splits of one source in this batch.

    None if it has no new rows, or was not part of the pipeline when the batch began.
    """
    source_range = batch.ranges.get(name)
    return (
        []
        if source_range is None or source_range.start == source_range.end
        else source.splits(source_range.start, source_range.end, count)
    )
