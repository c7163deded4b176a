"""Catalog queries for MariaDB and MySQL: tables, columns and keys from information_schema.

The columns of a query are read from its result description. Called by mysql/dialect.py.
"""

from collections.abc import Mapping
from typing import Any

from pymysql.constants import FIELD_TYPE, FLAG

from tidegate.databases.catalog import NativeColumn, TableInfo, TableName
from tidegate.databases.mysql.session import MySqlSession, translate_errors
from tidegate.databases.session import Session

SYSTEM_SCHEMAS = ("information_schema", "mysql", "performance_schema", "sys")
BINARY_CHARSET = 63
_COLUMNS = """
select column_name, column_type, is_nullable, column_comment, character_set_name,
  collation_name, extra
from information_schema.columns where table_schema = %s and table_name = %s
  order by ordinal_position"""
_KEYS = """
select index_name, column_name, nullable from information_schema.statistics
where table_schema = %s and table_name = %s and non_unique = 0
  order by index_name = 'PRIMARY' desc, index_name, seq_in_index"""
# The comment of a view is the text VIEW.
_COMMENT = (
    "select if(table_type = 'VIEW', '', table_comment) from information_schema.tables where"
    " table_schema = %s and table_name = %s"
)
_TYPES: Mapping[int, str] = {
    FIELD_TYPE.TINY: "tinyint",
    FIELD_TYPE.SHORT: "smallint",
    FIELD_TYPE.INT24: "mediumint",
    FIELD_TYPE.LONG: "int",
    FIELD_TYPE.LONGLONG: "bigint",
    FIELD_TYPE.FLOAT: "float",
    FIELD_TYPE.DOUBLE: "double",
    FIELD_TYPE.YEAR: "year",
    FIELD_TYPE.DATE: "date",
    FIELD_TYPE.NEWDATE: "date",
    FIELD_TYPE.TIME: "time(6)",
    FIELD_TYPE.DATETIME: "datetime(6)",
    FIELD_TYPE.TIMESTAMP: "timestamp(6)",
    FIELD_TYPE.JSON: "json",
    FIELD_TYPE.GEOMETRY: "geometry",
}


def tables(session: Session, database: str) -> list[TableName]:
    """List tables and views of a database, or of all databases except system ones."""
    databases = (
        [database]
        if database
        else [
            name
            for (name,) in session.query("show databases")
            if name.lower() not in SYSTEM_SCHEMAS
        ]
    )
    found = []
    for schema in databases:
        rows = session.query(
            "select table_name from information_schema.tables where table_schema = %s order by"
            " table_name",
            (schema,),
        )
        found += [TableName(schema, "", name) for (name,) in rows]
    return found


def table_info(session: Session, name: TableName) -> TableInfo | None:
    """Read a table with its columns and keys; None if it does not exist."""
    names = (name.database, name.table)
    columns = tuple(
        NativeColumn(
            name=column,
            native=native,
            nullable=nullable == "YES",
            comment=comment or "",
            charset=charset or "",
            collation=collation or "",
            generated="GENERATED" in (extra or "").upper()
            and "DEFAULT_GENERATED" not in (extra or "").upper(),
        )
        for column, native, nullable, comment, charset, collation, extra in session.query(
            _COLUMNS, names
        )
    )
    if not columns:
        return None
    keys: dict[str, list[str]] = {}
    nullable_indexes: set[str] = set()
    for index, column, nullable in session.query(_KEYS, names):
        keys.setdefault(index, []).append(column)
        if nullable == "YES":
            nullable_indexes.add(index)
    unique = next(
        (
            tuple(names)
            for index, names in keys.items()
            if index != "PRIMARY" and index not in nullable_indexes
        ),
        (),
    )
    comment = session.scalar(_COMMENT, names)
    return TableInfo(
        name=name,
        columns=columns,
        primary_key=tuple(keys.get("PRIMARY", ())),
        unique_key=unique,
        comment=comment or "",
    )


def query_columns(session: Session, sql: str) -> list[NativeColumn]:
    """Describe the result columns of a query by running it without rows."""
    assert isinstance(session, MySqlSession)
    with session.connection.cursor() as cursor:
        translate_errors(
            session.address, lambda: cursor.execute(f"select * from ({sql}) tidegate_query limit 0")
        )
        fields = cursor._result.fields  # the public description lacks signedness and character sets
        return [
            NativeColumn(
                name=field.name, native=_native(field), nullable=not field.flags & FLAG.NOT_NULL
            )
            for field in fields
        ]


def _native(field: Any) -> str:
    """The type of a result's column, written like in the catalog."""
    unsigned = " unsigned" if field.flags & FLAG.UNSIGNED else ""
    code = field.type_code
    if code in (FIELD_TYPE.DECIMAL, FIELD_TYPE.NEWDECIMAL):
        digits = field.length - (field.scale > 0) - (not unsigned)
        return f"decimal({digits},{field.scale}){unsigned}"
    if code == FIELD_TYPE.BIT:
        return f"bit({field.length})"
    if code == FIELD_TYPE.TINY and field.length == 1:
        return f"tinyint(1){unsigned}"
    if code in _TYPES:
        return _TYPES[code] + unsigned
    return (
        "longblob"
        if field.charsetnr == BINARY_CHARSET and not field.flags & (FLAG.ENUM | FLAG.SET)
        else "longtext"
    )
