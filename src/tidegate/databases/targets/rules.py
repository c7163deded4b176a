"""How each database handles what a sink writes: names, column types, keys, session modes.

`rules_of` returns the rules of a system. The specifics of reading are in the dialects. Rules hold
no connection.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tidegate.databases.catalog import SOURCE_TYPES, NativeColumn, TableInfo, TableName
from tidegate.databases.session import Session
from tidegate.databases.targets.type_fit import ColumnCapacity
from tidegate.databases.types import base_and_sizes
from tidegate.databases.url import System
from tidegate.model.types import Column


@dataclass(frozen=True, kw_only=True, slots=True)
class UniqueIndex:
    """A unique index of a target; a part that is an expression has no column.

    `identifies_rows`: it covers every row, compares complete values and is checked immediately.
    Only then the database can find a row by it.
    """

    name: str
    columns: tuple[str | None, ...]
    identifies_rows: bool = True

    def covers(self, key: Sequence[str]) -> bool:
        """Whether it identifies rows by exactly this key."""
        return self.identifies_rows and {(name or "").lower() for name in self.columns} == {
            name.lower() for name in key
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetTable:
    """A table that a sink writes to, as defined in its database.

    `kind` is empty for a table, else the kind of relation: view, sequence. `cascades` names the
    foreign keys of other tables by which deleting a row here deletes or changes rows there.
    """

    info: TableInfo
    kind: str = ""
    uniques: tuple[UniqueIndex, ...] = ()
    cascades: tuple[str, ...] = ()
    merging_columns: frozenset[str] = frozenset()
    """Columns whose collation treats different texts as equal, if not known from the column."""

    def other_indexes(self, key: Sequence[str]) -> list[UniqueIndex]:
        """The unique indexes other than that of the key."""
        return [index for index in self.uniques if not index.covers(key)]

    def has_unique_index(self, key: Sequence[str]) -> bool:
        """Whether there is a unique index for the key."""
        return bool(key) and any(index.covers(key) for index in self.uniques)


class KeyTooLong(ValueError):
    """The key of a new table exceeds the size limit of an index."""


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """Native type and collation of a column at the source.

    Only a hint: transforms may have dropped or moved it.
    """

    native: str
    collation: str = ""

    @property
    def fraction(self) -> int | None:
        """Fractional digits of a second; None if the type is not a time."""
        base, sizes = base_and_sizes(self.native)
        timed = base.startswith(("time", "datetime"))
        default = 0 if self.native.strip().lower() in ("time", "datetime", "timestamp") else 6
        return (sizes[0] if sizes else default) if timed else None

    @property
    def length(self) -> int:
        """Maximum characters or bytes, as in `varchar(80)`; 0 if there is no limit."""
        base, sizes = base_and_sizes(self.native)
        sized = base in ("char", "varchar", "character", "character varying", "binary", "varbinary")
        return sizes[0] if sized and sizes else 0


SourceColumns = Mapping[str, SourceColumn]


def source_columns(options: Mapping[str, Any]) -> SourceColumns:
    """Read the source's column types from table options, if it provided them."""
    return {
        name: SourceColumn(*origin_fields)
        for name, origin_fields in options.get(SOURCE_TYPES, {}).items()
    }


class TargetRules(ABC):
    """The rules of one database."""

    keeps_nan: ClassVar[bool] = False
    keeps_infinity: ClassVar[bool] = False
    years: ClassVar[tuple[int, int] | None] = (1, 9999)
    """First and last year of dates; None if the server itself rejects others."""
    names_max: ClassVar[int]
    names_unit: ClassVar[str] = "characters"
    ignores_column_case: ClassVar[bool]
    """Whether column names are compared ignoring case."""

    def too_long(self, name: str) -> bool:
        """Whether the database would reject or truncate a name."""
        return len(name) > self.names_max

    @abstractmethod
    def ignores_table_case(self, session: Session) -> bool:
        """Whether table names are compared ignoring case."""

    @abstractmethod
    def capacity(self, column: NativeColumn) -> ColumnCapacity:
        """The values that a column can store."""

    @abstractmethod
    def relation_kind(self, session: Session, name: TableName) -> str:
        """The kind of a relation: empty for a table, else view, sequence and the like."""

    @abstractmethod
    def read_target(self, session: Session, info: TableInfo) -> TargetTable:
        """Read what must be known about a table before rows are written to it."""

    def why_keys_merge(
        self,
        column: NativeColumn,  # noqa: ARG002  # most compare texts by their bytes
        origin: SourceColumn | None,  # noqa: ARG002  # most compare texts by their bytes
    ) -> str:
        """Why different keys of the source may be equal in a column; empty if they cannot."""
        return ""

    def ignores_trailing_blanks(
        self,
        column: NativeColumn,  # noqa: ARG002  # most do not
        origin: SourceColumn | None,  # noqa: ARG002  # most do not
    ) -> bool:
        """Whether keys that differ only in trailing blanks are equal."""
        return False

    def column_type(
        self,
        column: Column,  # noqa: ARG002  # most have one type for each of ours
        native: str,
        origin: SourceColumn | None,  # noqa: ARG002  # most have one type for each of ours
    ) -> str:
        """The type of a non-key column of a new table; `native` is the dialect's default."""
        return native

    def key_column_types(
        self,
        columns: Sequence[Column],  # noqa: ARG002  # as above
        natives: Sequence[str],
        origins: SourceColumns,  # noqa: ARG002  # as above
        session: Session,  # noqa: ARG002  # as above
        *,
        indexed: bool,  # noqa: ARG002  # as above
    ) -> list[str]:
        """The types of a new table's key columns, with or without an index.

        Raises KeyTooLong if the key exceeds the size limit of an index.
        """
        return list(natives)

    def prepare_session(self, session: Session) -> None:  # noqa: B027  # most have no modes
        """Configure a session for writing, so that it rejects values that do not fit.

        Raises TransientDatabaseError if it would change them instead.
        """

    def altered_values(self, session: Session) -> str:  # noqa: ARG002  # most refuse them
        """The server's warning about values that the last statement changed; empty if none."""
        return ""


def rules_of(system: System) -> TargetRules:
    """Return the rules of a system; loads its module only."""
    match system:
        case System.MYSQL:
            from tidegate.databases.targets.mysql_rules import MySqlRules

            return MySqlRules()
        case System.POSTGRES:
            from tidegate.databases.targets.postgres_rules import PostgresRules

            return PostgresRules()
        case System.SQLITE:
            from tidegate.databases.targets.sqlite_rules import SqliteRules

            return SqliteRules()


def qualified_names(name: TableName) -> tuple[str, str]:
    """Database or schema, and table: the parameters of most catalog queries."""
    return (name.schema or name.database, name.table)
