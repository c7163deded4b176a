"""Lists of decoded values to Arrow arrays of the type that a column has in the pipeline. Called by
rows.py, in tasks.

The type of a column is decided once, from the catalogue, for the snapshot and for the log alike;
here the log's values become that type, exactly.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from ipaddress import IPv4Address
from typing import Any
from uuid import UUID

import pyarrow as pa

from tidegate.databases.errors import LoggedValueUnfit
from tidegate.databases.mysql.binlog_charsets import BEYOND_BMP, WITH_ASCII, codec_of
from tidegate.databases.mysql.binlog_errors import LogDamaged
from tidegate.databases.mysql.binlog_json import json_text
from tidegate.databases.mysql.binlog_values import Raw, RawColumn
from tidegate.model.types import DataType, TypeName
from tidegate.plugin.arrow import arrow_type

_ADDRESSES = ("uuid", "inet4", "inet6")
_DAY_MICROS = 86_400_000_000
_EPOCH = datetime(1970, 1, 1)
_WHOLE_TYPES = (TypeName.TINYINT, TypeName.SMALLINT, TypeName.INT, TypeName.BIGINT)
_UNFIT = (pa.ArrowInvalid, UnicodeDecodeError, OverflowError, ValueError, TypeError)
_SHOWN_BYTES = 100
_ZLIB = 8
Values = Sequence[Any]
Finish = Callable[[Values], Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnTarget:
    """What a column of the log becomes.

    `labels` are those of ENUM and SET, `exact` where they come from the log itself; `word` is the
    type's name in the catalogue, `zone` is what instants are shown in where the type has no zone.
    """

    name: str
    type: DataType
    charset: str | None = None
    labels: tuple[str, ...] = ()
    exact: bool = False
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
            except _UNFIT as error:
                raise _unfit(target, finish, values, error) from error

        return guarded

    if raw.kind is Raw.PACKED:
        inner = finisher(replace(raw, kind=Raw.TEXT), target)
        return lambda values: inner([None if v is None else unpacked_value(v) for v in values])
    if (
        kind is TypeName.STRING
        and raw.kind is Raw.TEXT
        and target.word not in _ADDRESSES
        and _is_utf8(target.charset)
    ):
        return failing(lambda values: pa.array(values, pa.binary()).cast(arrow))
    if kind is TypeName.STRING and raw.kind is Raw.TEXT and target.charset in WITH_ASCII:
        return failing(lambda values: _mostly_ascii(values, as_python, arrow))
    if kind is TypeName.STRING:
        return failing(
            lambda values: pa.array(
                [None if v is None else _text(as_python(v)) for v in values], arrow
            )
        )
    return failing(_typed(raw, target, as_python, arrow))


def _unfit(
    target: ColumnTarget, finish: Finish, values: Values, error: Exception
) -> LoggedValueUnfit:
    """The first value that cannot be one of its column."""
    for index, value in enumerate(values):
        try:
            finish([value])
        except _UNFIT as found:
            shown = f"x'{value[:_SHOWN_BYTES].hex()}': " if isinstance(value, bytes) else ""
            return LoggedValueUnfit(target.name, str(target.type), index, f"{shown}{found}")
    return LoggedValueUnfit(target.name, str(target.type), 0, str(error))


@contextmanager
def located(
    table: str, keys: Sequence[str], names: Sequence[str], columns: Sequence[Values]
) -> Iterator[None]:
    """Name the table and the key of the row in errors of a finisher; `columns` are the decoded
    values.
    """
    try:
        yield
    except LoggedValueUnfit as error:
        key = ", ".join(
            f"{name} = {_shown(values[error.index])}"
            for name, values in zip(names, columns, strict=True)
            if name in keys
        )
        raise error.of_row(table, key) from error


def _shown(value: Any) -> str:
    return (
        value[:_SHOWN_BYTES].decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    )


def unpacked_value(data: bytes) -> bytes:
    """The value of a column that MariaDB compresses: a byte that tells how, the length in as many
    bytes as it says, and zlib's bytes.
    """
    if not data or data[0] == 0:
        return data[1:]
    head, width = data[0], data[0] & 0x07
    if head >> 4 != _ZLIB:
        raise LogDamaged(f"a column is compressed in an unknown way ({head:#x})")
    try:
        out = zlib.decompress(data[1 + width :], -zlib.MAX_WBITS if head & 0x08 else zlib.MAX_WBITS)
    except zlib.error as error:
        raise LogDamaged(f"a compressed column: {error}") from error
    if len(out) != int.from_bytes(data[1 : 1 + width], "big"):
        raise LogDamaged(f"a compressed column has {len(out)} bytes, which is not what it says")
    return out


def _typed(
    raw: RawColumn, target: ColumnTarget, as_python: Callable[[Any], Any], arrow: Any
) -> Finish:
    match raw.kind, target.type.name:
        case Raw.NUMBER | Raw.BITS, TypeName.BOOLEAN:
            return lambda values: pa.array([None if v is None else v != 0 for v in values], arrow)
        case Raw.NUMBER | Raw.BITS, TypeName.DECIMAL:
            shift = 10**target.type.scale
            return lambda values: decimals(
                [None if v is None else v * shift for v in values], arrow
            )
        case Raw.UNSCALED, TypeName.DECIMAL if raw.parameter == target.type.scale:
            return lambda values: decimals(values, arrow)
        case (Raw.NUMBER, name) if name in _WHOLE_TYPES:
            return lambda values: pa.array(values, arrow)
        case Raw.BITS, TypeName.BYTES:
            return lambda values: pa.array(
                [None if v is None else v.to_bytes(raw.parameter, "big") for v in values], arrow
            )
        case Raw.DAYS, TypeName.DATE:
            return lambda values: pa.array(values, pa.int32()).view(arrow)
        case (Raw.INSTANT, TypeName.TIMESTAMP) if target.zone is not UTC:
            return lambda values: pa.array(
                [None if v is None else _wall_clock(v, target.zone) for v in values], pa.int64()
            ).view(arrow)
        case Raw.MICROS | Raw.INSTANT, TypeName.TIMESTAMP | TypeName.TIMESTAMP_TZ:
            return lambda values: pa.array(values, pa.int64()).view(arrow)
        case Raw.SPAN, TypeName.TIME:
            return lambda values: pa.array(
                [None if v is None else _of_day(v) for v in values], pa.int64()
            ).view(arrow)
        case _:
            return lambda values: pa.array(
                [None if v is None else as_python(v) for v in values], arrow
            )


def decimals(unscaled: Values, arrow: Any) -> Any:
    """Decimals from whole numbers, 16 bytes each."""
    limit = 10**arrow.precision
    if any(v is not None and not -limit < v < limit for v in unscaled):
        raise ValueError(f"more than {arrow.precision} digits")
    data = b"".join((v or 0).to_bytes(16, "little", signed=True) for v in unscaled)
    nulls = sum(v is None for v in unscaled)
    return pa.Array.from_buffers(
        arrow, len(unscaled), [_validity(unscaled) if nulls else None, pa.py_buffer(data)], nulls
    )


def _validity(values: Values) -> Any:
    return pa.array([v is not None for v in values], pa.bool_()).buffers()[1]


def _of_day(micros: int) -> int:
    """Nanoseconds of a day. The type is a time of day: a span outside of it has no place there."""
    if not 0 <= micros < _DAY_MICROS:
        raise ValueError(
            f"{span_text(micros)} is not between 00:00 and 24:00; time-as-text = true reads columns"
            " of the type TIME as texts"
        )
    return micros * 1000


def _wall_clock(micros: int, zone: tzinfo) -> int:
    moment = (
        (_EPOCH + timedelta(microseconds=micros))
        .replace(tzinfo=UTC)
        .astimezone(zone)
        .replace(tzinfo=None)
    )
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, Decimal):
        return f"{value:f}"  # without an exponent
    return value if isinstance(value, str) else str(value)


def _plain(raw: RawColumn, target: ColumnTarget) -> Callable[[Any], Any]:
    """A decoded value as the Python value that a client of the database would see."""
    match raw.kind:
        case Raw.UNSCALED:
            return lambda v: (
                Decimal(v).scaleb(-raw.parameter)
                if abs(v) < 10**27
                else Decimal(f"{v}e-{raw.parameter}")
            )
        case Raw.DAYS:
            return lambda v: (_EPOCH + timedelta(days=v)).date()
        case Raw.MICROS:
            return lambda v: _EPOCH + timedelta(microseconds=v)
        case Raw.INSTANT:
            return lambda v: _EPOCH + timedelta(microseconds=_wall_clock(v, target.zone))
        case Raw.SPAN:
            return lambda v: span_text(v, raw.parameter)
        case Raw.JSON:
            return json_text
        case Raw.LABEL | Raw.LABELS | Raw.TEXT:
            return _words(raw, target)
        case _:
            return lambda v: v


def _words(raw: RawColumn, target: ColumnTarget) -> Callable[[Any], Any]:
    labels = target.labels
    doubtful = not target.exact and target.charset in BEYOND_BMP
    if raw.kind is Raw.LABEL:
        return lambda v: _label(labels[v - 1], doubtful) if 0 < v <= len(labels) else ""
    if raw.kind is Raw.LABELS:
        return lambda v: ",".join(
            _label(label, doubtful) for n, label in enumerate(labels) if v >> n & 1
        )
    if target.word in _ADDRESSES:
        return _ADDRESS_TEXTS[target.word]
    if target.charset is None or target.charset == "binary":
        return lambda v: v.ljust(
            raw.parameter, b"\0"
        )  # the log leaves out the zeros at the end of BINARY(n)
    codec = codec_of(target.charset)
    return lambda v: v.decode(codec)


def _label(label: str, doubtful: bool) -> str:
    """A label; the catalogue shows characters beyond U+FFFF as a question mark, which then cannot
    be told from one.
    """
    if doubtful and "?" in label:
        raise ValueError(
            f"the catalogue of the server shows its label as {label!r}, where a question mark may"
            " stand for another character; set binlog_row_metadata = FULL, so that the log has the"
            " labels"
        )
    return label


_ADDRESS_TEXTS: dict[str, Callable[[bytes], str]] = {
    "uuid": lambda data: str(UUID(bytes=data.ljust(16, b"\0"))),
    "inet4": lambda data: str(IPv4Address(data.ljust(4, b"\0"))),
    "inet6": lambda data: _inet6_text(data.ljust(16, b"\0")),
}


def _inet6_text(data: bytes) -> str:
    """As the server writes it: the first of the longest runs of zeros is left out, and one of the
    old kind is written with its dots.
    """
    words = [int.from_bytes(data[n : n + 2], "big") for n in range(0, 16, 2)]
    runs = [
        next((n for n, word in enumerate(words[at:]) if word), 8 - at) for at in range(8)
    ]  # zeros from each place on
    length = max(runs)
    at = runs.index(length)
    if at == 0 and (length == 6 or (length == 5 and words[5] == 0xFFFF)):
        return f"::{'' if length == 6 else 'ffff:'}{IPv4Address(data[12:])}"
    parts = [f"{word:x}" for word in words]
    return (
        f"{':'.join(parts[:at])}::{':'.join(parts[at + length :])}" if length else ":".join(parts)
    )


def _mostly_ascii(values: Values, as_python: Callable[[Any], Any], arrow: Any) -> Any:
    """Texts in a character set that holds ASCII as it is: the usual case needs no look at each."""
    if b"".join(v for v in values if v is not None).isascii():
        return pa.array(values, pa.binary()).cast(arrow)
    return pa.array([None if v is None else as_python(v) for v in values], arrow)


def _is_utf8(charset: str | None) -> bool:
    return charset is not None and charset.lower() in ("utf8mb4", "utf8mb3", "utf8")


def span_text(micros: int, digits: int = 6) -> str:
    """As the server writes a TIME with so many digits after the point: `-838:59:59.000000`."""
    seconds, fraction = divmod(abs(micros), 1_000_000)
    text = (
        f"{'-' if micros < 0 else ''}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    )
    return f"{text}.{fraction:06}"[: len(text) + 1 + digits] if digits else text
