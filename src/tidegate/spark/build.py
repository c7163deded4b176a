"""Build DataFrames for batches that need SQL.

Called by engine.py; one FrameBuilder per pipeline, because schemas do not change between batches.

- Source: a frame per table over its splits (mapInArrow), or the connector's own `frame` if Spark
  reads better.
- Transform: its `frame` function, and `rejected` for the rows that it separates; otherwise its
  Arrow implementation inside mapInArrow.
- Sink: a frame of messages per input (mapInArrow, one writer per task), or its own `save`.

All message frames are united to one frame, and so one Spark job. Frames with several readers are
cached, so that every source is read once. A transform must not create a temporary view of its
frame, because Spark frees the cache below a view that is dropped or replaced.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from uuid import uuid4

from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from tidegate.model.throughput import Volume
from tidegate.model.types import Table
from tidegate.pipeline.engine import Batch
from tidegate.pipeline.fused import splits_of
from tidegate.pipeline.graph import Graph
from tidegate.plugin.contract import Sink, Source, Split, Transform, WriteTask
from tidegate.spark.tasks import ApplyTransform, ReadSplits, WriteRows
from tidegate.spark.types import struct_of, table_of

MESSAGE = StructType([StructField("message", StringType())])
TASKS_PER_CORE_MAX = 4
# bytes or rows: if splits are heavier, more of them give a better balance
SPLIT_WEIGHT_MAX = 32 << 20


@dataclass(frozen=True, slots=True)
class Stream:
    """The rows of one table after one operator of the graph."""

    table: Table
    frame: DataFrame


@dataclass(frozen=True, kw_only=True, slots=True)
class Save:
    """Rows that Spark itself writes: `run` is the action, `observation` counts the rows."""

    operator: str
    table: str
    run: Callable[[], None]
    observation: Observation


@dataclass(kw_only=True, slots=True)
class Frames:
    """The frames of one batch.

    `observed` are the row counts of sources that Spark reads itself; `cached` must be freed
    afterwards.
    """

    messages: list[DataFrame] = field(default_factory=list)
    saves: list[Save] = field(default_factory=list)
    cached: list[DataFrame] = field(default_factory=list)
    # operator, table, and what counts its rows
    observed: list[tuple[str, str, Observation | DataFrame]] = field(default_factory=list)

    def message_frame(self) -> DataFrame | None:
        """Unite the messages of all sinks; None if no sink writes in our tasks."""
        return _union(self.messages) if self.messages else None


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    """Unite frames by halves: a chain would be quadratic, as Spark analyses every union again."""
    if len(frames) == 1:
        return frames[0]
    half = len(frames) // 2
    return _union(frames[:half]).union(_union(frames[half:]))


def load(reference: str) -> Any:
    """Import the function that a Connector.spark names."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def task_count(splits: int, width: int) -> int:
    """Return the number of tasks for splits: one each, up to a limit per core."""
    return min(splits, width * TASKS_PER_CORE_MAX)


def tasks_frame(spark: SparkSession, count: int, width: int) -> DataFrame:
    """Return a frame of the numbers of `count` splits."""
    return spark.range(0, count, 1, task_count(count, width))


def split_count(splits: Sequence[Split], width: int) -> int:
    """Return how many splits to request, given their total weight."""
    heavy = sum(split.weight for split in splits) > SPLIT_WEIGHT_MAX * width
    return width * TASKS_PER_CORE_MAX if heavy else width


def balanced_splits(source: Source, batch: Batch, name: str, width: int) -> Sequence[Split]:
    """Return the splits of a source: one per core, or more if they are heavy."""
    return splits_of(source, batch, name, split_count(splits_of(source, batch, name, 1), width))


