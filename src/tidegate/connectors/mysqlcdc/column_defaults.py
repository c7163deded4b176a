"""Values that existing rows get when a column is added: its default, or a zero.

Called by source.py, in the driver. The catalogue has the current default, the log the one of the
statement: the values of existing rows are certain only if both are the same.
"""

import re
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any

from tidegate.databases.cdc.column_defaults import (
    NUMBERS,
    UNKNOWN,
    ColumnDefaults,
    implicit_default,
    parse_constant,
)
from tidegate.databases.cdc.selection import CdcTable
from tidegate.databases.mysql.binlog_alter import AddedColumn
from tidegate.databases.mysql.binlog_ddl import TableStatement
from tidegate.databases.mysql.binlog_lexer import NO_BACKSLASH_ESCAPES, SqlTokenKind
from tidegate.databases.mysql.binlog_row_layout import LogColumn
from tidegate.databases.session import Session
from tidegate.databases.types import base_and_sizes
from tidegate.model.types import DataType, TypeName

_DEFAULTS = (
    "select column_name, column_default, is_nullable, extra, column_type from"
    " information_schema.columns where table_schema = %s and table_name = %s"
)
_COMPUTED = (
    "auto_increment",
    "generated",
    "current_timestamp",
    "invisible",
    "without system versioning",
)
_ESCAPES = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "Z": "\x1a"}
_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(\.\d{1,6})?)?")
_MOMENT = re.compile(r"(\d{4})-(\d\d?)-(\d\d?)(?:[ T](\d\d?):(\d\d?)(?::(\d\d?)(\.\d{1,6})?)?)?")
NOT_GIVEN = object()
_ZERO_IS_EMPTY = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set")


def read_column_defaults(session: Session, cdc_table: CdcTable) -> ColumnDefaults:
    """Return the defaults of the catalogue, by column."""
    types = {c.name: c.type for c in cdc_table.table.columns}
    name = cdc_table.info.name
    # MariaDB writes strings in quotes, and null as a word.
    quotes = "mariadb" in str(session.scalar("select version()")).lower()
    rows = session.query(_DEFAULTS, (name.database, name.table))
    return {
        column: _value(
            default, nullable == "YES", str(extra or "").lower(), types[column], str(native), quotes
        )
        for column, default, nullable, extra, native in rows
        if column in types
    }


def _value(
    default: Any, nullable: bool, extra: str, kind: DataType, native: str, quotes: bool
) -> Any:
    if any(word in extra for word in _COMPUTED):
        return UNKNOWN
    if default is None or (quotes and str(default).upper() == "NULL"):
        return None if nullable else _zero(kind, native)
    constant = _constant(str(default), quotes)
    return UNKNOWN if constant is None else _written(constant, kind, native, quotes)


def _zero(kind: DataType, native: str) -> Any:
    """Return the value of existing rows in a NOT NULL column without a default."""
    word = LogColumn("", native).word
    match kind.name:
        case TypeName.TIME:
            return "00:00:00"
        case TypeName.BYTES:
            return (
                ""
                if word in ("varbinary", "tinyblob", "blob", "mediumblob", "longblob")
                else UNKNOWN
            )
        case TypeName.STRING if word in ("decimal", "numeric"):
            scale = (base_and_sizes(native)[1] + [0, 0])[1]
            return f"{Decimal(0):.{scale}f}"
        case TypeName.STRING if word not in _ZERO_IS_EMPTY:
            return UNKNOWN
        case _:
            return implicit_default(kind, LogColumn("", native).labels)


def _written(text: str, kind: DataType, native: str, quotes: bool) -> Any:
    """Return a default as a constant that sinks can apply."""
    match kind.name:
        case TypeName.TIME:
            return text if _TIME.fullmatch(text) else UNKNOWN
        case (
            TypeName.TIMESTAMP_TZ
        ):  # MariaDB shows it in our zone, MySQL in the one of the statement
            return parse_constant(f"{text}+00", kind) if quotes else UNKNOWN
        case TypeName.BYTES:
            return _bytes(text, native, quotes)
        case _:
            return parse_constant(text, kind)


