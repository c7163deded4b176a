"""The driver's look at the log after a position: where the next batch can end, and what lies before. Called by the planner of CDC.

It reads headers, layouts and statements, and no rows. A range ends where a transaction ends, and before a statement that changes a table that is read: that
statement then stands alone at the beginning of the next look, where it is decided about.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tidegate.databases.binlog.ddl import Effect, TableStatement, table_statement
from tidegate.databases.binlog.events import ROW_EVENTS, Event, EventReader, EventType, rotation, row_event_table, statement
from tidegate.databases.binlog.gtid import GtidSet, gtid_of
from tidegate.databases.binlog.position import Position
from tidegate.databases.binlog.stream import Connect, LogStream
from tidegate.model.errors import Unsupported

_STANDALONE = 1
_ROW_BYTES_GUESS = 128
_OTHERS_BYTES = 16 << 20  # of the log that one look passes over where none of our tables is touched
Reads = Callable[[str, str], bool]
"""Whether a table is read: (database, table); a table without a name asks for any of the database."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scanned:
    """What lies between a position and `end`; `gtid` are all transactions before that, as far as they are known.

    `rows` is a guess from sizes; `caught_up` tells that nothing comes after `end` at this moment.
    """

    end: Position
    gtid: str
    bytes: int
    rows: int
    tables: frozenset[str]
    caught_up: bool
    change: TableStatement | None = None  # the statement at the very beginning, alone in the range
    time_s: int = 0


@dataclass(kw_only=True, slots=True)
class _State:
    file: str
    end: Position
    gtids: GtidSet
    begun: str | None = None
    bytes: int = 0
    rows: int = 0
    seen: set[str] = field(default_factory=set)
    passed: set[str] = field(default_factory=set)
    rows_passed: int = 0
    bytes_passed: int = 0
    inside: bool = False
    standalone: bool = False
    time_s: int = 0

    def boundary(self, event: Event) -> None:
        """A transaction ends with this event: what was seen so far belongs to the range."""
        self.inside = self.standalone = False
        self.end = Position(self.file, event.end)
        if self.begun is not None:
            self.gtids.add(self.begun)
            self.begun = None
        self.rows_passed, self.bytes_passed = self.rows, self.bytes
        self.passed |= self.seen
        self.time_s = event.time_s or self.time_s

    def result(self, *, caught_up: bool, change: TableStatement | None = None) -> Scanned:
        return Scanned(
            end=self.end,
            gtid=str(self.gtids),
            bytes=self.bytes_passed,
            rows=self.rows_passed,
            tables=frozenset(self.passed),
            caught_up=caught_up,
            change=change,
            time_s=self.time_s,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Until:
    """Where a look ends at the latest; it takes one transaction at least. `time_s` is the time of the first transaction that is too late."""

    rows: int | None = None
    bytes: int | None = None
    position: Position | None = None
    time_s: int | None = None

    def reached(self, state: _State) -> bool:
        """Whether enough was seen, at the end of a transaction."""
        if self.position is not None and state.end.key >= self.position.key:
            return True
        if self.rows is not None and state.rows_passed >= self.rows:
            return True
        # What is not ours costs a task nothing: a small batch must not end in the midst of it, where it could never come out again.
        return self.bytes is not None and state.bytes_passed >= (self.bytes if state.passed else max(self.bytes, _OTHERS_BYTES))


def scan(connect: Connect, start: Position, gtid: str, reads: Reads, until: Until) -> Scanned:
    """Look from a position on, until the limit or the end of the log."""
    state = _State(file=start.file, end=start, gtids=GtidSet(gtid))
    reader = EventReader()
    if until.position is not None and start.key >= until.position.key:
        return state.result(caught_up=False)
    with LogStream(connect, start) as stream:
        for data in stream:
            event = reader.event(data)
            if event.type == EventType.ROTATE:
                state.file, position = rotation(event)
                if not state.inside and event.end:
                    state.end = Position(state.file, position)
                continue
            if event.end == 0:
                continue  # made up by the server for its reader
            if until.time_s is not None and event.time_s >= until.time_s and not state.inside:
                return state.result(caught_up=False)
            change = _pass(event, state, reader, reads)
            if change is not None:
                return _stopped(event, state, start, change)
            if not state.inside and until.reached(state):
                return state.result(caught_up=False)
    return state.result(caught_up=True)


def _stopped(event: Event, state: _State, start: Position, change: TableStatement) -> Scanned:
    """Before the statement; or, where it comes first, after it and with it."""
    if state.end.key > start.key and (state.rows_passed or state.passed):
        return state.result(caught_up=False)
    state.boundary(event)
    return state.result(caught_up=False, change=change)


def _pass(event: Event, state: _State, reader: EventReader, reads: Reads) -> TableStatement | None:
    """Take an event in; a statement that changes a table which is read comes back."""
    state.bytes += len(event.body)
    match event.type:
        case EventType.TABLE_MAP:
            map_ = reader.table_map(event.body)
            if reads(map_.database, map_.table):
                state.seen.add(f"{map_.database}.{map_.table}")
        case kind if kind in ROW_EVENTS:
            known = reader.maps.get(row_event_table(event.body))
            if known is not None and reads(known[1].database, known[1].table):
                state.rows += 1 + len(event.body) // _ROW_BYTES_GUESS
        case EventType.GTID_MARIADB | EventType.GTID_MYSQL | EventType.GTID_TAGGED | EventType.ANONYMOUS_MYSQL:
            _begin(event, state)
        case EventType.QUERY | EventType.QUERY_PACKED:
            return _statement(event, state, reads)
        case _:
            _other(event, state)
    return None


def _other(event: Event, state: _State) -> None:
    """Ends of transactions, what cannot be read, and events between transactions."""
    if event.type == EventType.XA_PREPARE and state.seen - state.passed:
        raise Unsupported("the source uses XA transactions, which the log shows before they are decided; tables that they change cannot be read from the log")
    if event.type in (EventType.PARTIAL_UPDATE, EventType.PAYLOAD):
        raise Unsupported("the source writes packed transactions or partial JSON: set binlog_transaction_compression = OFF and binlog_row_value_options = ''")
    if event.type == EventType.XID or not state.inside:
        state.boundary(event)


def _begin(event: Event, state: _State) -> None:
    state.inside, state.begun = True, gtid_of(event)
    if event.type == EventType.GTID_MARIADB and len(event.body) >= 13:
        state.standalone = bool(event.body[12] & _STANDALONE)


def _statement(event: Event, state: _State, reads: Reads) -> TableStatement | None:
    database, text = statement(event)
    word = text.lstrip()[:9].upper()
    if word.startswith(("BEGIN", "START TRA")):
        state.inside = True
        return None
    if word.startswith(("SAVEPOINT", "ROLLBACK ")) and state.inside and not word.startswith("ROLLBACK W"):
        return None
    found = table_statement(database, text)
    if found is not None and found.effect is not Effect.CREATE and any(reads(d, t or "") for d, t in found.tables):
        return found
    state.boundary(event)
    return None
