r"""Convert texts and JSON values to the Python values that Arrow takes, by type.

Called by the readers if Arrow's own conversion does not suffice. Every converter takes one value
that is not null and raises ValueError with a message for the user. Nested values in csv and text
files are JSON, or written with SeaTunnel's separators: \002 between the elements of an array, the
entries of a map, the fields of a row, \003 between key and value, and so on for deeper levels.
"""

import base64
import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any

from tidegate.connectors.localfile.bad_rows import STRICT, Leniency
from tidegate.connectors.localfile.bad_rows import excerpt as _shown
from tidegate.connectors.localfile.json_values import DECODER, text_of
from tidegate.connectors.localfile.option_syntax import to_strptime
from tidegate.model.types import DataType, TypeName

Converter = Callable[[Any], Any]
SEPARATORS = "\x01\x02\x03\x04\x05\x06\x07\x08"
DATES = ("%Y-%m-%d", "%Y.%m.%d", "%Y/%m/%d", "%Y%m%d")
TIMESTAMPS = ("%Y-%m-%d %H:%M:%S", "%Y.%m.%d %H:%M:%S", "%Y/%m/%d %H:%M:%S", "%Y%m%d%H%M%S")
_COMPACT_WIDTHS = {"%Y%m%d": 8, "%Y%m%d%H%M%S": 14}
_BITS = {TypeName.TINYINT: 8, TypeName.SMALLINT: 16, TypeName.INT: 32, TypeName.BIGINT: 64}
_MIDNIGHT = time()
_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)
_HEXADECIMAL = re.compile(r"0[xX]([0-9a-fA-F]{1,16})")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ConversionRules:
    """How values are read: the time patterns for strptime, and the accepted deviations."""

    date: str = "%Y-%m-%d"
    datetime: str = "%Y-%m-%d %H:%M:%S"
    time: str = "%H:%M:%S"
    leniency: Leniency = STRICT

    @staticmethod
    def of(values: Mapping[str, Any]) -> "ConversionRules":
        return ConversionRules(
            date=to_strptime(values["date_format"]),
            datetime=to_strptime(values["datetime_format"]),
            time=to_strptime(values["time_format"]),
            leniency=Leniency.of(values),
        )


def from_text(kind: DataType, rules: ConversionRules, level: int = 1) -> Converter:
    """Return the converter of a field's text."""
    match kind.name:
        case (
            TypeName.ARRAY
            | TypeName.MAP
            | TypeName.ROW
            | TypeName.FLOAT_VECTOR
            | TypeName.FLOAT16_VECTOR
            | TypeName.BFLOAT16_VECTOR
        ):
            return _nested(kind, rules, level)
        case TypeName.SPARSE_FLOAT_VECTOR:
            return _nested(
                DataType(TypeName.MAP, children=(DataType(TypeName.INT), DataType(TypeName.FLOAT))),
                rules,
                level,
            )
        case _:
            return _scalar(kind, rules)


def _scalar(kind: DataType, rules: ConversionRules) -> Converter:
    match kind.name:
        case TypeName.STRING:
            return str
        case TypeName.TINYINT | TypeName.SMALLINT | TypeName.INT | TypeName.BIGINT:
            return _integer(kind)
        case TypeName.FLOAT | TypeName.DOUBLE:
            return _number(kind)
        case TypeName.BOOLEAN:
            return _boolean
        case TypeName.DECIMAL:
            return _decimal(kind, rules)
        case TypeName.NULL:
            return lambda _: None
        case TypeName.BYTES | TypeName.BINARY_VECTOR:
            return lambda text: text.encode("utf-8", "surrogateescape")
        case TypeName.DATE:
            return lambda text: _date(text.strip(), rules)
        case TypeName.TIME:
            return lambda text: _time(text.strip(), rules)
        case _:
            return lambda text: _timestamp(
                text.strip(), rules, zoned=kind.name is TypeName.TIMESTAMP_TZ
            )


def from_json(kind: DataType, rules: ConversionRules) -> Converter:
    """Return the converter of a JSON value.

    Scalars of other JSON types are read by their text.
    """
    match kind.name:
        case TypeName.STRING:
            return text_of
        case (
            TypeName.ARRAY
            | TypeName.FLOAT_VECTOR
            | TypeName.FLOAT16_VECTOR
            | TypeName.BFLOAT16_VECTOR
        ):
            return _json_list(nullable(from_json(_element(kind), rules)))
        case TypeName.MAP:
            return _json_map(
                from_text(kind.children[0], rules), nullable(from_json(kind.children[1], rules))
            )
        case TypeName.ROW:
            columns = {c.name: nullable(from_json(c.type, rules)) for c in kind.columns}
            return _json_row(columns, rules.leniency.fill_missing)
        case TypeName.BYTES:
            return _base64
        case TypeName.BOOLEAN:
            return _json_boolean
        case _:
            convert = from_text(kind, rules)
            return lambda value: convert(text_of(value))


