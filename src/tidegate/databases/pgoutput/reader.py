"""The rows of a range of PostgreSQL's log: one read, however many tables. Called in tasks."""

import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa

from tidegate.databases.capture.errors import TableChanged
from tidegate.databases.errors import DatabaseTrouble
from tidegate.databases.pgoutput import lsn, messages
from tidegate.databases.pgoutput.columns import array_of
from tidegate.databases.pgoutput.errors import IdentityMissing, SlotDamaged
from tidegate.databases.pgoutput.messages import UNCHANGED, Relation, RowChange, Values
from tidegate.databases.pgoutput.slots import IN_USE, copy_slot
from tidegate.databases.postgres import PostgresSession, ours
from tidegate.model.types import Table
from tidegate.plugin.arrow import table_schema

BATCH_ROWS_MAX = 16_384
BATCH_BYTES_MAX = 4 << 20
BUFFERED_BYTES_MAX = 16 << 20
NEAR_BYTES = 8 << 20
"""A slot that begins no further before the range is read itself: a copy costs a few writes of the server."""
WAIT_S = 60.0
PAUSE_S = 0.2
INET = 869
_HEADER = b"PGCOPY\n\xff\r\n\0"
Batch = tuple[str, pa.RecordBatch]
Open = Callable[[], PostgresSession]


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotRange:
    """What is read: transactions with start <= commit < end, of a publication, through a slot."""

    slot: str
    publication: str
    start: int
    end: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotTable:
    """A table that is wanted: the names of its columns as they are known at the start, and as it flows through the pipeline."""

    columns: tuple[str, ...]
    table: Table


def read_range(open_session: Open, wanted: SlotRange, tables: Mapping[str, SlotTable], database: str) -> Iterator[Batch]:
    """The changes as (path, batch) in the order of the log, path by path."""
    if wanted.start >= wanted.end:
        return
    reading = _Reading(wanted, tables, database)
    for data in changes(open_session, wanted):
        yield from reading.take(data)
    yield from reading.rest()


def changes(open_session: Open, wanted: SlotRange) -> Generator[bytes, None, None]:
    """The messages of a slot. Where somebody reads it, or it begins far before the range, a temporary copy is read."""
    with open_session() as session:
        assert isinstance(session, PostgresSession)
        _notice_lost_readers(session)
        begins = _begin_of(session, wanted.slot)
        ready = _own_slot(session, wanted) if wanted.start - begins > NEAR_BYTES else wanted.slot
        deadline_s = time.monotonic() + WAIT_S
        while True:
            try:
                yield from _peek(session, wanted, ready)
                return
            except DatabaseTrouble as error:
                if error.code != IN_USE or time.monotonic() > deadline_s:
                    raise
            if ready == wanted.slot:
                ready = _own_slot(session, wanted)
            if ready == wanted.slot:
                time.sleep(PAUSE_S)  # another reader of the slot comes to its end


def _notice_lost_readers(session: PostgresSession) -> None:
    """So that the server ends our query soon when we are killed, and the slot is free again."""
    if session.connection.info.server_version >= 140_000:
        session.execute("set client_connection_check_interval = '500ms'")


def _begin_of(session: PostgresSession, slot: str) -> int:
    """Where the reading of a slot begins; 0 where it says nothing."""
    return lsn.number(str(session.one("select confirmed_flush_lsn::text from pg_replication_slots where slot_name = %s", (slot,)) or "0/0"))


def _own_slot(session: PostgresSession, wanted: SlotRange) -> str:
    """A copy that begins at the range; the slot itself where the server has no room for copies."""
    copy = f"tidegate_{uuid.uuid4().hex}"
    if not copy_slot(session, wanted.slot, copy):
        return wanted.slot
    if _begin_of(session, copy) < wanted.start:
        session.execute("select pg_replication_slot_advance(%s, %s::pg_lsn)", (copy, lsn.text(wanted.start)))
    return copy


