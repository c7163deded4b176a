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
    kept = tuple(
        (str(c[0]), int(c[2]), int(c[3])) if len(c) > 2 else (str(c[0]), None, -1) for c in columns
    )
    return RowLayout(columns=kept, oid=oid, identity=identity, key=tuple(key))


def difference(known: RowLayout, shown: RelationMessage) -> str:
    """Describe how the layout in the log differs from the known one; empty if it does not."""
    if known.oid and shown.id != known.oid:
        return "another table has its name now: the table was dropped and created again, or renamed"
    return _columns(known, shown) or _identity(known, shown)


def same_columns(known: RowLayout, shown: RelationMessage) -> bool:
    """Return whether the rows have the known columns."""
    return not _columns(known, shown)


def _columns(known: RowLayout, shown: RelationMessage) -> str:
    names = [name for name, _, _ in shown.columns]
    new, gone = (
        [n for n in names if n not in known.names],
        [n for n in known.names if n not in names],
    )
    if new or gone:
        return " and ".join(
            filter(
                None,
                [
                    f"it got {', '.join(new)}" if new else "",
                    f"it lost {', '.join(gone)}" if gone else "",
                ],
            )
        )
    if any(kind is None for _, kind, _ in known.columns):
        return ""
    types = {name: (kind, modifier) for name, kind, modifier in shown.columns}
    other = [name for name, kind, modifier in known.columns if types[name] != (kind, modifier)]
    if other:
        return f"the type of {', '.join(other)} was changed"
    return (
        ""
        if tuple(names) == known.names
        else f"its columns were {', '.join(known.names)} and are {', '.join(names)}, in this order"
    )


def _identity(known: RowLayout, shown: RelationMessage) -> str:
    if not known.identity or shown.identity == "f":  # complete rows are always sufficient
        return ""
    if shown.identity != known.identity:
        was, now = (_IDENTITIES.get(kind, kind) for kind in (known.identity, shown.identity))
        return f"its REPLICA IDENTITY was {was} and is {now}"
    if set(shown.key) != set(known.key):
        return (
            f"the key of its replica identity was {', '.join(known.key) or 'none'} and is"
            f" {', '.join(shown.key) or 'none'}"
        )
    return ""
