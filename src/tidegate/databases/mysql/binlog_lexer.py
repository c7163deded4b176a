"""Statements of the log as words: decoded as the client wrote them, without comments and prefixes.
Pure; called by ddl.py and scan.py.

The client's character set and SQL mode are in the event of a statement: bytes above 127 and quotes
mean nothing without them.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from tidegate.databases.mysql.binlog_charsets import codec_of
from tidegate.databases.mysql.binlog_definition import known_charset
from tidegate.databases.mysql.binlog_events import LoggedStatement
from tidegate.model.errors import Unsupported

ANSI_QUOTES, MSSQL, NO_BACKSLASH_ESCAPES = 1 << 2, 1 << 10, 1 << 20
_QUOTED = r"{0}(?:[^{0}\\]|\\.|{0}{0})*{0}"
_QUOTED_PLAIN = r"{0}(?:[^{0}]|{0}{0})*{0}"
_PATTERN = r"""
  (?P<skip>\s+ | --(?=\s|$)[^\n]* | \#[^\n]* | /\*(?!M?!).*?(?:\*/|$) | /\*M?!\d* | \*/)
| (?P<name>`(?:[^`]|``)*` {brackets})
| (?P<double>{double})
| (?P<text>{single})
| (?P<word>[\w$\x80-\uffff]+)
| (?P<mark>.)"""


class SqlTokenKind(StrEnum):
    WORD = "word"  # a keyword, a bare name or a number
    NAME = "name"  # a quoted name
    TEXT = "text"  # a constant in quotes
    MARK = "mark"


@dataclass(frozen=True, slots=True)
class SqlToken:
    """`value` is lower-case for words, and without its quotes for names and texts; `raw` is as
    written.
    """

    kind: SqlTokenKind
    value: str
    raw: str


def decoded(statement: LoggedStatement) -> str:
    """The text of a statement in the client's character set; what is no text in it becomes U+FFFD,
    which is in no name.
    """
    charset = known_charset(statement.collation) if statement.collation is not None else "utf8mb4"
    try:
        return statement.text.decode(codec_of(charset or "latin1"), "replace")
    except (Unsupported, LookupError):
        return statement.text.decode("latin-1")


@cache
def _compiled(mode: int) -> re.Pattern[str]:
    quoted = _QUOTED_PLAIN if mode & NO_BACKSLASH_ESCAPES else _QUOTED
    brackets = r"| \[[^\]]*\]" if mode & MSSQL else ""
    double = _QUOTED_PLAIN if mode & ANSI_QUOTES else quoted
    return re.compile(
        _PATTERN.format(brackets=brackets, double=double.format('"'), single=quoted.format("'")),
        re.DOTALL | re.VERBOSE,
    )


def tokens(text: str, mode: int = 0) -> list[SqlToken]:
    """The words of a statement; versioned comments are taken as if the server carried them out."""
    mode &= ANSI_QUOTES | MSSQL | NO_BACKSLASH_ESCAPES
    found = []
    for match in _compiled(mode).finditer(text):
        kind, raw = match.lastgroup or "mark", match[0]
        match kind:
            case "skip":
                continue
            case "name":
                found.append(SqlToken(SqlTokenKind.NAME, unquoted(raw), raw))
            case "double":
                found.append(
                    SqlToken(
                        SqlTokenKind.NAME if mode & ANSI_QUOTES else SqlTokenKind.TEXT,
                        unquoted(raw),
                        raw,
                    )
                )
            case "text":
                found.append(SqlToken(SqlTokenKind.TEXT, raw, raw))
            case "word":
                found.append(SqlToken(SqlTokenKind.WORD, raw.lower(), raw))
            case _:
                found.append(SqlToken(SqlTokenKind.MARK, raw, raw))
    return _without_prefix(found)


def unquoted(raw: str) -> str:
    """A name without its quotes."""
    if raw[0] == "[":
        return raw[1:-1]
    return raw[1:-1].replace(raw[0] * 2, raw[0]) if raw[0] in '`"' else raw


def _without_prefix(found: list[SqlToken]) -> list[SqlToken]:
    """Without semicolons at the end, brackets, labels and `SET STATEMENT ...

    FOR` at the beginning.
    """
    while found and found[-1].raw == ";":
        found.pop()
    while found:
        if found[0].raw == "(":
            found = found[1:]
        elif (
            len(found) > 2
            and found[0].kind is not SqlTokenKind.MARK
            and found[1].raw == ":"
            and found[2].raw != "="
        ):
            found = found[2:]
        elif [t.value for t in found[:2] if t.kind is SqlTokenKind.WORD] == [
            "set",
            "statement",
        ] and (body := _after_for(found)) is not None:
            found = body
        else:
            return found
    return found


def _after_for(found: list[SqlToken]) -> list[SqlToken] | None:
    depth = 0
    for at, token in enumerate(found):
        depth += (token.raw == "(") - (token.raw == ")")
        if depth == 0 and token.kind is SqlTokenKind.WORD and token.value == "for":
            return found[at + 1 :]
    return None


def clauses(found: list[SqlToken]) -> list[list[SqlToken]]:
    """Split at commas that are in no brackets."""
    parts: list[list[SqlToken]] = [[]]
    depth = 0
    for token in found:
        depth += (token.raw == "(") - (token.raw == ")")
        if token.raw == "," and depth == 0 and token.kind is SqlTokenKind.MARK:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


class Cursor:
    """Reads tokens one after the other."""

    def __init__(self, found: list[SqlToken]) -> None:
        self.rest = found

    def word(self) -> str:
        """The next token where it is a word that is not quoted; else empty."""
        return self.rest[0].value if self.rest and self.rest[0].kind is SqlTokenKind.WORD else ""

    def take(self, *words: str) -> bool:
        """Pass these words, where all of them come next."""
        if [t.value for t in self.rest[: len(words)] if t.kind is SqlTokenKind.WORD] != list(words):
            return False
        self.rest = self.rest[len(words) :]
        return True

    def skip(self, *words: str) -> None:
        """Pass any of these words, as often as they come."""
        while self.word() in words:
            self.rest = self.rest[1:]

    def skip_exists(self) -> None:
        """Pass `IF EXISTS` and `IF NOT EXISTS`."""
        if not self.take("if", "exists"):
            self.take("if", "not", "exists")

    def skip_wait(self) -> None:
        """Pass `WAIT n` and `NOWAIT`."""
        if self.word() == "wait" and len(self.rest) > 1 and self.rest[1].raw.isdigit():
            self.rest = self.rest[2:]
        self.take("nowait")

    def mark(self, raw: str) -> bool:
        """Pass a mark, where it comes next."""
        if self.rest and self.rest[0].kind is SqlTokenKind.MARK and self.rest[0].raw == raw:
            self.rest = self.rest[1:]
            return True
        return False

    def name(self) -> str | None:
        """The next name; a text in double quotes is one where the mode says so, and is taken for
        one in any case.
        """
        if not self.rest or self.rest[0].kind is SqlTokenKind.MARK:
            return None
        token = self.rest[0]
        self.rest = self.rest[1:]
        return unquoted(token.raw) if token.kind is not SqlTokenKind.WORD else token.raw

    def path(self, database: str) -> tuple[str, str] | None:
        """A table's name, with or without its database."""
        self.mark(".")
        first = self.name()
        if first is None:
            return None
        if not self.mark("."):
            return database, first
        second = self.name()
        return None if second is None else (first, second)
