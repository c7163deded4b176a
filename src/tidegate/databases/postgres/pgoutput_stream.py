"""The messages of a range of PostgreSQL's log, as the server sends them.

Called by reader.py; decodes no rows.
"""

import logging
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psycopg

from tidegate.databases.cdc.errors import PositionGone
from tidegate.databases.errors import DatabaseTrouble
from tidegate.databases.postgres import lsn
from tidegate.databases.postgres import pgoutput_rows as pure
from tidegate.databases.postgres.pgoutput_errors import SlotDamaged
from tidegate.databases.postgres.pgoutput_rows import compiled
from tidegate.databases.postgres.session import PostgresSession, ours
from tidegate.databases.postgres.shared_stream import StreamUnavailable, shared_lists
from tidegate.databases.postgres.slots import IN_USE, copy_slot

NEAR_BYTES = 8 << 20
RESTART_BYTES = 64 << 20
"""A slot that begins no further before the range is read itself, unless a long transaction lets it
decode from far before.
"""
FEW_BYTES = 2 << 20
WAIT_S = 60.0
PAUSE_S = 0.2
CHUNKS_MAX = 4096
_TRAILER = b"\xff\xff"
_HEADER = b"PGCOPY\n\xff\r\n\0"
Open = Callable[[], PostgresSession]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotRange:
    """What is read: transactions with start <= commit < end, of a publication, through a slot."""

    slot: str
    publication: str
    start: int
    end: int


def changes(open_session: Open, wanted: SlotRange) -> Generator[bytes, None, None]:
    """The messages of a slot, one by one."""
    with closing(message_lists(open_session, wanted)) as found:
        for many in found:
            yield from many


def message_lists(open_session: Open, wanted: SlotRange) -> Generator[list[bytes], None, None]:
    """The messages of a range, many at a time, also of transactions that lie around it.

    Each call that reads a slot decodes the log again from where the slot stands. So a range that
    lies far after it is read from a replication stream, which goes on from range to range; where
    there is none, through a copy of the slot.
    """
    with open_session() as session:
        far = _is_far(session, wanted)
        address = session.address
        lists = iter(()) if far else _peeked(session, wanted, far=False)
        few, whole = _few(lists)
        if not whole:
            yield from few
            yield from lists
            return
    if not far:
        yield from few  # whoever wants no more of them does not end the session within a statement
        return
    try:
        yield from shared_lists(address, wanted.slot, wanted.publication, wanted.start, wanted.end)
    except StreamUnavailable as error:
        _log.warning(
            "replication_stream_unavailable: slot %s is read without it: %s", wanted.slot, error
        )
    else:
        return
    with open_session() as session:
        yield from _peeked(session, wanted, far=True)


def _few(lists: Iterator[list[bytes]]) -> tuple[list[list[bytes]], bool]:
    """The first lists, and whether they are all."""
    found: list[list[bytes]] = []
    size = 0
    for many in lists:
        found.append(many)
        size += sum(map(len, many))
        if size > FEW_BYTES:
            return found, False
    return found, True


def _is_far(session: PostgresSession, wanted: SlotRange) -> bool:
    """Whether the server would decode much that lies before the range."""
    sql = (
        "select confirmed_flush_lsn::text, restart_lsn::text from pg_replication_slots where"
        " slot_name = %s"
    )
    found = session.query(sql, (wanted.slot,))
    begins, restarts = (
        (lsn.number(str(position or "0/0")) for position in found[0])
        if found
        else (wanted.start, wanted.start)
    )
    if begins > wanted.start:  # the server would leave out what lies before it, and say nothing
        why = f"the replication slot {wanted.slot!r} was moved on by somebody else"
        raise PositionGone(lsn.text(wanted.start), lsn.text(begins), why)
    return wanted.start - begins > NEAR_BYTES or wanted.start - restarts > RESTART_BYTES


def _peeked(session: PostgresSession, wanted: SlotRange, *, far: bool) -> Iterator[list[bytes]]:
    """From the slot itself.

    Where somebody reads it, or it begins far before the range, a temporary copy is read.
    """
    _notice_lost_readers(session)
    ready = _own_slot(session, wanted) if far else wanted.slot
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
    return lsn.number(
        str(
            session.one(
                "select confirmed_flush_lsn::text from pg_replication_slots where slot_name = %s",
                (slot,),
            )
            or "0/0"
        )
    )


def _own_slot(session: PostgresSession, wanted: SlotRange) -> str:
    """A copy that begins at the range; the slot itself where the server has no room for copies."""
    copy = f"tidegate_{uuid.uuid4().hex}"
    if not copy_slot(session, wanted.slot, copy):
        return wanted.slot
    session.reusable = False  # the copy ends with the connection
    if _begin_of(session, copy) < wanted.start:
        session.execute(
            "select pg_replication_slot_advance(%s, %s::pg_lsn)", (copy, lsn.text(wanted.start))
        )
    return copy


def _peek(session: PostgresSession, wanted: SlotRange, slot: str) -> Iterator[list[bytes]]:
    """Messages as the server sends them."""
    call = (
        "pg_logical_slot_peek_binary_changes({}, {}, null, 'proto_version', '1',"
        " 'publication_names', {})"
    )
    text = call.format(
        _literal(slot),
        _literal(lsn.text(wanted.end)),
        _literal('"' + wanted.publication.replace('"', '""') + '"'),
    )
    try:
        with (
            session.connection.cursor() as cursor,
            cursor.copy(
                f"copy (select data from {text}) to stdout (format binary)".encode()
            ) as copy,
        ):
            yield from rows_of_copy(chunks_of(copy, session.connection.pgconn), compiled())
    except psycopg.Error as error:
        raise ours(session.address, error.sqlstate, str(error)) from None


def chunks_of(copy: Any, connection: Any) -> Iterator[list[bytes]]:
    """What a copy gives: the first chunk is waited for, and those that have come with it are taken
    without a wait.
    """
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
    """The values of a binary copy of one column; the server sends each row in a chunk of its own,
    after a header.
    """
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
