"""Converts values between types as SeaTunnel does: CAST, TRY_CAST, and text in Java's format.

Called by the translation.
"""

from tidegate.connectors.sql.errors import SqlError
from tidegate.connectors.sql.types import (
    BIGINT,
    DATE,
    DECIMAL,
    FLOATING,
    INT,
    NULL,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMP_TZ,
    WHOLE,
    Typed,
    spark_type,
    text,
)  # fmt: skip
from tidegate.model.types import DataType, TypeName

EPOCH = "TIMESTAMP_NTZ '1970-01-01 00:00:00'"


def as_text(value: Typed) -> str:
    """The text of Java's toString: timestamps contain a T, and no seconds if they are zero."""
    match value.type:
        case DataType(TypeName.STRING):
            return value.sql
        case DataType(TypeName.TIMESTAMP):
            return (
                f"concat(date_format({value.sql}, 'yyyy-MM-dd\\'T\\'HH:mm'),"
                f" {_seconds_text(value.sql)})"
            )
        case DataType(TypeName.TIME):
            moment = at_midnight(value.sql)
            return f"concat(date_format({moment}, 'HH:mm'), {_seconds_text(moment)})"
        case _:
            return f"CAST({value.sql} AS STRING)"


def at_midnight(time: str) -> str:
    """A time of day as a timestamp, for functions that accept only timestamps."""
    return f"make_timestamp_ntz(DATE '1970-01-01', {time})"


def _seconds_text(moment: str) -> str:
    fraction = f"date_format({moment}, 'SSSSSS')"
    return (
        f"CASE WHEN date_format({moment}, 'ssSSSSSS') = '00000000' THEN '' WHEN {fraction} ="
        f" '000000' THEN date_format({moment}, ':ss') WHEN endswith({fraction}, '000') THEN"
        f" date_format({moment}, ':ss.SSS') ELSE date_format({moment}, ':ss.SSSSSS') END"
    )


def cast(value: Typed, to: DataType, *, safe: bool = False) -> Typed:
    """Write a CAST, or a TRY_CAST if `safe`."""
    if value.is_a(NULL):
        return Typed(f"CAST(NULL AS {spark_type(to)})", to)
    if value.type == to:
        return Typed(value.sql, to)
    word = "TRY_CAST" if safe else "CAST"
    match to:
        case DataType(TypeName.STRING):
            return Typed(as_text(value), to)
        case DataType(TypeName.BYTES):
            return Typed(f"CAST({as_text(value)} AS BINARY)", to)
        case DataType(TypeName.DECIMAL):
            return Typed(_to_decimal(value, to, word), to)
        case DataType(TypeName.TIMESTAMP):
            return Typed(_to_timestamp(value, word), to)
        case DataType(TypeName.DATE):
            return Typed(_to_date(value, word), to)
        case DataType(TypeName.TIME):
            return Typed(_to_time(value, word), to)
        case _:
            return Typed(f"{word}({value.sql} AS {spark_type(to)})", to)


def _to_decimal(value: Typed, to: DataType, word: str) -> str:
    """Reduce the scale as SeaTunnel does: text and decimals up (CEILING), floats half up."""
    if (
        value.type is not None
        and value.type.name is TypeName.DECIMAL
        and value.type.scale > to.scale
    ):
        return f"{word}(ceil({value.sql}, {to.scale}) AS {spark_type(to)})"
    if value.is_a(STRING):
        exact = DataType(TypeName.DECIMAL, precision=38, scale=38 - (to.precision - to.scale))
        return (
            f"{word}(ceil({word}({value.sql} AS {spark_type(exact)}), {to.scale}) AS"
            f" {spark_type(to)})"
        )
    return f"{word}({value.sql} AS {spark_type(to)})"


def _to_timestamp(value: Typed, word: str) -> str:
    if value.is_a(BIGINT):  # milliseconds since 1970
        return (
            f"convert_timezone('UTC', current_timezone(), {EPOCH} + make_dt_interval(0, 0, 0,"
            f" {value.sql} / CAST(1000 AS DECIMAL(4,0))))"
        )
    if value.is_a(TIME):
        return f"make_timestamp_ntz(current_date(), {value.sql})"
    _check_castable(value, TIMESTAMP)
    return f"{word}({value.sql} AS TIMESTAMP_NTZ)"


def _to_date(value: Typed, word: str) -> str:
    if value.is_a(INT):  # 20230625
        return f"make_date({value.sql} div 10000, ({value.sql} div 100) % 100, {value.sql} % 100)"
    _check_castable(value, DATE)
    return f"{word}({value.sql} AS DATE)"


def _to_time(value: Typed, word: str) -> str:
    if value.is_a(INT):  # 235109
        return f"make_time({value.sql} div 10000, ({value.sql} div 100) % 100, {value.sql} % 100)"
    if value.is_a(DATE):
        return "make_time(0, 0, 0)"
    if value.is_a(TIMESTAMP, TIMESTAMP_TZ):
        return f"to_time(date_format({value.sql}, 'HH:mm:ss.SSSSSS'), 'HH:mm:ss.SSSSSS')"
    _check_castable(value, TIME)
    return f"{word}({value.sql} AS TIME)"


def _check_castable(value: Typed, to: DataType) -> None:
    if value.among(WHOLE | FLOATING) or (
        value.type is not None and value.type.name is TypeName.DECIMAL
    ):
        raise SqlError(f"a {value.type} cannot be cast to {to}")


def coerce_to(value: Typed, to: DataType | None) -> str:
    """Convert a value to the type of its CASE or COALESCE."""
    return value.sql if to is None or value.type == to else cast(value, to).sql


def as_double(value: Typed) -> str:
    return (
        value.sql
        if value.type is not None and value.type.name is TypeName.DOUBLE
        else f"CAST({value.sql} AS DOUBLE)"
    )


def as_exact(value: Typed) -> str:
    """A number as the decimal of Java's BigDecimal.valueOf; NULL if it has too many digits."""
    return f"TRY_CAST({value.sql} AS {spark_type(DECIMAL)})"


def raise_if(condition: str, message: str, otherwise: str) -> str:
    """An expression that fails the job with a message if a condition is true."""
    return f"IF({condition}, raise_error({text(message)}), {otherwise})"
