"""Translates Java's regular expressions (Spark, SeaTunnel) to RE2 (Arrow) if they mean the same.

Called by options.py (is a transform with these options fusable?) and by texts.py (in a task). Does
not import pyarrow. Conservative: an expression that may differ is left to Spark.
"""

import re
from dataclasses import dataclass

from tidegate.plugin.javaregex import parsed

_SPECIAL = frozenset(".^$*+?()[]{}|")
_ANY = r"[^\n\r\x{85}\x{2028}\x{2029}]"  # Java's dot
_SPACE = r" \t\n\x0B\f\r"
_SAME = frozenset("dDwWtnrf")
_QUANTIFIER = re.compile(r"[*+?]|\{(\d{1,3})(,(\d{1,3})?)?\}")


@dataclass(frozen=True, slots=True)
class Portable:
    """A regular expression for RE2.

    `anchored`: it begins with ^. `groups`: how many groups a replacement may use; 0 if a repeated
    group makes their content uncertain.
    """

    pattern: str
    anchored: bool
    groups: int


class _NotPortable(Exception):
    """An expression that may mean something else in RE2."""


def literal(pattern: str) -> str | None:
    """The literal text of a pattern of plain and escaped characters; None for any other pattern."""
    text, at = "", 0
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 1
            if at == len(pattern) or pattern[at].isalnum():
                return None
        elif pattern[at] in _SPECIAL:
            return None
        text += pattern[at]
        at += 1
    return text or None


def portable(pattern: str) -> Portable | None:
    """Translate an expression to RE2.

    None if it may differ, or if it matches the empty text (then the rules differ).
    """
    try:
        made = "".join(_tokens(pattern))
        empty = re.compile(pattern, re.ASCII).match("")
    except (_NotPortable, re.error):
        return None
    if empty:
        return None
    repeated = re.search(r"\)[*+?{]", pattern)
    return Portable(made, pattern.startswith("^"), 0 if repeated else re.compile(pattern).groups)


def _tokens(pattern: str) -> list[str]:
    made: list[str] = []
    at = 0
    while at < len(pattern):
        token, length = _token(pattern, at)
        made.append(token)
        at += length
    return made


def _token(pattern: str, at: int) -> tuple[str, int]:
    char = pattern[at]
    if char == "\\":
        return _escaped(pattern, at, inside=False), 2
    if char == "[":
        return _class(pattern, at)
    if char == ".":
        return _ANY, 1
    if char in "*+?{":
        return _quantifier(pattern, at)
    if char == "(":
        if pattern[at : at + 2] == "(?" and pattern[at : at + 3] != "(?:":
            raise _NotPortable
        return ("(?:", 3) if pattern[at : at + 2] == "(?" else ("(", 1)
    if char in "$]}" or (char == "^" and at > 0):
        raise _NotPortable
    return char, 1


def _escaped(pattern: str, at: int, *, inside: bool) -> str:
    char = pattern[at + 1 : at + 2]
    if char in ("s", "S") and not (inside and char == "S"):
        return _SPACE if inside else f"[{'^' if char == 'S' else ''}{_SPACE}]"
    if char in _SAME and char and not (inside and char in "DW"):
        return f"\\{char}"
    if not char or char.isalnum() or not char.isascii():
        raise _NotPortable
    return f"\\{char}"


def _quantifier(pattern: str, at: int) -> tuple[str, int]:
    found = _QUANTIFIER.match(pattern, at)
    if not found or at == 0 or pattern[at - 1] in "(|^":
        raise _NotPortable
    end = found.end()
    if pattern[end : end + 1] == "?":  # as few as possible
        end += 1
    if pattern[end : end + 1] in ("+", "*", "?", "{"):  # possessive, or nonsense
        raise _NotPortable
    return pattern[at:end], end - at


def _class(pattern: str, at: int) -> tuple[str, int]:
    """Read [a-z_\\d]; nested classes, && and unusual positions of ] or - are not portable."""
    end, made = at + 1, "["
    if pattern[end : end + 1] == "^":
        end, made = end + 1, "[^"
    first = end
    while pattern[end : end + 1] != "]":
        char = pattern[end : end + 1]
        if not char or char in "[&":
            raise _NotPortable
        if char == "\\":
            made += _escaped(pattern, end, inside=True)
            end += 2
            continue
        if char == "-":
            made += _dash(pattern, end, first)
        else:
            made += f"\\{char}" if char in "^" else char
        end += 1
    if end == first:
        raise _NotPortable
    return made + "]", end + 1 - at


def _dash(pattern: str, at: int, first: int) -> str:
    if at == first or pattern[at + 1 : at + 2] == "]":
        return r"\-"
    before, after = pattern[at - 1], pattern[at + 1 : at + 2]
    if not (before.isalnum() and after.isalnum()) or (at - 2 >= first and pattern[at - 2] in "\\-"):
        raise _NotPortable
    return "-"


def replacement(java: str, groups: int) -> str | None:
    """Translate a replacement with $1 and \\x to RE2 with \\1 and \\\\.

    None if it refers to a group that may not exist.
    """
    made, at = "", 0
    while at < len(java):
        char, following = java[at], java[at + 1 : at + 2]
        if char == "\\" and following:
            made += "\\\\" if following == "\\" else following
            at += 2
        elif char == "$":
            if (
                not (following.isdigit() and following.isascii())
                or int(following) > groups
                or groups > 9
            ):
                return None
            made += f"\\{following}"
            at += 2
        elif char == "\\":
            return None
        else:
            made += char
            at += 1
    return made


def first_only(pattern: str, java_replacement: str) -> tuple[str, str]:
    """Express Java's replaceFirst by replaceAll.

    The text before the first match becomes group 1, so the numbers of all other groups increase.
    """
    found = parsed(pattern)
    return (
        rf"\A(?s:(.*?)){found.shifted(1)}",
        f"$1{_shifted_replacement(java_replacement, found.groups)}",
    )


def _shifted_replacement(java: str, groups: int) -> str:
    """Increase every group number of a replacement by one.

    As in Java, a number has as many digits as there are groups for it.
    """
    made, at = "", 0
    while at < len(java):
        if java[at] == "\\":
            made, at = made + java[at : at + 2], at + 2
            continue
        number = re.match(r"\$(\d)", java[at:], re.ASCII)
        if number is None:
            made, at = made + java[at], at + 1
            continue
        value, at = int(number[1]), at + 2
        while java[at : at + 1].isdigit() and value * 10 + int(java[at]) <= groups:
            value, at = value * 10 + int(java[at]), at + 1
        made += f"${value + 1}"
    return made
