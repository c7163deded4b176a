"""Split HOCON text into tokens with their lines. Problems are collected, never raised.

Caller: parser. The token rules are those of HOCON: a number keeps its original text for
concatenations, `true`, `false` and `null` are recognised at the beginning of an unquoted run, and
white space between two values on a line is part of their concatenation.
"""

import math
import re
from dataclasses import dataclass
from enum import StrEnum

from tidegate.config.document import SyntaxProblems
from tidegate.model.problem import Location

SPACES = (
    " \t\r\f\v\x1c\x1d\x1e\x1f\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
    "\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
)
RESERVED = '$"{}[]:=,+#`^?!@*&\\'

_SPACE = re.compile(f"[{SPACES}]*")
_COMMENT = re.compile(r"(?:#|//)[^\n]*")
_UNQUOTED = re.compile(rf"(?:[^{re.escape(RESERVED)}/\n{SPACES}]|/(?!/))+")
_NUMBER = re.compile(r"[0-9-][0-9eE+\-.]*")
_INTEGER = re.compile(r"-?[0-9]+")
_FLOAT = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_PLAIN_STRING = re.compile(r'"([^"\\\n]*)"')
_STRING_PART = re.compile(r'[^"\\\n]+')
_SUBSTITUTION = re.compile(r'\$\{(\?)?((?:"(?:[^"\\\n]|\\.)*"|[^}"\n])*)\}')
_EXPRESSION_PART = re.compile(r'"((?:[^"\\]|\\.)*)"|(->)|(:)|([^"])')
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_LONG_MAX = 2**63
TOKENS_MAX = 500_000
"""Maximum tokens of one file: more than the largest job file that the planner accepts."""


class TokenKind(StrEnum):
    """Kind of a token. Punctuation has its own text as value."""

    STRING = "string"
    TEXT = "text"
    NUMBER = "number"
    WORD = "word"  # true, false, null
    SUBSTITUTION = "substitution"
    COMMENT = "comment"
    NEWLINE = "newline"
    END = "end"
    OPEN_CURLY = "{"
    CLOSE_CURLY = "}"
    OPEN_SQUARE = "["
    CLOSE_SQUARE = "]"
    COLON = ":"
    EQUALS = "="
    COMMA = ","
    PLUS_EQUALS = "+="


