"""Convert decoded values to Arrow arrays of the type that a column has in the pipeline.

Called by binlog_rows.py, in tasks. The type of a column is decided once, from the catalogue, for
the snapshot and for the log; here the values of the log become that type, exactly.
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
    """What a column of the log is converted to.

    `labels` are those of ENUM and SET, `exact` whether they come from the log itself; `word` is the
    name of the type in the catalogue, `zone` the time zone of instants if the type has none.
    """

    name: str
    type: DataType
    charset: str | None = None
    labels: tuple[str, ...] = ()
    exact: bool = False
    word: str = ""
    zone: tzinfo = UTC


def finisher(raw: RawColumn, target: ColumnTarget) -> Finish:
    """Return the function that converts the decoded values of a column to an array."""
    as_python = _as_python(raw, target)
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
        return lambda values: inner([None if v is None else decompress_value(v) for v in values])
    if (
        kind is TypeName.STRING
        and raw.kind is Raw.TEXT
        and target.word not in _ADDRESSES
        and _is_utf8(target.charset)
    ):
        return failing(lambda values: pa.array(values, pa.binary()).cast(arrow))
    if kind is TypeName.STRING and raw.kind is Raw.TEXT and target.charset in WITH_ASCII:
        return failing(lambda values: _ascii_or_decoded(values, as_python, arrow))
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
    """Return an error for the first value that does not fit its column."""
    for index, value in enumerate(values):
        try:
            finish([value])
        except _UNFIT as found:
            shown = f"x'{value[:_SHOWN_BYTES].hex()}': " if isinstance(value, bytes) else ""
            return LoggedValueUnfit(target.name, str(target.type), index, f"{shown}{found}")
    return LoggedValueUnfit(target.name, str(target.type), 0, str(error))


@contextmanager
def name_row_in_errors(
    table: str, keys: Sequence[str], names: Sequence[str], columns: Sequence[Values]
) -> Iterator[None]:
    """Add the table and the key of the row to errors of a finisher.

    `columns` are the decoded values.
    """
    try:
        yield
    except LoggedValueUnfit as error:
        key = ", ".join(
            f"{name} = {_shown(values[error.index])}"
            for name, values in zip(names, columns, strict=True)
            if name in keys
        )
        raise error.with_row(table, key) from error


def _shown(value: Any) -> str:
    return (
        value[:_SHOWN_BYTES].decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    )


def decompress_value(data: bytes) -> bytes:
    """Return the value of a column that MariaDB compresses.

    It is a byte with the algorithm and the length of the length, the length, and the bytes of zlib.
    """
    if not data or data[0] == 0:
        return data[1:]
    head, width = data[0], data[0] & 0x07
    if head >> 4 != _ZLIB:
        raise LogDamaged(f"the compression of a column is unknown ({head})")
    try:
        out = zlib.decompress(data[1 + width :], -zlib.MAX_WBITS if head & 0x08 else zlib.MAX_WBITS)
    except zlib.error as error:
        raise LogDamaged(f"a compressed column: {error}") from error
    if len(out) != int.from_bytes(data[1 : 1 + width], "big"):
        raise LogDamaged(
            f"a compressed column has {len(out)} bytes, which is not the length in its header"
        )
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
    """Return decimals from integers, in 16 bytes each."""
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
    """Return the nanoseconds since midnight.

    The type is a time of day: spans outside of a day are errors.
    """
    if not 0 <= micros < _DAY_MICROS:
        raise ValueError(
            f"{span_text(micros)} is not between 00:00 and 24:00; set time-as-text = true to "
            "read columns of the type TIME as strings"
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
        return f"{value:f}"  # no exponent
    return value if isinstance(value, str) else str(value)


def _as_python(raw: RawColumn, target: ColumnTarget) -> Callable[[Any], Any]:
    """Return a function to the Python value that a client of the database would see."""
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
            return _text_values(raw, target)
        case _:
            return lambda v: v


def _text_values(raw: RawColumn, target: ColumnTarget) -> Callable[[Any], Any]:
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
        # The log omits the trailing zeros of BINARY(n).
        return lambda v: v.ljust(raw.parameter, b"\0")
    codec = codec_of(target.charset)
    return lambda v: v.decode(codec)


def _label(label: str, doubtful: bool) -> str:
    """Return a label; raise ValueError if the catalogue may not show it as it is.

    The catalogue shows characters beyond U+FFFF as a question mark.
    """
    if doubtful and "?" in label:
        raise ValueError(
            f"the catalogue of the server shows its label as {label!r}, where the question "
            "mark may stand for another character; set binlog_row_metadata = FULL, so that "
            "the log has the labels"
        )
    return label


_ADDRESS_TEXTS: dict[str, Callable[[bytes], str]] = {
    "uuid": lambda data: str(UUID(bytes=data.ljust(16, b"\0"))),
    "inet4": lambda data: str(IPv4Address(data.ljust(4, b"\0"))),
    "inet6": lambda data: _inet6_text(data.ljust(16, b"\0")),
}


def _inet6_text(data: bytes) -> str:
    """Format an address as the server does.

    The first of the longest runs of zeros is abbreviated, and embedded IPv4 addresses are written
    with dots.
    """
    words = [int.from_bytes(data[n : n + 2], "big") for n in range(0, 16, 2)]
    # The number of zeros from each index on.
    runs = [next((n for n, word in enumerate(words[at:]) if word), 8 - at) for at in range(8)]
    length = max(runs)
    at = runs.index(length)
    if at == 0 and (length == 6 or (length == 5 and words[5] == 0xFFFF)):
        return f"::{'' if length == 6 else 'ffff:'}{IPv4Address(data[12:])}"
    parts = [f"{word:x}" for word in words]
    return (
        f"{':'.join(parts[:at])}::{':'.join(parts[at + length :])}" if length else ":".join(parts)
    )


def _ascii_or_decoded(values: Values, as_python: Callable[[Any], Any], arrow: Any) -> Any:
    """Return strings in a character set that contains ASCII.

    The usual case, ASCII only, needs no decoding of each value.
    """
    if b"".join(v for v in values if v is not None).isascii():
        return pa.array(values, pa.binary()).cast(arrow)
    return pa.array([None if v is None else as_python(v) for v in values], arrow)


def _is_utf8(charset: str | None) -> bool:
    return charset is not None and charset.lower() in ("utf8mb4", "utf8mb3", "utf8")


def span_text(micros: int, digits: int = 6) -> str:
    """Format a TIME as the server does, with `digits` decimals: `-838:59:59.000000`."""
    seconds, fraction = divmod(abs(micros), 1_000_000)
    text = (
        f"{'-' if micros < 0 else ''}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    )
    return f"{text}.{fraction:06}"[: len(text) + 1 + digits] if digits else text