def _peek(session: PostgresSession, wanted: SlotRange, slot: str) -> Iterator[bytes]:
    """One message after the other, as the server sends them."""
    call = "pg_logical_slot_peek_binary_changes({}, {}, null, 'proto_version', '1', 'publication_names', {})"
    text = call.format(_literal(slot), _literal(lsn.text(wanted.end)), _literal('"' + wanted.publication.replace('"', '""') + '"'))
    try:
        with session.connection.cursor() as cursor, cursor.copy(f"copy (select data from {text}) to stdout (format binary)".encode()) as copy:
            yield from rows_of_copy(bytes(chunk) for chunk in copy)
    except psycopg.Error as error:
        raise ours(session.address, error.sqlstate, str(error)) from None


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def rows_of_copy(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The values of a binary copy of one column; the server sends each row in a chunk of its own, after a header."""
    rest = b""
    begun = False
    for chunk in chunks:
        data = rest + chunk if rest else chunk
        if not begun:
            if len(data) < 19:
                rest = data
                continue
            if not data.startswith(_HEADER):
                raise SlotDamaged("a copy does not begin as it should")
            data, begun = data[19 + int.from_bytes(data[15:19], "big") :], True
        at = 0
        while len(data) - at >= 6 and data[at : at + 2] == b"\0\1":
            size = int.from_bytes(data[at + 2 : at + 6], "big")
            if len(data) - at - 6 < size:
                break
            yield data[at + 6 : at + 6 + size]
            at += 6 + size
        rest = data[at:]
    if rest not in (b"", b"\xff\xff"):
        raise SlotDamaged("a copy ends within a row")


def with_mask(address: bytes | None) -> bytes | None:
    """An address as a cast to text writes it, which is how a snapshot reads it: always with its mask."""
    return address if address is None or b"/" in address else address + (b"/128" if b":" in address else b"/32")


class _Collector:
    """Rows of one table until there are enough for a batch."""

    def __init__(self, path: str, wanted: SlotTable) -> None:
        self.path, self._wanted = path, wanted
        self._schema = table_schema(wanted.table)
        self._places: list[int] = []
        self._columns: list[list[Any]] = []
        self._kinds: list[int] = []
        self._names: list[str] = []
        self._inet: list[int] = []
        self.bytes = 0
        self.relation: Relation | None = None  # that of the rows that follow; looked at when there are any

    def _layout(self, relation: Relation) -> None:
        """The layout must have the columns that are known."""
        names = [name for name, _, _ in relation.columns]
        if set(names) != set(self._wanted.columns):
            new = [n for n in names if n not in self._wanted.columns]
            gone = [n for n in self._wanted.columns if n not in names]
            what = " and ".join(filter(None, [f"it got {', '.join(new)}" if new else "", f"it lost {', '.join(gone)}" if gone else ""]))
            raise TableChanged(self.path, what, "a transaction")
        assert not self._kinds, "rows of the layout before are taken first"
        self._places = [names.index(c.name) if c.name in names else -1 for c in self._wanted.table.columns]
        self._columns = [[] for _ in self._places]
        self._names = names
        self._inet = [n for n, place in enumerate(self._places) if place >= 0 and relation.columns[place][1] == INET]

    def add(self, change: RowChange, size: int) -> None:
        """One change as rows with kinds."""
        if self.relation is not None:
            self._layout(self.relation)
            self.relation = None
        before, after = change.before, change.after
        if after is not None:
            after = self._complete(after, before if change.whole else None)
        if change.kind == messages.INSERT:
            self._row(0, after)
        elif change.kind == messages.DELETE:
            self._row(3, before)
        elif before is None:
            self._row(2, after)
        elif change.whole:
            self._row(1, before)
            self._row(2, after)
        else:  # only the key of before is known, as it changed
            self._row(3, before)
            self._row(0, after)
        self.bytes += size

    def _complete(self, after: Values, before: Values | None) -> Values:
        """Large values that an update left alone come from the image before."""
        if UNCHANGED not in after:
            return after
        if before is None:
            raise IdentityMissing(self.path, ", ".join(n for n, v in zip(self._names, after, strict=False) if v is UNCHANGED))
        return [b if a is UNCHANGED else a for a, b in zip(after, before, strict=True)]

    def _row(self, kind: int, values: Values | None) -> None:
        assert values is not None, "messages.row_change has looked"
        if len(values) != len(self._names):
            raise SlotDamaged(f"a row of {self.path} has {len(values)} values and its layout {len(self._names)}")
        self._kinds.append(kind)
        for column, place in zip(self._columns, self._places, strict=True):
            value = values[place] if place >= 0 else None
            column.append(None if value is UNCHANGED else value)

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self._kinds)

    def take(self) -> pa.RecordBatch:
        """The rows so far, in the table's schema."""
        for number in self._inet:
            self._columns[number] = [with_mask(value) for value in self._columns[number]]
        arrays = [array_of(values, c.type, c.name) for values, c in zip(self._columns, self._wanted.table.columns, strict=True)]
        batch = pa.RecordBatch.from_arrays([*arrays, pa.array(self._kinds, pa.int8())], schema=self._schema)
        self._columns = [[] for _ in self._places]
        self._kinds = []
        self.bytes = 0
        return batch


class _Reading:
    """One pass over the messages of a slot."""

    def __init__(self, wanted: SlotRange, tables: Mapping[str, SlotTable], database: str) -> None:
        self._wanted, self._tables, self._database = wanted, tables, database
        self._collectors: dict[int, _Collector | None] = {}
        self._inside = False

    def take(self, data: bytes) -> Iterator[Batch]:
        kind = data[0] if data else 0
        if kind == messages.BEGIN:
            self._inside = self._wanted.start <= messages.begin(data)[0] < self._wanted.end
        elif kind == messages.RELATION:
            yield from self._layout(messages.relation(data))
        elif self._inside and kind in (messages.INSERT, messages.UPDATE, messages.DELETE):
            yield from self._change(data)
        elif self._inside and kind == messages.TRUNCATE:
            self._truncated(data)

    def _layout(self, relation: Relation) -> Iterator[Batch]:
        path = ".".join((self._database, relation.schema, relation.table))
        before = self._collectors.get(relation.id)
        if before is not None and before.rows:
            yield before.path, before.take()
        if path not in self._tables:
            self._collectors[relation.id] = None
            return
        collector = before if before is not None and before.path == path else _Collector(path, self._tables[path])
        self._collectors[relation.id] = collector
        collector.relation = relation

    def _change(self, data: bytes) -> Iterator[Batch]:
        change = messages.row_change(data)
        if change.relation not in self._collectors:
            raise SlotDamaged("a row comes before the layout of its table")
        collector = self._collectors[change.relation]
        if collector is None:
            return
        collector.add(change, len(data))
        if collector.rows >= BATCH_ROWS_MAX or collector.bytes >= BATCH_BYTES_MAX:
            yield collector.path, collector.take()
        elif sum(c.bytes for c in self._collectors.values() if c is not None) > BUFFERED_BYTES_MAX:
            yield from self.rest()

    def _truncated(self, data: bytes) -> None:
        count = int.from_bytes(data[1:5], "big")
        numbers: Sequence[int] = [int.from_bytes(data[6 + 4 * n : 10 + 4 * n], "big") for n in range(min(count, len(data) // 4))]
        for number in numbers:
            collector = self._collectors.get(number)
            if collector is not None:
                raise TableChanged(collector.path, "TRUNCATE", "a transaction")

    def rest(self) -> Iterator[Batch]:
        """What is collected and not taken yet."""
        for collector in self._collectors.values():
            if collector is not None and collector.rows:
                yield collector.path, collector.take()
