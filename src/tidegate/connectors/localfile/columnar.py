"""Read parquet and orc files, in tasks.

Positions in these files are numbers of row groups or stripes. The driver reads schemas and row
counts with this module.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.orc as pa_orc
import pyarrow.parquet as pq

from tidegate.connectors.localfile.bad_rows import BadFile, BadRow, BadRows, Leniency, faults_by_row
from tidegate.connectors.localfile.column_cast import ColumnCast
from tidegate.connectors.localfile.file_blocks import FilePart, open_part
from tidegate.connectors.localfile.header_checks import column_indexes
from tidegate.model.types import Column
from tidegate.plugin.option import Values

ROWS_PER_BATCH = 128 * 1024


@contextmanager
def _open_file(part: FilePart, form: str) -> Iterator[Any]:
    with open_part(part):
        try:
            yield pq.ParquetFile(part.path) if form == "parquet" else pa_orc.ORCFile(part.path)
        except (pa.ArrowInvalid, OSError) as error:
            raise BadFile(
                part.path, f"cannot be read as {form}: {str(error).splitlines()[0]}"
            ) from error


def file_schema(part: FilePart, form: str) -> pa.Schema:
    """Read the Arrow schema of a file."""
    with _open_file(part, form) as file:
        schema: pa.Schema = file.schema_arrow if form == "parquet" else file.schema
        return schema


def group_rows(part: FilePart, form: str) -> list[int]:
    """Read the number of rows of every row group or stripe.

    orc files only store the total, so it is spread evenly.
    """
    with _open_file(part, form) as file:
        if form == "parquet":
            return [
                file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)
            ]
        return [-(-file.nrows // file.nstripes)] * file.nstripes if file.nstripes else []


class ColumnarReader:
    """Reader of one table's parquet or orc files.

    Columns are matched by name, ignoring case if there is no exact match. `exact` means that the
    columns come from the first file and not from a schema: then no file may have additional
    columns.
    """

    def __init__(
        self,
        values: Values,
        wanted: Sequence[Column],
        *,
        names: Sequence[str] = (),
        exact: bool = False,
    ) -> None:
        self.form = str(values["file_format_type"])
        self.wanted = wanted
        self.names = names
        self.exact = exact
        self.leniency = Leniency.of(values)

    def read(self, part: FilePart) -> Iterator[list[Any]]:
        """Yield the arrays of the wanted columns, one list per batch."""
        with _open_file(part, self.form) as file:
            names = (file.schema_arrow if self.form == "parquet" else file.schema).names
            indexes = column_indexes(names, [c.name for c in self.wanted])
            self._check_columns(names, indexes, part)
            found = [names[index] if index >= 0 else None for index in indexes]
            casts = [ColumnCast(c, self.leniency) for c in self.wanted]
            bad = BadRows(part.path, lambda rows: [f"row {row + 1}" for row in rows])
            row = self._first_row(file, part)
            for batch in self._batches(file, part, [name for name in found if name]):
                arrays = self._arrays(batch, found, casts, bad, row)
                row += batch.num_rows
                if arrays and not bad.count:
                    yield arrays
                bad.end_block(batch.nbytes)
            bad.close()

    def _check_columns(self, names: Sequence[str], indexes: Sequence[int], part: FilePart) -> None:
        missing = [c.name for c, index in zip(self.wanted, indexes, strict=True) if index < 0]
        if missing and not (self.leniency.fill_missing and len(missing) < len(indexes)):
            raise BadFile(
                part.path,
                f"has no column {', '.join(map(repr, missing))}; it has"
                f" {', '.join(map(repr, names))}. Correct the schema, or set missing_columns ="
                ' "fill_null" to read null for columns that a file lacks',
            )
        folded = [name.lower() for name in names]
        twice = [
            c.name
            for c in self.wanted
            if names.count(c.name) != 1 and folded.count(c.name.lower()) > 1
        ]
        if twice:
            raise BadFile(
                part.path,
                f"has more than one column {', '.join(map(repr, twice))}:"
                f" {', '.join(map(repr, names))}",
            )
        extra = [name for name in names if name not in self.names] if self.exact else []
        if extra:
            raise BadFile(
                part.path,
                f"has {', '.join(map(repr, extra))}, which the first file of the table lacks: add"
                " a schema",
            )

    def _first_row(self, file: Any, part: FilePart) -> int:
        if self.form == "parquet":
            return sum(file.metadata.row_group(i).num_rows for i in range(part.start))
        return (
            sum(file.read_stripe(i, columns=[]).num_rows for i in range(part.start))
            if part.start
            else 0
        )

    def _batches(self, file: Any, part: FilePart, names: list[str]) -> Iterator[Any]:
        count = file.metadata.num_row_groups if self.form == "parquet" else file.nstripes
        groups = range(part.start, count if part.end < 0 else part.end)
        if self.form == "parquet":
            yield from file.iter_batches(
                ROWS_PER_BATCH, row_groups=list(groups), columns=names, use_threads=False
            )
            return
        for group in groups:
            stripe = file.read_stripe(group, columns=names)
            yield from (
                stripe.slice(at, ROWS_PER_BATCH) for at in range(0, stripe.num_rows, ROWS_PER_BATCH)
            )

    def _arrays(
        self,
        batch: Any,
        found: Sequence[str | None],
        casts: Sequence[ColumnCast],
        bad: BadRows,
        first: int,
    ) -> list[Any] | None:
        arrays: list[Any] = []
        faults: dict[int, list[str]] = defaultdict(list)
        for name, cast in zip(found, casts, strict=True):
            array = None if name is None else batch.column(batch.schema.get_field_index(name))
            try:
                arrays.append(cast.convert(array, batch.num_rows))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
                for row, what in cast.faults(array, batch.num_rows):
                    faults[row].append(f"column {cast.column.name}: {what}")
        for row, what in faults_by_row(faults):
            bad.add(BadRow(first + row, what))
        return None if faults else arrays
