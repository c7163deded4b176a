"""Decode JSON without losing information: the digits of numbers, and duplicate keys.

Called by jsonlines.py and value_converters.py.
"""

import json
from typing import Any

_DIGITS_MAX = 1000


class JsonNumber(float):
    """A number with a fraction, an exponent or very many digits; `text` is its original text."""

    text: str

    def __new__(cls, text: str) -> "JsonNumber":
        number = super().__new__(cls, text)
        number.text = text
        return number


class JsonObject(dict[str, Any]):
    """An object with the keys that it has more than once."""

    duplicate_keys: frozenset[str] = frozenset()


def _object(pairs: list[tuple[str, Any]]) -> JsonObject:
    found = JsonObject(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        found.duplicate_keys = frozenset(name for name in names if names.count(name) > 1)
    return found


def _whole(text: str) -> Any:
    return int(text) if len(text) <= _DIGITS_MAX else JsonNumber(text)


DECODER = json.JSONDecoder(parse_float=JsonNumber, parse_int=_whole, object_pairs_hook=_object)


def text_of(value: Any) -> str:
    """Return a JSON value as text: strings unchanged, numbers with their original digits."""
    if isinstance(value, str):
        return value
    return value.text if isinstance(value, JsonNumber) else json.dumps(value, ensure_ascii=False)
