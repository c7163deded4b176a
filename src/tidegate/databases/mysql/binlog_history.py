"""Check that the log at a position is the one that the position was taken in.

Called by binlog_scan.py and binlog_reader.py. Files of a server that was rebuilt, or whose log was
reset, have the names and lengths of the former ones. So a position carries a mark: when its file
was begun, and the end of the last transaction before it. Both are in the log itself, so that the
comparison needs no statement.
"""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tidegate.databases.mysql.binlog_errors import LogReplaced
from tidegate.databases.mysql.binlog_events import EventReader, EventType, LogEvent, rotation
from tidegate.databases.mysql.binlog_position import LogPosition
from tidegate.databases.mysql.binlog_stream import Connect, LogStream


@dataclass(frozen=True, slots=True)
class LogFileMark:
    """Identifies the log before a position.

    `begun_s` is the time of the first event of the file; `last` is where the last event of a
    transaction begins, and its checksum.
    """

    begun_s: int | None = None
    last: tuple[int, int] | None = None

    def json(self) -> dict[str, Any]:
        """Return the form that the offset keeps."""
        return {
            **({"begun": self.begun_s} if self.begun_s is not None else {}),
            **({"last": list(self.last)} if self.last else {}),
        }

    @staticmethod
    def of(document: dict[str, Any]) -> "LogFileMark":
        """Return the mark of an offset; former versions recorded none."""
        last = document.get("last")
        return LogFileMark(document.get("begun"), (int(last[0]), int(last[1])) if last else None)


def checksum(event: LogEvent) -> int:
    """Return what identifies an event: a checksum of its time, its server and its bytes."""
    return zlib.crc32(event.body, (event.time_s ^ event.server_id) & 0xFFFFFFFF)


def mark_at(connect: Connect, position: LogPosition) -> LogFileMark:
    """Return the mark of a position that was not reached by reading.

    Only the time when its file was begun is known.
    """
    with LogStream(connect, position) as stream:
        for data in stream:
            if data[4] == EventType.FORMAT:
                return LogFileMark(EventReader().event(data).time_s)
    return LogFileMark()


def check_mark(connect: Connect, start: LogPosition, mark: LogFileMark) -> None:
    """Raise LogReplaced if the log before a position is another one than it was."""
    reader = EventReader()
    for data in checked_log(connect, start, mark):
        if reader.event(data).end:
            return


def checked_log(connect: Connect, start: LogPosition, mark: LogFileMark) -> Iterator[bytes]:
    """Yield the events after a position; LogReplaced if the log before it is another one."""
    before = start if mark.last is None else LogPosition(start.file, mark.last[0])
    with LogStream(connect, before) as stream:
        yield from _checked(stream, start, mark)


def _checked(stream: Iterable[bytes], start: LogPosition, mark: LogFileMark) -> Iterator[bytes]:
    """Compare the first events with the mark, and yield those after the position."""
    reader = EventReader()
    events = iter(stream)
    for data in events:
        event = reader.event(data)
        if event.type == EventType.ROTATE and rotation(event)[0] != start.file:
            yield data
            break  # the file ends at the position
        if event.type == EventType.FORMAT and mark.begun_s not in (None, event.time_s):
            raise LogReplaced(
                f"{start.file} was begun at {event.time_s} (seconds since 1970), and at"
                f" {mark.begun_s} when the position was taken"
            )
        if event.end == 0 or mark.last is None:
            yield data
            if event.end:
                break
            continue
        if event.begin == mark.last[0] and checksum(event) != mark.last[1]:
            raise LogReplaced(
                f"the transaction that ends at {start.file}:{event.end} is not the one that was"
                " read there"
            )
        if event.end > start.pos:
            raise LogReplaced(f"no event ends at {start}")
        if event.end == start.pos:
            break
    yield from events
