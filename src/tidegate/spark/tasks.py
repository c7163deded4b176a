"""What runs inside the Python workers, as small plain objects that travel there by pickle:
functions over Arrow batches (Spark calls them by `mapInArrow`), and the whole of a fused task.

Errors leave a task in the form that errors.py understands. Retried and speculative attempts run all
of it again: staged names are made of a token that is new for every attempt, and counts are kept by
split, so that a second attempt replaces the first one's.
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
from tidegate.spark.errors import ExecutorsUnfit, marked

Batches = Iterable[pa.RecordBatch]
MESSAGES = pa.schema([pa.field("message", pa.string())])

_Step = Callable[[Any, Batches], Iterator[pa.RecordBatch]]


def _marking(step: _Step) -> _Step:
    """Errors of a step leave the task as marked ones."""

    @wraps(step)
    def run(self: Any, batches: Batches) -> Iterator[pa.RecordBatch]:
        try:
            yield from step(self, batches)
        except Exception as error:
            raise marked(error) from error

    return run


def _numbers(batches: Batches) -> Iterator[int]:
    """The rows of `spark.range`: which splits this task has."""
    for batch in batches:
        yield from (int(number.as_py()) for number in batch.column(0))


def _message(text: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([text], pa.string())], schema=MESSAGES)


class CountsParam(AccumulatorParam[dict[str, Volume]]):
    """Rows and bytes by name.

    The same name twice is the same count told twice: by a retry, by a recomputed partition.
    """

    def zero(self, value: dict[str, Volume]) -> dict[str, Volume]:  # noqa: ARG002  # the signature is pyspark's
        return {}

    def addInPlace(self, value1: dict[str, Volume], value2: dict[str, Volume]) -> dict[str, Volume]:  # noqa: N802, RUF100  # the name is pyspark's
        value1.update(value2)
        return value1


def check_release(of_driver: str) -> None:
    """Objects travel by the names of their classes: two releases may understand them differently."""
    if of_driver != __version__:
        raise ExecutorsUnfit(
            f"the executors have Tidegate {__version__}, the driver is {of_driver}"
        )


def nothing(partition: int, rows: Iterable[object]) -> Iterator[str]:
    """A task without work, for an engine that warms up."""
    for _ in rows:
        pass
    yield str(partition)


@dataclass(frozen=True, slots=True)
class RunFused:
    """Read, transform and stage in one worker; gives messages.

    Partition i of `partitions` has the splits i, i + partitions, and so on.
    """

    tasks: FusedTasks
    partitions: int
    release: str = __version__

    def __call__(self, partition: int, rows: Iterable[object]) -> Iterator[str]:
        for _ in (
            rows
        ):  # there are none, but a worker that has not seen the end of its input is not used again
            pass
        try:
            check_release(self.release)
            for index in range(partition, len(self.tasks.splits), self.partitions):
                yield from self.tasks.run(index)
        except Exception as error:
            raise marked(error) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadSplits:
    """The rows of a source's splits of one table; how much they are goes into `counts` under `name`
    and the split's index.
    """

    source: Source
    table: Table
    splits: Sequence[Split]
    name: str
    counts: Accumulator[dict[str, Volume]]

    @_marking
    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        schema = table_schema(self.table)
        for index in _numbers(batches):
            seen = Volume()
            try:
                for batch in self.source.read(self.splits[index]):
                    seen += Volume(batch.num_rows, batch.nbytes)
                    yield conform(batch, schema)
            # also where nobody wants more rows (LIMIT); a failed attempt's counts do not leave its
            # worker
            finally:
                self.counts.add({f"{self.name}{index}": seen})


@dataclass(frozen=True, kw_only=True, slots=True)
class ApplyTransform:
    """A transform that works over Arrow, in a pipeline that goes through DataFrames for another
    reason.
    """

    transform: Transform
    table: Table
    after: Table

    @_marking
    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        before, after = table_schema(self.table), table_schema(self.after)
        for batch in batches:
            yield conform(self.transform.arrow(self.table, conform(batch, before)), after)


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteRows:
    """Stage the rows of a partition into a sink; gives its message, and nothing where there was no
    row.
    """

    sink: Sink
    operator: str
    table: Table
    lineage: str
    checkpoint: int
    generation: int
    release: str = __version__

    @_marking
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
