"""Lists of decoded values to Arrow arrays of the type that a column has in the pipeline. Called by rows.py, in tasks.

The type of a column is decided once, from the catalogue, for the snapshot and for the log alike; here the log's values become that type, exactly.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from ipaddress import IPv4Address, IPv6Address
from typing import Any
from uuid import UUID

import pyarrow as pa

from tidegate.databases.binlog.charsets import WITH_ASCII, codec_of
from tidegate.databases.binlog.errors import LogDamaged
from tidegate.databases.binlog.json_text import json_text
from tidegate.databases.binlog.values import Raw, RawColumn
from tidegate.model.types import DataType, TypeName
from tidegate.plugin.arrow import arrow_type

_ADDRESSES = ("uuid", "inet4", "inet6")
_DAY_MICROS = 86_400_000_000
_EPOCH = datetime(1970, 1, 1)
_WHOLE_TYPES = (TypeName.TINYINT, TypeName.SMALLINT, TypeName.INT, TypeName.BIGINT)
Values = Sequence[Any]
Finish = Callable[[Values], Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnTarget:
    """What a column of the log becomes.

    `labels` are those of ENUM and SET, `word` is the type's name in the catalogue, `zone` is what instants are shown in where the type has no zone.
    """

    name: str
    type: DataType
    charset: str | None = None
    labels: tuple[str, ...] = ()
    word: str = ""
    zone: tzinfo = UTC


def finisher(raw: RawColumn, target: ColumnTarget) -> Finish:
    """The function that makes an array of a column's decoded values."""
    as_python = _plain(raw, target)
    kind = target.type.name
    arrow = arrow_type(target.type)

    def failing(finish: Finish) -> Finish:
        def guarded(values: Values) -> Any:
            try:
                return finish(values)
            except (pa.ArrowInvalid, UnicodeDecodeError, OverflowError, ValueError, TypeError) as error:
                raise LogDamaged(f"column {target.name} has a value that is no {target.type}: {error}") from error

        return guarded

    if kind is TypeName.STRING and raw.kind is Raw.TEXT and target.word not in _ADDRESSES and _is_utf8(target.charset):
        return failing(lambda values: pa.array(values, pa.binary()).cast(arrow))
    if kind is TypeName.STRING and raw.kind is Raw.TEXT and target.charset in WITH_ASCII:
        return failing(lambda values: _mostly_ascii(values, as_python, arrow))
    if kind is TypeName.STRING:
        return failing(lambda values: pa.array([None if v is None else _text(as_python(v)) for v in values], arrow))
    return failing(_typed(raw, target, as_python, arrow))


def _typed(raw: RawColumn, target: ColumnTarget, as_python: Callable[[Any], Any], arrow: Any) -> Finish:
    match raw.kind, target.type.name:
        case Raw.NUMBER | Raw.BITS, TypeName.BOOLEAN:
            return lambda values: pa.array([None if v is None else v != 0 for v in values], arrow)
        case Raw.NUMBER | Raw.BITS, TypeName.DECIMAL:
            shift = 10**target.type.scale
            return lambda values: decimals([None if v is None else v * shift for v in values], arrow)
        case Raw.UNSCALED, TypeName.DECIMAL if raw.parameter == target.type.scale:
            return lambda values: decimals(values, arrow)
        case (Raw.NUMBER, name) if name in _WHOLE_TYPES:
            return lambda values: pa.array(values, arrow)
        case Raw.BITS, TypeName.BYTES:
            return lambda values: pa.array([None if v is None else v.to_bytes(raw.parameter, "big") for v in values], arrow)
        case Raw.DAYS, TypeName.DATE:
            return lambda values: pa.array(values, pa.int32()).view(arrow)
        case (Raw.INSTANT, TypeName.TIMESTAMP) if target.zone is not UTC:
            return lambda values: pa.array([None if v is None else _wall_clock(v, target.zone) for v in values], pa.int64()).view(arrow)
        case Raw.MICROS | Raw.INSTANT, TypeName.TIMESTAMP | TypeName.TIMESTAMP_TZ:
            return lambda values: pa.array(values, pa.int64()).view(arrow)
        case Raw.SPAN, TypeName.TIME:
            return lambda values: pa.array([None if v is None else _of_day(v) for v in values], pa.int64()).view(arrow)
        case _:
            return lambda values: pa.array([None if v is None else as_python(v) for v in values], arrow)