_PUNCTUATION = {
    k.value: k
    for k in (
        TokenKind.OPEN_CURLY,
        TokenKind.CLOSE_CURLY,
        TokenKind.OPEN_SQUARE,
        TokenKind.CLOSE_SQUARE,
        TokenKind.COLON,
        TokenKind.EQUALS,
        TokenKind.COMMA,
    )
}
SIMPLE = frozenset(
    {TokenKind.STRING, TokenKind.TEXT, TokenKind.NUMBER, TokenKind.WORD, TokenKind.SUBSTITUTION}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Substitution:
    """Inside of `${...}`.

    Names separated by `->`, whether it is optional (`?`), and the default after a `:`.
    """

    path: tuple[str, ...]
    optional: bool
    default: str | None


@dataclass(slots=True)
class Token:
    """One token.

    `text` is what it adds to a concatenation, `space` the white space before it on its line.
    """

    kind: TokenKind
    text: str
    line: int
    space: str = ""
    value: str | int | float | bool | Substitution | None = None
    triple: bool = False


class Lexer:
    """Splits one text into tokens. `tokenize` is the only public method."""

    def __init__(self, text: str, file: str, problems: SyntaxProblems, first_line: int = 1) -> None:
        self._text = text
        self._file = file
        self._problems = problems
        self._line = first_line
        self._position = 0
        self.has_unclosed_text = False  # a """ string extends to the end of the file

    def tokenize(self) -> list[Token]:
        """Return all tokens, the last one END."""
        tokens: list[Token] = []
        size = len(self._text)
        while True:
            blank = _SPACE.match(self._text, self._position)
            space = blank.group() if blank else ""
            self._position += len(space)
            if len(tokens) >= TOKENS_MAX:
                self._add_problem(
                    f"this file has more than {TOKENS_MAX} tokens: it is too large for a job file"
                )
                return [Token(TokenKind.END, "end of the file", self._line)]
            if self._position >= size:
                tokens.append(Token(TokenKind.END, "end of the file", self._line, space))
                return tokens
            token = self._next(self._text[self._position])
            token.space = space
            tokens.append(token)

    def _add_problem(self, message: str, line: int | None = None) -> None:
        self._problems.add(Location(self._file, line or self._line), message)

    def _next(self, char: str) -> Token:
        if char == "\n":
            return self._newline()
        if comment := _COMMENT.match(self._text, self._position):
            self._position = comment.end()
            return Token(TokenKind.COMMENT, comment.group(), self._line)
        if char == '"':
            return self._quoted()
        if char in _PUNCTUATION:
            self._position += 1
            return Token(_PUNCTUATION[char], char, self._line)
        if char == "$":
            return self._substitution()
        if char == "+" and self._text.startswith("+=", self._position):
            self._position += 2
            return Token(TokenKind.PLUS_EQUALS, "+=", self._line)
        return self._unquoted()

    def _newline(self) -> Token:
        token = Token(TokenKind.NEWLINE, "end of the line", self._line)
        self._position += 1
        self._line += 1
        return token

    def _invalid(self, end: int) -> Token:
        """Return invalid text, already reported, as a string, so that its key has a value."""
        token = Token(
            TokenKind.STRING,
            self._text[self._position : end],
            self._line,
            value=self._text[self._position : end],
        )
        self._position = end
        return token

    def _unquoted(self) -> Token:
        """Read a number, a word or unquoted text."""
        if number := _NUMBER.match(self._text, self._position):
            self._position = number.end()
            return self._number(number.group())
        run = _UNQUOTED.match(self._text, self._position)
        if run is None:
            char = self._text[self._position]
            shown = char if char.isprintable() else f"U+{ord(char):04X}"
            self._add_problem(
                f"the character {shown} is not allowed outside of quotes: put the whole value in"
                " double quotes"
            )
            return self._invalid(self._position + 1)
        text = run.group()
        for word, value in (("true", True), ("false", False), ("null", None)):
            if text.startswith(word):
                self._position += len(word)
                return Token(TokenKind.WORD, word, self._line, value=value)
        self._position = run.end()
        return Token(TokenKind.TEXT, text, self._line, value=text)

    def _number(self, text: str) -> Token:
        # Compared by length first: Python refuses to read integers of thousands of digits.
        if _INTEGER.fullmatch(text) and len(text) <= 20 and -_LONG_MAX <= int(text) < _LONG_MAX:
            return Token(TokenKind.NUMBER, text, self._line, value=int(text))
        if (
            not _INTEGER.fullmatch(text)
            and _FLOAT.fullmatch(text)
            and math.isfinite(number := float(text))
        ):
            whole = number.is_integer() and -_LONG_MAX <= number < _LONG_MAX
            return Token(
                TokenKind.NUMBER, text, self._line, value=int(number) if whole else number
            )  # 1.0 is 1, as in SeaTunnel
        if "+" in text:
            self._add_problem(
                f"the character + in {text[:40]} is not allowed outside of quotes: put the whole"
                " value in double quotes"
            )
        return Token(TokenKind.TEXT, text, self._line, value=text)

    def _substitution(self) -> Token:
        found = _SUBSTITUTION.match(self._text, self._position)
        if found is None:
            unclosed = self._text.startswith("${", self._position)
            self._add_problem(
                "`${` is not closed with `}`"
                if unclosed
                else "`$` is not allowed outside of quotes, except as `${name}`"
            )
            return self._invalid(self._end_of_line() if unclosed else self._position + 1)
        inside = _read_expression(found.group(2))
        if inside is None:
            self._add_problem(f"`{found.group()}` has no name in it: write `${{name}}`")
            return self._invalid(found.end())
        self._position = found.end()
        path, default = inside
        value = Substitution(path=path, optional=found.group(1) is not None, default=default)
        return Token(TokenKind.SUBSTITUTION, found.group(), self._line, value=value)

    def _end_of_line(self) -> int:
        end = self._text.find("\n", self._position)
        return len(self._text) if end < 0 else end

    def _quoted(self) -> Token:
        if self._text.startswith('"""', self._position):
            return self._triple()
        if plain := _PLAIN_STRING.match(self._text, self._position):
            self._position = plain.end()
            return Token(TokenKind.STRING, plain.group(1), self._line, value=plain.group(1))
        self._position += 1
        pieces: list[str] = []
        while self._string_piece(pieces):
            pass
        text = join_surrogates("".join(pieces))
        if text is None:
            self._add_problem("a \\u escape is one half of a surrogate pair: write both halves")
            text = ""
        return Token(TokenKind.STRING, text, self._line, value=text)

    def _string_piece(self, pieces: list[str]) -> bool:
        """Read a piece of a quoted string; False at its end."""
        if part := _STRING_PART.match(self._text, self._position):
            pieces.append(part.group())
            self._position = part.end()
            return True
        char = self._text[self._position : self._position + 1]
        if char == '"':
            self._position += 1
            return False
        if char == "\\":
            self._escape(pieces)
            return True
        self._add_problem(
            'a string that begins with " on this line is not closed on it: close it, or use """ for'
            " several lines"
        )
        return False

    def _escape(self, pieces: list[str]) -> None:
        char = self._text[self._position + 1 : self._position + 2]
        if char in _ESCAPES and char:
            pieces.append(_ESCAPES[char])
            self._position += 2
        elif char == "u" and (digits := _HEX.match(self._text, self._position + 2)):
            pieces.append(chr(int(digits.group(), 16)))
            self._position += 6
        elif char == "u":
            self._add_problem("\\u in a string needs four hexadecimal digits after it")
            self._position += 2
        else:
            shown = f"\\{char}" if char.strip() else "a backslash at the end of the line"
            self._add_problem(f"{shown} in a string is not an escape: write \\\\ for a backslash")
            self._position += 1 if char == "\n" else 2

    def _triple(self) -> Token:
        opened = self._line
        start = self._position + 3
        end = self._text.find('"""', start)
        if end < 0:
            self._add_problem(
                'the string that begins with """ on this line is never closed', opened
            )
            self.has_unclosed_text = True
            end = stop = len(self._text)
        else:
            # Of more than three quotes the last three close the string.
            while self._text.startswith('"', end + 3):
                end += 1
            stop = end + 3
        text = self._text[start:end]
        self._position = stop
        self._line += text.count("\n")
        return Token(TokenKind.STRING, text, opened, value=text, triple=True)


def join_surrogates(text: str) -> str | None:
    r"""Join two \u escapes of one character, as in JSON; None for an unpaired half."""
    if not any("\ud800" <= char <= "\udfff" for char in text):
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        return None


def _read_expression(inside: str) -> tuple[tuple[str, ...], str | None] | None:
    """Return the names and the default of a substitution, or None if a name is missing."""
    names, quoted, default = [""], [False], None
    for part in _EXPRESSION_PART.finditer(inside):
        if part.group(3):
            default = inside[part.end() :]
            break
        if part.group(2):
            names.append("")
            quoted.append(False)
        elif part.group(1) is not None:
            names[-1] = names[-1].lstrip(SPACES) + part.group(1)
            quoted[-1] = True
        else:
            names[-1] += part.group(4)
    path = tuple(
        name if was else name.strip(SPACES) for name, was in zip(names, quoted, strict=True)
    )
    return (path, default) if all(path) else None
