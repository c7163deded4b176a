"""Decode row images of the binary log to lists of values, with generated code.

Called by binlog_rows.py, in tasks. An image is a bitmap of nulls followed by the values, so a value
can only be found by reading all before it. For each layout, a function with one or two lines for
each column is generated, which is ten times as fast as a call for each value; binlog_fast_rows.pyx,
if it was built, does the same faster. The values are plain integers, floats and bytes;
binlog_columns.py makes Arrow arrays of them. TIDEGATE_PURE_PYTHON=1 disables the compiled decoder.
"""

import os
import struct
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from importlib import import_module
from typing import Any

from tidegate.databases.mysql.binlog_errors import LogDamaged
from tidegate.model.errors import Unsupported

_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_FRACTION_UNITS = {0: 0, 1: 10_000, 2: 100, 3: 1}
_ENUM, _SET, _STRING = 247, 248, 254


class Raw(StrEnum):
    """What the decoder appends for a column."""

    NUMBER = "number"  # an integer
    FLOAT = "float"
    UNSCALED = "unscaled"  # an unscaled decimal; the parameter is its scale
    DAYS = "days"  # since 1970
    MICROS = "micros"  # since 1970, of a date and time without a time zone
    INSTANT = "instant"  # microseconds since 1970, UTC
    # A time of day or a span, in microseconds; the parameter is the number of its decimals.
    SPAN = "span"
    # Bytes in the character set of the column, or binary; the parameter is the length of BINARY(n).
    TEXT = "text"
    LABEL = "label"  # the index of the label of an ENUM
    LABELS = "labels"  # the bits of the labels of a SET
    BITS = "bits"  # of a BIT(n), as a number; the parameter is the number of bytes
    JSON = "json"  # MySQL's binary JSON
    PACKED = "packed"  # like TEXT, of a compressed column of MariaDB


class Op(IntEnum):
    """Operations of the compiled decoder; the numbers are those of binlog_fast_rows.pyx."""

    SIGNED = 0
    UNSIGNED = 1
    FLOAT = 2
    DOUBLE = 3
    SIZED = 4
    YEAR = 5
    DATE = 6
    DATETIME = 7
    TIMESTAMP = 8
    TIME = 9
    DECIMAL = 10
    LITTLE = 11
    BIG = 12
    OLD_TIMESTAMP = 13
    OLD_DATETIME = 14
    OLD_TIME = 15


@dataclass(frozen=True, slots=True)
class RawColumn:
    """A column of the images: how it is decoded, in Python and compiled, and to what."""

    kind: Raw
    parameter: int
    code: tuple[str, ...]
    op: tuple[int, ...]


Decode = Callable[[bytes, int, int, list[list[Any]]], int]
"""(data, from, to, one list for each column) -> number of images."""


def compiled_module() -> Any:
    """Return the module of the compiled decoder; None if it is not built or disabled."""
    if os.environ.get("TIDEGATE_PURE_PYTHON", "") not in ("", "0"):
        return None
    try:
        return import_module("tidegate.databases.mysql.binlog_fast_rows")
    except ImportError:
        return None


def decoder(columns: Sequence[RawColumn], fast: Any = None) -> Decode:
    """Return the function that decodes images of these columns, compiled if `fast` is given."""
    act = generate_decoder(columns) if fast is None else _compiled_decoder(columns, fast)

    def decode(data: bytes, start: int, end: int, lists: list[list[Any]]) -> int:
        try:
            return act(data, start, end, lists)
        except (IndexError, struct.error, ValueError) as error:
            raise LogDamaged(f"a row of a table: {error}") from error

    return decode


def _compiled_decoder(columns: Sequence[RawColumn], fast: Any) -> Decode:
    program = array("i", [number for column in columns for number in (*column.op, 0, 0, 0, 0)[:5]])
    return lambda data, start, end, lists: int(fast.decode(data, start, end, program, lists))


def generate_decoder(columns: Sequence[RawColumn]) -> Decode:
    """Return the Python function that decodes images of these columns."""
    bitmap = (len(columns) + 7) // 8
    lines = [
        "def decode(b, p, end, lists):",
        *(f"  a{n} = lists[{n}].append" for n in range(len(columns))),
    ]
    lines += [
        "  images = 0",
        "  while p < end:",
        f"    nulls = number(b[p:p + {bitmap}], 'little'); p += {bitmap}; images += 1",
    ]
    for n, column in enumerate(columns):
        lines += [f"    if nulls >> {n} & 1: a{n}(None)", "    else:"]
        lines += [f"      {line.replace('OUT', f'a{n}')}" for line in column.code]
    lines += ["  if p != end: raise ValueError('rows end within a value')", "  return images"]
    names: dict[str, Any] = {"number": int.from_bytes, "days_of": days_of}
    names |= {f"u_{c}": struct.Struct(f"<{c}").unpack_from for c in "bBhHiIqQfd"}
    exec("\n".join(lines), names)
    generated: Decode = names["decode"]
    return generated


