"""SeaTunnel's functions on dates and times, as Spark SQL.

Weeks begin on Monday. Units are text constants.
"""

from tidegate.connectors.sql.call import Call, function
from tidegate.connectors.sql.convert import EPOCH, at_midnight
from tidegate.connectors.sql.errors import SqlError
from tidegate.connectors.sql.functions_text import formatted
from tidegate.connectors.sql.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    INT,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMP_TZ,
    Typed,
    spark_type,
)
from tidegate.model.problem import closest_match
from tidegate.model.types import DataType

_SMALL_UNITS = {
    "HOUR": "0, {n}",
    "MINUTE": "0, 0, {n}",
    "SECOND": "0, 0, 0, {n}",
    "MILLISECOND": "0, 0, 0, {n} / CAST(1000 AS DECIMAL(4,0))",
}
_ADD_UNITS = ("YEAR", "MONTH", "WEEK", "DAY", *_SMALL_UNITS)
_DIFF_UNITS = ("YEAR", "MONTH", "WEEK", "DAY", "DAYTIME", "HOUR", "MINUTE", "SECOND", "MILLISECOND")
_TRUNC_UNITS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")


def _unit(call: Call, index: int, known: tuple[str, ...]) -> str:
    unit = call.keyword(index, "DAY").upper()
    if unit not in known:
        raise SqlError(
            f"{call.name} does not support the unit {unit}: use one of {', '.join(known)}",
            suggestion=closest_match(unit, list(known)),
        )
    return unit


@function("CURRENT_DATE", 0)
def current_date(_: Call) -> Typed:
    return Typed("current_date()", DATE)


@function("CURRENT_TIME", 0)
def current_time(_: Call) -> Typed:
    return Typed("current_time()", TIME)


@function("CURRENT_TIMESTAMP NOW", 0)
def current_timestamp(_: Call) -> Typed:
    return Typed("localtimestamp()", TIMESTAMP)


@function("DATEADD TIMESTAMPADD", 2, 3)
def dateadd(call: Call) -> Typed:
    """A unit that the value lacks (hours of a date, days of a time) leaves it unchanged."""
    value, count, unit = call.args[0], call.sql(1), _unit(call, 2, _ADD_UNITS)
    if value.is_a(DATE):
        return Typed(_date_plus(value.sql, count, unit), DATE)
    if value.is_a(TIME):
        return Typed(_time_plus(value.sql, count, unit), TIME)
    return Typed(f"({value.sql} + {_interval(unit, count)})", value.type)


def _interval(unit: str, count: str) -> str:
    if unit == "YEAR":
        return f"make_ym_interval({count}, 0)"
    if unit == "MONTH":
        return f"make_ym_interval(0, {count})"
    days = "{n} * 7" if unit == "WEEK" else "{n}"
    return f"make_dt_interval({_SMALL_UNITS.get(unit, days).format(n=count)})"


def _date_plus(date: str, count: str, unit: str) -> str:
    if unit in _SMALL_UNITS:
        return date
    if unit in ("YEAR", "MONTH"):
        return f"add_months({date}, CAST({count} AS INT){' * 12' if unit == 'YEAR' else ''})"
    return f"date_add({date}, CAST({count} AS INT){' * 7' if unit == 'WEEK' else ''})"


def _time_plus(time: str, count: str, unit: str) -> str:
    if unit not in _SMALL_UNITS:
        return time
    # Wraps around at midnight; Spark 4.1 has no time_from_micros.
    moment = f"{at_midnight(time)} + make_dt_interval({_SMALL_UNITS[unit].format(n=count)})"
    return f"to_time(date_format({moment}, 'HH:mm:ss.SSSSSS'), 'HH:mm:ss.SSSSSS')"


@function("DATEDIFF", 2, 3)
def datediff(call: Call) -> Typed:
    """The difference from the first to the second value; MONTH is the rest after whole years."""
    start, end, unit = call.sql(0), call.sql(1), _unit(call, 2, _DIFF_UNITS)
    if unit in ("YEAR", "MONTH"):
        return Typed(
            f"CAST({_whole_months(start, end)} {'div' if unit == 'YEAR' else '%'} 12 AS BIGINT)",
            BIGINT,
        )
    if unit == "DAY":
        return Typed(
            f"CAST(datediff(CAST({end} AS DATE), CAST({start} AS DATE)) AS BIGINT)", BIGINT
        )
    if call.args[0].is_a(TIME):
        start, end = at_midnight(start), at_midnight(end)
    if unit == "WEEK":
        return Typed(f"(timestampdiff(DAY, {start}, {end}) div 7)", BIGINT)
    return Typed(f"timestampdiff({'DAY' if unit == 'DAYTIME' else unit}, {start}, {end})", BIGINT)


def _whole_months(start: str, end: str) -> str:
    months = f"(year({end}) * 12 + month({end}) - year({start}) * 12 - month({start}))"
    days = f"(day({end}) - day({start}))"
    return (
        f"({months} + CASE WHEN {months} > 0 AND {days} < 0 THEN -1 WHEN {months} < 0 AND {days} >"
        " 0 THEN 1 ELSE 0 END)"
    )


@function("DATE_TRUNC", 1, 2)
def date_trunc(call: Call) -> Typed:
    value, unit = call.args[0], _unit(call, 1, _TRUNC_UNITS)
    kind = value.type if value.is_a(DATE, TIMESTAMP, TIMESTAMP_TZ) else TIMESTAMP
    assert kind is not None
    return Typed(f"CAST(date_trunc('{unit}', {value.sql}) AS {spark_type(kind)})", kind)


