"""Stage the rows of one task as complete files, under unique names.

Called in tasks, through the contract. No other attempt can choose the same names. Writes only into
the staging directory of its generation and never creates that directory: if it is gone, a higher
generation has retired it.
"""

import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa

from tidegate.connectors.localfile.durable_io import discard, disk_errors, sync
from tidegate.connectors.localfile.fence import DirectoryRemoved, removed_message
from tidegate.connectors.localfile.sink_layout import SinkDirectory, SinkLayout
from tidegate.connectors.localfile.write_formats import (
    Encoder,
    RollPolicy,
    codec_name,
    open_encoder,
)
from tidegate.connectors.localfile.write_names import (
    file_name,
    for_table,
    list_for_table,
    partition_directory,
    suffix,
)
from tidegate.connectors.localfile.write_partition import split_by_partition
from tidegate.failpoint import failpoint
from tidegate.model.errors import Fenced, TerminalError, UserError
from tidegate.model.types import ROW_KIND, Table
from tidegate.plugin.contract import Message, Writer, WriteTask
from tidegate.plugin.option import Values
from tidegate.plugin.placeholders import placeholder_values

OPEN_FILES_MAX = 64
"""A task with more partitions at once closes its least recently used file."""
_GROUP_ROWS = 262_144
_GROUP_BYTES = 64 * 2**20
_PENDING_BYTES_MAX = 192 * 2**20
"""Memory of rows that all open files of a task buffer together, to make large row groups."""


class NotWritable(TerminalError):
    """Rows that the format cannot express."""

    condition = "not-writable"


@contextmanager
def _translated_errors(file_format: str) -> Iterator[None]:
    """Translate errors of the disk and of Arrow's encoders."""
    try:
        with disk_errors("writing a staged file"):
            yield
    except pa.ArrowException as error:
        raise NotWritable(f"the rows cannot be written as {file_format}: {error}") from error


@dataclass(frozen=True, kw_only=True, slots=True)
class TableTarget:
    """What the options mean for one table: directory, columns and partitions.

    Columns are indexes into its batches.
    """

    directory: str
    expression: str
    columns: tuple[int, ...]
    schema: pa.Schema
    keys: tuple[str, ...]
    key_columns: tuple[int, ...]

    @staticmethod
    def of(table: Table, schema: pa.Schema, values: Values, root: str) -> "TableTarget":
        """Build the target of a table whose batches have this schema.

        UserError if the options name columns that it lacks.
        """
        words = placeholder_values(table)
        path = os.path.abspath(for_table(values["path"], words, in_path=True))
        names = [n for n in schema.names if n != ROW_KIND]
        keys = tuple(list_for_table(values.get("partition_by"), words))
        wanted = list_for_table(values.get("sink_columns"), words) or names
        missing = [k for k in keys if k.lower() not in [w.lower() for w in wanted]]
        if missing:
            raise UserError(
                f"partition_by names {missing[0]!r}, which is not among the columns that are"
                f" written: {', '.join(wanted)}"
            )
        key_columns = tuple(_index(names, k, "partition_by") for k in keys)
        columns = [_index(names, w, "sink_columns") for w in wanted]
        if not values.get("is_partition_field_write_in_file"):
            columns = [c for c in columns if c not in key_columns]
        if not columns:
            raise UserError(
                f"no column of {table.path} is left to write: all of them are partition columns"
            )
        return TableTarget(
            directory=os.path.relpath(path, root),
            expression=for_table(values.get("file_name_expression") or "", words),
            columns=tuple(columns),
            schema=pa.schema([schema.field(c) for c in columns]),
            keys=keys,
            key_columns=key_columns,
        )


def _index(names: list[str], wanted: str, option: str) -> int:
    """Find a column by name, preferring the exact case."""
    if wanted in names:
        return names.index(wanted)
    lower = [n.lower() for n in names]
    if wanted.lower() in lower:
        return lower.index(wanted.lower())
    raise UserError(
        f"{option} names {wanted!r}, which is not a column: there are {', '.join(names)}"
    )


@dataclass(kw_only=True, slots=True)
class OpenFile:
    """A staged file that is being written."""

    encoder: Encoder
    staged: str
    path: str
    final: str
    rows: int = 0
    pending: list[pa.RecordBatch] = field(default_factory=list)
    pending_bytes: int = 0
    pending_rows: int = 0

    def flush(self) -> None:
        """Pass the buffered rows to the encoder."""
        if self.pending:
            self.encoder.write(self.pending)
        self.pending = []
        self.pending_bytes = 0
        self.pending_rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows of the file's schema; columnar formats get them in groups."""
        self.rows += batch.num_rows
        self.pending.append(batch)
        self.pending_bytes += batch.nbytes
        self.pending_rows += batch.num_rows
        if (
            not self.encoder.columnar
            or self.pending_rows >= _GROUP_ROWS
            or self.pending_bytes >= _GROUP_BYTES
        ):
            self.flush()


