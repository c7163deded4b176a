"""The binary log of the connected server: its files, its end, and positions in it.

Called by source.py. A position of an offset is valid only if the log before it is the one that it
was taken in: same server, same file, same last transaction, and no transaction before the file that
was not read.
"""

from collections.abc import Mapping
from typing import Any

from tidegate.connectors.mysqlcdc import document
from tidegate.connectors.mysqlcdc.document import Document, ServerIdentity
from tidegate.databases.cdc.errors import NotSetUp, PositionGone
from tidegate.databases.errors import StatementRefused
from tidegate.databases.mysql.binlog_errors import LogBehind, LogRefused, LogReplaced
from tidegate.databases.mysql.binlog_failover import find_end_of, transactions_before
from tidegate.databases.mysql.binlog_gtid import GtidSet
from tidegate.databases.mysql.binlog_history import LogFileMark, check_mark, mark_at
from tidegate.databases.mysql.binlog_position import FIRST, LogPosition
from tidegate.databases.mysql.binlog_scan import ScanLimit, ScanStart, scan
from tidegate.databases.mysql.binlog_statements import WatchedTables
from tidegate.databases.mysql.binlog_stream import Connect
from tidegate.databases.session import Session
from tidegate.plugin.contract import LogRetention

ANOTHER_HISTORY = "this log has another history than the one that was read"


