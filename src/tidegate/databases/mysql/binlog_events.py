"""Parse events of the binary log from their bytes.

Called by binlog_scan.py and binlog_reader.py; opens no connection. An event is a header of 19
bytes, a body, and four bytes of checksum if the format description says so. Numbers are
little-endian.
"""

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeVar

from tidegate.databases.mysql.binlog_errors import LogDamaged, PartialImages
from tidegate.databases.mysql.binlog_metadata import TableMetadata, read_metadata, status_variables

HEADER_BYTES = 19
_HEADER = struct.Struct("<IBIIIH")
_CHECKSUM_BYTES = 4
_COLUMNS_MAX = 4096
_UNPACKED_BYTES_MAX = 1 << 30

T = TypeVar("T")


class EventType(IntEnum):
    """The events that are interpreted; all others are skipped."""

    QUERY = 2
    ROTATE = 4
    INTVAR = 5
    RAND = 13
    USER_VAR = 14
    FORMAT = 15
    XID = 16
    BEGIN_LOAD = 17
    EXECUTE_LOAD = 18
    TABLE_MAP = 19
    WRITE_V1 = 23
    UPDATE_V1 = 24
    DELETE_V1 = 25
    WRITE_V2 = 30
    UPDATE_V2 = 31
    DELETE_V2 = 32
    GTID_MYSQL = 33
    ANONYMOUS_MYSQL = 34
    PREVIOUS_GTIDS = 35
    XA_PREPARE = 38
    PARTIAL_UPDATE = 39
    PAYLOAD = 40
    GTID_TAGGED = 42
    GTID_MARIADB = 162
    GTID_LIST = 163
    QUERY_PACKED = 165
    WRITE_PACKED_V1 = 166
    UPDATE_PACKED_V1 = 167
    DELETE_PACKED_V1 = 168
    WRITE_PACKED_V2 = 169
    UPDATE_PACKED_V2 = 170
    DELETE_PACKED_V2 = 171


class RowChangeKind(IntEnum):
    """What a row event does; the number is that of the first image's row kind."""

    INSERT = 0
    UPDATE = 1
    DELETE = 3


ROW_EVENTS: dict[int, tuple[RowChangeKind, int, bool]] = {
    EventType.WRITE_V1: (RowChangeKind.INSERT, 1, False),
    EventType.UPDATE_V1: (RowChangeKind.UPDATE, 1, False),
    EventType.DELETE_V1: (RowChangeKind.DELETE, 1, False),
    EventType.WRITE_V2: (RowChangeKind.INSERT, 2, False),
    EventType.UPDATE_V2: (RowChangeKind.UPDATE, 2, False),
    EventType.DELETE_V2: (RowChangeKind.DELETE, 2, False),
    EventType.WRITE_PACKED_V1: (RowChangeKind.INSERT, 1, True),
    EventType.UPDATE_PACKED_V1: (RowChangeKind.UPDATE, 1, True),
    EventType.DELETE_PACKED_V1: (RowChangeKind.DELETE, 1, True),
    EventType.WRITE_PACKED_V2: (RowChangeKind.INSERT, 2, True),
    EventType.UPDATE_PACKED_V2: (RowChangeKind.UPDATE, 2, True),
    EventType.DELETE_PACKED_V2: (RowChangeKind.DELETE, 2, True),
}
"""Of each row event: the change, the version of its layout, and whether it is compressed."""


@dataclass(frozen=True, slots=True)
class LogEvent:
    """A header with the bytes of the body.

    `end` is where the event ends in its file, 0 for artificial events that are not in the file.
    """

    type: int
    time_s: int
    server_id: int
    end: int
    body: bytes
    size: int = 0

    @property
    def begin(self) -> int:
        """Where the event begins in its file."""
        return self.end - self.size


@dataclass(frozen=True, kw_only=True, slots=True)
class TableMap:
    """The layout of a table in the row events that follow.

    It has a type byte and its parameters for each column, and the metadata that the server adds.
    """

    table_id: int
    database: str
    table: str
    types: bytes
    metas: tuple[int, ...]
    metadata: TableMetadata

    @property
    def path(self) -> str:
        """The name of the table as in an offset."""
        return f"{self.database}.{self.table}"


@dataclass(frozen=True, slots=True)
class LoggedStatement:
    """A statement: its current database, the bytes of its text, and how to decode them."""

    database: str
    text: bytes
    sql_mode: int
    collation: int | None


