"""Check that a table behind a JDBC driver stores values without loss, by the types it reports.

Called by spark.py before a batch is staged.
"""

from collections.abc import Sequence

from tidegate.connectors.jdbc.target_check import TargetUnfit
from tidegate.databases.targets.type_fit import CheckKind, ColumnCapacity, StoredKind, check_fit
from tidegate.model.types import Table

# Numbers of java.sql.Types.
_BITS = {-6: 8, 5: 16, 4: 32, -5: 64}
_OTHERS = {
    7: ColumnCapacity(kind=StoredKind.FLOAT, digits=24),
    6: ColumnCapacity(kind=StoredKind.FLOAT, digits=53),
    8: ColumnCapacity(kind=StoredKind.FLOAT, digits=53),
    16: ColumnCapacity(kind=StoredKind.BOOLEAN),
    91: ColumnCapacity(kind=StoredKind.DATE),
    1: ColumnCapacity(kind=StoredKind.TEXT),
    12: ColumnCapacity(kind=StoredKind.TEXT),
    2005: ColumnCapacity(kind=StoredKind.TEXT),
}
_TIMES = {92: StoredKind.TIME, 93: StoredKind.TIMESTAMP, 2014: StoredKind.MOMENT}
_UNCHECKED = {
    CheckKind.SCALE: "numbers may be rounded",
    CheckKind.FRACTION: "fractions of a second may be cut off",
}
"""Losses that types alone cannot exclude and no driver rejects."""


def column_capacity(kind: int, digits: int, scale: int) -> ColumnCapacity:
    """The capacity of a column, from its type, precision and scale."""
    if kind in _BITS:
        return ColumnCapacity(
            kind=StoredKind.WHOLE, low=-(2 ** (_BITS[kind] - 1)), high=2 ** (_BITS[kind] - 1) - 1
        )
    if kind in (2, 3):
        return ColumnCapacity(
            kind=StoredKind.DECIMAL, digits=digits, scale=scale if digits and scale >= 0 else None
        )
    if kind in _TIMES:
        # Spark writes timestamps in its own time zone, and reads them the same way.
        return ColumnCapacity(kind=_TIMES[kind], fraction=scale, distinguishes_zones=False)
    return _OTHERS.get(kind, ColumnCapacity(kind=StoredKind.ANY))


def check_jvm_types(table: Table, target: str, described: Sequence[tuple[int, int, int]]) -> None:
    """Raise TargetUnfit with all columns that would round or truncate values.

    The database itself rejects numbers and texts that are too large.
    """
    problems = []
    for column, about in zip(table.columns, described, strict=True):
        found = check_fit(column.type, column_capacity(*about))
        why = found.refusal or (_UNCHECKED.get(found.check.kind, "") if found.check else "")
        if why:
            problems.append(
                f"column {column.name!r} is {column.type} and would be stored with {about[1]}"
                f" digits, {about[2]} of them after the point: {why}"
            )
    if problems:
        raise TargetUnfit(table.path, target, [*problems, "allow_lossy_types = true allows that"])
