"""Whether a table behind a JDBC driver keeps what it is given, by the types that the driver tells.
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
"""What types alone cannot tell, and no driver refuses."""


def column_capacity(kind: int, digits: int, scale: int) -> ColumnCapacity:
    """The values of a column, by its type, its digits and those after the point."""
    if kind in _BITS:
        return ColumnCapacity(
            kind=StoredKind.WHOLE, low=-(2 ** (_BITS[kind] - 1)), high=2 ** (_BITS[kind] - 1) - 1
        )
    if kind in (2, 3):
        return ColumnCapacity(
            kind=StoredKind.DECIMAL, digits=digits, scale=scale if digits and scale >= 0 else None
        )
    if kind in _TIMES:
        # Spark writes moments as timestamps of its own zone, and reads them so again.
        return ColumnCapacity(kind=_TIMES[kind], fraction=scale, distinguishes_zones=False)
    return _OTHERS.get(kind, ColumnCapacity(kind=StoredKind.ANY))


def check_jvm_types(table: Table, place: str, described: Sequence[tuple[int, int, int]]) -> None:
    """TargetUnfit with all columns that would round or cut; larger numbers and longer texts are
    refused by the database itself.
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
        raise TargetUnfit(table.path, place, [*problems, "allow_lossy_types = true takes that"])
