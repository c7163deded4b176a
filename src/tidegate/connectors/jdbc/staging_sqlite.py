"""Staging in SQLite: a table of the same file, loaded in one transaction.

Tasks wait for each other, since SQLite allows one writer.
"""

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tidegate.connectors.jdbc.staging import StageLoader, stage_type
from tidegate.databases.catalog import TableName
from tidegate.databases.dialect import Dialect
from tidegate.databases.session import Session
from tidegate.databases.sqlite.session import SqliteSession
from tidegate.databases.url import Address
from tidegate.model.types import DataType


class SqliteLoader(StageLoader):
    def __init__(self, address: Address, dialect: Dialect) -> None:
        self._dialect = dialect
        self._session = SqliteSession(address)

    @property
    def session(self) -> Session:
        return self._session

    def create(self, name: TableName, types: list[DataType]) -> None:
        """Create a table with the row order as primary key."""
        columns = ", ".join(
            f"c{number} {stage_type(kind, self._dialect)}" for number, kind in enumerate(types)
        )
        self._session.execute(
            f"create table {self._dialect.qualified(name)} (seq integer primary key, kind integer,"
            f" {columns})"
        )

    def load(self, name: TableName, batch: pa.RecordBatch) -> None:
        """Insert all rows in one transaction."""
        marks = ", ".join(["%s"] * batch.num_columns)
        columns = [
            [_sqlite_value(value) for value in column.to_pylist()] for column in batch.columns
        ]
        with self._session.transaction():
            self._session.execute_many(
                f"insert into {self._dialect.qualified(name)} values ({marks})",
                list(zip(*columns, strict=True)),
            )

    def drop(self, name: TableName) -> None:
        self._session.execute(f"drop table if exists {self._dialect.qualified(name)}")

    def close(self) -> None:
        self._session.close()


def _sqlite_value(value: Any) -> Any:
    """Convert a value for SQLite; times and decimals become texts."""
    match value:
        case bool():
            return int(value)
        case Decimal():
            return format(value, "f")
        case datetime.datetime():
            return value.isoformat(" ")
        case datetime.date() | datetime.time():
            return value.isoformat()
        case _:
            return value
