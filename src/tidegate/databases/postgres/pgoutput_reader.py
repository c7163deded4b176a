"""Read the rows of a range of PostgreSQL's log once, for all tables. Called in tasks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidegate.databases.cdc.column_defaults import missing_column
from tidegate.databases.cdc.errors import TableChanged
from tidegate.databases.postgres import pgoutput_messages as messages
from tidegate.databases.postgres import pgoutput_rows as pure
from tidegate.databases.postgres.pgoutput_columns import array_of
from tidegate.databases.postgres.pgoutput_deferred import DeferredTransaction
from tidegate.databases.postgres.pgoutput_errors import (
    IdentityMissing,
    IdentityNotFull,
    SlotDamaged,
)
from tidegate.databases.postgres.pgoutput_messages import RelationMessage
from tidegate.databases.postgres.pgoutput_row_layout import RowLayout, difference
from tidegate.databases.postgres.pgoutput_rows import (
    AnyMessageDecoder,
    AnyRowBuffer,
    compiled_module,
)
from tidegate.databases.postgres.pgoutput_stream import OpenSession, SlotRange, message_lists
from tidegate.model.types import Table
from tidegate.plugin.arrow import table_schema

BATCH_ROWS_MAX = 16_384
BATCH_BYTES_MAX = 4 << 20
BUFFERED_BYTES_MAX = 16 << 20
INET = 869
_CHANGES = (b"I", b"U", b"D")
_COMMIT = b"C"
Batch = tuple[str, pa.RecordBatch]


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotTable:
    """A table to read: its layout at the start of the range, and the table in the pipeline.

    `needs_before` says whether changes must have complete before images, `skips_truncate` whether
    reading continues after a TRUNCATE, `deferred` whether the key is checked only at the end of
    transactions.
    """

    layout: RowLayout
    table: Table
    needs_before: bool = False
    skips_truncate: bool = False
    deferred: bool = False


def read_range(
    open_session: OpenSession, slot_range: SlotRange, tables: Mapping[str, SlotTable], database: str
) -> Iterator[Batch]:
    """Yield the changes as (path, batch); those of each table are in the order of the log."""
    if slot_range.start >= slot_range.end:
        return
    reading = MessageReader(slot_range, tables, database, compiled_module())
    for data in message_lists(open_session, slot_range):
        yield from reading.take(data)
    yield from reading.remaining()


def with_mask(address: bytes | None) -> bytes | None:
    """Return an address with its mask.

    A snapshot casts addresses to text, which always adds it.
    """
    return (
        address
        if address is None or b"/" in address
        else address + (b"/128" if b":" in address else b"/32")
    )


class _TableCollector:
    """Collects rows of one table in one layout until they fill a batch."""

    def __init__(self, path: str, table: SlotTable, relation: RelationMessage, fast: Any) -> None:
        self.path = path
        self._table = table
        self.names = [name for name, _, _ in relation.columns]
        if what := difference(table.layout, relation):
            raise TableChanged(path, what, "a transaction")
        self._schema = table_schema(table.table)
        found = [
            (self.names.index(c.name) if c.name in self.names else -1) for c in table.table.columns
        ]
        self._present = [place >= 0 for place in found]
        self._inet = [place >= 0 and relation.columns[place][1] == INET for place in found]
        self.indexes = [place for place in found if place >= 0]
        self.rows: AnyRowBuffer = (fast or pure).RowBuffer(
            self.indexes, len(self.names), table.needs_before
        )
        flowing = [
            c.name for c, present in zip(table.table.columns, self._present, strict=True) if present
        ]
        self._transaction = (
            DeferredTransaction(
                [flowing.index(name) for name in table.table.primary_key], len(flowing)
            )
            if table.deferred
            else None
        )
        self._committed_kinds = bytearray()
        self._committed_columns: list[list[Any]] = [[] for _ in flowing]

    @property
    def deferred(self) -> bool:
        """Whether rows wait for the end of their transaction."""
        return self._transaction is not None

    def defer_rows(self) -> None:
        """Keep the collected rows until the end of their transaction."""
        assert self._transaction is not None
        kinds, columns = self.rows.take()
        self._transaction.add(
            kinds, [pure.binary_array(column, len(kinds)).to_pylist() for column in columns]
        )

    def commit(self) -> int:
        """End the transaction; return how many rows are ready."""
        assert self._transaction is not None
        self.defer_rows()
        kinds, columns = self._transaction.take()
        self._committed_kinds += kinds
        for settled, column in zip(self._committed_columns, columns, strict=True):
            settled += column
        return len(self._committed_kinds)

    def take_committed(self) -> pa.RecordBatch:
        """Return the changes of finished transactions in the schema of the table."""
        batch = self._batch(bytes(self._committed_kinds), self._committed_columns)
        self._committed_kinds = bytearray()
        self._committed_columns = [[] for _ in self._committed_columns]
        return batch

    def take(self) -> pa.RecordBatch:
        """Return the collected rows in the schema of the table."""
        return self._batch(*self.rows.take())

    def _batch(self, kinds: bytes, columns: Sequence[Any]) -> pa.RecordBatch:
        texts = iter(columns)
        arrays: list[Any] = []
        for column, present, inet in zip(
            self._table.table.columns, self._present, self._inet, strict=True
        ):
            if not present:
                arrays.append(missing_column(self._table.table, column, len(kinds)))
                continue
            values = pure.binary_array(next(texts), len(kinds))
            arrays.append(
                array_of(
                    [with_mask(v) for v in values.to_pylist()] if inet else values,
                    column.type,
                    column.name,
                )
            )
        arrays.append(pa.Array.from_buffers(pa.int8(), len(kinds), [None, pa.py_buffer(kinds)], 0))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def rejection(self, data: bytes) -> Exception:
        """Return the error of a message that could not be decoded."""
        try:
            pure.RowBuffer(self.indexes, len(self.names), self._table.needs_before).add(
                messages.row_change(data), len(data)
            )
        except pure.UnchangedValueMissing as error:
            return IdentityMissing(self.path, ", ".join(self.names[n] for n in error.indexes))
        except pure.BeforeImageMissing:
            return IdentityNotFull(self.path)
        except SlotDamaged as error:
            return error
        return SlotDamaged(f"a row of {self.path}")


class MessageReader:
    """Reads the messages of one range."""

    def __init__(
        self, slot_range: SlotRange, tables: Mapping[str, SlotTable], database: str, fast: Any
    ) -> None:
        self._tables = tables
        self._database = database
        self._fast = fast
        self._decoder: AnyMessageDecoder = (fast or pure).MessageDecoder(
            slot_range.start, slot_range.end, BATCH_ROWS_MAX, BATCH_BYTES_MAX, BUFFERED_BYTES_MAX
        )
        self._collectors: dict[int, _TableCollector] = {}
        # Layouts are compared only when rows of them arrive.
        self._layouts: dict[int, RelationMessage] = {}
        self._deferred = any(table.deferred for table in tables.values())

    def take(self, data: list[bytes]) -> Iterator[Batch]:
        """Process messages in the order of the log."""
        begin = 0
        for at, message in enumerate(data) if self._deferred else ():
            if message[:1] == _COMMIT:
                yield from self._take(data[begin : at + 1])
                begin = at + 1
                yield from self._commit_deferred()
        yield from self._take(data[begin:] if begin else data)

    def _commit_deferred(self) -> Iterator[Batch]:
        """End the transaction of tables whose key is checked only now."""
        for collector in self._collectors.values():
            if collector.deferred:
                self._decoder.total_bytes -= collector.rows.message_bytes
                if collector.commit() >= BATCH_ROWS_MAX:
                    yield collector.path, collector.take_committed()

    def _take(self, data: list[bytes]) -> Iterator[Batch]:
        at = 0
        while at < len(data):
            at = self._decoder.consume(data, at)
            full = self._full()
            if full:
                yield from self._take_batches(full)
            elif at < len(data):
                yield from self._other(data[at])
                # A row is decoded again, now that its collector exists.
                at += data[at][:1] not in _CHANGES

    def _full(self) -> list[int]:
        """Return the tables that have enough rows for a batch."""
        all_full = self._decoder.total_bytes >= BUFFERED_BYTES_MAX
        return [
            n
            for n, c in self._collectors.items()
            if c.rows.row_count >= (1 if all_full else BATCH_ROWS_MAX)
            or c.rows.message_bytes >= BATCH_BYTES_MAX
        ]

    def _take_batches(self, numbers: list[int]) -> Iterator[Batch]:
        for collector in (self._collectors[number] for number in numbers):
            self._decoder.total_bytes -= collector.rows.message_bytes
            if collector.deferred:
                collector.defer_rows()
            else:
                yield collector.path, collector.take()

    def _other(self, message: bytes) -> Iterator[Batch]:
        """Process a message that is not a row of a table whose layout is known."""
        kind = message[0] if message else 0
        if kind == messages.RELATION:
            yield from self._layout(messages.relation(message))
        elif kind == messages.TRUNCATE:
            self._check_truncate(message)
        elif kind == messages.BEGIN:
            messages.begin(message)
            raise SlotDamaged("the begin of a transaction")
        elif message[:1] in _CHANGES:
            self._begin_rows(message)
        else:
            raise SlotDamaged("an empty message")

    def _layout(self, relation: RelationMessage) -> Iterator[Batch]:
        before = self._collectors.get(relation.id)
        if before is not None and before.rows.row_count:
            yield from self._take_batches([relation.id])
        if before is not None and before.deferred and self._layouts.get(relation.id) == relation:
            return  # repeated in the middle of a transaction
        if before is not None and before.deferred:
            yield before.path, before.take_committed()
        self._collectors.pop(relation.id, None)
        self._decoder.tables.pop(relation.id, None)
        self._layouts[relation.id] = relation

    def _path(self, relation: RelationMessage) -> str:
        return ".".join((self._database, relation.schema, relation.table))

    def _begin_rows(self, message: bytes) -> None:
        """Create the collector of the first row of a layout, or raise the error of the row."""
        number = int.from_bytes(message[1:5], "big")
        if number in self._collectors:
            raise self._collectors[number].rejection(message)
        if number not in self._layouts:
            raise SlotDamaged("a row comes before the layout of its table")
        relation = self._layouts[number]
        path = self._path(relation)
        if path not in self._tables:
            self._decoder.tables[number] = None
            return
        collector = self._collectors[number] = _TableCollector(
            path, self._tables[path], relation, self._fast
        )
        self._decoder.tables[number] = collector.rows

    def _check_truncate(self, message: bytes) -> None:
        for number in messages.truncated_tables(message):
            path = self._path(self._layouts[number]) if number in self._layouts else ""
            if path in self._tables and not self._tables[path].skips_truncate:
                raise TableChanged(path, "TRUNCATE", "a transaction")

    def remaining(self) -> Iterator[Batch]:
        """Yield all rows that are still collected."""
        yield from self._take_batches(
            [number for number, collector in self._collectors.items() if collector.rows.row_count]
        )
        for collector in self._collectors.values():
            if collector.deferred:
                yield collector.path, collector.take_committed()
