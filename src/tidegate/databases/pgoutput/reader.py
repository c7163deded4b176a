"""The rows of a range of PostgreSQL's log: one read, however many tables. Called in tasks."""

import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa

from tidegate.databases.capture.errors import TableChanged
from tidegate.databases.capture.filled import absent
from tidegate.databases.errors import DatabaseTrouble
from tidegate.databases.pgoutput import lsn, messages
from tidegate.databases.pgoutput import rows as pure
from tidegate.databases.pgoutput.columns import array_of
from tidegate.databases.pgoutput.errors import IdentityMissing, SlotDamaged
from tidegate.databases.pgoutput.messages import Relation
from tidegate.databases.pgoutput.rows import TableRows, Taking, compiled
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
CHUNKS_MAX = 4096
_CHANGES = (b"I", b"U", b"D")
_TRAILER = b"\xff\xff"
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
    reading = Reading(wanted, tables, database, compiled())
    for data in message_lists(open_session, wanted):
        yield from reading.take(data)
    yield from reading.rest()


def changes(open_session: Open, wanted: SlotRange) -> Generator[bytes, None, None]:
    """The messages of a slot, one by one."""
    with closing(message_lists(open_session, wanted)) as found:
        for many in found:
            yield from many


def message_lists(open_session: Open, wanted: SlotRange) -> Generator[list[bytes], None, None]:
    """The messages of a slot, many at a time. Where somebody reads it, or it begins far before the range, a temporary copy is read."""
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


def _peek(session: PostgresSession, wanted: SlotRange, slot: str) -> Iterator[list[bytes]]:
    """Messages as the server sends them."""
    call = "pg_logical_slot_peek_binary_changes({}, {}, null, 'proto_version', '1', 'publication_names', {})"
    text = call.format(_literal(slot), _literal(lsn.text(wanted.end)), _literal('"' + wanted.publication.replace('"', '""') + '"'))
    try:
        with session.connection.cursor() as cursor, cursor.copy(f"copy (select data from {text}) to stdout (format binary)".encode()) as copy:
            yield from rows_of_copy(chunks_of(copy, session.connection.pgconn), compiled())
    except psycopg.Error as error:
        raise ours(session.address, error.sqlstate, str(error)) from None


def chunks_of(copy: Any, connection: Any) -> Iterator[list[bytes]]:
    """What a copy gives: the first chunk is waited for, and those that have come with it are taken without a wait."""
    more = connection.get_copy_data
    while first := copy.read():
        many = [bytes(first)]
        size = len(first)
        while size > len(_TRAILER) and len(many) < CHUNKS_MAX:
            size, data = more(1)
            if size > 0:
                many.append(bytes(data))
        if size < 0:
            _check_end(connection)
        yield many
        if size < 0:
            return


def _check_end(connection: Any) -> None:
    """The copy has ended: in good order, or by an error of the server."""
    results = []
    while (result := connection.get_result()) is not None:
        results.append(result)
    for one in results:
        if one.status != psycopg.pq.ExecStatus.COMMAND_OK:
            raise psycopg.errors.error_from_result(one)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def rows_of_copy(chunks: Iterable[list[bytes]], fast: Any = None) -> Iterator[list[bytes]]:
    """The values of a binary copy of one column; the server sends each row in a chunk of its own, after a header."""
    unframed = (fast or pure).unframed
    rest = b""
    begun = False
    for many in chunks:
        if begun and not rest and (whole := unframed(many)) is not None:
            yield whole
            continue
        data = rest + b"".join(many)
        if not begun:
            if len(data) < 19:
                rest = data
                continue
            if not data.startswith(_HEADER):
                raise SlotDamaged("a copy does not begin as it should")
            data, begun = data[19 + int.from_bytes(data[15:19], "big") :], True
        found, rest = _cut(data)
        yield found
    if rest not in (b"", _TRAILER):
        raise SlotDamaged("a copy ends within a row")


def _cut(data: bytes) -> tuple[list[bytes], bytes]:
    """The values of rows back to back, and what is left."""
    at, found = 0, []
    while len(data) - at >= 6 and data[at : at + 2] == b"\0\1":
        size = int.from_bytes(data[at + 2 : at + 6], "big")
        if len(data) - at - 6 < size:
            break
        found.append(data[at + 6 : at + 6 + size])
        at += 6 + size
    return found, data[at:]


def with_mask(address: bytes | None) -> bytes | None:
    """An address as a cast to text writes it, which is how a snapshot reads it: always with its mask."""
    return address if address is None or b"/" in address else address + (b"/128" if b":" in address else b"/32")


