"""Parse statements of the log: which tables they name, and what they do to them.

Pure; called by binlog_statements.py. A statement is harmless only if all its clauses are known to
be: others are UNKNOWN, and the caller stops if they may concern a table that is read. The clauses
of ALTER TABLE are in binlog_alter.py.
"""

from dataclasses import dataclass
from enum import StrEnum

from tidegate.databases.mysql.binlog_alter import (
    AddedColumn,
    Alteration,
    ClauseSeverity,
    parse_alteration,
)
from tidegate.databases.mysql.binlog_lexer import Cursor, SqlToken, SqlTokenKind, tokens

_HARMLESS = {
    "grant",
    "revoke",
    "set",
    "flush",
    "analyze",
    "optimize",
    "check",
    "reset",
    "purge",
    "install",
    "uninstall",
}
_HARMLESS |= {"lock", "unlock", "use", "show", "kill"}
_OBJECTS = {
    "view",
    "procedure",
    "function",
    "trigger",
    "event",
    "user",
    "role",
    "server",
    "sequence",
    "package",
    "logfile",
}
_OBJECTS |= {"tablespace", "resource", "library", "instance", "undo"}
_ROW_VERBS = {
    "insert",
    "replace",
    "update",
    "delete",
    "load",
    "with",
    "select",
    "call",
    "do",
    "values",
    "handler",
}
_HEAD_MAX = 16
Path = tuple[str, str | None]


class Effect(StrEnum):
    """What a statement does to the tables that it names."""

    HARMLESS = "harmless"  # rows, columns and key are unchanged
    INDEX = "index"  # harmless if rows are identified by the primary key
    MODIFY = "modify"  # repeats definitions of columns, maybe unchanged
    ADD_COLUMN = "add-column"
    ALTER = "alter"  # changes columns, key or engine
    REMOVE = "remove"  # drops, empties, renames or replaces a table or parts of it
    TRUNCATE = "truncate"
    DROP = "drop"
    CREATE = "create"
    ROWS = "rows"  # changes rows by a statement instead of row events
    UNKNOWN = "unknown"
    DIFFERS = (  # not a statement: a table map differs from the recorded columns
        "differs"
    )


_EFFECTS = {
    ClauseSeverity.HARMLESS: Effect.HARMLESS,
    ClauseSeverity.INDEX: Effect.INDEX,
    ClauseSeverity.MODIFY: Effect.MODIFY,
    ClauseSeverity.ADD: Effect.ADD_COLUMN,
    ClauseSeverity.ALTER: Effect.ALTER,
    ClauseSeverity.REMOVE: Effect.REMOVE,
}


@dataclass(frozen=True, slots=True)
class TableStatement:
    """A statement and the tables that it touches, as (database, table).

    A table of None stands for the whole database. `lists_all` is false if it may touch other
    tables.
    """

    effect: Effect
    tables: tuple[Path, ...]
    text: str
    alteration: Alteration | None = None
    lists_all: bool = True
    sql_mode: int = 0

    @property
    def added(self) -> tuple[AddedColumn, ...]:
        """The columns that it adds."""
        return self.alteration.added if self.alteration is not None else ()


def table_statement(database: str, text: str, sql_mode: int = 0) -> TableStatement | None:
    """Return what a statement does to tables; None if it does nothing to them."""
    found = tokens(text, sql_mode)
    cursor = Cursor(found)
    verb = cursor.word()
    if not verb:
        return TableStatement(Effect.UNKNOWN, (), text, lists_all=False) if found else None
    if verb in _HARMLESS:
        return None
    if verb in _ROW_VERBS:
        target = _row_target(found, database)
        return TableStatement(
            Effect.ROWS, () if target is None else (target,), text, lists_all=target is not None
        )
    match verb:
        case "alter":
            return _alter(found, database, text, sql_mode)
        case "drop":
            return _drop(found, database, text)
        case "create":
            return _create(found, database, text)
        case "truncate":
            cursor.take("truncate")
            cursor.take("table")
            return _one(Effect.TRUNCATE, cursor.path(database), text)
        case "rename":
            return _rename(cursor, database, text)
        case _:
            return TableStatement(Effect.UNKNOWN, (), text, lists_all=False)


def _one(effect: Effect, path: Path | None, text: str) -> TableStatement:
    return (
        TableStatement(Effect.UNKNOWN, (), text, lists_all=False)
        if path is None
        else TableStatement(effect, (path,), text)
    )


