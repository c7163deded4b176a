"""What each database does in its own way with what a sink writes: names, column types, keys, modes.
`rules_of` gives those of a system.

The other half of a database's ways, reading, is in its dialect. Rules hold no connection.
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
    """A unique index of a target; a part that is an expression has no column. `whole` tells that it
    covers every row, compares whole values and is checked at once: only then the database can find
    a row by it.
    """

    name: str
    columns: tuple[str | None, ...]
    identifies_rows: bool = True

    def covers(self, key: Sequence[str]) -> bool:
        """Whether it is the index of a key."""
        return self.identifies_rows and {(name or "").lower() for name in self.columns} == {
            name.lower() for name in key
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetTable:
    """A table that a sink writes to, as its database has it.

    `kind` is empty for a table, else what it is instead: view, sequence. `cascades` names the
    foreign keys of other tables by which deleting a row here deletes or changes rows there.
    """

    info: TableInfo
    kind: str = ""
    uniques: tuple[UniqueIndex, ...] = ()
    cascades: tuple[str, ...] = ()
    merging_columns: frozenset[str] = frozenset()
    """Columns whose collation takes different texts for one, where the column itself does not tell."""

    def other_indexes(self, key: Sequence[str]) -> list[UniqueIndex]:
        """The unique indexes beside that of the key."""
        return [index for index in self.uniques if not index.covers(key)]

    def has_unique_index(self, key: Sequence[str]) -> bool:
        """Whether one of the unique indexes is that of the key."""
        return bool(key) and any(index.covers(key) for index in self.uniques)


class KeyTooLong(ValueError):
    """The key of a new table is wider than an index can be."""


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """How the source calls a column's type, and its collation there.

    Only a help: transforms may have lost or moved it.
    """

    native: str
    collation: str = ""

    @property
    def fraction(self) -> int | None:
        """Digits of a second, where the type is one of time."""
        base, sizes = base_and_sizes(self.native)
        timed = base.startswith(("time", "datetime"))
        default = 0 if self.native.strip().lower() in ("time", "datetime", "timestamp") else 6
        return (sizes[0] if sizes else default) if timed else None

    @property
    def length(self) -> int:
        """Characters or bytes of `varchar(80)` and the like; 0 where it has no limit."""
        base, sizes = base_and_sizes(self.native)
        sized = base in ("char", "varchar", "character", "character varying", "binary", "varbinary")
        return sizes[0] if sized and sizes else 0


SourceColumns = Mapping[str, SourceColumn]


def source_columns(options: Mapping[str, Any]) -> SourceColumns:
    """How the source calls the types of its columns, where it says so."""
    return {name: SourceColumn(*told) for name, told in options.get(SOURCE_TYPES, {}).items()}


class TargetRules(ABC):
    """The ways of one database."""

    keeps_nan: ClassVar[bool] = False
    keeps_infinity: ClassVar[bool] = False
    years: ClassVar[tuple[int, int] | None] = (1, 9999)
    """The first and the last year of dates and times; None where the server itself tells of others."""
    names_max: ClassVar[int]
    names_unit: ClassVar[str] = "characters"
    ignores_column_case: ClassVar[bool]
    """Whether names of columns that differ in case only are one."""

    def too_long(self, name: str) -> bool:
        """Whether the database would refuse a name, or cut it."""
        return len(name) > self.names_max

    @abstractmethod
    def ignores_table_case(self, session: Session) -> bool:
        """Whether names of tables that differ in case only are one."""

    @abstractmethod
    def capacity(self, column: NativeColumn) -> ColumnCapacity:
        """The values that a column keeps."""

    @abstractmethod
    def relation_kind(self, session: Session, name: TableName) -> str:
        """What is under a name: empty for a table, else view, sequence and the like."""

    @abstractmethod
    def read_target(self, session: Session, info: TableInfo) -> TargetTable:
        """What else is to be known of a table before rows are written to it."""

    def why_keys_merge(self, column: NativeColumn, origin: SourceColumn | None) -> str:  # noqa: ARG002  # most compare texts by their bytes
        """Why keys that differ at the source may be one in a column; empty where they cannot."""
        return ""

    def ignores_trailing_blanks(self, column: NativeColumn, origin: SourceColumn | None) -> bool:  # noqa: ARG002  # most do not
        """Whether keys that differ only in blanks at their end are one."""
        return False

    def column_type(self, column: Column, native: str, origin: SourceColumn | None) -> str:  # noqa: ARG002  # most have one type for each of ours
        """The type of a column of a new table, that is no part of its key; `native` is what the
        dialect proposes.
        """
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
        """The types of the columns of a new table's key, with or without an index.

        KeyTooLong where no index can hold it.
        """
        return list(natives)

    def prepare_session(self, session: Session) -> None:  # noqa: B027  # most have no modes
        """Make a session one that writes: it refuses values that do not fit; DatabaseTrouble where
        it would change them.
        """

    def altered_values(self, session: Session) -> str:  # noqa: ARG002  # most refuse them
        """What the last statement has done to values without refusing them, in the words of the
        server; empty where nothing.
        """
        return ""


def rules_of(system: System) -> TargetRules:
    """The rules of a database."""
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
    """Database or schema, and table: the parameters of most catalogues."""
    return (name.schema or name.database, name.table)
