"""Generates columns of values: every cell is a function of (seed, table, column, row number).

Vectorized; called by source.py in tasks. The ranges are those of SeaTunnel: letters, whole numbers
from min to below max, random digits for decimals, dates of the current year.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.connectors.fake.random_cells import (
    below,
    between,
    digits,
    fractions,
    key_of,
    letters,
    raw_bytes,
)
from tidegate.connectors.fake.settings import TableSettings
from tidegate.model.types import Column, DataType, TypeName
from tidegate.plugin.arrow import arrow_type
from tidegate.plugin.literal import literal

_WHOLE = {
    TypeName.TINYINT: np.int8,
    TypeName.SMALLINT: np.int16,
    TypeName.INT: np.int32,
    TypeName.BIGINT: np.int64,
}
_HALF_MAX = 65504.0
_CURRENT = {
    TypeName.DATE: ("CURRENT_DATE", datetime.date),
    TypeName.TIME: ("CURRENT_TIME", datetime.time),
    TypeName.TIMESTAMP: ("CURRENT_TIMESTAMP", lambda now: now),
}


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells first .. first + count - 1 of a key.

    The cells of a nested value are derived from the cell that contains it.
    """

    key: int
    first: int
    count: int

    def below(self, name: str, size: int = 1) -> "Cells":
        """The cells of a nested value, `size` for each cell."""
        return Cells(key_of(self.key, name), self.first * size, self.count * size)


def current(kind: DataType, raw: Any, now: datetime) -> Any:
    """Replace CURRENT_DATE, CURRENT_TIME and CURRENT_TIMESTAMP by the start time of the source."""
    keyword = _CURRENT.get(kind.name)
    if keyword is None or not isinstance(raw, str) or raw.strip().upper() != keyword[0]:
        return raw
    return keyword[1](now.replace(tzinfo=None)).isoformat()


