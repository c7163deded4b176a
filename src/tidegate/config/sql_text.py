"""Split the SQL form into statements and tokens, with lines.

Caller: sql_form. Handles comments, quotes and `;`, nothing else. It is not a SQL parser: a SELECT
stays the text that the Sql transform will read.
"""

import re
from dataclasses import dataclass, field

from tidegate.config.document import SyntaxProblems
from tidegate.model.problem import Location

_TOKEN = re.compile(
    r"""(?P<config>/\*\s*config\b)|(?P<comment>--[^\n]*|/\*)|(?P<string>'(?:[^']|'')*')"""
    r"""|(?P<name>`[^`\n]*`|"(?:[^"]|"")*")"""
    r"""|(?P<word>[A-Za-z_][\w$]*)|(?P<space>\s+)|(?P<other>[0-9][\w.]*|.)""",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class SqlToken:
    """One token; `value` is the inside of a string or name.

    `start` and `end` are its offsets in the text.
    """

    kind: str  # string, name, word or other
    text: str
    value: str
    line: int
    start: int
    end: int

    def is_word(self, word: str) -> bool:
        """Report whether it is this keyword, ignoring case."""
        return self.kind == "word" and self.text.upper() == word

    def is_name(self) -> bool:
        """Report whether it can be the name of a table."""
        return self.kind in ("word", "name")


@dataclass(frozen=True, slots=True)
class SqlStatement:
    """Tokens of one statement, without its `;`."""

    tokens: tuple[SqlToken, ...]
    text: str  # of the whole file: tokens have offsets in it

    @property
    def line(self) -> int:
        return self.tokens[0].line

    def source(self, first: int) -> str:
        """Return the text from a token on as it was written, without comments."""
        out = ""
        end = self.tokens[first].start
        for token in self.tokens[first:]:
            gap = self.text[end : token.start]
            out += (gap if not gap or gap.isspace() else " ") + token.text
            end = token.end
        return out


@dataclass(slots=True)
class SqlText:
    """A file of the SQL form: its statements and its `/* config */` comments.

    Comments have the number of their first line.
    """

    text: str
    file: str
    problems: SyntaxProblems
    statements: list[SqlStatement] = field(default_factory=list)
    configs: list[tuple[str, int]] = field(default_factory=list)
    _position: int = 0
    _line: int = 1

    def split(self) -> None:
        """Split the text; fills `statements` and `configs`."""
        tokens: list[SqlToken] = []
        while self._position < len(self.text):
            token = self._next()
            if token is None:
                continue
            if token.text == ";" and token.kind == "other":
                self._finish(tokens)
                tokens = []
            else:
                tokens.append(token)
        self._finish(tokens)

    def _finish(self, tokens: list[SqlToken]) -> None:
        if tokens:
            self.statements.append(SqlStatement(tuple(tokens), self.text))

    def _next(self) -> SqlToken | None:
        found = _TOKEN.match(self.text, self._position)
        assert found is not None, "the pattern matches any character"
        kind, text, line = str(found.lastgroup), found.group(), self._line
        if kind == "config" or text == "/*":
            self._comment(found.end(), kind == "config")
            return None
        self._move(found.end())
        if kind in ("comment", "space"):
            return None
        if text == "'":
            self.problems.add(
                Location(self.file, line), "the string that begins with ' here is never closed"
            )
            self._position = len(self.text)
            return None
        return SqlToken(kind, text, _inside(kind, text), line, found.start(), found.end())

    def _move(self, position: int) -> None:
        self._line += self.text.count("\n", self._position, position)
        self._position = position

    def _comment(self, start: int, config: bool) -> None:
        opened = self._line
        end = self.text.find("*/", start)
        if end < 0:
            self.problems.add(
                Location(self.file, opened), "the comment that begins with /* here is never closed"
            )
            end = len(self.text)
        self._move(start)
        if config:
            self.configs.append((self.text[start:end], self._line))
        self._move(min(end + 2, len(self.text)))


def _inside(kind: str, text: str) -> str:
    if kind == "string":
        return text[1:-1].replace("''", "'")
    if kind == "name":
        return text[1:-1].replace('""', '"') if text[0] == '"' else text[1:-1]
    return text
