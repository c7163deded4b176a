"""Checks field rules on a batch: vectorized by Arrow, or on Python objects for nested values.

Called by sink.py in tasks. SeaTunnel is inconsistent about nulls. Here a null breaks NOT_NULL, MIN,
MAX and equals_to, has length 0, and matches every type.
"""

import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.connectors.assertion.errors import RuleFailed
from tidegate.connectors.assertion.rules import FieldAssertion, Rule, RuleType
from tidegate.model.types import Column, DataType, Table, TypeName
from tidegate.plugin.arrow import arrow_type
from tidegate.plugin.literal import literal
from tidegate.plugin.option import shown

_ROW_TEXT_MAX = 400


def check_fields(table: Table, batch: pa.RecordBatch, rules: tuple[FieldAssertion, ...]) -> None:
    """Raise RuleFailed for the first row that breaks a rule."""
    columns = {c.name: c for c in table.columns}
    for field in rules:
        column = columns.get(field.name)
        if column is None:
            raise RuleFailed(
                f"Assert: field {field.name} is not in table {table.path}, which has"
                f" {', '.join(columns)}"
            )
        _check_type(table, batch, field, column)
        for rule in field.rules:
            broken = _first_broken(
                column, batch.column(field.name), rule, null_expected=_is_null(field.type)
            )
            if broken is not None:
                raise _failure(table, batch, field, str(rule), broken)


def _is_null(kind: DataType | None) -> bool:
    return kind is not None and kind.name is TypeName.NULL


def _check_type(table: Table, batch: pa.RecordBatch, field: FieldAssertion, column: Column) -> None:
    if field.type is None:
        return
    if _is_null(field.type):  # in SeaTunnel this means that all values must be null
        broken = _first(pc.is_valid(batch.column(field.name)))
        if broken is not None:
            raise _failure(table, batch, field, "field_type null", broken)
        return
    if not same_type(field.type, column.type) and not _fits_declared(
        field.type, column.type, batch.column(field.name)
    ):
        raise RuleFailed(
            f"Assert: field {field.name} of table {table.path} is {column.type}, not {field.type}"
            " (field_type)"
        )


def _fits_declared(wanted: DataType, actual: DataType, values: Any) -> bool:
    """Accept a decimal declared with a lower precision than the column if all values fit."""
    if not (wanted.name is actual.name is TypeName.DECIMAL and wanted.scale == actual.scale):
        return False
    most = 10 ** (wanted.precision - wanted.scale)
    return all(v is None or abs(v) < most for v in values.to_pylist())


def same_type(wanted: DataType, actual: DataType) -> bool:
    """Compare types, ignoring names of nested columns; vectors count as their Arrow types."""
    wanted, actual = _carried(wanted), _carried(actual)
    if wanted.name is not actual.name or (wanted.precision, wanted.scale) != (
        actual.precision,
        actual.scale,
    ):
        return False
    inside = [
        (wanted.children, actual.children),
        ([c.type for c in wanted.columns], [c.type for c in actual.columns]),
    ]
    return all(len(a) == len(b) and all(map(same_type, a, b)) for a, b in inside)


def _carried(kind: DataType) -> DataType:
    match kind.name:
        case TypeName.FLOAT_VECTOR | TypeName.FLOAT16_VECTOR | TypeName.BFLOAT16_VECTOR:
            return DataType(TypeName.ARRAY, children=(DataType(TypeName.FLOAT),))
        case TypeName.SPARSE_FLOAT_VECTOR:
            return DataType(
                TypeName.MAP, children=(DataType(TypeName.INT), DataType(TypeName.FLOAT))
            )
        case TypeName.BINARY_VECTOR:
            return DataType(TypeName.BYTES)
        case _:
            return kind


