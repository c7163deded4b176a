"""Rows and bytes that passed an operator, by table.

They are counted with the checkpoint that they belong to, so a repeated batch counts once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

# Tables of one operator that are counted separately: the document is written with every batch.
TABLES_MAX = 128
OTHER_TABLES = "*"


@dataclass(frozen=True, slots=True)
class Volume:
    """Rows, and their size in Arrow; 0 bytes where Spark moved the rows itself."""

    rows: int = 0
    bytes: int = 0

    def __add__(self, other: "Volume") -> "Volume":
        return Volume(self.rows + other.rows, self.bytes + other.bytes)

    def minus(self, other: "Volume") -> "Volume":
        """Return the difference, never below zero."""
        return Volume(max(0, self.rows - other.rows), max(0, self.bytes - other.bytes))


Tables = Mapping[str, Volume]
"""Volumes by table."""
Volumes = Mapping[str, Mapping[str, Volume]]
"""Volumes by operator, then by table."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Rows and bytes per second."""

    rows: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: "Rate") -> "Rate":
        return Rate(self.rows + other.rows, self.bytes + other.bytes)


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineRates:
    """Rates of committed rows; operators and tables without traffic are left out."""

    rows_read: float = 0.0
    rows_written: float = 0.0
    operators: Mapping[str, Mapping[str, Rate]] = field(default_factory=dict)


def add_volumes(*parts: Volumes) -> dict[str, dict[str, Volume]]:
    """Add volumes by operator and table.

    An operator's tables beyond TABLES_MAX are counted as one; those that came first keep their
    names.
    """
    result: dict[str, dict[str, Volume]] = {}
    for operator, tables in chain.from_iterable(part.items() for part in parts):
        into = result.setdefault(operator, {})
        for table, volume in tables.items():
            name = table if table in into or len(into) < TABLES_MAX else OTHER_TABLES
            into[name] = into.get(name, Volume()) + volume
    return result


def subtract_volumes(volumes: Volumes, removed: Iterable[Volumes]) -> dict[str, dict[str, Volume]]:
    """Subtract the volumes of batches that are rolled back."""
    result = {operator: dict(tables) for operator, tables in volumes.items()}
    for operator, tables in chain.from_iterable(each.items() for each in removed):
        into = result.get(operator, {})
        for table, volume in tables.items():
            name = table if table in into else OTHER_TABLES
            if name in into:
                into[name] = into[name].minus(volume)
    return result


def merge_tables(parts: Iterable[Tables]) -> dict[str, Volume]:
    """Add up the tables of several operators."""
    result: dict[str, Volume] = {}
    for table, volume in chain.from_iterable(part.items() for part in parts):
        result[table] = result.get(table, Volume()) + volume
    return result


def total_volume(tables: Tables) -> Volume:
    """Add up all tables of an operator."""
    return sum(tables.values(), Volume())
