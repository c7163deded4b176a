"""Plain JSON text -> Document, several times as quick as the parser that finds mistakes. Caller:
jsonform, which takes the other one where this one gives up.

It knows no mistakes: whatever is not plain, correct JSON (a key twice, a number that is no 64-bit
one, escapes by number, deep nesting) is none of its business. What it does read is the same data
with the same lines as by the parser.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from tidegate.config.document import Data, Document, Positions
from tidegate.model.job import Path
from tidegate.model.problem import Location

LENGTH_MAX = 200_000
DEPTH_MAX = 40  # well below that of the parser
_LONG_MAX = 2**63
_LONG_DIGITS_MAX = 19
# What begins a key, a value or an element; the signs between and behind them do not matter any more
# once the text is known to be JSON.
_BEGINNING = re.compile(r'"(?:[^"\\]|\\.)*"|[{\[]|[^\s,:"{}\[\]]+')


class _NotPlain(Exception):
    """Leave it to the parser."""


def read_plain(text: str, name: str) -> Document | None:
    """The document of a text that is plain JSON, else None."""
    if len(text) > LENGTH_MAX or "\\u" in text or "\r" in text:
        return None
    try:
        data = _DECODER.decode(text)
        if not isinstance(data, dict):
            return None
        positions: Positions = {}
        places = _places(text, name)
        next(places)
        _locate(data, (), places, positions)
    except (ValueError, RecursionError, _NotPlain):
        return None
    return Document(name=name, data=data, positions=positions)


def _locate(value: Data, path: Path, places: Iterator[Location], positions: Positions) -> None:
    """The places of all that is inside a value whose own beginning has been taken already."""
    if isinstance(value, dict):
        for key, inner in value.items():
            here = (*path, key)
            positions[here] = next(places)
            next(places)
            if isinstance(inner, dict | list):
                _locate(inner, here, places, positions)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            here = (*path, index)
            positions[here] = next(places)
            if isinstance(inner, dict | list):
                _locate(inner, here, places, positions)
    if len(path) > DEPTH_MAX:
        raise _NotPlain


def _places(text: str, name: str) -> Iterator[Location]:
    """Where each key, value and element begins, in the order of the text."""
    at = Location(name, 1)
    if "\n" not in text:
        while True:
            yield at
    line, behind = 1, 0
    for found in _BEGINNING.finditer(text):
        start = found.start()
        if lines := text.count("\n", behind, start):
            line += lines
            at = Location(name, line)
        behind = start
        yield at


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _NotPlain
    return found


def _integer(text: str) -> int:
    number = int(text) if len(text) <= _LONG_DIGITS_MAX + 1 else _LONG_MAX
    if not -_LONG_MAX <= number < _LONG_MAX:
        raise _NotPlain
    return number


def _float(text: str) -> int | float:
    number = float(text)
    if not math.isfinite(number):
        raise _NotPlain
    return (
        int(number) if number.is_integer() and -_LONG_MAX <= number < _LONG_MAX else number
    )  # 1.0 is 1, as in the reference


def _constant(_text: str) -> None:
    raise _NotPlain  # NaN and Infinity


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant
)
