"""Connections to MariaDB and MySQL with pymysql.

Times are UTC, SQL modes are strict, text is utf8mb4, whatever the server's defaults are.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import pymysql
from pymysql.constants import CLIENT, SERVER_STATUS

from tidegate.databases import idle_connections
from tidegate.databases.errors import (
    AccessDenied,
    DatabaseMissing,
    DatabaseUnreachable,
    StatementRefused,
    TlsFailed,
    TransientDatabaseError,
)
from tidegate.databases.session import Row, Session
from tidegate.databases.tls import Tls, TlsMode, mysql_tls, tls_context
from tidegate.databases.url import Address
from tidegate.model.errors import TidegateError

T = TypeVar("T")
_RESET_CONNECTION = 0x1F
_DENIED = {1044, 1045, 1142, 1143, 1227, 1698}
_LOST = {2003, 2002, 2005}
_UNTRUSTED = (
    "certificate verify failed",
    "ssl is required",
    "wrong_version_number",
    "wrong version number",
    "support ssl",
)
# Connection lost, server shutting down, deadlock, lock wait, too many connections, read-only after
# failover: a retry may succeed.
_TRANSIENT = {
    1040,
    1053,
    1077,
    1152,
    1158,
    1159,
    1160,
    1161,
    1184,
    1203,
    1205,
    1213,
    1226,
    1290,
    1412,
    1637,
    1927,
    2006,
    2013,
    2014,
    2055,
    3024,
    4031,
}
_NEEDS_ENCRYPTION = (  # part of pymysql's error if it cannot encrypt the password alone
    "caching_sha2_password"
)
SESSION_SETUP = (
    "set session time_zone = '+00:00'",
    (
        "set session sql_mode ="
        " 'STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,"
        "NO_ENGINE_SUBSTITUTION'"
    ),
    "set session transaction isolation level read committed",
)


def connect(address: Address, **more: Any) -> "pymysql.Connection[Any]":
    """Open a pymysql connection in autocommit mode with our session settings.

    Also called by readers of the binary log.
    """
    tls = tls_of(address)
    protection: dict[str, Any] = (
        {"ssl_disabled": True}
        if tls.mode is TlsMode.NONE
        else {"ssl": tls_context(tls, str(address))}
    )
    given: dict[str, Any] = {
        "host": address.host,
        "port": address.port,
        "user": address.user,
        "password": address.password.encode(),  # pymysql would encode text as latin1
        "database": address.database or None,
        "charset": "utf8mb4",
        "autocommit": True,
        "connect_timeout": address.connect_timeout_s,
        "client_flag": CLIENT.FOUND_ROWS,
        **protection,
        **more,
    }
    connection: pymysql.Connection[Any] = translate_errors(
        address, lambda: pymysql.connect(**given)
    )
    try:
        with connection.cursor() as cursor:
            for statement in SESSION_SETUP:
                translate_errors(address, partial(cursor.execute, statement))
    except BaseException:
        connection.close()
        raise
    return connection


def tls_of(address: Address) -> Tls:
    """Parse the TLS settings of an address."""
    try:
        return mysql_tls(address.properties)
    except ValueError as error:
        raise TlsFailed(str(address), str(error)) from None


def translate_errors(address: Address, act: Callable[[], T]) -> T:
    """Run a driver call and translate its errors to ours."""
    try:
        return act()
    except pymysql.err.MySQLError as error:
        raise _translate_error(address, error) from None
    except (OSError, RuntimeError) as error:
        if _NEEDS_ENCRYPTION in str(error):
            raise AccessDenied(
                str(address),
                "this server accepts the password of this user (caching_sha2_password) only over"
                " TLS: add ?sslMode=REQUIRED to the URL",
            ) from None
        raise DatabaseUnreachable(str(address), address.mask(str(error))) from None


def _translate_error(address: Address, error: pymysql.err.MySQLError) -> TidegateError:
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = address.mask(str(error.args[1] if len(error.args) > 1 else error))
    where = str(address)
    if code in _DENIED:
        return AccessDenied(where, f"{text} ({code})")
    if any(sign in text.lower() for sign in _UNTRUSTED):
        return TlsFailed(where, text)
    if code == 1049:
        return DatabaseMissing(where, text)
    if code in _LOST or (code == 2013 and "handshake" in text):
        return DatabaseUnreachable(where, text)
    if code in _TRANSIENT or code == 0 or isinstance(error, pymysql.err.InterfaceError):
        return TransientDatabaseError(where, f"{text} ({code})", str(code))
    return StatementRefused(where, f"{text} ({code})", str(code))


class MySqlSession(Session):
    def __init__(self, address: Address, *, local_infile: bool = False) -> None:
        """Open a session; `local_infile` allows LOAD DATA LOCAL.

        Only for callers that need it: a malicious server could then request any local file.
        """
        super().__init__(address)
        self._key = idle_connections.connection_key(address, "loads" if local_infile else "")
        kept = idle_connections.take(self._key)
        self._opened_s = kept.opened_s if kept else time.monotonic()
        self.connection: Any = (
            kept.connection if kept else connect(address, local_infile=local_infile)
        )

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        with self.connection.cursor() as cursor:
            translate_errors(self.address, lambda: cursor.execute(sql, tuple(parameters) or None))
            return list(cursor.fetchall())

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        with self.connection.cursor() as cursor:
            return int(
                translate_errors(
                    self.address, lambda: cursor.execute(sql, tuple(parameters) or None)
                )
            )

    def execute_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        with self.connection.cursor() as cursor:
            translate_errors(
                self.address, lambda: cursor.executemany(sql, [tuple(row) for row in rows])
            )

    def begin(self) -> None:
        translate_errors(self.address, self.connection.begin)

    def commit(self) -> None:
        translate_errors(self.address, self.connection.commit)

    def rollback(self) -> None:
        translate_errors(self.address, self.connection.rollback)

    def close(self) -> None:
        connection = self.connection
        if isinstance(connection, idle_connections.ClosedConnection):
            return
        self.connection = idle_connections.ClosedConnection(self.address)
        if (
            self.reusable
            and connection.open
            and not connection.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS
        ):
            with suppress(pymysql.err.MySQLError, OSError, RuntimeError, TidegateError):
                _reset(self.address, connection)
                idle_connections.put(
                    self._key,
                    connection,
                    connection._sock.fileno(),
                    lambda: _close_quietly(connection),
                    self._opened_s,
                )
                return
        _close_quietly(connection)


def _reset(address: Address, connection: Any) -> None:
    """Reset the session to that of a new connection.

    Drops its variables, temporary tables, locks and prepared statements.
    """
    connection._execute_command(_RESET_CONNECTION, b"")
    connection._read_ok_packet()
    if address.database:
        connection.select_db(address.database)  # restores the session's default charset
    connection.set_character_set("utf8mb4")
    connection.autocommit(True)
    with connection.cursor() as cursor:
        for statement in SESSION_SETUP:
            translate_errors(address, partial(cursor.execute, statement))


def _close_quietly(connection: Any) -> None:
    with suppress(pymysql.err.MySQLError):
        connection.close()
