r"""Validates regular expressions of Java 17 and translates them to Python.

Called for every regular expression of a job file (transforms, `table_match_regex`, table patterns),
before the job runs and when names are matched in the driver. Values of rows are matched by Spark,
with Java's own engine. The grammar is that of java.util.regex.Pattern: nested sets and `&&`,
possessive quantifiers, atomic groups, `\Q...\E`, inline flags, `\h`, `\R`, `\p{...}`.

A single pass checks and translates the expression. What Java supports and Python cannot match
(`\G`, `\X`, scripts) is accepted by `pattern_error` and rejected by `compile_for_names`.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from tidegate.plugin.javaregex.chars import JavaRegexError
from tidegate.plugin.javaregex.grammar import RegexReader

__all__ = [
    "JavaRegex",
    "JavaRegexError",
    "NotForNames",
    "compile_for_names",
    "match_spans",
    "name_pattern_error",
    "parsed",
    "pattern_error",
    "quoted",
    "replacement_error",
]


class NotForNames(ValueError):
    """A valid expression that only Java can match, so it cannot be used for names."""


@dataclass(frozen=True, slots=True)
class JavaRegex:
    """A valid expression. `python` is None if only Java can match it; `only_java` is the reason.

    `tail` must follow the expression before anything else can: it ends a quotation or comment that
    is still open. `references` are the positions and numbers of its back references.
    """

    source: str
    python: str | None
    only_java: str
    groups: int
    names: frozenset[str]
    tail: str
    references: tuple[tuple[int, int, int], ...]

    def embedded(self) -> str:
        """The expression as one part of a larger one."""
        return f"(?:{self.source}{self.tail})"

    def shifted(self, by: int) -> str:
        """The expression after `by` other groups: the numbers of its back references increase."""
        text = self.source
        for start, end, number in reversed(self.references):
            moved = f"\\{number + by}{_digit_guard(text[end : end + 1])}" if number else "(?!)"
            text = text[:start] + moved + text[end:]
        return f"(?:{text}{self.tail})"


def _digit_guard(following: str) -> str:
    """Separate a digit from the back reference before it, or it would extend the number."""
    return "(?:)" if following.isdigit() else ""


@lru_cache(maxsize=512)
def parsed(pattern: str) -> JavaRegex:
    reader = RegexReader(pattern)
    piece = reader.alternatives()
    if reader.at < len(reader.chars):
        raise reader.error("a closing parenthesis without an opening one")
    python: str | None = piece.text
    try:
        re.compile(piece.text)
    except (re.error, RecursionError, OverflowError):
        reader.mark_java_only("it is too much for Python")
    if reader.only_java:
        python = None
    return JavaRegex(
        source=pattern,
        python=python,
        only_java=reader.only_java,
        groups=reader.groups,
        names=frozenset(reader.names),
        tail=reader.tail,
        references=tuple(reader.references),
    )


def pattern_error(pattern: str) -> str:
    """The error in a regular expression; empty if Java accepts it."""
    try:
        parsed(pattern)
    except JavaRegexError as error:
        return str(error)
    return ""


@lru_cache(maxsize=256)
def compile_for_names(pattern: str) -> re.Pattern[str]:
    """Compile the expression for Python, to match names of tables and columns in the driver."""
    found = parsed(pattern)
    if found.python is None:
        raise NotForNames(f"{pattern!r} cannot be used for names: {found.only_java}")
    return re.compile(found.python)


def match_spans(pattern: str, name: str) -> list[tuple[int, int]]:
    """All matches in a name, as (start, end).

    After an empty match, Java continues one character later.
    """
    expression, found, at = compile_for_names(pattern), [], 0
    while at <= len(name) and (match := expression.search(name, at)):
        found.append(match.span())
        at = match.end() + (match.start() == match.end())
    return found


def quoted(text: str) -> str:
    """Quote a text as an expression that matches exactly this text."""
    return "".join(f"\\{char}" if char.isascii() and not char.isalnum() else char for char in text)


def name_pattern_error(pattern: str) -> str:
    """The error in a regular expression for names; empty if it is valid."""
    try:
        compile_for_names(pattern)
    except NotForNames as error:
        return str(error)
    except JavaRegexError as error:
        return f"{pattern!r} is no regular expression: {error}"
    return ""


def replacement_error(replacement: str, found: JavaRegex) -> str:
    r"""The error in a replacement; empty if it is valid.

    The groups of `$1` and `${name}` must exist, and a backslash must not be at the end.
    """
    at = 0
    while at < len(replacement):
        char, rest = replacement[at], replacement[at + 1 :]
        if char == "\\":
            if not rest:
                return "the replacement ends with a backslash: write \\\\ for one"
            at += 2
        elif char == "$":
            named = re.match(r"\{([a-zA-Z][a-zA-Z0-9]*)\}", rest)
            if named and named[1] in found.names:
                at += 1 + named.end()
            elif rest[:1].isdigit() and rest[:1].isascii() and int(rest[0]) <= found.groups:
                at += 2
            else:
                return (
                    f"the replacement refers to ${rest[: named.end() if named else 1]}, but there"
                    " is no such group; write \\$ for a dollar sign"
                )
        else:
            at += 1
    return ""
