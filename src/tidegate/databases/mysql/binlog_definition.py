"""Recorded columns of tables, and their comparison with the table maps of the log.

Called by binlog_scan.py, binlog_rows.py and MySQL-CDC. The offset records a column as [name, type,
character set, nullable, key]: `key` is its position in the key that identifies rows, from 1 on,
negative if that is not the primary key, 0 if it is in none. Offsets of former versions have the
first three only: what is not recorded is not compared.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pymysql.charset import charset_by_id

from tidegate.databases.mysql.binlog_charsets import codec_of
from tidegate.databases.mysql.binlog_events import TableMap
from tidegate.databases.mysql.binlog_row_layout import LogColumn, fits
from tidegate.databases.types import base_and_sizes
from tidegate.model.errors import Unsupported

_WIDE = {
    "utf8mb4": 4,
    "utf8mb3": 3,
    "utf8": 3,
    "ucs2": 2,
    "utf16": 4,
    "utf16le": 4,
    "utf32": 4,
    "gbk": 2,
    "gb2312": 2,
    "gb18030": 4,
    "big5": 2,
    "sjis": 2,
}
_WIDE |= {"cp932": 2, "ujis": 3, "eucjpms": 3, "euckr": 2}
_BLOB_BYTES = {
    "tinyblob": 1,
    "tinytext": 1,
    "blob": 2,
    "text": 2,
    "mediumblob": 3,
    "mediumtext": 3,
    "longblob": 4,
    "longtext": 4,
}
_FRACTIONS = {"time": 19, "datetime": 18, "timestamp": 17}
_SAME_CHARSET = {"utf8": "utf8mb3"}
_BEYOND_BMP = re.compile("[\U00010000-\U0010ffff]")
_NUMBERS = {
    "tinyint",
    "smallint",
    "mediumint",
    "int",
    "integer",
    "bigint",
    "float",
    "double",
    "decimal",
    "numeric",
}
Charsets = Callable[[int], str | None]
"""The character set of a collation by its number; None if unknown."""


@dataclass(frozen=True, slots=True)
class RecordedColumn:
    """A column as the offset records it; None for what former versions did not record."""

    log: LogColumn
    nullable: bool | None = None
    key: int | None = None

    def json(self) -> list[Any]:
        """Return the form that the offset keeps."""
        return [*self.log.json(), self.nullable, self.key]


Recorded = tuple[RecordedColumn, ...]


def recorded(document: Sequence[Sequence[Any]]) -> Recorded:
    return tuple(RecordedColumn(LogColumn(*entry[:3]), *entry[3:5]) for entry in document)


def is_complete(columns: Recorded) -> bool:
    """Return whether everything is recorded that this version compares."""
    return all(c.nullable is not None and c.key is not None for c in columns)


def key_of(columns: Recorded) -> tuple[str, ...]:
    """Return the columns that identify rows, in order."""
    return tuple(
        c.log.name for c in sorted((c for c in columns if c.key), key=lambda c: abs(c.key or 0))
    )


def known_charset(collation: int) -> str | None:
    """Return the character set by the client library's list, without a query."""
    try:
        return str(charset_by_id(collation).name)  # type: ignore[attr-defined]  # the stubs lack it
    except KeyError:
        return None


def difference(table_map: TableMap, columns: Recorded, charset: Charsets = known_charset) -> str:
    """Describe how a table in the log differs from what is recorded.

    The text is human-readable; it is empty if there is no difference.
    """
    count = len(table_map.types)
    if count != len(columns):
        return (
            f"it has {count} columns in the log, and {len(columns)} are recorded"
            f" ({', '.join(c.log.name for c in columns)})"
        )
    for number, column in enumerate(columns):
        if wrong := _column_difference(table_map, number, column, charset):
            return f"column {number + 1}, {column.log.name} {column.log.type}, {wrong}"
    key = table_map.metadata.key
    ours = tuple(
        n
        for n, c in sorted(enumerate(columns), key=lambda item: item[1].key or 0)
        if (c.key or 0) > 0
    )
    if (
        key is not None
        and all(c.key is not None for c in columns)
        and not any((c.key or 0) < 0 for c in columns)
        and key != ours
    ):
        names = [c.log.name for c in columns]
        return (
            f"its primary key is ({', '.join(names[n] for n in key)}) in the log, and"
            f" ({', '.join(names[n] for n in ours)}) is recorded"
        )
    return ""


