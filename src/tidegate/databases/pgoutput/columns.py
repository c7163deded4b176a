"""Values as the server writes them, to Arrow arrays of the type that a column has in the pipeline. Called by reader.py, in tasks.

The session sets what texts look like: UTC, ISO dates, all digits of floats. Most casts are Arrow's own; what it does not read is read here.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.databases.binlog.values import days_of
from tidegate.databases.errors import ValueUnreadable
from tidegate.model.types import DataType, TypeName
from tidegate.plugin.arrow import arrow_type

Texts = Sequence[bytes | None]
_DATE_CHARS = len("2024-01-31")
_DAY_MICROS = 86_400_000_000
_INFINITE = (b"infinity", b"-infinity")


def array_of(values: Texts, kind: DataType, name: str) -> Any:
    """An array of a column's texts; what does not fit is an error that names the column."""
    try:
        return _READERS.get(kind.name, _cast)(values, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, OverflowError) as error:
        raise ValueUnreadable(name, str(kind), str(error)) from None


def _strings(values: Texts) -> Any:
    return pa.array(values, pa.binary()).cast(pa.string())


def _cast(values: Texts, kind: DataType) -> Any:
    return _strings(values).cast(arrow_type(kind))


def _text(values: Texts, kind: DataType) -> Any:  # noqa: ARG001  # as the others
    return _strings(values)


def _boolean(values: Texts, kind: DataType) -> Any:  # noqa: ARG001  # as the others
    return pa.array([None if v is None else v == b"t" for v in values], pa.bool_())


def _bytes(values: Texts, kind: DataType) -> Any:  # noqa: ARG001  # as the others
    return pa.array([None if v is None else bytes.fromhex(v[2:].decode("ascii")) for v in values], pa.binary())


def _date(values: Texts, kind: DataType) -> Any:
    if all(v is None or len(v) == _DATE_CHARS for v in values):
        return _strings(values).cast(arrow_type(kind))
    return pa.array([None if v is None or v in _INFINITE else _days(v.decode("ascii")) for v in values], pa.int32()).view(arrow_type(kind))


def _days(text: str) -> int:
    """Of a date that has more than four digits in its year, or is before the year 1."""
    text, bc = text.removesuffix(" BC"), text.endswith(" BC")
    year, month, day = (int(part) for part in text.split("-"))
    shifted = 1 - year if bc else year
    found = days_of(shifted + 400_000, month, day)
    assert found is not None, "the server has no zero dates"
    return found - 400_000 // 400 * 146_097


def _time(values: Texts, kind: DataType) -> Any:
    micros = [None if v is None else _clock(v.decode("ascii")) for v in values]
    if any(v is not None and not 0 <= v < _DAY_MICROS for v in micros):
        raise ValueError("it is not between 00:00 and 24:00")
    return pa.array([None if v is None else v * 1000 for v in micros], pa.int64()).view(arrow_type(kind))


def _clock(text: str) -> int:
    clock, _, fraction = text.partition(".")
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + int(fraction.ljust(6, "0") or 0)


def _timestamp(values: Texts, kind: DataType) -> Any:
    arrow = arrow_type(kind)
    if all(v is None or (v[4:5] == b"-" and not v.endswith(b"BC")) for v in values):
        texts = _strings(values)
        if kind.name is TypeName.TIMESTAMP_TZ:
            texts = pc.replace_substring_regex(texts, r"\+00$", "")
        return texts.cast(pa.timestamp("us")).cast(arrow) if kind.name is TypeName.TIMESTAMP else texts.cast(pa.timestamp("us")).view(arrow)
    return pa.array([None if v is None or v in _INFINITE else _micros(v.decode("ascii")) for v in values], pa.int64()).view(arrow)


def _micros(text: str) -> int:
    text, bc = text.removesuffix(" BC"), text.endswith(" BC")
    date, _, clock = text.partition(" ")
    return _days(f"{date} BC" if bc else date) * _DAY_MICROS + _clock(clock.removesuffix("+00"))


def _array(values: Texts, kind: DataType) -> Any:
    """Elements are read as one column, and cut into lists again."""
    lists = [None if v is None else elements(v.decode("utf-8")) for v in values]
    flat = [None if e is None else e.encode() for one in lists if one is not None for e in one]
    inner = _READERS.get(kind.children[0].name, _cast)(flat, kind.children[0])
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
    """The elements of an array of one dimension: `{a,"b \\" c",NULL}`."""
    text = text.partition("=")[2] if text.startswith("[") else text
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError(f"{text[:40]!r} is no array")
    found: list[str | None] = []
    at, end = 1, len(text) - 1
    while at < end:
        element, quoted, at = _element(text, at, end)
        found.append(None if not quoted and element.upper() == "NULL" else element)
        at += 1
    return found


def _element(text: str, at: int, end: int) -> tuple[str, bool, int]:
    """One element, whether it was in quotes, and where the comma after it is."""
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


_READERS: dict[TypeName, Callable[[Texts, DataType], Any]] = {
    TypeName.STRING: _text,
    TypeName.BOOLEAN: _boolean,
    TypeName.BYTES: _bytes,
    TypeName.DATE: _date,
    TypeName.TIME: _time,
    TypeName.TIMESTAMP: _timestamp,
    TypeName.TIMESTAMP_TZ: _timestamp,
    TypeName.ARRAY: _array,
}
