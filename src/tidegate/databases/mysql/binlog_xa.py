"""XA transactions: logged when they are prepared, and valid once they are committed.

Called by binlog_scan.py. The log has them as two groups of events, any distance apart. The position
of a prepared transaction is recorded; the commit makes its rows part of the range that has the
commit, wherever the rows are.
"""

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.databases.mysql.binlog_events import (
    EventReader,
    EventType,
    LogEvent,
    parse_or_damaged,
    rotation,
)
from tidegate.databases.mysql.binlog_position import FIRST, LogPosition
from tidegate.databases.mysql.binlog_stream import Connect, LogStream

_DECISION = re.compile(
    r"XA\s+(COMMIT|ROLLBACK)\s+(X'[0-9a-f]*',X'[0-9a-f]*',\d+)\s*", re.IGNORECASE
)
_GROUP_BEGINS = (
    EventType.GTID_MARIADB,
    EventType.GTID_MYSQL,
    EventType.ANONYMOUS_MYSQL,
    EventType.GTID_TAGGED,
)


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """The events of a prepared transaction, within one file, and the tables they touch."""

    file: str
    begin: int
    end: int
    tables: tuple[str, ...]

    def json(self) -> list[Any]:
        """Return the form that the offset keeps."""
        return [self.file, self.begin, self.end, list(self.tables)]

    @staticmethod
    def of(document: Sequence[Any]) -> "PreparedTransaction":
        file, begin, end, tables = document
        return PreparedTransaction(str(file), int(begin), int(end), tuple(tables))


def prepared_id(event: LogEvent) -> tuple[str, bool]:
    """Return the id of the transaction that an event prepares, and whether it commits it."""
    return parse_or_damaged(_read, event.body, "the preparation of an XA transaction")


def _read(body: bytes) -> tuple[str, bool]:
    form, first, second = struct.unpack_from("<III", body, 1)
    data = body[13 : 13 + first + second]
    if len(data) < first + second:
        raise ValueError("it ends within its id")
    return f"X'{data[:first].hex()}',X'{data[first:].hex()}',{form}", bool(body[0])


def decision(text: str) -> tuple[str, bool] | None:
    """Return the id of the transaction that a statement completes, and whether it commits it.

    None for other statements.
    """
    found = _DECISION.fullmatch(text)
    return (found[2].replace("x'", "X'"), found[1].upper() == "COMMIT") if found else None


def find_prepared(
    connect: Connect, files: Sequence[str], before: LogPosition, xid: str
) -> PreparedTransaction | None:
    """Find where a transaction was prepared that was completed at a position.

    Needed for positions that were taken in between. Reads the files backwards.
    """
    for file in reversed([f for f in files if LogPosition(f, FIRST).key <= before.key]):
        found = _in_file(connect, file, before, xid)
        if found is not None:
            return found
    return None


def _in_file(
    connect: Connect, file: str, before: LogPosition, xid: str
) -> PreparedTransaction | None:
    reader, begin, found = EventReader(), FIRST, None
    tables: set[str] = set()
    with LogStream(connect, LogPosition(file, FIRST)) as stream:
        for data in stream:
            event = reader.event(data)
            if event.type == EventType.ROTATE and rotation(event)[0] != file:
                break
            if event.end == 0:
                continue
            if event.type in _GROUP_BEGINS:
                begin, tables = event.begin, set()
            elif event.type == EventType.TABLE_MAP:
                tables.add(reader.table_map(event.body).path)
            elif event.type == EventType.XA_PREPARE and prepared_id(event) == (xid, False):
                found = PreparedTransaction(file, begin, event.end, tuple(sorted(tables)))
            if LogPosition(file, event.end).key >= before.key:
                break
    return found
