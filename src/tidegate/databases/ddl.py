"""Statements that create and change tables.

Pure; called by sinks, also to add columns that were added at the source.
"""

from collections.abc import Sequence
from decimal import Decimal

from tidegate.databases.catalog import TableName
from tidegate.databases.dialect import Dialect
from tidegate.databases.url import System
from tidegate.model.types import Column, TypeName

_NUMBERS = (
    TypeName.TINYINT,
    TypeName.SMALLINT,
    TypeName.INT,
    TypeName.BIGINT,
    TypeName.DECIMAL,
    TypeName.FLOAT,
    TypeName.DOUBLE,
)


def create_table(
    dialect: Dialect,
    name: TableName,
    columns: Sequence[Column],
    key: Sequence[str],
    comment: str = "",
    types: Sequence[str] = (),
) -> list[str]:
    """Statements for a new table, with `types` or the dialect's default types.

    Only columns of the key are NOT NULL: a source sends null for values that it cannot read.
    """
    natives = types or [
        dialect.native_type(column.type, keys=len(key) if column.name in key else 0)
        for column in columns
    ]
    parts = [
        f"{dialect.quote(c.name)} {native}" + (" not null" if c.name in key else "")
        for c, native in zip(columns, natives, strict=True)
    ]
    if key:
        parts.append(f"primary key ({dialect.names(key)})")
    options = " default character set utf8mb4" if dialect.system is System.MYSQL else ""
    if comment and dialect.system is System.MYSQL:
        options += f" comment = {_comment(comment)}"
    create = f"create table if not exists {dialect.qualified(name)} ({', '.join(parts)}){options}"
    after = (
        [f"comment on table {dialect.qualified(name)} is {dialect.text_literal(comment)}"]
        if comment and dialect.system is System.POSTGRES
        else []
    )
    return [create, *after]


def _comment(text: str) -> str:
    """Quote a comment; MySQL accepts no literal with a charset introducer here."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def create_namespace(dialect: Dialect, name: TableName) -> str | None:
    """Statement that creates a table's database (MySQL) or schema (PostgreSQL), if any."""
    match dialect.system:
        case System.MYSQL:
            return (
                f"create database if not exists {dialect.quote(name.database)} default character"
                " set utf8mb4"
            )
        case System.POSTGRES:
            return f"create schema if not exists {dialect.quote(name.schema)}"
        case System.SQLITE:
            return None


def drop_table(dialect: Dialect, name: TableName) -> str:
    """Statement that drops a table if it exists."""
    return f"drop table if exists {dialect.qualified(name)}"


def empty_table(dialect: Dialect, name: TableName) -> str:
    return (
        f"delete from {dialect.qualified(name)}"
        if dialect.system is System.SQLITE
        else f"truncate table {dialect.qualified(name)}"
    )


def add_column(dialect: Dialect, name: TableName, column: Column, native: str = "") -> str:
    """Statement that adds a column; existing rows get its default in the same step, or null."""
    text = f"{dialect.quote(column.name)} {native or dialect.native_type(column.type)}"
    if column.default is not None:
        text = f"{text.removesuffix(' default null')} default {_default(dialect, column)}"
    return f"alter table {dialect.qualified(name)} add column {text}"


def _default(dialect: Dialect, column: Column) -> str:
    """SQL literal of a column's default: booleans and numbers unquoted, the rest as text."""
    value = column.default
    if isinstance(value, bool):
        return str(value).lower() if dialect.system is System.POSTGRES else str(int(value))
    if column.type.name in _NUMBERS:
        return str(Decimal(str(value)))
    literal = dialect.text_literal(str(value))
    return f"({literal})" if dialect.system is System.MYSQL else literal
