"""One connection to a database, the same for all of them. Not for threads: whoever needs another
one opens it.

`open_session` is the door; it loads the driver of the address only. In tasks and drivers; never
when a job file is checked.
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
    """A connection in autocommit; `transaction` groups statements. Parameters are written %s in
    every dialect.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self.reusable = True
        """Whether the connection may be kept for the next session: not after an error, nor where a
        reset leaves something of this one.
        """

    @abstractmethod
    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Run a statement; its rows."""

    def query_prepared(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """As `query`, for a statement that is repeated: where the server can, it keeps the plan
        with the connection.
        """
        return self.query(sql, parameters)

    @abstractmethod
    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Run a statement; how many rows it changed."""

    @abstractmethod
    def execute_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for every row."""

    @abstractmethod
    def begin(self) -> None:
        """Begin a transaction that writes."""

    @abstractmethod
    def commit(self) -> None:
        """End it; an error means that its outcome is unknown."""

    @abstractmethod
    def rollback(self) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Give the connection back, or close it; never raises.

        The session is of no use afterwards.
        """

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All statements inside or none."""
        self.begin()
        try:
            yield
        except BaseException:
            with suppress(TidegateError):
                self.rollback()
            raise
        self.commit()

    def scalar(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """The first value of the first row; None where there is none."""
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
    """A new session, on a connection that was kept where there is one; DatabaseUnreachable,
    AccessDenied.
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
    """Whether the server is there and takes us: before a driver that would tell it less well."""
    with open_session(address) as session:
        if session.scalar("select 1") != 1:
            raise TransientDatabaseError(str(address), "it does not answer `select 1` with 1")
