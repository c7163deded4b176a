"""Transactions of tables whose key is checked only at their end.

Called by pgoutput_reader.py, in tasks. Such a transaction may have two rows of one key for a while,
as in `update t set id = 3 - id`: applied one by one, its changes would lose a row in a target that
has one row per key. The net effect on each key does not depend on the order: the row before, and
the row after.
"""

from collections.abc import Iterator, Sequence
from typing import Any

_INSERT, _BEFORE, _AFTER, _DELETE = range(4)
Columns = list[list[bytes | None]]
Row = tuple[bytes | None, ...]


class DeferredTransaction:
    """The changes of one table up to the commit.

    Every before image must be a complete row.
    """

    def __init__(self, key: Sequence[int], width: int) -> None:
        """`key` has the indexes of its columns in a row of `width` values."""
        self._key = key
        self._width = width
        self._before: dict[Row, Row] = {}
        self._after: dict[Row, list[Row]] = {}

    def add(self, kinds: bytes, columns: Columns) -> None:
        """Add rows in the order of the log."""
        rows: Iterator[Row] = zip(*columns, strict=True) if columns else iter([()] * len(kinds))
        for kind, row in zip(kinds, rows, strict=True):
            key = tuple(row[index] for index in self._key)
            made = self._after.setdefault(key, [])
            if kind in (_INSERT, _AFTER):
                made.append(row)
            elif row in made:
                made.remove(row)
            else:
                self._before[key] = row

    def take(self) -> tuple[bytes, Columns]:
        """Return the net effect of the transaction, deletes first and inserts last; then reset."""
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
        columns: list[Any] = [[row[index] for _, row in found] for index in range(self._width)]
        return bytes(kind for kind, _ in found), columns
