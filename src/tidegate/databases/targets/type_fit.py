"""Whether a column of a target keeps every value of an incoming column. Pure: compares types, knows
no database.

`fit` gives one of three answers. Nothing: the types alone prove that every value is kept, or the
database itself refuses what it cannot hold. A refusal: values would be rounded or cut in silence. A
check: the types cannot tell, and every value is compared (connectors/jdbc/values.py).
"""

from dataclasses import dataclass
from enum import StrEnum

from tidegate.databases.types import DECIMAL_DIGITS_MAX, UNBOUNDED_SCALE
from tidegate.model.types import DataType, TypeName

MICROSECONDS = 6
"""Digits of a second that travel through a pipeline."""
_WHOLE_DIGITS = {TypeName.TINYINT: 3, TypeName.SMALLINT: 5, TypeName.INT: 10, TypeName.BIGINT: 19}
_WHOLE_BITS = {TypeName.TINYINT: 7, TypeName.SMALLINT: 15, TypeName.INT: 31, TypeName.BIGINT: 63}
_LISTS = (TypeName.FLOAT_VECTOR, TypeName.FLOAT16_VECTOR, TypeName.BFLOAT16_VECTOR)


class Keeps(StrEnum):
    """What kind of values a column keeps."""

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
class Holds:
    """The values of a target's column, however its database calls them.

    `digits` counts significant digits (DECIMAL; `whole_digits` those of numbers without a fraction)
    or bits of the mantissa (FLOAT); `scale` digits after the point, None for any number of them;
    `fraction` digits of a second; `length` characters or bytes. `fixed` values are padded to their
    length. `zoned` tells that a time with a zone and one without are different types there, so that
    one in the place of the other is a mistake.
    """

    keeps: Keeps
    low: int = 0
    high: int = 0
    digits: int = 0
    whole_digits: int = 0
    scale: int | None = None
    fraction: int = MICROSECONDS
    length: int = 0
    fixed: bool = False
    zoned: bool = True
    numeric_texts: bool = False
    """Whether texts that look like numbers become numbers, as SQLite has it."""
    element: "Holds | None" = None


class CheckKind(StrEnum):
    """What is compared of every value."""

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
    """A comparison of every value of a column. `low` and `high` are the limits that it needs."""

    kind: CheckKind
    low: int = 0
    high: int = 0


@dataclass(frozen=True, slots=True)
class Fit:
    """How a column fits.

    `refusal` says in words what would happen to values; empty where nothing would.
    """

    refusal: str = ""
    check: ValueCheck | None = None


KEPT = Fit()


