"""Row events of one table, collected into record batches with row kinds.

Called by reader.py, in tasks.
"""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidegate.databases.cdc.column_defaults import absent
from tidegate.databases.mysql.binlog_charsets import codec_of
from tidegate.databases.mysql.binlog_columns import ColumnTarget, Finish, finisher, located
from tidegate.databases.mysql.binlog_definition import Recorded, difference
from tidegate.databases.mysql.binlog_errors import LayoutChanged, LogDamaged
from tidegate.databases.mysql.binlog_events import RowChangeKind, RowEvent, TableMap
from tidegate.databases.mysql.binlog_row_layout import LogColumn
from tidegate.databases.mysql.binlog_values import Decode, compiled, decoder, raw_column
from tidegate.model.types import ROW_KIND, DataType, Table, TypeName
from tidegate.plugin.arrow import table_schema

BATCH_ROWS_MAX = 16_384
BATCH_BYTES_MAX = 4 << 20
_KINDS = {RowChangeKind.INSERT: (0,), RowChangeKind.UPDATE: (1, 2), RowChangeKind.DELETE: (3,)}


@dataclass(frozen=True, kw_only=True, slots=True)
class LogTable:
    """A table that is wanted: the columns as the log writes them, and the table as it flows through
    the pipeline.

    Columns are found by name; those that are not in the log yet hold what the source shows in rows
    of before. `undone` tells whether a rollback undoes its rows, `folds` whether the server ignores
    case in its name.
    """

    columns: Recorded
    table: Table
    undone: bool = True
    folds: bool = False


def _same(one: TableMap, other: TableMap) -> bool:
    """Whether rows of both are decoded alike."""
    return (one.types, one.metas, one.metadata.labels) == (
        other.types,
        other.metas,
        other.metadata.labels,
    )


class RowCollector:
    """Decodes the events of one table. A batch never ends between the two images of an update."""

    def __init__(self, wanted: LogTable) -> None:
        self._wanted = wanted
        self._logged = tuple(c.log for c in wanted.columns)
        self._schema = table_schema(wanted.table)
        self._types = {c.name: c.type for c in wanted.table.columns}
        self._map: TableMap | None = None
        self._decode: Decode | None = None
        self._finish: list[Finish] = []
        self._columns: list[list[Any]] = [[] for _ in wanted.columns]
        self._kinds: list[int] = []
        self.bytes = 0

    def layout(self, map_: TableMap) -> None:
        """The layout of the events that follow."""
        if map_ is self._map:
            return
        if wrong := difference(map_, self._wanted.columns):
            raise LayoutChanged(
                f"{map_.path} was altered after its range was fixed: {wrong}. Start the job again"
            )
        if self._map is None or not _same(map_, self._map):
            assert not self._kinds, "rows of the layout before are taken first"
            raw = [
                raw_column(t, m, unsigned=c.unsigned, name=c.name)
                for t, m, c in zip(map_.types, map_.metas, self._logged, strict=True)
            ]
            self._decode = decoder(raw, compiled())
            self._finish = [
                finisher(r, self._target(c, labels))
                for r, c, labels in zip(raw, self._logged, map_.metadata.labels, strict=True)
            ]
        self._map = map_

    def fits(self, map_: TableMap) -> bool:
        """Whether rows of this layout can join those that are collected."""
        return not self._kinds or self._map is None or _same(map_, self._map)

    def _target(self, column: LogColumn, labels: tuple[bytes, ...] | None) -> ColumnTarget:
        """What a column becomes; the labels are those of the log where it has them, as the
        catalogue cannot show all characters.
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
        """The rows of an event."""
        assert self._decode is not None, "a layout comes before its rows"
        images = self._decode(event.images, 0, len(event.images), self._columns)
        kinds = _KINDS[event.change]
        self._kinds.extend(kinds * (images // len(kinds)))
        if images % len(kinds):
            raise LogDamaged("an update has an image before and none after")
        self.bytes += len(event.images)

    @property
    def full(self) -> bool:
        """Whether it is time to take the batch."""
        return len(self._kinds) >= BATCH_ROWS_MAX or self.bytes >= BATCH_BYTES_MAX

    @property
    def empty(self) -> bool:
        """Whether there is nothing to take."""
        return not self._kinds

    def take(self) -> pa.RecordBatch:
        """The rows so far, in the table's schema."""
        count = len(self._kinds)
        with located(
            self._wanted.table.path,
            self._wanted.table.primary_key,
            [c.name for c in self._logged],
            self._columns,
        ):
            arrays = {
                c.name: finish(values)
                for c, finish, values in zip(self._logged, self._finish, self._columns, strict=True)
                if c.name in self._types
            }
        arrays |= {
            c.name: absent(self._wanted.table, c, count)
            for c in self._wanted.table.columns
            if c.name not in arrays
        }
        arrays[ROW_KIND] = pa.array(self._kinds, pa.int8())
        batch = pa.RecordBatch.from_arrays(
            [arrays[f.name] for f in self._schema], schema=self._schema
        )
        self._columns = [[] for _ in self._wanted.columns]
        self._kinds = []
        self.bytes = 0
        return batch
