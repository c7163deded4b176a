"""Hold batches until all are there: in memory while they are few, else in an unnamed file.

Called by source.py, in tasks.
"""

import tempfile
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import pyarrow as pa

MEMORY_BYTES_MAX = 32 << 20


class Spool:
    """`with Spool(schema) as spool: spool.add(batch) ...; for batch in spool: ...`"""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._file: Any = None
        self._writer: Any = None

    def __enter__(self) -> "Spool":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Append a batch; move all to a file when they exceed the memory limit."""
        self._bytes += batch.nbytes
        if self._writer is None and self._bytes > MEMORY_BYTES_MAX:
            self._file = tempfile.TemporaryFile(prefix="tidegate-")  # noqa: SIM115  # see __exit__
            self._writer = pa.ipc.new_stream(self._file, self._schema)
            for earlier in self._batches:
                self._writer.write_batch(earlier)
            self._batches = []
        if self._writer is not None:
            self._writer.write_batch(batch)
        else:
            self._batches.append(batch)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._file is None:
            yield from self._batches
            return
        self._writer.close()
        self._file.flush()
        self._file.seek(0)
        with pa.ipc.open_stream(self._file) as reader:
            yield from reader