def _first_broken(column: Column, values: Any, rule: Rule, *, null_expected: bool) -> int | None:
    """The index of the first row that breaks a rule."""
    found = _by_type(values, rule)
    if rule.equals_to is None or null_expected or rule.type is RuleType.NULL:
        return found
    different = _different(column.type, values, rule.equals_to)
    return min((index for index in (found, different) if index is not None), default=None)


def _by_type(values: Any, rule: Rule) -> int | None:
    match rule.type:
        case None:
            return None
        case RuleType.NOT_NULL:
            return _first(pc.is_null(values))
        case RuleType.NULL:
            return _first(pc.is_valid(values))
        case RuleType.MIN | RuleType.MAX:
            if not (
                pa.types.is_integer(values.type)
                or pa.types.is_floating(values.type)
                or pa.types.is_decimal(values.type)
            ):
                return 0 if len(values) else None  # only numbers can be compared
            numbers = values.cast(pa.float64(), safe=False)
            bound = pa.scalar(rule.bound)
            good = (
                pc.greater_equal(numbers, bound)
                if rule.type is RuleType.MIN
                else pc.less_equal(numbers, bound)
            )
            return _first(pc.invert(pc.fill_null(good, False)))
        case _:
            lengths, bound = _lengths(values), pa.scalar(rule.bound)
            return _first(
                pc.less(lengths, bound)
                if rule.type is RuleType.MIN_LENGTH
                else pc.greater(lengths, bound)
            )


def _lengths(values: Any) -> Any:
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return pc.fill_null(pc.utf8_length(values), 0)
    return pa.array([0 if v is None else len(str(v)) for v in values.to_pylist()], type=pa.int64())


def _different(kind: DataType, values: Any, raw: Any) -> int | None:
    try:
        expected = pa.scalar(literal(kind, raw), type=arrow_type(kind))
    except ValueError as error:
        raise RuleFailed(f"Assert: equals_to cannot be compared: {error}") from None
    # NaN equals NaN, as in Java.
    if pa.types.is_floating(values.type) and math.isnan(expected.as_py()):
        return _first(pc.invert(pc.fill_null(pc.is_nan(values), False)))
    if not pa.types.is_nested(values.type):
        return _first(pc.invert(pc.fill_null(pc.equal(values, expected), False)))
    wanted = _comparable(kind, expected.as_py())
    return next(
        (
            i
            for i, v in enumerate(values.to_pylist())
            if v is None or _comparable(kind, v) != wanted
        ),
        None,
    )


def _comparable(kind: DataType, value: Any) -> Any:
    """Convert nested values so that the order of map entries does not matter."""
    if value is None:
        return None
    match kind.name:
        case TypeName.MAP:
            return {
                str(_comparable(kind.children[0], k)): _comparable(kind.children[1], v)
                for k, v in value
            }
        case TypeName.SPARSE_FLOAT_VECTOR:
            return dict(value)
        case TypeName.ARRAY:
            return [_comparable(kind.children[0], item) for item in value]
        case TypeName.ROW:
            return [
                _comparable(c.type, v) for c, v in zip(kind.columns, value.values(), strict=True)
            ]
        case _:
            return value


def _first(mask: Any) -> int | None:
    index: int = pc.index(mask, True).as_py()
    return None if index < 0 else index


def _failure(
    table: Table, batch: pa.RecordBatch, field: FieldAssertion, rule: str, row: int
) -> RuleFailed:
    whole = batch.slice(row, 1).to_pylist()[0]
    text = ", ".join(f"{name}={_text(value)}" for name, value in whole.items())
    if len(text) > _ROW_TEXT_MAX:
        text = text[:_ROW_TEXT_MAX] + "..."
    return RuleFailed(
        f"Assert: {field.name} = {_text(whole[field.name])} breaks the rule {rule} in table"
        f" {table.path}; the row: {text}"
    )


def _text(value: Any) -> str:
    return (
        "null"
        if value is None
        else shown(value if isinstance(value, str | int | float | list | dict) else str(value))
    )
