"""Transactions of tables whose key is checked at their end only. Called by reader.py, in tasks.

Such a transaction may have two rows of one key for a while, as in `update t set id = 3 - id`: its
changes, one after the other, would lose a row in a target that has one row for each key. What it
did to each key as a whole is the same whatever the order was: the row that was there before, and
the one after.
"""

from collections.abc import Iterator, Sequence
from typing import Any

_INSERT, _BEFORE, _AFTER, _DELETE = range(4)
Columns = list[list[bytes | None]]
Row = tuple[bytes | None, ...]


class DeferredTransaction:
    """The changes of one table, until the commit.

    Every image before a change must be a whole row.
    """

    def __init__(self, key: Sequence[int], width: int) -> None:
        """`key`: the places of its columns in a row of `width` values."""
        self._key = key
        self._width = width
        self._before: dict[Row, Row] = {}
        self._after: dict[Row, list[Row]] = {}

    def add(self, kinds: bytes, columns: Columns) -> None:
        """Rows in the order of the log."""
        rows: Iterator[Row] = zip(*columns, strict=True) if columns else iter([()] * len(kinds))
        for kind, row in zip(kinds, rows, strict=True):
            key = tuple(row[place] for place in self._key)
            made = self._after.setdefault(key, [])
            if kind in (_INSERT, _AFTER):
                made.append(row)
            elif row in made:
                made.remove(row)
            else:
                self._before[key] = row

    def take(self) -> tuple[bytes, Columns]:
        """What the transaction did, deletes first and inserts last; then it is empty."""
        deleted, updated, inserted = [], [], []
        for key, made in self._after.items():
            before = self._before.get(key)
            if made and before is not None and made[-1] != before:
                updated += [(_BEFORE, before), (_AFTER, made[-1])]
            elif made and before is None:
                inserted.append((_INSERT, made[-1]))
            elif not made and before is not None:
                deleted.append((_DELETE, before))
        self._before = {}
        self._after = {}
        found = [*deleted, *updated, *inserted]
        columns: list[Any] = [[row[place] for _, row in found] for place in range(self._width)]
        return bytes(kind for kind, _ in found), columns
