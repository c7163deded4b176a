"""Parse messages of pgoutput (protocol 1) from their bytes.

Called by pgoutput_reader.py; opens no connection. Numbers are big-endian.
"""

import struct
from dataclasses import dataclass

from tidegate.databases.postgres.pgoutput_errors import SlotDamaged

BEGIN, COMMIT, RELATION, INSERT, UPDATE, DELETE, TRUNCATE = b"BCRIUDT"
_NEW, _OLD, _KEY = b"NOK"
_NULL, _UNCHANGED, _TEXT = b"nut"
_COLUMNS_MAX = 2000


class Unchanged:
    """A large value that an update left unchanged, and that the log therefore omits."""


UNCHANGED = Unchanged()
Values = list[bytes | Unchanged | None]


@dataclass(frozen=True, slots=True)
class RelationMessage:
    """The layout of a table in the rows that follow.

    `columns` are (name, type, modifier). `identity` is what the log keeps of a row before its
    change: f, d, i, n.
    """

    id: int
    schema: str
    table: str
    columns: tuple[tuple[str, int, int], ...]
    identity: str = "f"
    key: tuple[str, ...] = ()
    """The columns of the identity."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """A change of one row.

    `before` is the complete row if `whole`, else its key only, or None.
    """

    kind: int
    relation: int
    before: Values | None
    after: Values | None
    has_full_before: bool


def begin(data: bytes) -> tuple[int, int]:
    """Return the position of the commit and the number of a transaction."""
    if len(data) < 21:
        raise SlotDamaged("the begin of a transaction is too short")
    position, _, transaction = struct.unpack_from(">QqI", data, 1)
    return position, transaction


def commit_time(data: bytes) -> int:
    """Return when a transaction was committed, from its begin: microseconds since 2000."""
    return int.from_bytes(data[9:17], "big", signed=True)


def relation(data: bytes) -> RelationMessage:
    """Parse the layout of a table."""
    try:
        return _relation(data)
    except (struct.error, ValueError, IndexError) as error:
        raise SlotDamaged(f"the layout of a table: {error}") from error


def _relation(data: bytes) -> RelationMessage:
    (number,) = struct.unpack_from(">I", data, 1)
    schema, at = _text(data, 5)
    table, at = _text(data, at)
    identity = chr(data[at])
    (count,) = struct.unpack_from(">H", data, at + 1)
    at += 3
    if count > _COLUMNS_MAX:
        raise ValueError(f"{count} columns")
    columns = []
    key = []
    for _ in range(count):
        flags = data[at]
        name, at = _text(data, at + 1)
        if flags & 1:
            key.append(name)
        kind, modifier = struct.unpack_from(">Ii", data, at)
        at += 8
        columns.append((name, kind, modifier))
    return RelationMessage(
        number, schema or "pg_catalog", table, tuple(columns), identity, tuple(key)
    )


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(b"\0", at)
    return data[at:end].decode("utf-8"), end + 1


def row_change(data: bytes) -> RowChange:
    """Parse an insert, an update or a delete."""
    try:
        return _row_change(data)
    except (struct.error, ValueError, IndexError) as error:
        raise SlotDamaged(f"a row of a table: {error}") from error


def _row_change(data: bytes) -> RowChange:
    kind = data[0]
    number = int.from_bytes(data[1:5], "big")
    at, before, after, has_full_before = 5, None, None, False
    if data[at] in (_OLD, _KEY):
        has_full_before = data[at] == _OLD
        before, at = _values(data, at + 1)
    if at < len(data) and data[at] == _NEW:
        after, at = _values(data, at + 1)
    if (
        at != len(data)
        or (after is None) != (kind == DELETE)
        or (before is None and kind == DELETE)
        or (before is not None and kind == INSERT)
    ):
        raise ValueError("it has bytes after its end")
    return RowChange(kind, number, before, after, has_full_before)


def _values(data: bytes, at: int) -> tuple[Values, int]:
    count = int.from_bytes(data[at : at + 2], "big")
    at += 2
    found: Values = []
    append, number = found.append, int.from_bytes
    for _ in range(count):
        kind = data[at]
        if kind == _TEXT:
            size = number(data[at + 1 : at + 5], "big")
            at += 5 + size
            if at > len(data):
                raise ValueError("it ends within a value")
            append(data[at - size : at])
        elif kind == _NULL:
            append(None)
            at += 1
        elif kind == _UNCHANGED:
            append(UNCHANGED)
            at += 1
        else:
            raise ValueError(f"a value of kind {kind}")
    return found, at


def truncated_tables(data: bytes) -> list[int]:
    """Return the numbers of the tables that a TRUNCATE empties."""
    count = int.from_bytes(data[1:5], "big")
    if len(data) != 6 + 4 * count:
        raise SlotDamaged("the tables of a TRUNCATE")
    return [int.from_bytes(data[6 + 4 * n : 10 + 4 * n], "big") for n in range(count)]