class FileWriter(Writer):
    """Stages the files of one task."""

    def __init__(
        self, sink: SinkDirectory, values: Values, job_id: int, task: WriteTask, host: str
    ) -> None:
        self._sink = sink
        self._values = values
        self._task = task
        self._host = host
        self._layout: SinkLayout = sink.layout(task.lineage)
        self._transaction = sink.transaction_id(job_id, task)
        self._suffix = suffix(values["file_format_type"], codec_name(values))
        self._roll = RollPolicy.of(values)
        self._targets: dict[str, tuple[pa.Schema, TableTarget]] = {}
        self._open: dict[
            tuple[str, str], OpenFile
        ] = {}  # by table and directory; the least recently used first
        self._closed: list[dict[str, Any]] = []
        self._staged_paths: list[str] = []  # every path that was ever opened, for abort
        self._rows = 0

    def write(self, table: Table, batch: pa.RecordBatch) -> None:
        """Stage one batch; the kinds of its rows are not written, as in SeaTunnel."""
        if batch.num_rows == 0:
            return
        target = self._target(table, batch.schema)
        with _translated_errors(self._values["file_format_type"]):
            for directory, part in self._parts(target, batch):
                rows = pa.RecordBatch.from_arrays(
                    [part.column(c) for c in target.columns], schema=target.schema
                )
                self._add(target, (table.path, directory), rows)
            self._limit_pending_bytes()
        self._rows += batch.num_rows

    def _target(self, table: Table, schema: pa.Schema) -> TableTarget:
        known = self._targets.get(table.path)
        if known is not None and known[0].equals(schema):
            return known[1]
        if known is not None:  # the columns changed: open files have the old ones
            with _translated_errors(self._values["file_format_type"]):
                for key in [k for k in self._open if k[0] == table.path]:
                    self._close_file(key)
        target = TableTarget.of(table, schema, self._values, self._sink.root)
        self._targets[table.path] = (schema, target)
        return target

    def _parts(
        self, target: TableTarget, batch: pa.RecordBatch
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        if not target.keys:
            yield target.directory, batch
            return
        expression = self._values.get("partition_dir_expression") or ""
        for key, part in split_by_partition(batch, target.key_columns):
            yield (
                os.path.join(target.directory, partition_directory(expression, target.keys, key)),
                part,
            )

    def _add(self, target: TableTarget, key: tuple[str, str], rows: pa.RecordBatch) -> None:
        while rows.num_rows:
            file = self._open.pop(key, None) or self._open_file(target, key[1])
            self._open[key] = file
            room = self._roll.rows - file.rows if self._roll.rows else rows.num_rows
            file.add(rows.slice(0, room))
            rows = rows.slice(room)
            if (self._roll.rows and file.rows >= self._roll.rows) or (
                self._roll.bytes and file.encoder.size() >= self._roll.bytes
            ):
                self._close_file(key)

    def _open_file(self, target: TableTarget, directory: str) -> OpenFile:
        if len(self._open) >= OPEN_FILES_MAX:
            self._close_file(next(iter(self._open)))
        index = len(self._staged_paths)
        staged = f"c{self._task.checkpoint}-{self._task.token}-{index}{self._suffix}"
        path = os.path.join(self._layout.staging(self._task.generation), staged)
        try:
            encoder = open_encoder(path, target.schema, self._values)
        except FileNotFoundError:
            raise self._staging_missing() from None
        self._staged_paths.append(path)
        name = file_name(
            target.expression,
            transaction=self._transaction,
            transactional=bool(self._values["is_enable_transaction"]),
            now=datetime.fromtimestamp(os.stat(path).st_mtime),
            time_format=self._values.get("filename_time_format") or "yyyy.MM.dd",
            unique=str(uuid.uuid4()),
        )
        numbered = name if self._values.get("single_file_mode") else f"{name}_{index}"
        final = os.path.normpath(os.path.join(directory, numbered + self._suffix))
        return OpenFile(encoder=encoder, staged=staged, path=path, final=final)

    def _staging_missing(self) -> Fenced | DirectoryRemoved:
        """Build the error for a missing staging directory.

        A newer generation retired it, it was removed, or it never existed on this host.
        """
        mine, fences, here = self._task.generation, self._layout.fences(), socket.gethostname()
        if fences and (mine in fences or fences[-1] > mine):
            return Fenced(f"the file sink {self._sink.operator}", mine, max(fences[-1], mine + 1))
        if self._host == here:
            return DirectoryRemoved(
                removed_message(self._layout, f"the file sink {self._sink.operator}")
            )
        return DirectoryRemoved(
            f"{self._layout.base} is not there on the host {here}: the directory was removed or"
            " unmounted, or this host does not share the disk (a file sink on a cluster needs one"
            " that all hosts share)"
        )

    def _limit_pending_bytes(self) -> None:
        """Limit the memory of many open files: the fullest ones are written first."""
        pending = sum(f.pending_bytes for f in self._open.values())
        for file in sorted(self._open.values(), key=lambda f: f.pending_bytes, reverse=True):
            if pending <= _PENDING_BYTES_MAX:
                return
            pending -= file.pending_bytes
            file.flush()

    def _close_file(self, key: tuple[str, str]) -> None:
        file = self._open.pop(key)
        failpoint("filesink.stage.before")
        try:
            file.flush()
        finally:
            file.encoder.close()
        failpoint("filesink.stage.middle")
        try:
            sync(file.path)
            size = os.stat(file.path).st_size
        except FileNotFoundError:
            raise self._staging_missing() from None
        failpoint("filesink.stage.after")
        self._closed.append(
            {
                "staged": file.staged,
                "final": file.final,
                "suffix": self._suffix,
                "rows": file.rows,
                "bytes": size,
            }
        )

    def close(self) -> Message:
        """Write all files to the disk and describe them."""
        with _translated_errors(self._values["file_format_type"]):
            for key in list(self._open):
                self._close_file(key)
        directories = sorted({target.directory for _, target in self._targets.values()})
        return {
            "rows": self._rows,
            "bytes": sum(f["bytes"] for f in self._closed),
            "files": self._closed,
            "directories": directories,
        }

    def abort(self) -> None:
        """Remove everything that this writer staged."""
        for file in self._open.values():
            try:
                file.encoder.close()
            except (OSError, pa.ArrowException):
                continue  # the file is removed in any case
        self._open = {}
        for path in self._staged_paths:
            discard(path)
