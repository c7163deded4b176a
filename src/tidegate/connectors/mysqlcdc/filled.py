"""What MariaDB and MySQL put into the rows of a table that gets a column: its default, or a zero. Called by source.py, in the driver."""

import re
from typing import Any

from tidegate.databases.binlog.ddl import TableStatement
from tidegate.databases.binlog.layout import LogColumn
from tidegate.databases.capture.filled import UNKNOWN, Filled, plain, zero
from tidegate.databases.capture.selection import CaptureTable
from tidegate.databases.session import Session
from tidegate.model.types import DataType

_DEFAULTS = "select column_name, column_default, is_nullable, extra, column_type from information_schema.columns where table_schema = %s and table_name = %s"
_COMPUTED = ("auto_increment", "generated", "current_timestamp", "invisible", "without system versioning")


def filled(session: Session, captured: CaptureTable) -> Filled:
    """By column, as the catalogue tells it now."""
    types = {c.name: c.type for c in captured.table.columns}
    name = captured.info.name
    quotes = "mariadb" in str(session.one("select version()")).lower()  # it writes texts in quotes, and null as a word
    rows = session.query(_DEFAULTS, (name.database, name.table))
    return {
        column: _value(default, nullable == "YES", str(extra or "").lower(), types[column], str(native), quotes)
        for column, default, nullable, extra, native in rows
        if column in types
    }


def _value(default: Any, nullable: bool, extra: str, kind: DataType, native: str, quotes: bool) -> Any:
    if any(word in extra for word in _COMPUTED):
        return UNKNOWN
    if default is None or (quotes and str(default).upper() == "NULL"):
        return None if nullable else zero(kind, LogColumn("", native).labels)
    constant = _constant(str(default), quotes)
    return UNKNOWN if constant is None else plain(constant, kind)


def _constant(text: str, quotes: bool) -> str | None:
    """The text of a constant; None for what is computed."""
    if bits := re.fullmatch(r"b'([01]+)'", text):
        return str(int(bits[1], 2))
    if not quotes:
        return text
    if text.startswith("'") and text.endswith("'"):
        return re.sub(r"\\(.)|''", lambda found: found[1] or "'", text[1:-1])
    return text if re.fullmatch(r"[+-]?[\d.]+(?:[eE][+-]?\d+)?", text) else None


def why_not(change: TableStatement, before: set[str], values: Filled) -> str:
    """Which new column of a statement cannot be carried to the rows of before, in words; empty where all can."""
    for name, definition in change.added:
        if name.lower() in before:
            continue
        value = next((v for n, v in values.items() if n.lower() == name.lower()), UNKNOWN)
        if value is UNKNOWN or not _agrees(definition, value):
            return f"what the rows of before have in {name} cannot be told"
    return ""


def _agrees(definition: str, value: Any) -> bool:
    """The catalogue tells the default of now: it must be that of the statement."""
    given = re.search(r"\bdefault\s+(?!null\b)(.*)", definition, re.IGNORECASE | re.DOTALL)
    if given is None:
        return value in (None, False, "0", "") or "enum" in definition.lower()
    if isinstance(value, bool):
        return re.match(r"\(?(?:1|true|b'1'|'1')" if value else r"\(?(?:0|false|b'0'|'0')", given[1], re.IGNORECASE) is not None
    return value is not None and (str(value) in given[1] or str(value).replace("'", "''") in given[1])