def nullable(convert: Converter) -> Converter:
    return lambda value: None if value is None else convert(value)


def _element(kind: DataType) -> DataType:
    return kind.children[0] if kind.children else DataType(TypeName.FLOAT)


def _nested(kind: DataType, rules: ConversionRules, level: int) -> Converter:
    parse_json = from_json(kind, rules)
    parse_text = _separated(kind, rules, level)

    def convert(text: str) -> Any:
        if text[:1] in "[{":
            try:
                value, end = DECODER.raw_decode(text)
            except ValueError:
                return parse_text(text)  # the text only resembles JSON
            if text[end:].strip():
                raise ValueError(f"{_shown(text)} has text after its JSON value")
            return parse_json(value)
        return parse_text(text)

    return convert


def _separated(kind: DataType, rules: ConversionRules, level: int) -> Converter:
    """Split by SeaTunnel's separators, one level deeper for every nesting."""
    if level + 1 >= len(SEPARATORS):
        raise ValueError(f"{kind} is nested too deeply for a text file")
    outer, inner = SEPARATORS[level], SEPARATORS[level + 1]

    def blank(convert: Converter) -> Converter:
        return lambda text: convert(text) if text.strip() else None

    if kind.name is TypeName.ROW:
        parts = [(c.name, blank(from_text(c.type, rules, level + 1))) for c in kind.columns]
        return lambda text: {
            name: convert(piece)
            for (name, convert), piece in zip(
                parts, text.split(outer) + [""] * len(parts), strict=False
            )
        }
    if kind.name is TypeName.MAP:
        key, value = (
            from_text(kind.children[0], rules, level + 1),
            blank(from_text(kind.children[1], rules, level + 1)),
        )
        return lambda text: [
            (key(k), value(v))
            for k, _, v in (entry.partition(inner) for entry in text.split(outer))
        ]
    element = blank(from_text(_element(kind), rules, level + 1))
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
        refuse_duplicate_keys(value, value)
        return [(key(k), value_of(v)) for k, v in value.items()]

    return convert


def _json_row(columns: dict[str, Converter], fill_missing: bool) -> Converter:
    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f"{_shown(value)} is not an object")
        missing = [] if fill_missing else [name for name in columns if name not in value]
        if missing:
            raise ValueError(f"{_shown(value)} has no key {', '.join(map(repr, missing))}")
        refuse_duplicate_keys(value, columns)
        return {name: column(value.get(name)) for name, column in columns.items()}

    return convert


def refuse_duplicate_keys(value: Mapping[str, Any], names: Iterable[str]) -> None:
    """Raise if an object has one of these keys more than once."""
    twice = set(names).intersection(getattr(value, "duplicate_keys", ()))
    if twice:
        raise ValueError(f"the key {min(twice)!r} occurs more than once")


def _json_boolean(value: Any) -> bool:
    return value if isinstance(value, bool) else _boolean(text_of(value))


def _base64(value: Any) -> bytes:
    """Decode base64, which SeaTunnel uses too: JSON has no bytes."""
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError):
        raise ValueError(f"{_shown(value)} is not base64, as bytes in JSON are") from None


def _integer(kind: DataType) -> Converter:
    bits = _BITS[kind.name]

    def convert(text: str) -> int:
        stripped = text.strip()
        hexadecimal = _HEXADECIMAL.fullmatch(stripped)
        if hexadecimal and len(hexadecimal[1]) * 4 <= bits:  # as Arrow reads it
            value = int(hexadecimal[1], 16)
            return value - (1 << bits) if value >> bits - 1 else value
        if not _WHOLE.fullmatch(stripped):
            raise ValueError(f"{_shown(text)} is not a whole number")
        value = int(stripped) if len(stripped) <= 40 else 1 << 64
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise ValueError(f"{_shown(text)} does not fit into {kind}")
        return value

    return convert


