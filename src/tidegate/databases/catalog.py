"""What a database tells about its tables: names, columns, keys.

The same for all dialects, which fill it (mysql_catalogue.py and the others). Pure data.
"""

from dataclasses import dataclass
from typing import Any

from tidegate.model.types import Column, DataType, Table
from tidegate.plugin.placeholders import NAME_PARTS

SOURCE_TYPES = "source-types"
"""The key in Table.options under which a source leaves { column: [type, collation] } in the words
of its database.
"""


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A table's name in its parts; parts that a database does not have are empty."""

    database: str
    schema: str
    table: str

    @property
    def path(self) -> str:
        """As pipelines and sinks name it: `shop.orders`, `shop.public.orders`."""
        return ".".join(part for part in (self.database, self.schema, self.table) if part)

    def options(self) -> dict[str, Any]:
        """What a pipeline's table must tell beside its path."""
        parts = [part for part in (self.database, self.schema, self.table) if part]
        return {NAME_PARTS: parts} if any("." in part for part in parts) else {}

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeColumn:
    """A column as its database has it.

    `native` is the whole type in the database's words: `decimal(12,2) unsigned`, `character
    varying(80)`.
    """

    name: str
    native: str
    nullable: bool = True
    comment: str = ""
    charset: str = ""
    collation: str = ""
    generated: bool = False
    type_id: int = 0
    """The number of the type itself, where a database has one; of a domain its own, not that of the
    type below it.
    """
    modifier: int = -1
    number: int = 0
    """What stays the same of a column when it is renamed, and differs when it is dropped and added
    again; 0 where a database has no such number.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class TableInfo:
    """A table as its database has it.

    `unique_key` is the first unique index without nullable columns.
    """

    name: TableName
    columns: tuple[NativeColumn, ...]
    primary_key: tuple[str, ...] = ()
    unique_key: tuple[str, ...] = ()
    comment: str = ""
    deferrable_keys: tuple[tuple[str, ...], ...] = ()
    """Keys that are checked at the end of a transaction only, so that two rows may have the same
    one until then.
    """
    kind: str = ""
    """What it is, where a database tells: `table`, `partitioned table`, `view` ..."""

    def column(self, name: str) -> NativeColumn | None:
        """A column by its name: exactly, else in any case."""
        exact = next((c for c in self.columns if c.name == name), None)
        return exact or next((c for c in self.columns if c.name.lower() == name.lower()), None)

    def as_table(self, types: dict[str, DataType], *, kinds: bool = False) -> Table:
        """The table as it flows through a pipeline; `types` are our types by column name."""
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
