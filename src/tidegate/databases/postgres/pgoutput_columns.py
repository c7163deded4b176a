"""Convert values in text format to Arrow arrays of the type of a column in the pipeline.

Called by pgoutput_reader.py, in tasks. The session sets the format: UTC, ISO dates, all digits of
floats. Most casts are those of Arrow; what it cannot parse is parsed here.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.databases.errors import ValueUnreadable
from tidegate.databases.mysql.binlog_values import days_of
from tidegate.databases.types import cast_decimals
from tidegate.model.types import DataType, TypeName
from tidegate.plugin.arrow import arrow_type

Texts = Sequence[bytes | None]
_DAY_MICROS = 86_400_000_000
_INFINITE = (b"infinity", b"-infinity")


def array_of(values: Any, kind: DataType, name: str) -> Any:
    """Return an array of the strings of a column, which are a binary array or a list.

    A value that does not fit the type raises an error that names the column.
    """
    try:
        return _READERS.get(kind.name, _cast)(
            values if isinstance(values, pa.Array) else pa.array(values, pa.binary()), kind
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, OverflowError) as error:
        raise ValueUnreadable(name, str(kind), str(error)) from None


def _cast(values: Any, kind: DataType) -> Any:
    return values.cast(pa.string()).cast(arrow_type(kind))


def _decimal(values: Any, kind: DataType) -> Any:
    return cast_decimals(values.cast(pa.string()), kind)


def _text(values: Any, kind: DataType) -> Any:  # noqa: ARG001  # same signature
    return values.cast(pa.string())


def _boolean(values: Any, kind: DataType) -> Any:  # noqa: ARG001  # same signature
    return pc.equal(values, pa.scalar(b"t", pa.binary()))


def _bytes(values: Any, kind: DataType) -> Any:  # noqa: ARG001  # same signature
    return pa.array(
        [None if v is None else bytes.fromhex(v[2:].decode("ascii")) for v in values.to_pylist()],
        pa.binary(),
    )


def _date(values: Any, kind: DataType) -> Any:
    try:
        return values.cast(pa.string()).cast(arrow_type(kind))
    except pa.ArrowInvalid:  # one of them is in another format: parse each
        texts: Texts = values.to_pylist()
        return pa.array(
            [None if v is None or v in _INFINITE else _days(v.decode("ascii")) for v in texts],
            pa.int32(),
        ).view(arrow_type(kind))


def _days(text: str) -> int:
    """Parse a date whose year has more than four digits, or is before the year 1."""
    text, bc = text.removesuffix(" BC"), text.endswith(" BC")
    year, month, day = (int(part) for part in text.split("-"))
    shifted = 1 - year if bc else year
    found = days_of(shifted + 400_000, month, day)
    assert found is not None, "the server has no zero dates"
    return found - 400_000 // 400 * 146_097


def _time(values: Any, kind: DataType) -> Any:
    """Parse times as timestamps of the first day, which Arrow does for a whole column."""
    moments = pc.binary_join_element_wise(pa.scalar("1970-01-01"), values.cast(pa.string()), " ")
    return moments.cast(pa.timestamp("ns")).view(arrow_type(kind))


def _time_micros(text: str) -> int:
    clock, _, fraction = text.partition(".")
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + int(fraction.ljust(6, "0") or 0)


def _timestamp(values: Any, kind: DataType) -> Any:
    arrow = arrow_type(kind)
    try:
        return _without_zone(values, kind).cast(pa.string()).cast(pa.timestamp("us")).view(arrow)
    except pa.ArrowInvalid:  # one of them is in another format: parse each
        texts: Texts = values.to_pylist()
        return pa.array(
            [None if v is None or v in _INFINITE else _micros(v.decode("ascii")) for v in texts],
            pa.int64(),
        ).view(arrow)


def _without_zone(values: Any, kind: DataType) -> Any:
    """Remove the time zone.

    The time zone of the session is UTC: all timestamps but infinite ones end with +00.
    """
    if kind.name is not TypeName.TIMESTAMP_TZ:
        return values
    if not pc.all(pc.ends_with(values, "+00"), min_count=0).as_py():
        raise pa.ArrowInvalid("the timestamp is in another format")
    return pc.binary_slice(values, 0, -3)


def _micros(text: str) -> int:
    text, bc = text.removesuffix(" BC"), text.endswith(" BC")
    date, _, clock = text.partition(" ")
    return _days(f"{date} BC" if bc else date) * _DAY_MICROS + _time_micros(
        clock.removesuffix("+00")
    )


def _array(values: Any, kind: DataType) -> Any:
    """Parse all elements as one column, and split them into lists again."""
    lists = [None if v is None else elements(v.decode("utf-8")) for v in values.to_pylist()]
    flat = [None if e is None else e.encode() for one in lists if one is not None for e in one]
    inner = _READERS.get(kind.children[0].name, _cast)(
        pa.array(flat, pa.binary()), kind.children[0]
    )
    offsets: list[int | None] = [0]
    at = 0
    for number, one in enumerate(lists):
        if one is None:
            offsets[number] = None
            offsets.append(at)
        else:
            at += len(one)
            offsets.append(at)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), inner, type=arrow_type(kind))


def elements(text: str) -> list[str | None]:
    r"""Return the elements of an array of one dimension: `{a,"b \" c",NULL}`."""
    if text.startswith("["):
        raise ValueError(f"it has bounds of its own, and does not begin at 1: {text[:40]!r}")
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError(f"{text[:40]!r} is not an array")
    found: list[str | None] = []
    at, end = 1, len(text) - 1
    while at < end:
        element, quoted, at = _element(text, at, end)
        found.append(None if not quoted and element.upper() == "NULL" else element)
        at += 1
    return found


def _element(text: str, at: int, end: int) -> tuple[str, bool, int]:
    """Return one element, whether it was in quotes, and where the comma after it is."""
    if text[at] == "{":
        raise ValueError("it has more than one dimension")
    if text[at] != '"':
        comma = text.find(",", at, end)
        comma = end if comma < 0 else comma
        return text[at:comma], False, comma
    letters, at = [], at + 1
    while text[at] != '"':
        at += text[at] == "\\"
        letters.append(text[at])
        at += 1
    return "".join(letters), True, at + 1


_READERS: dict[TypeName, Callable[[Any, DataType], Any]] = {
    TypeName.STRING: _text,
    TypeName.DECIMAL: _decimal,
    TypeName.BOOLEAN: _boolean,
    TypeName.BYTES: _bytes,
    TypeName.DATE: _date,
    TypeName.TIME: _time,
    TypeName.TIMESTAMP: _timestamp,
    TypeName.TIMESTAMP_TZ: _timestamp,
    TypeName.ARRAY: _array,
}
