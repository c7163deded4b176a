"""Properties of tables that decide whether their log is complete.

Called by source.py, in the driver. They are engine, system versioning and cascading foreign keys.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tidegate.databases.catalog import TableName
from tidegate.databases.cdc.errors import NotSetUp
from tidegate.databases.mysql.binlog_lexer import SqlTokenKind, tokens
from tidegate.databases.session import Session

CASCADES_OPTION = "foreign-key-cascades"
_TABLES = """
select t.table_schema, t.table_name, t.engine, coalesce(e.transactions, 'YES')
from information_schema.tables t left join information_schema.engines e on e.engine = t.engine
where t.table_schema in ({})"""
_VERSIONED = (
    "select table_schema, table_name from information_schema.tables where table_type = 'SYSTEM"
    " VERSIONED'"
)
_CASCADES = """
select constraint_schema, table_name, constraint_name, unique_constraint_schema,
  referenced_table_name, delete_rule, update_rule
from information_schema.referential_constraints where constraint_schema in ({})
and (delete_rule in ('CASCADE', 'SET NULL', 'SET DEFAULT')
  or update_rule in ('CASCADE', 'SET NULL', 'SET DEFAULT'))"""
_TRIGGERS = "select event_object_schema, event_object_table from information_schema.triggers"
_FUNCTIONS = "select routine_name from information_schema.routines where routine_type = 'FUNCTION'"


@dataclass(frozen=True, slots=True)
class TableTraits:
    """The engine of a table, and whether a rollback reverts its rows."""

    engine: str
    transactional: bool


def traits_of(session: Session, names: Iterable[TableName]) -> dict[str, TableTraits]:
    """Return the traits of tables by path, with one query."""
    paths = {(n.database.lower(), n.table.lower()): n.path for n in names}
    if not paths:
        return {}
    databases = sorted({n for n, _ in paths})
    rows = session.query(_TABLES.format(", ".join(["%s"] * len(databases))), databases)
    return {
        path: TableTraits(str(engine or ""), transactions != "NO")
        for database, table, engine, transactions in rows
        if (path := paths.get((str(database).lower(), str(table).lower()))) is not None
    }


def versioned_tables(session: Session) -> list[str]:
    """Return the tables that keep former versions of their rows, by path."""
    return [f"{database}.{table}" for database, table in session.query(_VERSIONED)]


def check_cascades(session: Session, names: Iterable[TableName]) -> None:
    """Raise NotSetUp if rows of these tables change without being logged.

    InnoDB executes foreign keys itself; MySQL from 9.6 on does not.
    """
    if session.query(
        "show global variables where variable_name = 'innodb_native_foreign_keys' and value = 'OFF'"
    ):
        return
    paths = {(n.database.lower(), n.table.lower()): n.path for n in names}
    databases = sorted({n for n, _ in paths})
    if not databases:
        return
    found = [
        f"{paths[child]} by {constraint} ({parent_database}.{parent}: on delete {delete.lower()},"
        f" on update {update.lower()})"
        for database, table, constraint, parent_database, parent, delete, update in session.query(
            _CASCADES.format(", ".join(["%s"] * len(databases))), databases
        )
        if (child := (str(database).lower(), str(table).lower())) in paths
    ]
    if found:
        raise NotSetUp(
            f"the source {session.address} changes rows of tables that are read without "
            "writing it to its log, as InnoDB executes foreign keys itself: "
            f"{'; '.join(sorted(found))}. Make the keys RESTRICT and let the application "
            f"delete and update the rows, leave the tables out, or set {CASCADES_OPTION} = "
            '"ignore" if the rows referred to are never deleted and their keys never change'
        )


def has_side_effects(session: Session, tables: Sequence[tuple[str, str | None]], text: str) -> bool:
    """Return whether a statement may change other tables than it names.

    It may by a trigger on them, or by a function that it calls.
    """
    triggered = {(str(d).lower(), str(t).lower()) for d, t in session.query(_TRIGGERS)}
    if any((d.lower(), (t or "").lower()) in triggered for d, t in tables):
        return True
    functions = {str(name).lower() for (name,) in session.query(_FUNCTIONS)}
    found = tokens(text)
    return any(
        one.kind is not SqlTokenKind.TEXT and one.value.lower() in functions and two.raw == "("
        for one, two in pairwise(found)
    )
