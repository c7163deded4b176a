"""The rows of a range of PostgreSQL's log: one read, however many tables. Called in tasks."""

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
from tidegate.databases.postgres.pgoutput_errors import IdentityMissing, NotFull, SlotDamaged
from tidegate.databases.postgres.pgoutput_messages import RelationMessage
from tidegate.databases.postgres.pgoutput_row_layout import RowLayout, difference
from tidegate.databases.postgres.pgoutput_rows import TableRows, Taking, compiled
from tidegate.databases.postgres.pgoutput_stream import Open, SlotRange, message_lists
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
    """A table that is wanted: as it is known at the start of the range, and as it flows through the
    pipeline.

    `whole`: whether every row before a change must be there as a whole. `passes_truncate`: whether
    it goes on where the table is emptied. `deferred`: whether its key is checked at the end of
    transactions only.
    """

    layout: RowLayout
    table: Table
    whole: bool = False
    passes_truncate: bool = False
    deferred: bool = False


def read_range(
    open_session: Open, wanted: SlotRange, tables: Mapping[str, SlotTable], database: str
) -> Iterator[Batch]:
    """The changes as (path, batch) in the order of the log, path by path."""
    if wanted.start >= wanted.end:
        return
    reading = MessagePass(wanted, tables, database, compiled())
    for data in message_lists(open_session, wanted):
        yield from reading.take(data)
    yield from reading.rest()


def with_mask(address: bytes | None) -> bytes | None:
    """An address as a cast to text writes it, which is how a snapshot reads it: always with its
    mask.
    """
    return (
        address
        if address is None or b"/" in address
        else address + (b"/128" if b":" in address else b"/32")
    )


class _Collector:
    """Rows of one table until there are enough for a batch, in one layout."""

    def __init__(self, path: str, wanted: SlotTable, relation: RelationMessage, fast: Any) -> None:
        self.path = path
        self._wanted = wanted
        self.names = [name for name, _, _ in relation.columns]
        if what := difference(wanted.layout, relation):
            raise TableChanged(path, what, "a transaction")
        self._schema = table_schema(wanted.table)
        found = [
            (self.names.index(c.name) if c.name in self.names else -1) for c in wanted.table.columns
        ]
        self._present = [place >= 0 for place in found]
        self._inet = [place >= 0 and relation.columns[place][1] == INET for place in found]
        self.places = [place for place in found if place >= 0]
        self.rows: TableRows = (fast or pure).Rows(self.places, len(self.names), wanted.whole)
        flowing = [
            c.name
            for c, present in zip(wanted.table.columns, self._present, strict=True)
            if present
        ]
        self._transaction = (
            DeferredTransaction(
                [flowing.index(name) for name in wanted.table.primary_key], len(flowing)
            )
            if wanted.deferred
            else None
        )
        self._settled_kinds = bytearray()
        self._settled: list[list[Any]] = [[] for _ in flowing]

    @property
    def deferred(self) -> bool:
        """Whether rows wait for the end of their transaction."""
        return self._transaction is not None

    def hold(self) -> None:
        """Keep the rows so far until the end of their transaction."""
        assert self._transaction is not None
        kinds, columns = self.rows.take()
        self._transaction.add(
            kinds, [pure.texts(column, len(kinds)).to_pylist() for column in columns]
        )

    def commit(self) -> int:
        """End the transaction; how many rows are ready."""
        assert self._transaction is not None
        self.hold()
        kinds, columns = self._transaction.take()
        self._settled_kinds += kinds
        for settled, column in zip(self._settled, columns, strict=True):
            settled += column
        return len(self._settled_kinds)

    def settled(self) -> pa.RecordBatch:
        """What transactions that have ended did, in the table's schema."""
        batch = self._batch(bytes(self._settled_kinds), self._settled)
        self._settled_kinds, self._settled = bytearray(), [[] for _ in self._settled]
        return batch

    def take(self) -> pa.RecordBatch:
        """The rows so far, in the table's schema."""
        return self._batch(*self.rows.take())

    def _batch(self, kinds: bytes, columns: Sequence[Any]) -> pa.RecordBatch:
        texts = iter(columns)
        arrays: list[Any] = []
        for column, present, inet in zip(
            self._wanted.table.columns, self._present, self._inet, strict=True
        ):
            if not present:
                arrays.append(missing_column(self._wanted.table, column, len(kinds)))
                continue
            values = pure.texts(next(texts), len(kinds))
            arrays.append(
                array_of(
                    [with_mask(v) for v in values.to_pylist()] if inet else values,
                    column.type,
                    column.name,
                )
            )
        arrays.append(pa.Array.from_buffers(pa.int8(), len(kinds), [None, pa.py_buffer(kinds)], 0))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def refused(self, data: bytes) -> Exception:
        """What is wrong with a message that was not taken."""
        try:
            pure.Rows(self.places, len(self.names), self._wanted.whole).add(
                messages.row_change(data), len(data)
            )
        except pure.UnknownLarge as error:
            return IdentityMissing(self.path, ", ".join(self.names[n] for n in error.places))
        except pure.NotWhole:
            return NotFull(self.path)
        except SlotDamaged as error:
            return error
        return SlotDamaged(f"a row of {self.path}")


