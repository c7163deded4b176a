"""What the MariaDB and MySQL servers for tests have in common: how they are reached and asked."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymysql

from tidegate.testing.servers.database import DatabaseServer


def as_root() -> list[str]:
    """Run as root explicitly, which the server otherwise refuses."""
    return ["--user=root"] if os.geteuid() == 0 else []


class BinlogServer(DatabaseServer):
    """A server that writes a binary log."""

    stops_at = signal.SIGTERM
    refuses = pymysql.err.OperationalError
    user = "tidegate"
    password = 'p"ss wörd%/@'

    def url(self, database: str = "") -> str:
        """Its address as job files write it."""
        return f"jdbc:mysql://127.0.0.1:{self.port}/{database}"

    def connect(self, database: str | None = None) -> "pymysql.Connection[Any]":
        """A connection of the administrator, in autocommit."""
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user="root",
            database=database,
            autocommit=True,
            charset="utf8mb4",
            ssl_disabled=True,
            connect_timeout=60,
        )

    def execute(self, *statements: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Run statements one after the other; the rows of the last."""
        connection = self.connect(database)
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                return list(cursor.fetchall())
        finally:
            connection.close()

    def probe(self) -> None:
        self.connect().close()

    def begin(self) -> None:
        """The user of the tests."""
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute(
                    "create user tidegate@'127.0.0.1' identified by %s", (self.password,)
                )
                cursor.execute("grant all on *.* to tidegate@'127.0.0.1'")
        finally:
            connection.close()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """SIGSTOP: packets are still acknowledged, and nothing is answered."""
        assert self._process is not None, "the server does not run"
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)
