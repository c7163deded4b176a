"""Texts and JSON values as the Python values that Arrow takes, by type. Called by delimited.py and jsonlines.py where Arrow's own conversion does not reach.

Every converter takes one value that is not null and raises ValueError in words for a person. Nested values in csv and text files are JSON, or written with
the reference's separators: \\002 between the elements of an array, the entries of a map, the fields of a row, \\003 between key and value, and so on inwards.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any

from tidegate.connectors.localfile.notation import strptime_of
from tidegate.model.types import DataType, TypeName

Converter = Callable[[Any], Any]
SEPARATORS = "\x01\x02\x03\x04\x05\x06\x07\x08"
DATES = ("%Y-%m-%d", "%Y.%m.%d", "%Y/%m/%d", "%Y%m%d")
TIMESTAMPS = ("%Y-%m-%d %H:%M:%S", "%Y.%m.%d %H:%M:%S", "%Y/%m/%d %H:%M:%S", "%Y%m%d%H%M%S")
_BITS = {TypeName.TINYINT: 8, TypeName.SMALLINT: 16, TypeName.INT: 32, TypeName.BIGINT: 64}


@dataclass(frozen=True, slots=True)
class TimeNotation:
    """The three time patterns, as strptime takes them."""

    date: str = "%Y-%m-%d"
    datetime: str = "%Y-%m-%d %H:%M:%S"
    time: str = "%H:%M:%S"

    @staticmethod
    def of(values: Any) -> "TimeNotation":
        """From the options."""
        return TimeNotation(*(strptime_of(values[k]) for k in ("date_format", "datetime_format", "time_format")))


def from_text(kind: DataType, notation: TimeNotation, level: int = 1) -> Converter:
    """The converter of a field's text."""
    match kind.name:
        case TypeName.ARRAY | TypeName.MAP | TypeName.ROW | TypeName.FLOAT_VECTOR | TypeName.FLOAT16_VECTOR | TypeName.BFLOAT16_VECTOR:
            return _nested(kind, notation, level)
        case TypeName.SPARSE_FLOAT_VECTOR:
            return _nested(DataType(TypeName.MAP, children=(DataType(TypeName.INT), DataType(TypeName.FLOAT))), notation, level)
        case _:
            return _scalar(kind, notation)


def _scalar(kind: DataType, notation: TimeNotation) -> Converter:
    match kind.name:
        case TypeName.STRING:
            return str
        case TypeName.TINYINT | TypeName.SMALLINT | TypeName.INT | TypeName.BIGINT:
            return _whole(kind)
        case TypeName.FLOAT | TypeName.DOUBLE:
            return _number
        case TypeName.BOOLEAN:
            return _boolean
        case TypeName.DECIMAL:
            return _decimal(kind)
        case TypeName.NULL:
            return lambda _: None
        case TypeName.BYTES | TypeName.BINARY_VECTOR:
            return lambda text: text.encode()
        case TypeName.DATE:
            return lambda text: _date(text.strip(), notation)
        case TypeName.TIME:
            return lambda text: _time(text.strip(), notation)
        case _:
            return lambda text: _timestamp(text.strip(), notation, zoned=kind.name is TypeName.TIMESTAMP_TZ)


def from_json(kind: DataType, notation: TimeNotation) -> Converter:
    """The converter of a JSON value; scalars of other JSON types are taken by their text."""
    match kind.name:
        case TypeName.STRING:
            return lambda value: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        case TypeName.ARRAY | TypeName.FLOAT_VECTOR | TypeName.FLOAT16_VECTOR | TypeName.BFLOAT16_VECTOR:
            return _json_list(nullable(from_json(_element(kind), notation)))
        case TypeName.MAP:
            return _json_map(from_text(kind.children[0], notation), nullable(from_json(kind.children[1], notation)))
        case TypeName.ROW:
            return _json_row({c.name: nullable(from_json(c.type, notation)) for c in kind.columns})
        case TypeName.BYTES:
            return _base64
        case _:
            convert = from_text(kind, notation)
            return lambda value: convert(value if isinstance(value, str) else json.dumps(value))


def nullable(convert: Converter) -> Converter:
    """Null stays null."""
    return lambda value: None if value is None else convert(value)


def _element(kind: DataType) -> DataType:
    return kind.children[0] if kind.children else DataType(TypeName.FLOAT)


def _nested(kind: DataType, notation: TimeNotation, level: int) -> Converter:
    parse_json = from_json(kind, notation)
    parse_text = _separated(kind, notation, level)

    def convert(text: str) -> Any:
        if text[:1] in "[{":
            try:
                value = json.loads(text)
            except ValueError:
                return parse_text(text)  # a text that only looks like JSON
            return parse_json(value)
        return parse_text(text)

    return convert


