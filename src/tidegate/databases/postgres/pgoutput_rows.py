"""Decode messages of pgoutput to columns of strings, until there are enough for a batch.

Called by pgoutput_reader.py, in tasks. pgoutput_fast_rows.pyx, if it was built, does the same
faster; it leaves every invalid message to the code here. TIDEGATE_PURE_PYTHON=1 disables the
compiled decoder.
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


class AnyRowBuffer(Protocol):
    """Rows of one table, column by column.

    `message_bytes` is the size of their messages.
    """

    row_count: int
    message_bytes: int

    def take(self) -> tuple[bytes, list[Any]]:
        """Return kinds and columns; then reset."""


class AnyMessageDecoder(Protocol):
    """Collects the rows of messages by table.

    `tables` has the buffer of each table by its number, None for those that are not read;
    `total_bytes` is the size of all buffered messages.
    """

    in_range: bool
    tables: dict[int, Any]
    total_bytes: int

    def consume(self, messages: list[bytes], at: int, /) -> int:
        """Decode messages from `at` on.

        Returns the index of the first that is not decoded, as it is not a row of a known table, or
        as the buffers are full.
        """


def compiled_module() -> Any:
    """Return the module of the compiled decoder; None if it is not built or disabled."""
    if os.environ.get("TIDEGATE_PURE_PYTHON", "") not in ("", "0"):
        return None
    try:
        return import_module("tidegate.databases.postgres.pgoutput_fast_rows")
    except ImportError:
        return None


class UnchangedValueMissing(Exception):
    """An update left a value unchanged that the log does not have.

    The caller knows the names of the columns.
    """

    def __init__(self, indexes: Sequence[int]) -> None:
        super().__init__(f"values {', '.join(map(str, indexes))} of a row are missing")
        self.indexes = indexes


class BeforeImageMissing(Exception):
    """An update or a delete lacks its complete before image, which is required."""


class RowBuffer:
    """Rows of one table, column by column, in Python.

    `indexes` has the index of each column in a row of `count` values. If `needs_before` is true, a
    change must have its complete before image.
    """

    def __init__(self, indexes: Sequence[int], count: int, needs_before: bool = False) -> None:
        self._indexes = indexes
        self._count = count
        self._needs_before = needs_before
        self._columns: list[list[Any]] = [[] for _ in indexes]
        self._kinds = bytearray()
        self.message_bytes = 0

    @property
    def row_count(self) -> int:
        return len(self._kinds)

    def add(self, change: RowChange, size: int) -> None:
        """Add a change as rows with kinds."""
        before, after = change.before, change.after
        for values in (before, after):
            if values is not None and len(values) != self._count:
                raise SlotDamaged(f"a row has {len(values)} values and its layout {self._count}")
        if self._needs_before and change.kind != messages.INSERT and not change.has_full_before:
            raise BeforeImageMissing
        if after is not None:
            after = _with_unchanged(after, before if change.has_full_before else None)
        if change.kind == messages.INSERT:
            self._append(_INSERT, after)
        elif change.kind == messages.DELETE:
            self._append(_DELETE, before)
        elif before is None:
            self._append(_AFTER, after)
        elif change.has_full_before:
            self._append(_BEFORE, before)
            self._append(_AFTER, after)
        else:  # the key changed, and the before image has only the key
            self._append(_DELETE, before)
            self._append(_INSERT, after)
        self.message_bytes += size

    def _append(self, kind: int, values: Values | None) -> None:
        assert values is not None, "messages.row_change checks it"
        self._kinds.append(kind)
        for column, index in zip(self._columns, self._indexes, strict=True):
            value = values[index]
            column.append(None if value is UNCHANGED else value)

    def take(self) -> tuple[bytes, list[Any]]:
        """Return kinds and columns; then reset."""
        result = bytes(self._kinds), self._columns
        self._columns = [[] for _ in self._indexes]
        self._kinds = bytearray()
        self.message_bytes = 0
        return result


def _with_unchanged(after: Values, before: Values | None) -> Values:
    """Take values that an update left unchanged from the before image."""
    if UNCHANGED not in after:
        return after
    if before is None:
        raise UnchangedValueMissing([n for n, value in enumerate(after) if value is UNCHANGED])
    return [b if a is UNCHANGED else a for a, b in zip(after, before, strict=True)]


class MessageDecoder:
    """Collects the rows of transactions whose commit is in [start, end), in Python."""

    def __init__(self, start: int, end: int, rows_max: int, bytes_max: int, total_max: int) -> None:
        self._start = start
        self._end = end
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._total_max = total_max
        self.in_range = False
        self.tables: dict[int, RowBuffer | None] = {}
        self.total_bytes = 0

    def consume(self, data: list[bytes], at: int, /) -> int:
        """Decode messages from `at` on.

        Returns the index of the first that is not decoded, as it is not a row of a known table, or
        as the buffers are full.
        """
        for number in range(at, len(data)):
            message = data[number]
            kind = message[0] if message else 0
            if kind in _CHANGES:
                if not self.in_range:
                    continue
                table = int.from_bytes(message[1:5], "big")
                if table not in self.tables:
                    return number
                try:
                    enough = self._add(self.tables[table], message)
                except (SlotDamaged, UnchangedValueMissing, BeforeImageMissing):
                    return number
                if enough:
                    return number + 1
            elif kind == messages.BEGIN:
                self.in_range = self._start <= messages.begin(message)[0] < self._end
            elif (
                kind == messages.RELATION
                or not message
                or (kind == messages.TRUNCATE and self.in_range)
            ):
                return number
        return len(data)

    def _add(self, rows: RowBuffer | None, message: bytes) -> bool:
        """Add a row; return whether the buffers are full."""
        if rows is None:
            return False
        rows.add(messages.row_change(message), len(message))
        self.total_bytes += len(message)
        return (
            rows.row_count >= self._rows_max
            or rows.message_bytes >= self._bytes_max
            or self.total_bytes >= self._total_max
        )


def binary_array(column: Any, count: int) -> Any:
    """Return a column from `take` as a binary array."""
    if isinstance(column, list):
        return pa.array(column, pa.binary())
    valid, offsets, data, nulls = column
    return pa.Array.from_buffers(
        pa.binary(),
        count,
        [pa.py_buffer(valid) if nulls else None, pa.py_buffer(offsets), pa.py_buffer(data)],
        nulls,
    )


def single_values(chunks: list[bytes]) -> list[bytes] | None:
    """Return the values of chunks that are one row with one value each, as is usual.

    None if one of them is not.
    """
    for chunk in chunks:
        if chunk[:2] != b"\0\1" or int.from_bytes(chunk[2:6], "big") != len(chunk) - 6:
            return None
    return [chunk[6:] for chunk in chunks]
