"""Detects values that a target would change, in Arrow, before they are staged.

Called by writer.py, in tasks. Covers the checks that types cannot decide
(databases/targets/type_fit.py), and values that a database does not support: NaN, infinities,
24:00, years. An error names table, key, column and value.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.connectors.jdbc.target import JdbcTarget
from tidegate.databases.targets.rules import TargetRules
from tidegate.databases.targets.type_fit import CheckKind, ValueCheck
from tidegate.model.errors import UserError
from tidegate.model.types import ROW_KIND, DataType, RowKind, TypeName

VALUE_CHARS_MAX = 100
_PUTS = pa.array([RowKind.INSERT.code, RowKind.UPDATE_AFTER.code], pa.int8())
_PADDED = (
    "ends with a blank, which the target ignores: it may equal another key"
    " (allow_merged_keys = true allows that)"
)
_DAY_MICROSECONDS = 86_400_000_000
_YEARS = (TypeName.DATE, TypeName.TIMESTAMP, TypeName.TIMESTAMP_TZ)
_NUMBER = r"^[ \t\n\r\f]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t\n\r\f]*$"
_WHOLE = r"^[ \t\n\r\f]*[+-]?[0-9]+[ \t\n\r\f]*$"
_PLAIN_NUMBER = r"^(0|-?[1-9][0-9]{0,17})$"


class ValueUnfit(UserError):
    """The target cannot store a value unchanged."""

    condition = "value-unfit"

    def __init__(self, table: str, key: str, column: str, value: str, why: str) -> None:
        super().__init__(
            f"the sink cannot store a value of table {table}, column {column!r}, key {key}: {value}"
            f" {why}. Change it at the source, remove the row or column before the sink, or widen"
            " the target's column"
        )
        self.table = table
        self.key = key
        self.column = column
        self.value = value


@dataclass(frozen=True, slots=True)
class ColumnCheck:
    """A check of one column. `native` is the target's type, for messages."""

    number: int
    check: ValueCheck
    native: str


