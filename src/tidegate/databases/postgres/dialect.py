"""PostgreSQL's dialect: names, literals, types in both directions.

Rows are read in postgres/rows.py, the catalog in postgres/catalog.py. Types that we do not have
(json, uuid, enums, ranges, intervals, network addresses ...) are read as the server's text.
Infinite dates are null.
"""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tidegate.databases.catalog import NativeColumn, TableInfo, TableName
from tidegate.databases.dialect import Dialect
from tidegate.databases.postgres import catalog as postgres_catalog
from tidegate.databases.session import Session
from tidegate.databases.types import (
    DECIMAL_DIGITS_MAX,
    UNBOUNDED_SCALE,
    array_type,
    base_and_sizes,
    decimal_type,
    simple_type,
)
from tidegate.databases.url import Address, System
from tidegate.model.types import DataType, TypeName

if TYPE_CHECKING:
    import pyarrow as pa

_TYPES = {
    "boolean": TypeName.BOOLEAN,
    "smallint": TypeName.SMALLINT,
    "integer": TypeName.INT,
    "bigint": TypeName.BIGINT,
    "oid": TypeName.BIGINT,
    "real": TypeName.FLOAT,
    "double precision": TypeName.DOUBLE,
    "bytea": TypeName.BYTES,
    "date": TypeName.DATE,
    "time without time zone": TypeName.TIME,
    "timestamp without time zone": TypeName.TIMESTAMP,
    "timestamp with time zone": TypeName.TIMESTAMP_TZ,
}
_TEXTS = ("text", "character varying", "character", "bpchar", "name")
_NATIVE = {
    TypeName.STRING: "text",
    TypeName.BOOLEAN: "boolean",
    TypeName.TINYINT: "smallint",
    TypeName.SMALLINT: "smallint",
    TypeName.INT: "integer",
    TypeName.BIGINT: "bigint",
    TypeName.FLOAT: "real",
    TypeName.DOUBLE: "double precision",
    TypeName.NULL: "text",
    TypeName.BYTES: "bytea",
    TypeName.BINARY_VECTOR: "bytea",
    TypeName.DATE: "date",
    TypeName.TIME: "time(6)",
    TypeName.TIMESTAMP: "timestamp(6)",
    TypeName.TIMESTAMP_TZ: "timestamp(6) with time zone",
    TypeName.FLOAT_VECTOR: "real[]",
    TypeName.FLOAT16_VECTOR: "real[]",
    TypeName.BFLOAT16_VECTOR: "real[]",
}
MULTIPLE_DIMENSIONS = "has more than one dimension"
CUSTOM_BOUNDS = "has bounds of its own, and does not begin at 1"
"""Parts of the server errors that we provoke for arrays that cannot be read."""
_DATED = (TypeName.DATE, TypeName.TIMESTAMP, TypeName.TIMESTAMP_TZ)


def base_type(native: str) -> str:
    """A type without sizes: `timestamp(3) without time zone` -> `timestamp without time zone`."""
    return " ".join(re.sub(r"\([\d,\s-]*\)", "", native.lower()).split())


