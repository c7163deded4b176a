"""Dialect of MariaDB and MySQL: names, literals, types in both directions.

Rows are read in mysql/rows.py, the catalog in mysql/catalog.py. Types follow SeaTunnel: tinyint(1)
and bit(1) are boolean, unsigned types the next wider one, bigint unsigned decimal(20,0). A
timestamp is an instant (timestamp_tz), a datetime is not (timestamp). Invalid dates (0000-00-00,
2024-00-10, 0000-05-05, 2023-02-29) are null.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tidegate.databases.catalog import NativeColumn, TableInfo, TableName
from tidegate.databases.dialect import Dialect
from tidegate.databases.mysql import catalog as mysql_catalog
from tidegate.databases.session import Session
from tidegate.databases.types import base_and_sizes, decimal_type, simple_type
from tidegate.databases.url import Address, System
from tidegate.model.types import DataType, TypeName

if TYPE_CHECKING:
    import pyarrow as pa

KEY_CHARS_MAX = 760
"""InnoDB's limit for an index is 3072 bytes, with 4 bytes per character."""
_WIDER = {
    "tinyint": TypeName.SMALLINT,
    "smallint": TypeName.INT,
    "mediumint": TypeName.INT,
    "int": TypeName.BIGINT,
    "integer": TypeName.BIGINT,
}
_SIGNED = {
    "tinyint": TypeName.TINYINT,
    "smallint": TypeName.SMALLINT,
    "mediumint": TypeName.INT,
    "int": TypeName.INT,
    "integer": TypeName.INT,
    "bigint": TypeName.BIGINT,
}
_OTHERS = {
    "boolean": TypeName.BOOLEAN,
    "bool": TypeName.BOOLEAN,
    "year": TypeName.INT,
    "float": TypeName.FLOAT,
    "double": TypeName.DOUBLE,
    "double precision": TypeName.DOUBLE,
    "real": TypeName.DOUBLE,
    "date": TypeName.DATE,
    "time": TypeName.TIME,
    "datetime": TypeName.TIMESTAMP,
    "timestamp": TypeName.TIMESTAMP_TZ,
}
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector")
_SPATIAL = (
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geometrycollection",
    "geomcollection",
)
_NATIVE = {
    TypeName.STRING: "longtext",
    TypeName.BOOLEAN: "tinyint(1)",
    TypeName.TINYINT: "tinyint",
    TypeName.SMALLINT: "smallint",
    TypeName.INT: "int",
    TypeName.BIGINT: "bigint",
    TypeName.FLOAT: "float",
    TypeName.DOUBLE: "double",
    TypeName.NULL: "longtext",
    TypeName.BYTES: "longblob",
    TypeName.BINARY_VECTOR: "longblob",
    TypeName.DATE: "date",
    TypeName.TIME: "time(6)",
    TypeName.TIMESTAMP: "datetime(6)",
    TypeName.TIMESTAMP_TZ: "timestamp(6) null default null",
}


