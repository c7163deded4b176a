"""The rows of a range of the log: one read, however many tables. Called in tasks."""

from collections.abc import Iterator, Mapping

import pyarrow as pa

from tidegate.databases.binlog.errors import LogDamaged
from tidegate.databases.binlog.events import ROW_EVENTS, Event, EventReader, EventType, TableMap, rotation, row_event, row_event_table
from tidegate.databases.binlog.position import Position
from tidegate.databases.binlog.rows import LogTable, RowCollector
from tidegate.databases.binlog.stream import Connect, LogStream

BUFFERED_BYTES_MAX = 16 << 20
Batch = tuple[str, pa.RecordBatch]


def read_range(connect: Connect, start: Position, end: Position, tables: Mapping[str, LogTable]) -> Iterator[Batch]:
    """The changes of (start, end] as (path, batch) in the order of the log, path by path. `tables` is by `database.table`."""
    reading = _Reading(start, end, tables)
    with LogStream(connect, start) as stream:
        for data in stream:
            yield from reading.take(data)
            if reading.done:
                break
    if not reading.done and start.key < end.key:
        raise LogDamaged(f"the log ends at {reading.at}, before {end}, where it reached before")
    yield from reading.rest()


class _Reading:
    """One pass over the log."""

    def __init__(self, start: Position, end: Position, tables: Mapping[str, LogTable]) -> None:
        self._end, self._tables = end, tables
        self._events = EventReader()
        self._collectors: dict[str, RowCollector] = {}
        self._maps: dict[int, TableMap] = {}
        self.at = start
        self.done = start.key >= end.key

    def take(self, data: bytes) -> Iterator[Batch]:
        event = self._events.event(data)
        if event.type == EventType.ROTATE:
            self.at = Position(*rotation(event))
            self.done = self.at.key >= self._end.key
            return
        if event.end == 0:
            return
        if event.type == EventType.TABLE_MAP:
            map_ = self._events.table_map(event.body)
            self._maps[map_.table_id] = map_
        elif event.type in ROW_EVENTS:
            yield from self._rows(event)
        self.at = Position(self.at.file, event.end)
        self.done = self.at.key >= self._end.key

    def _rows(self, event: Event) -> Iterator[Batch]:
        map_ = self._maps.get(row_event_table(event.body))
        if map_ is None:
            raise LogDamaged(f"rows without the layout of their table, before {self.at.file}:{event.end}")
        path = f"{map_.database}.{map_.table}"
        if path not in self._tables:
            return
        collector = self._collectors.get(path)
        if collector is None:
            collector = self._collectors[path] = RowCollector(self._tables[path])
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
