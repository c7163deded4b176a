"""Read the rows of a range of the log once, for all tables.

Called in tasks. Which parts of a range are skipped, and which parts elsewhere belong to it, was
determined when the range was planned (binlog_scan.py).
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
from tidegate.databases.mysql.binlog_history import LogFileMark, checked_log
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
    parts: ReadRange | None = None,
) -> Iterator[Batch]:
    """Yield the changes of (start, end] as (path, batch).

    Those of each table are in the order of the log. `tables` is by `database.table`.
    """
    collectors = _Collectors(tables)
    parts = parts or ReadRange()
    yield from _read(connect, start, end, collectors, mark or LogFileMark(), parts)
    yield from collectors.rest()


def _read(
    connect: Connect,
    start: LogPosition,
    end: LogPosition,
    collectors: "_Collectors",
    mark: LogFileMark,
    parts: ReadRange,
) -> Iterator[Batch]:
    reading = _RangeReader(start, end, collectors, parts.skip)
    also = {position.key: part for position, part in parts.also}
    for data in checked_log(connect, start, mark) if start.key < end.key else ():
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
        raise LogDamaged(f"the log ends at {reading.at}, before {end}, which it reached earlier")


class _Collectors:
    """Collected rows of all tables."""

    def __init__(self, tables: Mapping[str, LogTable]) -> None:
        self.tables = tables
        self._folded = {path.lower(): path for path in tables}
        self._collectors: dict[str, RowCollector] = {}

    def path(self, table_map: TableMap) -> str | None:
        """Return the table that is read under this name of the log; else None.

        Servers may ignore case in names, and then have no two tables that differ in it only.
        """
        if table_map.path in self.tables:
            return table_map.path
        path = self._folded.get(table_map.path.lower())
        return path if path is not None and self.tables[path].folds_case else None

    def add(self, path: str, table_map: TableMap, event: LogEvent) -> Iterator[Batch]:
        collector = self._collectors.get(path)
        if collector is None:
            collector = self._collectors[path] = RowCollector(self.tables[path])
        if not collector.fits(table_map):
            yield path, collector.take()
        collector.layout(table_map)
        collector.add(row_event(event))
        if collector.full:
            yield path, collector.take()
        elif sum(c.bytes for c in self._collectors.values()) > BUFFERED_BYTES_MAX:
            yield from self.rest()

    def rest(self) -> Iterator[Batch]:
        """Yield all rows that are still collected."""
        for path, collector in self._collectors.items():
            if not collector.empty:
                yield path, collector.take()


class _RangeReader:
    """Reads one part of the log."""

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
            table_map = self._events.table_map(event.body)
            self._maps[table_map.table_id] = table_map
        elif event.type in ROW_EVENTS:
            yield from self._rows(event)
        self.at = LogPosition(self.at.file, event.end)
        self.done = self.at.key >= self._end.key

    def _rows(self, event: LogEvent) -> Iterator[Batch]:
        table_map = self._maps.get(row_event_table(event.body))
        if table_map is None:
            raise LogDamaged(f"rows without a table map before {self.at.file}:{event.end}")
        path = self._collectors.path(table_map)
        if path is None or (
            self._skip and self._collectors.tables[path].rolled_back and self._is_skipped(event)
        ):
            return
        yield from self._collectors.add(path, table_map, event)

    def _is_skipped(self, event: LogEvent) -> bool:
        """Return whether an event lies in a skipped part.

        Parts may be nested: the latest that begins before the event need not be the one.
        """
        key = LogPosition(self.at.file, event.end).key
        return any(
            begin < key <= last
            for begin, last in self._skip[: bisect_right(self._skip, (key, key))]
        )