def _bytes(text: str, native: str, quotes: bool) -> Any:
    """Return bytes if they have the same text in every encoding.

    MariaDB shows other bytes as question marks.
    """
    if LogColumn("", native).word == "bit" and text.isdigit():
        size = (base_and_sizes(native)[1] or [1])[0]
        data = int(text).to_bytes((size + 7) // 8, "big")
    elif not quotes and re.fullmatch(r"0x(?:[0-9A-Fa-f]{2})*", text):
        data = bytes.fromhex(text[2:])
        data += b"\0" if native.startswith("binary(") else b""  # it is filled up with zeros
    else:
        data = text.encode()
    return data.decode() if data.isascii() and not set(data) & set(b"\0\\?") else UNKNOWN


def _constant(text: str, quotes: bool) -> str | None:
    """Return the text of a constant; None for expressions."""
    if bits := re.fullmatch(r"b'([01]+)'", text):
        return str(int(bits[1], 2))
    if not quotes:
        return text
    if text.startswith("'") and text.endswith("'"):
        return _unescaped(text[1:-1])
    return text if re.fullmatch(r"[+-]?[\d.]+(?:[eE][+-]?\d+)?", text) else None


def _unescaped(text: str, quote: str = "'") -> str:
    return re.sub(
        rf"\\(.)|{quote}{quote}",
        lambda found: _ESCAPES.get(found[1], found[1]) if found[1] else quote,
        text,
        flags=re.DOTALL,
    )


def undefaultable(
    change: TableStatement,
    before: set[str],
    values: ColumnDefaults,
    types: Mapping[str, tuple[DataType, str]],
    is_last: Callable[[], bool],
) -> str:
    """Describe a new column whose value in existing rows is unknown; empty if there is none.

    `types` are those of the pipeline and of the catalogue, by column. `is_last` returns whether no
    statement about the table follows: then the catalogue has the default of this one.
    """
    for column in change.added:
        if column.name.lower() in before:
            continue
        name, value = next(
            ((n, v) for n, v in values.items() if n.lower() == column.name.lower()),
            (column.name, UNKNOWN),
        )
        if value is UNKNOWN:
            return f"the value of {column.name} in existing rows is unknown"
        if not _agrees(column, value, *types[name], change.sql_mode) and not is_last():
            return (
                f"the value of {column.name} in existing rows is unknown: its default was "
                "changed later"
            )
    return ""


def _agrees(column: AddedColumn, value: Any, kind: DataType, native: str, sql_mode: int) -> bool:
    """Return whether a definition certainly has this default."""
    declared = _default_of(column, sql_mode)
    if declared is NOT_GIVEN:
        return bool(value == _zero(kind, native))
    if declared is UNKNOWN:
        return False
    if declared is None or value is None:
        return declared is None and value is None
    try:
        return bool(
            _comparable(str(declared), kind)
            == _comparable(str(int(value)) if isinstance(value, bool) else str(value), kind)
        )
    except (InvalidOperation, ValueError):
        return False


def _default_of(column: AddedColumn, sql_mode: int) -> Any:
    """Return the constant after DEFAULT as text.

    None for null, UNKNOWN for anything but a constant, NOT_GIVEN if there is no DEFAULT and null is
    not allowed.
    """
    rest = list(column.definition)
    words = [t.value if t.kind is SqlTokenKind.WORD else "" for t in rest]
    if "default" not in words:
        return NOT_GIVEN if "not" in words else None
    rest = rest[words.index("default") + 1 :]
    sign = rest.pop(0).raw if rest and rest[0].raw in "+-" else ""
    if not rest:
        return UNKNOWN
    first = rest[0]
    if first.kind is SqlTokenKind.WORD:
        number = (
            first.raw + "".join(t.raw for t in rest[1:3])
            if len(rest) > 2 and rest[1].raw == "." and rest[2].raw[0].isdigit()
            else first.raw
        )
        if re.fullmatch(r"\d+(?:\.\d+)?(?:[eE]\d+)?", number):
            return sign + number
        return {"null": None, "true": "1", "false": "0"}.get(first.value, UNKNOWN)
    if first.kind is SqlTokenKind.TEXT and not sign:
        quote = first.raw[0]
        inside = first.raw[1:-1]
        return (
            inside.replace(quote * 2, quote)
            if sql_mode & NO_BACKSLASH_ESCAPES
            else _unescaped(inside, quote)
        )
    return UNKNOWN


def _comparable(text: str, kind: DataType) -> Any:
    """Return a constant in a form in which equal values are equal.

    Raises ValueError if it cannot be parsed.
    """
    match kind.name:
        case TypeName.DECIMAL:
            return Decimal(text).quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP)
        case TypeName.FLOAT | TypeName.DOUBLE:
            return float(text)
        case TypeName.BOOLEAN:
            return Decimal(text) != 0
        case name if name in NUMBERS:
            return Decimal(text).quantize(Decimal(1), ROUND_HALF_UP)
        case TypeName.DATE | TypeName.TIMESTAMP | TypeName.TIME:
            found = (_TIME if kind.name is TypeName.TIME else _MOMENT).fullmatch(text)
            if found is None:
                raise ValueError(text)
            return [Decimal(part or 0) for part in found.groups()]
        case TypeName.TIMESTAMP_TZ:
            raise ValueError("it is written in the time zone of its session")
        case _:
            return text
