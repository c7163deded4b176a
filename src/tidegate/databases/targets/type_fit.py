"""Check whether a target's column stores every value of an incoming column without loss.

Pure: compares types, knows no database. `check_fit` has three results. FITS: the types prove that
every value is stored, or the database itself rejects what it cannot store. A refusal: values would
be rounded or truncated silently. A check: types cannot decide, so that every value is compared
(connectors/jdbc/value_checks.py).
"""

from dataclasses import dataclass
from enum import StrEnum

from tidegate.databases.types import DECIMAL_DIGITS_MAX, UNBOUNDED_SCALE
from tidegate.model.types import DataType, TypeName

MICROSECONDS = 6
"""Fractional digits of a second in pipelines."""
_WHOLE_DIGITS = {TypeName.TINYINT: 3, TypeName.SMALLINT: 5, TypeName.INT: 10, TypeName.BIGINT: 19}
_WHOLE_BITS = {TypeName.TINYINT: 7, TypeName.SMALLINT: 15, TypeName.INT: 31, TypeName.BIGINT: 63}
_LISTS = (TypeName.FLOAT_VECTOR, TypeName.FLOAT16_VECTOR, TypeName.BFLOAT16_VECTOR)


class StoredKind(StrEnum):
    """The kind of values that a column stores."""

    WHOLE = "whole numbers"
    DECIMAL = "decimals"
    FLOAT = "floating-point numbers"
    BOOLEAN = "booleans"
    TEXT = "texts"
    BYTES = "bytes"
    DATE = "dates"
    TIME = "times of day"
    TIMESTAMP = "timestamps without a zone"
    MOMENT = "moments"
    ANY = "anything that the database takes"


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnCapacity:
    """The values that a target's column can store, independent of the database.

    `digits` counts significant digits (DECIMAL; `whole_digits` those of numbers without a fraction)
    or bits of the mantissa (FLOAT); `scale` digits after the point, None for any number of them;
    `fraction` digits of a second; `length` characters or bytes. `fixed` values are padded to their
    length. `distinguishes_zones`: timestamps with and without a time zone are different types, so
    that using one for the other is a mistake.
    """

    kind: StoredKind
    low: int = 0
    high: int = 0
    digits: int = 0
    whole_digits: int = 0
    scale: int | None = None
    fraction: int = MICROSECONDS
    length: int = 0
    fixed: bool = False
    distinguishes_zones: bool = True
    numeric_texts: bool = False
    """Whether texts that look like numbers become numbers (SQLite)."""
    element: "ColumnCapacity | None" = None


class CheckKind(StrEnum):
    """Which property of every value is compared."""

    NOT_NULL = "not-null"
    RANGE = "range"
    SCALE = "scale"
    FRACTION = "fraction"
    LENGTH = "length"
    FIXED_LENGTH = "fixed-length"
    TEXT_AS_NUMBER = "text-as-number"
    TEXT_AS_WHOLE = "text-as-whole"
    TEXT_DIGITS = "text-digits"
    TEXT_FRACTION = "text-fraction"


@dataclass(frozen=True, slots=True)
class ValueCheck:
    """A comparison of every value of a column with its limits `low` and `high`."""

    kind: CheckKind
    low: int = 0
    high: int = 0


@dataclass(frozen=True, slots=True)
class TypeFit:
    """Result of comparing a column.

    `refusal` describes how values would change; empty if they would not.
    """

    refusal: str = ""
    check: ValueCheck | None = None


FITS = TypeFit()


