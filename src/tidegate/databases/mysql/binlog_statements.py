"""Decide which statements of the log a reader of rows must stop at.

Called by binlog_scan.py; queries the server only if a statement may have side effects.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.databases.mysql.binlog_ddl import Effect, TableStatement, table_statement
from tidegate.databases.mysql.binlog_definition import Charsets, Recorded, known_charset
from tidegate.databases.mysql.binlog_events import LoggedStatement
from tidegate.databases.mysql.binlog_lexer import statement_text
from tidegate.databases.mysql.binlog_position import LogPosition
from tidegate.databases.mysql.binlog_xa import PreparedTransaction

_PASSED = (Effect.HARMLESS, Effect.CREATE)


def fold(name: str) -> str:
    """Return a name as a server that ignores case compares it: character by character."""
    return "".join(lower if len(lower := letter.lower()) == 1 else letter for letter in name)


def no_side_effects(tables: Sequence[tuple[str, str | None]], text: str) -> bool:
    """Assume that a statement changes only the tables it names, without a server to query."""
    del tables, text
    return False


def none_prepared(xid: str, before: LogPosition) -> PreparedTransaction | None:
    """Find no prepared transaction, without a server to query."""
    del xid, before
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchedTables:
    """The tables that are read, by path, with what is recorded of them.

    `nontransactional` are those whose rows a rollback does not revert. `unread` are tables of which
    nothing is read yet: statements about them are reported, but do not stop the scan. `folds_case`
    says whether the server ignores case in names. `stop_at_create` and `stop_at_any` stop the scan
    at CREATE TABLE, and at every statement about a table. `has_side_effects` returns whether a
    statement may change other tables than it names, `find_prepared` where an XA transaction was
    prepared.
    """

    tables: Mapping[str, Recorded] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()
    nontransactional: frozenset[str] = frozenset()
    engines: Mapping[str, str] = field(default_factory=dict)
    folds_case: bool = False
    stop_at_create: bool = False
    stop_at_any: bool = False
    charset: Charsets = known_charset
    has_side_effects: Callable[[Sequence[tuple[str, str | None]], str], bool] = no_side_effects
    find_prepared: Callable[[str, LogPosition], PreparedTransaction | None] = none_prepared

    def path(self, path: str) -> str | None:
        """Return the table that is read under this name of the log; else None."""
        if path in self.tables or not self.folds_case:
            return path if path in self.tables else None
        folded = fold(path)
        return next((p for p in self.tables if fold(p) == folded), None)

    def of_database(self, database: str) -> list[str]:
        """Return the tables of a database."""
        same = fold if self.folds_case else str
        return [p for p in self.tables if same(p.partition(".")[0]) == same(database)]

    def named(
        self, statement: TableStatement, candidates: Sequence[str] | None = None
    ) -> list[str]:
        """Return the tables that a statement names."""
        same = fold if self.folds_case else str
        paths = list(self.tables) if candidates is None else list(candidates)
        found = []
        for database, table in statement.tables:
            name = same(database) if table is None else same(f"{database}.{table}")
            found += [p for p in paths if same(p.partition(".")[0] if table is None else p) == name]
        return list(dict.fromkeys(found))

    def mentioned(self, text: str) -> list[str]:
        """Return the tables whose name, or whose database, occurs anywhere in a text."""
        folded = fold(text)
        return [p for p in self.tables if any(fold(part) in folded for part in p.split(".", 1))]


@dataclass(frozen=True, slots=True)
class RelevantStatement:
    """A statement and the tables that it affects: those being read, and those not read yet."""

    statement: TableStatement
    paths: tuple[str, ...]
    unread: tuple[str, ...] = ()


def relevant_statement(logged: LoggedStatement, watched: WatchedTables) -> RelevantStatement | None:
    """Return a statement that may change a table that is read.

    None if it can be skipped.
    """
    text = statement_text(logged)
    found = table_statement(logged.database, text, logged.sql_mode)
    if found is None:
        return None
    unread = tuple(watched.named(found, sorted(watched.unread)))
    paths = tuple(_affected(found, logged.database, watched))
    if not paths or all(_is_harmless(found, path, watched) for path in paths):
        return RelevantStatement(found, (), unread) if unread else None
    return RelevantStatement(found, paths, unread)


def _affected(found: TableStatement, database: str, watched: WatchedTables) -> list[str]:
    named = watched.named(found)
    if found.effect is Effect.ROWS and found.lists_all:
        return named or (
            watched.of_database(database)
            if watched.tables and watched.has_side_effects(found.tables, found.text)
            else []
        )
    if found.lists_all:
        return named
    same_database = watched.of_database(database) if found.effect is Effect.ROWS else []
    return list(dict.fromkeys([*named, *same_database, *watched.mentioned(found.text)]))


def _is_harmless(found: TableStatement, path: str, watched: WatchedTables) -> bool:
    if watched.stop_at_any:
        return False
    if found.effect is Effect.INDEX:
        return not any((c.key or 0) < 0 for c in watched.tables[path])
    if found.effect is Effect.CREATE and watched.stop_at_create:
        return False
    altered = found.alteration
    if found.effect not in _PASSED or (altered is not None and altered.cascades):
        return False
    engine = altered.engine if altered is not None else None
    return engine is None or engine.lower() == watched.engines.get(path, "").lower()
