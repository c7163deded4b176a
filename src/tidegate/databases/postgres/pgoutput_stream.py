"""Read the messages of a range of PostgreSQL's log from the server.

Called by pgoutput_reader.py; decodes no rows.
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
from tidegate.databases.errors import TransientDatabaseError
from tidegate.databases.postgres import lsn
from tidegate.databases.postgres import pgoutput_rows as pure
from tidegate.databases.postgres.pgoutput_errors import SlotDamaged
from tidegate.databases.postgres.pgoutput_rows import compiled_module
from tidegate.databases.postgres.session import PostgresSession, translate_error
from tidegate.databases.postgres.shared_stream import StreamUnavailable, shared_lists
from tidegate.databases.postgres.slots import IN_USE, copy_slot

NEAR_BYTES = 8 << 20
RESTART_BYTES = 64 << 20
"""A slot that begins at most this far before the range is read itself, unless a long transaction
makes the server decode from far before.
"""
FEW_BYTES = 2 << 20
WAIT_S = 60.0
PAUSE_S = 0.2
CHUNKS_MAX = 4096
_TRAILER = b"\xff\xff"
_HEADER = b"PGCOPY\n\xff\r\n\0"
OpenSession = Callable[[], PostgresSession]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotRange:
    """The range to read: transactions with start <= commit < end, of a publication, by a slot."""

    slot: str
    publication: str
    start: int
    end: int


def changes(open_session: OpenSession, slot_range: SlotRange) -> Generator[bytes, None, None]:
    """Yield the messages of a slot one by one."""
    with closing(message_lists(open_session, slot_range)) as found:
        for many in found:
            yield from many


def message_lists(
    open_session: OpenSession, slot_range: SlotRange
) -> Generator[list[bytes], None, None]:
    """Yield the messages of a range in lists, also of transactions around it.

    Each call that reads a slot decodes the log again from the position of the slot. So a range far
    after it is read from a replication stream, which continues from range to range; without one,
    from a copy of the slot.
    """
    with open_session() as session:
        far = _is_far(session, slot_range)
        address = session.address
        lists = iter(()) if far else _peek_range(session, slot_range, far=False)
        few, complete = _first_lists(lists)
        if not complete:
            yield from few
            yield from lists
            return
    if not far:
        yield from few  # the session is closed, as the caller may stop here
        return
    try:
        yield from shared_lists(
            address, slot_range.slot, slot_range.publication, slot_range.start, slot_range.end
        )
    except StreamUnavailable as error:
        _log.warning(
            "replication_stream_unavailable",
            extra={"slot": slot_range.slot, "error": str(error)},
        )
    else:
        return
    with open_session() as session:
        yield from _peek_range(session, slot_range, far=True)


def _first_lists(lists: Iterator[list[bytes]]) -> tuple[list[list[bytes]], bool]:
    """Return the first lists, and whether they are all."""
    found: list[list[bytes]] = []
    size = 0
    for many in lists:
        found.append(many)
        size += sum(map(len, many))
        if size > FEW_BYTES:
            return found, False
    return found, True


def _is_far(session: PostgresSession, slot_range: SlotRange) -> bool:
    """Return whether the server would decode much that lies before the range."""
    sql = (
        "select confirmed_flush_lsn::text, restart_lsn::text from pg_replication_slots where"
        " slot_name = %s"
    )
    found = session.query(sql, (slot_range.slot,))
    begins, restarts = (
        (lsn.number(str(position or "0/0")) for position in found[0])
        if found
        else (slot_range.start, slot_range.start)
    )
    if begins > slot_range.start:  # the server would silently skip what lies before it
        why = f"the replication slot {slot_range.slot!r} was advanced by another client"
        raise PositionGone(lsn.text(slot_range.start), lsn.text(begins), why)
    return slot_range.start - begins > NEAR_BYTES or slot_range.start - restarts > RESTART_BYTES


def _peek_range(
    session: PostgresSession, slot_range: SlotRange, *, far: bool
) -> Iterator[list[bytes]]:
    """Read from the slot itself.

    If it is in use, or begins far before the range, read a temporary copy.
    """
    _detect_lost_clients(session)
    ready = _copy_slot_at(session, slot_range) if far else slot_range.slot
    deadline_s = time.monotonic() + WAIT_S
    while True:
        try:
            yield from _peek(session, slot_range, ready)
            return
        except TransientDatabaseError as error:
            if error.code != IN_USE or time.monotonic() > deadline_s:
                raise
        if ready == slot_range.slot:
            ready = _copy_slot_at(session, slot_range)
        if ready == slot_range.slot:
            time.sleep(PAUSE_S)  # until the other reader of the slot ends


def _detect_lost_clients(session: PostgresSession) -> None:
    """Make the server end queries of killed clients soon, so that the slot is released."""
    if session.connection.info.server_version >= 140_000:
        session.execute("set client_connection_check_interval = '500ms'")


def _confirmed_position(session: PostgresSession, slot: str) -> int:
    """Return where reading the slot begins; 0 if the server does not show it."""
    return lsn.number(
        str(
            session.scalar(
                "select confirmed_flush_lsn::text from pg_replication_slots where slot_name = %s",
                (slot,),
            )
            or "0/0"
        )
    )


def _copy_slot_at(session: PostgresSession, slot_range: SlotRange) -> str:
    """Return a copy of the slot that begins at the range.

    The slot itself is returned if the server has no room for copies.
    """
    copy = f"tidegate_{uuid.uuid4().hex}"
    if not copy_slot(session, slot_range.slot, copy):
        return slot_range.slot
    session.reusable = False  # the copy ends with the connection
    if _confirmed_position(session, copy) < slot_range.start:
        session.execute(
            "select pg_replication_slot_advance(%s, %s::pg_lsn)", (copy, lsn.text(slot_range.start))
        )
    return copy


def _peek(session: PostgresSession, slot_range: SlotRange, slot: str) -> Iterator[list[bytes]]:
    """Yield messages as the server sends them."""
    call = (
        "pg_logical_slot_peek_binary_changes({}, {}, null, 'proto_version', '1',"
        " 'publication_names', {})"
    )
    text = call.format(
        _literal(slot),
        _literal(lsn.text(slot_range.end)),
        _literal('"' + slot_range.publication.replace('"', '""') + '"'),
    )
    try:
        with (
            session.connection.cursor() as cursor,
            cursor.copy(
                f"copy (select data from {text}) to stdout (format binary)".encode()
            ) as copy,
        ):
            yield from rows_of_copy(chunks_of(copy, session.connection.pgconn), compiled_module())
    except psycopg.Error as error:
        raise translate_error(session.address, error.sqlstate, str(error)) from None


def chunks_of(copy: Any, connection: Any) -> Iterator[list[bytes]]:
    """Yield the chunks of a COPY.

    Waits for the first chunk, and adds those that arrived with it.
    """
    next_chunk = connection.get_copy_data
    while first := copy.read():
        many = [bytes(first)]
        size = len(first)
        while size > len(_TRAILER) and len(many) < CHUNKS_MAX:
            size, data = next_chunk(1)
            if size > 0:
                many.append(bytes(data))
        if size < 0:
            _check_end(connection)
        yield many
        if size < 0:
            return


def _check_end(connection: Any) -> None:
    """Raise the error of the server with which a COPY ended, if any."""
    results = []
    while (result := connection.get_result()) is not None:
        results.append(result)
    for one in results:
        if one.status != psycopg.pq.ExecStatus.COMMAND_OK:
            raise psycopg.errors.error_from_result(one)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def rows_of_copy(chunks: Iterable[list[bytes]], fast: Any = None) -> Iterator[list[bytes]]:
    """Yield the values of a binary COPY of one column.

    After a header, the server sends each row in a separate chunk.
    """
    single_values = (fast or pure).single_values
    rest = b""
    begun = False
    for many in chunks:
        if begun and not rest and (values := single_values(many)) is not None:
            yield values
            continue
        data = rest + b"".join(many)
        if not begun:
            if len(data) < 19:
                rest = data
                continue
            if not data.startswith(_HEADER):
                raise SlotDamaged("a COPY does not begin with its header")
            data, begun = data[19 + int.from_bytes(data[15:19], "big") :], True
        found, rest = _cut(data)
        yield found
    if rest not in (b"", _TRAILER):
        raise SlotDamaged("a COPY ends within a row")


def _cut(data: bytes) -> tuple[list[bytes], bytes]:
    """Return the values of consecutive rows, and the rest."""
    at, found = 0, []
    while len(data) - at >= 6 and data[at : at + 2] == b"\0\1":
        size = int.from_bytes(data[at + 2 : at + 6], "big")
        if len(data) - at - 6 < size:
            break
        found.append(data[at + 6 : at + 6 + size])
        at += 6 + size
    return found, data[at:]
