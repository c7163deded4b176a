"""Parse plain, correct JSON with line numbers, without the grammar that finds mistakes.

Caller: json_form, which uses the grammar if this module gives up: duplicate keys, numbers beyond 64
bits, numeric escapes, deep nesting, any mistake. What it does read is the same data with the same
lines. Measured against the grammar: 8 to 9 times as fast on indented files of 3 KB to 1 MB, 35
times on a file of one line; a typical job submitted by REST takes 0.2 ms instead of 1.5 ms.
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
# What begins a key, a value or an element. The punctuation between them does not matter, as the
# text is known to be JSON.
_BEGINNING = re.compile(r'"(?:[^"\\]|\\.)*"|[{\[]|[^\s,:"{}\[\]]+')


class _NotPlain(Exception):
    """The text has to be parsed by the grammar."""


def read_plain(text: str, name: str) -> Document | None:
    """Return the document of a text that is plain JSON, else None."""
    if len(text) > LENGTH_MAX or "\\u" in text or "\r" in text:
        return None
    try:
        data = _DECODER.decode(text)
        if not isinstance(data, dict):
            return None
        positions: Positions = {}
        locations = _locations(text, name)
        next(locations)
        _locate(data, (), locations, positions)
    except (ValueError, RecursionError, _NotPlain):
        return None
    return Document(name=name, data=data, positions=positions)


def _locate(value: Data, path: Path, locations: Iterator[Location], positions: Positions) -> None:
    """Record the locations of everything inside a value whose own location is taken."""
    if isinstance(value, dict):
        for key, inner in value.items():
            inner_path = (*path, key)
            positions[inner_path] = next(locations)
            next(locations)
            if isinstance(inner, dict | list):
                _locate(inner, inner_path, locations, positions)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            inner_path = (*path, index)
            positions[inner_path] = next(locations)
            if isinstance(inner, dict | list):
                _locate(inner, inner_path, locations, positions)
    if len(path) > DEPTH_MAX:
        raise _NotPlain


def _locations(text: str, name: str) -> Iterator[Location]:
    """Yield the location of each key, value and element, in the order of the text."""
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
    )  # 1.0 is 1, as in SeaTunnel


def _constant(_text: str) -> None:
    raise _NotPlain  # NaN and Infinity


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant
)
