"""Values that an added column has in existing rows, as constants that sinks can apply.

Called by CDC sources.
"""

import re
from typing import Any

import pyarrow as pa

from tidegate.model.types import Column, DataType, Table, TypeName
from tidegate.plugin.arrow import arrow_type

NUMBERS = (
    TypeName.TINYINT,
    TypeName.SMALLINT,
    TypeName.INT,
    TypeName.BIGINT,
    TypeName.DECIMAL,
    TypeName.FLOAT,
    TypeName.DOUBLE,
)
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d(?: \d\d:\d\d:\d\d(?:\.\d{1,6})?)?")


class DefaultUnknown:
    """Existing rows have no common value, or one that cannot be written to other systems."""


UNKNOWN = DefaultUnknown()
ColumnDefaults = dict[str, Any]
"""By column: None, a bool, a string (also for numbers, so that no digit is lost), or UNKNOWN."""


def parse_constant(text: str, kind: DataType) -> Any:
    """Parse a constant in the database's notation; UNKNOWN if it is not certain what it means."""
    match kind.name:
        case TypeName.BOOLEAN:
            return {"t": True, "true": True, "1": True, "f": False, "false": False, "0": False}.get(
                text.lower(), UNKNOWN
            )
        case name if name in NUMBERS:
            return text if _NUMBER.fullmatch(text) else UNKNOWN
        case TypeName.STRING:
            return text
        case TypeName.DATE | TypeName.TIMESTAMP:
            return text if _MOMENT.fullmatch(text) else UNKNOWN
        case TypeName.TIMESTAMP_TZ:
            moment = text.removesuffix("+00")
            return moment if moment != text and _MOMENT.fullmatch(moment) else UNKNOWN
        case _:
            return UNKNOWN


def implicit_default(kind: DataType, labels: tuple[str, ...]) -> Any:
    """Return the default that MariaDB and MySQL imply for a NOT NULL column.

    Zero dates are read as null.
    """
    match kind.name:
        case TypeName.BOOLEAN:
            return False
        case name if name in NUMBERS:
            return "0"
        case TypeName.STRING:
            return labels[0] if labels else ""
        case TypeName.DATE | TypeName.TIMESTAMP:
            return None
        case _:
            return UNKNOWN


def to_stored(defaults: ColumnDefaults) -> dict[str, Any]:
    """Return the defaults that a sink must apply: the table option `defaults`, by column."""
    return {
        name: value
        for name, value in defaults.items()
        if value is not None and value is not UNKNOWN
    }


def missing_column(table: Table, column: Column, count: int) -> Any:
    """Return the values of a column in `count` rows that were written before it was added."""
    arrow = arrow_type(column.type)
    value = table.options.get("defaults", {}).get(column.name)
    if value is None:
        return pa.nulls(count, arrow)
    texts: Any = pa.repeat(pa.scalar(value), count)
    if column.type.name is TypeName.TIMESTAMP_TZ:
        return texts.cast(pa.timestamp("us")).view(arrow)
    return texts.cast(arrow)
