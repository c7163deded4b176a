"""One connection to a database, with the same interface for all systems.

A session is not thread-safe: open another one. `open_session` loads only the driver that the
address needs. Called in tasks and drivers; never when a job file is checked.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

from tidegate.databases.errors import TransientDatabaseError
from tidegate.databases.url import Address, System
from tidegate.model.errors import TidegateError

Row = tuple[Any, ...]


class Session(ABC):
    """A connection in autocommit mode; `transaction` groups statements.

    Parameters are written %s in every dialect.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self.reusable = True
        """Whether the connection may be pooled.

        Not after an error, nor if a reset would leave state of this session.
        """

    @abstractmethod
    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Run a statement and return its rows."""

    def query_prepared(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Like `query`, for repeated statements: prepared on the connection if possible."""
        return self.query(sql, parameters)

    @abstractmethod
    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Run a statement and return the number of changed rows."""

    @abstractmethod
    def execute_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for every row."""

    @abstractmethod
    def begin(self) -> None:
        """Begin a transaction that may write."""

    @abstractmethod
    def commit(self) -> None:
        """Commit; after an error the outcome is unknown."""

    @abstractmethod
    def rollback(self) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Return the connection to the pool or close it; never raises.

        The session cannot be used afterwards.
        """

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all statements of the block, or roll them back on an error."""
        self.begin()
        try:
            yield
        except BaseException:
            with suppress(TidegateError):
                self.rollback()
            raise
        self.commit()

    def scalar(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """Return the first value of the first row; None if there is no row."""
        rows = self.query(sql, parameters)
        return rows[0][0] if rows else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.reusable = self.reusable and error is None
        self.close()


def open_session(address: Address) -> Session:
    """Open a session, on an idle connection if there is one.

    Raises DatabaseUnreachable or AccessDenied.
    """
    match address.system:
        case System.MYSQL:
            from tidegate.databases.mysql.session import MySqlSession

            return MySqlSession(address)
        case System.POSTGRES:
            from tidegate.databases.postgres.session import PostgresSession

            return PostgresSession(address)
        case System.SQLITE:
            from tidegate.databases.sqlite.session import SqliteSession

            return SqliteSession(address)


def check_session(address: Address) -> None:
    """Check that we can log in, before using a driver whose error messages are worse."""
    with open_session(address) as session:
        if session.scalar("select 1") != 1:
            raise TransientDatabaseError(str(address), "`select 1` did not return 1")
