"""Convert MySQL's binary JSON to text. MariaDB stores JSON as text.

Called by binlog_columns.py. A value is a type byte and its bytes; objects and arrays are a count, a
size, and a table of keys and values with offsets from their own start, in two bytes or four. The
text has the format of the server: `{"a": 1}`.
"""

import base64
import json
import struct
from decimal import Decimal
from typing import Any

from tidegate.databases.mysql.binlog_errors import LogDamaged

_DEPTH_MAX = 100
_POINT_MAX = 15
_LITERALS = {0: "null", 1: "true", 2: "false"}
_NUMBERS = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q", 11: "<d"}
_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL, _STRING, _OPAQUE = (
    0,
    1,
    2,
    3,
    4,
    12,
    15,
)
_DECIMAL, _DATE, _DATETIME, _TIMESTAMP, _TIME = 246, 10, 12, 7, 11


def json_text(data: bytes) -> str:
    """Return the text of a document; an empty one is the JSON null that old servers write."""
    if not data:
        return "null"
    try:
        return _value(data[0], data, 1, 0)
    except (IndexError, struct.error, ValueError) as error:
        raise LogDamaged(f"a JSON document: {error}") from error


def _value(kind: int, data: bytes, at: int, depth: int) -> str:
    if depth > _DEPTH_MAX:
        raise ValueError("nested too deeply")
    if kind in (_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY):
        return _container(
            data[at:],
            large=kind in (_LARGE_OBJECT, _LARGE_ARRAY),
            named=kind in (_SMALL_OBJECT, _LARGE_OBJECT),
            depth=depth,
        )
    if kind == _LITERAL:
        return _literal(data[at])
    if kind in _NUMBERS:
        return _number(struct.unpack_from(_NUMBERS[kind], data, at)[0])
    if kind == _STRING:
        size, at = _length(data, at)
        return json.dumps(_bytes(data, at, size).decode("utf-8"), ensure_ascii=False)
    if kind == _OPAQUE:
        size, start = _length(data, at + 1)
        return _opaque(data[at], _bytes(data, start, size))
    raise ValueError(f"a value of type {kind}")


def _literal(code: int) -> str:
    if code not in _LITERALS:
        raise ValueError(f"a literal {code}")
    return _LITERALS[code]


def _number(value: Any) -> str:
    return double_text(value) if isinstance(value, float) else str(value)


def double_text(value: float) -> str:
    """Format a number as the server does.

    These are the shortest digits that identify it, with an exponent only for very large or small
    numbers.
    """
    sign, numerals, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int), "JSON has no infinity"
    digits = "".join(map(str, numerals)).rstrip("0") or "0"
    point = len(numerals) + exponent if digits != "0" else 1  # digits before the decimal point
    if not -_POINT_MAX < point <= _POINT_MAX:
        mantissa = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
        text = f"{mantissa}e{point - 1}"
    elif point <= 0:
        text = f"0.{'0' * -point}{digits}"
    else:
        text = f"{digits[:point]:0<{point}}.{digits[point:] or '0'}"
    return "-" + text if sign else text


def _bytes(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise ValueError("it ends within a value")
    return data[at : at + size]


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Return a length in groups of seven bits, the lowest first, and where it ends."""
    size = 0
    for n in range(5):
        byte = data[at + n]
        size |= (byte & 0x7F) << 7 * n
        if not byte & 0x80:
            return size, at + n + 1
    raise ValueError("a length without end")


def _container(data: bytes, *, large: bool, named: bool, depth: int) -> str:
    word, width = ("<I", 4) if large else ("<H", 2)
    (count,) = struct.unpack_from(word, data)
    if count * (width + 1) > len(data):
        raise ValueError("more elements than bytes")
    names_at = 2 * width
    values_at = names_at + (count * (width + 2) if named else 0)
    parts = []
    for n in range(count):
        entry = values_at + n * (width + 1)
        kind = data[entry]
        inline = kind in (_LITERAL, 5, 6) or (large and kind in (7, 8))
        at = entry + 1 if inline else struct.unpack_from(word, data, entry + 1)[0]
        text = _value(kind, data, at, depth + 1)
        parts.append(
            f"{_name(data, names_at + n * (width + 2), word, width)}: {text}" if named else text
        )
    return f"{{{', '.join(parts)}}}" if named else f"[{', '.join(parts)}]"


def _name(data: bytes, entry: int, word: str, width: int) -> str:
    (at,) = struct.unpack_from(word, data, entry)
    (size,) = struct.unpack_from("<H", data, entry + width)
    return json.dumps(_bytes(data, at, size).decode("utf-8"), ensure_ascii=False)


def _opaque(kind: int, data: bytes) -> str:
    """Return a value of an SQL type: decimals and times as such.

    Other types are in base64, as the server shows them.
    """
    if kind == _DECIMAL:
        from tidegate.databases.mysql.binlog_values import decoder, raw_column

        found: list[int] = []
        decoder([raw_column(_DECIMAL, data[0] << 8 | data[1], unsigned=False, name="")])(
            b"\0" + data[2:], 0, len(data) - 1, [found]
        )
        digits = f"{abs(found[0]):0{data[1] + 1}}"
        return f"{'-' if found[0] < 0 else ''}{digits[: len(digits) - data[1]]}" + (
            f".{digits[len(digits) - data[1] :]}" if data[1] else ""
        )
    if kind in (_DATE, _DATETIME, _TIMESTAMP, _TIME):
        return json.dumps(_moment(kind, struct.unpack("<q", data)[0]))
    return json.dumps(f"base64:type{kind}:{base64.b64encode(data).decode()}")


def _moment(kind: int, packed: int) -> str:
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    fraction, whole = packed & 0xFFFFFF, packed >> 24
    clock = f"{whole >> 6 & 63:02}:{whole & 63:02}.{fraction:06}"
    if kind == _TIME:
        return f"{sign}{whole >> 12 & 1023:02}:{clock}"
    day = whole >> 17
    date = f"{day >> 5 and (day >> 5) // 13:04}-{(day >> 5) % 13:02}-{day & 31:02}"
    return date if kind == _DATE else f"{date} {whole >> 12 & 31:02}:{clock}"
