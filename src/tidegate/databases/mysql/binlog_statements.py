"""Which statements of the log a reader of rows must stop at.

Called by scan.py; asks the server only where a statement may do more than it says.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.databases.mysql.binlog_ddl import Effect, TableStatement, table_statement
from tidegate.databases.mysql.binlog_definition import Charsets, Recorded, known_charset
from tidegate.databases.mysql.binlog_events import LoggedStatement
from tidegate.databases.mysql.binlog_lexer import decoded
from tidegate.databases.mysql.binlog_position import LogPosition
from tidegate.databases.mysql.binlog_xa import PreparedTransaction

_PASSED = (Effect.HARMLESS, Effect.CREATE)


def fold(name: str) -> str:
    """A name as a server that ignores case compares it: character by character."""
    return "".join(lower if len(lower := letter.lower()) == 1 else letter for letter in name)


def nothing_hidden(tables: Sequence[tuple[str, str | None]], text: str) -> bool:
    """For readers without a server to ask: a statement that names its table does nothing else."""
    del tables, text
    return False


def nothing_prepared(xid: str, before: LogPosition) -> PreparedTransaction | None:
    """For readers without a server to ask."""
    del xid, before
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Watched:
    """The tables that are read, by path, with what is recorded of them, and how the server treats
    them.

    `kept` are those whose rows a rollback does not undo. `waiting` are tables of which nothing is
    read yet: statements about them are told and not judged. `creates` and `every` tell whether
    CREATE TABLE, and every statement about a table, are stopped at. `hidden` tells whether a
    statement may change other tables than it names, `search` finds where an XA transaction was
    prepared.
    """

    tables: Mapping[str, Recorded] = field(default_factory=dict)
    waiting: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    engines: Mapping[str, str] = field(default_factory=dict)
    folds: bool = False
    creates: bool = False
    every: bool = False
    charset: Charsets = known_charset
    hidden: Callable[[Sequence[tuple[str, str | None]], str], bool] = nothing_hidden
    search: Callable[[str, LogPosition], PreparedTransaction | None] = nothing_prepared

    def path(self, path: str) -> str | None:
        """The table that is read and that the log calls so."""
        if path in self.tables or not self.folds:
            return path if path in self.tables else None
        wanted = fold(path)
        return next((p for p in self.tables if fold(p) == wanted), None)

    def of_database(self, database: str) -> list[str]:
        """The tables of a database."""
        same = fold if self.folds else str
        return [p for p in self.tables if same(p.partition(".")[0]) == same(database)]

    def named(self, statement: TableStatement, known: Sequence[str] | None = None) -> list[str]:
        """The tables that a statement names."""
        same = fold if self.folds else str
        paths = list(self.tables) if known is None else list(known)
        found = []
        for database, table in statement.tables:
            wanted = same(database) if table is None else same(f"{database}.{table}")
            found += [
                p for p in paths if same(p.partition(".")[0] if table is None else p) == wanted
            ]
        return list(dict.fromkeys(found))

    def mentioned(self, text: str) -> list[str]:
        """The tables whose name, or whose database's, occurs anywhere in a text."""
        whole = fold(text)
        return [p for p in self.tables if any(fold(part) in whole for part in p.split(".", 1))]


@dataclass(frozen=True, slots=True)
class StatementJudgment:
    """A statement and the tables that it means, those that are read and those that are not read
    yet.
    """

    statement: TableStatement
    paths: tuple[str, ...]
    waiting: tuple[str, ...] = ()


def judge(logged: LoggedStatement, watched: Watched) -> StatementJudgment | None:
    """The statement, where a table that is read may not be the same after it; None where it can be
    passed.
    """
    text = decoded(logged)
    found = table_statement(logged.database, text, logged.sql_mode)
    if found is None:
        return None
    waiting = tuple(watched.named(found, sorted(watched.waiting)))
    paths = tuple(_concerned(found, logged.database, watched))
    if not paths or all(_is_harmless(found, path, watched) for path in paths):
        return StatementJudgment(found, (), waiting) if waiting else None
    return StatementJudgment(found, paths, waiting)


def _concerned(found: TableStatement, database: str, watched: Watched) -> list[str]:
    named = watched.named(found)
    if found.effect is Effect.ROWS and found.told:
        return named or (
            watched.of_database(database)
            if watched.tables and watched.hidden(found.tables, found.text)
            else []
        )
    if found.told:
        return named
    there = watched.of_database(database) if found.effect is Effect.ROWS else []
    return list(dict.fromkeys([*named, *there, *watched.mentioned(found.text)]))


def _is_harmless(found: TableStatement, path: str, watched: Watched) -> bool:
    if watched.every:
        return False
    if found.effect is Effect.INDEX:
        return not any((c.key or 0) < 0 for c in watched.tables[path])
    if found.effect is Effect.CREATE and watched.creates:
        return False
    altered = found.altered
    if found.effect not in _PASSED or (altered is not None and altered.cascades):
        return False
    engine = altered.engine if altered is not None else None
    return engine is None or engine.lower() == watched.engines.get(path, "").lower()
