"""Messages of pgoutput to columns of texts: rows of the tables that are read, until there are
enough for a batch. Called by reader.py, in tasks.

Where fast_rows.pyx was built, it does the same, faster; it leaves to the code here every message
with which something is wrong. TIDEGATE_PURE_PYTHON=1 leaves the compiled one aside.
"""

import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol

import pyarrow as pa

from tidegate.databases.postgres import pgoutput_messages as messages
from tidegate.databases.postgres.pgoutput_errors import SlotDamaged
from tidegate.databases.postgres.pgoutput_messages import UNCHANGED, RowChange, Values

_INSERT, _BEFORE, _AFTER, _DELETE = range(4)
_CHANGES = (messages.INSERT, messages.UPDATE, messages.DELETE)


class TableRows(Protocol):
    """Rows of one table, column by column; `held` is how many bytes of messages they came in."""

    rows: int
    held: int

    def take(self) -> tuple[bytes, list[Any]]:
        """Kinds and columns; then it is empty."""


class Taking(Protocol):
    """One pass over messages.

    `tables` has the rows of each table by its number, None for those that are not wanted; `total`
    is how many bytes wait.
    """

    inside: bool
    tables: dict[int, Any]
    total: int

    def eat(self, messages: list[bytes], at: int, /) -> int:
        """Take messages from `at` on; the number of the first that is not taken, as it is another's
        to read or as enough is there.
        """


def compiled() -> Any:
    """The module with the compiled decoder; None where it was not built or is not wanted."""
    if os.environ.get("TIDEGATE_PURE_PYTHON", "") not in ("", "0"):
        return None
    try:
        return import_module("tidegate.databases.postgres.pgoutput_fast_rows")
    except ImportError:
        return None


class UnknownLarge(Exception):
    """A value that an update left alone and that the log does not tell; for who knows the names of
    the columns.
    """

    def __init__(self, places: Sequence[int]) -> None:
        super().__init__(f"values {', '.join(map(str, places))} of a row are not told")
        self.places = places


class NotWhole(Exception):
    """An update or a delete without the whole row before it, where that is needed."""


class Rows:
    """In Python. `places` tells for each column which value of a row it is; a row has `count`
    values; `whole`: a change must have the whole row before it.
    """

    def __init__(self, places: Sequence[int], count: int, whole: bool = False) -> None:
        self._places = places
        self._count = count
        self._whole = whole
        self._columns: list[list[Any]] = [[] for _ in places]
        self._kinds = bytearray()
        self.held = 0

    @property
    def rows(self) -> int:
        return len(self._kinds)

    def add(self, change: RowChange, size: int) -> None:
        """One change as rows with kinds."""
        before, after = change.before, change.after
        for values in (before, after):
            if values is not None and len(values) != self._count:
                raise SlotDamaged(f"a row has {len(values)} values and its layout {self._count}")
        if self._whole and change.kind != messages.INSERT and not change.whole:
            raise NotWhole
        if after is not None:
            after = _complete(after, before if change.whole else None)
        if change.kind == messages.INSERT:
            self._row(_INSERT, after)
        elif change.kind == messages.DELETE:
            self._row(_DELETE, before)
        elif before is None:
            self._row(_AFTER, after)
        elif change.whole:
            self._row(_BEFORE, before)
            self._row(_AFTER, after)
        else:  # only the key of before is known, as it changed
            self._row(_DELETE, before)
            self._row(_INSERT, after)
        self.held += size

    def _row(self, kind: int, values: Values | None) -> None:
        assert values is not None, "messages.row_change has looked"
        self._kinds.append(kind)
        for column, place in zip(self._columns, self._places, strict=True):
            value = values[place]
            column.append(None if value is UNCHANGED else value)

    def take(self) -> tuple[bytes, list[Any]]:
        """Kinds and columns; then it is empty."""
        taken = bytes(self._kinds), self._columns
        self._columns = [[] for _ in self._places]
        self._kinds = bytearray()
        self.held = 0
        return taken


def _complete(after: Values, before: Values | None) -> Values:
    """Large values that an update left alone come from the image before."""
    if UNCHANGED not in after:
        return after
    if before is None:
        raise UnknownLarge([n for n, value in enumerate(after) if value is UNCHANGED])
    return [b if a is UNCHANGED else a for a, b in zip(after, before, strict=True)]


class Intake:
    """In Python: transactions whose commit is in [start, end) go into the rows of their tables."""

    def __init__(self, start: int, end: int, rows_max: int, bytes_max: int, total_max: int) -> None:
        self._start = start
        self._end = end
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._total_max = total_max
        self.inside = False
        self.tables: dict[int, Rows | None] = {}
        self.total = 0

    def eat(self, data: list[bytes], at: int, /) -> int:
        """Take messages from `at` on; the number of the first that is not taken, as it is another's
        to read or as enough is there.
        """
        for number in range(at, len(data)):
            message = data[number]
            kind = message[0] if message else 0
            if kind in _CHANGES:
                if not self.inside:
                    continue
                table = int.from_bytes(message[1:5], "big")
                if table not in self.tables:
                    return number
                try:
                    enough = self._add(self.tables[table], message)
                except (SlotDamaged, UnknownLarge, NotWhole):
                    return number
                if enough:
                    return number + 1
            elif kind == messages.BEGIN:
                self.inside = self._start <= messages.begin(message)[0] < self._end
            elif (
                kind == messages.RELATION
                or not message
                or (kind == messages.TRUNCATE and self.inside)
            ):
                return number
        return len(data)

    def _add(self, rows: Rows | None, message: bytes) -> bool:
        """Whether enough is there now."""
        if rows is None:
            return False
        rows.add(messages.row_change(message), len(message))
        self.total += len(message)
        return (
            rows.rows >= self._rows_max
            or rows.held >= self._bytes_max
            or self.total >= self._total_max
        )


def texts(column: Any, count: int) -> Any:
    """A column that `take` gave, as an array of bytes."""
    if isinstance(column, list):
        return pa.array(column, pa.binary())
    valid, offsets, data, nulls = column
    return pa.Array.from_buffers(
        pa.binary(),
        count,
        [pa.py_buffer(valid) if nulls else None, pa.py_buffer(offsets), pa.py_buffer(data)],
        nulls,
    )


def unframed(chunks: list[bytes]) -> list[bytes] | None:
    """The values of chunks that are one row with one value each, as is usual; None where one of
    them is not.
    """
    for chunk in chunks:
        if chunk[:2] != b"\0\1" or int.from_bytes(chunk[2:6], "big") != len(chunk) - 6:
            return None
    return [chunk[6:] for chunk in chunks]
