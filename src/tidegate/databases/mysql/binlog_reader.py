"""The rows of a range of the log: one read, however many tables. Called in tasks.

Which parts of a range are passed over, and which parts elsewhere belong to it, was found when the
range was fixed (scan.py).
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping

import pyarrow as pa

from tidegate.databases.mysql.binlog_errors import LogDamaged
from tidegate.databases.mysql.binlog_events import (
    ROW_EVENTS,
    EventReader,
    EventType,
    LogEvent,
    TableMap,
    rotation,
    row_event,
    row_event_table,
)
from tidegate.databases.mysql.binlog_history import LogFileMark, log_from
from tidegate.databases.mysql.binlog_position import LogPosition
from tidegate.databases.mysql.binlog_rows import LogTable, RowCollector
from tidegate.databases.mysql.binlog_scan import Part, ReadRange
from tidegate.databases.mysql.binlog_stream import Connect

BUFFERED_BYTES_MAX = 16 << 20
Batch = tuple[str, pa.RecordBatch]


def read_range(
    connect: Connect,
    start: LogPosition,
    end: LogPosition,
    tables: Mapping[str, LogTable],
    *,
    mark: LogFileMark | None = None,
    taken: ReadRange | None = None,
) -> Iterator[Batch]:
    """The changes of (start, end] as (path, batch) in the order of the log, path by path.

    `tables` is by `database.table`.
    """
    collectors = _Collectors(tables)
    taken = taken or ReadRange()
    yield from _read(connect, start, end, collectors, mark or LogFileMark(), taken)
    yield from collectors.rest()


def _read(
    connect: Connect,
    start: LogPosition,
    end: LogPosition,
    collectors: "_Collectors",
    mark: LogFileMark,
    taken: ReadRange,
) -> Iterator[Batch]:
    reading = _Reading(start, end, collectors, taken.skip)
    also = {position.key: part for position, part in taken.also}
    for data in log_from(connect, start, mark) if start.key < end.key else ():
        yield from reading.take(data)
        if also and (part := also.pop(reading.at.key, None)) is not None:
            file, begin, last = part
            yield from _read(
                connect,
                LogPosition(file, begin),
                LogPosition(file, last),
                collectors,
                LogFileMark(),
                ReadRange(),
            )
        if reading.done:
            break
    if reading.at.key < end.key:
        raise LogDamaged(f"the log ends at {reading.at}, before {end}, where it reached before")


class _Collectors:
    """The rows of all tables that are not given out yet."""

    def __init__(self, tables: Mapping[str, LogTable]) -> None:
        self.tables = tables
        self._folded = {path.lower(): path for path in tables}
        self._collectors: dict[str, RowCollector] = {}

    def path(self, map_: TableMap) -> str | None:
        """The table that is wanted and that the log calls so; servers may ignore case in names, and
        then have no two that differ in it only.
        """
        if map_.path in self.tables:
            return map_.path
        path = self._folded.get(map_.path.lower())
        return path if path is not None and self.tables[path].folds else None

    def add(self, path: str, map_: TableMap, event: LogEvent) -> Iterator[Batch]:
        collector = self._collectors.get(path)
        if collector is None:
            collector = self._collectors[path] = RowCollector(self.tables[path])
        if not collector.fits(map_):
            yield path, collector.take()
        collector.layout(map_)
        collector.add(row_event(event))
        if collector.full:
            yield path, collector.take()
        elif sum(c.bytes for c in self._collectors.values()) > BUFFERED_BYTES_MAX:
            yield from self.rest()

    def rest(self) -> Iterator[Batch]:
        """What is collected and not taken yet."""
        for path, collector in self._collectors.items():
            if not collector.empty:
                yield path, collector.take()


class _Reading:
    """One pass over a part of the log."""

    def __init__(
        self, start: LogPosition, end: LogPosition, collectors: _Collectors, skip: tuple[Part, ...]
    ) -> None:
        self._end = end
        self._collectors = collectors
        self._events = EventReader()
        self._maps: dict[int, TableMap] = {}
        self._skip = sorted(
            (LogPosition(file, begin).key, LogPosition(file, last).key)
            for file, begin, last in skip
        )
        self.at = start
        self.done = start.key >= end.key

    def take(self, data: bytes) -> Iterator[Batch]:
        event = self._events.event(data)
        if event.type == EventType.ROTATE:
            file, position = rotation(event)
            if event.end or file != self.at.file:
                self.at = LogPosition(file, position)
                self.done = self.at.key >= self._end.key
            return
        if event.end == 0:
            return
        if event.type == EventType.TABLE_MAP:
            map_ = self._events.table_map(event.body)
            self._maps[map_.table_id] = map_
        elif event.type in ROW_EVENTS:
            yield from self._rows(event)
        self.at = LogPosition(self.at.file, event.end)
        self.done = self.at.key >= self._end.key

    def _rows(self, event: LogEvent) -> Iterator[Batch]:
        map_ = self._maps.get(row_event_table(event.body))
        if map_ is None:
            raise LogDamaged(
                f"rows without the layout of their table, before {self.at.file}:{event.end}"
            )
        path = self._collectors.path(map_)
        if path is None or (
            self._skip and self._collectors.tables[path].undone and self._is_skipped(event)
        ):
            return
        yield from self._collectors.add(path, map_, event)

    def _is_skipped(self, event: LogEvent) -> bool:
        """Whether an event lies in a part that is passed over.

        Parts may lie within each other: the latest that begins before need not be the one.
        """
        key = LogPosition(self.at.file, event.end).key
        return any(
            begin < key <= last
            for begin, last in self._skip[: bisect_right(self._skip, (key, key))]
        )
