"""The place of a position on another server: that of the same transactions. Called by MySQL-CDC
where a replica has taken over.

Every server writes its own files, so a file and a byte mean nothing on another one. The set of
transactions before a position means the same everywhere. The files of the new server tell at their
head which transactions came before them: the newest that begins within the set is read until the
first transaction that is not in it.
"""

from collections.abc import Sequence

from tidegate.databases.mysql.binlog_errors import LogBehind, LogDamaged, LogRefused
from tidegate.databases.mysql.binlog_events import EventReader, EventType, rotation
from tidegate.databases.mysql.binlog_gtid import GtidSet, gtid_of, list_of
from tidegate.databases.mysql.binlog_position import FIRST, LogPosition
from tidegate.databases.mysql.binlog_stream import Connect, LogStream


def begins_with(connect: Connect, file: str) -> GtidSet | None:
    """The transactions before a file; None where it does not tell."""
    reader = EventReader()
    with LogStream(connect, LogPosition(file, FIRST)) as stream:
        for data in stream:
            event = reader.event(data)
            found = list_of(event)
            if found is not None:
                return found
            if gtid_of(event) is not None:
                return None
    return None


def find(connect: Connect, files: Sequence[str], have: GtidSet) -> LogPosition | None:
    """Where the transactions of a set end on this server; None where the log does not go back that
    far. LogBehind where the server lacks some of them.
    """
    for file in reversed(files):
        before = begins_with(connect, file)
        if before is None:
            raise LogRefused(
                f"{file} does not tell which transactions came before it: the place of {have}"
                " cannot be found on this server"
            )
        if have.covers(before):
            return _within(connect, file, have, before)
    return None


def _within(connect: Connect, file: str, have: GtidSet, seen: GtidSet) -> LogPosition:
    """The end of the last transaction of the set, from a file on.

    `seen` becomes what this server has.
    """
    reader = EventReader()
    place = LogPosition(file, FIRST)
    found: LogPosition | None = None
    with LogStream(connect, place) as stream:
        for data in stream:
            event = reader.event(data)
            if event.type == EventType.ROTATE:
                place = LogPosition(*rotation(event))
                continue
            if event.end == 0:
                continue
            gtid = gtid_of(event)
            if gtid is not None and gtid not in have:
                found = found or LogPosition(place.file, event.end - len(data))
                if not have.many:
                    break
            elif gtid is not None:
                if found is not None:
                    raise LogDamaged(
                        f"{gtid} was read, and comes here after transactions that were not: the"
                        " servers have them in another order"
                    )
                seen.add(gtid)
            place = LogPosition(place.file, event.end)
    if not seen.covers(have):
        raise LogBehind(
            f"this server has the transactions {seen}, and {have} were delivered: it has not caught"
            " up with the server before it"
        )
    if seen.diverges(have):
        raise LogDamaged(
            f"this server has the transactions {seen} where {have} were delivered: they are not the"
            " same, so it never was a replica of the other"
        )
    return found or place