def _column_difference(
    table_map: TableMap, number: int, column: RecordedColumn, charset: Charsets
) -> str:
    meta, log = table_map.metadata, column.log
    if meta.names is not None and meta.names[number] != log.name:
        return f"is called {meta.names[number]} in the log"
    kind, parameter = table_map.types[number], table_map.metas[number]
    expected = _expected(log)
    if not fits(log, kind) or (
        expected is not None and expected[0] == kind and expected[1] != parameter
    ):
        return f"has the type {kind} with the parameter {parameter} in the log" + (
            f" instead of {expected[0]} with {expected[1]}" if expected else ""
        )
    if meta.unsigned is not None and log.word in _NUMBERS and meta.unsigned[number] != log.unsigned:
        return f"is {'unsigned' if meta.unsigned[number] else 'signed'} in the log"
    if column.nullable is not None and meta.nullable[number] != column.nullable:
        return f"is {'nullable' if meta.nullable[number] else 'not nullable'} in the log"
    return _text_difference(meta.collations[number], meta.labels[number], log, charset)


def _text_difference(
    collation: int | None, labels: tuple[bytes, ...] | None, log: LogColumn, charset: Charsets
) -> str:
    found = charset(collation) if collation is not None else None
    if (
        found is not None
        and log.charset is not None
        and _SAME_CHARSET.get(found, found) != _SAME_CHARSET.get(log.charset, log.charset)
    ):
        return f"has the character set {found} in the log"
    if labels is None or not log.charset:
        return ""
    try:
        texts = tuple(label.decode(codec_of(log.charset)) for label in labels)
    except (
        Unsupported,
        UnicodeDecodeError,
    ):  # a label that cannot be read is no label that is recorded
        texts = ()
    shown = tuple(_BEYOND_BMP.sub("?", text) for text in texts)  # as the catalogue shows them
    return (
        ""
        if shown == log.labels
        else f"has the labels {', '.join(map(repr, texts or labels))} in the log"
    )


def _expected(column: LogColumn) -> tuple[int, int] | None:
    """Return the type byte and its parameter that a column must have in the log.

    None if only the type is certain.
    """
    word, (_, sizes) = column.word, base_and_sizes(column.type)
    size = sizes[0] if sizes else 0
    wide = _WIDE.get(column.charset or "", 1)
    match word:
        case "decimal" | "numeric" if len(sizes) == 2:
            return 246, size << 8 | sizes[1]
        case "time" | "datetime" | "timestamp":
            return _FRACTIONS[word], size
        case "char" | "binary" if sizes:
            length = size * (wide if word == "char" else 1)
            return 254, (254 ^ (length & 0x300) >> 4) << 8 | length & 255
        case "varchar" | "varbinary" if sizes:
            return 15, size * (wide if word == "varchar" else 1)
        case "enum":
            return 254, 247 << 8 | (1 if len(column.labels) < 256 else 2)
        case "set":
            count = (len(column.labels) + 7) // 8
            return 254, 248 << 8 | (8 if count > 4 else count)
        case "bit" if sizes:
            return 16, size % 8 << 8 | size // 8
        case text if text in _BLOB_BYTES:
            return 252, _BLOB_BYTES[text]
        case _:
            return None


class MapChecker:
    """Compares table maps with what is recorded, each different one once."""

    def __init__(self, tables: Mapping[str, Recorded], charset: Charsets = known_charset) -> None:
        self._tables = tables
        self._charset = charset
        self._checked: dict[int, tuple[TableMap, str]] = {}

    def difference(self, table_map: TableMap, path: str) -> str:
        """Return `difference` for a table that is read.

        The event reader returns the same object for the same bytes, which makes this cheap.
        """
        checked = self._checked.get(table_map.table_id)
        if checked is None or checked[0] is not table_map:
            checked = self._checked[table_map.table_id] = (
                table_map,
                difference(table_map, self._tables[path], self._charset),
            )
        return checked[1]
