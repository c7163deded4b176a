"""The Console sink: tasks format rows, and the driver prints them when their batch is committed.

So only committed rows are printed, in the order of the subtasks. Called by the engine through
plugin.contract. A batch that is repeated after a crash may be printed twice, because a terminal
keeps no record. The output of one task is bounded; further rows are counted and not printed.
"""

import base64
import sys
import time
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

import pyarrow as pa

from tidegate.connectors.console.text import column_texts, describe
from tidegate.model.types import ROW_KIND, RowKind, Table
from tidegate.plugin.contract import (
    BatchCommitted,
    Commit,
    Committer,
    Message,
    Sink,
    SinkRestore,
    Writer,
    WriteTask,
)

_MARK = "\x1e"
"""Separates rows in the packed text, because rows may contain line ends."""
_PACKED_BYTES_MAX = 16 << 20
_KINDS = [kind.name for kind in RowKind]


class Console(Sink):
    def writer(self, task: WriteTask) -> Writer:
        return _ConsoleWriter(
            task.subtask, self.values["log.print.data"], self.values["log.print.delay.ms"] / 1000
        )

    def committer(self) -> Committer:
        return ConsoleCommitter(sys.stdout)


class _ConsoleWriter(Writer):
    def __init__(self, subtask: int, printing: bool, delay_s: float) -> None:
        self._subtask = subtask
        self._printing = printing
        self._delay_s = delay_s
        self._rows = self._left_out = 0
        self._tables: dict[str, str] = {}
        self._pack = zlib.compressobj(1)
        self._packed: list[bytes] = []
        self._packed_bytes = 0

    def write(self, table: Table, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        self._tables.setdefault(table.path, describe(table))
        if self._printing and self._packed_bytes < _PACKED_BYTES_MAX:
            self._add("".join(line + _MARK for line in _lines(table, batch)))
        elif self._printing:
            self._left_out += batch.num_rows
        if self._delay_s:
            time.sleep(self._delay_s * batch.num_rows)

    def _add(self, text: str) -> None:
        piece = self._pack.compress(text.encode())
        self._packed.append(piece)
        self._packed_bytes += len(piece)

    def close(self) -> Message:
        packed = b"".join([*self._packed, self._pack.flush()])
        return {
            "rows": self._rows,
            "subtask": self._subtask,
            "tables": self._tables,
            "lines": base64.b64encode(packed).decode(),
            "left_out": self._left_out,
        }

    def abort(self) -> None:
        self._packed.clear()


def _lines(table: Table, batch: pa.RecordBatch) -> Iterable[str]:
    columns = [
        [text.replace(_MARK, " ") for text in column_texts(c.type, batch.column(i))]
        for i, c in enumerate(table.columns)
    ]
    kinds = (
        [_KINDS[int(code or 0)] for code in batch.column(ROW_KIND).to_pylist()]
        if table.kinds
        else [_KINDS[0]] * batch.num_rows
    )
    head = f"SeaTunnelRow#tableId={table.path} SeaTunnelRow#kind="
    for kind, *row in zip(kinds, *columns, strict=True):
        yield f"{head}{kind} : {', '.join(row)}"


class ConsoleCommitter(Committer):
    """Prints committed rows; row numbers continue over batches and restarts."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._printed: dict[str, int] = {}
        self._described: dict[str, str] = {}

    def open(self, resume: SinkRestore) -> None:
        """Continue the row numbers of the last completed checkpoint."""
        state: Mapping[str, Any] = resume.state or {}
        self._printed = dict(state.get("printed", {}))
        self._described = {}  # print the descriptions again, to what may be a new terminal

    def commit(self, commit: Commit) -> BatchCommitted:
        """Print a batch, subtask by subtask."""
        for message in sorted(commit.messages, key=lambda m: int(m["subtask"])):
            self._print(message)
        self._out.flush()
        return BatchCommitted()

    def _print(self, message: Message) -> None:
        for path, columns in message["tables"].items():
            if self._described.get(path) != columns:
                self._described[path] = columns
                self._write_line(f"output rowType: {columns}")
        subtask = str(message["subtask"])
        number = self._printed.get(subtask, 0)
        for line in _unpacked(message["lines"]):
            number += 1
            self._write_line(f"subtaskIndex={subtask}  rowIndex={number}:  {line}")
        if message["left_out"]:
            self._write_line(
                f"subtaskIndex={subtask}: {message['left_out']} more rows of this batch are not"
                " printed; reduce checkpoint.interval for smaller batches"
            )
            number += message["left_out"]
        self._printed[subtask] = number

    def _write_line(self, line: str) -> None:
        self._out.write(line + "\n")

    def state(self) -> Any:
        return {"printed": self._printed}


def _unpacked(lines: str) -> Iterable[str]:
    """Yield the rows of a message, unpacking the text piece by piece."""
    unpack = zlib.decompressobj()
    data: bytes = base64.b64decode(lines)
    rest = b""
    while data:
        rest += unpack.decompress(data, 1 << 20)
        data = unpack.unconsumed_tail
        *ready, rest = rest.split(_MARK.encode())
        yield from (line.decode() for line in ready)
