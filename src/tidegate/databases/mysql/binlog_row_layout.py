"""Columns of the catalogue, and which layouts of the log fit them.

Called by binlog_rows.py and by MySQL-CDC. Servers write names and signs of columns into their log
only if binlog_row_metadata is FULL. So the offset records the columns of the catalogue, and a
layout in the log that does not fit them is an error: nothing is guessed.
"""

import re
from dataclasses import dataclass
from typing import Any

from tidegate.databases.catalog import TableInfo
from tidegate.databases.mysql.binlog_charsets import codec_of
from tidegate.model.errors import Unsupported

_LABEL = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_ESCAPED = re.compile(r"''|\\(.)", re.DOTALL)
_ESCAPES = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "Z": "\x1a"}
_OLD_FORMAT = "/* mariadb-5.3 */"


def _unescaped(found: re.Match[str]) -> str:
    """Return a quote or escaped character, as the catalogue writes them in labels."""
    character = found[1]
    return _ESCAPES.get(character, character) if character else "'"


@dataclass(frozen=True, slots=True)
class LogColumn:
    """A column of a table in the log.

    The type is as the catalogue writes it (`bigint(20) unsigned`).
    """

    name: str
    type: str
    charset: str | None = None

    @property
    def word(self) -> str:
        """The name of the type without its parameters."""
        return re.split(r"[\s(]", self.type.lower(), maxsplit=1)[0]

    @property
    def unsigned(self) -> bool:
        """Whether the type has no negative numbers."""
        return "unsigned" in self.type.lower() or "zerofill" in self.type.lower()

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of an ENUM or SET; else empty."""
        if self.word not in ("enum", "set"):
            return ()
        return tuple(_ESCAPED.sub(_unescaped, label) for label in _LABEL.findall(self.type))

    def json(self) -> list[Any]:
        """Return the form that the offset keeps."""
        return [self.name, self.type, self.charset]


def log_columns(info: TableInfo) -> list[LogColumn]:
    """Return the columns of a table; Unsupported for one that the log cannot provide."""
    found = []
    for column in info.columns:
        where = f"the column {column.name} of {info.name.path} ({column.native})"
        if _OLD_FORMAT in column.native and "(" in column.native:
            raise Unsupported(
                f"{where} stores fractions of seconds in the format of MariaDB 5.3, which its "
                "log does not describe: set mysql56_temporal_format = ON and run ALTER TABLE "
                f"{info.name.path} FORCE"
            )
        if column.charset not in ("", "binary"):
            try:
                codec_of(column.charset)
            except Unsupported as error:
                raise Unsupported(f"{where}: {error}") from None
        found.append(LogColumn(column.name, column.native, column.charset or None))
    return found


_TYPES: dict[str, tuple[int, ...]] = {
    "tinyint": (1,),
    "smallint": (2,),
    "mediumint": (9,),
    "int": (3,),
    "integer": (3,),
    "bigint": (8,),
    "float": (4,),
    "double": (5,),
    "decimal": (246,),
    "numeric": (246,),
    "year": (13,),
    "date": (10, 14),
    "datetime": (12, 18),
    "timestamp": (7, 17),
    "time": (11, 19),
    "char": (254,),
    "binary": (254,),
    "enum": (254, 247),
    "set": (254, 248),
    "uuid": (254,),
    "inet4": (254,),
    "inet6": (254,),
    "varchar": (15, 253, 141),
    "varbinary": (15, 253, 141),
    "vector": (242, 15, 253),
    "bit": (16,),
    "json": (245, 252),
}
"""The type bytes that a column of each type may have in the log; other types, such as blobs and
geometries, may have those of `_BLOBS`.
"""
_BLOBS = (140, 249, 250, 251, 252, 255)


def fits(column: LogColumn, type_byte: int) -> bool:
    """Return whether a column of the catalogue can have this type byte in the log."""
    return type_byte in _TYPES.get(column.word, _BLOBS)
