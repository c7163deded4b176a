"""Infer the type of sampled values, never a narrower one than is safe. Called by infer.py.

A sample is not the file: whole numbers become bigint whatever their size, decimals keep their
digits or stay strings, and numbers with a leading zero are treated as names.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from tidegate.connectors.localfile.json_values import JsonNumber
from tidegate.connectors.localfile.value_converters import ConversionRules, from_text
from tidegate.model.types import Column, DataType, TypeName

STRING = DataType(TypeName.STRING)
_BIGINT = DataType(TypeName.BIGINT)
_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)\.[0-9]+([eE][+-]?[0-9]{1,3})?")
_EXACT_DIGITS = 15
_TIMES = (
    (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"), DataType(TypeName.DATE)),
    (
        re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"),
        DataType(TypeName.TIMESTAMP),
    ),
    (
        re.compile(
            r"[0-9]{4}-[0-9]{2}-[0-9]{2}["
            r" T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})"
        ),
        DataType(TypeName.TIMESTAMP_TZ),
    ),
    (re.compile(r"[0-9]{2}:[0-9]{2}:[0-9]{2}"), DataType(TypeName.TIME)),
)


def type_of_texts(texts: Iterable[str]) -> DataType:
    """Infer the type of a csv column's texts; empty ones are ignored."""
    found = [text for text in texts if text.strip()]
    if not found:
        return STRING
    if all(text.lower() in ("true", "false") for text in found):
        return DataType(TypeName.BOOLEAN)
    if all(_WHOLE.fullmatch(text) for text in found):
        return _readable(_BIGINT, found)
    if all(_WHOLE.fullmatch(text) or _DECIMAL.fullmatch(text) for text in found):
        return _fraction(found)
    return type_of_times(found)


def _fraction(found: Sequence[str]) -> DataType:
    """Choose double if it keeps all digits, else a wide decimal."""
    if all(len(re.sub(r"[eE].*|[^0-9]", "", text).strip("0")) <= _EXACT_DIGITS for text in found):
        return DataType(TypeName.DOUBLE)
    return _readable(DataType(TypeName.DECIMAL, precision=38, scale=18), found)


def type_of_times(found: Sequence[str]) -> DataType:
    """Choose a date or time type if all texts have it, else string."""
    for pattern, kind in _TIMES:
        if all(pattern.fullmatch(text) for text in found):
            return _readable(kind, found)
    return STRING


def _readable(kind: DataType, texts: Sequence[str]) -> DataType:
    convert = from_text(kind, ConversionRules())
    try:
        for text in texts:
            convert(text)
    except ValueError:
        return STRING
    return kind


def type_of_values(values: Sequence[Any]) -> DataType:
    """Infer the type of a key's values in JSON objects.

    Nulls are ignored; values of several kinds are read as text.
    """
    found = [value for value in values if value is not None]
    kinds = {_kind(value) for value in found}
    if len(kinds) != 1:
        numbers = kinds == {"whole", "fraction"}
        return _fraction([_text(value) for value in found]) if numbers else STRING
    match kinds.pop():
        case "boolean":
            return DataType(TypeName.BOOLEAN)
        case "whole":
            return _readable(_BIGINT, [str(value) for value in found])
        case "fraction":
            return _fraction([_text(value) for value in found])
        case "list":
            return DataType(
                TypeName.ARRAY,
                children=(type_of_values([each for value in found for each in value]),),
            )
        case "object":
            return _row(found)
        case _:
            return type_of_times(found)


def _row(found: Sequence[dict[str, Any]]) -> DataType:
    names = list(dict.fromkeys(name for value in found for name in value))
    if not names or any(not re.fullmatch(r"[A-Za-z_]\w*", name) for name in names):
        return STRING  # a row type cannot express these names
    return DataType(
        TypeName.ROW,
        columns=tuple(
            Column(name=n, type=type_of_values([v.get(n) for v in found])) for n in names
        ),
    )


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "whole"
        case float():
            return "fraction"
        case list():
            return "list"
        case dict():
            return "object"
        case _:
            return "text"


def _text(value: Any) -> str:
    return value.text if isinstance(value, JsonNumber) else str(value)
