"""Reads parquet and orc files, in tasks: by row groups and stripes, whose numbers are the positions in such a file. Also tells the driver what is in them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.orc as pa_orc
import pyarrow.parquet as pq

from tidegate.connectors.localfile.streams import BadFile, Part, opened
from tidegate.model.types import Column
from tidegate.plugin.arrow import arrow_type

ROWS_PER_BATCH = 128 * 1024


@contextmanager
def _file(part: Part, form: str) -> Iterator[Any]:
    with opened(part):
        try:
            yield pq.ParquetFile(part.path) if form == "parquet" else pa_orc.ORCFile(part.path)
        except (pa.ArrowInvalid, OSError) as error:
            raise BadFile(part.path, f"cannot be read as {form}: {str(error).splitlines()[0]}") from error


def file_schema(part: Part, form: str) -> pa.Schema:
    """The columns of a file."""
    with _file(part, form) as file:
        schema: pa.Schema = file.schema_arrow if form == "parquet" else file.schema
        return schema


def group_rows(part: Part, form: str) -> list[int]:
    """The number of rows of every row group or stripe; orc files only say their sum, so it is spread."""
    with _file(part, form) as file:
        if form == "parquet":
            return [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        return [-(-file.nrows // file.nstripes)] * file.nstripes if file.nstripes else []


class Columnar:
    """The reader of one table's parquet or orc files. Columns are found by name, in any case if need be; one that a file lacks is null."""

    def __init__(self, form: str, wanted: Sequence[Column]) -> None:
        self.form, self.wanted = form, wanted

    def read(self, part: Part) -> Iterator[list[Any]]:
        """The arrays of the wanted columns, batch after batch."""
        with _file(part, self.form) as file:
            names = (file.schema_arrow if self.form == "parquet" else file.schema).names
            folded = {name.lower(): name for name in reversed(names)}
            found = [c.name if c.name in names else folded.get(c.name.lower()) for c in self.wanted]
            for batch in self._batches(file, part, [name for name in found if name]):
                yield [self._array(batch, name, column, part) for name, column in zip(found, self.wanted, strict=True)]

    def _batches(self, file: Any, part: Part, names: list[str]) -> Iterator[Any]:
        count = file.metadata.num_row_groups if self.form == "parquet" else file.nstripes
        groups = range(part.start, count if part.end < 0 else part.end)
        if self.form == "parquet":
            yield from file.iter_batches(ROWS_PER_BATCH, row_groups=list(groups), columns=names, use_threads=False)
            return
        for group in groups:
            stripe = file.read_stripe(group, columns=names)
            yield from (stripe.slice(at, ROWS_PER_BATCH) for at in range(0, stripe.num_rows, ROWS_PER_BATCH))

    def _array(self, batch: Any, name: str | None, column: Column, part: Part) -> Any:
        wanted = arrow_type(column.type)
        if name is None:
            return pa.nulls(batch.num_rows, wanted)
        array = batch.column(batch.schema.get_field_index(name))
        if array.type == wanted:
            return array
        try:
            lossy = pa.types.is_timestamp(wanted) and pa.types.is_timestamp(array.type)  # nanoseconds are cut to microseconds
            return array.cast(wanted, safe=not lossy)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise BadFile(part.path, f"column {name} is {array.type} and does not fit into {column.type}: {error}") from error
