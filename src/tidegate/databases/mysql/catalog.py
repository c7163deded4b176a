"""MariaDB and MySQL: tables, columns and keys, by information_schema; columns of a query, by its
own description. Called by mysql_dialect.py.
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
select column_name, column_type, is_nullable, column_comment, character_set_name, collation_name, extra
from information_schema.columns where table_schema = %s and table_name = %s order by ordinal_position"""
_KEYS = """
select index_name, column_name, nullable from information_schema.statistics
where table_schema = %s and table_name = %s and non_unique = 0 order by index_name = 'PRIMARY' desc, index_name, seq_in_index"""
# A view says VIEW there.
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
    """All tables and views of a database, else of all that are not the system's."""
    places = (
        [database]
        if database
        else [
            name
            for (name,) in session.query("show databases")
            if name.lower() not in SYSTEM_SCHEMAS
        ]
    )
    found = []
    for place in places:
        rows = session.query(
            "select table_name from information_schema.tables where table_schema = %s order by"
            " table_name",
            (place,),
        )
        found += [TableName(place, "", name) for (name,) in rows]
    return found


def table_info(session: Session, name: TableName) -> TableInfo | None:
    """A table with its columns and keys."""
    place = (name.database, name.table)
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
            _COLUMNS, place
        )
    )
    if not columns:
        return None
    keys: dict[str, list[str]] = {}
    loose: set[str] = set()
    for index, column, nullable in session.query(_KEYS, place):
        keys.setdefault(index, []).append(column)
        if nullable == "YES":
            loose.add(index)
    unique = next(
        (
            tuple(names)
            for index, names in keys.items()
            if index != "PRIMARY" and index not in loose
        ),
        (),
    )
    comment = session.scalar(_COMMENT, place)
    return TableInfo(
        name=name,
        columns=columns,
        primary_key=tuple(keys.get("PRIMARY", ())),
        unique_key=unique,
        comment=comment or "",
    )


def query_columns(session: Session, sql: str) -> list[NativeColumn]:
    """From the description of an empty result."""
    assert isinstance(session, MySqlSession)
    with session.connection.cursor() as cursor:
        translate_errors(
            session.address, lambda: cursor.execute(f"select * from ({sql}) tidegate_query limit 0")
        )
        fields = cursor._result.fields  # the public description leaves signs and character sets out
        return [
            NativeColumn(
                name=field.name, native=_native(field), nullable=not field.flags & FLAG.NOT_NULL
            )
            for field in fields
        ]


def _native(field: Any) -> str:
    """The type of a result's column in the words of the catalogue."""
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
