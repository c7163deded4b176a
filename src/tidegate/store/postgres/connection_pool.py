"""Connections to a PostgreSQL server: a pool with timeouts that drops broken connections.

Called by backend.py; knows no entries. Every wait has a limit: for a free connection, for the
connect, for a lock, for a statement, and for an answer. The last one uses our own clock, because a
server that is stopped still acknowledges packets. A connection belongs to the process that made it:
a forked child starts with none.
"""

import os
import select
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.abc import RV, PQGen
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus

from tidegate.store.errors import AnswerLost, StoreClosed, StoreUnavailable
from tidegate.store.postgres.address import PostgresAddress
from tidegate.store.postgres.errors import NoAnswer, from_connecting, from_opening, from_server
from tidegate.store.sql import load_queries

SQL = load_queries("postgres.sql")
# the server serializes writers anyway, and by default it accepts 100 connections in all
CONNECTIONS_MAX = 4
_WAKE_S = 0.1  # how often a wait checks the clock

_all: "weakref.WeakSet[ConnectionPool]" = weakref.WeakSet()
# of the parent process: neither used nor closed here, which would break them for the parent
_inherited: "list[LimitedConnection]" = []


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolTimeouts:
    """How long each wait may take."""

    connect_s: float = 5.0
    lock_s: float = 5.0
    statement_s: float = 10.0
    answer_s: float = 15.0


class LimitedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose waits for an answer have a limit."""

    answer_s: float = 15.0
    owner: int = 0  # the process that made it

    def wait(
        self,
        gen: PQGen[RV],
        interval: float = _WAKE_S,
        timeout: float | None = None,  # noqa: ARG002  # ours is in force
    ) -> RV:
        # every exchange with the server calls this
        return super().wait(_within(gen, self.answer_s), min(interval, _WAKE_S))


def _within(gen: PQGen[RV], limit_s: float) -> PQGen[RV]:
    """Run an exchange that raises NoAnswer after the limit.

    psycopg resumes it when the socket is ready, and every `interval`.
    """
    deadline_s = time.monotonic() + limit_s
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > deadline_s:
                raise NoAnswer(f"no answer for {limit_s:g} s")
            wanted = gen.send(ready)
    except StopIteration as end:
        result: RV = end.value
        return result


class ConnectionPool:
    """Lends connections to one database.

    The first one is made at once, so that a wrong address is known at the start.
    """

    def __init__(
        self,
        address: PostgresAddress,
        *,
        limits: PoolTimeouts,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        self.address = address
        self.limits = limits
        self._max = connections_max
        self._closed = False
        self._idle: list[LimitedConnection] = []
        self._renew_locks()
        try:
            self._idle.append(self._connect())
        except psycopg.Error as error:
            raise from_opening(address.shown, error) from error
        _all.add(self)

    @contextmanager
    def repeatable(self) -> Iterator[LimitedConnection]:
        """Lend a connection for statements that may be executed twice or not at all."""
        with self._borrowed() as connection:
            try:
                yield connection
            except psycopg.Error as error:
                self._close_if_lost(connection, error)
                raise from_server(self.address.shown, error) from error

    @contextmanager
    def transactional(self) -> Iterator[LimitedConnection]:
        """Lend a connection for one statement that writes.

        If the connection breaks, it is AnswerLost; after any other error it was rolled back.
        """
        with self._borrowed() as connection:
            try:
                yield connection
            except psycopg.Error as error:
                if self._close_if_lost(connection, error):
                    raise AnswerLost(
                        f"the connection to the store {self.address.shown} broke in the middle of a"
                        " transaction"
                    ) from error
                raise from_server(self.address.shown, error) from error

    @contextmanager
    def writer_mutex(self) -> Iterator[None]:
        """Exclude the other writing threads of this process."""
        turn = self._writer_lock  # a fork in between gives the child another one
        if not turn.acquire(timeout=self.limits.answer_s):
            raise StoreUnavailable(
                f"other threads have kept the store {self.address.shown} busy for"
                f" {self.limits.answer_s:g} s; nothing was written"
            )
        try:
            yield
        finally:
            turn.release()

    def close(self) -> None:
        """Close all connections; those in use are closed when they are returned."""
        with self._lock:
            self._closed = True
        self._drop_idle()

    def forked(self) -> None:
        """In a forked child, stop using the parent's connections and locks."""
        _inherited.extend(self._idle)
        self._idle = []
        self._renew_locks()

    def _renew_locks(self) -> None:
        self._lock = threading.Lock()
        self._writer_lock = threading.Lock()
        self._free = threading.Semaphore(self._max)

    @contextmanager
    def _borrowed(self) -> Iterator[LimitedConnection]:
        free = self._free  # a fork in between gives the child another one
        if not free.acquire(timeout=self.limits.answer_s):
            raise StoreUnavailable(
                f"other threads have kept all connections to the store {self.address.shown} busy"
                f" for {self.limits.answer_s:g} s"
            )
        try:
            connection = self._acquire()
            try:
                yield connection
            finally:
                self._return(connection)
        finally:
            free.release()

    def _acquire(self) -> LimitedConnection:
        while True:
            with self._lock:
                if self._closed:
                    raise StoreClosed()
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                break
            if not _has_unread_data(connection):
                return connection
            connection.close()
        try:
            return self._connect()
        except psycopg.Error as error:
            raise from_connecting(self.address.shown, error) from error

    def _return(self, connection: LimitedConnection) -> None:
        if os.getpid() != connection.owner:
            _inherited.append(connection)
            return
        usable = (
            not connection.closed and connection.pgconn.transaction_status == TransactionStatus.IDLE
        )
        with self._lock:
            keep = usable and not self._closed
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()

    def _close_if_lost(self, connection: LimitedConnection, error: psycopg.Error) -> bool:
        """Close the connection if it is lost, with the idle ones; return whether it is lost.

        A FATAL error may follow a commit, so only an error that leaves the connection usable means
        that nothing was done.
        """
        lost = (
            connection.closed
            or error.sqlstate is None
            or error.diag.severity_nonlocalized in ("FATAL", "PANIC")
        )
        if lost:
            connection.close()
            self._drop_idle()
        return lost

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _connect(self) -> LimitedConnection:
        connection = LimitedConnection.connect(
            self._conninfo(), autocommit=True, prepare_threshold=1
        )
        connection.answer_s = self.limits.answer_s
        connection.owner = os.getpid()
        try:
            connection.execute(
                SQL["settings_of_session"].encode(),
                {
                    "schema": self.address.schema,
                    "lock_ms": round(self.limits.lock_s * 1000),
                    "statement_ms": round(self.limits.statement_s * 1000),
                },
                prepare=False,
            )
        except BaseException:
            connection.close()
            raise
        return connection

    def _conninfo(self) -> str:
        """Return our parameters, overridden by those of the URL except for the encoding."""
        parameters = {
            "application_name": "tidegate",
            "connect_timeout": max(2, round(self.limits.connect_s)),  # libpq's smallest
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": round(self.limits.answer_s * 1000),
            "target_session_attrs": "read-write",  # of several hosts, the one that is not a standby
            **self.address.parameters,
            "client_encoding": "utf8",
        }
        return make_conninfo("", **parameters)


def _has_unread_data(connection: LimitedConnection) -> bool:
    """Whether an idle connection has unread data: a FATAL error or the end of the connection."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.pgconn.socket, select.POLLIN)
    return bool(poll.poll(0))


def _after_fork_in_child() -> None:
    for connections in list(_all):
        connections.forked()


os.register_at_fork(after_in_child=_after_fork_in_child)
