r"""Translates Java's sets of characters, such as `\p{...}`, `\h` and `\w`, to Python.

Called by members.py. Each set is a Python expression that matches exactly one of its characters, so
that unions, intersections and complements can be built from alternatives and look-ahead.
"""

import re
import sys
import unicodedata
from functools import lru_cache

ANY = r"[\s\S]"
LINE_ENDS = r"\n\r\x85\u2028\u2029"
_SETS = {
    "d": "0-9",
    "w": "a-zA-Z_0-9",
    "s": r" \t\n\x0b\f\r",
    "h": r" \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000",
    "v": r"\n\x0b\f\r\x85\u2028\u2029",
}
_POSIX = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": r" \t",
    "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F",
    "Space": r" \t\n\x0b\f\r",
    "L1": r"\x00-\xff",
    "all": r"\s\S",
}
_JAVA_NAMES = """
    javaLowerCase javaUpperCase javaAlphabetic javaIdeographic javaTitleCase javaDigit javaDefined
    javaLetter javaLetterOrDigit javaJavaIdentifierStart javaJavaIdentifierPart
    javaUnicodeIdentifierStart javaUnicodeIdentifierPart javaIdentifierIgnorable
    javaSpaceChar javaWhitespace javaISOControl javaMirrored
"""
_JAVA = frozenset(_JAVA_NAMES.split())
_CATEGORY_NAMES = """
    Cn Lu Ll Lt Lm Lo Mn Me Mc Nd Nl No Zs Zl Zp Cc Cf Co Cs Pd Ps Pe Pc Po Sm Sc Sk So Pi Pf
    L M N Z C P S LC LD
"""
_CATEGORIES = frozenset(_CATEGORY_NAMES.split())
_BINARY_NAMES = """
    alphabetic letter ideographic lowercase uppercase titlecase white_space whitespace control
    punctuation hex_digit hexdigit assigned noncharacter_code_point noncharactercodepoint digit
    alnum blank graph print word join_control joincontrol
"""
_BINARY = frozenset(_BINARY_NAMES.split())
_PYTHON_BINARY = {
    "alphabetic": r"[^\W\d_]",
    "letter": r"[^\W\d_]",
    "digit": r"\d",
    "word": r"\w",
    "white_space": r"\s",
    "whitespace": r"\s",
}
_KEYS = {
    "sc": "script",
    "script": "script",
    "blk": "block",
    "block": "block",
    "gc": "category",
    "general_category": "category",
}
_NAME = re.compile(r"[A-Za-z0-9_ -]+")


class UnknownProperty(ValueError):
    """A name that is no character property in Java."""


def escaped_set(letter: str, *, unicode: bool) -> str:
    r"""The set of `\d`, `\w`, `\s`, `\h`, `\v`, or of their complements in upper case."""
    small = letter.lower()
    inside = f"\\{small}" if unicode and small in "dws" else _SETS[small]
    return f"[{'^' if letter.isupper() else ''}{inside}]"


def property_set(name: str) -> str | None:
    r"""The set of `\p{name}`; None if Java may know it and Python cannot express it."""
    if "=" in name:
        return _keyed(name)
    if name in _POSIX:
        return f"[{_POSIX[name]}]"
    if name in _CATEGORIES:
        return _category(name)
    if name in _JAVA:
        return None
    if name.startswith("In") and _NAME.fullmatch(name[2:]):
        return None  # a block
    if name.startswith("Is") and _NAME.fullmatch(name[2:]):
        return _of_unicode(name[2:])
    raise UnknownProperty(f"there is no property {name!r}")


def _keyed(text: str) -> str | None:
    key, _, value = text.partition("=")
    kind = _KEYS.get(key.lower())
    if kind is None or not _NAME.fullmatch(value):
        raise UnknownProperty(f"there is no property {text!r}")
    if kind != "category":
        return None
    known = next((c for c in _CATEGORIES if c.lower() == value.lower()), None)
    if known is None:
        raise UnknownProperty(f"there is no general category {value!r}")
    return _category(known)


def _of_unicode(name: str) -> str | None:
    """The set of `\\p{Is...}`: a property, a general category, or a script."""
    if name.lower() in _BINARY:
        return _PYTHON_BINARY.get(name.lower())
    return _category(name) if name in _CATEGORIES else None


@lru_cache(maxsize=64)
def _category(name: str) -> str:
    wanted = {"LC": ("Lu", "Ll", "Lt"), "LD": ("L", "Nd")}.get(name, (name,))
    ranges: list[list[int]] = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code)).startswith(wanted):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return "[" + "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges) + "]"