class MySqlDialect(Dialect):
    system = System.MYSQL
    transactional_ddl = False
    name_chars_max = 64
    quote_character = "`"

    def __init__(self, *, time_as_text: bool = False) -> None:
        """With `time_as_text`, TIME columns are texts, since they may exceed 24 hours."""
        self.time_as_text = time_as_text

    def qualified(self, name: TableName) -> str:
        return ".".join(self.quote(part) for part in (name.database, name.table) if part)

    def parse_table(self, text: str, address: Address) -> TableName:
        parts = [part.strip("`") for part in text.split(".")]
        if not all(parts) or len(parts) > 2:
            raise ValueError(f"{text!r} is not a table name: write database.table")
        database = parts[0] if len(parts) == 2 else address.database
        if not database:
            raise ValueError(
                f"{text!r} has no database, and neither has the URL: write database.table"
            )
        return TableName(database, "", parts[-1])

    def text_literal(self, text: str) -> str:
        """Write the bytes in hex, so that no SQL mode can change the meaning."""
        return f"_utf8mb4 x'{text.encode().hex()}'" if text else "''"

    def bytes_literal(self, data: bytes) -> str:
        return f"x'{data.hex()}'"

    def data_type(self, column: NativeColumn) -> DataType:
        text = column.native.lower()
        base, sizes = base_and_sizes(text)
        base = (
            base.removesuffix(" unsigned")
            .removesuffix(" zerofill")
            .removesuffix(" unsigned")
            .removesuffix(" signed")
            .strip()
        )
        unsigned = "unsigned" in text or "zerofill" in text
        if (base == "tinyint" and sizes == [1] and not unsigned) or (
            base == "bit" and sizes in ([], [1])
        ):
            return simple_type(TypeName.BOOLEAN)
        if base in ("decimal", "numeric", "dec", "fixed"):
            return (
                decimal_type(*(sizes + [10, 0][len(sizes) :]))
                if len(sizes) != 1
                else decimal_type(sizes[0], 0)
            )
        if base == "bigint" and unsigned:
            return decimal_type(20, 0)
        if base in _SIGNED:
            return simple_type(_WIDER[base] if unsigned else _SIGNED[base])
        if base in _BYTES or base in _SPATIAL or base == "bit":
            return simple_type(TypeName.BYTES)
        if base == "time" and self.time_as_text:
            return simple_type(TypeName.STRING)
        return simple_type(_OTHERS.get(base, TypeName.STRING))

    def native_type(self, kind: DataType, *, keys: int = 0) -> str:
        """The native type for a new column.

        Texts and bytes of a key have a length, since an index needs one; texts are compared by
        bytes: "a" and "A" are different keys.
        """
        if keys and kind.name in (TypeName.STRING, TypeName.BYTES, TypeName.BINARY_VECTOR):
            text = kind.name is TypeName.STRING
            return f"{'varchar' if text else 'varbinary'}({min(255, KEY_CHARS_MAX // keys)})" + (
                " character set utf8mb4 collate utf8mb4_bin" if text else ""
            )
        if kind.name is TypeName.DECIMAL:
            return f"decimal({kind.precision},{kind.scale})"
        return _NATIVE.get(kind.name, "json")

    def expression(self, column: NativeColumn, kind: DataType) -> str:
        """Select what connectorx reads exactly: integers, doubles, texts, bytes, datetimes."""
        name, base = self.quote(column.name), base_and_sizes(column.native)[0].partition(" ")[0]
        match kind.name:
            case TypeName.BOOLEAN:
                return f"{name} + 0" if base == "bit" else name
            case TypeName.FLOAT:  # as a text, a float would lose digits
                return f"{name} + 0e0"
            case TypeName.DECIMAL | TypeName.STRING:
                return _as_text(name, base, zerofill="zerofill" in column.native.lower())
            case TypeName.INT if base == "year":
                return f"{name} + 0"
            case TypeName.BYTES if (
                base == "bit" or base == "vector" or base in _SPATIAL
            ):  # the server's internal format, which it also accepts
                return (
                    f"unhex(lpad(hex({name}), {2 * ((_bits(column) + 7) // 8)}, '0'))"
                    if base == "bit"
                    else f"unhex(hex({name}))"
                )
            case TypeName.DATE:
                return f"datediff(if({_is_date(name)}, {name}, null), '1970-01-01')"
            case TypeName.TIME:
                sign = f"if({name} < 0, -1, 1)"
                return (
                    f"cast(truncate(time_to_sec({name}), 0) * 1000000 + {sign} *"
                    f" microsecond({name}) as signed)"
                )
            case TypeName.TIMESTAMP:
                return f"if({_is_date(name)}, {name}, null)"
            case TypeName.TIMESTAMP_TZ:  # independent of the session's time zone
                return (
                    f"if(month({name}) = 0, null, cast(unix_timestamp({name}) * 1000000 as signed))"
                )
            case _:
                return name

    def key_expression(self, column: NativeColumn) -> str:
        """Compare enums and texts without a collation by their bytes.

        MySQL orders enums by number but compares them as texts, and texts of a query may have the
        connection's collation.
        """
        base, name = base_and_sizes(column.native)[0].partition(" ")[0], self.quote(column.name)
        text = base.endswith("text") or base.endswith("char")
        return (
            f"convert({name} using utf8mb4) collate utf8mb4_bin"
            if base in ("enum", "set") or (text and not column.collation)
            else name
        )

    def key_constant(self, column: NativeColumn, literal: str) -> str:
        """Convert texts to the column's character set and collation, so that its index is used.

        Literals for uuid, inet4 and inet6 are cast to the type.
        """
        if column.charset and column.collation:
            return f"convert({literal} using {column.charset}) collate {column.collation}"
        native = column.native.lower()
        return f"cast({literal} as {native})" if native in ("uuid", "inet4", "inet6") else literal

    def key_at_most(self, column: NativeColumn, constant: str) -> str:
        """Compare timestamps as numbers, since local hours repeat when daylight saving time ends.

        The additional range of 3 hours lets the server use the index.
        """
        if not _is_moment(column):
            return super().key_at_most(column, constant)
        name, moment = self.quote(column.name), _microseconds(constant)
        return (
            f"({name} <= from_unixtime({moment} / 1000000) + interval 3 hour and"
            f" unix_timestamp({name}) * 1000000 <= {moment})"
        )

    def key_above(self, column: NativeColumn, constant: str) -> str:
        if not _is_moment(column):
            return super().key_above(column, constant)
        name, moment = self.quote(column.name), _microseconds(constant)
        return (
            f"({name} >= from_unixtime({moment} / 1000000) - interval 3 hour and"
            f" unix_timestamp({name}) * 1000000 > {moment})"
        )

    def key_read_as_null(self, column: NativeColumn, kind: DataType) -> str:
        """Select invalid dates, which are read as null."""
        return (
            f"not coalesce({_is_date(self.quote(column.name))}, false)"
            if kind.name in (TypeName.DATE, TypeName.TIMESTAMP)
            else ""
        )

    def boundary_condition(self, column: NativeColumn, kind: DataType) -> str:
        dated = kind.name in (TypeName.DATE, TypeName.TIMESTAMP, TypeName.TIMESTAMP_TZ)
        return _is_date(self.quote(column.name)) if dated else ""

    def batches(
        self, address: Address, sql: str, columns: Sequence[tuple[str, DataType]], rows_max: int
    ) -> "Iterator[pa.RecordBatch]":
        from tidegate.databases.mysql.rows import batches

        return batches(address, sql, columns, rows_max)

    def tables(self, session: Session, database: str = "") -> list[TableName]:
        return mysql_catalog.tables(session, database)

    def table_info(self, session: Session, name: TableName) -> TableInfo | None:
        return mysql_catalog.table_info(session, name)

    def query_columns(self, session: Session, sql: str) -> list[NativeColumn]:
        return mysql_catalog.query_columns(session, sql)

    def estimate_rows(self, session: Session, name: TableName) -> int:
        found = session.scalar(
            "select table_rows from information_schema.tables where table_schema = %s and"
            " table_name = %s",
            (name.database, name.table),
        )
        return int(found or 0)


def _as_text(name: str, base: str, *, zerofill: bool) -> str:
    # A server may pad them with blanks (PAD_CHAR_TO_FULL_LENGTH), which its log does not.
    if base == "char":
        return f"trim(trailing ' ' from {name})"
    if base.endswith("char") or base.endswith("text"):
        return name
    return (
        f"cast({name} + 0 as char)" if zerofill else f"cast({name} as char)"
    )  # drops the leading zeros of zerofill


def _bits(column: NativeColumn) -> int:
    sizes = base_and_sizes(column.native)[1]
    return sizes[0] if sizes else 1


def _is_date(name: str) -> str:
    """SQL condition that a date is valid, from year 1 on; last_day() of month 0 is null."""
    return f"year({name}) > 0 and dayofmonth({name}) between 1 and dayofmonth(last_day({name}))"


def _is_moment(column: NativeColumn) -> bool:
    return base_and_sizes(column.native)[0] == "timestamp"


def _microseconds(constant: str) -> str:
    return f"timestampdiff(microsecond, '1970-01-01', {constant})"
