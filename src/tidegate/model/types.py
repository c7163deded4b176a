"""The types of a job file's schema (`bigint`, `decimal(10,2)`, `map<string,int>`, nested rows) and
the tables made of them.

Read by everything; knows neither Arrow nor Spark (plugin/arrow.py and spark/types.py translate).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tidegate.model.problem import nearest

ROW_KIND = "__row_kind"
"""The column that carries a row's kind (int8, a RowKind) where a stream has changes and not only
inserts.
"""


class RowKind(StrEnum):
    """What a row means, by its short name; `code` is what travels in the ROW_KIND column."""

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
        """By short or long name, any case: `+I`, `INSERT`."""
        for kind in RowKind:
            if text.upper() in (kind.value, kind.name):
                return kind
        raise ValueError(
            f"{text!r} is no row kind: one of {', '.join(f'{k.name} ({k.value})' for k in RowKind)}"
        )


class TypeName(StrEnum):
    """Every type that a schema can name."""

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
"""Other words that the reference takes."""

SIMPLE = [
    t.value
    for t in TypeName
    if t not in (TypeName.DECIMAL, TypeName.ARRAY, TypeName.MAP, TypeName.ROW)
]


@dataclass(frozen=True, slots=True)
class DataType:
    """A type. `children` is the element of an array, key and value of a map, nothing else;
    `columns` the columns of a row.
    """

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

    `path` is its name as sinks see it (`db.schema.t`); `kinds` tells whether ROW_KIND travels
    along.
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
        """The column names in order."""
        return [c.name for c in self.columns]


def parse_type(text: Any) -> DataType:
    """A type as written in a job file: text, or a mapping for a nested row.

    ValueError says what is wrong, in words for a person.
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
    head = re.match(r"[A-Za-z0-9_]*", compact).group().lower()  # type: ignore[union-attr]  # the pattern matches everything
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
    close = nearest(head, [t.value for t in TypeName])
    return f"unknown type {text!r}" + (
        f"; did you mean {close!r}?" if close and close != head else ""
    )


def _parse_decimal(text: str, rest: str) -> DataType:
    sizes = re.fullmatch(r"\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", rest)
    if not rest:
        return DataType(TypeName.DECIMAL, precision=38, scale=18)
    if not sizes:
        raise ValueError(f"{text!r} is no decimal: write decimal(10, 2)")
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
    """A row as a block in text: `{a = int, b = "map<string, int>"}`, one column a line or between
    commas, quotes or not.
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
    """Split at separators that are in no bracket."""
    parts, depth, last = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "<({") - (c in ">)}")
        if c in separators and depth == 0:
            parts.append(text[last:i])
            last = i + 1
    return [*parts, text[last:]]
