"""Cursors: opaque text that holds the sort key of the last row that was shown. Pure."""

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tidegate.model.errors import UserError

T = TypeVar("T")


class BadCursor(UserError):
    """A cursor that no page has given."""

    condition = "bad-cursor"

    def __init__(self) -> None:
        super().__init__("the cursor is none that a page has given: begin without one")


def page(items: Sequence[T], key: Callable[[T], Sequence[Any]], cursor: str | None, limit: int) -> tuple[list[T], str | None]:
    """The rows after the cursor, by falling key, and the cursor of the next page. Items must be sorted so."""
    after = _decoded(cursor) if cursor else None
    try:
        rest = [item for item in items if after is None or list(key(item)) < after]
    except TypeError:
        raise BadCursor from None
    shown = rest[:limit]
    return shown, _encoded(key(shown[-1])) if len(rest) > limit else None


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
