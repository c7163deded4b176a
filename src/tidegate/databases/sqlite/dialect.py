"""SQLite's dialect: names, literals, types in both directions, catalog, rows.

An SQLite column may hold any value: its declared type determines our type, and values must fit it.
Integers are bigint and floating-point numbers double, whatever the declared width. In new tables,
decimals that SQLite's numbers represent exactly are numbers; wider ones are texts (DECIMAL_TEXT),
since SQLite would round them.
"""

import datetime
from collections.abc import Iterator, Sequence
from contextlib import closing
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from tidegate.databases.catalog import NativeColumn, TableInfo, TableName
from tidegate.databases.dialect import Dialect
from tidegate.databases.errors import ValueUnreadable
from tidegate.databases.session import Session
from tidegate.databases.sqlite.session import SqliteSession, translate_errors
from tidegate.databases.types import UNBOUNDED_SCALE, base_and_sizes, decimal_type, simple_type
from tidegate.databases.url import Address, System
from tidegate.model.types import DataType, TypeName

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_MAX = 16_384
REAL_DIGITS = 15
"""Significant digits that an SQLite REAL preserves."""
INTEGER_DIGITS = 18
_NATIVE = {
    TypeName.STRING: "TEXT",
    TypeName.BOOLEAN: "BOOLEAN",
    TypeName.TINYINT: "TINYINT",
    TypeName.SMALLINT: "SMALLINT",
    TypeName.INT: "INTEGER",
    TypeName.BIGINT: "BIGINT",
    TypeName.FLOAT: "FLOAT",
    TypeName.DOUBLE: "DOUBLE",
    TypeName.NULL: "TEXT",
    TypeName.BYTES: "BLOB",
    TypeName.BINARY_VECTOR: "BLOB",
    TypeName.DATE: "DATE",
    TypeName.TIME: "TIME",
    TypeName.TIMESTAMP: "DATETIME",
    TypeName.TIMESTAMP_TZ: "TIMESTAMP_TZ",
}
_WORDS = (  # the first one that the declared type contains
    ("bool", TypeName.BOOLEAN),
    ("timestamp_tz", TypeName.TIMESTAMP_TZ),
    ("timestamptz", TypeName.TIMESTAMP_TZ),
    ("datetime", TypeName.TIMESTAMP),
    ("timestamp", TypeName.TIMESTAMP),
    ("date", TypeName.DATE),
    ("time", TypeName.TIME),
    ("int", TypeName.BIGINT),
    ("blob", TypeName.BYTES),
    ("binary", TypeName.BYTES),
    ("real", TypeName.DOUBLE),
    ("floa", TypeName.DOUBLE),
    ("doub", TypeName.DOUBLE),
)


