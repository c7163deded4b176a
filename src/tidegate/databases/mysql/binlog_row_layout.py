"""A table as the log writes it: what the catalogue said of its columns, held against the layouts
that come in the log. Called by rows.py and by CDC.

Servers write names and signs of columns into their log only where binlog_row_metadata is FULL. So
the columns are remembered from the catalogue, in the offset, and a layout in the log that does not
fit them is an error and never a guess.
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
    """A quote or a character after a backslash, as the catalogue writes them in labels."""
    character = found[1]
    return _ESCAPES.get(character, character) if character else "'"


@dataclass(frozen=True, slots=True)
class LogColumn:
    """One column: its type as the catalogue writes it (`bigint(20) unsigned`) and its character
    set.
    """

    name: str
    type: str
    charset: str | None = None

    @property
    def word(self) -> str:
        """The type without its parameters."""
        return re.split(r"[\s(]", self.type.lower(), maxsplit=1)[0]

    @property
    def unsigned(self) -> bool:
        """Whether numbers begin at 0."""
        return "unsigned" in self.type.lower() or "zerofill" in self.type.lower()

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of an ENUM or a SET."""
        if self.word not in ("enum", "set"):
            return ()
        return tuple(_ESCAPED.sub(_unescaped, label) for label in _LABEL.findall(self.type))

    def json(self) -> list[Any]:
        """As an offset keeps it."""
        return [self.name, self.type, self.charset]


def log_columns(info: TableInfo) -> list[LogColumn]:
    """The columns of a table; Unsupported, with its name, for one that could not be read from the
    log.
    """
    found = []
    for column in info.columns:
        where = f"the column {column.name} of {info.name.path} ({column.native})"
        if _OLD_FORMAT in column.native and "(" in column.native:
            raise Unsupported(
                f"{where} keeps fractions of seconds in the format of MariaDB 5.3, which its log"
                " does not describe: set mysql56_temporal_format = ON and run ALTER TABLE"
                f" {info.name.path} FORCE"
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
"""The type bytes that a column of each type may have in the log; types of blobs, texts and shapes
are looked up by their ending.
"""
_BLOBS = (140, 249, 250, 251, 252, 255)


def fits(column: LogColumn, type_byte: int) -> bool:
    """Whether a column of the catalogue can look like this in the log."""
    return type_byte in _TYPES.get(column.word, _BLOBS)
