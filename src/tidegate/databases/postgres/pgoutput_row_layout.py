"""Compare the layout of a table at a position with a layout in the log.

Pure; used by the driver's check and by the reader of tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.databases.postgres.pgoutput_messages import RelationMessage

_IDENTITIES = {"f": "FULL", "d": "DEFAULT", "i": "USING INDEX", "n": "NOTHING"}


@dataclass(frozen=True, kw_only=True, slots=True)
class RowLayout:
    """What the rows of a table are decoded by.

    `columns` are (name, type, modifier) in the order of the table; the type is None if a checkpoint
    of a former version recorded names only. `oid` is 0 and `identity` empty if unknown.
    """

    columns: tuple[tuple[str, int | None, int], ...]
    oid: int = 0
    identity: str = ""
    key: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(name for name, _, _ in self.columns)


def layout_of(
    columns: Sequence[Sequence[Any]], oid: int = 0, identity: str = "", key: Sequence[str] = ()
) -> RowLayout:
    """Return the layout from the columns of an offset.

    They are [name, type name, type, modifier, number], or the first two only.
    """
    recorded = tuple(
        (str(c[0]), int(c[2]), int(c[3])) if len(c) > 2 else (str(c[0]), None, -1) for c in columns
    )
    return RowLayout(columns=recorded, oid=oid, identity=identity, key=tuple(key))


def difference(known: RowLayout, logged: RelationMessage) -> str:
    """Describe how the layout in the log differs from the known one; empty if it does not."""
    if known.oid and logged.id != known.oid:
        return "another table has its name now: the table was dropped and created again, or renamed"
    return _columns(known, logged) or _identity(known, logged)


def same_columns(known: RowLayout, logged: RelationMessage) -> bool:
    """Return whether the rows have the known columns."""
    return not _columns(known, logged)


def _columns(known: RowLayout, logged: RelationMessage) -> str:
    names = [name for name, _, _ in logged.columns]
    new, removed = (
        [n for n in names if n not in known.names],
        [n for n in known.names if n not in names],
    )
    if new or removed:
        return " and ".join(
            filter(
                None,
                [
                    f"it got {', '.join(new)}" if new else "",
                    f"it lost {', '.join(removed)}" if removed else "",
                ],
            )
        )
    if any(kind is None for _, kind, _ in known.columns):
        return ""
    types = {name: (kind, modifier) for name, kind, modifier in logged.columns}
    other = [name for name, kind, modifier in known.columns if types[name] != (kind, modifier)]
    if other:
        return f"the type of {', '.join(other)} was changed"
    return (
        ""
        if tuple(names) == known.names
        else f"its columns were {', '.join(known.names)} and are {', '.join(names)}, in this order"
    )


def _identity(known: RowLayout, logged: RelationMessage) -> str:
    if not known.identity or logged.identity == "f":  # complete rows are always sufficient
        return ""
    if logged.identity != known.identity:
        was, now = (_IDENTITIES.get(kind, kind) for kind in (known.identity, logged.identity))
        return f"its REPLICA IDENTITY was {was} and is {now}"
    if set(logged.key) != set(known.key):
        return (
            f"the key of its replica identity was {', '.join(known.key) or 'none'} and is"
            f" {', '.join(logged.key) or 'none'}"
        )
    return ""
