"""Code that runs in the Python workers, as small objects that are pickled and sent there.

These are functions over Arrow batches, which Spark calls by `mapInArrow`, and the whole of a fused
task. Errors leave a task encoded for errors.py. Retried and speculative attempts run everything
again: staged names contain a token that is new for each attempt, and counts are kept by split, so
that a second attempt replaces the first one's.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam

from tidegate import __version__
from tidegate.model.throughput import Volume
from tidegate.model.types import Table
from tidegate.pipeline.fused import FusedTasks, Tally, encode
from tidegate.plugin.arrow import conform, table_schema
from tidegate.plugin.contract import Message, Sink, Source, Split, Transform, Writer, WriteTask
from tidegate.spark.errors import ExecutorsIncompatible, to_wire

Batches = Iterable[pa.RecordBatch]
MESSAGES = pa.schema([pa.field("message", pa.string())])

_Step = Callable[[Any, Batches], Iterator[pa.RecordBatch]]


def _translate_errors(step: _Step) -> _Step:
    """Encode errors of a step for the driver."""

    @wraps(step)
    def run(self: Any, batches: Batches) -> Iterator[pa.RecordBatch]:
        try:
            yield from step(self, batches)
        except Exception as error:
            raise to_wire(error) from error

    return run


def _numbers(batches: Batches) -> Iterator[int]:
    """Iterate over the rows of `spark.range`, which are the splits of this task."""
    for batch in batches:
        yield from (int(number.as_py()) for number in batch.column(0))


def _message(text: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([text], pa.string())], schema=MESSAGES)


class CountsParam(AccumulatorParam[dict[str, Volume]]):
    """An accumulator of rows and bytes by name.

    A name that occurs twice is the same count, from a retry or a recomputed partition.
    """

    def zero(
        self,
        value: dict[str, Volume],  # noqa: ARG002  # the signature is pyspark's
    ) -> dict[str, Volume]:
        return {}

    def addInPlace(  # noqa: N802, RUF100  # pyspark's name
        self,
        value1: dict[str, Volume],
        value2: dict[str, Volume],
    ) -> dict[str, Volume]:
        value1.update(value2)
        return value1


def check_release(of_driver: str) -> None:
    """Reject executors with another release, because pickled objects may not be compatible."""
    if of_driver != __version__:
        raise ExecutorsIncompatible(
            f"the executors have Tidegate {__version__}, the driver is {of_driver}"
        )


def empty_task(partition: int, rows: Iterable[object]) -> Iterator[str]:
    """Run a task without work, to warm up the engine."""
    for _ in rows:
        pass
    yield str(partition)


@dataclass(frozen=True, slots=True)
class RunFused:
    """Read, transform and stage in one worker; returns messages.

    Partition i of `partitions` has the splits i, i + partitions, and so on.
    """

    tasks: FusedTasks
    partitions: int
    release: str = __version__

    def __call__(self, partition: int, rows: Iterable[object]) -> Iterator[str]:
        for _ in rows:  # empty, but Spark reuses a worker only if it has read its input to the end
            pass
        try:
            check_release(self.release)
            for index in range(partition, len(self.tasks.splits), self.partitions):
                yield from self.tasks.run(index)
        except Exception as error:
            raise to_wire(error) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadSplits:
    """Read the splits of one table of a source.

    Their volume is added to `counts` under `name` and the index of the split.
    """

    source: Source
    table: Table
    splits: Sequence[Split]
    name: str
    counts: Accumulator[dict[str, Volume]]

    @_translate_errors
    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        schema = table_schema(self.table)
        for index in _numbers(batches):
            seen = Volume()
            try:
                for batch in self.source.read(self.splits[index]):
                    seen += Volume(batch.num_rows, batch.nbytes)
                    yield conform(batch, schema)
            # also if no more rows are needed (LIMIT); counts of a failed attempt are not sent
            finally:
                self.counts.add({f"{self.name}{index}": seen})


@dataclass(frozen=True, kw_only=True, slots=True)
class ApplyTransform:
    """Apply an Arrow transform in a pipeline that needs DataFrames for another operator."""

    transform: Transform
    table: Table
    after: Table

    @_translate_errors
    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        before, after = table_schema(self.table), table_schema(self.after)
        for batch in batches:
            yield conform(self.transform.arrow(self.table, conform(batch, before)), after)


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteRows:
    """Stage the rows of a partition in a sink; returns its message, or nothing without rows."""

    sink: Sink
    operator: str
    table: Table
    lineage: str
    checkpoint: int
    generation: int
    release: str = __version__

    @_translate_errors
    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        check_release(self.release)
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is not None:
            passed = Tally()
            message = self._write(chain((first,), filled), passed)
            yield _message(encode(self.operator, message, passed.of(self.operator)))

    def _write(self, batches: Batches, passed: Tally) -> Message:
        schema = table_schema(self.table)
        writer: Writer = self.sink.writer(self._task())
        try:
            for batch in batches:
                own = conform(batch, schema)
                writer.write(self.table, own)
                passed.add(self.operator, self.table, own)
            return writer.close()
        except BaseException:
            writer.abort()
            raise

    def _task(self) -> WriteTask:
        context = TaskContext.get()
        assert context is not None, "only called in tasks"
        # Frames of several inputs and sinks are one job, so that the number of the partition is
        # unique in the batch.
        return WriteTask(
            lineage=self.lineage,
            checkpoint=self.checkpoint,
            generation=self.generation,
            subtask=context.partitionId(),
            token=uuid.uuid4().hex,
        )
