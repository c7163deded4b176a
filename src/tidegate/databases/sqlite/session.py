"""SQLite connections with the standard library. One writer at a time: others wait for it."""

import os
import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import quote

from tidegate.databases.errors import (
    AccessDenied,
    DatabaseMissing,
    StatementRefused,
    TransientDatabaseError,
)
from tidegate.databases.session import Row, Session
from tidegate.databases.url import Address
from tidegate.model.errors import TidegateError

T = TypeVar("T")
BUSY_S = 120.0
_PARAMETER = re.compile(r"%(s|%)")


def translate_errors(address: Address, act: Callable[[], T]) -> T:
    """Run a driver call and translate its errors to ours."""
    try:
        return act()
    except sqlite3.Error as error:
        raise _translate_error(address, error) from None


def _translate_error(address: Address, error: sqlite3.Error) -> TidegateError:
    name = getattr(error, "sqlite_errorname", "")
    if name in ("SQLITE_CANTOPEN", "SQLITE_NOTADB"):
        if os.path.exists(address.database):
            return StatementRefused(str(address), str(error))
        return DatabaseMissing(str(address), "the file does not exist")
    if name in ("SQLITE_PERM", "SQLITE_AUTH", "SQLITE_READONLY"):
        return AccessDenied(str(address), str(error))
    if name.startswith(
        ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_IOERR", "SQLITE_FULL", "SQLITE_INTERRUPT")
    ):
        return TransientDatabaseError(str(address), str(error), name)
    return StatementRefused(str(address), str(error), name)


def with_question_marks(sql: str) -> str:
    """Replace %s by the ? that SQLite expects."""
    return _PARAMETER.sub(lambda m: "?" if m[1] == "s" else "%", sql)


class SqliteSession(Session):
    """A connection to a file."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        uri = f"file:{quote(address.database)}?mode={'rwc' if address.creates_file else 'rw'}"
        self.connection = translate_errors(
            address, lambda: sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)
        )

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        return translate_errors(self.address, lambda: self._run(sql, parameters).fetchall())

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        return translate_errors(self.address, lambda: self._run(sql, parameters).rowcount)

    def _run(self, sql: str, parameters: Sequence[Any]) -> sqlite3.Cursor:
        return self.connection.execute(
            with_question_marks(sql) if parameters else sql, tuple(parameters)
        )

    def execute_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        translate_errors(
            self.address, lambda: self.connection.executemany(with_question_marks(sql), rows)
        )

    def begin(self) -> None:
        """Begin a transaction with SQLite's write lock."""
        self.execute("begin immediate")

    def commit(self) -> None:
        self.execute("commit")

    def rollback(self) -> None:
        self.execute("rollback")

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self.connection.close()