def fit(kind: DataType, holds: Holds, source_fraction: int | None = None) -> Fit:
    """Compare an incoming type with a target's column.

    `source_fraction`: digits of a second at the source, where known.
    """
    if holds.keeps is Keeps.ANY or kind.name is TypeName.NULL:
        return (
            Fit(check=ValueCheck(CheckKind.TEXT_AS_NUMBER))
            if holds.numeric_texts and kind.name is TypeName.STRING
            else KEPT
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
            return KEPT


def _whole(name: TypeName, holds: Holds) -> Fit:
    bits = _WHOLE_BITS[name]
    match holds.keeps:
        case Keeps.WHOLE if holds.low > -(2**bits) or holds.high < 2**bits - 1:
            return Fit(check=ValueCheck(CheckKind.RANGE, holds.low, holds.high))
        case Keeps.DECIMAL if (
            holds.scale is not None and holds.digits - holds.scale < _WHOLE_DIGITS[name]
        ):
            limit = 10 ** max(holds.digits - holds.scale, 0) - 1
            return Fit(check=ValueCheck(CheckKind.RANGE, -limit, limit))
        case Keeps.FLOAT if holds.digits < bits:
            return Fit(f"numbers above {2**holds.digits} are rounded")
        case Keeps.BOOLEAN:
            return Fit(check=ValueCheck(CheckKind.RANGE, 0, 1))
        case Keeps.DATE | Keeps.TIME | Keeps.TIMESTAMP | Keeps.MOMENT:
            return Fit("numbers become times")
        case _:
            return KEPT


def _float(name: TypeName, holds: Holds) -> Fit:
    bits = 24 if name is TypeName.FLOAT else 53
    match holds.keeps:
        case Keeps.FLOAT if holds.scale is not None:
            return Fit(f"numbers are rounded to {holds.scale} digits after the point")
        case Keeps.FLOAT if holds.digits < bits:
            return Fit("numbers are rounded to about 7 digits")
        case Keeps.WHOLE | Keeps.BOOLEAN:
            return Fit("numbers are rounded to whole ones")
        case Keeps.DECIMAL if holds.scale is not None:
            return Fit(f"numbers are rounded to {holds.scale} digits after the point")
        case _:
            return KEPT


def _decimal(kind: DataType, holds: Holds) -> Fit:
    unbounded = (kind.precision, kind.scale) == (DECIMAL_DIGITS_MAX, UNBOUNDED_SCALE)
    scale = 0 if holds.keeps in (Keeps.WHOLE, Keeps.BOOLEAN) else holds.scale
    match holds.keeps:
        case Keeps.WHOLE | Keeps.DECIMAL | Keeps.BOOLEAN if (
            scale is not None and scale < kind.scale
        ):
            if unbounded:  # the column of the source says nothing about its digits
                return Fit(check=ValueCheck(CheckKind.SCALE, scale))
            return Fit(
                f"numbers are rounded to {scale} digits after the point"
                if scale
                else "numbers are rounded to whole ones"
            )
        case Keeps.DECIMAL if (
            scale is None
            and 0 < (holds.digits if kind.scale else holds.whole_digits) < kind.precision
        ):
            return Fit(f"numbers are rounded to about {holds.digits} digits")
        case Keeps.FLOAT:
            digits = 6 if holds.digits < 53 else 15
            if holds.scale is not None and holds.scale < kind.scale:
                return Fit(f"numbers are rounded to {holds.scale} digits after the point")
            return (
                Fit(f"numbers are rounded to about {digits} digits")
                if kind.precision > digits
                else KEPT
            )
        case _:
            return KEPT


def _time(name: TypeName, holds: Holds, source_fraction: int | None) -> Fit:
    match holds.keeps:
        case Keeps.DATE:
            return Fit("the time of day is cut off")
        case Keeps.TIME if name is not TypeName.TIME:
            return Fit("the day is cut off")
        case Keeps.TIMESTAMP | Keeps.MOMENT if name is TypeName.TIME:
            return Fit("times of day get a day")
        case Keeps.MOMENT if name is TypeName.TIMESTAMP and holds.zoned:
            return Fit("timestamps without a zone become moments, as if they were in UTC")
        case Keeps.TIMESTAMP if name is TypeName.TIMESTAMP_TZ and holds.zoned:
            return Fit("moments lose their zone")
        case Keeps.TIME | Keeps.TIMESTAMP | Keeps.MOMENT if holds.fraction < MICROSECONDS:
            if source_fraction is not None and source_fraction > holds.fraction:
                return Fit(
                    f"fractions of a second are rounded to {holds.fraction} digits"
                    if holds.fraction
                    else "fractions of a second are cut off"
                )
            return Fit(check=ValueCheck(CheckKind.FRACTION, holds.fraction))
        case Keeps.WHOLE | Keeps.DECIMAL | Keeps.FLOAT | Keeps.BOOLEAN:
            return Fit("times become numbers")
        case _:
            return KEPT


def _bytes(holds: Holds) -> Fit:
    match holds.keeps:
        case Keeps.TEXT:
            return Fit("bytes become text")
        case Keeps.BYTES if holds.length:
            return Fit(
                check=ValueCheck(
                    CheckKind.FIXED_LENGTH if holds.fixed else CheckKind.LENGTH,
                    holds.length,
                    holds.length,
                )
            )
        case _:
            return KEPT


def _text(holds: Holds) -> Fit:
    if holds.keeps is Keeps.TEXT and holds.length:
        return Fit(check=ValueCheck(CheckKind.LENGTH, 0, holds.length))
    if holds.numeric_texts:
        return Fit(check=ValueCheck(CheckKind.TEXT_AS_NUMBER))
    match holds.keeps:
        case Keeps.WHOLE:
            return Fit(check=ValueCheck(CheckKind.TEXT_AS_WHOLE))
        case Keeps.FLOAT:
            return Fit(check=ValueCheck(CheckKind.TEXT_DIGITS, 0, 6 if holds.digits < 53 else 15))
        case Keeps.TIME | Keeps.TIMESTAMP | Keeps.MOMENT:
            return Fit(check=ValueCheck(CheckKind.TEXT_FRACTION, 0, holds.fraction))
        case _:
            return KEPT


def _element(kind: DataType, holds: Holds, source_fraction: int | None) -> Fit:
    """Values inside of a list are not compared one by one: what types cannot tell and no database
    refuses by itself is refused here.
    """
    found = fit(kind, holds, source_fraction)
    if found.check is None or found.check.kind in (CheckKind.RANGE, CheckKind.LENGTH):
        return Fit(found.refusal)
    if found.check.kind is CheckKind.FRACTION and source_fraction is not None:
        return KEPT
    return Fit("values inside of the list may be rounded")