class FrameBuilder:
    """Builds the frames of every batch of one graph."""

    def __init__(
        self, spark: SparkSession, graph: Graph, counts: Accumulator[dict[str, Volume]]
    ) -> None:
        self.graph = graph
        self._spark = spark
        self._counts = counts
        self._structs: dict[tuple[str, int], StructType] = {}
        self._tables: dict[tuple[str, int], Table] = {}
        self._cached = _cached_operators(graph)

    def build(self, batch: Batch, name: str, width: int) -> Frames:
        """Build all frames of a batch.

        `name` is the prefix of its counts, `width` the number of tasks that can run at once.
        """
        frames = Frames()
        streams: dict[str, list[Stream]] = {}
        for operator, node in self.graph.nodes.items():
            inputs = [stream for before in node.action.inputs for stream in streams[before]]
            match node.operator:
                case Source() as source:
                    streams[operator] = self._source(operator, source, batch, frames, name, width)
                case Transform() as transform:
                    streams[operator] = self._transform(operator, transform, inputs)
                case Sink() as sink:
                    self._sink(operator, sink, inputs, batch, frames)
                    continue
            if operator in self._cached:
                streams[operator] = [Stream(s.table, s.frame.persist()) for s in streams[operator]]
                frames.cached += [s.frame for s in streams[operator]]
        return frames

    def _source(
        self, operator: str, source: Source, batch: Batch, frames: Frames, name: str, width: int
    ) -> list[Stream]:
        wanted = batch.ranges.get(operator)
        if wanted is None or wanted.start == wanted.end:
            return []
        if reference := self.graph.nodes[operator].connector.spark:
            read = load(reference)
            return [
                self._observed(
                    operator,
                    table,
                    read(source, self._spark, table, wanted.start, wanted.end),
                    frames,
                )
                for table in self.graph.tables[operator]
            ]
        splits = balanced_splits(source, batch, operator, width)
        streams = []
        for number, table in enumerate(self.graph.tables[operator]):
            own = [split for split in splits if split.table == table.path]
            if own:
                reading = ReadSplits(
                    source=source,
                    table=table,
                    splits=own,
                    name=f"{name}/{operator}/{number}/",
                    counts=self._counts,
                )
                frame = tasks_frame(self._spark, len(own), width).mapInArrow(
                    reading, self._struct(operator, number, table)
                )
                streams.append(Stream(table, frame))
        return streams

    def _struct(self, operator: str, number: int, table: Table) -> StructType:
        if (operator, number) not in self._structs:
            self._structs[operator, number] = struct_of(table)
        return self._structs[operator, number]

    def _observed(self, operator: str, table: Table, frame: DataFrame, frames: Frames) -> Stream:
        """Count rows that Spark reads itself, by an observation or from the cache.

        An observation below a cached frame gives no result.
        """
        if operator in self._cached:
            frames.observed.append((operator, table.path, frame))
            return Stream(table, frame)
        observation = Observation()
        frames.observed.append((operator, table.path, observation))
        return Stream(table, frame.observe(observation, f.count(f.lit(1)).alias("rows")))

    def _transform(
        self, operator: str, transform: Transform, inputs: Sequence[Stream]
    ) -> list[Stream]:
        reference = self.graph.nodes[operator].connector.spark
        if reference:
            apply = load(reference)
            frames = [
                (stream.table, apply(transform, stream.table, stream.frame)) for stream in inputs
            ]
            given = [
                Stream(self._after(operator, number, transform, table, frame), frame)
                for number, (table, frame) in enumerate(frames)
            ]
            return [*given, *_rejected_streams(reference, transform, inputs)]
        streams = []
        for number, stream in enumerate(inputs):
            after = transform.table(stream.table)
            if after is not None:
                applying = ApplyTransform(transform=transform, table=stream.table, after=after)
                streams.append(
                    Stream(
                        after,
                        stream.frame.mapInArrow(applying, self._struct(operator, number, after)),
                    )
                )
        return streams

    def _after(
        self, operator: str, number: int, transform: Transform, table: Table, frame: DataFrame
    ) -> Table:
        """Return the table after a transform: the frame's schema, the transform's name and keys."""
        if (operator, number) not in self._tables:
            self._tables[operator, number] = table_of(frame.schema, transform.table(table) or table)
        return self._tables[operator, number]

    def _sink(
        self, operator: str, sink: Sink, inputs: Sequence[Stream], batch: Batch, frames: Frames
    ) -> None:
        if reference := self.graph.nodes[operator].connector.spark:
            save = load(reference)
            for number, stream in enumerate(inputs):
                frames.saves.append(_save(operator, sink, save, stream, _write_task(batch, number)))
            return
        for stream in inputs:
            writing = WriteRows(
                sink=sink,
                operator=operator,
                table=stream.table,
                lineage=batch.lineage,
                checkpoint=batch.checkpoint,
                generation=batch.generation,
            )
            frames.messages.append(stream.frame.mapInArrow(writing, MESSAGE))


def _rejected_streams(
    reference: str, transform: Transform, inputs: Sequence[Stream]
) -> list[Stream]:
    """Return the rows that a transform rejects and does not drop, as separate tables."""
    streams = []
    for stream in inputs:
        table = transform.rejected(stream.table)
        if table is not None:
            rejected = load(f"{reference.partition(':')[0]}:rejected")
            streams.append(Stream(table, rejected(transform, stream.table, stream.frame)))
    return streams


def _cached_operators(graph: Graph) -> frozenset[str]:
    """Return the operators to cache: those read more than once, and Spark's sources below them.

    A transform that rejects rows reads its input twice.
    """
    reads = {
        name: sum(1 + _rejects(graph.nodes[reader].operator) for reader in readers)
        for name, readers in graph.readers.items()
    }
    cached = {name for name, count in reads.items() if count > 1}
    below = set(cached)
    for name in reversed(list(graph.nodes)):  # inputs come first
        if any(reader in below for reader in graph.readers[name]):
            below.add(name)
    observed = {name for name in graph.sources if graph.nodes[name].connector.spark}
    return frozenset(cached | (below & observed))  # see FrameBuilder._observed


def _rejects(operator: Source | Transform | Sink) -> bool:
    return isinstance(operator, Transform) and operator.rejects


def _write_task(batch: Batch, number: int) -> WriteTask:
    return WriteTask(
        lineage=batch.lineage,
        checkpoint=batch.checkpoint,
        generation=batch.generation,
        subtask=number,
        token=uuid4().hex,
    )


def _save(
    operator: str,
    sink: Sink,
    save: Callable[[Sink, DataFrame, Table, WriteTask], None],
    stream: Stream,
    task: WriteTask,
) -> Save:
    observation = Observation()
    frame = stream.frame.observe(observation, f.count(f.lit(1)).alias("rows"))
    return Save(
        operator=operator,
        table=stream.table.path,
        run=lambda: save(sink, frame, stream.table, task),
        observation=observation,
    )
