"""Cursors: opaque text with the sort key of the last row of a page. Pure."""

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tidegate.model.errors import UserError

T = TypeVar("T")


class BadCursor(UserError):
    """A cursor that was not returned by a page."""

    condition = "bad-cursor"

    def __init__(self) -> None:
        super().__init__("the cursor is invalid: start without one")


def page(
    items: Sequence[T], key: Callable[[T], Sequence[Any]], cursor: str | None, limit: int
) -> tuple[list[T], str | None]:
    """Return the rows after the cursor, and the cursor of the next page.

    Items must be sorted by descending key.
    """
    first = _first_after(items, key, _decoded(cursor)) if cursor else 0
    shown = list(items[first : first + limit])
    return shown, _encoded(key(shown[-1])) if len(items) > first + limit else None


def _first_after(items: Sequence[T], key: Callable[[T], Sequence[Any]], after: list[Any]) -> int:
    """Find the first row with a smaller key, by binary search."""
    low, high = 0, len(items)
    try:
        while low < high:
            middle = (low + high) // 2
            if list(key(items[middle])) < after:
                high = middle
            else:
                low = middle + 1
    except TypeError:
        raise BadCursor from None
    return low


def _encoded(key: Sequence[Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(list(key)).encode()).decode().rstrip("=")


def _decoded(cursor: str) -> list[Any]:
    try:
        value = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        raise BadCursor from None
    if not isinstance(value, list):
        raise BadCursor
    return value
