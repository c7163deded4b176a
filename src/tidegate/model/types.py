"""Types of a job file's schema (`bigint`, `decimal(10,2)`, nested rows) and its tables.

Read by all packages; independent of Arrow and Spark (plugin/arrow.py and spark/types.py translate).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tidegate.model.problem import closest_match

ROW_KIND = "__row_kind"
"""The column with a row's kind (int8, a RowKind) in streams that have more than inserts."""


class RowKind(StrEnum):
    """The kind of a row, by its short name; `code` is the value in the ROW_KIND column."""

    INSERT = "+I"
    UPDATE_BEFORE = "-U"
    UPDATE_AFTER = "+U"
    DELETE = "-D"

    @property
    def code(self) -> int:
        """The number in the ROW_KIND column."""
        return list(RowKind).index(self)

    @staticmethod
    def parse(text: str) -> "RowKind":
        """Parse a short or long name in any case: `+I`, `INSERT`."""
        for kind in RowKind:
            if text.upper() in (kind.value, kind.name):
                return kind
        raise ValueError(
            f"{text!r} is not a row kind; use one of"
            f" {', '.join(f'{k.name} ({k.value})' for k in RowKind)}"
        )


class TypeName(StrEnum):
    """All types that a schema can name."""

    STRING = "string"
    BOOLEAN = "boolean"
    TINYINT = "tinyint"
    SMALLINT = "smallint"
    INT = "int"
    BIGINT = "bigint"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    NULL = "null"
    BYTES = "bytes"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    TIMESTAMP_TZ = "timestamp_tz"
    ARRAY = "array"
    MAP = "map"
    ROW = "row"
    BINARY_VECTOR = "binary_vector"
    FLOAT_VECTOR = "float_vector"
    FLOAT16_VECTOR = "float16_vector"
    BFLOAT16_VECTOR = "bfloat16_vector"
    SPARSE_FLOAT_VECTOR = "sparse_float_vector"


ALIASES = {"byte": "tinyint", "short": "smallint", "long": "bigint", "integer": "int"}
"""Other names that SeaTunnel accepts."""

SIMPLE = [
    t.value
    for t in TypeName
    if t not in (TypeName.DECIMAL, TypeName.ARRAY, TypeName.MAP, TypeName.ROW)
]


@dataclass(frozen=True, slots=True)
class DataType:
    """A type; `children` of an array or a map (key, value), `columns` of a row."""

    name: TypeName
    precision: int = 0
    scale: int = 0
    children: tuple["DataType", ...] = ()
    columns: tuple["Column", ...] = ()

    def __str__(self) -> str:
        match self.name:
            case TypeName.DECIMAL:
                return f"decimal({self.precision},{self.scale})"
            case TypeName.ARRAY:
                return f"array<{self.children[0]}>"
            case TypeName.MAP:
                return f"map<{self.children[0]},{self.children[1]}>"
            case TypeName.ROW:
                return "row<" + ",".join(f"{c.name} {c.type}" for c in self.columns) + ">"
            case _:
                return self.name.value


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One column of a table or of a nested row."""

    name: str
    type: DataType
    nullable: bool = True
    default: Any = None
    comment: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A table as it flows through a pipeline.

    `path` is its name as sinks see it (`db.schema.t`); `kinds` says whether it has the ROW_KIND
    column.
    """

    path: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    unique_key: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    comment: str = ""
    kinds: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def names(self) -> list[str]:
        """Return the column names in order."""
        return [c.name for c in self.columns]


def parse_type(text: Any) -> DataType:
    """Parse a type as written in a job file: text, or a mapping for a nested row.

    Raises ValueError with a message for users.
    """
    if isinstance(text, Mapping):
        return DataType(
            TypeName.ROW,
            columns=tuple(Column(name=str(k), type=parse_type(v)) for k, v in text.items()),
        )
    if not isinstance(text, str):
        raise ValueError(f"a type is a word such as bigint, not {text!r}")
    compact = text.strip()
    if compact.startswith("{") and compact.endswith("}"):
        return _parse_block(text, compact[1:-1])
    prefix = re.match(r"[A-Za-z0-9_]*", compact)
    assert prefix is not None, "the pattern matches the empty string"
    head = prefix.group().lower()
    rest = compact[len(head) :].strip()
    match head:
        case "decimal":
            return _parse_decimal(text, rest)
        case "array" | "map" if rest.startswith("<") and rest.endswith(">"):
            return _parse_generic(text, head, rest[1:-1])
        case "row" if rest.startswith("<") and rest.endswith(">"):
            return _parse_row(text, rest[1:-1])
    if rest == "" and ALIASES.get(head, head) in SIMPLE:
        return DataType(TypeName(ALIASES.get(head, head)))
    raise ValueError(_unknown(text, head))


def _unknown(text: str, head: str) -> str:
    close = closest_match(head, [t.value for t in TypeName])
    return f"unknown type {text!r}" + (
        f"; did you mean {close!r}?" if close and close != head else ""
    )


def _parse_decimal(text: str, rest: str) -> DataType:
    sizes = re.fullmatch(r"\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", rest)
    if not rest:
        return DataType(TypeName.DECIMAL, precision=38, scale=18)
    if not sizes:
        raise ValueError(f"{text!r} is not a decimal type: write decimal(10, 2)")
    precision, scale = int(sizes[1]), int(sizes[2] or 0)
    if not (1 <= precision <= 38 and scale <= precision):
        raise ValueError(f"{text!r}: precision is 1 to 38 and scale at most the precision")
    return DataType(TypeName.DECIMAL, precision=precision, scale=scale)


def _parse_generic(text: str, head: str, inside: str) -> DataType:
    parts = _split_top(inside)
    if len(parts) != (1 if head == "array" else 2):
        raise ValueError(f"{text!r}: write {'array<T>' if head == 'array' else 'map<K, V>'}")
    return DataType(TypeName(head), children=tuple(parse_type(p) for p in parts))


def _parse_row(text: str, inside: str) -> DataType:
    columns = []
    for part in _split_top(inside):
        name, _, kind = part.strip().partition(" ")
        if not kind:
            raise ValueError(f"{text!r}: write row<name type, ...>")
        columns.append(Column(name=name, type=parse_type(kind)))
    return DataType(TypeName.ROW, columns=tuple(columns))


def _parse_block(text: str, inside: str) -> DataType:
    """Parse a row written as a block in text: `{a = int, b = "map<string, int>"}`.

    One column a line or separated by commas, with or without quotes.
    """
    columns = []
    for part in filter(str.strip, _split_top(inside, ",\n")):
        pair = re.fullmatch(
            r"""\s*(?:"([^"]*)"|([^\s"=:{]+))\s*[=:]?\s*(.*?)\s*""", part, re.DOTALL
        )
        if not pair or not pair[3]:
            raise ValueError(f"{text!r}: write {{name = type, ...}}")
        columns.append(Column(name=pair[1] or pair[2], type=parse_type(pair[3].strip('"'))))
    return DataType(TypeName.ROW, columns=tuple(columns))


def _split_top(text: str, separators: str = ",") -> list[str]:
    """Split at separators that are outside of brackets."""
    parts, depth, last = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "<({") - (c in ">)}")
        if c in separators and depth == 0:
            parts.append(text[last:i])
            last = i + 1
    return [*parts, text[last:]]
