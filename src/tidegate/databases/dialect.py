"""What every database says in its own way: names, literals, types, catalogue, rows as Arrow.
`dialect_of` gives the one of an address.

Dialects hold no connection: they make texts, and read with the session that they are handed.
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
    """Whether making a table is part of a transaction, or ends it."""
    name_chars_max: ClassVar[int]
    quote_character: ClassVar[str]

    def quote(self, name: str) -> str:
        """A name, whatever characters it has."""
        return (
            self.quote_character
            + name.replace(self.quote_character, self.quote_character * 2)
            + self.quote_character
        )

    def names(self, names: Sequence[str]) -> str:
        return ", ".join(map(self.quote, names))

    @abstractmethod
    def qualified(self, name: TableName) -> str:
        """A table in a statement."""

    @abstractmethod
    def parse_table(self, text: str, address: Address) -> TableName:
        """A table as job files write it (`shop.orders`), completed by the address; ValueError in
        words for a person.
        """

    def literal(self, value: Any) -> str:
        """A value in a statement, for drivers without parameters: keys of chunks."""
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
        """A constant that a person wrote: a number where it is one."""
        return text.strip() if is_number(text.strip()) else self.text_literal(text)

    @abstractmethod
    def text_literal(self, text: str) -> str: ...

    @abstractmethod
    def bytes_literal(self, data: bytes) -> str: ...

    @abstractmethod
    def data_type(self, column: NativeColumn) -> DataType:
        """Our type of a column."""

    @abstractmethod
    def native_type(self, kind: DataType, *, keys: int = 0) -> str:
        """The type for a new column; `keys` is how many columns the key has that it is part of, 0
        where it is none.
        """

    @abstractmethod
    def expression(self, column: NativeColumn, kind: DataType) -> str:
        """What to select of a column so that `batches` can read it exactly."""

    def key_expression(self, column: NativeColumn) -> str:
        """A column as it is ordered and compared where a table is cut by it: the same in every
        connection.
        """
        return self.quote(column.name)

    def key_value(self, key: str) -> str:
        """What to select of a key so that its literal is that very key again."""
        return key

    def key_constant(self, column: NativeColumn, literal: str) -> str:  # noqa: ARG002  # most types need no help
        """A literal that is compared as two keys of the column are, also where the column is not
        beside it.
        """
        return literal

    def key_at_most(self, column: NativeColumn, constant: str) -> str:
        """The rows with a key up to a constant, in every connection."""
        return f"{self.quote(column.name)} <= {constant}"

    def key_above(self, column: NativeColumn, constant: str) -> str:
        """The rows with a key above a constant, in every connection."""
        return f"{self.quote(column.name)} > {constant}"

    def key_read_as_null(self, column: NativeColumn, kind: DataType) -> str:  # noqa: ARG002  # most types have no such values
        """Rows whose key is there, may be anywhere in its order, and is read as null; empty where
        there are none.
        """
        return ""

    def boundary_condition(self, column: NativeColumn, kind: DataType) -> str:  # noqa: ARG002  # most types have no other values
        """Keys at which a table can be cut, as Python knows their values; empty where these are
        all.
        """
        return ""

    @abstractmethod
    def batches(
        self, address: Address, sql: str, columns: Sequence[tuple[str, DataType]], rows_max: int
    ) -> "Iterator[pa.RecordBatch]":
        """The rows of a statement whose columns are `expression`s, as Arrow of exactly our types;
        in batches of about rows_max (0: as the driver likes).
        """

    @abstractmethod
    def tables(self, session: Session, database: str = "") -> list[TableName]:
        """All tables and views of a database, without those of the system.

        No database: all that the connection can see.
        """

    @abstractmethod
    def table_info(self, session: Session, name: TableName) -> TableInfo | None:
        """A table, or None where there is none."""

    @abstractmethod
    def query_columns(self, session: Session, sql: str) -> list[NativeColumn]:
        """The columns that a query gives."""

    @abstractmethod
    def estimate_rows(self, session: Session, name: TableName) -> int:
        """About how many rows a table has, from the statistics; 0 where they say nothing."""


def is_number(text: str) -> bool:
    """Whether a text can stand in a statement as a number."""
    return _NUMBER.fullmatch(text) is not None


def dialect_of(system: System) -> Dialect:
    """The ways of a database."""
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