def _object_index(found: list[SqlToken], *kinds: str) -> int | None:
    """Return the index of the kind of object that a CREATE, ALTER or DROP names.

    It is the first of these words that is not quoted.
    """
    return next(
        (
            n
            for n, t in enumerate(found[:_HEAD_MAX])
            if t.kind is SqlTokenKind.WORD and t.value in kinds
        ),
        None,
    )


def _alter(found: list[SqlToken], database: str, text: str, sql_mode: int) -> TableStatement | None:
    at = _object_index(found, "table", "database", "schema", *_OBJECTS)
    if at is None:
        return TableStatement(Effect.UNKNOWN, (), text, lists_all=False)
    if found[at].value != "table":
        return None  # the defaults of a database apply to future tables only
    cursor = Cursor(found[at + 1 :])
    cursor.skip_exists()
    path = cursor.path(database)
    cursor.skip_wait()
    if path is None:
        return TableStatement(Effect.UNKNOWN, (), text, lists_all=False)
    altered = parse_alteration(cursor.rest, database)
    return TableStatement(
        _EFFECTS[altered.severity], (path, *altered.others), text, altered, sql_mode=sql_mode
    )


def _drop(found: list[SqlToken], database: str, text: str) -> TableStatement | None:
    at = _object_index(
        found, "table", "tables", "database", "schema", "index", "temporary", *_OBJECTS
    )
    if at is None:
        return TableStatement(Effect.UNKNOWN, (), text, lists_all=False)
    cursor = Cursor(found[at + 1 :])
    cursor.skip_exists()
    match found[at].value:
        case "database" | "schema":
            name = cursor.name()
            return (
                TableStatement(Effect.DROP, ((name, None),), text)
                if name
                else TableStatement(Effect.UNKNOWN, (), text, lists_all=False)
            )
        case "table" | "tables":
            paths = []
            while (path := cursor.path(database)) is not None:
                paths.append(path)
                if not cursor.mark(","):
                    break
            return TableStatement(Effect.DROP, tuple(paths), text)
        case "index":
            name = cursor.name() or ""
            cursor.take("on")
            return _one(
                Effect.ALTER if name.lower() == "primary" else Effect.INDEX,
                cursor.path(database),
                text,
            )
        case _:
            return None


def _create(found: list[SqlToken], database: str, text: str) -> TableStatement | None:
    at = _object_index(found, "table", "database", "schema", "index", "temporary", *_OBJECTS)
    if at is None:
        return TableStatement(Effect.UNKNOWN, (), text, lists_all=False)
    cursor = Cursor(found[at + 1 :])
    cursor.skip_exists()
    head = [t.value for t in found[:at]]
    match found[at].value:
        case "table":
            return _one(
                Effect.REMOVE if "replace" in head else Effect.CREATE, cursor.path(database), text
            )
        case "database" | "schema" if "replace" in head:
            name = cursor.name()
            return TableStatement(Effect.DROP, ((name, None),), text) if name else None
        case "index":
            while cursor.rest and not cursor.take("on"):
                cursor.rest = cursor.rest[1:]
            return _one(
                Effect.INDEX if "unique" in head else Effect.HARMLESS, cursor.path(database), text
            )
        case _:
            return None


def _rename(cursor: Cursor, database: str, text: str) -> TableStatement | None:
    cursor.take("rename")
    if cursor.take("user"):
        return None
    if not (cursor.take("table") or cursor.take("tables")):
        return TableStatement(Effect.UNKNOWN, (), text, lists_all=False)
    cursor.skip_exists()
    paths: list[Path] = []
    while (old := cursor.path(database)) is not None:
        cursor.skip_wait()
        cursor.take("to")
        new = cursor.path(database)
        paths += [old] if new is None else [old, new]
        if not cursor.mark(","):
            break
    return TableStatement(Effect.REMOVE, tuple(paths), text, lists_all=not cursor.rest)


def _row_target(found: list[SqlToken], database: str) -> Path | None:
    """Return the single table that a statement writes to, if that is certain."""
    cursor = Cursor(found)
    verb = cursor.word()
    cursor.take(verb)
    cursor.skip("low_priority", "delayed", "high_priority", "quick", "ignore")
    match verb:
        case "insert" | "replace":
            cursor.take("into")
            return cursor.path(database)
        case "delete" if cursor.take("from"):
            path = cursor.path(database)
            return (
                path
                if cursor.word() in ("", "where", "order", "limit", "returning")
                and not cursor.mark(",")
                else None
            )
        case "update":
            path = cursor.path(database)
            return path if cursor.word() == "set" else None
        case "load":
            while cursor.rest and not cursor.take("into", "table"):
                cursor.rest = cursor.rest[1:]
            return cursor.path(database)
        case _:
            return None