def check_fit(kind: DataType, holds: ColumnCapacity, source_fraction: int | None = None) -> TypeFit:
    """Compare an incoming type with a target's column.

    `source_fraction`: digits of a second at the source, where known.
    """
    if holds.kind is StoredKind.ANY or kind.name is TypeName.NULL:
        return (
            TypeFit(check=ValueCheck(CheckKind.TEXT_AS_NUMBER))
            if holds.numeric_texts and kind.name is TypeName.STRING
            else FITS
        )
    match kind.name:
        case TypeName.TINYINT | TypeName.SMALLINT | TypeName.INT | TypeName.BIGINT:
            return _whole(kind.name, holds)
        case TypeName.FLOAT | TypeName.DOUBLE:
            return _float(kind.name, holds)
        case TypeName.DECIMAL:
            return _decimal(kind, holds)
        case TypeName.TIME | TypeName.TIMESTAMP | TypeName.TIMESTAMP_TZ:
            return _time(kind.name, holds, source_fraction)
        case TypeName.BYTES | TypeName.BINARY_VECTOR:
            return _bytes(holds)
        case TypeName.STRING:
            return _text(holds)
        case TypeName.ARRAY if holds.element is not None:
            return _element(kind.children[0], holds.element, source_fraction)
        case _ if kind.name in _LISTS and holds.element is not None:
            return _element(DataType(TypeName.FLOAT), holds.element, None)
        case _:
            return FITS


def _whole(name: TypeName, holds: ColumnCapacity) -> TypeFit:
    bits = _WHOLE_BITS[name]
    match holds.kind:
        case StoredKind.WHOLE if holds.low > -(2**bits) or holds.high < 2**bits - 1:
            return TypeFit(check=ValueCheck(CheckKind.RANGE, holds.low, holds.high))
        case StoredKind.DECIMAL if (
            holds.scale is not None and holds.digits - holds.scale < _WHOLE_DIGITS[name]
        ):
            limit = 10 ** max(holds.digits - holds.scale, 0) - 1
            return TypeFit(check=ValueCheck(CheckKind.RANGE, -limit, limit))
        case StoredKind.FLOAT if holds.digits < bits:
            return TypeFit(f"numbers above {2**holds.digits} are rounded")
        case StoredKind.BOOLEAN:
            return TypeFit(check=ValueCheck(CheckKind.RANGE, 0, 1))
        case StoredKind.DATE | StoredKind.TIME | StoredKind.TIMESTAMP | StoredKind.MOMENT:
            return TypeFit("numbers become times")
        case _:
            return FITS


def _float(name: TypeName, holds: ColumnCapacity) -> TypeFit:
    bits = 24 if name is TypeName.FLOAT else 53
    match holds.kind:
        case StoredKind.FLOAT if holds.scale is not None:
            return TypeFit(f"numbers are rounded to {holds.scale} digits after the point")
        case StoredKind.FLOAT if holds.digits < bits:
            return TypeFit("numbers are rounded to about 7 digits")
        case StoredKind.WHOLE | StoredKind.BOOLEAN:
            return TypeFit("numbers are rounded to integers")
        case StoredKind.DECIMAL if holds.scale is not None:
            return TypeFit(f"numbers are rounded to {holds.scale} digits after the point")
        case _:
            return FITS


def _decimal(kind: DataType, holds: ColumnCapacity) -> TypeFit:
    unbounded = (kind.precision, kind.scale) == (DECIMAL_DIGITS_MAX, UNBOUNDED_SCALE)
    scale = 0 if holds.kind in (StoredKind.WHOLE, StoredKind.BOOLEAN) else holds.scale
    match holds.kind:
        case StoredKind.WHOLE | StoredKind.DECIMAL | StoredKind.BOOLEAN if (
            scale is not None and scale < kind.scale
        ):
            if unbounded:  # the source does not declare a precision
                return TypeFit(check=ValueCheck(CheckKind.SCALE, scale))
            return TypeFit(
                f"numbers are rounded to {scale} digits after the point"
                if scale
                else "numbers are rounded to integers"
            )
        case StoredKind.DECIMAL if (
            scale is None
            and 0 < (holds.digits if kind.scale else holds.whole_digits) < kind.precision
        ):
            return TypeFit(f"numbers are rounded to about {holds.digits} digits")
        case StoredKind.FLOAT:
            digits = 6 if holds.digits < 53 else 15
            if holds.scale is not None and holds.scale < kind.scale:
                return TypeFit(f"numbers are rounded to {holds.scale} digits after the point")
            return (
                TypeFit(f"numbers are rounded to about {digits} digits")
                if kind.precision > digits
                else FITS
            )
        case _:
            return FITS


