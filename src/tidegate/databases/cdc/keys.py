"""The column that a table is split into chunks by, and the SQL condition of a chunk.

Called by progress.py and source.py. A chunk is `low < key <= high`. Keys that are read as null
(zero dates, infinite ones, no value) are in the first chunk, wherever the database orders them, as
rows of the log do not say more about them. Every bound of a chunk is written with its collation, so
that no ALTER TABLE moves rows to another chunk.
"""

from dataclasses import dataclass, replace

from tidegate.databases.catalog import NativeColumn
from tidegate.databases.cdc.selection import CdcTable
from tidegate.databases.chunks import MOMENTS, WHOLE_NUMBERS, Bound, KeyColumn, bound_literal
from tidegate.databases.dialect import Dialect
from tidegate.databases.url import System
from tidegate.model.types import DataType, TypeName

_PLAIN = (*WHOLE_NUMBERS, *MOMENTS, TypeName.DECIMAL, TypeName.DATE)
_TEXTS = {
    System.MYSQL: (
        "char",
        "varchar",
        "tinytext",
        "text",
        "mediumtext",
        "longtext",
        "uuid",
        "inet4",
        "inet6",
    ),
    System.POSTGRES: ("text", "character varying", "character", "bpchar", "uuid"),
}
_BYTES = {
    System.MYSQL: ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"),
    System.POSTGRES: ("bytea",),
}


@dataclass(frozen=True, slots=True)
class KeyChunk:
    """Keys above `low` and up to `high`; None means unbounded."""

    low: Bound
    high: Bound


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitKey:
    """The column that a table is split by, with its type and dialect."""

    column: NativeColumn
    kind: DataType
    dialect: Dialect

    @property
    def order(self) -> list[str]:
        """What the meaning of its ranges depends on, as JSON: a name and a collation."""
        return [self.column.name, self.column.collation]

    @property
    def compared_by_database(self) -> bool:
        """Whether only the database can compare its values.

        So it is with strings, and with numbers that may have more digits than Arrow holds.
        """
        return self.kind.name is TypeName.STRING or self.column.native.lower() == "numeric"

    def constant(self, bound: Bound) -> str:
        """Return a bound, or any key, as an SQL constant."""
        return self.dialect.key_constant(self.column, bound_literal(self.dialect, bound))

    def keys(self, relation: str) -> KeyColumn:
        """Return what the search for chunk bounds needs."""
        name, exact = (
            self.dialect.quote(self.column.name),
            self.kind.name in (*WHOLE_NUMBERS, TypeName.BYTES),
        )
        return KeyColumn(
            relation,
            name,
            name if exact else self.dialect.key_value(name),
            self.constant,
            self.dialect.boundary_condition(self.column, self.kind),
        )

    def condition(self, chunk: KeyChunk) -> str:
        """Return the SQL condition of a chunk; empty for all rows."""
        parts = (
            [self.dialect.key_above(self.column, self.constant(chunk.low))]
            if chunk.low is not None
            else []
        )
        parts += (
            [self.dialect.key_at_most(self.column, self.constant(chunk.high))]
            if chunk.high is not None
            else []
        )
        unread = self._unread()
        if not parts or not unread:
            return " and ".join(parts)
        if chunk.low is None:
            return f"({parts[0]} or {unread})"
        return " and ".join([*parts, f"not ({unread})"])

    def _unread(self) -> str:
        name = self.dialect.quote(self.column.name)
        return " or ".join(
            text
            for text in (
                f"{name} is null" if self.column.nullable else "",
                self.dialect.key_read_as_null(self.column, self.kind),
            )
            if text
        )


def split_key(
    cdc_table: CdcTable, dialect: Dialect, order: list[str] | None = None
) -> SplitKey | None:
    """Return the column that a table is split by; None if it is read in one piece.

    `order` is the recorded order of a table whose snapshot has begun.
    """
    key = cdc_table.table.primary_key
    name = order[0] if order else cdc_table.split or (key[0] if key else None)
    kind = next((c.type for c in cdc_table.table.columns if c.name == name), None)
    column = next((c for c in cdc_table.info.columns if c.name == name), None)
    if kind is None or column is None or name not in key:
        return None
    found = SplitKey(
        column=replace(column, collation=order[1]) if order else column, kind=kind, dialect=dialect
    )
    return found if _is_ordered(found) else None


def _is_ordered(key: SplitKey) -> bool:
    """Return whether a range of such keys means the same in a statement and in the log."""
    base = key.column.native.lower().partition("(")[0].strip()
    match key.kind.name:
        case TypeName.STRING:
            return base in _TEXTS.get(key.dialect.system, ())
        case TypeName.BYTES:
            return base in _BYTES.get(key.dialect.system, ())
        case name:
            return name in _PLAIN