class MessagePass:
    """One pass over the messages of a slot."""

    def __init__(
        self, wanted: SlotRange, tables: Mapping[str, SlotTable], database: str, fast: Any
    ) -> None:
        self._tables = tables
        self._database = database
        self._fast = fast
        self._intake: Taking = (fast or pure).Intake(
            wanted.start, wanted.end, BATCH_ROWS_MAX, BATCH_BYTES_MAX, BUFFERED_BYTES_MAX
        )
        self._collectors: dict[int, _Collector] = {}
        self._layouts: dict[
            int, RelationMessage
        ] = {}  # of rows that have not come yet: looked at when there are any
        self._deferred = any(table.deferred for table in tables.values())

    def take(self, data: list[bytes]) -> Iterator[Batch]:
        """Messages in the order of the log."""
        begin = 0
        for at, message in enumerate(data) if self._deferred else ():
            if message[:1] == _COMMIT:
                yield from self._take(data[begin : at + 1])
                begin = at + 1
                yield from self._committed()
        yield from self._take(data[begin:] if begin else data)

    def _committed(self) -> Iterator[Batch]:
        """What the transaction did to tables whose key is checked only now."""
        for collector in self._collectors.values():
            if collector.deferred:
                self._intake.total -= collector.rows.held
                if collector.commit() >= BATCH_ROWS_MAX:
                    yield collector.path, collector.settled()

    def _take(self, data: list[bytes]) -> Iterator[Batch]:
        at = 0
        while at < len(data):
            at = self._intake.eat(data, at)
            full = self._full()
            if full:
                yield from self._all_taken(full)
            elif at < len(data):
                yield from self._other(data[at])
                at += (
                    data[at][:1] not in _CHANGES
                )  # a row is tried again, now that its layout is there

    def _full(self) -> list[int]:
        """The tables whose rows are enough for a batch."""
        whole = self._intake.total >= BUFFERED_BYTES_MAX
        return [
            n
            for n, c in self._collectors.items()
            if c.rows.rows >= (1 if whole else BATCH_ROWS_MAX) or c.rows.held >= BATCH_BYTES_MAX
        ]

    def _all_taken(self, numbers: list[int]) -> Iterator[Batch]:
        for collector in (self._collectors[number] for number in numbers):
            self._intake.total -= collector.rows.held
            if collector.deferred:
                collector.hold()
            else:
                yield collector.path, collector.take()

    def _other(self, message: bytes) -> Iterator[Batch]:
        """A message that is no row of a table whose layout is known."""
        kind = message[0] if message else 0
        if kind == messages.RELATION:
            yield from self._layout(messages.relation(message))
        elif kind == messages.TRUNCATE:
            self._truncated(message)
        elif kind == messages.BEGIN:
            messages.begin(message)
            raise SlotDamaged("the begin of a transaction")
        elif message[:1] in _CHANGES:
            self._begin_rows(message)
        else:
            raise SlotDamaged("an empty message")

    def _layout(self, relation: RelationMessage) -> Iterator[Batch]:
        before = self._collectors.get(relation.id)
        if before is not None and before.rows.rows:
            yield from self._all_taken([relation.id])
        if before is not None and before.deferred and self._layouts.get(relation.id) == relation:
            return  # said once more, in the middle of a transaction
        if before is not None and before.deferred:
            yield before.path, before.settled()
        self._collectors.pop(relation.id, None)
        self._intake.tables.pop(relation.id, None)
        self._layouts[relation.id] = relation

    def _path(self, relation: RelationMessage) -> str:
        return ".".join((self._database, relation.schema, relation.table))

    def _begin_rows(self, message: bytes) -> None:
        """The first row of a layout: where to put it; or a row that cannot be taken."""
        number = int.from_bytes(message[1:5], "big")
        if number in self._collectors:
            raise self._collectors[number].refused(message)
        if number not in self._layouts:
            raise SlotDamaged("a row comes before the layout of its table")
        relation = self._layouts[number]
        path = self._path(relation)
        if path not in self._tables:
            self._intake.tables[number] = None
            return
        collector = self._collectors[number] = _Collector(
            path, self._tables[path], relation, self._fast
        )
        self._intake.tables[number] = collector.rows

    def _truncated(self, message: bytes) -> None:
        for number in messages.truncated(message):
            path = self._path(self._layouts[number]) if number in self._layouts else ""
            if path in self._tables and not self._tables[path].passes_truncate:
                raise TableChanged(path, "TRUNCATE", "a transaction")

    def rest(self) -> Iterator[Batch]:
        """What is collected and not taken yet."""
        yield from self._all_taken(
            [number for number, collector in self._collectors.items() if collector.rows.rows]
        )
        for collector in self._collectors.values():
            if collector.deferred:
                yield collector.path, collector.settled()
