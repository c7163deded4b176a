"""Statements of the log that change tables: which ones, and how. Pure; called by scan.py.

Only what matters to a reader of rows is told apart: a statement that may change columns, one that takes rows or tables away, one that makes a new table.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

_NAME = r"(?:`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\"|[\w$]+)"
_PATH = rf"{_NAME}(?:\s*\.\s*{_NAME})?"
_TABLE_STATEMENT = re.compile(
    r"(?P<verb>alter|drop|truncate|rename|create(?:\s+or\s+replace)?)\s+(?:online\s+|offline\s+|ignore\s+)*(?:temporary\s+)?(?P<table>tables?\s+)?"
    r"(?:if\s+(?:not\s+)?exists\s+)?(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_DATABASE_STATEMENT = re.compile(rf"drop\s+(?:database|schema)\s+(?:if\s+exists\s+)?(?P<name>{_NAME})", re.IGNORECASE)
_IF = r"(?:if\s+(?:not\s+)?exists\s+)?"
_NO_COLUMN = r"(?!(?:index|key|unique|primary|constraint|foreign|fulltext|spatial|partition|check|period|system)\b)"
_ADD_COLUMN = re.compile(rf"\s*add\s+(?:column\s+)?{_IF}{_NO_COLUMN}(?P<name>{_NAME})\s+(?P<rest>\S.*)", re.IGNORECASE | re.DOTALL)
_ADD_COLUMNS = re.compile(rf"\s*add\s*(?:column\s*)?{_IF}\((?P<inside>.*)\)\s*", re.IGNORECASE | re.DOTALL)
_DEFINITION = re.compile(rf"\s*{_NO_COLUMN}(?P<name>{_NAME})\s+(?P<rest>\S.*)", re.IGNORECASE | re.DOTALL)
# What an ALTER must not do unseen: take columns, rows or names away. An index, a constraint or a default may go.
_TAKES_AWAY = re.compile(
    rf"\s*(?:rename\b(?!\s+(?:index|key)\b)|drop\s+(?!(?:index|key|primary|foreign|constraint|check|system|period)\b)|"
    rf"(?:truncate|exchange|discard|import|convert)\s+(?:partition|tablespace|table)\b|change\s+(?:column\s+)?{_IF}(?P<old>{_NAME})\s+(?P<new>{_NAME})\s)",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`)|/\*(?!!).*?\*/|--\s[^\n]*|#[^\n]*", re.DOTALL)
_VERSIONED = re.compile(r"/\*M?!\d*(.*?)\*/", re.DOTALL)


class Effect(StrEnum):
    """What a statement does to a table."""

    ALTER = "alter"  # may change its columns
    ADD_COLUMN = "add-column"  # adds columns; whether the others are as before, the catalogue tells
    REMOVE = "remove"  # drops, empties, renames or replaces it, or columns or parts of it
    CREATE = "create"


@dataclass(frozen=True, slots=True)
class TableStatement:
    """A statement and the tables that it touches, as (database, table); a table of None stands for all of the database.

    `added` are the columns that it adds, each with its definition.
    """

    effect: Effect
    tables: tuple[tuple[str, str | None], ...]
    text: str
    added: tuple[tuple[str, str], ...] = ()


def table_statement(database: str, text: str) -> TableStatement | None:
    """What a statement does to tables; None where it does nothing to them."""
    plain = _COMMENT.sub(lambda found: found[1] or " ", _VERSIONED.sub(r" \1 ", text)).strip().rstrip(";")
    if found := _DATABASE_STATEMENT.match(plain):
        return TableStatement(Effect.REMOVE, ((_bare(found["name"]), None),), text)
    found = _TABLE_STATEMENT.match(plain)
    if found is None or re.match(r"create\s+(?:or\s+replace\s+)?temporary|drop\s+temporary", plain, re.IGNORECASE):
        return None
    verb = re.sub(r"\s+", " ", found["verb"].lower())
    if not found["table"] and verb != "truncate":
        return None
    effect, added = _alteration(found["rest"]) if verb == "alter" else (Effect.CREATE if verb == "create" else Effect.REMOVE, ())
    return TableStatement(effect, tuple(_tables(verb, found["rest"], database)), text, added)


def _alteration(rest: str) -> tuple[Effect, tuple[tuple[str, str], ...]]:
    """What the clauses of an ALTER do together, and the columns that they add."""
    after = re.sub(rf"^\s*{_PATH}\s*", "", rest)
    parts = _parts(re.sub(r"^(?:wait\s+\d+|nowait)\s+", "", after, flags=re.IGNORECASE))
    if any(_takes_away(part) for part in parts):
        return Effect.REMOVE, ()
    added = tuple(column for part in parts for column in _added(part))
    return (Effect.ADD_COLUMN if added else Effect.ALTER), added


def _takes_away(part: str) -> bool:
    found = _TAKES_AWAY.match(part)
    return found is not None and (found["old"] is None or _bare(found["old"]).lower() != _bare(found["new"]).lower())


def _added(part: str) -> list[tuple[str, str]]:
    """The columns that one clause adds: `add a int`, or `add (a int, b int)`."""
    if many := _ADD_COLUMNS.fullmatch(part):
        return [(_bare(found["name"]), found["rest"]) for one in _parts(many["inside"]) if (found := _DEFINITION.fullmatch(one))]
    one = _ADD_COLUMN.fullmatch(part)
    return [(_bare(one["name"]), one["rest"])] if one else []


def _parts(text: str) -> list[str]:
    """The clauses of an ALTER, split at commas that are in no bracket and no quotes."""
    parts, depth, quote, last = [], 0, "", 0
    for at, letter in enumerate(re.sub(r"\\.", "..", text, flags=re.DOTALL)):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"`":
            quote = letter
        elif letter in "()":
            depth += 1 if letter == "(" else -1
        elif letter == "," and depth == 0:
            parts.append(text[last:at])
            last = at + 1
    return [*parts, text[last:]]


def _tables(verb: str, rest: str, database: str) -> list[tuple[str, str | None]]:
    if verb == "rename":
        pairs = re.findall(rf"({_PATH})\s+(?:wait\s+\d+\s+|nowait\s+)?to\s+({_PATH})", rest, re.IGNORECASE)
        return [_path(name, database) for pair in pairs for name in pair]
    if verb == "drop":
        return [_path(name, database) for name in re.findall(_PATH, re.sub(r"\b(?:restrict|cascade|wait\s+\d+|nowait)\s*$", "", rest, flags=re.IGNORECASE))]
    found = re.match(_PATH, rest.strip())
    return [_path(found[0], database)] if found else []


def _path(text: str, database: str) -> tuple[str, str | None]:
    names = re.findall(_NAME, text)
    return (_bare(names[0]), _bare(names[1])) if len(names) > 1 else (database, _bare(names[0]))


def _bare(name: str) -> str:
    return name[1:-1].replace(name[0] * 2, name[0]) if name[0] in '`"' else name