class ServerLog:
    """The log of one server: a connection for statements, and others for the log as needed."""

    def __init__(self, session: Session, connect: Connect) -> None:
        self._session = session
        self._connect = connect
        self.is_mariadb = "mariadb" in str(session.scalar("select version()")).lower()
        self.server = ServerIdentity(
            str(session.scalar("select @@global.server_id")),
            "" if self.is_mariadb else str(session.scalar("select @@global.server_uuid")),
        )

    def files(self) -> list[tuple[str, int]]:
        """Return names and sizes, the oldest first."""
        return [(str(row[0]), int(row[1])) for row in self._session.query("show binary logs")]

    @property
    def oldest(self) -> str:
        """The oldest position in the log."""
        return f"{self.files()[0][0]}:{FIRST}"

    def _status(self) -> tuple[LogPosition, str]:
        """Return the end of the log, and on MySQL the transactions before it."""
        try:
            found = self._session.query("show master status")
        except StatementRefused:  # newer servers of MySQL have another statement
            found = self._session.query("show binary log status")
        if not found:
            raise NotSetUp(
                f"the source {self._session.address} writes no binary log; set log_bin = ON in its"
                " configuration"
            )
        return LogPosition(str(found[0][0]), int(found[0][1])), (
            str(found[0][4]).replace("\n", "") if len(found[0]) > 4 else ""
        )

    def end(self) -> Document:
        """Return the end of the log, without the transactions before it."""
        return document.position_document(self._status()[0], "", self.server)

    def now(self) -> Document:
        """Return the end of the log, with the transactions before it."""
        position, executed = self._status()
        return self.at(position) if self.is_mariadb else self._marked(position, executed)

    def first(self) -> Document:
        """Return the beginning of the oldest file."""
        return self.at(LogPosition(self.files()[0][0], FIRST))

    def at(self, position: LogPosition) -> Document:
        """Return a position with the transactions before it, as far as the server knows them."""
        ids = ""
        if position.pos == FIRST:
            ids = str(transactions_before(self._connect, position.file) or "")
        elif self.is_mariadb:
            ids = str(
                self._session.scalar(
                    "select binlog_gtid_pos(%s, %s)", (position.file, position.pos)
                )
                or ""
            )
        return self._marked(position, ids)

    def _marked(self, position: LogPosition, ids: str) -> Document:
        return document.position_document(
            position, ids, self.server, mark_at(self._connect, position)
        )

    def at_time(self, time_s: int) -> Document:
        """Return the end of the last transaction before a time."""
        begin = LogPosition(self.files()[0][0], FIRST)
        before = transactions_before(self._connect, begin.file)
        found = scan(
            self._connect,
            ScanStart(at=begin, gtid=str(before or "")),
            WatchedTables(),
            ScanLimit(time_s=time_s),
        )
        return document.position_document(found.end, found.gtid, self.server, found.mark)

    def local_position(self, log: Mapping[str, Any]) -> LogPosition:
        """Return a position of an offset on the connected server.

        Raises PositionGone if the server is a replica that does not have that much of the log.
        """
        at = LogPosition.of(dict(log))
        if self.server.wrote(log):
            return at
        have = GtidSet(log.get("gtid", ""))
        files = [name for name, _ in self.files()]
        oldest = f"{files[0]}:{FIRST}"
        other = (
            f"this is server {self.server.id}, and the position is of server {log.get('server')}"
        )
        if self.server.uuid and log.get("uuid"):
            other += f" ({self.server.uuid} and {log['uuid']})"
        if not have:
            raise PositionGone(
                str(at),
                oldest,
                f"{other}, which wrote no global transaction ids: the position cannot be "
                "found on this server",
            )
        if any(prepared.tables for prepared in document.prepared_of(log).values()):
            ids = ", ".join(document.prepared_of(log))
            raise PositionGone(
                str(at),
                oldest,
                f"{other}; XA transactions were prepared there and not completed ({ids}): "
                "their rows cannot be found on this server",
            )
        found = find_end_of(self._connect, files, have)
        if found is None:
            raise PositionGone(
                f"{at} ({have})",
                oldest,
                f"{other}; the log of this server begins after the transactions {have}",
            )
        return found

    def mark(self, log: Mapping[str, Any]) -> LogFileMark:
        """Return what identifies the log at a position; nothing on another server."""
        return LogFileMark.of(dict(log)) if self.server.wrote(log) else LogFileMark()

    def check_history(self, log: Mapping[str, Any]) -> None:
        """Raise PositionGone if the log before a position is another one than it was."""
        if not self.server.wrote(log):
            return  # the position was found by transactions
        at, have = LogPosition.of(dict(log)), GtidSet(log.get("gtid", ""))
        why = self._other_history(at, have)
        try:
            if not why:
                check_mark(self._connect, at, self.mark(log))
        except LogReplaced as error:
            why = error.what
        except LogRefused as error:
            why = str(error)
        if why:
            raise PositionGone(
                str(at),
                self.oldest,
                f"{ANOTHER_HISTORY}: {why}. Was the server rebuilt, or its log reset?",
            )

    def _other_history(self, at: LogPosition, have: GtidSet) -> str:
        """Describe how the history differs by transactions; empty if it does not.

        Those before the file, and those that the server has, must be those that were read.
        """
        if not have:
            return ""
        if not self.is_mariadb:
            missing = self._session.scalar(
                "select gtid_subtract(%s, @@global.gtid_executed)", (str(have),)
            )
            return f"it lacks the transactions {missing}, which were read" if missing else ""
        before = transactions_before(self._connect, at.file)
        if before is not None and (not have.covers(before) or have.diverges(before)):
            return f"{at.file} begins after the transactions {before}, but {have} were read"
        return ""

    def log_retention(self, log: Mapping[str, Any]) -> LogRetention:
        """Return whether the server still has the log of a position."""
        try:
            at = self.local_position(log)
            retention = self.retention_at(at, log)
            if retention.held:
                self.check_history(log)
        except PositionGone as error:
            return LogRetention(False, error.why, position=error.requested, oldest=error.oldest)
        except LogBehind as error:
            return LogRetention(False, str(error))
        return retention

    def retention_at(self, at: LogPosition, log: Mapping[str, Any]) -> LogRetention:
        """Return whether the server has the log from a position on.

        That includes what the position needs from before.
        """
        files = self.files()
        size, oldest = (
            next((size for name, size in files if name == at.file), None),
            f"{files[0][0]}:{FIRST}",
        )
        if size is None:
            purged = at.key < LogPosition(files[0][0], FIRST).key
            why = (
                f"{at.file} was purged"
                if purged
                else f"there is no file {at.file}: is this another server, or was its log reset?"
            )
            return LogRetention(False, why, position=str(at), oldest=oldest)
        if at.pos > size:
            return LogRetention(
                False,
                f"{at.file} has {size} bytes: is this another server, or was its log reset?",
                position=str(at),
                oldest=oldest,
            )
        names = {name for name, _ in files}
        for xid, prepared in document.prepared_of(log).items():
            if prepared.file not in names:
                why = (
                    f"{prepared.file} was purged, which has the rows of the XA transaction "
                    f"{xid}: it is prepared and not completed"
                )
                return LogRetention(
                    False, why, position=f"{prepared.file}:{prepared.begin}", oldest=oldest
                )
        age = sum(1 for name, _ in files if LogPosition(name, FIRST).key < at.key) - 1
        return LogRetention(
            True, f"{age} older log files are available; they are purged after {self._expiry()}"
        )

    def _expiry(self) -> str:
        found = self._session.query(
            "show global variables where variable_name in ('binlog_expire_logs_seconds',"
            " 'expire_logs_days')"
        )
        settings = {name: float(value) for name, value in found}
        seconds = (
            settings.get("binlog_expire_logs_seconds")
            or settings.get("expire_logs_days", 0.0) * 86_400
        )
        return f"{seconds:g} s" if seconds else "a manual command only"
