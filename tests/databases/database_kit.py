"""Shared by this tier: databases, connectors built from options, driven sinks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa

from tidegate.connectors.jdbc.committer import JdbcCommitter
from tidegate.connectors.jdbc.options import SINK_OPTIONS, SOURCE_OPTIONS
from tidegate.connectors.jdbc.sink import JdbcSink
from tidegate.connectors.jdbc.source import JdbcSource
from tidegate.databases.dialect import Dialect, dialect_of
from tidegate.databases.session import Session, open_session
from tidegate.databases.url import Address, parse_url
from tidegate.model.job import JobMode
from tidegate.model.problem import Location
from tidegate.model.types import ROW_KIND, Column, RowKind, Table, parse_type
from tidegate.plugin.arrow import table_schema
from tidegate.plugin.contract import (
    AlreadyCommitted,
    BatchCommitted,
    Commit,
    Limit,
    Offset,
    OperatorContext,
    SinkRestore,
    WriteTask,
)
from tidegate.plugin.option import Block, OptionSet, Values

CONTEXT = OperatorContext(
    job_id=7, job_name="job", pipeline=1, operator="Sink[0]-Jdbc", mode=JobMode.BATCH, parallelism=2
)


@dataclass(frozen=True, slots=True)
class Place:
    url: str
    user: str
    password: str
    database: str

    @property
    def address(self) -> Address:
        return parse_url(self.url, self.user, self.password, {"create": "true"})

    @property
    def dialect(self) -> Dialect:
        return dialect_of(self.address.system)

    def session(self) -> Session:
        return open_session(self.address)

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements and return the rows of the last one."""
        with self.session() as session:
            for statement in statements[:-1]:
                session.execute(statement)
            if statements[-1].lstrip().lower().startswith(("select", "show", "with")):
                return session.query(statements[-1])
            session.execute(statements[-1])
            return []

    def options(self, **more: Any) -> dict[str, Any]:
        return {
            "url": self.url,
            **({"username": self.user, "password": self.password} if self.user else {}),
            **more,
        }

    def block(self, **more: Any) -> str:
        """The address as options of a job file."""
        import json

        return "\n".join(
            f"{json.dumps(key)} = {json.dumps(value)}"
            for key, value in self.options(**more).items()
        )

    def our_tables(self) -> list[str]:
        """List remaining staging tables."""
        with self.session() as session:
            return [
                name.table
                for name in self.dialect.tables(session, self.database)
                if name.table.startswith("tidegate_s_")
            ]


def read(options: OptionSet, given: Mapping[str, Any]) -> Values:
    values, problems = options.read(Block(given, lambda _: Location("job.conf"), "block"))
    assert problems == []
    return values


def source(place: Place, **more: Any) -> JdbcSource:
    return JdbcSource(read(SOURCE_OPTIONS, place.options(**more)), CONTEXT)


def sink(place: Place, context: OperatorContext = CONTEXT, **more: Any) -> JdbcSink:
    return JdbcSink(
        read(SINK_OPTIONS, place.options(**({"generate_sink_sql": True} | more))), context
    )


def table(path: str, key: Sequence[str] = (), *, kinds: bool = False, **columns: str) -> Table:
    return Table(
        path=path,
        columns=tuple(Column(name=n, type=parse_type(t)) for n, t in columns.items()),
        primary_key=tuple(key),
        kinds=kinds,
    )


def batch_of(table: Table, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Rows; where the table has kinds, each begins with its kind: ("+I", 1, "a")."""
    schema = table_schema(table)
    if table.kinds:
        rows = [[*row[1:], RowKind.parse(row[0]).code] for row in rows]
    names = [*table.names(), *([ROW_KIND] if table.kinds else [])]
    arrays = [
        pa.array([row[i] for row in rows], schema.field(name).type) for i, name in enumerate(names)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class Driven:
    """Runs a sink like the batch loop does, in one generation."""

    def __init__(
        self,
        sink: JdbcSink,
        generation: int = 1,
        *,
        lineage: str = "L",
        checkpoint: int = 0,
        pending: int | None = None,
        state: Any = None,
        token: str = "",
    ) -> None:
        self.sink = sink
        self.generation = generation
        self.lineage = lineage
        self.committer: JdbcCommitter = sink.committer()
        self.committer.open(
            SinkRestore(
                lineage=lineage,
                generation=generation,
                checkpoint=checkpoint,
                pending=pending,
                state=state,
                token=token,
            )
        )

    def stage(
        self, checkpoint: int, *parts: tuple[Table, Sequence[Sequence[Any]]], subtask: int = 0
    ) -> list[Mapping[str, Any]]:
        task = WriteTask(
            lineage=self.lineage,
            checkpoint=checkpoint,
            generation=self.generation,
            subtask=subtask,
            token=uuid4().hex,
        )
        writer = self.sink.writer(task)
        try:
            for to, rows in parts:
                writer.write(to, batch_of(to, rows))
            return [writer.close()]
        except BaseException:
            writer.abort()  # as the engines do
            raise

    def commit(
        self,
        checkpoint: int,
        messages: Sequence[Mapping[str, Any]],
        offsets: Mapping[str, Any] | None = None,
    ) -> BatchCommitted | AlreadyCommitted:
        return self.committer.commit(
            Commit(
                lineage=self.lineage,
                pipeline=1,
                checkpoint=checkpoint,
                generation=self.generation,
                offsets=offsets or {"s": {"start": checkpoint - 1, "end": checkpoint}},
                messages=messages,
            )
        )

    def batch(
        self, checkpoint: int, *parts: tuple[Table, Sequence[Sequence[Any]]]
    ) -> BatchCommitted | AlreadyCommitted:
        return self.commit(checkpoint, self.stage(checkpoint, *parts))


def batches(
    source: JdbcSource, start: Offset, limit: Limit, count: int = 2
) -> Iterator[tuple[Offset, pa.Table]]:
    """Read a bounded source from an offset; yields end and rows of each batch."""
    while not source.is_exhausted(start):
        end = source.latest(start, limit)
        assert end != start
        found = [b for split in source.splits(start, end, count) for b in source.read(split)]
        yield end, pa.Table.from_batches(found)
        start = end


def everything(source: JdbcSource, limit: Limit | None = None) -> pa.Table:
    return pa.concat_tables(
        [rows for _, rows in batches(source, source.initial(), limit or Limit())]
    )
