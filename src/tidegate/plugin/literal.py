"""Converts values written in a job file to Python values that Arrow accepts.

Called by connectors for `rows` of FakeSource, `equals_to` of Assert and default values of columns.
Imports no Arrow and reads no clock. The notation is that of SeaTunnel: bytes as base64, a nested
row as a list or a block, a map as a block, dates and times as text. A ValueError has a message for
the user.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

from tidegate.model.types import Column, DataType, TypeName
from tidegate.plugin.option import as_text, shown

_BITS = {TypeName.TINYINT: 7, TypeName.SMALLINT: 15, TypeName.INT: 31, TypeName.BIGINT: 63}
_WIDE = Context(prec=76)
_FLOATS = (TypeName.FLOAT_VECTOR, TypeName.FLOAT16_VECTOR, TypeName.BFLOAT16_VECTOR)


def literal(kind: DataType, raw: Any) -> Any:
    """Convert a raw value to a type.

    A row becomes a dict, a map a list of pairs, anything else the Python type for it. None stays
    None.
    """
    if raw is None or kind.name is TypeName.NULL:
        return None
    match kind.name:
        case TypeName.ARRAY:
            return [literal(kind.children[0], item) for item in _listed(kind, raw)]
        case TypeName.MAP:
            return [
                (literal(kind.children[0], key), literal(kind.children[1], value))
                for key, value in _mapped(kind, raw).items()
            ]
        case TypeName.ROW:
            return row_literal(kind.columns, raw)
        case TypeName.DECIMAL:
            return _decimal(kind, raw)
        case TypeName.SPARSE_FLOAT_VECTOR:
            return [
                (_whole(DataType(TypeName.INT), key), _number(value))
                for key, value in _mapped(kind, raw).items()
            ]
        case name if name in _BITS:
            return _whole(kind, raw)
        case name if name in _FLOATS:
            return [_number(item) for item in _listed(kind, raw)]
        case name:
            return _SCALARS[name](raw)


def row_literal(columns: tuple[Column, ...], raw: Any) -> dict[str, Any]:
    """Make a row from a list (by position) or a block (by name); missing values are null.

    The message of an error names the column.
    """
    if isinstance(raw, str):
        raw = _parsed(raw)
    if isinstance(raw, list):
        if len(raw) > len(columns):
            raise ValueError(f"{len(raw)} values for {len(columns)} columns: {shown(raw)}")
        given = dict(zip((c.name for c in columns), raw, strict=False))
    elif isinstance(raw, Mapping):
        given = dict(raw)
    else:
        raise ValueError(f"{shown(raw)} is no row: write [a, b, ...] or {{ name = value }}")
    row = {}
    for column in columns:
        try:
            row[column.name] = literal(column.type, given.get(column.name))
        except ValueError as error:
            raise ValueError(f"{column.name}: {error}") from None
    return row


def _parsed(text: str) -> Any:
    """Parse a list or block written as text: JSON, or `{ key = value, ... }`."""
    try:
        return json.loads(text)
    except ValueError:
        inside = text.strip()
    if not (inside.startswith("{") and inside.endswith("}")):
        return text
    pairs = {}
    for part in filter(None, (p.strip() for p in re.split(r"[,\n]", inside[1:-1]))):
        # A key may contain colons (12:01:26), so a colon separates only if there is no `=`.
        key, _, value = part.partition("=") if "=" in part else part.partition(":")
        pairs[key.strip().strip('"')] = value.strip().strip('"')
    return pairs


def _listed(kind: DataType, raw: Any) -> list[Any]:
    raw = _parsed(raw) if isinstance(raw, str) else raw
    if not isinstance(raw, list):
        raise ValueError(f"{shown(raw)} is no {kind}: write [a, b, ...]")
    return raw


def _mapped(kind: DataType, raw: Any) -> Mapping[str, Any]:
    raw = _parsed(raw) if isinstance(raw, str) else raw
    if not isinstance(raw, Mapping):
        raise ValueError(f"{shown(raw)} is no {kind}: write {{ key = value }}")
    return raw


def _whole(kind: DataType, raw: Any) -> int:
    try:
        value = int(raw.strip()) if isinstance(raw, str) else int(raw)
        exact = not isinstance(raw, bool) and (isinstance(raw, str) or value == raw)
    except (TypeError, ValueError, OverflowError):
        value, exact = 0, False
    bits = _BITS[kind.name]
    if not exact or not -(2**bits) <= value < 2**bits:
        raise ValueError(f"{shown(raw)} is no {kind}")
    return value


def _number(raw: Any) -> float:
    try:
        if isinstance(raw, bool):
            raise TypeError
        return float(raw)
    except (TypeError, ValueError):
        raise ValueError(f"{shown(raw)} is no number") from None


def _decimal(kind: DataType, raw: Any) -> Decimal:
    try:
        if isinstance(raw, bool):
            raise TypeError
        value = Decimal(str(raw).strip())
        exact = value.quantize(
            Decimal(1).scaleb(-kind.scale), rounding=ROUND_HALF_UP, context=_WIDE
        )
    except (InvalidOperation, TypeError, ValueError):
        raise ValueError(f"{shown(raw)} is no {kind}") from None
    if len(exact.as_tuple().digits) > kind.precision:
        raise ValueError(f"{shown(raw)} does not fit into {kind}")
    return exact


def _boolean(raw: Any) -> bool:
    text = as_text(raw).strip().lower()
    if text not in ("true", "false"):
        raise ValueError(f"{shown(raw)} is neither true nor false")
    return text == "true"


def _bytes(raw: Any) -> bytes:
    try:
        return base64.b64decode(as_text(raw), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{shown(raw)} is no base64 text, as bytes are written") from None


def _binary_vector(raw: Any) -> bytes:
    if isinstance(raw, list):
        return bytes(_whole(DataType(TypeName.INT), item) & 0xFF for item in raw)
    return _bytes(raw)


def _cut_fraction(text: str) -> str:
    """Cut to microseconds, all that Python has; SeaTunnel writes up to nanoseconds."""
    return re.sub(r"(\.\d{6})\d+", r"\1", text)


def _date(raw: Any) -> date:
    text = re.sub(r"[/.年月]", "-", as_text(raw).strip()).removesuffix("日")
    try:
        parts = text.split("-")
        return date(*map(int, parts)) if len(parts) == 3 else date.fromisoformat(text)
    except (TypeError, ValueError):
        raise ValueError(f"{shown(raw)} is no date: write 2024-12-31") from None


def _time(raw: Any) -> time:
    try:
        return time.fromisoformat(_cut_fraction(as_text(raw).strip()))
    except ValueError:
        raise ValueError(f"{shown(raw)} is no time: write 23:59:59") from None


def _moment(raw: Any) -> datetime:
    text = _cut_fraction(as_text(raw).strip())
    compact = re.fullmatch(r"(\d{8})(\d{6})", text)
    if compact:
        text = f"{compact[1]}T{compact[2]}"
    day = re.fullmatch(r"(\d{4})[-/.年](\d{1,2})[-/.月](\d{1,2})日?(.*)", text)
    if day:
        text = f"{day[1]}-{day[2]:0>2}-{day[3]:0>2}{day[4]}"
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{shown(raw)} is no timestamp: write 2024-12-31T23:59:59") from None


def _timestamp(raw: Any) -> datetime:
    return _moment(raw).replace(tzinfo=None)


def _timestamp_tz(raw: Any) -> datetime:
    moment = _moment(raw)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


_SCALARS: dict[TypeName, Callable[[Any], Any]] = {
    TypeName.STRING: as_text,
    TypeName.BOOLEAN: _boolean,
    TypeName.FLOAT: _number,
    TypeName.DOUBLE: _number,
    TypeName.BYTES: _bytes,
    TypeName.BINARY_VECTOR: _binary_vector,
    TypeName.DATE: _date,
    TypeName.TIME: _time,
    TypeName.TIMESTAMP: _timestamp,
    TypeName.TIMESTAMP_TZ: _timestamp_tz,
}
