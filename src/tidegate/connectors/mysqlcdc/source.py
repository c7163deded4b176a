"""MySQL-CDC: snapshot and binary log of MariaDB and MySQL.

Called by the engine through plugin.contract. A position is what document.py describes: a byte of a
file of one server, and all transactions before it by their global ids. After a failover to a
replica, the position is found there by the ids. Columns are recorded as in binlog_definition.py;
the definition of a table is its engine.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from tidegate.connectors.mysqlcdc import document
from tidegate.connectors.mysqlcdc.server_checks import FILTERS_OPTION, check_settings
from tidegate.connectors.mysqlcdc.server_log import ServerLog
from tidegate.connectors.mysqlcdc.table_changes import ChangeDecidingSource
from tidegate.connectors.mysqlcdc.traits import (
    CASCADES_OPTION,
    check_cascades,
    has_side_effects,
    traits_of,
    versioned_tables,
)
from tidegate.databases.cdc.errors import NoTables, PositionGone, TableChanged
from tidegate.databases.cdc.progress import is_done
from tidegate.databases.cdc.selection import CdcTable, chosen_databases
from tidegate.databases.cdc.source import CdcSource
from tidegate.databases.cdc.window import LogWindow
from tidegate.databases.errors import TransientDatabaseError
from tidegate.databases.mysql.binlog_ddl import Effect
from tidegate.databases.mysql.binlog_definition import (
    is_complete,
    known_charset,
    recorded,
)
from tidegate.databases.mysql.binlog_errors import LayoutChanged, LogReplaced
from tidegate.databases.mysql.binlog_gtid import GtidSet
from tidegate.databases.mysql.binlog_position import LogPosition
from tidegate.databases.mysql.binlog_reader import read_range
from tidegate.databases.mysql.binlog_rows import LogTable
from tidegate.databases.mysql.binlog_scan import (
    Part,
    RangeStop,
    ReadRange,
    ScanLimit,
    ScanResult,
    ScanStart,
    scan,
)
from tidegate.databases.mysql.binlog_statements import WatchedTables
from tidegate.databases.mysql.binlog_xa import PreparedTransaction, find_prepared
from tidegate.databases.mysql.dialect import MySqlDialect
from tidegate.databases.mysql.session import connect
from tidegate.databases.reconnect import retry_connect
from tidegate.databases.session import Session, open_session
from tidegate.databases.url import System
from tidegate.plugin.contract import Limit, LogRetention, Offset, OperatorContext
from tidegate.plugin.javaregex import compile_for_names
from tidegate.plugin.option import Values

VISIBLE_WAIT_S = 30.0
PAUSE_S = 0.02
PAST_START_MODES = ("earliest", "specific", "timestamp")
_COLLATIONS = (
    (
        "select id, character_set_name from"
        " information_schema.collation_character_set_applicability where id is not null"
    ),
    "select id, character_set_name from information_schema.collations where id is not null",
)


class MySqlCdcSource(ChangeDecidingSource):
    system = System.MYSQL

    def __init__(self, values: Values, context: OperatorContext) -> None:
        super().__init__(values, context)
        self.dialect = MySqlDialect(time_as_text=bool(values["time-as-text"]))
        self._history_checked = False  # whether the first position was compared with the log

    def session(self) -> Session:
        return retry_connect(
            lambda: open_session(self.address), int(self.values["connect.max-retries"])
        )

    def _log_connection(self) -> Any:
        return retry_connect(
            lambda: connect(replace(self.address, database="")),
            int(self.values["connect.max-retries"]),
        )

    def _server(self, session: Session) -> ServerLog:
        return ServerLog(session, self._log_connection)

    # Checks before anything is read.

    def check_server(self, session: Session) -> None:
        """Check the settings of the server.

        CDC needs row events with full images, of all changes. Tables with system versioning are
        rejected.
        """
        check_settings(
            session,
            lambda: chosen_databases(session, self.dialect, self.values),
            filters_accepted=bool(self.values[FILTERS_OPTION]),
        )
        named = {str(text).lower() for text in self.values.get("table-names") or ()}
        pattern = (
            compile_for_names(str(self.values["table-pattern"]))
            if self.values.get("table-pattern")
            else None
        )
        versioned = [
            p
            for p in versioned_tables(session)
            if p.lower() in named or (pattern is not None and pattern.fullmatch(p))
        ]
        if versioned:
            raise NoTables(
                f"{', '.join(versioned)} keeps former versions of its rows (WITH SYSTEM "
                "VERSIONING), which the log does not distinguish from rows: such a table "
                "cannot be read. Leave it out of table-names or table-pattern, or drop the "
                "versioning"
            )

    @cached_property
    def cdc_tables(self) -> dict[str, CdcTable]:
        """The tables that are read, by path; none of them may change without being logged."""
        found = CdcSource.cdc_tables.func(self)  # type: ignore[attr-defined]  # a cached_property
        if self.values[CASCADES_OPTION] != "ignore":
            with self.session() as session:
                check_cascades(session, [c.info.name for c in found.values()])
        return dict(found)

    @cached_property
    def _folds_case(self) -> bool:
        """Whether the server ignores case in names of tables."""
        with self.session() as session:
            return int(session.scalar("select @@global.lower_case_table_names")) != 0

    @cached_property
    def _charsets(self) -> dict[int, str]:
        """The character set of each collation, by the numbers of the server."""
        with self.session() as session:
            is_mariadb = "mariadb" in str(session.scalar("select version()")).lower()
            return {
                int(number): str(name)
                for number, name in session.query(_COLLATIONS[0 if is_mariadb else 1])
            }

    # Start and end of the log.

    def initial(self) -> Offset:
        """Return the first offset, with the engines of the tables.

        A start in the past is rejected if a table was altered since.
        """
        offset = super().initial()
        with self.session() as session:
            for path, definition in self._definitions(session, offset).items():
                offset["tables"][path]["definition"] = definition
            if self.values["startup.mode"] in PAST_START_MODES:
                self._check_past(session, offset)
        return offset

    def start_position(self, session: Session) -> dict[str, Any]:
        server = self._server(session)
        match self.values["startup.mode"]:
            case "earliest":
                return server.first()
            case "specific":
                return server.at(
                    LogPosition(
                        self.values["startup.specific-offset.file"],
                        int(self.values["startup.specific-offset.pos"]),
                    )
                )
            case "timestamp":
                return server.at_time(int(self.values["startup.timestamp"]) // 1000)
            case _:
                return server.now()

    def stop_position(self, session: Session) -> dict[str, Any] | None:
        match self.values["stop.mode"]:
            case "latest":
                return self._server(session).now()
            case "specific":
                return document.position_document(
                    LogPosition(
                        self.values["stop.specific-offset.file"],
                        int(self.values["stop.specific-offset.pos"]),
                    )
                )
            case _:
                return None

    def current_position(self, session: Session) -> dict[str, Any]:
        """Return the end of the log.

        Transactions are in the log before they are visible, so a finished read has seen nothing
        after it.
        """
        return self._server(session).end()

    def has_reached(self, log: Mapping[str, Any], stop: Mapping[str, Any]) -> bool:
        """Compare by file and position; positions of two servers by transactions."""
        if log.get("server", stop.get("server")) != stop.get("server", log.get("server")):
            return GtidSet(log.get("gtid", "")).covers(GtidSet(stop.get("gtid", "")))
        return LogPosition.of(dict(log)).key >= LogPosition.of(dict(stop)).key

    def _check_past(self, session: Session, offset: Offset) -> None:
        """Raise TableChanged if a table was altered after the start position.

        Columns are those of the current catalogue, which older rows would not fit.
        """
        server, log = self._server(session), offset["log"]
        start = ScanStart(at=LogPosition.of(log), gtid=log.get("gtid", ""))
        while True:
            found = scan(
                self._log_connection, start, self._watched(session, server, offset), ScanLimit()
            )
            if found.change is not None and found.change.change.statement.effect in (
                Effect.ALTER,
                Effect.ADD_COLUMN,
                Effect.DIFFERS,
                Effect.MODIFY,
            ):
                text = (
                    f"{found.change.change.statement.text} (startup.mode begins before it, "
                    "and rows before it do not fit the current columns: begin after it)"
                )
                raise TableChanged(found.change.change.paths[0], text, str(found.change.at))
            if found.caught_up or found.end.key <= start.at.key:
                return
            start = ScanStart(at=found.end, gtid=found.gtid, prepared=found.prepared)

    # The next range.

    def next_window(self, session: Session, start: Offset, limit: Limit) -> LogWindow:
        """Return the next range of the log, which ends where a transaction ends."""
        server, log = self._server(session), start["log"]
        at = server.local_position(log)
        retention = server.retention_at(at, log)
        if not retention.held:
            raise PositionGone(
                retention.position or str(at), retention.oldest or server.oldest, retention.reason
            )
        if not self._history_checked:
            server.check_history(log)
        self._history_checked = True
        until = ScanLimit(
            rows=limit.rows,
            bytes=limit.bytes,
            position=server.local_position(start["stop"]) if "stop" in start else None,
        )
        watched = self._watched(session, server, start)
        begin = ScanStart(
            at=at,
            gtid=log.get("gtid", ""),
            mark=server.mark(log),
            prepared=document.prepared_of(log),
        )
        try:
            found = scan(self._log_connection, begin, watched, until)
        except LogReplaced as error:
            raise PositionGone(str(at), server.oldest, str(error)) from None
        decisions = self._check_keys(start, found, watched)
        if found.change is not None:
            self._decide_changes(session, start, found, watched, decisions)
        decisions.columns |= self._refreshed(session, start, found)
        if any(not is_done(t["read"]) for t in start["tables"].values()):
            self._wait_until_visible(session, found)
        crossed = found.end.file != log["file"] or at != LogPosition.of(log)
        return LogWindow(
            log=document.range_end_document(
                found, server.server, watched.nontransactional, folds_case=watched.folds_case
            ),
            touched=found.tables - decisions.reread,
            caught_up=(
                found.caught_up
                or (until.position is not None and found.end.key >= until.position.key)
            )
            and found.change is None,
            idle_bytes=1 << 62 if crossed or found.change is not None else found.bytes,
            columns=decisions.columns,
            reread=frozenset(decisions.reread),
            definitions=self._definitions(session, start),
        )

    def _watched(self, session: Session, server: ServerLog, start: Offset) -> WatchedTables:
        """Return what the scan of the log needs to know of the tables."""
        del session
        read = {p: t for p, t in start["tables"].items() if p in self.cdc_tables}
        engines = {
            p: str(t["definition"]["engine"]) for p, t in read.items() if t.get("definition")
        }
        nontransactional = [
            p
            for p, t in read.items()
            if t.get("definition") and not t["definition"]["transactional"]
        ]
        return WatchedTables(
            tables={p: recorded(t["columns"]) for p, t in read.items() if t["read"] is not None},
            unread=frozenset(p for p, t in read.items() if t["read"] is None),
            nontransactional=frozenset(nontransactional),
            engines=engines,
            folds_case=self._folds_case,
            stop_at_create=self.values["startup.mode"] not in PAST_START_MODES,
            charset=lambda collation: self._charsets.get(collation) or known_charset(collation),
            has_side_effects=self._has_side_effects,
            find_prepared=lambda xid, before: self._find_prepared(server, xid, before),
        )

    def _has_side_effects(self, tables: Sequence[tuple[str, str | None]], text: str) -> bool:
        with self.session() as session:
            return has_side_effects(session, tables, text)

    def _find_prepared(
        self, server: ServerLog, xid: str, before: LogPosition
    ) -> PreparedTransaction | None:
        return find_prepared(
            self._log_connection, [name for name, _ in server.files()], before, xid
        )

    def _definitions(self, session: Session, start: Offset) -> dict[str, Any]:
        """Return the engines of tables whose engine is not recorded yet."""
        lacking = [
            self.cdc_tables[p].info.name
            for p, t in start["tables"].items()
            if p in self.cdc_tables and not t.get("definition")
        ]
        return {
            p: {"engine": t.engine, "transactional": t.transactional}
            for p, t in traits_of(session, lacking).items()
        }

    def _refreshed(
        self, session: Session, start: Offset, found: ScanResult
    ) -> dict[str, list[Any]]:
        """Return new columns by path.

        Tables of which nothing is read yet follow the catalogue; those that an older version
        recorded get what it did not record.
        """
        refreshed: dict[str, list[Any]] = {}
        for path, entry in start["tables"].items():
            if path not in self.cdc_tables:
                continue
            if path in found.altered:
                info = self.dialect.table_info(session, self.cdc_tables[path].info.name)
                refreshed |= (
                    {path: self.columns_of(replace(self.cdc_tables[path], info=info))}
                    if info is not None
                    else {}
                )
            elif not is_complete(recorded(entry["columns"])):
                now = self.columns_of(self.cdc_tables[path])
                if [c[:3] for c in now] == [c[:3] for c in entry["columns"]]:
                    refreshed[path] = now
        return refreshed

    def _wait_until_visible(self, session: Session, found: ScanResult) -> None:
        """Wait until all commits of the range are visible.

        A commit is in the log a moment before others can see it: chunks of this range must not be
        read in that moment.
        """
        deadline_s = time.monotonic() + VISIBLE_WAIT_S
        while not self._is_visible(session, found):
            if time.monotonic() > deadline_s:
                raise TransientDatabaseError(
                    str(self.address),
                    "a transaction is committed in the log and not visible yet; check "
                    "whether a semi-synchronous replica is missing",
                )
            time.sleep(PAUSE_S)  # until the commit becomes visible

    def _is_visible(self, session: Session, found: ScanResult) -> bool:
        """Return whether a new read sees all transactions of the range.

        MariaDB shows the position of a snapshot; MySQL, which transactions are done, if they have
        global ids.
        """
        if ":" in found.gtid:
            return bool(
                session.scalar("select gtid_subset(%s, @@global.gtid_executed)", (found.gtid,))
            )
        session.execute("start transaction with consistent snapshot")
        try:
            snapshot: dict[str, str] = dict(session.query("show status like 'binlog_snapshot_%'"))
        finally:
            session.rollback()
        file = snapshot.get("Binlog_snapshot_file")
        return (
            not file
            or LogPosition(str(file), int(snapshot["Binlog_snapshot_position"])).key
            >= found.end.key
        )

    # Reads in tasks.

    def read_log(
        self, start: Mapping[str, Any], end: Mapping[str, Any], columns: Mapping[str, list[Any]]
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the changes of these tables, even if the server of the range no longer exists."""
        nontransactional, folds_case = (
            set(start.get("kept", ())) | set(end.get("kept", ())),
            bool(start.get("folds") or end.get("folds")),
        )
        recorded_columns = {p: recorded(c) for p, c in columns.items()}
        tables = {
            p: LogTable(
                columns=c,
                table=self.cdc_tables[p].table,
                rolled_back=p not in nontransactional,
                folds_case=folds_case,
            )
            for p, c in recorded_columns.items()
        }
        with self.session() as session:
            server = self._server(session)
            first, last, mark = (
                server.local_position(start),
                server.local_position(end),
                server.mark(start),
            )
            parts = (
                document.read_range_of(end)
                if server.server.wrote(start) and server.server.wrote(end)
                else None
            )
            if parts is None:
                watched = WatchedTables(
                    tables=recorded_columns,
                    nontransactional=frozenset(nontransactional),
                    folds_case=folds_case,
                    find_prepared=lambda xid, before: self._find_prepared(server, xid, before),
                )
                parts = self._plan_read(
                    ScanStart(at=first, mark=mark, prepared=document.prepared_of(start)),
                    last,
                    watched,
                )
        return read_range(self._log_connection, first, last, tables, mark=mark, parts=parts)

    def _plan_read(self, start: ScanStart, end: LogPosition, watched: WatchedTables) -> ReadRange:
        """Return how to read a range that was not scanned.

        So it is with a range up to now, for a chunk, or one of another server.
        """
        skip: list[Part] = []
        also: list[tuple[LogPosition, Part]] = []
        while start.at.key < end.key:
            found = scan(self._log_connection, start, watched, ScanLimit(position=end))
            if found.change is not None and found.change.change.statement.effect is Effect.DIFFERS:
                raise LayoutChanged(_altered_since(found.change))
            skip += found.read_range.skip
            also += found.read_range.also
            if found.end.key <= start.at.key:
                break
            start = ScanStart(at=found.end, mark=found.mark, prepared=found.prepared)
        return ReadRange(skip=tuple(skip), also=tuple(also))

    def log_retention(self, offset: Offset) -> LogRetention:
        """Return whether the log of the offset is still available, and what is the oldest."""
        with self.session() as session:
            return self._server(session).log_retention(offset["log"])


def _altered_since(change: RangeStop) -> str:
    return (
        f"{change.change.paths[0]} was altered at {change.at}, while it was read: "
        f"{change.change.statement.text}. Restart the job"
    )
