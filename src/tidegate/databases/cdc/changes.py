"""Row kinds where keys change or are not read yet, and rows taken back to an earlier moment. Called
by source.py, in tasks; over Arrow.

Changes come from a log in its order: an update is two rows, before (-U) and after (+U), side by
side in one batch.
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
    """Changes as sinks need them: a changed key is a delete and an insert; with `inside`, true or
    false for each row, only those rows are there at all.
    """
    changed = _changed(batch, key)
    if inside is None and (changed is None or not pc.any(changed).as_py()):
        return batch
    kinds: list[Any] = batch.column(ROW_KIND).to_pylist()
    moved = changed.to_pylist() if changed is not None else []
    kept: list[Any] = inside.to_pylist() if inside is not None else [True] * len(kinds)
    _settle(kinds, moved, kept)
    arrays = [*(batch.column(n) for n in range(batch.num_columns - 1)), pa.array(kinds, pa.int8())]
    whole = pa.RecordBatch.from_arrays(arrays, schema=batch.schema)
    return whole if inside is None else whole.filter(pa.array([bool(k) for k in kept]))


def _settle(kinds: list[int], moved: list[bool], kept: list[bool]) -> None:
    """Both images of an update inside: as they are, or a delete and an insert where the key
    changed; one inside: the delete or the insert of that one.
    """
    for at, kind in enumerate(kinds):
        if kind != _BEFORE:
            continue
        before, after = bool(kept[at]), bool(kept[at + 1])
        if before != after or (before and moved[at]):
            kinds[at], kinds[at + 1] = _DELETE, _INSERT


def _changed(batch: pa.RecordBatch, key: Sequence[str]) -> Any:
    """For every row but the last: whether it is the image before of an update that changed its key."""
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
        if column.null_count:  # a key that is read as null may become another
            one = pc.or_(one, pc.xor(pc.is_null(first), pc.is_null(second)))
        differs = one if differs is None else pc.or_(differs, one)
    return pc.and_(before, differs)


class SnapshotRollback:
    """What rows of a chunk were at a position, told by the first change of each key after it: its
    image before, or nothing where that change made the row.
    """

    def __init__(
        self, key: Sequence[str], inside: Callable[[pa.RecordBatch], Any] | None = None
    ) -> None:
        """`inside` tells for each row of a batch whether it belongs to the chunk; all do where it
        is not given.
        """
        self._key = key
        self._inside = inside
        self._touched: set[Key] = set()
        self._before: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Changes after the position, in the log's order, of which `settle` has made deletes and
        inserts where a key changed.
        """
        kinds = batch.column(ROW_KIND).to_pylist()
        held = self._inside(batch).to_pylist() if self._inside else [True] * batch.num_rows
        before = []
        for at, (kind, key) in enumerate(zip(kinds, keys_of(batch, self._key), strict=True)):
            if held[at] and key not in self._touched:
                self._touched.add(key)
                if kind in (_BEFORE, _DELETE):
                    before.append(at)
        if before:
            self._before.append(
                batch.take(pa.array(before, pa.int64()))
            )  # a copy: the rest of the batch can go

    def apply(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """The chunk as it was: rows whose key was touched are left out, and come back as they were."""
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
    """The keys of all rows; days and moments as numbers, as Python does not know all of them."""
    return list(zip(*(_numbers(batch.column(name)).to_pylist() for name in key), strict=True))


def _numbers(column: Any) -> Any:
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


def inserted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows of a snapshot, each an insert."""
    return pa.RecordBatch.from_arrays(
        [*batch.columns, pa.array([_INSERT] * batch.num_rows, pa.int8())], schema=schema
    )
