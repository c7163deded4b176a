"""Staging tables, which tasks fill before anything is visible in the target.

There is one for each incoming table and task attempt, loaded in bulk. Called by writer.py. Columns
are c0, c1, ... in the incoming order, after `seq` (the order of the rows) and `kind` (the row
kind). Maps and rows, which have no native type, are staged as JSON text.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tidegate.databases.catalog import TableName
from tidegate.databases.dialect import Dialect
from tidegate.databases.postgres.dialect import default_schema
from tidegate.databases.session import Session
from tidegate.databases.url import Address, System
from tidegate.model.types import Column, DataType, TypeName
from tidegate.plugin.arrow import arrow_type

NESTED = (TypeName.MAP, TypeName.ROW, TypeName.SPARSE_FLOAT_VECTOR)


class StageLoader(ABC):
    """A connection that creates and loads staging tables."""

    @property
    @abstractmethod
    def session(self) -> Session: ...

    @abstractmethod
    def create(self, name: TableName, types: list[DataType]) -> None: ...

    def create_like_target(
        self,
        name: TableName,  # noqa: ARG002  # most databases cannot
        target: TableName,  # noqa: ARG002  # as above
        columns: Sequence[Column],  # noqa: ARG002  # as above
        rows: int,  # noqa: ARG002  # as above
    ) -> bool:
        """Create a staging table that can become the target, if there are enough rows.

        False if it was not created; see promotion.py.
        """
        return False

    @abstractmethod
    def load(self, name: TableName, batch: pa.RecordBatch) -> None:
        """Add rows: seq, kind, c0, c1, ...; or the target's columns, if created like the target."""

    def finish(self) -> None:  # noqa: B027  # most loaders commit each load
        """Make all loads durable; called after the last one."""

    @abstractmethod
    def drop(self, name: TableName) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


def staging_table_name(address: Address, name: str) -> TableName:
    """Qualify the name of a staging or record table.

    They are in the URL's database, in the first schema of its search path.
    """
    match address.system:
        case System.MYSQL:
            return TableName(address.database, "", name)
        case System.POSTGRES:
            return TableName(address.database, default_schema(address), name)
        case System.SQLITE:
            return TableName("", "", name)


def is_staged_as_json(kind: DataType, dialect: Dialect) -> bool:
    """Whether a column is staged as JSON text."""
    if kind.name in NESTED:
        return True
    listed = (
        kind.name is TypeName.ARRAY
        or kind.name.value.endswith("float_vector")
        or kind.name in (TypeName.FLOAT16_VECTOR, TypeName.BFLOAT16_VECTOR)
    )
    return listed and (
        dialect.system is not System.POSTGRES or dialect.native_type(kind) == "jsonb"
    )


def stage_type(kind: DataType, dialect: Dialect) -> str:
    """The type of a staging column."""
    if is_staged_as_json(kind, dialect) or kind.name is TypeName.NULL:
        kind = DataType(TypeName.STRING)
    if dialect.system is System.MYSQL:
        if kind.name is TypeName.STRING:
            return "longtext character set utf8mb4 collate utf8mb4_bin"
        if kind.name is TypeName.TIMESTAMP_TZ:
            return "datetime(6)"  # in UTC; the target's type decides which values it accepts
    if dialect.system is System.SQLITE and kind.name is TypeName.DECIMAL:
        return "TEXT"  # all digits; the target's type decides whether it becomes a number
    return dialect.native_type(kind)


def staged_column(column: Any, kind: DataType, dialect: Dialect) -> Any:
    """Convert a column to its staged form."""
    if is_staged_as_json(kind, dialect):
        return pa.array(
            [None if value is None else to_json(value) for value in column.to_pylist()], pa.string()
        )
    wanted = (
        pa.string()
        if kind.name is TypeName.NULL
        else pa.time64("us")
        if kind.name is TypeName.TIME
        else arrow_type(kind)
    )
    return column if column.type == wanted else column.cast(wanted)


def to_json(value: Any) -> str:
    """Encode maps, rows and lists as JSON; values that JSON lacks become texts."""
    return json.dumps(_json_value(value), ensure_ascii=False, default=_json_text)


def _json_value(value: Any) -> Any:
    if isinstance(value, list):
        if value and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
            return {
                str(_json_text(key) if not isinstance(key, str) else key): _json_value(below)
                for key, below in value
            }
        return [_json_value(below) for below in value]
    if isinstance(value, dict):
        return {str(key): _json_value(below) for key, below in value.items()}
    return value


def _json_text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def loader_of(address: Address, dialect: Dialect) -> StageLoader:
    """Connect a loader for an address; loads its driver only."""
    match address.system:
        case System.MYSQL:
            from tidegate.connectors.jdbc.staging_mysql import MySqlLoader

            return MySqlLoader(address, dialect)
        case System.POSTGRES:
            from tidegate.connectors.jdbc.staging_postgres import PostgresLoader

            return PostgresLoader(address, dialect)
        case System.SQLITE:
            from tidegate.connectors.jdbc.staging_sqlite import SqliteLoader

            return SqliteLoader(address, dialect)
