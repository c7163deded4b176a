"""MySQL-CDC: the binary log of MariaDB and MySQL as the log of a CaptureSource. Called by the engine through plugin.contract.

A position is {"file", "pos", "gtid", "server"}: a byte of a file of one server, and all transactions before it by their global ids. Where another server
answers, a replica that took over, the place is found there by the ids. Columns are [name, type, character set], as the catalogue had them at that position.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tidegate.connectors.mysqlcdc.filled import filled, why_not
from tidegate.connectors.mysqlcdc.server_checks import FILTERS_OPTION, check_settings
from tidegate.databases.binlog.ddl import Effect, TableStatement
from tidegate.databases.binlog.errors import LogBehind
from tidegate.databases.binlog.failover import begins_with, find
from tidegate.databases.binlog.gtid import GtidSet
from tidegate.databases.binlog.layout import columns_of, log_columns
from tidegate.databases.binlog.position import FIRST, Position
from tidegate.databases.binlog.reader import read_range
from tidegate.databases.binlog.rows import LogTable
from tidegate.databases.binlog.scan import Scanned, Until, scan
from tidegate.databases.capture.errors import NotSetUp, PositionGone, TableChanged
from tidegate.databases.capture.filled import Filled
from tidegate.databases.capture.progress import is_done
from tidegate.databases.capture.selection import CaptureTable, chosen_databases
from tidegate.databases.capture.source import CaptureSource, Look
from tidegate.databases.errors import DatabaseTrouble, StatementRefused
from tidegate.databases.mysql import connect
from tidegate.databases.mysql_dialect import MySqlDialect
from tidegate.databases.patience import patiently
from tidegate.databases.session import Session, open_session
from tidegate.databases.url import System
from tidegate.plugin.contract import Limit, Offset, OperatorContext, Runway
from tidegate.plugin.option import Values

SEEN_WAIT_S = 30.0
PAUSE_S = 0.02


class MySqlCdcSource(CaptureSource):
    """Snapshot and binary log."""

    system = System.MYSQL

    def __init__(self, values: Values, context: OperatorContext) -> None:
        super().__init__(values, context)
        self.dialect = MySqlDialect(time_as_text=bool(values["time-as-text"]))

    def session(self) -> Session:
        """A connection."""
        return patiently(lambda: open_session(self.address), int(self.values["connect.max-retries"]))

    def _log_connection(self) -> Any:
        return patiently(lambda: connect(replace(self.address, database="")), int(self.values["connect.max-retries"]))

    def check_server(self, session: Session) -> None:
        """Row events with whole images, of all changes, are needed."""
        check_settings(session, lambda: chosen_databases(session, self.dialect, self.values), filters_accepted=bool(self.values[FILTERS_OPTION]))

    def log_begin(self, session: Session) -> dict[str, Any]:
        """By startup.mode."""
        match self.values["startup.mode"]:
            case "earliest":
                return self._with_ids(session, Position(self._files(session)[0][0], FIRST))
            case "specific":
                return self._with_ids(session, Position(self.values["startup.specific-offset.file"], int(self.values["startup.specific-offset.pos"])))
            case "timestamp":
                return self._at_time(session, int(self.values["startup.timestamp"]) // 1000)
            case _:
                return self._now_with_ids(session)

    def _at_time(self, session: Session, time_s: int) -> dict[str, Any]:
        """The end of the last transaction before a time."""
        begin = Position(self._files(session)[0][0], FIRST)
        before = begins_with(self._log_connection, begin.file)
        found = scan(self._log_connection, begin, str(before or ""), lambda _, __: False, Until(time_s=time_s))
        return _document(found.end, found.gtid, _server(session))

    def _with_ids(self, session: Session, position: Position) -> dict[str, Any]:
        """A position with the transactions before it, where the server can tell."""
        if position.pos == FIRST:
            ids = str(begins_with(self._log_connection, position.file) or "")
        else:
            ids = str(session.one("select binlog_gtid_pos(%s, %s)", (position.file, position.pos)) or "") if _is_mariadb(session) else ""
        return _document(position, ids, _server(session))

    def _now_with_ids(self, session: Session) -> dict[str, Any]:
        file, pos, executed = self._status(session)
        if _is_mariadb(session):
            return self._with_ids(session, Position(file, pos))
        return _document(Position(file, pos), executed.replace("\n", ""), _server(session))

    def log_stop(self, session: Session) -> dict[str, Any] | None:
        """By stop.mode."""
        match self.values["stop.mode"]:
            case "latest":
                return self._now_with_ids(session)
            case "specific":
                return _document(Position(self.values["stop.specific-offset.file"], int(self.values["stop.specific-offset.pos"])))
            case _:
                return None

    def log_now(self, session: Session) -> dict[str, Any]:
        """The end of the log: a read that has ended has seen nothing after it, as transactions are in the log before they can be seen."""
        file, pos, _ = self._status(session)
        return _document(Position(file, pos), "", _server(session))

    def _status(self, session: Session) -> tuple[str, int, str]:
        """File, position, and the transactions before it where the server is one of MySQL."""
        try:
            found = session.query("show master status")
        except StatementRefused:  # newer servers of MySQL have another word for it
            found = session.query("show binary log status")
        if not found:
            raise NotSetUp(f"the source {self.address} writes no binary log; set log_bin = ON in its configuration")
        return str(found[0][0]), int(found[0][1]), str(found[0][4]) if len(found[0]) > 4 else ""

    def _here(self, session: Session, log: Mapping[str, Any]) -> Position:
        """A position on the server that answers now; PositionGone where it is a replica that has not that much of the log."""
        at = Position.of(dict(log))
        if log.get("server") in (None, _server(session)):
            return at
        have = GtidSet(log.get("gtid", ""))
        files = [name for name, _ in self._files(session)]
        other = f"this is server {_server(session)}, and the position is one of server {log['server']}"
        if not have:
            raise PositionGone(str(at), f"{files[0]}:{FIRST}", f"{other}, which wrote no global transaction ids: the place cannot be found here")
        found = find(self._log_connection, files, have)
        if found is None:
            raise PositionGone(f"{at} ({have})", f"{files[0]}:{FIRST}", f"{other}; the log of this one begins after the transactions {have}")
        return found

    def passed(self, log: Mapping[str, Any], stop: Mapping[str, Any]) -> bool:
        """By file and position; where they are of two servers, by transactions."""
        if log.get("server", stop.get("server")) != stop.get("server", log.get("server")):
            return GtidSet(log.get("gtid", "")).covers(GtidSet(stop.get("gtid", "")))
        return Position.of(dict(log)).key >= Position.of(dict(stop)).key

    def look(self, session: Session, start: Offset, limit: Limit) -> Look:
        """Where transactions end in the log after the start."""
        log = start["log"]
        at = self._here(session, log)
        runway = self._runway(session, at)
        if not runway.held:
            raise PositionGone(str(at), f"{self._files(session)[0][0]}:{FIRST}", runway.reason)
        until = Until(rows=limit.rows, bytes=limit.bytes, position=self._here(session, start["stop"]) if "stop" in start else None)
        found = scan(self._log_connection, at, log.get("gtid", ""), self._reads, until)
        columns = self._carried_on(session, start, found) if found.change is not None else {}
        if any(not is_done(t["read"]) for t in start["tables"].values()):
            self._wait_until_seen(session, found)
        crossed = found.end.file != log["file"] or at != Position.of(log)
        return Look(
            log=_document(found.end, found.gtid, _server(session)),
            touched=found.tables,
            caught_up=found.caught_up or (until.position is not None and found.end.key >= until.position.key),
            idle_bytes=1 << 62 if crossed or found.change is not None else found.bytes,
            columns=columns,
        )

    def _wait_until_seen(self, session: Session, found: Scanned) -> None:
        """A commit is in the log a moment before others can see it: chunks of this range must not be read in that moment."""
        deadline_s = time.monotonic() + SEEN_WAIT_S
        while not self._is_seen(session, found):
            if time.monotonic() > deadline_s:
                raise DatabaseTrouble(str(self.address), "a transaction is committed in the log and not visible yet; is a semi-synchronous replica missing?")
            time.sleep(PAUSE_S)  # the commit becomes visible

    def _is_seen(self, session: Session, found: Scanned) -> bool:
        """MariaDB tells the position of a snapshot; MySQL, which transactions are done, where they have global numbers."""
        if ":" in found.gtid:
            return bool(session.one("select gtid_subset(%s, @@global.gtid_executed)", (found.gtid,)))
        session.execute("start transaction with consistent snapshot")
        try:
            place: dict[str, str] = dict(session.query("show status like 'binlog_snapshot_%'"))
        finally:
            session.rollback()
        file = place.get("Binlog_snapshot_file")
        return not file or Position(str(file), int(place["Binlog_snapshot_position"])).key >= found.end.key

    def _reads(self, database: str, table: str) -> bool:
        return f"{database}.{table}" in self.captured if table else any(c.info.name.database == database for c in self.captured.values())

    def _carried_on(self, session: Session, start: Offset, found: Scanned) -> dict[str, list[Any]]:
        """The columns of tables after a statement that changed them; TableChanged where that cannot be carried on."""
        assert found.change is not None
        columns: dict[str, list[Any]] = {}
        at = f"{start['log']['file']}:{start['log']['pos']}"
        for database, table in found.change.tables:
            for path in [p for p in self.captured if p == f"{database}.{table}" or (table is None and p.startswith(f"{database}."))]:
                columns[path] = self._columns_after(session, path, start["tables"][path]["columns"], found.change, at)
        return columns

    def _columns_after(self, session: Session, path: str, before: list[Any], change: TableStatement, at: str) -> list[Any]:
        """As the catalogue has them: those of before where the statement left them alone, or with more where that is wanted.

        The catalogue may be ahead of the log: what later statements add is left for them.
        """
        info = self.dialect.table_info(session, self.captured[path].info.name)
        if info is None or change.effect is Effect.REMOVE:
            raise TableChanged(path, change.text, at)
        captured = replace(self.captured[path], info=info)
        known = {c[0].lower() for c in before}
        names = known | {name.lower() for name, _ in change.added}
        now = [c for c in self.columns_of(captured) if c[0].lower() in names]
        if now == before and len(names) == len(before):
            return now
        if len(now) != len(names) or not self.values["schema-changes.enabled"] or [c for c in now if c[0].lower() in known] != before:
            raise TableChanged(path, change.text, at)
        types = {c.name: self.dialect.data_type(c) for c in info.columns}
        if why := why_not(change, known, filled(session, replace(captured, table=info.as_table(types)))):
            raise TableChanged(path, f"{change.text} ({why})", at)
        return now

    def filled(self, session: Session, captured: CaptureTable) -> Filled:
        """Defaults and zeros."""
        return filled(session, captured)

    def read_log(self, start: Mapping[str, Any], end: Mapping[str, Any], columns: Mapping[str, list[Any]]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The changes of these tables; also of a range that was fixed on a server which is no more."""
        tables = {p: LogTable(columns=columns_of(c), table=self.captured[p].table) for p, c in columns.items()}
        with self.session() as session:
            first, last = self._here(session, start), self._here(session, end)
        return read_range(self._log_connection, first, last, tables)

    def columns_of(self, captured: CaptureTable) -> list[Any]:
        """Name, type and character set of each."""
        return [column.json() for column in log_columns(captured.info)]

    def runway(self, offset: Offset) -> Runway:
        """Whether the file is still there, and which is the oldest."""
        with self.session() as session:
            try:
                return self._runway(session, self._here(session, offset["log"]))
            except PositionGone as error:
                return Runway(False, error.why, position=error.wanted, oldest=error.oldest)
            except LogBehind as error:
                return Runway(False, str(error))

    def _runway(self, session: Session, at: Position) -> Runway:
        files = self._files(session)
        size, oldest = next((size for name, size in files if name == at.file), None), f"{files[0][0]}:{FIRST}"
        if size is None:
            gone = at.key < Position(files[0][0], FIRST).key
            why = f"{at.file} was purged" if gone else f"there is no file {at.file}: is this another server, or was its log reset?"
            return Runway(False, why, position=str(at), oldest=oldest)
        if at.pos > size:
            return Runway(False, f"{at.file} has {size} bytes: is this another server, or was its log reset?", position=str(at), oldest=oldest)
        age = sum(1 for name, _ in files if Position(name, FIRST).key < at.key) - 1
        return Runway(True, f"{age} older log files are held; they are purged after {self._kept_s(session)}")

    def _kept_s(self, session: Session) -> str:
        found = session.query("show global variables where variable_name in ('binlog_expire_logs_seconds', 'expire_logs_days')")
        kept = {name: float(value) for name, value in found}
        seconds = kept.get("binlog_expire_logs_seconds") or kept.get("expire_logs_days", 0.0) * 86_400
        return f"{seconds:g} s" if seconds else "a command of a person only"

    def _files(self, session: Session) -> list[tuple[str, int]]:
        return [(str(row[0]), int(row[1])) for row in session.query("show binary logs")]


def _document(position: Position, gtid: str = "", server: str = "") -> dict[str, Any]:
    return {**position.json(), **({"gtid": gtid} if gtid else {}), **({"server": server} if server else {})}


def _server(session: Session) -> str:
    """What tells the servers of a replication setup apart."""
    return str(session.one("select @@global.server_id"))


def _is_mariadb(session: Session) -> bool:
    return "mariadb" in str(session.one("select version()")).lower()
