"""Find a position on another server: after the same transactions.

Called by MySQL-CDC after a failover to a replica. Every server writes its own files, so a file and
a byte mean nothing on another one. The set of transactions before a position means the same
everywhere. The files of the new server state at their head which transactions came before them: the
newest file that begins within the set is read up to the first transaction that is not in it.
"""

from collections.abc import Sequence

from tidegate.databases.mysql.binlog_errors import LogBehind, LogDamaged, LogRefused
from tidegate.databases.mysql.binlog_events import EventReader, EventType, rotation
from tidegate.databases.mysql.binlog_gtid import GtidSet, gtid_of, listed_transactions
from tidegate.databases.mysql.binlog_position import FIRST, LogPosition
from tidegate.databases.mysql.binlog_stream import Connect, LogStream


def transactions_before(connect: Connect, file: str) -> GtidSet | None:
    """Return the transactions before a file; None if it does not state them."""
    reader = EventReader()
    with LogStream(connect, LogPosition(file, FIRST)) as stream:
        for data in stream:
            event = reader.event(data)
            found = listed_transactions(event)
            if found is not None:
                return found
            if gtid_of(event) is not None:
                return None
    return None


def find_end_of(connect: Connect, files: Sequence[str], have: GtidSet) -> LogPosition | None:
    """Return where the transactions of a set end on this server.

    None if its log does not go back that far; raises LogBehind if the server lacks some of them.
    """
    for file in reversed(files):
        before = transactions_before(connect, file)
        if before is None:
            raise LogRefused(
                f"{file} does not state which transactions came before it: the position of "
                f"{have} cannot be found on this server"
            )
        if have.covers(before):
            return _end_within(connect, file, have, before)
    return None


def _end_within(connect: Connect, file: str, have: GtidSet, seen: GtidSet) -> LogPosition:
    """Return the end of the last transaction of the set, from a file on.

    `seen` becomes the set of transactions that this server has.
    """
    reader = EventReader()
    position = LogPosition(file, FIRST)
    found: LogPosition | None = None
    with LogStream(connect, position) as stream:
        for data in stream:
            event = reader.event(data)
            if event.type == EventType.ROTATE:
                position = LogPosition(*rotation(event))
                continue
            if event.end == 0:
                continue
            gtid = gtid_of(event)
            if gtid is not None and gtid not in have:
                found = found or LogPosition(position.file, event.end - len(data))
                if not have.has_several_lines:
                    break
            elif gtid is not None:
                if found is not None:
                    raise LogDamaged(
                        f"{gtid} was read, and on this server comes after transactions that "
                        "were not: the servers have them in another order"
                    )
                seen.add(gtid)
            position = LogPosition(position.file, event.end)
    if not seen.covers(have):
        raise LogBehind(
            f"this server has the transactions {seen}, and {have} were delivered: it has not "
            "caught up with the previous server"
        )
    if seen.diverges(have):
        raise LogDamaged(
            f"this server has the transactions {seen} where {have} were delivered: they "
            "differ, so it never was a replica of the other server"
        )
    return found or position
