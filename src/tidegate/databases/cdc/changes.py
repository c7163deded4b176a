"""Normalize row kinds of changes, and roll snapshot rows back to a position of the log.

Called by source.py, in tasks; over Arrow. Changes come from a log in its order: an update is two
rows, before (-U) and after (+U), next to each other in one batch.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.model.types import ROW_KIND, RowKind

_INSERT, _BEFORE, _AFTER, _DELETE = (kind.code for kind in RowKind)
Key = tuple[Any, ...]


def normalize_changes(
    batch: pa.RecordBatch, key: Sequence[str], inside: Any = None
) -> pa.RecordBatch:
    """Return changes as sinks need them: a changed key becomes a delete and an insert.

    `inside` holds true or false for each row; if given, only the rows inside are returned.
    """
    changed = _key_changes(batch, key)
    if inside is None and (changed is None or not pc.any(changed).as_py()):
        return batch
    kinds: list[Any] = batch.column(ROW_KIND).to_pylist()
    moved = changed.to_pylist() if changed is not None else []
    is_inside: list[Any] = inside.to_pylist() if inside is not None else [True] * len(kinds)
    _rewrite_kinds(kinds, moved, is_inside)
    arrays = [*(batch.column(n) for n in range(batch.num_columns - 1)), pa.array(kinds, pa.int8())]
    rewritten = pa.RecordBatch.from_arrays(arrays, schema=batch.schema)
    return rewritten if inside is None else rewritten.filter(pa.array([bool(k) for k in is_inside]))


def _rewrite_kinds(kinds: list[int], moved: list[bool], inside: list[bool]) -> None:
    """Rewrite the row kinds of updates in place.

    Both images inside: kept, or a delete and an insert if the key changed. One image inside: only
    the delete or the insert of that one.
    """
    for at, kind in enumerate(kinds):
        if kind != _BEFORE:
            continue
        before, after = bool(inside[at]), bool(inside[at + 1])
        if before != after or (before and moved[at]):
            kinds[at], kinds[at + 1] = _DELETE, _INSERT


def _key_changes(batch: pa.RecordBatch, key: Sequence[str]) -> Any:
    """Return, for every row but the last, whether it is the before image of a changed key."""
    if batch.num_rows < 2:
        return None
    before = pc.equal(
        batch.column(ROW_KIND).slice(0, batch.num_rows - 1), pa.scalar(_BEFORE, pa.int8())
    )
    if not pc.any(before).as_py():
        return None
    differs: Any = None
    for name in key:
        column: Any = batch.column(name)
        first, second = column.slice(0, batch.num_rows - 1), column.slice(1)
        one: Any = pc.fill_null(pc.not_equal(first, second), False)
        if column.null_count:  # a key that is read as null may change to another key
            one = pc.or_(one, pc.xor(pc.is_null(first), pc.is_null(second)))
        differs = one if differs is None else pc.or_(differs, one)
    return pc.and_(before, differs)


class SnapshotRollback:
    """Rolls the rows of a chunk back to a position, by the first later change of each key.

    The row at the position is the before image of that change, or none if the change inserted it.
    """

    def __init__(
        self, key: Sequence[str], inside: Callable[[pa.RecordBatch], Any] | None = None
    ) -> None:
        """Prepare the rollback of one chunk.

        `inside` returns for each row of a batch whether it is in the chunk; by default all are.
        """
        self._key = key
        self._inside = inside
        self._touched: set[Key] = set()
        self._before: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add changes after the position, in the order of the log, from `normalize_changes`."""
        kinds = batch.column(ROW_KIND).to_pylist()
        inside = self._inside(batch).to_pylist() if self._inside else [True] * batch.num_rows
        before = []
        for at, (kind, key) in enumerate(zip(kinds, keys_of(batch, self._key), strict=True)):
            if inside[at] and key not in self._touched:
                self._touched.add(key)
                if kind in (_BEFORE, _DELETE):
                    before.append(at)
        if before:
            self._before.append(
                batch.take(pa.array(before, pa.int64()))
            )  # a copy, so that the rest of the batch is freed

    def apply(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Yield the chunk as it was at the position.

        Touched rows are dropped, and their before images are added.
        """
        for batch in batches:
            if not self._touched:
                yield batch
                continue
            mask = [key not in self._touched for key in keys_of(batch, self._key)]
            yield batch if all(mask) else batch.filter(pa.array(mask))
        for batch in self._before:
            kinds: Any = pa.array([_INSERT] * batch.num_rows, pa.int8())
            columns: list[Any] = [
                kinds if f.name == ROW_KIND else batch.column(f.name) for f in schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def keys_of(batch: pa.RecordBatch, key: Sequence[str]) -> list[Key]:
    """Return the keys of all rows, with dates and timestamps as numbers.

    Python's types lack some of the values.
    """
    return list(zip(*(_numbers(batch.column(name)).to_pylist() for name in key), strict=True))


def _numbers(column: Any) -> Any:
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


def as_inserts(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of a snapshot with the row kind of an insert."""
    return pa.RecordBatch.from_arrays(
        [*batch.columns, pa.array([_INSERT] * batch.num_rows, pa.int8())], schema=schema
    )