class PostgresDialect(Dialect):
    system = System.POSTGRES
    transactional_ddl = True
    name_chars_max = 63
    quote_character = '"'

    def qualified(self, name: TableName) -> str:
        """Quote as "schema"."table"; a connection sees one database only."""
        return ".".join(self.quote(part) for part in (name.schema, name.table) if part)

    def parse_table(self, text: str, address: Address) -> TableName:
        parts = [part.strip('"') for part in text.split(".")]
        if not all(parts) or len(parts) > 3:
            raise ValueError(
                f"{text!r} is not a table name: write database.schema.table or schema.table"
            )
        database = parts[0] if len(parts) == 3 else address.database
        if address.database and database != address.database:
            raise ValueError(
                f"{text!r} is in the database {database!r}, but the URL names {address.database!r}:"
                " a connection sees one database only"
            )
        return TableName(
            database, parts[-2] if len(parts) > 1 else default_schema(address), parts[-1]
        )

    def text_literal(self, text: str) -> str:
        """An untyped literal, which gets the type of the value that it is compared with."""
        doubled = text.replace("'", "''")
        return f"E'{doubled.replace(chr(92), chr(92) * 2)}'" if "\\" in text else f"'{doubled}'"

    def bytes_literal(self, data: bytes) -> str:
        return f"'\\x{data.hex()}'::bytea"

    def data_type(self, column: NativeColumn) -> DataType:
        if column.native.endswith("[]"):
            element = self.data_type(
                NativeColumn(name=column.name, native=column.native.removesuffix("[]"))
            )
            return (
                array_type(element)
                if self._is_readable_element(base_type(column.native.removesuffix("[]")))
                else simple_type(TypeName.STRING)
            )
        base = base_type(column.native)
        if base == "numeric":
            sizes = base_and_sizes(column.native)[1]
            if sizes and sizes[-1] < 0:
                return decimal_type(sizes[0] - sizes[1], 0)
            return (
                decimal_type(*sizes)
                if len(sizes) == 2
                else decimal_type(DECIMAL_DIGITS_MAX, UNBOUNDED_SCALE)
            )
        return simple_type(_TYPES.get(base, TypeName.STRING))

    @staticmethod
    def _is_readable_element(base: str) -> bool:
        """Whether arrays with elements of this type are read as arrays."""
        return (
            base in _TEXTS
            or base == "numeric"
            or (base in _TYPES and base not in ("oid", "time without time zone"))
        )

    def native_type(
        self,
        kind: DataType,
        *,
        keys: int = 0,  # noqa: ARG002  # any type can be a key here
    ) -> str:
        """The native type for a new column."""
        if kind.name is TypeName.DECIMAL:
            return f"numeric({kind.precision},{kind.scale})"
        if kind.name is TypeName.ARRAY:
            element = kind.children[0]
            nested = element.name in (
                TypeName.ARRAY,
                TypeName.MAP,
                TypeName.ROW,
            ) or element.name not in {*_NATIVE, TypeName.DECIMAL}
            return "jsonb" if nested else f"{self.native_type(element)}[]"
        return _NATIVE.get(kind.name, "jsonb")

    def expression(self, column: NativeColumn, kind: DataType) -> str:
        """Select what the Arrow driver reads exactly; all else as text."""
        name, base = self.quote(column.name), base_type(column.native)
        if kind.name in _DATED:
            return f"case when isfinite({name}) then {name} end"
        if kind.name is TypeName.STRING and base not in _TEXTS[:3]:
            return f"{name}::text"
        if kind.name is TypeName.BIGINT and base == "oid":
            return f"{name}::bigint"
        if kind.name is TypeName.ARRAY:
            return self._array(column, kind)
        return f"{name}::text" if kind.name is TypeName.DECIMAL else name

    def _array(self, column: NativeColumn, kind: DataType) -> str:
        """Select an array with infinite dates as null.

        The driver would flatten multiple dimensions, so the expression makes the server fail with
        a message that has the reason.
        """
        name, element = self.quote(column.name), kind.children[0].name
        padded = base_type(column.native.removesuffix("[]")) in (
            "character",
            "bpchar",
        )  # a cast to text would remove the padding
        native = (
            "text[]"
            if element in (TypeName.STRING, TypeName.DECIMAL) and not padded
            else column.native
        )
        found = f"{name}::text[]" if native == "text[]" else name
        if element in _DATED:
            finite = (
                f"array(select case when isfinite(e) then e end from unnest({name}) with ordinality"
                " u(e, n) order by n)"
            )
            found = (
                f"case when 'infinity' = any({name}) or '-infinity' = any({name}) then {finite}"
                f" else {name} end"
            )
        many, moved = (
            f"({self.text_literal(f'{column.name} {why} ')} ||"
            f" {name}::text)::integer::text::{native}"
            for why in (MULTIPLE_DIMENSIONS, CUSTOM_BOUNDS)
        )
        return (
            f"case when array_ndims({name}) > 1 then {many} when array_lower({name}, 1) <> 1 then"
            f" {moved} else {found} end"
        )

    def key_value(self, key: str) -> str:
        """Select keys as text: an untyped literal gets the key's type when compared.

        Drivers cannot represent infinite dates.
        """
        return f"{key}::text"

    def key_constant(self, column: NativeColumn, literal: str) -> str:
        typed = f"cast({literal} as {column.native})"
        return f"{typed} collate {column.collation}" if column.collation else typed

    def key_read_as_null(self, column: NativeColumn, kind: DataType) -> str:
        """Select infinity; -infinity is in the first range anyway."""
        return f"{self.quote(column.name)} = 'infinity'" if kind.name in _DATED else ""

    def boundary_condition(self, column: NativeColumn, kind: DataType) -> str:
        name = self.quote(column.name)
        return f"{name} >= '0001-01-01' and {name} <= '9999-12-31'" if kind.name in _DATED else ""

    def batches(
        self, address: Address, sql: str, columns: Sequence[tuple[str, DataType]], rows_max: int
    ) -> "Iterator[pa.RecordBatch]":
        """Read rows with the Arrow driver."""
        from tidegate.databases.postgres.rows import batches

        return batches(address, sql, columns, rows_max)

    def tables(self, session: Session, database: str = "") -> list[TableName]:
        return postgres_catalog.tables(session, database)

    def table_info(self, session: Session, name: TableName) -> TableInfo | None:
        return postgres_catalog.table_info(session, name)

    def query_columns(self, session: Session, sql: str) -> list[NativeColumn]:
        return postgres_catalog.query_columns(session, sql)

    def estimate_rows(self, session: Session, name: TableName) -> int:
        """Read the statistics, including those of partitions."""
        sql = (
            "select sum(greatest(c.reltuples, 0))::bigint from pg_partition_tree(to_regclass(%s)) p"
            " join pg_class c on c.oid = p.relid where p.isleaf"
        )
        parts = session.scalar(sql, (self.qualified(name),))
        return int(
            parts
            or session.scalar(
                "select greatest(reltuples, 0)::bigint from pg_class where oid = to_regclass(%s)",
                (self.qualified(name),),
            )
            or 0
        )


def default_schema(address: Address) -> str:
    """The schema of tables that are named without one."""
    return (
        address.properties.get("currentSchema", "").partition(",")[0].strip().strip('"') or "public"
    )
