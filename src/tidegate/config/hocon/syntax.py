"""The shapes that the parser gives to the resolver: a tree of what was written, before anything is
merged or substituted.

Callers: parser makes them; resolve reads them.
"""

from dataclasses import dataclass
from typing import TypeAlias

from tidegate.model.problem import Location

Scalar: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value without an inside.

    `text` is what it is in a concatenation; `missing` names an unset variable that stays as text.
    """

    at: Location
    value: Scalar
    text: str
    blank: bool = False  # white space between two values
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Reference:
    """`${a->b}`, `${?a}`, `${a:default}`. `prefix` is where the file that holds it was included."""

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
    parts: "tuple[Written, ...]"


@dataclass(frozen=True, slots=True)
class ListNode:
    at: Location
    items: "tuple[Written, ...]"


@dataclass(frozen=True, slots=True)
class Assignment:
    """One `key = value`; `append` for `+=`."""

    at: Location
    path: tuple[str, ...]
    value: "Written"
    append: bool = False


@dataclass(frozen=True, slots=True)
class Include:
    """`include "name"`, `include file("name")`, `include required(...)`."""

    at: Location
    name: str
    how: str  # "relative", "file", "url" or "classpath"
    required: bool


@dataclass(frozen=True, slots=True)
class ObjectNode:
    """`{ ... }`, or the root without braces."""

    at: Location
    fields: tuple[Assignment | Include, ...]


Written: TypeAlias = Leaf | Reference | Concat | ListNode | ObjectNode