class Generator:
    """Generates the columns of one table.

    `now` is the start time of the source. Dates have its year, so that a repeated read generates
    the same dates.
    """

    def __init__(self, settings: TableSettings, seed: int, now: datetime) -> None:
        self._settings = settings
        self._seed = seed
        self._now = now
        self._values = settings.values

    def batch(self, first: int, count: int, schema: pa.Schema) -> pa.RecordBatch:
        """Generate the rows first .. first + count - 1."""
        table = self._settings.table
        arrays = [
            self._column(c, Cells(key_of(self._seed, table.path, c.name), first, count))
            for c in table.columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _column(self, column: Column, cells: Cells) -> Any:
        if column.name in self._settings.counted:
            return self._sequence(column.type, cells, self._settings.counted[column.name])
        if column.default is not None:
            return self._constant(column, cells.count)
        return self._make(column.type, cells, column.name)

    def _constant(self, column: Column, count: int) -> Any:
        raw = current(column.type, column.default, self._now)
        # SeaTunnel reads the default of a bytes column as plain text, not as base64.
        value = (
            str(raw).encode() if column.type.name is TypeName.BYTES else literal(column.type, raw)
        )
        one = pa.array([value], type=arrow_type(column.type))
        return one.take(pa.array(np.zeros(count, dtype=np.int32)))

    def _make(self, kind: DataType, cells: Cells, column: str) -> Any:
        match kind.name:
            case name if name in _WHOLE:
                return self._whole(kind, cells)
            case TypeName.FLOAT | TypeName.DOUBLE:
                return self._fraction(kind, cells, column)
            case TypeName.ARRAY:
                size = int(self._values["array.size"])
                items = self._make(kind.children[0], cells.below("element", size), column)
                return pa.ListArray.from_arrays(
                    _offsets(cells.count, size), items, type=arrow_type(kind)
                )
            case TypeName.MAP:
                return self._map(kind, cells, column)
            case TypeName.ROW:
                fields = [self._make(c.type, cells.below(c.name), column) for c in kind.columns]
                return (
                    pa.StructArray.from_arrays(fields, fields=list(arrow_type(kind)))
                    if fields
                    else pa.nulls(cells.count, arrow_type(kind))
                )
            case TypeName.NULL:
                return pa.nulls(cells.count)
            case name:
                return _MAKERS[name](self, kind, cells, column)

    def _whole(self, kind: DataType, cells: Cells) -> Any:
        name = kind.name.value
        if self._values[f"{name}.fake.mode"] == "SEQUENCE":
            return self._sequence(kind, cells, int(self._values[f"{name}.min"]))
        template = self._values[f"{name}.template"]
        if template:
            return pa.array([int(v) for v in template], type=arrow_type(kind)).take(
                _picks(cells, len(template))
            )
        low, high = int(self._values[f"{name}.min"]), int(self._values[f"{name}.max"])
        return pa.array(
            between(cells.key, cells.first, cells.count, low, high).astype(_WHOLE[kind.name])
        )

    def _sequence(self, kind: DataType, cells: Cells, start: int) -> Any:
        counts = np.arange(start + cells.first, start + cells.first + cells.count, dtype=np.int64)
        return pa.array(counts.astype(_WHOLE[kind.name]))  # narrow types wrap around

    def _fraction(self, kind: DataType, cells: Cells, column: str) -> Any:
        name = kind.name.value
        template = self._values[f"{name}.template"]
        if template:
            return pa.array([float(v) for v in template], type=arrow_type(kind)).take(
                _picks(cells, len(template))
            )
        made = fractions(
            cells.key,
            cells.first,
            cells.count,
            float(self._values[f"{name}.min"]),
            float(self._values[f"{name}.max"]),
        )
        if column in self._settings.scales:
            made = np.round(made, self._settings.scales[column])
        return pa.array(made if kind.name is TypeName.DOUBLE else made.astype(np.float32))

    def _string(self, kind: DataType, cells: Cells, column: str) -> Any:
        template = self._values["string.template"]
        if template:
            return pa.array([str(v) for v in template]).take(_picks(cells, len(template)))
        length = self._settings.lengths.get(column) or int(self._values["string.length"])
        return _fixed_width(
            kind, cells, length, letters(cells.key, cells.first, cells.count, length)
        )

    def _bytes(self, kind: DataType, cells: Cells, _: str) -> Any:
        length = int(self._values["bytes.length"])
        return _fixed_width(
            kind, cells, length, letters(cells.key, cells.first, cells.count, length)
        )

    def _binary_vector(self, kind: DataType, cells: Cells, column: str) -> Any:
        length = (
            self._settings.scales.get(column, int(self._values["binary.vector.dimension"])) // 8
        )
        return _fixed_width(
            kind, cells, length, raw_bytes(cells.key, cells.first, cells.count, length).tobytes()
        )

    def _boolean(self, _: DataType, cells: Cells, __: str) -> Any:
        return pa.array(below(cells.key, cells.first, cells.count, 2).astype(np.bool_))

    def _decimal(self, kind: DataType, cells: Cells, _: str) -> Any:
        made = digits(cells.key, cells.first, cells.count, kind.precision)
        return pa.Array.from_buffers(
            arrow_type(kind), cells.count, [None, pa.py_buffer(made.tobytes())]
        )

    def _part(self, cells: Cells, name: str, low: int, high: int) -> Any:
        """Generate one part of a date or time, from its template or at random."""
        template = self._values[f"{name}.template"]
        at = cells.below(name)
        if template:
            return np.array([int(v) for v in template], dtype=np.int64)[_picks(at, len(template))]
        return between(at.key, at.first, at.count, low, high)

    def _days(self, cells: Cells) -> Any:
        years = self._part(cells, "date.year", self._now.year, self._now.year + 1)
        months = (years - 1970) * 12 + self._part(cells, "date.month", 1, 13) - 1
        starts = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
        ends = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
        # A template may contain day 31, which not every month has.
        return np.minimum(starts + self._part(cells, "date.day", 1, 29) - 1, ends - 1)

    def _seconds(self, cells: Cells) -> Any:
        hours, minutes = (
            self._part(cells, "time.hour", 0, 24),
            self._part(cells, "time.minute", 0, 60),
        )
        return hours * 3600 + minutes * 60 + self._part(cells, "time.second", 0, 60)

    def _date(self, _: DataType, cells: Cells, __: str) -> Any:
        return pa.array(self._days(cells).astype(np.int32)).cast(pa.date32())

    def _time(self, kind: DataType, cells: Cells, _: str) -> Any:
        return pa.array(self._seconds(cells) * 1_000_000_000).cast(arrow_type(kind))

    def _timestamp(self, kind: DataType, cells: Cells, _: str) -> Any:
        return pa.array((self._days(cells) * 86_400 + self._seconds(cells)) * 1_000_000).cast(
            arrow_type(kind)
        )

    def _map(self, kind: DataType, cells: Cells, column: str) -> Any:
        size = int(self._values["map.size"])
        keys = self._make(kind.children[0], cells.below("key", size), column)
        items = self._make(kind.children[1], cells.below("value", size), column)
        return _map_of(kind, cells.count, size, keys, items)

    def _floats(self, kind: DataType, cells: Cells, column: str) -> Any:
        size = self._settings.scales.get(column, int(self._values["vector.dimension"]))
        made = self._vector_values(kind.name, cells.below("element", size))
        return pa.ListArray.from_arrays(
            _offsets(cells.count, size), pa.array(made), type=arrow_type(kind)
        )

    def _vector_values(self, name: TypeName, cells: Cells) -> Any:
        low, high = float(self._values["vector.float.min"]), float(self._values["vector.float.max"])
        made = fractions(cells.key, cells.first, cells.count, low, high)
        if name is TypeName.FLOAT16_VECTOR:
            return np.minimum(made, _HALF_MAX).astype(np.float16).astype(np.float32)
        single = made.astype(np.float32)
        return (
            (single.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
            if name is TypeName.BFLOAT16_VECTOR
            else single
        )

    def _sparse(self, kind: DataType, cells: Cells, column: str) -> Any:
        size = self._settings.scales.get(column, int(self._values["vector.dimension"]))
        at = cells.below("key", size)
        keys = pa.array(between(at.key, at.first, at.count, 0, 2**31 - 1).astype(np.int32))
        items = pa.array(self._vector_values(kind.name, cells.below("value", size)))
        return _map_of(kind, cells.count, size, keys, items)


_MAKERS: dict[TypeName, Callable[[Generator, DataType, Cells, str], Any]] = {
    TypeName.STRING: Generator._string,
    TypeName.BYTES: Generator._bytes,
    TypeName.BOOLEAN: Generator._boolean,
    TypeName.DECIMAL: Generator._decimal,
    TypeName.DATE: Generator._date,
    TypeName.TIME: Generator._time,
    TypeName.TIMESTAMP: Generator._timestamp,
    TypeName.TIMESTAMP_TZ: Generator._timestamp,
    TypeName.BINARY_VECTOR: Generator._binary_vector,
    TypeName.FLOAT_VECTOR: Generator._floats,
    TypeName.FLOAT16_VECTOR: Generator._floats,
    TypeName.BFLOAT16_VECTOR: Generator._floats,
    TypeName.SPARSE_FLOAT_VECTOR: Generator._sparse,
}


def _picks(cells: Cells, size: int) -> Any:
    return below(cells.key, cells.first, cells.count, size)


def _offsets(count: int, size: int) -> Any:
    return pa.array(
        np.arange(0, (count + 1) * size, size, dtype=np.int32)
        if size
        else np.zeros(count + 1, dtype=np.int32)
    )


def _fixed_width(kind: DataType, cells: Cells, length: int, data: bytes) -> Any:
    offsets = pa.py_buffer(
        (np.arange(cells.count + 1, dtype=np.int32) * np.int32(length)).tobytes()
    )
    return pa.Array.from_buffers(arrow_type(kind), cells.count, [None, offsets, pa.py_buffer(data)])


def _map_of(kind: DataType, count: int, size: int, keys: Any, items: Any) -> Any:
    """Make maps of up to `size` entries: of entries with the same key, only the first is kept."""
    offsets = _offsets(count, size)
    if pa.types.is_null(keys.type) or size == 0:
        keys, items, offsets = keys.slice(0, 0), items.slice(0, 0), _offsets(count, 0)
    elif count and size > 1:
        owners = np.repeat(np.arange(count, dtype=np.int64), size)
        names = _codes(keys)
        _, kept = np.unique(owners * (int(names.max()) + 1) + names, return_index=True)
        if len(kept) < len(keys):
            kept.sort()
            ends = np.cumsum(np.bincount(owners[kept], minlength=count), dtype=np.int32)
            offsets = pa.array(np.concatenate([np.zeros(1, dtype=np.int32), ends]))
            keys, items = keys.take(pa.array(kept)), items.take(pa.array(kept))
    return pa.MapArray.from_arrays(offsets, keys, items).cast(arrow_type(kind))


def _codes(keys: Any) -> Any:
    """Number the distinct keys; nested keys, which Arrow cannot compare, count as distinct."""
    if pa.types.is_nested(keys.type):
        return np.arange(len(keys), dtype=np.int64)
    return keys.dictionary_encode().indices.to_numpy().astype(np.int64)