def decimals(unscaled: Values, arrow: Any) -> Any:
    """Decimals from whole numbers, 16 bytes each."""
    limit = 10**arrow.precision
    if any(v is not None and not -limit < v < limit for v in unscaled):
        raise ValueError(f"more than {arrow.precision} digits")
    data = b"".join((v or 0).to_bytes(16, "little", signed=True) for v in unscaled)
    nulls = sum(v is None for v in unscaled)
    return pa.Array.from_buffers(arrow, len(unscaled), [_validity(unscaled) if nulls else None, pa.py_buffer(data)], nulls)


def _validity(values: Values) -> Any:
    return pa.array([v is not None for v in values], pa.bool_()).buffers()[1]


def _of_day(micros: int) -> int:
    """Nanoseconds of a day. The type is a time of day: a span outside of it has no place there."""
    if not 0 <= micros < _DAY_MICROS:
        raise ValueError(f"{span_text(micros)} is a span and no time of day; make the column text or a number in a view, or leave its table out")
    return micros * 1000


def _wall_clock(micros: int, zone: tzinfo) -> int:
    moment = (_EPOCH + timedelta(microseconds=micros)).replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None)
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8")
    return value if isinstance(value, str) else str(value)


def _plain(raw: RawColumn, target: ColumnTarget) -> Callable[[Any], Any]:
    """A decoded value as the Python value that a client of the database would see."""
    match raw.kind:
        case Raw.UNSCALED:
            return lambda v: Decimal(v).scaleb(-raw.parameter) if abs(v) < 10**27 else Decimal(f"{v}e-{raw.parameter}")
        case Raw.DAYS:
            return lambda v: (_EPOCH + timedelta(days=v)).date()
        case Raw.MICROS:
            return lambda v: _EPOCH + timedelta(microseconds=v)
        case Raw.INSTANT:
            return lambda v: _EPOCH + timedelta(microseconds=_wall_clock(v, target.zone))
        case Raw.SPAN:
            return span_text
        case Raw.JSON:
            return json_text
        case Raw.LABEL | Raw.LABELS | Raw.TEXT:
            return _words(raw, target)
        case _:
            return lambda v: v


def _words(raw: RawColumn, target: ColumnTarget) -> Callable[[Any], Any]:
    labels = target.labels
    if raw.kind is Raw.LABEL:
        return lambda v: labels[v - 1] if 0 < v <= len(labels) else ""
    if raw.kind is Raw.LABELS:
        return lambda v: ",".join(label for n, label in enumerate(labels) if v >> n & 1)
    if target.word in _ADDRESSES:
        return _ADDRESS_TEXTS[target.word]
    if target.charset is None or target.charset == "binary":
        return lambda v: v.ljust(raw.parameter, b"\0")  # the log leaves out the zeros at the end of BINARY(n)
    codec = codec_of(target.charset)
    return lambda v: v.decode(codec)


_ADDRESS_TEXTS: dict[str, Callable[[bytes], str]] = {
    "uuid": lambda data: str(UUID(bytes=data.ljust(16, b"\0"))),
    "inet4": lambda data: str(IPv4Address(data.ljust(4, b"\0"))),
    "inet6": lambda data: _inet6_text(data.ljust(16, b"\0")),
}


def _inet6_text(data: bytes) -> str:
    """Addresses that hold one of the old kind are written with its dots, as the server does."""
    address = IPv6Address(data)
    if address.ipv4_mapped is not None:
        return f"::ffff:{address.ipv4_mapped}"
    if not any(data[:12]) and any(data[12:14]):
        return f"::{IPv4Address(data[12:])}"
    return str(address)


def _mostly_ascii(values: Values, as_python: Callable[[Any], Any], arrow: Any) -> Any:
    """Texts in a character set that holds ASCII as it is: the usual case needs no look at each."""
    if b"".join(v for v in values if v is not None).isascii():
        return pa.array(values, pa.binary()).cast(arrow)
    return pa.array([None if v is None else as_python(v) for v in values], arrow)


def _is_utf8(charset: str | None) -> bool:
    return charset is not None and charset.lower() in ("utf8mb4", "utf8mb3", "utf8")


def span_text(micros: int) -> str:
    """As the server writes it: `-838:59:59.000000` without what is not needed."""
    seconds, fraction = divmod(abs(micros), 1_000_000)
    text = f"{'-' if micros < 0 else ''}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:06}" if fraction else text