class SqliteDialect(Dialect):
    system = System.SQLITE
    transactional_ddl = True
    name_chars_max = 200
    quote_character = '"'

    def qualified(self, name: TableName) -> str:
        """Quote the table alone: a file is one database."""
        return self.quote(name.table)

    def parse_table(
        self,
        text: str,
        address: Address,  # noqa: ARG002  # a file is one database
    ) -> TableName:
        """Parse `table`; a prefix is ignored."""
        table = text.rpartition(".")[2].strip('"')
        if not table:
            raise ValueError(f"{text!r} is not a table name")
        return TableName("", "", table)

    def text_literal(self, text: str) -> str:
        return "'" + text.replace("'", "''") + "'"

    def bytes_literal(self, data: bytes) -> str:
        return f"x'{data.hex()}'"

    def data_type(self, column: NativeColumn) -> DataType:
        base, sizes = base_and_sizes(column.native)
        if base.startswith(("decimal", "numeric")):
            return (
                decimal_type(*sizes)
                if len(sizes) == 2
                else decimal_type(sizes[0], 0)
                if sizes
                else decimal_type(38, UNBOUNDED_SCALE)
            )
        return simple_type(next((name for word, name in _WORDS if word in base), TypeName.STRING))

    def native_type(
        self,
        kind: DataType,
        *,
        keys: int = 0,  # noqa: ARG002  # any type can be a key here
    ) -> str:
        """The native type for a new column."""
        if kind.name is TypeName.DECIMAL:
            exact = INTEGER_DIGITS if kind.scale == 0 else REAL_DIGITS
            name = "DECIMAL" if kind.precision <= exact else "DECIMAL_TEXT"
            return f"{name}({kind.precision},{kind.scale})"
        return _NATIVE.get(kind.name, "TEXT")

    def expression(
        self,
        column: NativeColumn,
        kind: DataType,  # noqa: ARG002  # values are converted when they are read
    ) -> str:
        return self.quote(column.name)

    def batches(
        self, address: Address, sql: str, columns: Sequence[tuple[str, DataType]], rows_max: int
    ) -> "Iterator[pa.RecordBatch]":
        """Read rows with the standard library's driver."""
        import pyarrow as pa

        from tidegate.plugin.arrow import arrow_type

        schema = pa.schema([pa.field(name, arrow_type(kind)) for name, kind in columns])
        with (
            SqliteSession(address) as session,
            closing(translate_errors(address, lambda: session.connection.execute(sql))) as cursor,
        ):
            while rows := translate_errors(address, lambda: cursor.fetchmany(rows_max or ROWS_MAX)):
                values = zip(*rows, strict=True)
                arrays = [
                    _array(list(column), name, kind)
                    for column, (name, kind) in zip(values, columns, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def tables(
        self,
        session: Session,
        database: str = "",  # noqa: ARG002  # a file is one database
    ) -> list[TableName]:
        rows = session.query(
            "select name from sqlite_master where type in ('table', 'view') and name not like"
            " 'sqlite~_%' escape '~' order by name"
        )
        return [TableName("", "", name) for (name,) in rows]

    def table_info(self, session: Session, name: TableName) -> TableInfo | None:
        rows = session.query(f"pragma table_xinfo({self.quote(name.table)})")
        columns = tuple(
            NativeColumn(
                name=column,
                native=native or "text",
                nullable=not (not_null or key),
                generated=hidden > 1,
            )
            for _, column, native, not_null, _, key, hidden in rows
            if hidden != 1
        )
        if not columns:
            return None
        primary = tuple(row[1] for row in sorted(rows, key=lambda row: row[5]) if row[5])
        return TableInfo(
            name=name,
            columns=columns,
            primary_key=primary,
            unique_key=self._unique(session, name, columns),
        )

    def _unique(
        self, session: Session, name: TableName, columns: Sequence[NativeColumn]
    ) -> tuple[str, ...]:
        filled = {c.name for c in columns if not c.nullable}
        for _, index, unique, origin, partial, *_ in session.query(
            f"pragma index_list({self.quote(name.table)})"
        ):
            names = tuple(
                row[2] for row in session.query(f"pragma index_info({self.quote(index)})")
            )
            if unique and origin != "pk" and not partial and set(names) <= filled:
                return names
        return ()

    def query_columns(self, session: Session, sql: str) -> list[NativeColumn]:
        """Describe the result columns with a temporary view."""
        session.execute("drop view if exists temp.tidegate_query")
        session.execute(f"create temp view tidegate_query as {sql}")
        rows = session.query("pragma temp.table_info(tidegate_query)")
        session.execute("drop view temp.tidegate_query")
        return [NativeColumn(name=name, native=native or "text") for _, name, native, *_ in rows]

    def estimate_rows(self, session: Session, name: TableName) -> int:
        """Count the rows: a local file is fast to read."""
        return int(session.scalar(f"select count(*) from {self.qualified(name)}") or 0)


def _array(values: list[Any], name: str, kind: DataType) -> Any:
    import pyarrow as pa

    from tidegate.plugin.arrow import arrow_type

    convert = _CONVERT.get(kind.name)
    try:
        ours = [None if v is None else convert(v, kind) for v in values] if convert else values
        return pa.array(ours, type=arrow_type(kind))
    except (pa.ArrowException, ValueError, TypeError, OverflowError, InvalidOperation) as error:
        raise ValueUnreadable(name, str(kind), str(error)) from None


def _text(value: Any, _: DataType) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _bytes(value: Any, _: DataType) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _boolean(value: Any, _: DataType) -> bool:
    return (
        value.strip().lower() in ("1", "t", "true", "yes")
        if isinstance(value, str)
        else bool(value)
    )


def _decimal(value: Any, kind: DataType) -> Decimal:
    exact = Decimal(str(value))
    rounded = exact.quantize(Decimal(1).scaleb(-kind.scale)) if isinstance(value, float) else exact
    return rounded


def _date(value: Any, _: DataType) -> datetime.date:
    return datetime.date.fromisoformat(str(value)[:10])


def _time(value: Any, _: DataType) -> datetime.time:
    return datetime.time.fromisoformat(str(value))


def _timestamp(value: Any, _: DataType) -> datetime.datetime:
    # Numbers are seconds (SQLite's unixepoch) or milliseconds (Java's driver).
    if isinstance(value, int | float):
        seconds = value / 1000 if abs(value) > 100_000_000_000 else value
        return datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
    found = datetime.datetime.fromisoformat(str(value))
    return found.astimezone(datetime.UTC).replace(tzinfo=None) if found.tzinfo else found


def _moment(value: Any, kind: DataType) -> datetime.datetime:
    return _timestamp(value, kind).replace(tzinfo=datetime.UTC)


_CONVERT = {
    TypeName.STRING: _text,
    TypeName.BYTES: _bytes,
    TypeName.BOOLEAN: _boolean,
    TypeName.DECIMAL: _decimal,
    TypeName.DATE: _date,
    TypeName.TIME: _time,
    TypeName.TIMESTAMP: _timestamp,
    TypeName.TIMESTAMP_TZ: _moment,
}