@function("DAYNAME", 1)
def dayname(call: Call) -> Typed:
    return Typed(f"date_format({call.sql(0)}, 'EEEE')", STRING)


@function("MONTHNAME", 1)
def monthname(call: Call) -> Typed:
    return Typed(f"date_format({call.sql(0)}, 'MMMM')", STRING)


_PARTS = {
    "DAY_OF_MONTH": "day({0})",
    "DAY_OF_WEEK": "(weekday({0}) + 1)",
    "DAY_OF_YEAR": "dayofyear({0})",
    "HOUR": "hour({0})",
    "MINUTE": "minute({0})",
    "MONTH": "month({0})",
    "QUARTER": "quarter({0})",
    "SECOND": "CAST(second({0}) AS INT)",
    "YEAR": "year({0})",
}


@function(" ".join(_PARTS), 1)
def part(call: Call) -> Typed:
    return Typed(_PARTS[call.name].format(call.sql(0)), INT)


@function("WEEK", 1)
def week(call: Call) -> Typed:
    """SeaTunnel's count: one more than the week of a year whose first week has four days."""
    day, weekday = f"dayofyear({call.sql(0)})", f"(weekday({call.sql(0)}) + 1)"
    begin = f"pmod({day} - {weekday}, 7)"
    return Typed(
        f"CAST((6 + IF({begin} > 3, 7 - {begin}, -{begin}) + {day}) div 7 + 1 AS INT)", INT
    )


_EXTRACTS = {
    "YEAR": "year({0})",
    "MONTH": "month({0})",
    "DAY": "day({0})",
    "HOUR": "hour({0})",
    "MINUTE": "minute({0})",
    "SECOND": "CAST(second({0}) AS INT)",
    "MILLISECOND": "CAST(date_format({0}, 'SSS') AS INT)",
    "MILLISECONDS": "(CAST(second({0}) AS INT) * 1000 + CAST(date_format({0}, 'SSS') AS INT))",
    "MICROSECONDS": (
        "(CAST(second({0}) AS INT) * 1000000 + CAST(date_format({0}, 'SSSSSS') AS INT))"
    ),
    "DAYOFWEEK": "(weekday({0}) + 1)",
    "ISODOW": "(weekday({0}) + 1)",
    "DOW": "(dayofweek({0}) - 1)",
    "DAYOFYEAR": "dayofyear({0})",
    "DOY": "dayofyear({0})",
    "QUARTER": "quarter({0})",
    "WEEK": "weekofyear({0})",
    "ISOYEAR": "CAST(extract(YEAROFWEEK FROM {0}) AS INT)",
    "CENTURY": "CAST(ceil(year({0}) / 100) AS INT)",
    "DECADE": "CAST(year({0}) div 10 AS INT)",
    "MILLENNIUM": "CAST(ceil(year({0}) / 1000) AS INT)",
}
_OF_TIMES = ("HOUR", "MINUTE", "SECOND")
_IN_SECONDS = ("MILLISECOND", "MILLISECONDS", "MICROSECONDS")


def extract(unit: str, value: Typed) -> Typed:
    """EXTRACT(unit FROM value); the result of a unit that the value lacks is NULL."""
    unit = unit.upper()
    if unit == "EPOCH":
        return Typed(f"timestampdiff(SECOND, {EPOCH}, CAST({value.sql} AS TIMESTAMP_NTZ))", BIGINT)
    if unit not in _EXTRACTS:
        raise SqlError(
            f"EXTRACT does not support {unit}", suggestion=closest_match(unit, list(_EXTRACTS))
        )
    clock = unit in _OF_TIMES or unit in _IN_SECONDS
    if (value.is_a(DATE) and clock) or (value.is_a(TIME) and not clock):
        return Typed("CAST(NULL AS INT)", INT)
    source = at_midnight(value.sql) if value.is_a(TIME) else value.sql
    return Typed(_EXTRACTS[unit].format(source), INT)


@function("FORMATDATETIME", 2)
def formatdatetime(call: Call) -> Typed:
    return formatted(call.args[0], call.text(1))


@function("PARSEDATETIME TO_DATE", 2)
def parsedatetime(call: Call) -> Typed:
    """The pattern decides the type: year and minutes timestamp, year date, minutes time."""
    kind, how = _parsed(call)
    return Typed(f"{how}({call.text(0)}, {call.text(1)})", kind)


@function("IS_DATE", 2)
def is_date(call: Call) -> Typed:
    _, how = _parsed(call)
    parse = {
        "to_timestamp_ntz": "try_to_timestamp",
        "to_date": "try_to_date",
        "to_time": "try_to_time",
    }[how]
    return Typed(
        f"({call.text(0)} IS NULL OR {parse}({call.text(0)}, {call.text(1)}) IS NOT NULL)", BOOLEAN
    )


def _parsed(call: Call) -> tuple[DataType, str]:
    pattern = call.keyword(1, "")
    if "yy" in pattern:
        return (TIMESTAMP, "to_timestamp_ntz") if "mm" in pattern else (DATE, "to_date")
    if "mm" in pattern:
        return TIME, "to_time"
    raise SqlError(f"{call.name}: the pattern {pattern!r} has neither a year (yy) nor minutes (mm)")


@function("FROM_UNIXTIME", 2, 3)
def from_unixtime(call: Call) -> Typed:
    zone = call.text(2) if call.has_argument(2) else "current_timezone()"
    moment = f"convert_timezone('UTC', {zone}, {EPOCH} + make_dt_interval(0, 0, 0, {call.sql(0)}))"
    return Typed(f"date_format({moment}, {call.text(1)})", STRING)
