"""The driver's look at the log after a position: where the next batch can end, and what lies
before. Called by the planner of CDC.

It reads headers, layouts and statements, and no rows. A range ends where a transaction ends, and
before whatever changes a table that is read, by a statement or because the log describes it in
another way than it is recorded: that then stands alone at the beginning of the next look, where it
is decided about. What the log shows and later takes back, by ROLLBACK or an XA transaction that is
only prepared, is listed with the range, so that tasks pass over it.
"""

import re
from dataclasses import dataclass, field

from tidegate.databases.mysql.binlog_ddl import Effect, TableStatement
from tidegate.databases.mysql.binlog_definition import MapChecker
from tidegate.databases.mysql.binlog_events import (
    ROW_EVENTS,
    EventReader,
    EventType,
    LogEvent,
    rotation,
    row_event_table,
    statement,
)
from tidegate.databases.mysql.binlog_gtid import GtidSet, gtid_of
from tidegate.databases.mysql.binlog_history import LogFileMark, checksum, log_from
from tidegate.databases.mysql.binlog_payload import payload_events
from tidegate.databases.mysql.binlog_position import LogPosition
from tidegate.databases.mysql.binlog_statements import StatementJudgment, Watched, judge
from tidegate.databases.mysql.binlog_stream import Connect
from tidegate.databases.mysql.binlog_xa import PreparedTransaction, decision, prepared_id
from tidegate.model.errors import Unsupported

