"""Source and sink for databases that are accessed through Spark's JDBC with a given driver.

These classes run in the driver; Spark reads and writes (spark.py), not our tasks. `options.py`
selects them by the URL.

A source is split by its options alone, since Spark may still be starting while batches are planned.
With both bounds of a partition column it has chunks of the same width, so that a killed read
resumes at a chunk; otherwise each table is one chunk, distributed over tasks when it is read.

A sink stages its rows in a table of the target database, and merges them in one transaction with
its record (jvm_committer.py). If the SQL of the database is not known, and neither a key nor a
statement is given, Spark appends the rows directly: it commits each task separately, so a repeated
batch appends them again.
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
    """One table or query as input of Spark's JDBC.

    `column` and `filter` are the user's SQL.
    """

    path: str
    relation: str
    column: str = ""
    filter: str = ""
    options: Values = field(default_factory=dict)

    def predicate(self, low: Any, high: Any) -> str:
        """SQL condition for the rows of one range; null keys belong to the first range."""
        ends = ([f"{self.column} >= {low}"] if low is not None else []) + (
            [f"{self.column} < {high}"] if high is not None else []
        )
        span = " and ".join(ends)
        if ends and low is None:
            span = f"({span} or {self.column} is null)"
        return " and ".join(part for part in (self.filter, span) if part) or "1 = 1"


def reads_of(values: Values) -> tuple[JvmRead, ...]:
    """Parse a source's options, without querying the database."""
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
    """Check that a table can be split by the partition column."""
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
            " read through Spark's JDBC can be split by numbers only; name another column, or"
            " remove the option"
        )


class JvmSource(Source):
    """Source of tables and queries that Spark reads."""

    def __init__(self, values: Values, context: OperatorContext) -> None:
        super().__init__(values, context)
        self.reads = reads_of(values)
        self._tables: tuple[Table, ...] | None = None

    @property
    def bounded(self) -> bool:
        """Always true: existing rows are read once."""
        return True

    def tables(self) -> tuple[Table, ...]:
        """The tables with the types that Spark derives; read once."""
        if self._tables is None:
            from tidegate.connectors.jdbc.spark import read_table_schema

            self._tables = tuple(read_table_schema(self.values, read) for read in self.reads)
        return self._tables

    def initial(self) -> Offset:
        """Split tables into chunks by the options, without querying the database."""
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
        """How to read a table between two offsets, with one condition per task.

        No conditions if the range has none of its rows.
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
        """Split a whole table for several tasks by the current range of the partition column."""
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
        """Progress in chunks, since the row counts are not known."""
        position = ChunkPosition.from_json(offset)
        return Progress(position.done, position.total, "chunks")

    def splits(
        self,
        start: Offset,  # noqa: ARG002  # never called: see spark.py
        end: Offset,  # noqa: ARG002  # never called: see spark.py
        count: int,  # noqa: ARG002  # never called: see spark.py
    ) -> Sequence[Split]:
        raise Unsupported("this database is read by Spark")

    def read(
        self,
        split: Split,  # noqa: ARG002  # never called: see spark.py
    ) -> Iterator["pa.RecordBatch"]:
        raise Unsupported("this database is read by Spark")


def writes_directly(values: Values) -> bool:
    """Whether Spark appends the rows itself, without staging and record."""
    return (
        not Brand.of(values["url"]).has_known_transactions
        and not values["query"]
        and not (values["primary_keys"] and values["enable_upsert"])
    )


class JvmSink(Sink):
    """Sink of tables that Spark writes.

    `first_writes` has the first direct write into each table: save modes apply to that write and
    its repetitions.
    """

    def __init__(self, values: Values, context: OperatorContext) -> None:
        super().__init__(values, context)
        self.first_writes: dict[str, tuple[int, int]] = {}
        self.staging = JvmStaging()
        self.direct = writes_directly(values)

    @property
    def on_engine(self) -> bool:
        """Whether the committer needs Spark's JVM, to access the record."""
        return not self.direct

    def key(self, table: Table) -> tuple[int, ...]:
        """Indexes of the key's columns: primary_keys, else the table's primary or unique key."""
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
        """The target's name in SQL."""
        words = placeholder_values(table)
        text = with_name_case(
            for_table(self.values["table"] or "${table_name}", words), self.values
        )
        database = for_table(self.values["database"] or "", words)
        if "${" in text or "${" in database:
            raise UserError(
                f"the sink's table {text!r} has a placeholder that the incoming table"
                f" {table.path!r} has no value for"
            )
        return f"{database}.{text}" if database and "." not in text else text

    def check_input(self, target_table: str, path: str) -> None:
        """Reject two incoming tables with the same target, unless that is allowed."""
        if not target_table or self.values["allow_shared_table"]:
            return
        known = self.staging.inputs.setdefault(
            target_table if '"' in target_table else target_table.lower(), path
        )
        if known != path:
            raise SharedTable([(target_table, known, path)])

    def is_first_write(self, target_table: str, task: WriteTask) -> bool:
        """Whether this is the first write into a table, or a repetition of it."""
        this = (task.checkpoint, task.subtask)
        return self.first_writes.setdefault(target_table, this) == this

    def writer(self, task: WriteTask) -> Writer:  # noqa: ARG002  # never called: see spark.py
        raise Unsupported("this database is written by Spark")

    def committer(self) -> Committer:
        """Commits rows and record; for direct writes it only keeps the first writes."""
        if self.direct:
            return DirectWriteCommitter(self)
        return JvmCommitter(
            self.values, self.context, self.staging, url_without_secrets(self.values["url"])
        )


class DirectWriteCommitter(Committer):
    """Committer of direct writes, whose rows are visible once Spark has written them.

    It only remembers which tables must not be emptied again.
    """

    def __init__(self, sink: JvmSink) -> None:
        self._sink = sink

    def open(self, resume: SinkRestore) -> None:
        known: Mapping[str, Sequence[int]] = (resume.state or {}).get("begun", {})
        self._sink.first_writes = {
            target_table: (checkpoint, subtask)
            for target_table, (checkpoint, subtask) in known.items()
        }

    def commit(
        self,
        commit: Commit,  # noqa: ARG002  # the rows are visible already
    ) -> BatchCommitted:
        """Do nothing: the rows are already visible."""
        return BatchCommitted()

    def state(self) -> Any:
        """The first write into each table."""
        return {
            "version": 1,
            "begun": {
                target_table: list(first) for target_table, first in self._sink.first_writes.items()
            },
        }