def _number(kind: DataType) -> Converter:
    def convert(text: str) -> float:
        stripped = text.strip()
        if _NOT_FINITE.fullmatch(stripped):
            return float(stripped)
        if not _NUMBER.fullmatch(stripped):
            raise ValueError(f"{_shown(text)} is not a number")
        value = float(stripped)
        if kind.name is TypeName.FLOAT and math.isfinite(value):
            try:
                struct.pack("<f", value)
            except OverflowError:
                value = math.inf
        if math.isinf(value):
            raise ValueError(f"{_shown(text)} does not fit into {kind}")
        return value

    return convert


def _boolean(text: str) -> bool:
    match text.strip().lower():
        case "true" | "1":
            return True
        case "false" | "0":
            return False
        case _:
            raise ValueError(f"{_shown(text)} is neither true nor false")


def _decimal(kind: DataType, rules: ConversionRules) -> Converter:
    """Refuse excess decimal places, or round them half up, as databases do."""
    unit = Decimal(1).scaleb(-kind.scale)

    def convert(text: str) -> Decimal:
        stripped = text.strip()
        if not _NUMBER.fullmatch(stripped):
            raise ValueError(f"{_shown(text)} is not a number that fits into {kind}")
        try:
            with localcontext() as context:
                context.prec = 78
                exact = Decimal(stripped)
                value = exact.quantize(unit, rounding=ROUND_HALF_UP)
        except InvalidOperation:
            raise ValueError(f"{_shown(text)} is not a number that fits into {kind}") from None
        if value.adjusted() >= kind.precision - kind.scale and value != 0:
            raise ValueError(f"{_shown(text)} does not fit into {kind}")
        if value != exact and not rules.leniency.round_digits:
            raise ValueError(
                f"{_shown(text)} has more decimal places than {kind}: excess_digits ="
                ' "round" rounds them'
            )
        return value

    return convert


def _parsed(text: str, pattern: str) -> datetime | None:
    """Parse by a pattern; digits without separators must have the full width.

    Otherwise they would be ambiguous.
    """
    if pattern in _COMPACT_WIDTHS and len(text) != _COMPACT_WIDTHS[pattern]:
        return None
    try:
        return datetime.strptime(text, pattern)
    except ValueError:
        return None


def _date(text: str, rules: ConversionRules) -> date:
    for pattern in (rules.date, *DATES):
        parsed = _parsed(text, pattern)
        if parsed:
            return parsed.date()
    try:
        instant = _instant(text, rules)
    except ValueError:
        raise ValueError(f"{_shown(text)} is not a date") from None
    if instant.tzinfo:
        raise ValueError(f"{_shown(text)} is not a date but a timestamp with a time zone")
    if instant.time() != _MIDNIGHT and not rules.leniency.round_digits:
        raise ValueError(
            f'{_shown(text)} is not a date but a timestamp: excess_digits = "round" drops the time'
        )
    return instant.date()


def _time(text: str, rules: ConversionRules) -> int:
    whole, _, fraction = text.partition(".")
    for pattern in (rules.time, "%H:%M:%S", "%H:%M"):
        parsed = _parsed(whole, pattern)
        if not parsed:
            continue
        if fraction and not fraction.isdigit():
            break
        seconds = parsed.hour * 3600 + parsed.minute * 60 + parsed.second
        return seconds * 1_000_000_000 + _fraction(text, fraction, 9, rules)
    raise ValueError(f"{_shown(text)} is not a time")


def _timestamp(text: str, rules: ConversionRules, *, zoned: bool) -> datetime:
    value = _instant(text, rules)
    if zoned:
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    if value.tzinfo:
        raise ValueError(f"{_shown(text)} has a time zone: use timestamp_tz for it")
    return value


def _instant(text: str, rules: ConversionRules) -> datetime:
    whole, _, fraction = text.partition(".")
    for pattern in (rules.datetime, *TIMESTAMPS):
        parsed = _parsed(whole, pattern)
        if parsed and (not fraction or fraction.isdigit()):
            return parsed.replace(microsecond=_fraction(text, fraction, 6, rules))
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{_shown(text)} is not a timestamp") from None
    digits = re.search(r"[.,]([0-9]+)", text)
    _fraction(text, digits[1] if digits else "", 6, rules)
    return found


def _fraction(text: str, digits: str, width: int, rules: ConversionRules) -> int:
    """Return the fraction of a second, in units of so many digits."""
    if digits[width:].strip("0") and not rules.leniency.round_digits:
        raise ValueError(
            f'{_shown(text)} has more than {width} decimal places: excess_digits = "round"'
            " truncates them"
        )
    return int(digits[:width].ljust(width, "0"))
