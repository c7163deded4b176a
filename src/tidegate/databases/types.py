"""Type conversions that all dialects share: our types, and casts of Arrow columns to them."""

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.databases.errors import ValueUnreadable
from tidegate.model.types import DataType, TypeName
from tidegate.plugin.arrow import arrow_type

DECIMAL_DIGITS_MAX = 38
UNBOUNDED_SCALE = 18
"""The scale of decimals whose column declares none."""


def simple_type(name: TypeName) -> DataType:
    return DataType(name)


def decimal_type(precision: int, scale: int) -> DataType:
    """A decimal type; a text type if pipelines do not support that many digits."""
    if precision > DECIMAL_DIGITS_MAX or scale > precision:
        return DataType(TypeName.STRING)
    return DataType(TypeName.DECIMAL, precision=precision, scale=scale)


def array_type(element: DataType) -> DataType:
    """A list type with the given element type."""
    return DataType(TypeName.ARRAY, children=(element,))


def base_and_sizes(native: str) -> tuple[str, list[int]]:
    """`decimal(12,2) unsigned` -> decimal, [12, 2]."""
    text = native.strip().lower()
    sizes = re.search(r"\(([\d\s,-]+)\)", text)
    base = re.match(r"[a-z0-9_ ]*", text)
    return (base.group().strip() if base else ""), (
        [int(n) for n in sizes[1].split(",")] if sizes else []
    )


def cast_batch(batch: pa.RecordBatch, columns: Sequence[tuple[str, DataType]]) -> pa.RecordBatch:
    """Cast a driver's batch to exactly our names and types.

    Raises ValueUnreadable, which names the column, for values that do not fit.
    """
    arrays = [
        cast_column(batch.column(index), kind, name) for index, (name, kind) in enumerate(columns)
    ]
    return pa.RecordBatch.from_arrays(
        arrays, schema=pa.schema([pa.field(name, arrow_type(kind)) for name, kind in columns])
    )


def cast_column(column: Any, kind: DataType, name: str) -> Any:
    """Cast one column to exactly our type."""
    wanted = arrow_type(kind)
    # PostgreSQL's numerics arrive as texts of an extension type.
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if column.type == wanted:
        return column
    try:
        return _cast(column, kind, wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueUnreadable(name, str(kind), str(error)) from None


def _cast(column: Any, kind: DataType, wanted: Any) -> Any:
    if pa.types.is_integer(column.type):
        match kind.name:
            case TypeName.BOOLEAN:
                return pc.not_equal(column, pa.scalar(0, column.type))
            case TypeName.TIMESTAMP | TypeName.TIMESTAMP_TZ:
                return column.cast(pa.int64()).view(wanted)
            case TypeName.DATE:
                return column.cast(pa.int32()).view(wanted)
            case TypeName.TIME:
                return _time_of_day(column.cast(pa.int64()))
    if kind.name is TypeName.ARRAY and isinstance(column.type.value_type, pa.BaseExtensionType):
        column = pa.ListArray.from_arrays(
            column.offsets, column.values.storage, mask=column.is_null()
        )
    if (
        kind.name is TypeName.ARRAY
        and kind.children[0].name is TypeName.DECIMAL
        and _is_text(column.type.value_type)
    ):
        cast_decimals(column.flatten(), kind.children[0])
    if kind.name is TypeName.DECIMAL and _is_text(column.type):
        return cast_decimals(column, kind)
    if pa.types.is_timestamp(column.type) and kind.name is TypeName.TIMESTAMP:
        return column.cast(pa.timestamp("us"))
    return column.cast(wanted)


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def cast_decimals(texts: Any, kind: DataType) -> Any:
    """Parse decimals from texts.

    Arrow checks the digits only after rescaling, when the leading ones may already be lost, so the
    digits before the point are counted here.
    """
    numbers, most = texts.cast(arrow_type(kind)), max(DECIMAL_DIGITS_MAX - kind.scale, 1)
    lengths = pc.binary_length(texts)
    if (pc.max(lengths).as_py() or 0) > most:
        point = pc.find_substring(texts, ".")
        digits = pc.subtract(
            pc.if_else(pc.less(point, pa.scalar(0)), lengths, point),
            pc.starts_with(texts, "-").cast(lengths.type),
        )
        if pc.max(digits).as_py() > most:
            raise pa.ArrowInvalid(f"it has more than {most} digits before the point")
    return numbers


def _time_of_day(microseconds: Any) -> Any:
    """Convert microseconds since midnight; rejects values outside of a day."""
    low, high = (
        pc.less(microseconds, pa.scalar(0)),
        pc.greater_equal(microseconds, pa.scalar(86_400_000_000)),
    )
    if pc.any(pc.or_(low, high)).as_py():
        raise pa.ArrowInvalid("it is not between 00:00 and 24:00")
    return microseconds.view(pa.time64("us")).cast(pa.time64("ns"))
