"""Formats values as SeaTunnel's Console does.

A null is empty (`null` inside a row), numbers, dates and times are in Java's format, and bytes are
a list of numbers. Called by sink.py in tasks; pure.
"""

import json
from collections.abc import Callable
from datetime import datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.model.types import DataType, Table, TypeName

_PLAIN = (TypeName.TINYINT, TypeName.SMALLINT, TypeName.INT, TypeName.BIGINT)


def describe(table: Table) -> str:
    """Describe the columns of a table in one line."""
    return ", ".join(f"{c.name}<{_type_text(c.type)}>" for c in table.columns)


def _type_text(kind: DataType) -> str:
    match kind.name:
        case TypeName.ARRAY | TypeName.MAP:
            return f"{kind.name.name}<{', '.join(map(_type_text, kind.children))}>"
        case TypeName.ROW:
            return f"ROW<{', '.join(f'{c.name} {_type_text(c.type)}' for c in kind.columns)}>"
        case TypeName.DECIMAL:
            return f"DECIMAL({kind.precision}, {kind.scale})"
        case name:
            return name.name


def column_texts(kind: DataType, column: Any) -> list[str]:
    """Format one column of a batch."""
    values = _times(column).to_pylist() if kind.name is TypeName.TIME else column.to_pylist()
    if kind.name is TypeName.STRING:
        return ["" if v is None else v for v in values]
    if kind.name in _PLAIN:
        return ["" if v is None else str(v) for v in values]
    return ["" if v is None else text(kind, v) for v in values]


def _times(column: Any) -> Any:
    """Cut to microseconds: Python has no nanoseconds, and pyarrow does not cut by default."""
    return column.cast(pa.time64("us"), safe=False)


def text(kind: DataType, value: Any) -> str:
    """Format one value that is not null."""
    match kind.name:
        case TypeName.BYTES | TypeName.BINARY_VECTOR:
            return "[" + ", ".join(str(b - 256 if b > 127 else b) for b in value) + "]"
        case TypeName.ARRAY:
            return _bracketed(kind.children[0], value)
        case TypeName.FLOAT_VECTOR | TypeName.FLOAT16_VECTOR | TypeName.BFLOAT16_VECTOR:
            return _bracketed(DataType(TypeName.FLOAT), value)
        case TypeName.MAP | TypeName.SPARSE_FLOAT_VECTOR:
            return json.dumps(_plain(kind, value), ensure_ascii=False, separators=(",", ":"))
        case TypeName.ROW:
            return (
                "["
                + ", ".join(
                    "null" if v is None else text(c.type, v)
                    for c, v in zip(kind.columns, value.values(), strict=True)
                )
                + "]"
            )
        case name:
            return _SCALARS.get(name, str)(value)


def _bracketed(kind: DataType, values: Any) -> str:
    return "[" + ", ".join("null" if v is None else text(kind, v) for v in values) + "]"


def _plain(kind: DataType, value: Any) -> Any:
    """Convert a value inside a map to JSON."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    match kind.name:
        case TypeName.MAP:
            key_type, item_type = kind.children
            return {
                "null" if k is None else text(key_type, k): _plain(item_type, v) for k, v in value
            }
        case TypeName.SPARSE_FLOAT_VECTOR:
            return {str(k): v for k, v in value}
        case TypeName.ROW:
            return {
                c.name: _plain(c.type, v) for c, v in zip(kind.columns, value.values(), strict=True)
            }
        case TypeName.ARRAY:
            return [_plain(kind.children[0], item) for item in value]
        case TypeName.DECIMAL:
            return float(value)
        case _:
            return text(kind, value)


def _clock(value: datetime | time) -> str:
    """Format a time as Java does: without zero seconds, and with 3 or 6 digits of fraction."""
    shown = (
        value.replace(microsecond=0, second=0).isoformat(timespec="minutes")
        if isinstance(value, time)
        else value.strftime("%Y-%m-%dT%H:%M")
    )
    if value.second or value.microsecond:
        shown += f":{value.second:02}"
    if value.microsecond:
        shown += f".{value.microsecond:06}".removesuffix("000")
    return shown + ("Z" if value.tzinfo is not None else "")


def _floating(digits: str) -> str:
    """Convert Python's shortest text of a float to Java's.

    Java writes plain numbers from 0.001 to below 10 million, and all others as 1.5E10.
    """
    if digits in ("nan", "inf", "-inf"):
        return digits.replace("nan", "NaN").replace("inf", "Infinity")
    mantissa, _, exponent = digits.partition("e")
    if exponent:
        return f"{mantissa}{'' if '.' in mantissa else '.0'}E{int(exponent)}"
    if digits.startswith(("0.0", "-0.0")) or len(digits) > 8:
        number = Decimal(digits)
        if number != 0 and not Decimal("0.001") <= abs(number) < 10_000_000:
            return _scientific(number)
    return digits


def _scientific(number: Decimal) -> str:
    sign, digits, _ = number.normalize().as_tuple()
    whole, *rest = map(str, digits)
    return f"{'-' if sign else ''}{whole}.{''.join(rest) or '0'}E{number.adjusted()}"


_SCALARS: dict[TypeName, Callable[[Any], str]] = {
    TypeName.BOOLEAN: lambda v: "true" if v else "false",
    TypeName.FLOAT: lambda v: _floating(str(np.float32(v))),
    TypeName.DOUBLE: lambda v: _floating(repr(v)),
    TypeName.DECIMAL: lambda v: format(v, "f"),
    TypeName.DATE: lambda v: v.isoformat(),
    TypeName.TIME: _clock,
    TypeName.TIMESTAMP: _clock,
    TypeName.TIMESTAMP_TZ: _clock,
}
