"""MySQL-CDC: the binary log of MariaDB and MySQL as the log of a CaptureSource. Called by the
engine through plugin.contract.

A position is what document.py says: a byte of a file of one server, and all transactions before it
by their global ids. Where another server answers, a replica that took over, the place is found
there by the ids. Columns are as binlog/definition.py has them; the definition of a table is its
engine.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import pyarrow as pa

from tidegate.connectors.mysqlcdc import document
from tidegate.connectors.mysqlcdc.column_defaults import filled, why_not
from tidegate.connectors.mysqlcdc.decisions import ChangedTable, Decisions
from tidegate.connectors.mysqlcdc.server_checks import FILTERS_OPTION, check_settings
from tidegate.connectors.mysqlcdc.server_log import ServerLog
from tidegate.connectors.mysqlcdc.traits import (
    CASCADES_OPTION,
    check_cascades,
    does_more,
    traits_of,
    versioned_tables,
)
from tidegate.databases.catalog import TableInfo
from tidegate.databases.cdc.column_defaults import ColumnDefaults
from tidegate.databases.cdc.errors import NoTables, PositionGone, TableChanged
from tidegate.databases.cdc.progress import is_done
from tidegate.databases.cdc.selection import CdcTable, chosen_databases
from tidegate.databases.cdc.source import CdcSource, LogWindow
from tidegate.databases.errors import DatabaseTrouble
from tidegate.databases.mysql.binlog_ddl import Effect
from tidegate.databases.mysql.binlog_definition import (
    Recorded,
    RecordedColumn,
    is_whole,
    key_of,
    known_charset,
    recorded,
)
from tidegate.databases.mysql.binlog_errors import LayoutChanged, LogReplaced
from tidegate.databases.mysql.binlog_gtid import GtidSet
from tidegate.databases.mysql.binlog_position import LogPosition
from tidegate.databases.mysql.binlog_reader import read_range
from tidegate.databases.mysql.binlog_row_layout import log_columns
from tidegate.databases.mysql.binlog_rows import LogTable
from tidegate.databases.mysql.binlog_scan import (
    Part,
    RangeStop,
    ReadRange,
    Scanned,
    ScanStart,
    Until,
    scan,
)
from tidegate.databases.mysql.binlog_statements import Watched
from tidegate.databases.mysql.binlog_xa import PreparedTransaction, find_prepared
from tidegate.databases.mysql.dialect import MySqlDialect
from tidegate.databases.mysql.session import connect
from tidegate.databases.patience import retry_transient
from tidegate.databases.session import Session, open_session
from tidegate.databases.url import System
from tidegate.model.table_changes import ChangeChoice
from tidegate.plugin.contract import Limit, LogRetention, Offset, OperatorContext
from tidegate.plugin.javaregex import for_names
from tidegate.plugin.option import Values

SEEN_WAIT_S = 30.0
PAUSE_S = 0.02
PAST_MODES = ("earliest", "specific", "timestamp")
_COLLATIONS = (
    (
        "select id, character_set_name from"
        " information_schema.collation_character_set_applicability where id is not null"
    ),
    "select id, character_set_name from information_schema.collations where id is not null",
)


class MySqlCdcSource(CdcSource):
    system = System.MYSQL

    def __init__(self, values: Values, context: OperatorContext) -> None:
        super().__init__(values, context)
        self.dialect = MySqlDialect(time_as_text=bool(values["time-as-text"]))
        self._is_believed = False  # whether the first position was compared with the log

    def session(self) -> Session:
        return retry_transient(
            lambda: open_session(self.address), int(self.values["connect.max-retries"])
        )

    def _log_connection(self) -> Any:
        return retry_transient(
            lambda: connect(replace(self.address, database="")),
            int(self.values["connect.max-retries"]),
        )

    def _server(self, session: Session) -> ServerLog:
        return ServerLog(session, self._log_connection)

    # What is checked before anything is read.

    def check_server(self, session: Session) -> None:
        """Row events with whole images, of all changes, are needed, of tables that are read as they
        are.
        """
        check_settings(
            session,
            lambda: chosen_databases(session, self.dialect, self.values),
            filters_accepted=bool(self.values[FILTERS_OPTION]),
        )
        named = {str(text).lower() for text in self.values.get("table-names") or ()}
        pattern = (
            for_names(str(self.values["table-pattern"]))
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
                f"{', '.join(versioned)} keeps former versions of its rows (WITH SYSTEM"
                " VERSIONING), which the log does not tell from rows: such a table is not read."
                " Leave it out of table-names or table-pattern, or take the versioning away"
            )

    @cached_property
    def captured(self) -> dict[str, CdcTable]:
        """The tables that are read, by path; none of them may change without the log."""
        found = CdcSource.cdc_tables.func(self)  # type: ignore[attr-defined]  # the function of a cached property
        if self.values[CASCADES_OPTION] != "ignore":
            with self.session() as session:
                check_cascades(session, [c.info.name for c in found.values()])
        return dict(found)

    @cached_property
    def _folds(self) -> bool:
        """Whether the server ignores case in names of tables."""
        with self.session() as session:
            return int(session.one("select @@global.lower_case_table_names")) != 0

    @cached_property
    def _charsets(self) -> dict[int, str]:
        """The character set of each collation, by the server's own numbers."""
        with self.session() as session:
            is_mariadb = "mariadb" in str(session.one("select version()")).lower()
            return {
                int(number): str(name)
                for number, name in session.query(_COLLATIONS[0 if is_mariadb else 1])
            }

    # Where the log begins and ends.

    def initial(self) -> Offset:
        """With the engines of the tables; a start in the past is refused where a table was altered
        since.
        """
        offset = super().initial()
        with self.session() as session:
            for path, definition in self._definitions(session, offset).items():
                offset["tables"][path]["definition"] = definition
            if self.values["startup.mode"] in PAST_MODES:
                self._check_past(session, offset)
        return offset

    def log_begin(self, session: Session) -> dict[str, Any]:
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

    def log_stop(self, session: Session) -> dict[str, Any] | None:
        match self.values["stop.mode"]:
            case "latest":
                return self._server(session).now()
            case "specific":
                return document.plain(
                    LogPosition(
                        self.values["stop.specific-offset.file"],
                        int(self.values["stop.specific-offset.pos"]),
                    )
                )
            case _:
                return None

    def log_now(self, session: Session) -> dict[str, Any]:
        """The end of the log: a read that has ended has seen nothing after it, as transactions are
        in the log before they can be seen.
        """
        return self._server(session).end()

    def passed(self, log: Mapping[str, Any], stop: Mapping[str, Any]) -> bool:
        """By file and position; where they are of two servers, by transactions."""
        if log.get("server", stop.get("server")) != stop.get("server", log.get("server")):
            return GtidSet(log.get("gtid", "")).covers(GtidSet(stop.get("gtid", "")))
        return LogPosition.of(dict(log)).key >= LogPosition.of(dict(stop)).key

    def _check_past(self, session: Session, offset: Offset) -> None:
        """Columns are taken from the catalogue of now: rows before a statement that altered them
        would be read by the wrong ones.
        """
        server, log = self._server(session), offset["log"]
        start = ScanStart(at=LogPosition.of(log), gtid=log.get("gtid", ""))
        while True:
            found = scan(
                self._log_connection, start, self._watched(session, server, offset), Until()
            )
            if found.change is not None and found.change.judged.statement.effect in (
                Effect.ALTER,
                Effect.ADD_COLUMN,
                Effect.DIFFERS,
                Effect.MODIFY,
            ):
                text = (
                    f"{found.change.judged.statement.text} (startup.mode begins before it, where"
                    " rows cannot be read by the columns of now: begin after it)"
                )
                raise TableChanged(found.change.judged.paths[0], text, str(found.change.at))
            if found.caught_up or found.end.key <= start.at.key:
                return
            start = ScanStart(at=found.end, gtid=found.gtid, prepared=found.prepared)

    # The next range.

    def next_window(self, session: Session, start: Offset, limit: Limit) -> LogWindow:
        """Where transactions end in the log after the start."""
        server, log = self._server(session), start["log"]
        at = server.here(log)
        held = server.held(at, log)
        if not held.held:
            raise PositionGone(held.position or str(at), held.oldest or server.oldest, held.reason)
        if not self._is_believed:
            server.check_history(log)
        self._is_believed = True
        until = Until(
            rows=limit.rows,
            bytes=limit.bytes,
            position=server.here(start["stop"]) if "stop" in start else None,
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
            self._decide(session, start, found, watched, decisions)
        decisions.columns |= self._refreshed(session, start, found)
        if any(not is_done(t["read"]) for t in start["tables"].values()):
            self._wait_until_seen(session, found)
        crossed = found.end.file != log["file"] or at != LogPosition.of(log)
        return LogWindow(
            log=document.scanned(found, server.server, watched.kept, folds=watched.folds),
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

    def _watched(self, session: Session, server: ServerLog, start: Offset) -> Watched:
        """What the look at the log must know of the tables."""
        del session
        read = {p: t for p, t in start["tables"].items() if p in self.captured}
        engines = {
            p: str(t["definition"]["engine"]) for p, t in read.items() if t.get("definition")
        }
        kept = [
            p
            for p, t in read.items()
            if t.get("definition") and not t["definition"]["transactional"]
        ]
        return Watched(
            tables={p: recorded(t["columns"]) for p, t in read.items() if t["read"] is not None},
            waiting=frozenset(p for p, t in read.items() if t["read"] is None),
            kept=frozenset(kept),
            engines=engines,
            folds=self._folds,
            creates=self.values["startup.mode"] not in PAST_MODES,
            charset=lambda collation: self._charsets.get(collation) or known_charset(collation),
            hidden=self._does_more,
            search=lambda xid, before: self._find_prepared(server, xid, before),
        )

    def _does_more(self, tables: Sequence[tuple[str, str | None]], text: str) -> bool:
        with self.session() as session:
            return does_more(session, tables, text)

    def _find_prepared(
        self, server: ServerLog, xid: str, before: LogPosition
    ) -> PreparedTransaction | None:
        return find_prepared(
            self._log_connection, [name for name, _ in server.files()], before, xid
        )

    def _definitions(self, session: Session, start: Offset) -> dict[str, Any]:
        """The engines of tables of which none is recorded yet."""
        lacking = [
            self.captured[p].info.name
            for p, t in start["tables"].items()
            if p in self.captured and not t.get("definition")
        ]
        return {
            p: {"engine": t.engine, "transactional": t.transactional}
            for p, t in traits_of(session, lacking).items()
        }

    def _refreshed(self, session: Session, start: Offset, found: Scanned) -> dict[str, list[Any]]:
        """Tables of which nothing is read yet follow the catalogue; those that an older version
        recorded get what it did not.
        """
        fresh: dict[str, list[Any]] = {}
        for path, entry in start["tables"].items():
            if path not in self.captured:
                continue
            if path in found.altered:
                info = self.dialect.table_info(session, self.captured[path].info.name)
                fresh |= (
                    {path: self.columns_of(replace(self.captured[path], info=info))}
                    if info is not None
                    else {}
                )
            elif not is_whole(recorded(entry["columns"])):
                now = self.columns_of(self.captured[path])
                if [c[:3] for c in now] == [c[:3] for c in entry["columns"]]:
                    fresh[path] = now
        return fresh

    def _wait_until_seen(self, session: Session, found: Scanned) -> None:
        """A commit is in the log a moment before others can see it: chunks of this range must not
        be read in that moment.
        """
        deadline_s = time.monotonic() + SEEN_WAIT_S
        while not self._is_seen(session, found):
            if time.monotonic() > deadline_s:
                raise DatabaseTrouble(
                    str(self.address),
                    "a transaction is committed in the log and not visible yet; is a"
                    " semi-synchronous replica missing?",
                )
            time.sleep(PAUSE_S)  # the commit becomes visible

    def _is_seen(self, session: Session, found: Scanned) -> bool:
        """MariaDB tells the position of a snapshot; MySQL, which transactions are done, where they
        have global numbers.
        """
        if ":" in found.gtid:
            return bool(
                session.one("select gtid_subset(%s, @@global.gtid_executed)", (found.gtid,))
            )
        session.execute("start transaction with consistent snapshot")
        try:
            place: dict[str, str] = dict(session.query("show status like 'binlog_snapshot_%'"))
        finally:
            session.rollback()
        file = place.get("Binlog_snapshot_file")
        return (
            not file
            or LogPosition(str(file), int(place["Binlog_snapshot_position"])).key >= found.end.key
        )

    # Changes of tables.

    def _decide(
        self,
        session: Session,
        start: Offset,
        found: Scanned,
        watched: Watched,
        decisions: Decisions,
    ) -> None:
        """What becomes of every table that the change means; TableChanged where nobody has decided
        about one.
        """
        assert found.change is not None
        change = found.change.judged.statement
        if (
            change.altered is not None
            and change.altered.cascades
            and self.values[CASCADES_OPTION] != "ignore"
        ):
            check_cascades(session, [c.info.name for c in self.captured.values()])
        for path in found.change.judged.paths:
            info = self.dialect.table_info(session, self.captured[path].info.name)
            now = (
                None
                if info is None
                else recorded(self.columns_of(replace(self.captured[path], info=info)))
            )
            at = (
                str(found.change.at) if info is not None else self.position_text(start["log"])
            )  # as the next start names a table that is gone
            changed = ChangedTable(
                path=path,
                recorded=watched.tables[path],
                now=now,
                change=change,
                at=at,
                accepted=self.accepted(path, at),
                is_settled=partial(self._is_settled, path, found, watched),
            )
            if changed.passes():
                continue
            if info is not None and change.effect is Effect.ADD_COLUMN and changed.accepted is None:
                self._add_columns(
                    session,
                    changed,
                    info,
                    decisions,
                    partial(self._is_last, path, found, watched, now),
                )
            else:
                changed.decide(decisions)

    def _add_columns(
        self,
        session: Session,
        changed: ChangedTable,
        info: TableInfo,
        decisions: Decisions,
        is_last: Callable[[], bool],
    ) -> None:
        """Carry added columns on: as the catalogue has them, where the columns of before are as
        they were and rows of before can get theirs.

        The catalogue may be ahead of the log: what later statements add is left for them.
        """
        known = {c.log.name.lower() for c in changed.recorded}
        names = known | {column.name.lower() for column in changed.change.added}
        now = tuple(c for c in changed.now or () if c.log.name.lower() in names)
        if now == changed.recorded and len(names) == len(known):
            return  # IF NOT EXISTS
        if (
            len(now) != len(names)
            or not self.values["schema-changes.enabled"]
            or tuple(c for c in now if c.log.name.lower() in known) != changed.recorded
        ):
            changed.decide(decisions)
            return
        types = {c.name: self.dialect.data_type(c) for c in info.columns}
        captured = replace(self.captured[changed.path], info=info, table=info.as_table(types))
        both = {c.name: (types[c.name], c.native) for c in info.columns}
        if why := why_not(changed.change, known, filled(session, captured), both, is_last):
            changed.decide(decisions, why)
            return
        decisions.columns[changed.path] = [c.json() for c in now]

    def _is_settled(self, path: str, found: Scanned, watched: Watched, columns: Recorded) -> bool:
        """Whether the log from a change on describes a table as the catalogue does, and no
        statement alters it again.
        """
        ahead = replace(watched, tables={path: columns}, waiting=frozenset())
        start = ScanStart(at=found.end, gtid=found.gtid, mark=found.mark, prepared=found.prepared)
        while True:
            later = scan(self._log_connection, start, ahead, Until())
            if later.change is not None and later.change.judged.statement.effect not in (
                Effect.TRUNCATE,
                Effect.ROWS,
                Effect.UNKNOWN,
            ):
                return False
            if later.caught_up or later.end.key <= start.at.key:
                return True
            start = ScanStart(
                at=later.end, gtid=later.gtid, mark=later.mark, prepared=later.prepared
            )

    def _is_last(
        self, path: str, found: Scanned, watched: Watched, columns: Recorded | None
    ) -> bool:
        """Whether no statement about a table follows in the log."""
        ahead = replace(
            watched, tables={path: columns or watched.tables[path]}, waiting=frozenset(), every=True
        )
        start = ScanStart(at=found.end, gtid=found.gtid, mark=found.mark, prepared=found.prepared)
        while True:
            later = scan(self._log_connection, start, ahead, Until())
            if later.change is not None:
                return False
            if later.caught_up:
                return True
            start = ScanStart(
                at=later.end, gtid=later.gtid, mark=later.mark, prepared=later.prepared
            )

    def _check_keys(self, start: Offset, found: Scanned, watched: Watched) -> Decisions:
        """Rows flow with the key that the catalogue had when the pipeline was built: it cannot tell
        rows apart that were written under another.

        That is so where the key was changed while the job was stopped, and rows before that. The
        statement is ahead in the log.
        """
        decisions, at = Decisions(), self.position_text(start["log"])
        for path in found.tables:
            was, now = key_of(watched.tables[path]), self.captured[path].table.primary_key
            if was == now or not is_whole(watched.tables[path]):
                continue
            if self.accepted(path, at) is not ChangeChoice.REREAD:
                text = (
                    f"rows were changed while its key was ({', '.join(was)}), and it is"
                    f" ({', '.join(now)}) now"
                )
                raise TableChanged(path, text, at, choices=(ChangeChoice.REREAD,))
            decisions.columns[path] = self.columns_of(self.captured[path])
            decisions.reread.add(path)
        return decisions

    def filled(self, session: Session, captured: CdcTable) -> ColumnDefaults:
        return filled(session, captured)

    def columns_of(self, captured: CdcTable) -> list[Any]:
        info, configured = captured.info, self._configured_key(captured.info.name.path)
        key = configured or info.primary_key or info.unique_key
        sign = 1 if key == info.primary_key else -1
        found = []
        for column, logged in zip(info.columns, log_columns(info), strict=True):
            place = sign * (key.index(column.name) + 1) if column.name in key else 0
            found.append(RecordedColumn(logged, column.nullable, place).json())
        return found

    def _configured_key(self, path: str) -> tuple[str, ...]:
        configs = [
            c
            for c in self.values.get("table-names-config") or ()
            if isinstance(c, Mapping) and c.get("table") == path
        ]
        return tuple(str(c) for config in configs for c in config.get("primaryKeys") or ())

    # What tasks read.

    def read_log(
        self, start: Mapping[str, Any], end: Mapping[str, Any], columns: Mapping[str, list[Any]]
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The changes of these tables; also of a range that was fixed on a server which is no more."""
        kept, folds = (
            set(start.get("kept", ())) | set(end.get("kept", ())),
            bool(start.get("folds") or end.get("folds")),
        )
        known = {p: recorded(c) for p, c in columns.items()}
        tables = {
            p: LogTable(columns=c, table=self.captured[p].table, undone=p not in kept, folds=folds)
            for p, c in known.items()
        }
        with self.session() as session:
            server = self._server(session)
            first, last, mark = server.here(start), server.here(end), server.mark(start)
            taken = (
                document.taken_of(end)
                if server.server.wrote(start) and server.server.wrote(end)
                else None
            )
            if taken is None:
                watched = Watched(
                    tables=known,
                    kept=frozenset(kept),
                    folds=folds,
                    search=lambda xid, before: self._find_prepared(server, xid, before),
                )
                taken = self._taken(
                    ScanStart(at=first, mark=mark, prepared=document.prepared_of(start)),
                    last,
                    watched,
                )
        return read_range(self._log_connection, first, last, tables, mark=mark, taken=taken)

    def _taken(self, start: ScanStart, end: LogPosition, watched: Watched) -> ReadRange:
        """How a range is read that nobody has looked at: up to now, for a chunk, or on another
        server.
        """
        skip: list[Part] = []
        also: list[tuple[LogPosition, Part]] = []
        while start.at.key < end.key:
            found = scan(self._log_connection, start, watched, Until(position=end))
            if found.change is not None and found.change.judged.statement.effect is Effect.DIFFERS:
                raise LayoutChanged(_altered_since(found.change))
            skip += found.taken.skip
            also += found.taken.also
            if found.end.key <= start.at.key:
                break
            start = ScanStart(at=found.end, mark=found.mark, prepared=found.prepared)
        return ReadRange(skip=tuple(skip), also=tuple(also))

    def log_retention(self, offset: Offset) -> LogRetention:
        """Whether the file is still there, and which is the oldest."""
        with self.session() as session:
            return self._server(session).log_retention(offset["log"])


def _altered_since(change: RangeStop) -> str:
    return (
        f"{change.judged.paths[0]} was altered at {change.at}, while it was read:"
        f" {change.judged.statement.text}. Start the job again"
    )
