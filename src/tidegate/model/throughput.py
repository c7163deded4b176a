"""How much has passed an operator, by table: rows and bytes.

They are counted with the checkpoint that they belong to, so a repeated batch counts once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

# of one operator that are told apart; the document of a pipeline is written with every batch
TABLES_MAX = 128
OTHER_TABLES = "*"


@dataclass(frozen=True, slots=True)
class Volume:
    """Rows, and the bytes that they take in Arrow; 0 bytes where Spark moved the rows by itself."""

    rows: int = 0
    bytes: int = 0

    def __add__(self, other: "Volume") -> "Volume":
        return Volume(self.rows + other.rows, self.bytes + other.bytes)

    def less(self, other: "Volume") -> "Volume":
        """What is left without the other; never below zero."""
        return Volume(max(0, self.rows - other.rows), max(0, self.bytes - other.bytes))


Tables = Mapping[str, Volume]
"""By table."""
Volumes = Mapping[str, Mapping[str, Volume]]
"""By operator, then by table."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Rows and bytes per second."""

    rows: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: "Rate") -> "Rate":
        return Rate(self.rows + other.rows, self.bytes + other.bytes)


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineRates:
    """How fast committed rows pass a pipeline; operators and tables through which nothing passes
    are left out.
    """

    rows_read: float = 0.0
    rows_written: float = 0.0
    operators: Mapping[str, Mapping[str, Rate]] = field(default_factory=dict)


def added(*parts: Volumes) -> dict[str, dict[str, Volume]]:
    """All together.

    An operator's tables beyond TABLES_MAX are counted as one: those that came first keep their
    names.
    """
    result: dict[str, dict[str, Volume]] = {}
    for operator, tables in chain.from_iterable(part.items() for part in parts):
        into = result.setdefault(operator, {})
        for table, volume in tables.items():
            name = table if table in into or len(into) < TABLES_MAX else OTHER_TABLES
            into[name] = into.get(name, Volume()) + volume
    return result


def without(known: Volumes, gone: Iterable[Volumes]) -> dict[str, dict[str, Volume]]:
    """What is left when batches are taken back."""
    result = {operator: dict(tables) for operator, tables in known.items()}
    for operator, tables in chain.from_iterable(each.items() for each in gone):
        into = result.get(operator, {})
        for table, volume in tables.items():
            name = table if table in into else OTHER_TABLES
            if name in into:
                into[name] = into[name].less(volume)
    return result


def together(parts: Iterable[Tables]) -> dict[str, Volume]:
    """The tables of several operators as one."""
    result: dict[str, Volume] = {}
    for table, volume in chain.from_iterable(part.items() for part in parts):
        result[table] = result.get(table, Volume()) + volume
    return result


def total(tables: Tables) -> Volume:
    """All tables of an operator."""
    return sum(tables.values(), Volume())