@dataclass(frozen=True, slots=True)
class ValueChecks:
    """All value checks of one incoming table.

    `padded` are key columns in which the target ignores trailing blanks.
    """

    target: JdbcTarget
    rules: TargetRules
    columns: tuple[ColumnCheck, ...] = ()
    padded: tuple[int, ...] = ()

    def check(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch; raises ValueUnfit for the first value that would be changed.

        Of rows that delete only the key matters: unsupported values of their other columns become
        null.
        """
        puts = pc.is_in(batch.column(ROW_KIND), value_set=_PUTS) if self.target.kinds else None
        arrays = list(batch.columns)
        for number, column in enumerate(self.target.columns):
            for bad, why in _unsupported_values(batch.column(number), column.type, self.rules):
                key = column.name in self.target.key
                self._raise_for_first(batch, number, bad if key else _among_puts(bad, puts), why)
                if puts is not None and not key and pc.any(bad).as_py():
                    arrays[number] = pc.if_else(
                        pc.fill_null(bad, False),
                        pa.scalar(None, arrays[number].type),
                        arrays[number],
                    )
        for each in self.columns:
            bad, why = _failing_values(batch.column(each.number), each)
            self._raise_for_first(batch, each.number, _among_puts(bad, puts), why)
        for number in self.padded:
            self._raise_for_first(
                batch, number, _among_puts(pc.ends_with(batch.column(number), " "), puts), _PADDED
            )
        return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)

    def _raise_for_first(self, batch: pa.RecordBatch, number: int, bad: Any, why: str) -> None:
        if not pc.any(bad).as_py():
            return
        row = pc.index(pc.fill_null(bad, False), True).as_py()
        raise ValueUnfit(
            self.target.path,
            key_text(self.target, batch, row),
            self.target.columns[number].name,
            display_value(batch.column(number), row),
            why,
        )


def _among_puts(bad: Any, puts: Any) -> Any:
    return bad if puts is None else pc.and_(pc.fill_null(bad, False), puts)


def _unsupported_values(
    values: Any, kind: DataType, rules: TargetRules
) -> Iterator[tuple[Any, str]]:
    """Find values that the database does not support."""
    if kind.name in (TypeName.FLOAT, TypeName.DOUBLE) and not (
        rules.keeps_nan and rules.keeps_infinity
    ):
        yield pc.is_nan(values), "is not a number that the database supports"
        if not rules.keeps_infinity:
            yield pc.is_inf(values), "is not a number that the database supports"
    if kind.name is TypeName.TIME:
        day = _DAY_MICROSECONDS * (1000 if values.type.unit == "ns" else 1)
        yield (
            pc.greater_equal(values.cast(pa.int64()), pa.scalar(day)),
            "is not a valid time of day",
        )
    if kind.name in _YEARS and rules.years is not None:
        low, high = (
            _year_start(year, values.type) for year in (rules.years[0], rules.years[1] + 1)
        )
        numbers = values.cast(pa.int32() if kind.name is TypeName.DATE else pa.int64())
        why = f"is outside of the years {rules.years[0]} to {rules.years[1]} of the database"
        yield pc.or_(pc.less(numbers, low), pc.greater_equal(numbers, high)), why


def _year_start(year: int, kind: Any) -> Any:
    """The start of a year, as Arrow's number."""
    before = year - 1
    days = 365 * before + before // 4 - before // 100 + before // 400 - 719_162
    return (
        pa.scalar(days, pa.int32())
        if pa.types.is_date32(kind)
        else pa.scalar(days * _DAY_MICROSECONDS, pa.int64())
    )


def _failing_values(values: Any, each: ColumnCheck) -> tuple[Any, str]:
    check, but_column = each.check, f"but the target's column is {each.native}"
    match check.kind:
        case CheckKind.NOT_NULL:
            return pc.is_null(values), f"is not allowed, {but_column} not null"
        case CheckKind.RANGE:
            low, high = (
                pa.scalar(_clamp_int64(limit), pa.int64()) for limit in (check.low, check.high)
            )
            numbers = values.cast(pa.int64())
            return pc.or_(pc.less(numbers, low), pc.greater(numbers, high)), but_column
        case CheckKind.SCALE:
            return (
                pc.not_equal(pc.round(values, check.low), values),
                f"has more than {check.low} digits after the point, {but_column}",
            )
        case CheckKind.FRACTION:
            unit = 10 ** (6 - check.low) * (1000 if values.type.unit == "ns" else 1)
            numbers = values.cast(pa.int64())
            rest = pc.subtract(
                numbers, pc.multiply(pc.divide(numbers, pa.scalar(unit)), pa.scalar(unit))
            )
            return (
                pc.not_equal(rest, pa.scalar(0)),
                f"has a fraction of a second of more than {check.low} digits, {but_column}",
            )
        case CheckKind.LENGTH | CheckKind.FIXED_LENGTH:
            lengths = (
                pc.binary_length(values)
                if pa.types.is_binary(values.type)
                else pc.utf8_length(values)
            )
            limit = pa.scalar(check.high, lengths.type)
            return (pc.not_equal if check.kind is CheckKind.FIXED_LENGTH else pc.greater)(
                lengths, limit
            ), f"has another length, {but_column}"
        case CheckKind.TEXT_AS_NUMBER:
            number, plain = (
                pc.match_substring_regex(values, _NUMBER),
                pc.match_substring_regex(values, _PLAIN_NUMBER),
            )
            return pc.and_not(number, plain), f"would become a number, {but_column}"
        case CheckKind.TEXT_AS_WHOLE:
            return (
                pc.invert(pc.match_substring_regex(values, _WHOLE)),
                f"is not an integer, {but_column}",
            )
        case CheckKind.TEXT_DIGITS:
            digits = pc.replace_substring_regex(values, r"[eE].*$|[^0-9]", "")
            lengths = pc.utf8_length(pc.utf8_ltrim(digits, "0"))
            return (
                pc.greater(lengths, pa.scalar(check.high, lengths.type)),
                f"has more than {check.high} digits, {but_column}",
            )
        case CheckKind.TEXT_FRACTION:
            longer = rf"\.[0-9]{{{check.high}}}[0-9]*[1-9]"
            return (
                pc.match_substring_regex(values, longer),
                f"has a fraction of a second of more than {check.high} digits, {but_column}",
            )
    raise AssertionError(check.kind)


def _clamp_int64(limit: int) -> int:
    return max(min(limit, 2**63 - 1), -(2**63))


def key_text(target: JdbcTarget, batch: pa.RecordBatch, row: int) -> str:
    """The key of a row for messages."""
    return (
        ", ".join(
            f"{target.columns[n].name} = {display_value(batch.column(n), row)}"
            for n in target.positions(target.key)
        )
        or "none"
    )


def display_value(column: Any, row: int) -> str:
    """A value for messages, also if Python cannot represent it."""
    if pa.types.is_time(column.type):
        number = column.cast(pa.int64())[row].as_py()
        return (
            "null"
            if number is None
            else _time_text(number // (1000 if column.type.unit == "ns" else 1))
        )
    try:
        value = column[row].as_py()
    except (ValueError, OverflowError, pa.ArrowInvalid):
        return _date_beyond_python(column[row])
    if value is None:
        return "null"
    text = repr(value) if isinstance(value, str | bytes) else str(value)
    return (
        text if len(text) <= VALUE_CHARS_MAX else f"{text[:VALUE_CHARS_MAX]}... ({len(value)} long)"
    )


def _time_text(micros: int) -> str:
    seconds, fraction = divmod(micros, 1_000_000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}" + (
        f".{fraction:06}" if fraction else ""
    )


def _date_beyond_python(value: Any) -> str:
    """Format a date or timestamp outside of Python's years, in the proleptic Gregorian calendar."""
    days, rest = (
        (value.cast(pa.int32()).as_py(), 0)
        if pa.types.is_date32(value.type)
        else divmod(value.cast(pa.int64()).as_py(), _DAY_MICROSECONDS)
    )
    era, within = divmod(days + 719_468, 146_097)
    year = (within - within // 1460 + within // 36_524 - within // 146_096) // 365
    day = within - (365 * year + year // 4 - year // 100)
    month = (5 * day + 2) // 153
    shown_month = month + 3 if month < 10 else month - 9
    full = year + era * 400 + (shown_month <= 2)
    named = f"{1 - full:04}" if full < 1 else f"{full:04}"
    text = f"{named}-{shown_month:02}-{day - (153 * month + 2) // 5 + 1:02}" + (
        "" if pa.types.is_date32(value.type) else f" {_time_text(rest)}"
    )
    return f"{text} BC" if full < 1 else text
