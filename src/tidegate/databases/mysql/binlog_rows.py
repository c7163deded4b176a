"""Collect the row events of one table into record batches with row kinds.

Called by binlog_reader.py, in tasks.
"""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidegate.databases.cdc.column_defaults import missing_column
from tidegate.databases.mysql.binlog_charsets import codec_of
from tidegate.databases.mysql.binlog_columns import (
    ColumnTarget,
    Finish,
    finisher,
    name_row_in_errors,
)
from tidegate.databases.mysql.binlog_definition import Recorded, difference
from tidegate.databases.mysql.binlog_errors import LayoutChanged, LogDamaged
from tidegate.databases.mysql.binlog_events import RowChangeKind, RowEvent, TableMap
from tidegate.databases.mysql.binlog_row_layout import LogColumn
from tidegate.databases.mysql.binlog_values import Decode, compiled_module, decoder, raw_column
from tidegate.model.types import ROW_KIND, DataType, Table, TypeName
from tidegate.plugin.arrow import table_schema

BATCH_ROWS_MAX = 16_384
BATCH_BYTES_MAX = 4 << 20
_KINDS = {RowChangeKind.INSERT: (0,), RowChangeKind.UPDATE: (1, 2), RowChangeKind.DELETE: (3,)}


@dataclass(frozen=True, kw_only=True, slots=True)
class LogTable:
    """A table to read: its columns in the log, and the table as it flows through the pipeline.

    Columns are matched by name; those that are not in the log yet have the value that the source
    shows in existing rows. `rolled_back` says whether a rollback reverts its rows, `folds_case`
    whether the server ignores case in its name.
    """

    columns: Recorded
    table: Table
    rolled_back: bool = True
    folds_case: bool = False


def _same(one: TableMap, other: TableMap) -> bool:
    """Return whether rows of both layouts are decoded in the same way."""
    return (one.types, one.metas, one.metadata.labels) == (
        other.types,
        other.metas,
        other.metadata.labels,
    )


class RowCollector:
    """Decodes the events of one table. A batch never ends between the two images of an update."""

    def __init__(self, table: LogTable) -> None:
        self._table = table
        self._logged = tuple(c.log for c in table.columns)
        self._schema = table_schema(table.table)
        self._types = {c.name: c.type for c in table.table.columns}
        self._map: TableMap | None = None
        self._decode: Decode | None = None
        self._finish: list[Finish] = []
        self._columns: list[list[Any]] = [[] for _ in table.columns]
        self._kinds: list[int] = []
        self.bytes = 0

    def layout(self, table_map: TableMap) -> None:
        """Set the layout of the events that follow."""
        if table_map is self._map:
            return
        if wrong := difference(table_map, self._table.columns):
            raise LayoutChanged(
                f"{table_map.path} was altered after its range was planned: {wrong}. Restart "
                "the job"
            )
        if self._map is None or not _same(table_map, self._map):
            assert not self._kinds, "rows of the previous layout are taken first"
            raw = [
                raw_column(t, m, unsigned=c.unsigned, name=c.name)
                for t, m, c in zip(table_map.types, table_map.metas, self._logged, strict=True)
            ]
            self._decode = decoder(raw, compiled_module())
            self._finish = [
                finisher(r, self._target(c, labels))
                for r, c, labels in zip(raw, self._logged, table_map.metadata.labels, strict=True)
            ]
        self._map = table_map

    def fits(self, table_map: TableMap) -> bool:
        """Return whether rows of this layout can join the collected ones."""
        return not self._kinds or self._map is None or _same(table_map, self._map)

    def _target(self, column: LogColumn, labels: tuple[bytes, ...] | None) -> ColumnTarget:
        """Return what a column is converted to.

        Labels are taken from the log if it has them, as the catalogue cannot show all characters.
        """
        kind = self._types.get(column.name, DataType(TypeName.STRING))
        exact = labels is not None and column.charset is not None
        texts = (
            tuple(label.decode(codec_of(str(column.charset))) for label in labels or ())
            if exact
            else column.labels
        )
        return ColumnTarget(
            name=column.name,
            type=kind,
            charset=column.charset,
            labels=texts,
            exact=exact,
            word=column.word,
        )

    def add(self, event: RowEvent) -> None:
        """Collect the rows of an event."""
        assert self._decode is not None, "a layout comes before its rows"
        images = self._decode(event.images, 0, len(event.images), self._columns)
        kinds = _KINDS[event.change]
        self._kinds.extend(kinds * (images // len(kinds)))
        if images % len(kinds):
            raise LogDamaged("an update has a before image and no after image")
        self.bytes += len(event.images)

    @property
    def full(self) -> bool:
        """Whether there are enough rows for a batch."""
        return len(self._kinds) >= BATCH_ROWS_MAX or self.bytes >= BATCH_BYTES_MAX

    @property
    def empty(self) -> bool:
        """Whether no rows are collected."""
        return not self._kinds

    def take(self) -> pa.RecordBatch:
        """Return the collected rows in the schema of the table, and reset."""
        count = len(self._kinds)
        with name_row_in_errors(
            self._table.table.path,
            self._table.table.primary_key,
            [c.name for c in self._logged],
            self._columns,
        ):
            arrays = {
                c.name: finish(values)
                for c, finish, values in zip(self._logged, self._finish, self._columns, strict=True)
                if c.name in self._types
            }
        arrays |= {
            c.name: missing_column(self._table.table, c, count)
            for c in self._table.table.columns
            if c.name not in arrays
        }
        arrays[ROW_KIND] = pa.array(self._kinds, pa.int8())
        batch = pa.RecordBatch.from_arrays(
            [arrays[f.name] for f in self._schema], schema=self._schema
        )
        self._columns = [[] for _ in self._table.columns]
        self._kinds = []
        self.bytes = 0
        return batch