class _Collector:
    """Rows of one table until there are enough for a batch, in one layout."""

    def __init__(self, path: str, wanted: SlotTable, relation: Relation, fast: Any) -> None:
        self.path, self._wanted = path, wanted
        self.names = [name for name, _, _ in relation.columns]
        self._check()
        self._schema = table_schema(wanted.table)
        found = [(self.names.index(c.name) if c.name in self.names else -1) for c in wanted.table.columns]
        self._present = [place >= 0 for place in found]
        self._inet = [place >= 0 and relation.columns[place][1] == INET for place in found]
        self.places = [place for place in found if place >= 0]
        self.rows: TableRows = (fast or pure).Rows(self.places, len(self.names))

    def _check(self) -> None:
        """The layout must have the columns that are known."""
        if set(self.names) != set(self._wanted.columns):
            new = [n for n in self.names if n not in self._wanted.columns]
            gone = [n for n in self._wanted.columns if n not in self.names]
            what = " and ".join(filter(None, [f"it got {', '.join(new)}" if new else "", f"it lost {', '.join(gone)}" if gone else ""]))
            raise TableChanged(self.path, what, "a transaction")

    def take(self) -> pa.RecordBatch:
        """The rows so far, in the table's schema."""
        kinds, columns = self.rows.take()
        texts = iter(columns)
        arrays: list[Any] = []
        for column, present, inet in zip(self._wanted.table.columns, self._present, self._inet, strict=True):
            if not present:
                arrays.append(absent(self._wanted.table, column, len(kinds)))
                continue
            values = pure.texts(next(texts), len(kinds))
            arrays.append(array_of([with_mask(v) for v in values.to_pylist()] if inet else values, column.type, column.name))
        arrays.append(pa.Array.from_buffers(pa.int8(), len(kinds), [None, pa.py_buffer(kinds)], 0))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def refused(self, data: bytes) -> Exception:
        """What is wrong with a message that was not taken."""
        try:
            pure.Rows(self.places, len(self.names)).add(messages.row_change(data), len(data))
        except pure.UnknownLarge as error:
            return IdentityMissing(self.path, ", ".join(self.names[n] for n in error.places))
        except SlotDamaged as error:
            return error
        return SlotDamaged(f"a row of {self.path}")


class Reading:
    """One pass over the messages of a slot."""

    def __init__(self, wanted: SlotRange, tables: Mapping[str, SlotTable], database: str, fast: Any) -> None:
        self._tables, self._database, self._fast = tables, database, fast
        self._intake: Taking = (fast or pure).Intake(wanted.start, wanted.end, BATCH_ROWS_MAX, BATCH_BYTES_MAX, BUFFERED_BYTES_MAX)
        self._collectors: dict[int, _Collector] = {}
        self._layouts: dict[int, Relation] = {}  # of rows that have not come yet: looked at when there are any

    def take(self, data: list[bytes]) -> Iterator[Batch]:
        """Messages in the order of the log."""
        at = 0
        while at < len(data):
            at = self._intake.eat(data, at)
            full = self._full()
            if full:
                yield from map(self._taken, full)
            elif at < len(data):
                yield from self._other(data[at])
                at += data[at][:1] not in _CHANGES  # a row is tried again, now that its layout is there

    def _full(self) -> list[int]:
        """The tables whose rows are enough for a batch."""
        whole = self._intake.total >= BUFFERED_BYTES_MAX
        return [n for n, c in self._collectors.items() if c.rows.rows >= (1 if whole else BATCH_ROWS_MAX) or c.rows.held >= BATCH_BYTES_MAX]

    def _taken(self, number: int) -> Batch:
        collector = self._collectors[number]
        self._intake.total -= collector.rows.held
        return collector.path, collector.take()

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

    def _layout(self, relation: Relation) -> Iterator[Batch]:
        before = self._collectors.get(relation.id)
        if before is not None and before.rows.rows:
            yield self._taken(relation.id)
        self._collectors.pop(relation.id, None)
        self._intake.tables.pop(relation.id, None)
        self._layouts[relation.id] = relation

    def _path(self, relation: Relation) -> str:
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
        collector = self._collectors[number] = _Collector(path, self._tables[path], relation, self._fast)
        self._intake.tables[number] = collector.rows

    def _truncated(self, message: bytes) -> None:
        for number in messages.truncated(message):
            path = self._path(self._layouts[number]) if number in self._layouts else ""
            if path in self._tables:
                raise TableChanged(path, "TRUNCATE", "a transaction")

    def rest(self) -> Iterator[Batch]:
        """What is collected and not taken yet."""
        yield from (self._taken(number) for number, collector in self._collectors.items() if collector.rows.rows)
