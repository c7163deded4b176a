"""A table as the log writes it: what the catalogue said of its columns, held against the layouts that come in the log. Called by rows.py and by CDC.

Servers write names and signs of columns into their log only where binlog_row_metadata is FULL. So the columns are remembered from the catalogue, in the
offset, and a layout in the log that does not fit them is an error and never a guess.
"""

import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class LogColumn:
    """One column: its type as the catalogue writes it (`bigint(20) unsigned`) and its character set."""

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
        return tuple(label.replace("''", "'") for label in re.findall(r"'((?:[^']|'')*)'", self.type))

    def json(self) -> list[Any]:
        """As an offset keeps it."""
        return [self.name, self.type, self.charset]


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
    "varchar": (15, 253),
    "varbinary": (15, 253),
    "bit": (16,),
    "json": (245, 252),
}
"""The type bytes that a column of each type may have in the log; types of blobs, texts and shapes are looked up by their ending."""
_BLOBS = (249, 250, 251, 252, 255)


def fits(column: LogColumn, type_byte: int) -> bool:
    """Whether a column of the catalogue can look like this in the log."""
    return type_byte in _TYPES.get(column.word, _BLOBS)
