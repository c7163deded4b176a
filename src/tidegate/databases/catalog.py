"""Metadata of tables: names, columns, keys.

The same for all dialects, which fill it (mysql/catalog.py and the others). Pure data.
"""

from dataclasses import dataclass
from typing import Any

from tidegate.model.types import Column, DataType, Table
from tidegate.plugin.placeholders import NAME_PARTS

SOURCE_TYPES = "source-types"
"""The key in Table.options under which a source puts { column: [native type, collation] }."""


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """The parts of a table's name; empty where the database has no such part."""

    database: str
    schema: str
    table: str

    @property
    def path(self) -> str:
        """The name in pipelines and sinks: `shop.orders`, `shop.public.orders`."""
        return ".".join(part for part in (self.database, self.schema, self.table) if part)

    def options(self) -> dict[str, Any]:
        """Table options that a path alone cannot express: the parts of a name with dots."""
        parts = [part for part in (self.database, self.schema, self.table) if part]
        return {NAME_PARTS: parts} if any("." in part for part in parts) else {}

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeColumn:
    """A column as defined in its database.

    `native` is the complete type in SQL: `decimal(12,2) unsigned`, `character varying(80)`.
    """

    name: str
    native: str
    nullable: bool = True
    comment: str = ""
    charset: str = ""
    collation: str = ""
    generated: bool = False
    type_id: int = 0
    """The type's id, where the database has one; for a domain the id of the domain itself."""
    modifier: int = -1
    number: int = 0
    """An id that survives a rename and changes when the column is dropped and added again.

    0 where the database has none.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class TableInfo:
    """A table as defined in its database.

    `unique_key` is the first unique index without nullable columns.
    """

    name: TableName
    columns: tuple[NativeColumn, ...]
    primary_key: tuple[str, ...] = ()
    unique_key: tuple[str, ...] = ()
    comment: str = ""
    deferrable_keys: tuple[tuple[str, ...], ...] = ()
    """Keys checked only at commit, so that two rows may have the same key until then."""
    kind: str = ""
    """The kind of relation, if known: `table`, `partitioned table`, `view` ..."""

    def column(self, name: str) -> NativeColumn | None:
        """Find a column by its exact name, else ignoring case."""
        exact = next((c for c in self.columns if c.name == name), None)
        return exact or next((c for c in self.columns if c.name.lower() == name.lower()), None)

    def as_table(self, types: dict[str, DataType], *, kinds: bool = False) -> Table:
        """Convert to a pipeline table; `types` maps column names to our types."""
        return Table(
            path=self.name.path,
            columns=tuple(
                Column(name=c.name, type=types[c.name], nullable=c.nullable, comment=c.comment)
                for c in self.columns
            ),
            primary_key=self.primary_key,
            unique_key=self.unique_key,
            comment=self.comment,
            kinds=kinds,
            options={
                **self.name.options(),
                SOURCE_TYPES: {c.name: [c.native, c.collation] for c in self.columns},
            },
        )
