"""Connections to PostgreSQL with psycopg.

Times are UTC, dates ISO, whatever the server's defaults are.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import urlencode

import psycopg

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
from tidegate.databases.url import Address
from tidegate.model.errors import TidegateError

T = TypeVar("T")
# Classes of SQLSTATE: connection, transaction rollback (deadlock), resources, lock and operator
# intervention, system.
_TRANSIENT = ("08", "40", "53", "55", "57", "58", "XX")
_UNTRUSTED = (
    "certificate verify failed",
    "server certificate for",
    "root certificate file",
    "server does not support SSL",
    "could not load",
    "sslmode value",
)
_RESET = (
    b"close all; set session authorization default; reset all; unlisten *; select"
    b" pg_advisory_unlock_all(); discard temp; discard sequences"
)
"""DISCARD ALL except for prepared statements.

psycopg remembers the names of its own, and the next session reuses them.
"""
_NEVER = sys.maxsize
_NOT_PREPARED = ("26000", "42P05")
"""A connection pooler switched to a server connection that lacks the prepared statement."""
_LIBPQ = (
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "application_name",
    "connect_timeout",
    "target_session_attrs",
)


def libpq_uri(address: Address, more: Mapping[str, str] = MappingProxyType({})) -> str:
    """Connection URI for libpq; holds the password, so it must not be shown.

    `more` are additional session settings.
    """
    given = {key.lower(): value for key, value in address.properties.items()}
    if given.get("ssl", "").lower() == "true" and "sslmode" not in given:
        given["sslmode"] = "verify-full"  # like the JDBC driver
    parameters = {
        "connect_timeout": str(address.connect_timeout_s),
        "application_name": "tidegate",
    } | {k: given[k] for k in _LIBPQ if k in given}
    settings = (
        "-c TimeZone=UTC -c DateStyle=ISO,YMD -c IntervalStyle=iso_8601 -c extra_float_digits=3 -c"
        " client_encoding=UTF8"
    )
    # A stalled session blocks others no longer than this.
    settings += " -c lock_timeout=120s -c idle_in_transaction_session_timeout=300s"
    settings += "".join(f" -c {name}={value}" for name, value in more.items())
    if schema := address.properties.get("currentSchema"):
        names = ",".join('"' + name.strip().replace('"', '""') + '"' for name in schema.split(","))
        settings += " -c search_path=" + names.replace("\\", "\\\\").replace(" ", "\\ ")
    return (
        address.uri("postgresql")
        + "?"
        + urlencode({**parameters, "options": settings}).replace("+", "%20")
    )


def connect(address: Address, **more: Any) -> "psycopg.Connection[Any]":
    """Open a psycopg connection in autocommit mode with our session settings.

    Also called by readers of replication slots.
    """
    return translate_errors(
        address,
        lambda: psycopg.connect(libpq_uri(address), autocommit=True, **more),
        connecting=True,
    )


def translate_errors(address: Address, act: Callable[[], T], *, connecting: bool = False) -> T:
    """Run a driver call and translate its errors to ours."""
    try:
        return act()
    except psycopg.Error as error:
        raise translate_error(address, error.sqlstate, str(error), connecting) from None


def translate_error(
    address: Address, state: str | None, text: str, connecting: bool = False
) -> TidegateError:
    """Translate an SQLSTATE and the driver's message to one of our errors."""
    where, text = str(address), " ".join(address.mask(text).split())
    if state in ("42501", "28000", "28P01") or (
        connecting and ("authentication failed" in text or "no password supplied" in text)
    ):
        return AccessDenied(where, text)
    if connecting and state is None and any(sign in text for sign in _UNTRUSTED):
        return TlsFailed(where, text)
    if connecting and (state is None or state.startswith("08") or state in ("57P03", "53300")):
        return (
            DatabaseMissing(where, text)
            if "does not exist" in text
            else DatabaseUnreachable(where, text)
        )
    if state is None or state.startswith(_TRANSIENT):
        return TransientDatabaseError(where, text, state or "")
    return StatementRefused(where, f"{text} ({state})", state)


class PostgresSession(Session):
    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._key = idle_connections.connection_key(address)
        kept = idle_connections.take(self._key)
        self._opened_s = kept.opened_s if kept else time.monotonic()
        self.connection: Any = (
            kept.connection if kept else connect(address, prepare_threshold=_NEVER)
        )

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        return translate_errors(self.address, lambda: self._run(sql, parameters).fetchall())

    def query_prepared(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Like `query`, with a prepared statement; unprepared if the server has lost it."""
        try:
            return translate_errors(
                self.address, lambda: self._run(sql, parameters, prepare=True).fetchall()
            )
        except StatementRefused as error:
            if error.code not in _NOT_PREPARED:
                raise
        self.reusable = False
        return translate_errors(
            self.address, lambda: self._run(sql, parameters, prepare=False).fetchall()
        )

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        return translate_errors(self.address, lambda: self._run(sql, parameters).rowcount)

    def _run(
        self, sql: str, parameters: Sequence[Any], prepare: bool | None = None
    ) -> "psycopg.Cursor[Any]":
        # Bytes, since psycopg types text as LiteralString. Without parameters, % is no placeholder.
        cursor: psycopg.Cursor[Any] = self.connection.execute(
            sql.encode(), tuple(parameters) or None, prepare=prepare
        )
        return cursor

    def execute_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        # Values are part of the statement: the server need not guess types of parameters.
        with psycopg.ClientCursor(self.connection) as cursor:
            translate_errors(self.address, lambda: cursor.executemany(sql.encode(), rows))

    def error_of(self, error: psycopg.Error) -> TidegateError:
        """Translate an error for callers that use the driver's connection directly."""
        return translate_error(self.address, error.sqlstate, str(error))

    def begin(self) -> None:
        self.execute("begin isolation level read committed")

    def commit(self) -> None:
        self.execute("commit")

    def rollback(self) -> None:
        self.execute("rollback")

    def close(self) -> None:
        connection = self.connection
        if isinstance(connection, idle_connections.ClosedConnection):
            return
        self.connection = idle_connections.ClosedConnection(self.address)
        if (
            self.reusable
            and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        ):
            with suppress(psycopg.Error):
                connection.execute(_RESET)
                idle_connections.put(
                    self._key,
                    connection,
                    connection.fileno(),
                    lambda: _close_quietly(connection),
                    self._opened_s,
                )
                return
        _close_quietly(connection)


def _close_quietly(connection: "psycopg.Connection[Any]") -> None:
    with suppress(psycopg.Error):
        connection.close()
