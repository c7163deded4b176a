r"""Format Arrow columns as text, without Python per row for plain types.

Called by the csv, text and json encoders. Nested values follow SeaTunnel's text syntax: levels are
separated by \002, \003, ... below the field delimiter.
"""

import base64
import datetime
import json
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.connectors.localfile.option_syntax import to_strptime
from tidegate.model.errors import TerminalError

_LEVELS = [chr(code) for code in range(2, 8)]
_TOKENS = re.compile(r"'(?P<quoted>[^']*)'|(?P<letters>([A-Za-z])\3*)|(?P<other>.)", re.DOTALL)
_CANONICAL = {
    "yyyy": (0, 4),
    "uuuu": (0, 4),
    "yy": (2, 4),
    "MM": (5, 7),
    "dd": (8, 10),
    "HH": (11, 13),
    "mm": (14, 16),
    "ss": (17, 19),
}
_CANONICAL_WIDTH = len("2000-01-01 00:00:00.000000000")


class NotText(TerminalError):
    """A value that cannot be written as text."""

    condition = "not-text"


@dataclass(frozen=True, slots=True)
class TimeFormats:
    """Time patterns of the job file."""

    date: str
    datetime: str
    time: str


def plain_text(array: Any, formats: TimeFormats) -> Any:
    """Format a column as strings; nulls stay null."""
    kind = array.type
    if pa.types.is_string(kind):
        return array
    if pa.types.is_nested(kind):
        return pa.array(
            [None if v is None else nested_text(v, kind, formats, 0) for v in array.to_pylist()],
            pa.string(),
        )
    if pa.types.is_binary(kind):
        return _decoded(array)
    if pa.types.is_date(kind):
        return temporal_text(array, formats.date)
    if pa.types.is_time(kind):
        return temporal_text(array, formats.time)
    if pa.types.is_timestamp(kind):
        return temporal_text(array, formats.datetime)
    return _float_text(array) if pa.types.is_floating(kind) else array.cast(pa.string())


def _float_text(array: Any) -> Any:
    """Format floating numbers as SeaTunnel does: `80.0` instead of `80`, NaN, Infinity."""
    text = array.cast(pa.string())
    whole = pc.match_substring_regex(text, r"^-?[0-9]+$")
    if pc.any(whole).as_py():
        text = pc.if_else(
            pc.fill_null(whole, False), pc.binary_join_element_wise(text, ".0", ""), text
        )
    if pc.all(pc.is_finite(array)).as_py() in (True, None):
        return text
    names = pc.if_else(
        pc.is_nan(array),
        "NaN",
        pc.if_else(pc.greater(array, pa.scalar(0.0, array.type)), "Infinity", "-Infinity"),
    )
    return pc.if_else(pc.is_finite(array), text, names)


def _decoded(array: Any) -> Any:
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        raise NotText(
            "a column of bytes contains bytes that are not UTF-8: write parquet, orc or json files,"
            " or encode the column first"
        ) from None


def temporal_text(array: Any, pattern: str) -> Any:
    """Format dates, times and timestamps by a Java time pattern; zoned timestamps in UTC.

    Cuts pieces out of the canonical form, so no Python runs per row.
    """
    canonical = _canonical_text(array)
    parts: list[Any] = []
    for token in _TOKENS.finditer(pattern):
        letters = token["letters"]
        if letters is None:
            parts.append(token["quoted"] or "'" if token["quoted"] is not None else token["other"])
        elif set(letters) == {"S"}:
            parts.append((20, 20 + min(len(letters), 9)))
        elif letters in _CANONICAL:
            parts.append(_CANONICAL[letters])
        else:
            raise NotText(
                f"{letters!r} in the time pattern {pattern!r} is not supported: use yyyy MM dd HH"
                " mm ss SSS"
            )
    pieces = [
        pc.binary_slice(canonical, *p).cast(pa.string()) if isinstance(p, tuple) else p
        for p in _merged(parts)
    ]
    return pc.binary_join_element_wise(*pieces, "") if len(pieces) > 1 else pieces[0]


def _merged(parts: list[Any]) -> list[Any]:
    """Merge pieces that are adjacent in the canonical form.

    `yyyy-MM-dd HH:mm:ss` becomes one piece.
    """
    shape = "0000-00-00 00:00:00.000000000"
    merged: list[Any] = []
    for part in parts:
        before = merged[-1] if merged else None
        if (
            isinstance(part, str)
            and isinstance(before, tuple)
            and shape[before[1] : before[1] + len(part)] == part
            and part not in "0"
        ):
            merged[-1] = (before[0], before[1] + len(part))
        elif isinstance(part, tuple) and isinstance(before, tuple) and before[1] == part[0]:
            merged[-1] = (before[0], part[1])
        elif isinstance(part, str) and isinstance(before, str):
            merged[-1] = before + part
        else:
            merged.append(part)
    return merged


