"""Syntax tree of a file, before anything is merged or substituted.

The parser builds it; merge and resolve read it.
"""

from dataclasses import dataclass
from typing import TypeAlias

from tidegate.model.problem import Location

Scalar: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Leaf:
    """A scalar value.

    `text` is its text in a concatenation; `missing` names an unset variable that stays as text.
    """

    at: Location
    value: Scalar
    text: str
    blank: bool = False  # white space between two values
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Reference:
    """`${a->b}`, `${?a}` or `${a:default}`.

    `prefix` is where the file that contains it was included.
    """

    at: Location
    path: tuple[str, ...]
    optional: bool
    default: str | None
    raw: str
    prefix: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True)
class Concat:
    """Values side by side on one line."""

    at: Location
    parts: "tuple[SyntaxNode, ...]"


@dataclass(frozen=True, slots=True)
class ListNode:
    at: Location
    items: "tuple[SyntaxNode, ...]"


@dataclass(frozen=True, slots=True)
class Assignment:
    """One `key = value`; `append` means `+=`."""

    at: Location
    path: tuple[str, ...]
    value: "SyntaxNode"
    append: bool = False


@dataclass(frozen=True, slots=True)
class Include:
    """`include "name"`, `include file("name")`, `include required(...)`."""

    at: Location
    name: str
    scheme: str  # "relative", "file", "url" or "classpath"
    required: bool


@dataclass(frozen=True, slots=True)
class ObjectNode:
    """`{ ... }`, or the root without braces."""

    at: Location
    fields: tuple[Assignment | Include, ...]


SyntaxNode: TypeAlias = Leaf | Reference | Concat | ListNode | ObjectNode
