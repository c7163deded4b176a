"""Tokens of logged statements, decoded as the client wrote them.

Pure; called by binlog_ddl.py and binlog_statements.py. The character set and SQL mode of the client
are in the event of a statement: bytes above 127 and quotes have no meaning without them. Comments
and prefixes are removed.
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
    WORD = "word"  # a keyword, a name without quotes, or a number
    NAME = "name"  # a quoted name
    TEXT = "text"  # a constant in quotes
    MARK = "mark"


@dataclass(frozen=True, slots=True)
class SqlToken:
    """A token.

    `value` is in lower case for words, and without its quotes for names and texts; `raw` is the
    original text.
    """

    kind: SqlTokenKind
    value: str
    raw: str


def statement_text(statement: LoggedStatement) -> str:
    """Decode a statement in the character set of the client.

    Invalid bytes become U+FFFD, which is in no name.
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
    """Return the tokens of a statement.

    The contents of versioned comments count as if the server executed them.
    """
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
    """Return a name without its quotes."""
    if raw[0] == "[":
        return raw[1:-1]
    return raw[1:-1].replace(raw[0] * 2, raw[0]) if raw[0] in '`"' else raw


def _without_prefix(found: list[SqlToken]) -> list[SqlToken]:
    """Remove trailing semicolons, and leading brackets, labels and `SET STATEMENT ... FOR`."""
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
    """Split at commas outside of brackets."""
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
    """Consumes tokens one by one."""

    def __init__(self, found: list[SqlToken]) -> None:
        self.rest = found

    def word(self) -> str:
        """Return the next token if it is a word without quotes; else an empty string."""
        return self.rest[0].value if self.rest and self.rest[0].kind is SqlTokenKind.WORD else ""

    def take(self, *words: str) -> bool:
        """Consume these words, if all of them come next."""
        if [t.value for t in self.rest[: len(words)] if t.kind is SqlTokenKind.WORD] != list(words):
            return False
        self.rest = self.rest[len(words) :]
        return True

    def skip(self, *words: str) -> None:
        """Consume any of these words, repeatedly."""
        while self.word() in words:
            self.rest = self.rest[1:]

    def skip_exists(self) -> None:
        """Consume `IF EXISTS` or `IF NOT EXISTS`."""
        if not self.take("if", "exists"):
            self.take("if", "not", "exists")

    def skip_wait(self) -> None:
        """Consume `WAIT n` or `NOWAIT`."""
        if self.word() == "wait" and len(self.rest) > 1 and self.rest[1].raw.isdigit():
            self.rest = self.rest[2:]
        self.take("nowait")

    def mark(self, raw: str) -> bool:
        """Consume a punctuation mark, if it comes next."""
        if self.rest and self.rest[0].kind is SqlTokenKind.MARK and self.rest[0].raw == raw:
            self.rest = self.rest[1:]
            return True
        return False

    def name(self) -> str | None:
        """Consume and return the next name.

        A text in double quotes is a name in some SQL modes, and counts as one in all.
        """
        if not self.rest or self.rest[0].kind is SqlTokenKind.MARK:
            return None
        token = self.rest[0]
        self.rest = self.rest[1:]
        return unquoted(token.raw) if token.kind is not SqlTokenKind.WORD else token.raw

    def path(self, database: str) -> tuple[str, str] | None:
        """Consume and return the name of a table, with or without its database."""
        self.mark(".")
        first = self.name()
        if first is None:
            return None
        if not self.mark("."):
            return database, first
        second = self.name()
        return None if second is None else (first, second)
