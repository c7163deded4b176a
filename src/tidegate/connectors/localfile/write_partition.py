"""Split a batch by the values of its partition columns.

Called by the writer, in tasks. Handles values, not directory names.
"""

import datetime
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

Key = tuple[str | None, ...]
"""The values of the partition columns as text."""


def split_by_partition(
    batch: pa.RecordBatch, columns: Sequence[int]
) -> Iterator[tuple[Key, pa.RecordBatch]]:
    """Yield the rows of each combination of values, in their order.

    Every part has its own memory, so that keeping a small one does not keep the whole batch.
    """
    encoded = [batch.column(c).dictionary_encode(null_encoding="encode") for c in columns]
    codes = np.zeros(batch.num_rows, dtype=np.int64)
    for column in encoded:
        codes = codes * len(column.dictionary) + column.indices.to_numpy(
            zero_copy_only=False
        ).astype(np.int64)
        codes = np.unique(codes, return_inverse=True)[1].astype(
            np.int64
        )  # keeps the codes below the number of rows
    order = np.argsort(codes, kind="stable")
    bounds = [0, *(np.flatnonzero(np.diff(codes[order])) + 1).tolist(), batch.num_rows]
    for begin, end in pairwise(bounds):
        first = int(order[begin])
        key = tuple(
            value_text(column.dictionary[column.indices[first].as_py()].as_py())
            for column in encoded
        )
        yield key, batch if end - begin == batch.num_rows else batch.take(order[begin:end])


def value_text(value: Any) -> str | None:
    """Format a value for a directory's name."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case bytes():
            return value.decode(errors="replace")
        case Decimal():
            return f"{value:f}"
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case _:
            return str(value)
