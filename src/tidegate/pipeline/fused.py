"""The fused way of a batch: a task reads its split, moves columns and row kinds, and stages into every sink, in one Python worker and without a DataFrame.

Called in the tasks of the Spark engine and by the plain engine of the test kit. One read serves all sinks.
"""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate.model.types import Table
from tidegate.pipeline.engine import Batch, Written
from tidegate.pipeline.graph import Graph
from tidegate.plugin.contract import JOINT_TABLE, Sink, Source, Split, Transform, Writer, WriteTask

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True, slots=True)
class FusedTasks:
    """All tasks of one batch, as data that travels to the workers: task i handles splits[i]."""

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
        """One task; yields its messages as JSON text: first of the source, then of every sink."""
        name, split = self.splits[index]
        writers = {sink: operator.writer(self._write_task(index)) for sink, operator in self.sinks.items()}
        rows = 0
        try:
            for batch in self.sources[name].read(split):
                rows += batch.num_rows
                self._deliver(name, self.tables[name][table_of(split, batch)], batch.replace_schema_metadata(None), writers)
            closed = {sink: writer.close() for sink, writer in writers.items()}
        except BaseException:
            for writer in writers.values():
                writer.abort()
            raise
        yield encode(name, {"rows": rows})
        for sink, message in closed.items():
            yield encode(sink, message)

    def _write_task(self, index: int) -> WriteTask:
        return WriteTask(lineage=self.lineage, checkpoint=self.checkpoint, generation=self.generation, subtask=index, token=uuid.uuid4().hex)

    def _deliver(self, name: str, table: Table, batch: "pa.RecordBatch", writers: Mapping[str, Writer]) -> None:
        """Hand a batch to everyone who reads this operator."""
        for reader in self.readers[name]:
            if reader in writers:
                writers[reader].write(table, batch)
                continue
            transform = self.transforms[reader]
            after = transform.table(table)
            if after is not None:
                self._deliver(reader, after, transform.arrow(table, batch), writers)


def table_of(split: Split, batch: "pa.RecordBatch") -> str:
    """The table whose rows a batch holds."""
    return split.table if split.table != JOINT_TABLE else batch.schema.metadata[b"table"].decode()


def encode(operator: str, message: Mapping[str, Any]) -> str:
    """A message on its way from a task to the driver."""
    return json.dumps({"operator": operator, **message})


def collect(graph: Graph, texts: Iterator[str] | Sequence[str], rows_read: Mapping[str, int] | None = None) -> Written:
    """What all tasks said, sorted to the operators; `rows_read` where the engine counted them itself."""
    rows: dict[str, int] = dict.fromkeys(graph.sources, 0) | dict(rows_read or {})
    messages: dict[str, list[dict[str, Any]]] = {sink: [] for sink in graph.sinks}
    for text in texts:
        message = json.loads(text)
        operator = message.pop("operator")
        if operator in rows:
            rows[operator] += int(message["rows"])
        else:
            messages[operator].append(message)
    return Written(rows_read=rows, messages=messages)


def fused_tasks(graph: Graph, batch: Batch, count: int) -> FusedTasks:
    """The tasks of a batch, in about `count` splits for each source."""
    splits = [(name, split) for name, source in graph.sources.items() for split in joint_splits_of(source, batch, name, count)]
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


def joint_splits_of(source: Source, batch: Batch, name: str, count: int) -> Sequence[Split]:
    """As splits_of, where one split may hold several tables."""
    wanted = batch.ranges.get(name)
    return [] if wanted is None or wanted.start == wanted.end else source.joint_splits(wanted.start, wanted.end, count)


def splits_of(source: Source, batch: Batch, name: str, count: int) -> Sequence[Split]:
    """The splits of one source in this batch; none where it has nothing new, or was not there when the batch began."""
    wanted = batch.ranges.get(name)
    return [] if wanted is None or wanted.start == wanted.end else source.splits(wanted.start, wanted.end, count)