def _time(name: TypeName, holds: ColumnCapacity, source_fraction: int | None) -> TypeFit:
    match holds.kind:
        case StoredKind.DATE:
            return TypeFit("the time of day is cut off")
        case StoredKind.TIME if name is not TypeName.TIME:
            return TypeFit("the date is cut off")
        case StoredKind.TIMESTAMP | StoredKind.MOMENT if name is TypeName.TIME:
            return TypeFit("times of day get a date")
        case StoredKind.MOMENT if name is TypeName.TIMESTAMP and holds.distinguishes_zones:
            return TypeFit("timestamps without a time zone are taken as UTC")
        case StoredKind.TIMESTAMP if name is TypeName.TIMESTAMP_TZ and holds.distinguishes_zones:
            return TypeFit("timestamps lose their time zone")
        case StoredKind.TIME | StoredKind.TIMESTAMP | StoredKind.MOMENT if (
            holds.fraction < MICROSECONDS
        ):
            if source_fraction is not None and source_fraction > holds.fraction:
                return TypeFit(
                    f"fractions of a second are rounded to {holds.fraction} digits"
                    if holds.fraction
                    else "fractions of a second are cut off"
                )
            return TypeFit(check=ValueCheck(CheckKind.FRACTION, holds.fraction))
        case StoredKind.WHOLE | StoredKind.DECIMAL | StoredKind.FLOAT | StoredKind.BOOLEAN:
            return TypeFit("times become numbers")
        case _:
            return FITS


def _bytes(holds: ColumnCapacity) -> TypeFit:
    match holds.kind:
        case StoredKind.TEXT:
            return TypeFit("bytes become text")
        case StoredKind.BYTES if holds.length:
            return TypeFit(
                check=ValueCheck(
                    CheckKind.FIXED_LENGTH if holds.fixed else CheckKind.LENGTH,
                    holds.length,
                    holds.length,
                )
            )
        case _:
            return FITS


def _text(holds: ColumnCapacity) -> TypeFit:
    if holds.kind is StoredKind.TEXT and holds.length:
        return TypeFit(check=ValueCheck(CheckKind.LENGTH, 0, holds.length))
    if holds.numeric_texts:
        return TypeFit(check=ValueCheck(CheckKind.TEXT_AS_NUMBER))
    match holds.kind:
        case StoredKind.WHOLE:
            return TypeFit(check=ValueCheck(CheckKind.TEXT_AS_WHOLE))
        case StoredKind.FLOAT:
            return TypeFit(
                check=ValueCheck(CheckKind.TEXT_DIGITS, 0, 6 if holds.digits < 53 else 15)
            )
        case StoredKind.TIME | StoredKind.TIMESTAMP | StoredKind.MOMENT:
            return TypeFit(check=ValueCheck(CheckKind.TEXT_FRACTION, 0, holds.fraction))
        case _:
            return FITS


def _element(kind: DataType, holds: ColumnCapacity, source_fraction: int | None) -> TypeFit:
    """Compare the elements of lists.

    Elements are not checked one by one, so a fit that types cannot decide is refused, unless the
    database itself rejects the values.
    """
    found = check_fit(kind, holds, source_fraction)
    if found.check is None or found.check.kind in (CheckKind.RANGE, CheckKind.LENGTH):
        return TypeFit(found.refusal)
    if found.check.kind is CheckKind.FRACTION and source_fraction is not None:
        return FITS
    return TypeFit("elements of the list may be rounded")
