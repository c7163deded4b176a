"""A small source, transforms and sinks for the tests of the engine.

Spark's Python workers import this module too.
"""

import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.model.job import BlockKind, JobMode
from tidegate.model.plan import Action
from tidegate.model.records import SourceRange
from tidegate.model.types import ROW_KIND, Column, Table, parse_type
from tidegate.pipeline.engine import Batch, Written
from tidegate.pipeline.graph import Graph, Node
from tidegate.plugin.arrow import table_schema
from tidegate.plugin.connector import Capabilities, Connector
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
    Transform,
    Writer,
    WriteTask,
)
from tidegate.plugin.option import OptionSet


def table(path: str = "numbers", kinds: bool = False, **columns: str) -> Table:
    columns = columns or {"id": "bigint", "name": "string"}
    return Table(
        path=path,
        columns=tuple(Column(name=n, type=parse_type(t)) for n, t in columns.items()),
        primary_key=(next(iter(columns)),),
        kinds=kinds,
    )


class Numbers(Source):
    """Rows (id, "name <id>") in every table of `tables`; each read appends a line to `log`."""

    def tables(self) -> tuple[Table, ...]:
        return self.values["tables"]

    def initial(self) -> int:
        return 0

    def latest(self, start: int, limit: Limit) -> int:
        return start + (limit.rows or 10)

    def splits(self, start: int, end: int, count: int) -> Sequence[Split]:
        cuts = [start + (end - start) * i // count for i in range(count + 1)]
        return [
            Split(t.path, [low, high])
            for t in self.tables()
            for low, high in pairwise(cuts)
            if low < high
        ]

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        low, high = split.payload
        if log := self.values.get("log"):
            with open(log, "a") as stream:
                stream.write(f"{split.table} {low} {high}\n")
        self.inject_fault(low)
        ids = pa.array(range(low, high), pa.int64())
        columns = [ids, pc.binary_join_element_wise("name ", ids.cast(pa.string()), "")]
        which = next(t for t in self.tables() if t.path == split.table)
        if which.kinds:
            columns.append(pc.bit_wise_and(ids, 3).cast(pa.int8()))
        yield pa.RecordBatch.from_arrays(columns, schema=table_schema(which))

    def inject_fault(self, low: int) -> None:
        if error := self.values.get("error"):
            raise error
        if (crash := self.values.get("crash_once")) and low == 0:
            try:
                os.close(os.open(crash, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
            os._exit(1)
        if hang := self.values.get("hang"):
            with open(hang, "w") as fifo:  # blocks until a reader opens it or the worker is killed
                fifo.write("x")


class Rows(Source):
    """A source of one given Arrow batch, as one split."""

    def tables(self) -> tuple[Table, ...]:
        return (self.values["table"],)

    def initial(self) -> int:
        return 0

    def latest(self, start: int, limit: Limit) -> int:  # noqa: ARG002  # contract
        return 1

    def splits(
        self,
        start: int,  # noqa: ARG002  # contract
        end: int,  # noqa: ARG002  # contract
        count: int,  # noqa: ARG002  # contract
    ) -> Sequence[Split]:
        return [Split(self.values["table"].path, None)]

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  # contract
        yield self.values["batch"]


class Staged(Writer):
    """Writes an Arrow file per table."""

    def __init__(self, place: Path, task: WriteTask, error: Exception | None) -> None:
        self.place = place
        self.task = task
        self.error = error
        self.open: dict[str, tuple[Path, Any]] = {}
        self.rows = 0

    def write(self, table: Table, batch: pa.RecordBatch) -> None:
        if self.error:
            raise self.error
        assert batch.schema.equals(table_schema(table)), (batch.schema, table_schema(table))
        if table.path not in self.open:
            path = self.place / f"{table.path}-{self.task.subtask}-{self.task.token}.arrow"
            self.open[table.path] = (path, pa.ipc.new_file(str(path), batch.schema))
        self.open[table.path][1].write(batch)
        self.rows += batch.num_rows

    def close(self) -> Mapping[str, Any]:
        for _, stream in self.open.values():
            stream.close()
        return {
            "rows": self.rows,
            "files": {name: str(path) for name, (path, _) in self.open.items()},
            "subtask": self.task.subtask,
        }

    def abort(self) -> None:
        for path, stream in self.open.values():
            stream.close()
            path.unlink()
        (self.place / f"aborted-{uuid.uuid4().hex}").touch()


class NoCommitter(Committer):
    def open(self, resume: SinkRestore) -> None: ...

    def commit(self, commit: Commit) -> BatchCommitted:  # noqa: ARG002  # contract
        return BatchCommitted()


class Files(Sink):
    """Stages below `place`; fails with `error` if there is one."""

    def writer(self, task: WriteTask) -> Writer:
        return Staged(Path(self.values["place"]), task, self.values.get("error"))

    def committer(self) -> Committer:
        return NoCommitter()


class Renamed(Transform):
    """Renames the column `name` to `label`, over Arrow."""

    fusable = True

    def table(self, table: Table) -> Table:
        columns = tuple(
            Column(name="label", type=c.type) if c.name == "name" else c for c in table.columns
        )
        return Table(
            path=table.path, columns=columns, primary_key=table.primary_key, kinds=table.kinds
        )

    def arrow(self, table: Table, batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(batch.columns, schema=table_schema(self.table(table)))


class Query(Transform):
    """Applies `where` and `select`; only Spark knows the output columns."""

    def table(self, table: Table) -> None:  # noqa: ARG002  # contract
        return None


def run_query(transform: Transform, table: Table, df: Any) -> Any:
    """Run a Query on a DataFrame; keeps the row kinds."""
    kinds = [ROW_KIND] if table.kinds else []
    return df.where(transform.values["where"]).selectExpr(*transform.values["select"], *kinds)


class RejectingQuery(Query):
    """Rejects rows that do not match, into the table `aside`."""

    @property
    def rejects(self) -> bool:
        return True

    def rejected(self, table: Table) -> Table:
        return Table(path="aside", columns=table.columns)


def rejected(transform: Transform, table: Table, df: Any) -> Any:
    """The rows that RejectingQuery rejects, as a DataFrame."""
    return df.where(f"NOT ({transform.values['where']})").select(*table.names())


def read_by_spark(
    source: Source,  # noqa: ARG001  # contract
    spark: Any,
    table: Table,  # noqa: ARG001  # contract
    start: int,
    end: int,
) -> Any:
    """Read Numbers as a DataFrame."""
    return spark.range(start, end).selectExpr("id", "concat('name ', id) AS name")


class SavedBySpark(Files):
    """A sink that Spark itself writes, by `save`."""


def save(sink: Sink, df: Any, table: Table, task: WriteTask) -> None:  # noqa: ARG001  # contract
    df.write.mode("append").parquet(f"{sink.values['place']}/{table.path}")


CONTEXT = OperatorContext(
    job_id=1, job_name="test", pipeline=1, operator="x", mode=JobMode.BATCH, parallelism=1
)
SPARK_FUNCTIONS = {
    Query: "engine_parts:run_query",
    RejectingQuery: "engine_parts:run_query",
    SavedBySpark: "engine_parts:save",
}


def node(
    name: str,
    operator: Source | Transform | Sink,
    inputs: Sequence[str] = (),
    fusable: bool = True,
    spark: str = "",
) -> Node:
    kind = BlockKind.TRANSFORM
    if isinstance(operator, Source | Sink):
        kind = BlockKind.SOURCE if isinstance(operator, Source) else BlockKind.SINK
    connector = Connector(
        name=name,
        kind=kind,
        summary="",
        options=OptionSet(()),
        capabilities=Capabilities(),
        implementation="",
        spark=spark or SPARK_FUNCTIONS.get(type(operator), ""),
    )
    plain = fusable and type(operator) not in SPARK_FUNCTIONS
    return Node(
        action=Action(
            operator=name,
            label=name,
            kind=kind,
            plugin=name,
            options={},
            inputs=tuple(inputs),
            fusable=plain,
        ),
        connector=connector,
        operator=operator,
    )


def graph(pipeline: int = 1, **nodes: Node) -> Graph:
    return Graph(pipeline=pipeline, nodes=nodes)


def batch(
    end: int = 10, start: int = 0, checkpoint: int = 1, pipeline: int = 1, **ranges: SourceRange
) -> Batch:
    return Batch(
        lineage="l",
        pipeline=pipeline,
        checkpoint=checkpoint,
        generation=1,
        ranges=ranges or {"source": SourceRange(start, end)},
    )


def staged(written: Written, sink: str = "sink") -> dict[str, list[dict[str, Any]]]:
    """The sorted rows of the files named in the messages of a sink, by table."""
    found: dict[str, list[dict[str, Any]]] = {}
    for message in written.messages[sink]:
        for name, path in message["files"].items():
            found.setdefault(name, []).extend(pa.ipc.open_file(path).read_all().to_pylist())
    return {
        name: sorted(rows, key=lambda row: json.dumps(row, default=str))
        for name, rows in found.items()
    }
