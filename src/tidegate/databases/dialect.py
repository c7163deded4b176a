"""The interface to each database's SQL dialect: names, literals, types, catalog, rows as Arrow.

`dialect_of` returns the dialect of a system. Dialects hold no connection: they write SQL, and read
with the session that they receive.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from tidegate.databases.catalog import NativeColumn, TableInfo, TableName
from tidegate.databases.session import Session
from tidegate.databases.url import Address, System
from tidegate.model.types import DataType

if TYPE_CHECKING:
    import pyarrow as pa

_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")


class Dialect(ABC):
    system: ClassVar[System]
    transactional_ddl: ClassVar[bool]
    """Whether creating a table is part of a transaction; otherwise it ends the transaction."""
    name_chars_max: ClassVar[int]
    quote_character: ClassVar[str]

    def quote(self, name: str) -> str:
        """Quote a name; it may have any characters."""
        return (
            self.quote_character
            + name.replace(self.quote_character, self.quote_character * 2)
            + self.quote_character
        )

    def names(self, names: Sequence[str]) -> str:
        return ", ".join(map(self.quote, names))

    @abstractmethod
    def qualified(self, name: TableName) -> str:
        """Quote a table's full name for a statement."""

    @abstractmethod
    def parse_table(self, text: str, address: Address) -> TableName:
        """Parse a table name of a job file (`shop.orders`), completed from the address.

        Raises ValueError with a message for the user.
        """

    def literal(self, value: Any) -> str:
        """Write a value as an SQL literal, for drivers without parameters: bounds of chunks."""
        match value:
            case bool():
                return "1" if value else "0"
            case int() | Decimal():
                return str(value)
            case float():
                return repr(value)
            case datetime():
                return self.text_literal(value.isoformat(" "))
            case date():
                return self.text_literal(value.isoformat())
            case timedelta():
                return self.text_literal(str(value))
            case bytes() | bytearray() | memoryview():
                return self.bytes_literal(bytes(value))
            case UUID():
                return self.text_literal(str(value))
            case _:
                return self.text_literal(str(value))

    def number_or_text(self, text: str) -> str:
        """Write a user's constant as an SQL literal: a number if it is one, else a text."""
        return text.strip() if is_number(text.strip()) else self.text_literal(text)

    @abstractmethod
    def text_literal(self, text: str) -> str: ...

    @abstractmethod
    def bytes_literal(self, data: bytes) -> str: ...

    @abstractmethod
    def data_type(self, column: NativeColumn) -> DataType:
        """Map a column's native type to our type."""

    @abstractmethod
    def native_type(self, kind: DataType, *, keys: int = 0) -> str:
        """The native type for a new column.

        `keys` is the number of columns of the key that it is part of, 0 if it is not part of one.
        """

    @abstractmethod
    def expression(self, column: NativeColumn, kind: DataType) -> str:
        """SQL expression that `batches` can read without loss."""

    def key_expression(self, column: NativeColumn) -> str:
        """SQL expression to order and compare a split column by; the same in every connection."""
        return self.quote(column.name)

    def key_value(self, key: str) -> str:
        """SQL expression that selects a key such that its literal equals the key."""
        return key

    def key_constant(
        self,
        column: NativeColumn,  # noqa: ARG002  # most types need no help
        literal: str,
    ) -> str:
        """SQL literal that compares like a key of the column, also if used without it."""
        return literal

    def key_at_most(self, column: NativeColumn, constant: str) -> str:
        """SQL condition for rows with a key up to a constant; the same in every connection."""
        return f"{self.quote(column.name)} <= {constant}"

    def key_above(self, column: NativeColumn, constant: str) -> str:
        """SQL condition for rows with a key above a constant; the same in every connection."""
        return f"{self.quote(column.name)} > {constant}"

    def key_read_as_null(
        self,
        column: NativeColumn,  # noqa: ARG002  # most types have no such values
        kind: DataType,  # noqa: ARG002  # most types have no such values
    ) -> str:
        """SQL condition for non-null keys that are read as null; empty if there are none.

        Such keys can be anywhere in the ordering.
        """
        return ""

    def boundary_condition(
        self,
        column: NativeColumn,  # noqa: ARG002  # most types have no other values
        kind: DataType,  # noqa: ARG002  # most types have no other values
    ) -> str:
        """SQL condition for keys that Python can represent, so that they can be boundaries.

        Empty if all keys can.
        """
        return ""

    @abstractmethod
    def batches(
        self, address: Address, sql: str, columns: Sequence[tuple[str, DataType]], rows_max: int
    ) -> "Iterator[pa.RecordBatch]":
        """Rows of a statement whose columns are `expression`s, as Arrow with exactly our types.

        Batches have about rows_max rows (0: the driver decides).
        """

    @abstractmethod
    def tables(self, session: Session, database: str = "") -> list[TableName]:
        """List all tables and views of a database, without system tables.

        An empty `database` means all databases that the connection can see.
        """

    @abstractmethod
    def table_info(self, session: Session, name: TableName) -> TableInfo | None:
        """Read a table's metadata; None if it does not exist."""

    @abstractmethod
    def query_columns(self, session: Session, sql: str) -> list[NativeColumn]:
        """Describe the result columns of a query."""

    @abstractmethod
    def estimate_rows(self, session: Session, name: TableName) -> int:
        """Estimate a table's row count from statistics; 0 if there are none."""


def is_number(text: str) -> bool:
    """Whether a text is an SQL number."""
    return _NUMBER.fullmatch(text) is not None


def dialect_of(system: System) -> Dialect:
    """Return the dialect of a system; loads its module only."""
    match system:
        case System.MYSQL:
            from tidegate.databases.mysql.dialect import MySqlDialect

            return MySqlDialect()
        case System.POSTGRES:
            from tidegate.databases.postgres.dialect import PostgresDialect

            return PostgresDialect()
        case System.SQLITE:
            from tidegate.databases.sqlite.dialect import SqliteDialect

            return SqliteDialect()