_ROW_BYTES_GUESS = 128
_OTHERS_BYTES = 16 << 20  # of the log that one look passes over where none of our tables is touched
_NO_END = 1 << 62
_STANDALONE = 1
_PARTS_MAX = 1000  # that one range lists as taken back, or as committed later
_BEGINS = (
    EventType.GTID_MARIADB,
    EventType.GTID_MYSQL,
    EventType.GTID_TAGGED,
    EventType.ANONYMOUS_MYSQL,
)
_STATEMENTS = (EventType.QUERY, EventType.QUERY_PACKED, EventType.EXECUTE_LOAD)
_ENDS_OF_TRANSACTIONS = (
    EventType.XID,
    EventType.QUERY,
    EventType.QUERY_PACKED,
    EventType.XA_PREPARE,
)
_SAVEPOINT = re.compile(r"SAVEPOINT\s+(.+?)\s*", re.IGNORECASE | re.DOTALL)
_ROLLBACK_TO = re.compile(
    r"ROLLBACK\s+(?:WORK\s+)?TO\s+(?:SAVEPOINT\s+)?(.+?)\s*", re.IGNORECASE | re.DOTALL
)
_ROLLBACK = re.compile(r"ROLLBACK(?:\s+WORK)?\s*", re.IGNORECASE)
_COMMIT = re.compile(r"COMMIT(?:\s+WORK)?\s*", re.IGNORECASE)
_BEGIN = re.compile(
    r"(?:BEGIN(?:\s+WORK)?|START\s+TRANSACTION.*|XA\s+(?:START|BEGIN|END|PREPARE)\s.*|RELEASE\s+SAVEPOINT\s.*)\s*",
    re.IGNORECASE | re.DOTALL,
)
Part = tuple[str, int, int]
"""A part of a file: its name, where it begins and where it ends."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadRange:
    """How a range is read: parts that are passed over, and parts elsewhere that belong to it, each
    after the event that ends at a position.
    """

    skip: tuple[Part, ...] = ()
    also: tuple[tuple[LogPosition, Part], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RangeStop:
    """What stands at the beginning of a range and must be decided about: a statement, or a table
    that differs, and where its transaction begins.
    """

    judged: StatementJudgment
    at: LogPosition


@dataclass(frozen=True, kw_only=True, slots=True)
class Scanned:
    """What lies between a position and `end`; `gtid` are all transactions before that, as far as
    they are known.

    `rows` is a guess from sizes; `caught_up` tells that nothing comes after `end` at this moment.
    `altered` are tables of which nothing is read yet and that a statement changed.
    """

    end: LogPosition
    gtid: str
    mark: LogFileMark
    bytes: int
    rows: int
    tables: frozenset[str]
    caught_up: bool
    taken: ReadRange
    prepared: dict[str, PreparedTransaction]
    altered: frozenset[str]
    change: RangeStop | None = None
    time_s: int = 0


@dataclass(kw_only=True, slots=True)
class _Group:
    """The transaction that is being passed: what it touches so far, and its savepoints."""

    at: LogPosition
    gtid: str | None = None
    open: bool = False  # whether it ends by an event of its own, and not with its first statement
    tables: set[str] = field(default_factory=set)
    all_tables: set[str] = field(default_factory=set)
    rows: int = 0
    skip: list[Part] = field(default_factory=list)
    savepoints: list[tuple[str, int, set[str], int]] = field(default_factory=list)

    def undo(self, name: str | None, file: str, end: int, kept: frozenset[str]) -> None:
        """Back to a savepoint, or to the begin; rows of tables that know no rollback stay."""
        at = next(
            (n for n in reversed(range(len(self.savepoints))) if self.savepoints[n][0] == name),
            None,
        )
        _, begin, tables, rows = (
            self.savepoints[at] if at is not None else ("", self.at.pos, set(), 0)
        )
        self.savepoints = self.savepoints[: at + 1] if at is not None else []
        if self.tables - tables or self.rows > rows:
            self.skip.append((file, begin, end))
        self.tables, self.rows = tables | (self.tables & kept), rows


@dataclass(kw_only=True, slots=True)
class _State:
    file: str
    end: LogPosition
    gtids: GtidSet
    mark: LogFileMark
    prepared: dict[str, PreparedTransaction]
    group: _Group | None = None
    bytes: int = 0
    rows: int = 0
    tables: set[str] = field(default_factory=set)
    skip: list[Part] = field(default_factory=list)
    also: list[tuple[LogPosition, Part]] = field(default_factory=list)
    altered: set[str] = field(default_factory=set)
    bytes_passed: int = 0
    time_s: int = 0

    def begin(self, event: LogEvent) -> _Group:
        """The transaction that an event belongs to."""
        if self.group is None:
            self.group = _Group(at=LogPosition(self.file, event.begin))
        return self.group

    def boundary(self, event: LogEvent) -> None:
        """A transaction ends with this event: what was seen so far belongs to the range."""
        group, self.group = self.group, None
        if group is not None:
            self.tables |= group.tables
            self.rows += group.rows
            self.skip += group.skip
            if group.gtid is not None:
                self.gtids.add(group.gtid)
        self.end = LogPosition(self.file, event.end)
        self.bytes_passed = self.bytes
        self.time_s = event.time_s or self.time_s
        if event.type in _ENDS_OF_TRANSACTIONS:
            self.mark = LogFileMark(self.mark.begun_s, (event.begin, checksum(event)))

    def turn(self, file: str, position: int) -> None:
        """The log goes on in another file; a transaction that has not ended there never will, as
        the server died in it.
        """
        if file != self.file:
            self.mark = LogFileMark()
            if self.group is not None:
                self.skip.append((self.file, self.group.at.pos, _NO_END))
                self.group = None
        self.file = file
        if self.group is None:
            self.end = LogPosition(file, position)

    def result(self, *, caught_up: bool, change: RangeStop | None = None) -> Scanned:
        return Scanned(
            end=self.end,
            gtid=str(self.gtids),
            mark=self.mark,
            bytes=self.bytes_passed,
            rows=self.rows,
            tables=frozenset(self.tables),
            caught_up=caught_up,
            taken=ReadRange(skip=tuple(self.skip), also=tuple(self.also)),
            prepared=dict(self.prepared),
            altered=frozenset(self.altered),
            change=change,
            time_s=self.time_s,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanStart:
    """Where a look begins, and what is known there."""

    at: LogPosition
    gtid: str = ""
    mark: LogFileMark = field(default_factory=LogFileMark)
    prepared: dict[str, PreparedTransaction] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Until:
    """Where a look ends at the latest; it takes one transaction at least.

    `time_s` is the time of the first transaction that is too late.
    """

    rows: int | None = None
    bytes: int | None = None
    position: LogPosition | None = None
    time_s: int | None = None

    def reached(self, state: _State) -> bool:
        """Whether enough was seen, at the end of a transaction."""
        if self.position is not None and state.end.key >= self.position.key:
            return True
        if (self.rows is not None and state.rows >= self.rows) or len(state.skip) + len(
            state.also
        ) >= _PARTS_MAX:
            return True
        # What is not ours costs a task nothing: a small batch must not end in the midst of it,
        # where it could never come out again.
        return self.bytes is not None and state.bytes_passed >= (
            self.bytes if state.tables else max(self.bytes, _OTHERS_BYTES)
        )


def scan(connect: Connect, start: ScanStart, watched: Watched, until: Until) -> Scanned:
    """Look from a position on, until the limit or the end of the log."""
    state = _State(
        file=start.at.file,
        end=start.at,
        gtids=GtidSet(start.gtid),
        mark=start.mark,
        prepared=dict(start.prepared),
    )
    if until.position is not None and start.at.key >= until.position.key:
        return state.result(caught_up=False)
    scanning = _Scan(state, watched)
    for data in log_from(connect, start.at, start.mark):
        event = scanning.reader.event(data)
        if event.type == EventType.ROTATE:
            file, position = rotation(event)
            if event.end or file != state.file:
                state.turn(file, position)
            continue
        if event.type == EventType.FORMAT:
            state.mark = LogFileMark(event.time_s, state.mark.last)
        if event.end == 0:
            continue  # made up by the server for its reader
        if until.time_s is not None and event.time_s >= until.time_s and state.group is None:
            return state.result(caught_up=False)
        found = scanning.take(event)
        if found is not None:
            return _stopped(event, state, start.at, found)
        if state.group is None and until.reached(state):
            return state.result(caught_up=False)
    return state.result(caught_up=True)


def _stopped(
    event: LogEvent, state: _State, start: LogPosition, judged: StatementJudgment
) -> Scanned:
    """Before the statement; or, where it comes first, after it and with it.

    A table that differs is never passed by itself.
    """
    at = state.begin(event).at
    if state.end.key > start.key and state.tables:
        return state.result(caught_up=False)
    if judged.statement.effect is not Effect.DIFFERS:
        state.boundary(event)
    return state.result(caught_up=False, change=RangeStop(judged=judged, at=at))


class _Scan:
    """Takes events in, one after the other; what must be decided about comes back."""

    def __init__(self, state: _State, watched: Watched) -> None:
        self._state = state
        self._watched = watched
        self._maps = MapChecker(watched.tables, watched.charset)
        self.reader = EventReader()

    def take(self, event: LogEvent) -> StatementJudgment | None:
        self._state.bytes += len(event.body)
        if event.type in _BEGINS:
            ends = (
                event.type == EventType.GTID_MARIADB
                and len(event.body) > 12
                and not event.body[12] & _STANDALONE
            )
            self._state.group = _Group(
                at=LogPosition(self._state.file, event.begin), gtid=gtid_of(event), open=ends
            )
            return None
        if event.type in _STATEMENTS:
            return self._statement(event)
        if event.type == EventType.TABLE_MAP or event.type in ROW_EVENTS:
            return self._rows(event)
        if event.type == EventType.PAYLOAD:
            self._payload(event)
        else:
            self._other(event)
        return None

    def _rows(self, event: LogEvent) -> StatementJudgment | None:
        group = self._state.begin(event)
        if event.type == EventType.TABLE_MAP:
            map_ = self.reader.table_map(event.body)
            group.all_tables.add(map_.path)
            path = self._watched.path(map_.path)
            if path is None:
                return None
            group.tables.add(path)
            wrong = self._maps.difference(map_, path)
            statement_ = TableStatement(Effect.DIFFERS, ((map_.database, map_.table),), wrong)
            return StatementJudgment(statement_, (path,)) if wrong else None
        path = self._table(event)
        if path is not None:
            group.rows += 1 + len(event.body) // _ROW_BYTES_GUESS
        return None

    def _table(self, event: LogEvent) -> str | None:
        known = self.reader.maps.get(row_event_table(event.body))
        return self._watched.path(known[1].path) if known is not None else None

    def _payload(self, event: LogEvent) -> None:
        """A packed transaction: its events are looked at as if they stood alone.

        They have no places of their own, so that only all of it can be passed.
        """
        group = self._state.begin(event)
        for inner in payload_events(event.body):
            if inner.type == EventType.TABLE_MAP:
                path = self._watched.path(self.reader.table_map(inner.body).path)
                if path is not None:
                    raise Unsupported(
                        f"the source packs the transaction at {group.at}, which changes {path}: "
                        "set binlog_transaction_compression = OFF, for all its connections"
                    )
        self._state.boundary(event)

    def _other(self, event: LogEvent) -> None:
        """Ends of transactions, what cannot be read, and events between transactions."""
        state = self._state
        if event.type == EventType.PARTIAL_UPDATE and (path := self._table(event)) is not None:
            raise Unsupported(
                f"the source writes changes of {path} as partial JSON: set binlog_row_value_options"
                " = '', for all its connections"
            )
        if event.type == EventType.XA_PREPARE:
            self._prepare(event)
        elif event.type == EventType.XID or state.group is None:
            state.boundary(event)

    def _prepare(self, event: LogEvent) -> None:
        """What is prepared counts once it is committed; one phase does both."""
        xid, committed = prepared_id(event)
        group = self._state.begin(event)
        if not committed:
            if group.tables & self._watched.kept:
                names = ", ".join(sorted(group.tables & self._watched.kept))
                raise Unsupported(
                    f"the XA transaction {xid} at {group.at} changes {names}, whose engine knows no"
                    " transactions: its rows cannot be told from others"
                )
            self._state.prepared[xid] = PreparedTransaction(
                group.at.file, group.at.pos, event.end, tuple(sorted(group.all_tables))
            )
            group.skip = [(group.at.file, group.at.pos, event.end)] if group.tables else []
            group.tables = set()
            group.rows = 0
        self._state.boundary(event)

    def _statement(self, event: LogEvent) -> StatementJudgment | None:
        logged = statement(event)
        text = logged.text.decode("utf-8", "replace")
        group = self._state.begin(event)
        if found := _SAVEPOINT.fullmatch(text):
            group.savepoints.append((found[1], event.end, set(group.tables), group.rows))
        elif found := _ROLLBACK_TO.fullmatch(text):
            group.undo(found[1], self._state.file, event.end, self._watched.kept)
        elif _ROLLBACK.fullmatch(text) or _COMMIT.fullmatch(text):
            if not _COMMIT.fullmatch(text):
                group.undo(None, self._state.file, event.end, self._watched.kept)
            self._state.boundary(event)
        elif decided := decision(text):
            return self._decide(event, *decided)
        elif _BEGIN.fullmatch(text):
            group.open = True
        else:
            return self._judge(event)
        return None

    def _judge(self, event: LogEvent) -> StatementJudgment | None:
        found = judge(statement(event), self._watched)
        if found is not None:
            self._state.altered |= set(found.waiting)
            if found.paths:
                return found
        if not self._state.begin(event).open:
            self._state.boundary(event)
        return None

    def _decide(self, event: LogEvent, xid: str, committed: bool) -> StatementJudgment | None:
        state = self._state
        known = state.prepared.pop(xid, None)
        if committed and known is None and self._watched.tables:
            known = self._watched.search(xid, LogPosition(state.file, event.begin))
            if known is None:
                text = (
                    f"XA COMMIT {xid}, of a transaction that was prepared before the log that the"
                    " server still has"
                )
                return StatementJudgment(
                    TableStatement(Effect.ROWS, (), text, told=False), tuple(self._watched.tables)
                )
        if committed and known is not None:
            touched = {
                path for name in known.tables if (path := self._watched.path(name)) is not None
            }
            if touched:
                group = state.begin(event)
                group.tables |= touched
                group.rows += 1 + (known.end - known.begin) // _ROW_BYTES_GUESS
                state.also.append(
                    (LogPosition(state.file, event.end), (known.file, known.begin, known.end))
                )
        state.boundary(event)
        return None
