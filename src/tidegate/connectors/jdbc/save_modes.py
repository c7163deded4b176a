"""Prepares a table before the first rows of a lineage: schema_save_mode and data_save_mode.

Also adds columns later. Called by committer.py. Every step can be repeated: until the record marks
a table as prepared, it has none of our rows.
"""

from tidegate.connectors.jdbc.target import JdbcTarget
from tidegate.databases.catalog import TableInfo, TableName
from tidegate.databases.ddl import (
    add_column,
    create_namespace,
    create_table,
    drop_table,
    empty_table,
)
from tidegate.databases.dialect import Dialect
from tidegate.databases.errors import TableMissing
from tidegate.databases.session import Session
from tidegate.databases.targets.rules import KeyTooLong, rules_of
from tidegate.databases.url import System
from tidegate.model.errors import UserError
from tidegate.plugin.option import Values


class TableNotPrepared(UserError):
    """The table does not meet the requirements of the save mode."""

    condition = "save-mode"


class SaveModes:
    """The save modes of one sink."""

    def __init__(self, dialect: Dialect, values: Values) -> None:
        self._dialect = dialect
        self._rules = rules_of(dialect.system)
        self._schema, self._data, self._custom = (
            values["schema_save_mode"],
            values["data_save_mode"],
            values["custom_sql"],
        )
        self._creates_key = values["create_index"]

    @property
    def removes_rows(self) -> bool:
        """Whether rows written by others are removed."""
        return bool(self._schema == "RECREATE_SCHEMA" or self._data == "DROP_DATA")

    def apply(self, session: Session, target: JdbcTarget) -> None:
        """Prepare a table; done once per lineage."""
        info = self._dialect.table_info(session, target.name)
        if info is None and self._schema == "ERROR_WHEN_SCHEMA_NOT_EXIST":
            raise TableNotPrepared(
                f"the table {target.name} does not exist, and schema_save_mode is"
                " ERROR_WHEN_SCHEMA_NOT_EXIST"
            )
        if info is not None and self._schema == "RECREATE_SCHEMA":
            session.execute(drop_table(self._dialect, target.name))
            info = None
        if info is not None:
            self._empty(session, target.name)
        elif self._schema == "IGNORE":
            raise TableMissing(str(session.address), target.name.path)
        else:
            self._create(session, target)
        if self._data == "CUSTOM_PROCESSING":
            session.execute(self._custom)

    def _create(self, session: Session, target: JdbcTarget) -> None:
        if not self._has_namespace(session, target.name) and (
            statement := create_namespace(self._dialect, target.name)
        ):
            session.execute(statement)
        key = target.key if self._creates_key else ()
        for statement in create_table(
            self._dialect,
            target.name,
            target.columns,
            key,
            target.comment,
            self._types(session, target),
        ):
            session.execute(statement)

    def _types(self, session: Session, target: JdbcTarget) -> list[str]:
        """The types of a new table's columns, wide enough for all values of the source."""
        columns = target.columns
        natives = [self._dialect.native_type(column.type) for column in columns]
        found = [
            self._rules.column_type(c, native, target.origins.get(c.name))
            for c, native in zip(columns, natives, strict=True)
        ]
        indexes = target.positions(target.key)
        try:
            wide = self._rules.key_column_types(
                [columns[n] for n in indexes],
                [found[n] for n in indexes],
                target.origins,
                session,
                indexed=self._creates_key,
            )
        except KeyTooLong as error:
            raise TableNotPrepared(
                f"the table {target.name} cannot be created: {error}. Create it yourself, choose"
                " other primary_keys, or set create_index = false"
            ) from None
        for number, native in zip(indexes, wide, strict=True):
            found[number] = native
        return found

    def _has_namespace(self, session: Session, name: TableName) -> bool:
        """Check before creating: even `if not exists` needs a permission that users may lack."""
        match self._dialect.system:
            case System.MYSQL:
                return (
                    session.scalar(
                        "select 1 from information_schema.schemata where schema_name = %s",
                        (name.database,),
                    )
                    is not None
                )
            case System.POSTGRES:
                return (
                    session.scalar("select 1 from pg_namespace where nspname = %s", (name.schema,))
                    is not None
                )
            case System.SQLITE:
                return True

    def _empty(self, session: Session, name: TableName) -> None:
        if self._data == "DROP_DATA":
            session.execute(empty_table(self._dialect, name))
        elif self._data == "ERROR_WHEN_DATA_EXISTS" and session.query(
            f"select 1 from {self._dialect.qualified(name)} limit 1"
        ):
            raise TableNotPrepared(
                f"{name} has rows already, and data_save_mode is ERROR_WHEN_DATA_EXISTS"
            )

    def add_missing_columns(self, session: Session, target: JdbcTarget, info: TableInfo) -> None:
        """Add columns that were added at the source."""
        lacking = (
            [column for column in target.columns if info.column(column.name) is None]
            if target.adds_columns
            else []
        )
        for column in lacking:
            native = self._rules.column_type(
                column, self._dialect.native_type(column.type), target.origins.get(column.name)
            )
            session.execute(add_column(self._dialect, target.name, column, native))

    def read_table(self, session: Session, target: JdbcTarget) -> TableInfo:
        """Read the current definition of the target's table."""
        info = self._dialect.table_info(session, target.name)
        if info is None:
            raise TableMissing(str(session.address), target.name.path)
        return info
