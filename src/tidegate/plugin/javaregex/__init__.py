r"""Regular expressions of Java 17, read as Java reads them: what is wrong with one, and the same
one for Python.

Called wherever a job file holds a regular expression (transforms, `table_match_regex`, patterns of
tables), before the job runs and where names are matched in the driver. Values of rows are matched
by Spark, with Java's own engine. The grammar is that of java.util.regex.Pattern: sets within sets
and `&&`, possessive quantifiers, atomic groups, `\Q...\E`, inline flags, `\h`, `\R`, `\p{...}`.

One pass writes the expression for Python and checks it. What Java knows and Python cannot match
(`\G`, `\X`, scripts) is accepted by `complaint` and refused by `for_names`.
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
    "complaint",
    "for_names",
    "name_complaint",
    "parsed",
    "places",
    "quoted",
    "replacement_complaint",
]


class NotForNames(ValueError):
    """Java accepts it, and only Java can match it."""


@dataclass(frozen=True, slots=True)
class JavaRegex:
    """A checked expression. `python` is None where only Java can match it, and `only_java` says
    why.

    `tail` is what must follow the expression before something else can: the end of a quotation or
    of a comment that is still open. `references` are the places and numbers of its back references.
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
        """The expression for a place after `by` other groups: back references count on from there."""
        text = self.source
        for start, end, number in reversed(self.references):
            moved = f"\\{number + by}{_digit_guard(text[end : end + 1])}" if number else "(?!)"
            text = text[:start] + moved + text[end:]
        return f"(?:{text}{self.tail})"


def _digit_guard(following: str) -> str:
    """A digit after a back reference would become part of its number."""
    return "(?:)" if following.isdigit() else ""


@lru_cache(maxsize=512)
def parsed(pattern: str) -> JavaRegex:
    reader = RegexReader(pattern)
    piece = reader.alternatives()
    if reader.at < len(reader.chars):
        raise reader.wrong("a closing parenthesis without an opening one")
    python: str | None = piece.text
    try:
        re.compile(piece.text)
    except (re.error, RecursionError, OverflowError):
        reader.only("it is too much for Python")
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


def complaint(pattern: str) -> str:
    """What is wrong with a regular expression; empty where Java accepts it."""
    try:
        parsed(pattern)
    except JavaRegexError as error:
        return str(error)
    return ""


@lru_cache(maxsize=256)
def for_names(pattern: str) -> re.Pattern[str]:
    """The same expression for Python, to match names of tables and columns in the driver."""
    found = parsed(pattern)
    if found.python is None:
        raise NotForNames(f"{pattern!r} cannot be used for names: {found.only_java}")
    return re.compile(found.python)


def places(pattern: str, name: str) -> list[tuple[int, int]]:
    """Where an expression is found in a name, one place after the other: after an empty one, Java
    goes on one character later.
    """
    expression, found, at = for_names(pattern), [], 0
    while at <= len(name) and (match := expression.search(name, at)):
        found.append(match.span())
        at = match.end() + (match.start() == match.end())
    return found


def quoted(text: str) -> str:
    """A text as an expression that matches nothing else."""
    return "".join(f"\\{char}" if char.isascii() and not char.isalnum() else char for char in text)


def name_complaint(pattern: str) -> str:
    """What is wrong with a regular expression that names are matched with."""
    try:
        for_names(pattern)
    except NotForNames as error:
        return str(error)
    except JavaRegexError as error:
        return f"{pattern!r} is no regular expression: {error}"
    return ""


def replacement_complaint(replacement: str, found: JavaRegex) -> str:
    r"""What is wrong with a replacement: `$1` and `${name}` must be there, a backslash must be
    followed by something.
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
                    f"the replacement refers to ${rest[: named.end() if named else 1]}, and there"
                    " is no such group; write \\$ for a dollar sign"
                )
        else:
            at += 1
    return ""
