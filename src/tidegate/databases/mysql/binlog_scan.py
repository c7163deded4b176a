"""Plan the next range of the log: where it can end, and what it contains.

Called by MySQL-CDC in the driver. It reads headers, table maps and statements, and no rows. A range
ends where a transaction ends, and before anything that changes a table that is read, whether by a
statement or because a table map differs from the recorded columns: the next scan begins with that
change alone, and it is decided there. What the log contains and later reverts, by ROLLBACK or an XA
transaction that is only prepared, is listed with the range, so that tasks skip it.
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
from tidegate.databases.mysql.binlog_history import LogFileMark, checked_log, checksum
from tidegate.databases.mysql.binlog_payload import payload_events
from tidegate.databases.mysql.binlog_position import LogPosition
from tidegate.databases.mysql.binlog_statements import (
    RelevantStatement,
    WatchedTables,
    relevant_statement,
)
from tidegate.databases.mysql.binlog_stream import Connect
from tidegate.databases.mysql.binlog_xa import PreparedTransaction, decision, prepared_id
from tidegate.model.errors import Unsupported

_ROW_BYTES_GUESS = 128
# Bytes of the log that one scan skips if none of its tables is touched.
_SKIPPED_BYTES_MAX = 16 << 20
_NO_END = 1 << 62
_STANDALONE = 1
_PARTS_MAX = 1000  # parts that one range lists as rolled back, or as committed later
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
    r"(?:BEGIN(?:\s+WORK)?|START\s+TRANSACTION.*|XA\s+(?:START|BEGIN|END|PREPARE)\s.*"
    r"|RELEASE\s+SAVEPOINT\s.*)\s*",
    re.IGNORECASE | re.DOTALL,
)
Part = tuple[str, int, int]
"""A part of a file: its name, where it begins and where it ends."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadRange:
    """How a range is read: parts that are skipped, and parts elsewhere that belong to it.

    Each of the latter follows the event that ends at a position.
    """

    skip: tuple[Part, ...] = ()
    also: tuple[tuple[LogPosition, Part], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RangeStop:
    """A change at the beginning of a range that must be decided.

    The change is a statement, or a table that differs from what is recorded; `at` is where its
    transaction begins.
    """

    change: RelevantStatement
    at: LogPosition


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanResult:
    """What lies between a position and `end`.

    `gtid` are all transactions before the end, as far as known. `rows` is estimated from sizes;
    `caught_up` means that nothing comes after `end` at this moment. `altered` are tables of which
    nothing is read yet and that a statement changed.
    """

    end: LogPosition
    gtid: str
    mark: LogFileMark
    bytes: int
    rows: int
    tables: frozenset[str]
    caught_up: bool
    read_range: ReadRange
    prepared: dict[str, PreparedTransaction]
    altered: frozenset[str]
    change: RangeStop | None = None
    time_s: int = 0


@dataclass(kw_only=True, slots=True)
class _Transaction:
    """The transaction being scanned: the tables it touches so far, and its savepoints."""

    at: LogPosition
    gtid: str | None = None
    # Whether it ends with an event of its own, and not with its first statement.
    open: bool = False
    tables: set[str] = field(default_factory=set)
    all_tables: set[str] = field(default_factory=set)
    rows: int = 0
    skip: list[Part] = field(default_factory=list)
    savepoints: list[tuple[str, int, set[str], int]] = field(default_factory=list)

    def roll_back(
        self, name: str | None, file: str, end: int, nontransactional: frozenset[str]
    ) -> None:
        """Roll back to a savepoint, or to the beginning.

        Rows of nontransactional tables stay.
        """
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
        self.tables = tables | (self.tables & nontransactional)
        self.rows = rows


@dataclass(kw_only=True, slots=True)
class _ScanState:
    file: str
    end: LogPosition
    gtids: GtidSet
    mark: LogFileMark
    prepared: dict[str, PreparedTransaction]
    transaction: _Transaction | None = None
    bytes: int = 0
    rows: int = 0
    tables: set[str] = field(default_factory=set)
    skip: list[Part] = field(default_factory=list)
    also: list[tuple[LogPosition, Part]] = field(default_factory=list)
    altered: set[str] = field(default_factory=set)
    bytes_passed: int = 0
    time_s: int = 0

    def ensure_transaction(self, event: LogEvent) -> _Transaction:
        """Return the transaction that an event belongs to."""
        if self.transaction is None:
            self.transaction = _Transaction(at=LogPosition(self.file, event.begin))
        return self.transaction

    def end_transaction(self, event: LogEvent) -> None:
        """End the transaction with this event, and add it to the range."""
        transaction = self.transaction
        self.transaction = None
        if transaction is not None:
            self.tables |= transaction.tables
            self.rows += transaction.rows
            self.skip += transaction.skip
            if transaction.gtid is not None:
                self.gtids.add(transaction.gtid)
        self.end = LogPosition(self.file, event.end)
        self.bytes_passed = self.bytes
        self.time_s = event.time_s or self.time_s
        if event.type in _ENDS_OF_TRANSACTIONS:
            self.mark = LogFileMark(self.mark.begun_s, (event.begin, checksum(event)))

    def next_file(self, file: str, position: int) -> None:
        """Continue in another file.

        A transaction that has not ended before never will, as the server crashed in it.
        """
        if file != self.file:
            self.mark = LogFileMark()
            if self.transaction is not None:
                self.skip.append((self.file, self.transaction.at.pos, _NO_END))
                self.transaction = None
        self.file = file
        if self.transaction is None:
            self.end = LogPosition(file, position)

    def result(self, *, caught_up: bool, change: RangeStop | None = None) -> ScanResult:
        return ScanResult(
            end=self.end,
            gtid=str(self.gtids),
            mark=self.mark,
            bytes=self.bytes_passed,
            rows=self.rows,
            tables=frozenset(self.tables),
            caught_up=caught_up,
            read_range=ReadRange(skip=tuple(self.skip), also=tuple(self.also)),
            prepared=dict(self.prepared),
            altered=frozenset(self.altered),
            change=change,
            time_s=self.time_s,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanStart:
    """Where a scan begins, and what is known at that position."""

    at: LogPosition
    gtid: str = ""
    mark: LogFileMark = field(default_factory=LogFileMark)
    prepared: dict[str, PreparedTransaction] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanLimit:
    """Where a scan ends at the latest; it includes at least one transaction.

    `time_s` is the time of the first transaction that is too late.
    """

    rows: int | None = None
    bytes: int | None = None
    position: LogPosition | None = None
    time_s: int | None = None

    def reached(self, state: _ScanState) -> bool:
        """Return whether the range is large enough, at the end of a transaction."""
        if self.position is not None and state.end.key >= self.position.key:
            return True
        if (self.rows is not None and state.rows >= self.rows) or len(state.skip) + len(
            state.also
        ) >= _PARTS_MAX:
            return True
        # Other tables cost a task nothing: a small batch must not end among their changes, or it
        # would never get past them.
        return self.bytes is not None and state.bytes_passed >= (
            self.bytes if state.tables else max(self.bytes, _SKIPPED_BYTES_MAX)
        )


def scan(
    connect: Connect, start: ScanStart, watched: WatchedTables, limit: ScanLimit
) -> ScanResult:
    """Scan from a position to the limit or the end of the log."""
    state = _ScanState(
        file=start.at.file,
        end=start.at,
        gtids=GtidSet(start.gtid),
        mark=start.mark,
        prepared=dict(start.prepared),
    )
    if limit.position is not None and start.at.key >= limit.position.key:
        return state.result(caught_up=False)
    scanning = _Scan(state, watched)
    for data in checked_log(connect, start.at, start.mark):
        event = scanning.reader.event(data)
        if event.type == EventType.ROTATE:
            file, position = rotation(event)
            if event.end or file != state.file:
                state.next_file(file, position)
            continue
        if event.type == EventType.FORMAT:
            state.mark = LogFileMark(event.time_s, state.mark.last)
        if event.end == 0:
            continue  # an artificial event that is not in the file
        if limit.time_s is not None and event.time_s >= limit.time_s and state.transaction is None:
            return state.result(caught_up=False)
        found = scanning.take(event)
        if found is not None:
            return _stop_at(event, state, start.at, found)
        if state.transaction is None and limit.reached(state):
            return state.result(caught_up=False)
    return state.result(caught_up=True)


def _stop_at(
    event: LogEvent, state: _ScanState, start: LogPosition, change: RelevantStatement
) -> ScanResult:
    """Return the range before a change.

    If the change comes first, return it with its event. A table that differs is never skipped.
    """
    at = state.ensure_transaction(event).at
    if state.end.key > start.key and state.tables:
        return state.result(caught_up=False)
    if change.statement.effect is not Effect.DIFFERS:
        state.end_transaction(event)
    return state.result(caught_up=False, change=RangeStop(change=change, at=at))


class _Scan:
    """Processes events one by one; returns changes that must be decided."""

    def __init__(self, state: _ScanState, watched: WatchedTables) -> None:
        self._state = state
        self._watched = watched
        self._maps = MapChecker(watched.tables, watched.charset)
        self.reader = EventReader()

    def take(self, event: LogEvent) -> RelevantStatement | None:
        self._state.bytes += len(event.body)
        if event.type in _BEGINS:
            ends = (
                event.type == EventType.GTID_MARIADB
                and len(event.body) > 12
                and not event.body[12] & _STANDALONE
            )
            self._state.transaction = _Transaction(
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

    def _rows(self, event: LogEvent) -> RelevantStatement | None:
        transaction = self._state.ensure_transaction(event)
        if event.type == EventType.TABLE_MAP:
            table_map = self.reader.table_map(event.body)
            transaction.all_tables.add(table_map.path)
            path = self._watched.path(table_map.path)
            if path is None:
                return None
            transaction.tables.add(path)
            wrong = self._maps.difference(table_map, path)
            statement_ = TableStatement(
                Effect.DIFFERS, ((table_map.database, table_map.table),), wrong
            )
            return RelevantStatement(statement_, (path,)) if wrong else None
        path = self._table(event)
        if path is not None:
            transaction.rows += 1 + len(event.body) // _ROW_BYTES_GUESS
        return None

    def _table(self, event: LogEvent) -> str | None:
        cached = self.reader.maps.get(row_event_table(event.body))
        return self._watched.path(cached[1].path) if cached is not None else None

    def _payload(self, event: LogEvent) -> None:
        """Process the events inside of a compressed transaction.

        They have no positions of their own, so only all of it can be skipped.
        """
        transaction = self._state.ensure_transaction(event)
        for inner in payload_events(event.body):
            if inner.type == EventType.TABLE_MAP:
                path = self._watched.path(self.reader.table_map(inner.body).path)
                if path is not None:
                    raise Unsupported(
                        f"the source compresses the transaction at {transaction.at}, which "
                        f"changes {path}: set binlog_transaction_compression = OFF, for all "
                        "its connections"
                    )
        self._state.end_transaction(event)

    def _other(self, event: LogEvent) -> None:
        """Process ends of transactions, unreadable events, and events between transactions."""
        state = self._state
        if event.type == EventType.PARTIAL_UPDATE and (path := self._table(event)) is not None:
            raise Unsupported(
                f"the source writes changes of {path} as partial JSON: set binlog_row_value_options"
                " = '', for all its connections"
            )
        if event.type == EventType.XA_PREPARE:
            self._prepare(event)
        elif event.type == EventType.XID or state.transaction is None:
            state.end_transaction(event)

    def _prepare(self, event: LogEvent) -> None:
        """Process an XA PREPARE: its rows count once it is committed; one phase does both."""
        xid, committed = prepared_id(event)
        transaction = self._state.ensure_transaction(event)
        if not committed:
            if transaction.tables & self._watched.nontransactional:
                names = ", ".join(sorted(transaction.tables & self._watched.nontransactional))
                raise Unsupported(
                    f"the XA transaction {xid} at {transaction.at} changes {names}, whose "
                    "engine is not transactional: its rows cannot be separated from others"
                )
            self._state.prepared[xid] = PreparedTransaction(
                transaction.at.file,
                transaction.at.pos,
                event.end,
                tuple(sorted(transaction.all_tables)),
            )
            transaction.skip = (
                [(transaction.at.file, transaction.at.pos, event.end)] if transaction.tables else []
            )
            transaction.tables = set()
            transaction.rows = 0
        self._state.end_transaction(event)

    def _statement(self, event: LogEvent) -> RelevantStatement | None:
        logged = statement(event)
        text = logged.text.decode("utf-8", "replace")
        transaction = self._state.ensure_transaction(event)
        if found := _SAVEPOINT.fullmatch(text):
            transaction.savepoints.append(
                (found[1], event.end, set(transaction.tables), transaction.rows)
            )
        elif found := _ROLLBACK_TO.fullmatch(text):
            transaction.roll_back(
                found[1], self._state.file, event.end, self._watched.nontransactional
            )
        elif _ROLLBACK.fullmatch(text) or _COMMIT.fullmatch(text):
            if not _COMMIT.fullmatch(text):
                transaction.roll_back(
                    None, self._state.file, event.end, self._watched.nontransactional
                )
            self._state.end_transaction(event)
        elif decided := decision(text):
            return self._finish_xa(event, *decided)
        elif _BEGIN.fullmatch(text):
            transaction.open = True
        else:
            return self._check_statement(event)
        return None

    def _check_statement(self, event: LogEvent) -> RelevantStatement | None:
        found = relevant_statement(statement(event), self._watched)
        if found is not None:
            self._state.altered |= set(found.unread)
            if found.paths:
                return found
        if not self._state.ensure_transaction(event).open:
            self._state.end_transaction(event)
        return None

    def _finish_xa(self, event: LogEvent, xid: str, committed: bool) -> RelevantStatement | None:
        state = self._state
        prepared = state.prepared.pop(xid, None)
        if committed and prepared is None and self._watched.tables:
            prepared = self._watched.find_prepared(xid, LogPosition(state.file, event.begin))
            if prepared is None:
                text = (
                    f"XA COMMIT {xid}, of a transaction that was prepared before the oldest "
                    "log of the server"
                )
                return RelevantStatement(
                    TableStatement(Effect.ROWS, (), text, lists_all=False),
                    tuple(self._watched.tables),
                )
        if committed and prepared is not None:
            touched = {
                path for name in prepared.tables if (path := self._watched.path(name)) is not None
            }
            if touched:
                transaction = state.ensure_transaction(event)
                transaction.tables |= touched
                transaction.rows += 1 + (prepared.end - prepared.begin) // _ROW_BYTES_GUESS
                state.also.append(
                    (
                        LogPosition(state.file, event.end),
                        (prepared.file, prepared.begin, prepared.end),
                    )
                )
        state.end_transaction(event)
        return None