@dataclass(frozen=True, slots=True)
class RowEvent:
    """Consecutive images of rows of one table.

    There is one for each row, and two (before, after) for each row of an update.
    """

    table_id: int
    change: RowChangeKind
    images: bytes


@dataclass(slots=True)
class EventReader:
    """Parses events; remembers whether the format description announced checksums."""

    checksum: bool = False
    maps: dict[int, tuple[bytes, TableMap]] = field(default_factory=dict)

    def event(self, data: bytes) -> LogEvent:
        """Return the header, and the body without its checksum."""
        if len(data) < HEADER_BYTES:
            raise LogDamaged(f"an event of {len(data)} bytes")
        time_s, kind, server_id, size, end, _ = _HEADER.unpack_from(data)
        if size != len(data):
            raise LogDamaged(f"an event of {len(data)} bytes has the size {size} in its header")
        if kind == EventType.FORMAT:
            self.checksum = _has_checksum(data)
        # Rotations may come before the format description, with or without a checksum: only their
        # own bytes show it.
        tail = (
            _CHECKSUM_BYTES
            if (_checksum_matches(data) if kind == EventType.ROTATE else self.checksum)
            else 0
        )
        return LogEvent(kind, time_s, server_id, end, data[HEADER_BYTES : len(data) - tail], size)

    def table_map(self, body: bytes) -> TableMap:
        """Return the layout of a table; the last one of a table is cached."""
        table_id = int.from_bytes(body[:6], "little")
        cached = self.maps.get(table_id)
        if cached is None or cached[0] != body:
            cached = self.maps[table_id] = (
                body,
                parse_or_damaged(read_table_map, body, "the layout of a table"),
            )
        return cached[1]


def _checksum_matches(data: bytes) -> bool:
    return zlib.crc32(data[:-_CHECKSUM_BYTES]) == int.from_bytes(data[-_CHECKSUM_BYTES:], "little")


def _has_checksum(data: bytes) -> bool:
    """Return whether events end with a checksum.

    The byte before the checksum of the format description names the algorithm: 0 none, 1 CRC32.
    Servers without checksums write neither.
    """
    if len(data) < HEADER_BYTES + 2 + 50 + 4 + 1 + _CHECKSUM_BYTES + 1:
        raise LogDamaged("the format description is too short")
    return data[-_CHECKSUM_BYTES - 1] == 1 and _checksum_matches(data)


def parse_or_damaged(read: Callable[[bytes], T], body: bytes, what: str) -> T:
    """Parse a body; truncated or invalid bytes raise LogDamaged."""
    try:
        return read(body)
    except (IndexError, struct.error, ValueError, zlib.error) as error:
        raise LogDamaged(f"{what}: {error}") from error


def rotation(event: LogEvent) -> tuple[str, int]:
    """Return the next file and the position to begin at."""
    if len(event.body) <= 8:
        raise LogDamaged("a rotation without a file")
    return event.body[8:].rstrip(b"\0").decode("utf-8", "replace"), int.from_bytes(
        event.body[:8], "little"
    )


def statement(event: LogEvent) -> LoggedStatement:
    """Return a statement from its event.

    An event that loads a file has four additional fields before its text.
    """
    return parse_or_damaged(
        lambda body: _read_statement(event.type, body), event.body, "a statement"
    )


def _read_statement(kind: int, body: bytes) -> LoggedStatement:
    _, _, database_length, _, status_length = struct.unpack_from("<IIBHH", body)
    variables_at = 13 + (13 if kind == EventType.EXECUTE_LOAD else 0)
    at = variables_at + status_length
    text_at = at + database_length + 1
    if text_at > len(body):
        raise ValueError("it ends before its text")
    mode, collation = status_variables(body[variables_at:at])
    text = body[text_at:]
    database = body[at : at + database_length].decode("utf-8", "replace")
    return LoggedStatement(
        database, decompress(text) if kind == EventType.QUERY_PACKED else text, mode, collation
    )


