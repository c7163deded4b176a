"""Databases that only Spark's JDBC can speak to, because their driver is given: source and sink in
the driver. Spark reads and writes (spark.py); no task of ours does. `options.py` chooses them by
the URL.

A source is cut by its options alone, since Spark may still be starting while batches are planned:
where both bounds of a partition column are given, into chunks of the same width, so that a killed
read goes on at a chunk; otherwise each table is one, and is spread over tasks when it is read.

A sink stages its rows in a table of the target, and merges them in one transaction with its record
(foreign_commit.py). Only where the database is none whose SQL is known, and neither a key nor a
statement is given, Spark adds the rows directly: it commits each task by itself, so a repeated
batch adds them again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidegate.connectors.jdbc.chunk_position import (
    ChunkPosition,
    TableChunks,
    end_of_batch,
    thin_edges,
)
from tidegate.connectors.jdbc.jvm_committer import JvmCommitter, JvmStaging
from tidegate.connectors.jdbc.jvm_sql import Brand
from tidegate.connectors.jdbc.source_tables import strip_where, table_entries
from tidegate.connectors.jdbc.target import KeyMissing, with_name_case
from tidegate.connectors.jdbc.target_check import SharedTable
from tidegate.databases.chunks import ChunkStrategy, even_chunks
from tidegate.databases.dialect import is_number
from tidegate.databases.url import url_without_secrets
from tidegate.model.errors import Unsupported, UserError
from tidegate.model.types import Table, TypeName
from tidegate.plugin.contract import (
    BatchCommitted,
    Commit,
    Committer,
    Limit,
    Offset,
    OperatorContext,
    Progress,
    Sink,
    SinkRestore,
    Source,
    Split,
    Writer,
    WriteTask,
)
from tidegate.plugin.option import Values
from tidegate.plugin.placeholders import for_table, list_for_table, placeholder_values
from tidegate.plugin.schema import DEFAULT_TABLE

if TYPE_CHECKING:
    import pyarrow as pa

CHUNKS_MAX = 2000
NUMBERS = (
    TypeName.TINYINT,
    TypeName.SMALLINT,
    TypeName.INT,
    TypeName.BIGINT,
    TypeName.DECIMAL,
    TypeName.FLOAT,
    TypeName.DOUBLE,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class JvmRead:
    """One table or query as Spark's JDBC takes it.

    `column` and `filter` are the person's own words in the database's SQL.
    """

    path: str
    relation: str
    column: str = ""
    filter: str = ""
    options: Values = field(default_factory=dict)

    def predicate(self, low: Any, high: Any) -> str:
        """The rows of one range, as a condition; those without a value are in the first."""
        ends = ([f"{self.column} >= {low}"] if low is not None else []) + (
            [f"{self.column} < {high}"] if high is not None else []
        )
        span = " and ".join(ends)
        if ends and low is None:
            span = f"({span} or {self.column} is null)"
        return " and ".join(part for part in (self.filter, span) if part) or "1 = 1"


def reads_of(values: Values) -> tuple[JvmRead, ...]:
    """What a source's options name; nothing is asked of the database."""
    reads = []
    for entry in table_entries(values):
        query = (entry["query"] or "").strip().rstrip(";")
        relation = f"({query}) tidegate_query" if query else entry["table_path"]
        reads.append(
            JvmRead(
                path=entry["table_path"] or DEFAULT_TABLE,
                relation=relation,
                column=entry["partition_column"] or "",
                filter=_filter(values, entry),
                options=entry,
            )
        )
    return tuple(reads)


def _filter(values: Values, entry: Values) -> str:
    parts = [f"({strip_where(values['where_condition'])})"] if values["where_condition"] else []
    for key, sign in (("partition_lower_bound", ">="), ("partition_upper_bound", "<=")):
        if entry[key] is not None:
            parts.append(f"{entry['partition_column']} {sign} {_constant(entry[key])}")
    return " and ".join(parts)


def _constant(text: str) -> str:
    quoted = text.replace("'", "''")
    return text.strip() if is_number(text.strip()) else f"'{quoted}'"


def _is_whole(text: str | None) -> bool:
    return text is not None and text.strip().lstrip("+-").isdigit()