def days_of(year: int, month: int, day: int) -> int | None:
    """Return the days since 1970.

    None for invalid dates such as 0000-00-00, 2020-02-00, 0000-05-05 and 2023-02-29.
    """
    if not (month and day and year) or (day > 28 and day > _month_days(year, month)):
        return None
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    return (
        era * 146_097
        + of_era * 365
        + of_era // 4
        - of_era // 100
        + (153 * (month - 3 if month > 2 else month + 9) + 2) // 5
        + day
        - 1
        - 719_468
    )


def _month_days(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def raw_column(type_byte: int, meta: int, *, unsigned: bool, name: str) -> RawColumn:
    """Return how to decode a column of this type; Unsupported if that is not known."""
    if type_byte in _WHOLE:
        letter, size = _WHOLE[type_byte]
        code = f"OUT(u_{letter.upper() if unsigned else letter}(b, p)[0]); p += {size}"
        return RawColumn(Raw.NUMBER, 0, (code,), (Op.UNSIGNED if unsigned else Op.SIGNED, size))
    maker = _MAKERS.get(type_byte)
    if maker is None:
        raise Unsupported(
            f"column {name} has a type that cannot be decoded from the log (type "
            f"{type_byte}); leave its table out, or change its type"
        )
    return maker(meta, unsigned)


_WHOLE = {1: ("b", 1), 2: ("h", 2), 3: ("i", 4), 8: ("q", 8)}


def _medium(_: int, unsigned: bool) -> RawColumn:
    read = "v = number(b[p:p + 3], 'little'); p += 3"
    if unsigned:
        return RawColumn(Raw.NUMBER, 0, (read, "OUT(v)"), (Op.UNSIGNED, 3))
    return RawColumn(
        Raw.NUMBER, 0, (read, "OUT(v - 16777216 if v & 8388608 else v)"), (Op.SIGNED, 3)
    )


def _float(_: int, __: bool) -> RawColumn:
    return RawColumn(Raw.FLOAT, 4, ("OUT(u_f(b, p)[0]); p += 4",), (Op.FLOAT,))


def _double(_: int, __: bool) -> RawColumn:
    return RawColumn(Raw.FLOAT, 8, ("OUT(u_d(b, p)[0]); p += 8",), (Op.DOUBLE,))


def _year(_: int, __: bool) -> RawColumn:
    return RawColumn(Raw.NUMBER, 0, ("v = b[p]; p += 1", "OUT(1900 + v if v else 0)"), (Op.YEAR,))


def _date(_: int, __: bool) -> RawColumn:
    return RawColumn(
        Raw.DAYS,
        0,
        ("v = number(b[p:p + 3], 'little'); p += 3", "OUT(days_of(v >> 9, v >> 5 & 15, v & 31))"),
        (Op.DATE,),
    )


def _datetime(meta: int, _: bool) -> RawColumn:
    """Five bytes of year to second, followed by up to three bytes of the fraction."""
    width = (meta + 1) // 2
    return RawColumn(
        Raw.MICROS,
        0,
        (
            (
                f"v = number(b[p:p + 5], 'big') - {1 << 39}; f = number(b[p + 5:p + {5 + width}],"
                f" 'big'); p += {5 + width}"
            ),
            "d = None if v < 0 else days_of((v >> 22) // 13, (v >> 22) % 13, v >> 17 & 31)",
            (
                "OUT(None if d is None else ((d * 24 + (v >> 12 & 31)) * 60 + (v >> 6 & 63)) *"
                f" 60000000 + (v & 63) * 1000000 + f * {_FRACTION_UNITS[width]})"
            ),
        ),
        (Op.DATETIME, width),
    )


def _timestamp(meta: int, _: bool) -> RawColumn:
    width = (meta + 1) // 2
    return RawColumn(
        Raw.INSTANT,
        0,
        (
            (
                f"v = number(b[p:p + 4], 'big'); f = number(b[p + 4:p + {4 + width}], 'big'); p +="
                f" {4 + width}"
            ),
            f"OUT(v * 1000000 + f * {_FRACTION_UNITS[width]} if v or f else None)",
        ),
        (Op.TIMESTAMP, width),
    )


def _time(meta: int, _: bool) -> RawColumn:
    width = (meta + 1) // 2
    bits = 8 * width
    return RawColumn(
        Raw.SPAN,
        meta,
        (
            (
                f"v = number(b[p:p + {3 + width}], 'big') - {1 << (23 + bits)}; p += {3 + width}; w"
                f" = abs(v); s = w >> {bits}"
            ),
            (
                "s = ((s >> 12 & 1023) * 3600 + (s >> 6 & 63) * 60 + (s & 63)) * 1000000 + (w &"
                f" {(1 << bits) - 1}) * {_FRACTION_UNITS[width]}"
            ),
            "OUT(-s if v < 0 else s)",
        ),
        (Op.TIME, width),
    )


def _old_timestamp(_: int, __: bool) -> RawColumn:
    return RawColumn(
        Raw.INSTANT,
        0,
        ("v = u_I(b, p)[0]; p += 4", "OUT(v * 1000000 if v else None)"),
        (Op.OLD_TIMESTAMP,),
    )


def _old_datetime(_: int, __: bool) -> RawColumn:
    return RawColumn(
        Raw.MICROS,
        0,
        (
            "v = u_Q(b, p)[0]; p += 8",
            (
                "d = None if v > 99999999999999 else days_of(v // 10000000000, v // 100000000 %"
                " 100, v // 1000000 % 100)"
            ),
            (
                "OUT(None if d is None else ((d * 24 + v // 10000 % 100) * 60 + v // 100 % 100) *"
                " 60000000 + v % 100 * 1000000)"
            ),
        ),
        (Op.OLD_DATETIME,),
    )


def _old_time(_: int, __: bool) -> RawColumn:
    return RawColumn(
        Raw.SPAN,
        0,
        (
            (
                "v = number(b[p:p + 3], 'little'); p += 3; v = v - 16777216 if v & 8388608 else v;"
                " w = abs(v)"
            ),
            "w = ((w // 10000) * 3600 + w // 100 % 100 * 60 + w % 100) * 1000000",
            "OUT(-w if v < 0 else w)",
        ),
        (Op.OLD_TIME,),
    )


def _decimal(meta: int, _: bool) -> RawColumn:
    """Groups of nine digits in four bytes each, big-endian.

    The first bit is inverted; all bits are, if the number is negative.
    """
    precision, scale = meta >> 8, meta & 255
    head, wholes = (precision - scale) % 9, (precision - scale) // 9
    fractions, tail = scale // 9, scale % 9
    groups = (
        [(_DIGIT_BYTES[head], head)] * bool(head)
        + [(4, 9)] * (wholes + fractions)
        + [(_DIGIT_BYTES[tail], tail)] * bool(tail)
    )
    size = sum(width for width, _ in groups)
    if not size:
        raise LogDamaged("a decimal without digits")
    code = [f"v = number(b[p:p + {size}], 'big'); p += {size}; m = not v >> {size * 8 - 1}"]
    code += [f"if m: v ^= {(1 << size * 8) - 1}", f"v ^= {1 << (size * 8 - 1)}; w = 0"]
    shift = size * 8
    for width, digits in groups:
        shift -= width * 8
        code.append(f"w = w * {10**digits} + (v >> {shift} & {(1 << width * 8) - 1})")
    return RawColumn(
        Raw.UNSCALED,
        scale,
        (*code, "OUT(-w if m else w)"),
        (Op.DECIMAL, head, wholes + fractions, tail),
    )


def _sized(width: int, kind: Raw, parameter: int = 0) -> RawColumn:
    length = (
        "n = b[p]; p += 1"
        if width == 1
        else f"n = number(b[p:p + {width}], 'little'); p += {width}"
    )
    return RawColumn(kind, parameter, (f"{length}; OUT(b[p:p + n]); p += n",), (Op.SIZED, width))


def _varchar(meta: int, _: bool) -> RawColumn:
    return _sized(1 if meta < 256 else 2, Raw.TEXT)


def _blob(meta: int, _: bool) -> RawColumn:
    return _sized(max(1, min(meta, 4)), Raw.TEXT)


def _packed_varchar(meta: int, _: bool) -> RawColumn:
    return _sized(1 if meta < 256 else 2, Raw.PACKED)


def _packed_blob(meta: int, _: bool) -> RawColumn:
    return _sized(max(1, min(meta, 4)), Raw.PACKED)


def _json(meta: int, _: bool) -> RawColumn:
    return _sized(max(1, min(meta, 4)), Raw.JSON)


def _bit(meta: int, _: bool) -> RawColumn:
    size = min(8, (meta & 255) + bool(meta >> 8))
    return RawColumn(
        Raw.BITS, size, (f"OUT(number(b[p:p + {size}], 'big')); p += {size}",), (Op.BIG, size)
    )


def _string(meta: int, _: bool) -> RawColumn:
    """CHAR and BINARY; also ENUM and SET, which are in the first byte of the parameter.

    Lengths above 255 store two bits there.
    """
    real, length = meta >> 8, meta & 255
    if real & 0x30 != 0x30:
        length |= ((real & 0x30) ^ 0x30) << 4
        real |= 0x30
    if real in (_ENUM, _SET):
        size = max(1, min(length, 8))
        code = (f"OUT(number(b[p:p + {size}], 'little')); p += {size}",)
        return RawColumn(Raw.LABEL if real == _ENUM else Raw.LABELS, size, code, (Op.LITTLE, size))
    return _sized(1 if length < 256 else 2, Raw.TEXT, length)


_MAKERS: dict[int, Callable[[int, bool], RawColumn]] = {
    4: _float,
    5: _double,
    7: _old_timestamp,
    9: _medium,
    10: _date,
    11: _old_time,
    12: _old_datetime,
    13: _year,
    15: _varchar,
    16: _bit,
    17: _timestamp,
    18: _datetime,
    19: _time,
    140: _packed_blob,
    141: _packed_varchar,
    242: _blob,
    245: _json,
    246: _decimal,
    252: _blob,
    253: _varchar,
    _STRING: _string,
    255: _blob,
}