def decompress(data: bytes) -> bytes:
    """Return the bytes that the server compressed.

    They are a byte with the algorithm and the length of the length, the length, and the bytes of
    zlib.
    """
    head = data[0]
    if not head & 0x80 or (head & 0x70) >> 4 != 0:
        raise ValueError(f"unknown compression ({head})")
    width = head & 0x07
    size = int.from_bytes(data[1 : 1 + width], "big")
    if size > _UNPACKED_BYTES_MAX:
        raise ValueError(f"{size} bytes after decompression")
    engine = zlib.decompressobj()
    out = engine.decompress(data[1 + width :], size + 1)
    if len(out) != size:
        raise ValueError(f"{len(out)} bytes after decompression and not {size}")
    return out


def row_event(event: LogEvent) -> RowEvent:
    """Return the images of a row event."""
    return parse_or_damaged(
        lambda body: _read_row_event(event.type, body), event.body, "a row event"
    )


def row_event_table(body: bytes) -> int:
    """Return the table id of a row event, without parsing the rest."""
    return int.from_bytes(body[:6], "little")


def _read_row_event(kind: int, body: bytes) -> RowEvent:
    change, version, packed = ROW_EVENTS[kind]
    at = 8
    if version == 2:
        at += struct.unpack_from("<H", body, at)[0]
    columns, at = length_encoded(body, at)
    bitmap = (columns + 7) // 8
    present = body[at : at + bitmap * (2 if change is RowChangeKind.UPDATE else 1)]
    at += len(present)
    all_columns = (1 << columns) - 1
    for start in range(0, len(present), bitmap or 1):
        if int.from_bytes(present[start : start + bitmap], "little") & all_columns != all_columns:
            raise PartialImages(
                "rows in the log lack columns: set binlog_row_image = FULL on the source, for all"
                " its connections"
            )
    if at > len(body):
        raise ValueError("it ends before its rows")
    return RowEvent(
        int.from_bytes(body[:6], "little"), change, decompress(body[at:]) if packed else body[at:]
    )


def length_encoded(data: bytes, at: int) -> tuple[int, int]:
    """Return a number in one, three, four or nine bytes, and where it ends."""
    first = data[at]
    if first < 251:
        return first, at + 1
    width = {252: 2, 253: 3, 254: 8}.get(first)
    if width is None or at + 1 + width > len(data):
        raise ValueError("a number without its bytes")
    return int.from_bytes(data[at + 1 : at + 1 + width], "little"), at + 1 + width


_META_BYTES = {
    4: 1,
    5: 1,
    15: 2,
    16: 2,
    17: 1,
    18: 1,
    19: 1,
    245: 1,
    246: 2,
    247: 2,
    248: 2,
    249: 1,
    250: 1,
    251: 1,
    252: 1,
    253: 2,
    254: 2,
    255: 1,
}
_BIG_ENDIAN_META = {16, 246, 247, 248, 254}


def read_table_map(body: bytes) -> TableMap:
    """Parse the layout of a table from the body of its event."""
    at = 8
    database, at = _short_text(body, at)
    table, at = _short_text(body, at)
    columns, at = length_encoded(body, at)
    if columns > _COLUMNS_MAX:
        raise ValueError(f"{columns} columns")
    types = body[at : at + columns]
    if len(types) < columns:
        raise ValueError("it ends within its columns")
    size, at = length_encoded(body, at + columns)
    metas = _metas(types, body[at : at + size])
    nulls_at = at + size
    extra = _extras(body, nulls_at + (columns + 7) // 8)
    return TableMap(
        table_id=int.from_bytes(body[:6], "little"),
        database=database,
        table=table,
        types=types,
        metas=metas,
        metadata=read_metadata(types, metas, body[nulls_at:], extra, length_encoded),
    )


def _short_text(body: bytes, at: int) -> tuple[str, int]:
    size = body[at]
    return body[at + 1 : at + 1 + size].decode("utf-8"), at + size + 2


_META_BYTES |= {140: 1, 141: 2, 242: 1}  # compressed columns of MariaDB, vectors of MySQL


def _metas(types: bytes, data: bytes) -> tuple[int, ...]:
    found, at = [], 0
    for kind in types:
        width = _META_BYTES.get(kind, 0)
        if at + width > len(data):
            raise ValueError("parameters of its columns are missing")
        found.append(
            int.from_bytes(data[at : at + width], "big" if kind in _BIG_ENDIAN_META else "little")
        )
        at += width
    return tuple(found)


def _extras(body: bytes, at: int) -> dict[int, bytes]:
    found = {}
    while at < len(body):
        kind = body[at]
        size, at = length_encoded(body, at + 1)
        found[kind] = body[at : at + size]
        at += size
    return found
