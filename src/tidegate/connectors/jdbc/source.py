"""The Jdbc source: splits tables into chunks at the start, and reads batches of chunks.

The engine calls it through plugin.contract. A split has adjacent chunks. If a table changes while
it is read, each chunk has the rows of the time when it was read. A repeated batch reads the same
ranges again.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pyarrow as pa

from tidegate.connectors.jdbc.chunk_position import (
    ROW_BYTES,
    ChunkPosition,
    TableChunks,
    end_of_batch,
    thin_edges,
)
from tidegate.connectors.jdbc.connection import address_of
from tidegate.connectors.jdbc.source_tables import TableRead, resolve_tables
from tidegate.databases.chunks import Chunk, ChunkStrategy, split_into_chunks
from tidegate.databases.dialect import dialect_of
from tidegate.databases.session import Session, open_session
from tidegate.model.errors import TerminalError
from tidegate.model.types import Table
from tidegate.plugin.arrow import table_schema
from tidegate.plugin.contract import Limit, Offset, OperatorContext, Progress, Source, Split
from tidegate.plugin.option import Values

CHUNKS_MAX = 2000
"""Approximate limit for all tables together."""
CHUNKS_EACH_MIN = 16


class JdbcSource(Source):
    """Source of tables and queries of a database."""

    def __init__(self, values: Values, context: OperatorContext) -> None:
        super().__init__(values, context)
        self.address = address_of(values)
        self.dialect = dialect_of(self.address.system)
        self._reads: tuple[TableRead, ...] | None = None

    @property
    def bounded(self) -> bool:
        """Always true: existing rows are read once."""
        return True

    def reads(self) -> tuple[TableRead, ...]:
        """The tables and queries to read, resolved once."""
        if self._reads is None:
            with open_session(self.address) as session:
                self._reads = resolve_tables(session, self.dialect, self.values)
        return self._reads

    def tables(self) -> tuple[Table, ...]:
        """The tables as defined in the database."""
        return tuple(read.table for read in self.reads())

    def initial(self) -> Offset:
        """Split every table into chunks."""
        reads = self.reads()
        with open_session(self.address) as session:
            tables = [
                self._chunks(session, read, max(CHUNKS_EACH_MIN, CHUNKS_MAX // len(reads)))
                for read in reads
            ]
        return ChunkPosition(tables=thin_edges(tables)).to_json()

    def _chunks(self, session: Session, read: TableRead, chunks_max: int) -> TableChunks:
        if not read.split_column:
            return TableChunks(path=read.table.path, rows_each=self._rows(session, read))
        rows, parts = self._rows(session, read), read.options["partition_num"]
        how = ChunkStrategy(
            rows_each=max(1, -(-rows // parts)) if parts else self.values["split.size"],
            rows=rows,
            factor_min=self.values["split.even-distribution.factor.lower-bound"],
            factor_max=self.values["split.even-distribution.factor.upper-bound"],
            sample_above=self.values["split.sample-sharding.threshold"],
            sample_rate=self.values["split.inverse-sampling.rate"],
            chunks_max=chunks_max,
        )
        relation = (
            f"(select * from {read.relation} where {read.filter}) tidegate_filtered"
            if read.filter
            else read.relation
        )
        native = read.native_column(read.split_column)
        found: list[Chunk] = split_into_chunks(
            session,
            self.dialect,
            relation,
            self.dialect.key_expression(native),
            read.split_type(),
            how,
        )
        edges = tuple(chunk.high for chunk in found[:-1])
        nulls = bool(edges) and native.nullable
        return TableChunks(
            path=read.table.path,
            column=read.split_column,
            edges=edges,
            rows_each=max(1, found[0].rows),
            nulls=nulls,
        )

    def _rows(self, session: Session, read: TableRead) -> int:
        """Estimate the rows from statistics, or count them if there are none."""
        estimated = 0
        if read.name is not None and not read.filter and not self.values["use_select_count"]:
            estimated = self.dialect.estimate_rows(session, read.name)
        where = f" where {read.filter}" if read.filter else ""
        return estimated or int(session.scalar(f"select count(*) from {read.relation}{where}") or 0)

    def latest(self, start: Offset, limit: Limit) -> Offset:
        """As many chunks as the limit allows; at least one."""
        return end_of_batch(start, limit)

    def splits(self, start: Offset, end: Offset, count: int) -> Sequence[Split]:
        """Combine adjacent chunks of a table to one range per split."""
        begun, until = ChunkPosition.from_json(start), ChunkPosition.from_json(end).done
        each = max(1, -(-(until - begun.done) // max(count, 1)))
        splits = []
        for index, first, last in begun.spans(until):
            table = begun.tables[index]
            parts = -(-(last - first) // each)
            edges = [first + (last - first) * i // parts for i in range(parts + 1)]
            for low, high in pairwise(edges):
                payload = [table.path, table.column, *table.span(low, high)]
                splits.append(
                    Split(table.path, payload, max(1, (high - low) * table.rows_each * ROW_BYTES))
                )
        return splits

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Read the rows of a range; an empty table yields an empty batch, for the sinks."""
        path, column, low, high, nulls = split.payload
        read = next((r for r in self.reads() if r.table.path == path), None)
        if read is None:
            raise TerminalError(
                f"the table {path} existed when the job started, but is not among the tables that"
                f" the source reads now: {self.address}"
            )
        empty = low is None
        for batch in self.dialect.batches(
            self.address,
            read.select(self.dialect, column, low, high, nulls),
            read.types(),
            self.values["fetch_size"],
        ):
            empty = False
            yield batch
        if empty:
            yield pa.RecordBatch.from_pylist([], schema=table_schema(read.table))

    def is_exhausted(self, offset: Offset) -> bool:
        """Whether all chunks are read."""
        position = ChunkPosition.from_json(offset)
        return position.done >= position.total

    def progress(self, offset: Offset) -> Progress | None:
        position = ChunkPosition.from_json(offset)
        return Progress(position.rows(position.done), max(1, position.rows(position.total)), "rows")