def check_column(read: JvmRead, table: Table) -> None:
    """Whether a table can be cut by the partition column."""
    bare = read.column.strip('"`[]').lower()
    found = next((column for column in table.columns if column.name.lower() == bare), None)
    if found is None:
        raise UserError(
            f"partition_column {read.column!r} is not a column of {read.path}: there are"
            f" {', '.join(table.names())}"
        )
    if found.type.name not in NUMBERS:
        raise UserError(
            f"partition_column {read.column!r} of {read.path} is {found.type}: a database that is"
            " read by Spark's JDBC can be cut by numbers only; name another column, or leave"
            " it out"
        )


class JvmSource(Source):
    """Tables and queries that Spark reads."""

    def __init__(self, values: Values, context: OperatorContext) -> None:
        super().__init__(values, context)
        self.reads = reads_of(values)
        self._tables: tuple[Table, ...] | None = None

    @property
    def bounded(self) -> bool:
        """Always: what is there is read once."""
        return True

    def tables(self) -> tuple[Table, ...]:
        """The tables as Spark sees them; asked once."""
        if self._tables is None:
            from tidegate.connectors.jdbc.spark import read_table_schema

            self._tables = tuple(read_table_schema(self.values, read) for read in self.reads)
        return self._tables

    def initial(self) -> Offset:
        """Every table cut into chunks, where the options say how; the database is not asked."""
        each = max(16, CHUNKS_MAX // len(self.reads))
        return ChunkPosition(
            tables=thin_edges([self._chunks(read, each) for read in self.reads])
        ).to_json()

    def _chunks(self, read: JvmRead, chunks_max: int) -> TableChunks:
        low, high, parts = (
            read.options[key]
            for key in ("partition_lower_bound", "partition_upper_bound", "partition_num")
        )
        rows = self.values["split.size"]
        if not (parts and _is_whole(low) and _is_whole(high) and int(low) <= int(high)):
            return TableChunks(path=read.path, rows_each=rows)
        chunks = even_chunks(
            int(low), int(high), ChunkStrategy(rows_each=1, rows=parts, chunks_max=chunks_max)
        )
        return TableChunks(
            path=read.path,
            column=read.column,
            edges=tuple(chunk.high for chunk in chunks if chunk.high is not None),
            rows_each=rows,
        )

    def latest(self, start: Offset, limit: Limit) -> Offset:
        """As many chunks as the limit allows; at least one."""
        return end_of_batch(start, limit)

    def predicates(
        self, table: Table, start: Offset, end: Offset, tasks: int
    ) -> tuple[JvmRead, list[str]]:
        """How a table is read, and the conditions of the tasks that read it between two offsets;
        none where nothing of it lies there.
        """
        begun, until = ChunkPosition.from_json(start), ChunkPosition.from_json(end).done
        read = next(read for read in self.reads if read.path == table.path)
        for index, first, last in begun.spans(until):
            chunks = begun.tables[index]
            if chunks.path == table.path and chunks.column:
                return read, [
                    read.predicate(*chunks.span(n, n + 1)[:2]) for n in range(first, last)
                ]
            if chunks.path == table.path:
                return read, self._spread(read, table, tasks)
        return read, []

    def _spread(self, read: JvmRead, table: Table, tasks: int) -> list[str]:
        """A whole table for several tasks, by the partition column as the database has it now."""
        if not read.column:
            return [read.predicate(None, None)]
        check_column(read, table)
        from tidegate.connectors.jdbc.spark import column_bounds

        low, high = column_bounds(self.values, read)
        if low is None or high is None:
            return [read.predicate(None, None)]
        chunks = even_chunks(
            low,
            high,
            ChunkStrategy(
                rows_each=1, rows=read.options["partition_num"] or tasks, chunks_max=CHUNKS_MAX
            ),
        )
        return [read.predicate(chunk.low, chunk.high) for chunk in chunks]

    def is_exhausted(self, offset: Offset) -> bool:
        """Whether all chunks are read."""
        position = ChunkPosition.from_json(offset)
        return position.done >= position.total

    def progress(self, offset: Offset) -> Progress | None:
        """In chunks: the rows of what is not cut are not known."""
        position = ChunkPosition.from_json(offset)
        return Progress(position.done, position.total, "chunks")

    def splits(self, start: Offset, end: Offset, count: int) -> Sequence[Split]:  # noqa: ARG002  # never asked: see spark.py
        raise Unsupported("this database is read by Spark")

    def read(self, split: Split) -> Iterator["pa.RecordBatch"]:  # noqa: ARG002  # never asked: see spark.py
        raise Unsupported("this database is read by Spark")


def writes_directly(values: Values) -> bool:
    """Whether Spark adds the rows by itself, without staging and record."""
    return (
        not Brand.of(values["url"]).has_known_transactions
        and not values["query"]
        and not (values["primary_keys"] and values["enable_upsert"])
    )


class JvmSink(Sink):
    """Tables that Spark writes.

    `begun` tells with which direct write each one began: what the save modes say is for that one,
    and for its repeats.
    """

    def __init__(self, values: Values, context: OperatorContext) -> None:
        super().__init__(values, context)
        self.first_writes: dict[str, tuple[int, int]] = {}
        self.staging = JvmStaging()
        self.direct = writes_directly(values)

    @property
    def on_engine(self) -> bool:
        """The record is reached through the JVM."""
        return not self.direct

    def key(self, table: Table) -> tuple[int, ...]:
        """The places of the key's columns: primary_keys, else the incoming table's primary key,
        else its unique key.
        """
        names = {name.lower(): number for number, name in enumerate(table.names())}
        wanted = (
            list_for_table(self.values["primary_keys"], placeholder_values(table))
            or list(table.primary_key)
            or list(table.unique_key)
        )
        for name in wanted:
            if name.lower() not in names:
                raise KeyMissing(
                    f"primary_keys names {name!r}, which is not a column of {table.path}: there are"
                    f" {', '.join(table.names())}"
                )
        return tuple(names[name.lower()] for name in wanted)

    def target_name(self, table: Table) -> str:
        """The target's name, as the database reads it."""
        words = placeholder_values(table)
        text = with_name_case(
            for_table(self.values["table"] or "${table_name}", words), self.values
        )
        database = for_table(self.values["database"] or "", words)
        if "${" in text or "${" in database:
            raise UserError(
                f"the sink's table {text!r} has a placeholder that the incoming table"
                f" {table.path!r} has nothing for"
            )
        return f"{database}.{text}" if database and "." not in text else text

    def check_input(self, place: str, path: str) -> None:
        """Two incoming tables must not meet in one table, unless that is allowed."""
        if not place or self.values["allow_shared_table"]:
            return
        known = self.staging.inputs.setdefault(place if '"' in place else place.lower(), path)
        if known != path:
            raise SharedTable([(place, known, path)])

    def is_first_write(self, place: str, task: WriteTask) -> bool:
        """Whether this write is the first into a table, or a repeat of it."""
        this = (task.checkpoint, task.subtask)
        return self.first_writes.setdefault(place, this) == this

    def writer(self, task: WriteTask) -> Writer:  # noqa: ARG002  # never asked: see spark.py
        raise Unsupported("this database is written by Spark")

    def committer(self) -> Committer:
        """Rows and record together; with direct writes, only which tables have begun."""
        if self.direct:
            return DirectWriteCommitter(self)
        return JvmCommitter(
            self.values, self.context, self.staging, url_without_secrets(self.values["url"])
        )


class DirectWriteCommitter(Committer):
    """The rows are visible when Spark has written them; what is left is to remember the tables that
    must not be emptied again.
    """

    def __init__(self, sink: JvmSink) -> None:
        self._sink = sink

    def open(self, resume: SinkRestore) -> None:
        known: Mapping[str, Sequence[int]] = (resume.state or {}).get("begun", {})
        self._sink.first_writes = {
            place: (checkpoint, subtask) for place, (checkpoint, subtask) in known.items()
        }

    def commit(self, commit: Commit) -> BatchCommitted:  # noqa: ARG002  # the rows are visible already
        """Nothing: the rows are there."""
        return BatchCommitted()

    def state(self) -> Any:
        """Which tables have begun, and with which write."""
        return {
            "version": 1,
            "begun": {place: list(first) for place, first in self._sink.first_writes.items()},
        }