def _canonical_text(array: Any) -> Any:
    """Format as `2000-01-01 00:00:00.000000000`, binary, always of this width."""
    kind = array.type
    if pa.types.is_time(kind):
        text = pc.binary_join_element_wise(
            "1970-01-01 ", array.cast(pa.time64("ns")).cast(pa.string()), ""
        )
    elif pa.types.is_date(kind):
        text = pc.binary_join_element_wise(
            array.cast(pa.date32()).cast(pa.string()), " 00:00:00.000000000", ""
        )
    else:
        plain = array.cast(pa.timestamp("us", tz=kind.tz))
        plain = pc.local_timestamp(plain) if kind.tz else plain
        text = pc.binary_join_element_wise(plain.cast(pa.string()), "000", "")
    width: Any = pc.min_max(pc.binary_length(text)).as_py()
    if width["min"] is not None and (width["min"], width["max"]) != (
        _CANONICAL_WIDTH,
        _CANONICAL_WIDTH,
    ):
        raise NotText(
            "a date or timestamp outside the years 0000 to 9999 cannot be written as text"
        )
    return text.cast(pa.binary())


def nested_text(value: Any, kind: Any, formats: TimeFormats, level: int) -> str:
    """Format an array, a map, a row, or a value inside of one."""
    if value is None:
        return ""
    if level + 1 >= len(_LEVELS):
        raise NotText(
            f"values are nested more than {len(_LEVELS) - 1} levels deep: they cannot be written as"
            " text"
        )
    if pa.types.is_map(kind):
        pairs = (
            (
                nested_text(k, kind.key_type, formats, level + 1),
                nested_text(v, kind.item_type, formats, level + 1),
            )
            for k, v in value
        )
        return _LEVELS[level].join(f"{k}{_LEVELS[level + 1]}{v}" for k, v in pairs)
    if pa.types.is_struct(kind):
        return _LEVELS[level].join(
            nested_text(value[f.name], f.type, formats, level + 1) for f in kind
        )
    if pa.types.is_list(kind):
        return _LEVELS[level].join(
            nested_text(v, kind.value_type, formats, level + 1) for v in value
        )
    return _scalar_text(value, formats)


def _scalar_text(value: Any, formats: TimeFormats) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return value.decode(errors="replace")
        case Decimal():
            return f"{value:f}"
        case datetime.datetime():
            return _python_time(value, formats.datetime)
        case datetime.date():
            return value.strftime(to_strptime(formats.date))
        case datetime.time():
            return _python_time(value, formats.time)
        case _:
            return str(value)


def _python_time(value: Any, pattern: str) -> str:
    column = pa.array(
        [value],
        (
            pa.time64("us")
            if isinstance(value, datetime.time)
            else pa.timestamp("us", tz="UTC" if value.tzinfo else None)
        ),
    )
    return str(temporal_text(column, pattern)[0].as_py())


def json_text(array: Any) -> Any:
    """Format a column as JSON values; nulls stay null.

    Temporal values become ISO 8601 text, bytes base64.
    """
    kind = array.type
    if pa.types.is_string(kind):
        return _json_strings(array)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return array.cast(pa.string())
    if pa.types.is_floating(kind):
        return _json_floats(array)
    if pa.types.is_nested(kind):
        return pa.array(
            [
                None if v is None else json.dumps(_json_value(v, kind), ensure_ascii=False)
                for v in array.to_pylist()
            ],
            pa.string(),
        )
    if pa.types.is_binary(kind):
        return pa.array(
            [
                None if v is None else json.dumps(base64.b64encode(v).decode())
                for v in array.to_pylist()
            ],
            pa.string(),
        )
    if pa.types.is_null(kind):
        return array.cast(pa.string())
    return pc.binary_join_element_wise('"', _iso_text(array), '"', "")


def _json_strings(array: Any) -> Any:
    quoted = pc.binary_join_element_wise('"', array, '"', "")
    special = pc.match_substring_regex(array, r'["\\\x00-\x1f]')
    if not pc.any(special).as_py():
        return quoted
    special = pc.fill_null(special, False)
    escaped = pa.array(
        [json.dumps(v, ensure_ascii=False) for v in array.filter(special).to_pylist()], pa.string()
    )
    return pc.replace_with_mask(quoted, special, escaped)


def _json_floats(array: Any) -> Any:
    """Format floats; NaN and infinity, which JSON lacks, become text."""
    text = array.cast(pa.string())
    odd = pc.invert(pc.is_finite(array))
    if not pc.any(odd).as_py():
        return text
    names = pc.if_else(
        pc.is_nan(array),
        '"NaN"',
        pc.if_else(pc.greater(array, pa.scalar(0.0, array.type)), '"Infinity"', '"-Infinity"'),
    )
    return pc.if_else(odd, names, text)


def _iso_text(array: Any) -> Any:
    kind = array.type
    if pa.types.is_date(kind):
        return array.cast(pa.string())
    if pa.types.is_time(kind):
        return temporal_text(array, "HH:mm:ss.SSSSSS")
    return temporal_text(array, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS" + ("'Z'" if kind.tz else ""))


def _json_value(value: Any, kind: Any) -> Any:
    """Convert a nested Python value to what JSON supports.

    Keys of maps become text.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if value == value and abs(value) != float("inf") else str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case dict():
            return {f.name: _json_value(value[f.name], f.type) for f in kind}
        case _ if pa.types.is_map(kind):
            return {_json_key(k): _json_value(v, kind.item_type) for k, v in value}
        case _:
            return [_json_value(v, kind.value_type) for v in value]


def _json_key(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return key.isoformat() if isinstance(key, datetime.date | datetime.time) else str(key)