def _separated(kind: DataType, notation: TimeNotation, level: int) -> Converter:
    """By the reference's separators, one level deeper for every nesting."""
    if level + 1 >= len(SEPARATORS):
        raise ValueError(f"{kind} is nested too deeply for a text file")
    outer, inner = SEPARATORS[level], SEPARATORS[level + 1]

    def blank(convert: Converter) -> Converter:
        return lambda text: convert(text) if text.strip() else None

    if kind.name is TypeName.ROW:
        parts = [(c.name, blank(from_text(c.type, notation, level + 1))) for c in kind.columns]
        return lambda text: {name: convert(piece) for (name, convert), piece in zip(parts, text.split(outer) + [""] * len(parts), strict=False)}
    if kind.name is TypeName.MAP:
        key, value = from_text(kind.children[0], notation, level + 1), blank(from_text(kind.children[1], notation, level + 1))
        return lambda text: [(key(k), value(v)) for k, _, v in (entry.partition(inner) for entry in text.split(outer))]
    element = blank(from_text(_element(kind), notation, level + 1))
    return lambda text: [element(piece) for piece in text.split(outer)]


def _json_list(element: Converter) -> Converter:
    def convert(value: Any) -> Any:
        if not isinstance(value, list):
            raise ValueError(f"{_shown(value)} is not a list")
        return [element(v) for v in value]

    return convert


def _json_map(key: Converter, value_of: Converter) -> Converter:
    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f"{_shown(value)} is not an object")
        return [(key(k), value_of(v)) for k, v in value.items()]

    return convert


def _json_row(columns: dict[str, Converter]) -> Converter:
    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f"{_shown(value)} is not an object")
        return {name: column(value.get(name)) for name, column in columns.items()}

    return convert


def _base64(value: Any) -> bytes:
    """JSON has no bytes: the reference writes and reads them as base64."""
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError):
        raise ValueError(f"{_shown(value)} is not base64, as bytes in JSON are") from None


def _whole(kind: DataType) -> Converter:
    bits = _BITS[kind.name]

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"{_shown(text)} is not a whole number") from None
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise ValueError(f"{_shown(text)} does not fit into {kind}")
        return value

    return convert


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{_shown(text)} is not a number") from None


def _boolean(text: str) -> bool:
    match text.strip().lower():
        case "true" | "1":
            return True
        case "false" | "0":
            return False
        case _:
            raise ValueError(f"{_shown(text)} is neither true nor false")


def _decimal(kind: DataType) -> Converter:
    """More digits behind the point than the type has are rounded half up, as databases do."""
    unit = Decimal(1).scaleb(-kind.scale)

    def convert(text: str) -> Decimal:
        try:
            with localcontext() as context:
                context.prec = 78
                value = Decimal(text.strip()).quantize(unit, rounding=ROUND_HALF_UP)
        except InvalidOperation:
            raise ValueError(f"{_shown(text)} is not a number that fits into {kind}") from None
        if not value.is_finite() or (value.adjusted() >= kind.precision - kind.scale and value != 0):
            raise ValueError(f"{_shown(text)} does not fit into {kind}")
        return value

    return convert


def _date(text: str, notation: TimeNotation) -> date:
    for pattern in (notation.date, *DATES):
        try:
            return datetime.strptime(text, pattern).date()
        except ValueError:
            continue
    return _timestamp(text, notation, zoned=False).date()


def _time(text: str, notation: TimeNotation) -> int:
    """Nanoseconds of the day."""
    whole, _, fraction = text.partition(".")
    for pattern in (notation.time, "%H:%M:%S", "%H:%M"):
        try:
            parsed = datetime.strptime(whole, pattern)
        except ValueError:
            continue
        if fraction and not fraction.isdigit():
            break
        seconds = parsed.hour * 3600 + parsed.minute * 60 + parsed.second
        return seconds * 1_000_000_000 + int(fraction[:9].ljust(9, "0"))
    raise ValueError(f"{_shown(text)} is not a time")


def _timestamp(text: str, notation: TimeNotation, *, zoned: bool) -> datetime:
    value = _instant(text, notation)
    if zoned:
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    if value.tzinfo:
        raise ValueError(f"{_shown(text)} has a time zone: use timestamp_tz for it")
    return value


def _instant(text: str, notation: TimeNotation) -> datetime:
    whole, _, fraction = text.partition(".")
    for pattern in (notation.datetime, *TIMESTAMPS):
        try:
            parsed = datetime.strptime(whole, pattern)
        except ValueError:
            continue
        if not fraction or fraction.isdigit():
            return parsed.replace(microsecond=int(fraction[:6].ljust(6, "0")) if fraction else 0)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{_shown(text)} is not a timestamp") from None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
