"""A replication stream of PostgreSQL, and the messages that it sent last.

Called by shared_stream.py. The stream reads a temporary copy of the slot that belongs to its
connection: the slot itself is never advanced, and stays free for others. The server decodes the log
once, whatever the number of ranges that are read. The latest messages are kept, so that a range can
be read again; their size is limited, and so is what is prefetched.
"""

import os
import select
import struct
import tempfile
import threading
import time
import uuid
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import psycopg

from tidegate.databases.errors import TransientDatabaseError
from tidegate.databases.postgres import lsn
from tidegate.databases.postgres import pgoutput_messages as messages
from tidegate.databases.postgres.session import connect, translate_error
from tidegate.databases.url import Address

KEPT_BYTES_MAX = 32 << 20
SPOOLED_BYTES_MAX = 512 << 20
"""Bytes kept in a file: the driver scans a range before a task reads it, if it does not know yet
how the tables were.
"""
FILE_BYTES_MAX = 64 << 20
PREFETCH_BYTES_MAX = 8 << 20
BURST_MESSAGES_MAX = 4096
BURST_BYTES_MAX = 4 << 20
GAP_BYTES_MAX = 128 << 20
"""A range that begins further after the last message is read from a new stream, which sends nothing
before it.
"""
SENDER_TIMEOUT = "60s"
"""The server drops a connection that has not reported for this time."""
REPORT_S = 10.0
SILENCE_S_MAX = 600.0
POLL_S = 0.02
GATHER_S = 0.001
PREFETCH_S = 0.005
_DATA, _KEEPALIVE = b"wk"
_DATA_HEADER = 25
_STATUS = struct.Struct(">cQQQqB")
_CHANGES = (messages.INSERT, messages.UPDATE, messages.DELETE)


@dataclass(slots=True)
class MessageBurst:
    """Messages in the order of the log.

    `before` is the commit of the transaction that the first of them belong to.
    """

    data: list[bytes]
    count: int
    size: int
    before: int
    commits: list[int] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    layouts: list[tuple[int, bytes]] = field(default_factory=list)
    file: Any = None
    offset: int = 0
    sizes: "array[int]" = field(default_factory=lambda: array("I"))

    @property
    def last(self) -> int:
        """The commit of the last transaction."""
        return self.commits[-1] if self.commits else self.before

    def first_from(self, position: int) -> int:
        """Return the index of the first message of a commit at or after a position."""
        if self.before >= position:
            return 0
        found = bisect_left(self.commits, position)
        return self.begins[found] if found < len(self.begins) else self.count

    def messages(self) -> list[bytes]:
        """Return the messages from memory, or from the file that they were moved to."""
        if self.file is None:
            return self.data
        text = os.pread(self.file.fileno(), self.size, self.offset)
        return [text[low:high] for low, high in pairwise(accumulate(self.sizes, initial=0))]

    def move_to_file(self, file: Any) -> None:
        """Append the messages to a file.

        Raises OSError if the file has no room; then nothing has changed.
        """
        offset = file.seek(0, os.SEEK_END)
        if file.write(b"".join(self.data)) != self.size:
            raise OSError("the disk is full")
        self.file = file
        self.offset = offset
        self.sizes = array("I", map(len, self.data))
        self.data = []


class ReplicationStream:
    """A connection that sends the transactions of a publication from `start` on.

    One range is read at a time.
    """

    def __init__(self, address: Address, slot: str, publication: str, start: int) -> None:
        self._address = address
        self._wire = threading.Lock()
        self._bursts: deque[MessageBurst] = deque()
        self._first = 0  # number of the first burst that is kept
        self._size = 0  # bytes of bursts in memory
        self._spooled = 0  # bytes of bursts in files, which come first
        self._moved = 0  # number of the first burst that is in memory
        self._file: Any = None
        self._prefetched = 0
        self._layouts: dict[bytes, bytes] = {}  # as they were before the first burst that is kept
        self._floor = start
        self._commit = 0
        self._seen = start
        self._read = 0  # number of the first burst that nobody has read
        self._requested_s = 0.0
        self._polled_s = 0.0
        self._answered = True
        self._received_s = time.monotonic()
        self._reported_s = self._received_s
        self.connection = connect(address, replication="database")
        try:
            self._begin(slot, publication, start)
        except BaseException:
            self.connection.close()
            raise

    def _begin(self, slot: str, publication: str, start: int) -> None:
        copy = f"tidegate_{uuid.uuid4().hex}"
        self._check_standbys()
        self._run(f"set wal_sender_timeout = '{SENDER_TIMEOUT}'")
        self._run(
            f"select pg_copy_logical_replication_slot({_literal(slot)}, {_literal(copy)}, true)"
        )
        name = _literal('"' + publication.replace('"', '""') + '"')
        self._run(
            f"START_REPLICATION SLOT {copy} LOGICAL {lsn.text(start)} (proto_version '1',"
            f" publication_names {name})"
        )

    def _check_standbys(self) -> None:
        """Reject a server whose commits would wait for this stream as a synchronous standby."""
        result = self._run(
            "select current_setting('synchronous_standby_names'),"
            " current_setting('application_name')"
        )
        standbys, name = (
            str(result.get_value(0, column) or b"", "utf-8").lower() for column in (0, 1)
        )
        if "*" in standbys or (name and name in standbys):
            raise TransientDatabaseError(
                str(self._address), f"a stream would be a synchronous standby of {standbys}"
            )

    def _run(self, statement: str) -> Any:
        try:
            result = self.connection.pgconn.exec_(statement.encode())
        except psycopg.Error as error:
            raise translate_error(self._address, error.sqlstate, str(error)) from None
        if result.status in (psycopg.pq.ExecStatus.FATAL_ERROR, psycopg.pq.ExecStatus.BAD_RESPONSE):
            refused = psycopg.errors.error_from_result(result)
            raise translate_error(self._address, refused.sqlstate, str(refused))
        return result

    def covers(self, start: int) -> bool:
        """Return whether a range that begins there can be read from this stream."""
        return self._floor <= start <= max(self._seen, self._commit) + GAP_BYTES_MAX

    def check(self) -> None:
        """Raise an error if the server has ended the stream."""
        self._receive(wait=False)

    def lists(self, start: int, end: int) -> Generator[list[bytes], None, None]:
        """Yield the messages of the transactions with start <= commit < end.

        The lists are those of a separate read of this range: the layout of a table comes before its
        first row.
        """
        layouts = dict(self._layouts)
        number = self._first
        while True:
            if number < self._first + len(self._bursts):
                burst = self._bursts[number - self._first]
                low, high = burst.first_from(start), burst.first_from(end)
                layouts.update(
                    (layout[1:5], layout) for index, layout in burst.layouts if index < low
                )
                if low < high:
                    yield with_layouts(burst.messages()[low:high], layouts)
                if (
                    self._prefetched < PREFETCH_BYTES_MAX
                    and time.monotonic() - self._polled_s > PREFETCH_S
                ):
                    self._receive(wait=False)  # so that the server continues while these are used
                if high < burst.count:
                    return
                number += 1
                if number > self._read:
                    self._read = number
                    self._prefetched -= burst.size
                self._evict(number)
            elif self._seen >= end:
                return
            else:
                self._receive(wait=True)

    def keep_alive(self, *, idle: bool) -> None:
        """Report to the server that the client is alive.

        If idle, also prefetch a little, so that the server can shut down.
        """
        while idle and self._prefetched < PREFETCH_BYTES_MAX and self._receive(wait=False):
            self._evict(self._read)
        if time.monotonic() - self._reported_s >= REPORT_S:
            with self._wire:
                self._report()

    def close(self) -> None:
        """End the connection, and with it the copy of the slot."""
        with self._wire:
            self.connection.close()
        for file in {self._file, *(burst.file for burst in self._bursts)} - {None}:
            file.close()

    def _receive(self, *, wait: bool) -> bool:
        """Receive what the server has sent; return False if that is nothing."""
        with self._wire:
            self._polled_s = time.monotonic()
            try:
                data = self._available()
                if not data and wait:
                    self._wait()
                    data = self._available()
            except psycopg.Error as error:
                raise translate_error(self._address, error.sqlstate, str(error)) from None
        if data:
            self._append(data)
        return bool(data)

    def _available(self) -> list[bytes]:
        """Return messages that have already arrived."""
        connection = self.connection.pgconn
        take = connection.get_copy_data
        found: list[bytes] = []
        size = remaining = 0
        consumed = False
        while len(found) < BURST_MESSAGES_MAX and size < BURST_BYTES_MAX:
            remaining, data = take(1)
            if remaining > 0:
                if data[0] == _DATA:
                    found.append(bytes(data[_DATA_HEADER:]))
                    size += remaining
                elif data[0] == _KEEPALIVE:
                    self._on_keepalive(bytes(data))
            elif remaining < 0:
                self._raise_end()
            elif consumed:
                break
            else:
                connection.consume_input()
                consumed = True
        if found:
            self._received_s = time.monotonic()
        return found

    def _on_keepalive(self, data: bytes) -> None:
        """Process a keepalive.

        Every transaction whose commit lies before its position was sent before it.
        """
        (position,) = struct.unpack_from(">Q", data, 1)
        self._received_s = time.monotonic()
        self._answered = True
        self._seen = max(self._seen, position)
        if data[17]:
            self._report()

    def _raise_end(self) -> None:
        """Raise the error with which the server ended the stream; it may be shutting down."""
        while (result := self.connection.pgconn.get_result()) is not None:
            if result.status == psycopg.pq.ExecStatus.FATAL_ERROR:
                raise psycopg.errors.error_from_result(result)
        raise psycopg.OperationalError("the server ended the replication stream")

    def _wait(self) -> None:
        """Wait a moment for messages; ask the server for its position."""
        now_s = time.monotonic()
        if now_s - self._received_s > SILENCE_S_MAX:
            raise psycopg.OperationalError(
                f"the replication stream is silent for {SILENCE_S_MAX:g} s"
            )
        if now_s - self._requested_s > (POLL_S if self._answered else REPORT_S):
            self._report(ask=True)
        poller = select.poll()
        poller.register(self.connection.pgconn.socket, select.POLLIN)
        if poller.poll(POLL_S * 1000):
            time.sleep(GATHER_S)  # many messages together cost less
        self.connection.pgconn.consume_input()

    def _report(self, *, ask: bool = False) -> None:
        """Report the position to the server; with `ask` it answers with a keepalive."""
        at = max(self._seen, self._commit)
        self.connection.pgconn.put_copy_data(_STATUS.pack(b"r", at, at, at, 0, int(ask)))
        self.connection.pgconn.flush()
        self._reported_s = time.monotonic()
        if ask:
            self._requested_s = self._reported_s
            self._answered = False

    def _append(self, data: list[bytes]) -> None:
        """Append messages to the kept ones."""
        burst = MessageBurst(data, len(data), sum(map(len, data)), self._commit)
        for index, message in enumerate(data):
            kind = message[0]
            if kind == messages.BEGIN:
                burst.commits.append(messages.begin(message)[0])
                burst.begins.append(index)
            elif kind == messages.RELATION:
                burst.layouts.append((index, message))
        self._commit = burst.last
        self._bursts.append(burst)
        self._size += burst.size
        self._prefetched += burst.size

    def _evict(self, before: int) -> None:
        """Move the oldest bursts that were read, up to a number, from memory to files.

        Those that exceed the limit of files are dropped.
        """
        while self._size > KEPT_BYTES_MAX and self._moved < min(before, self._read):
            burst = self._bursts[self._moved - self._first]
            self._moved += 1
            self._size -= burst.size
            self._spooled += burst.size
            try:
                burst.move_to_file(self._spool())
            except OSError:  # no room: what is not kept is read again
                while self._first < self._moved:
                    self._drop_oldest()
        while self._spooled > SPOOLED_BYTES_MAX and self._first < min(before, self._moved):
            self._drop_oldest()

    def _spool(self) -> Any:
        """Return an unnamed file, which ends with the process.

        A new one is opened after a while, so that the first can be released.
        """
        if self._file is None or self._file.closed or self._file.tell() > FILE_BYTES_MAX:
            self._file = tempfile.TemporaryFile(  # noqa: SIM115  # closed with its last burst
                prefix="tidegate-", buffering=0
            )
        return self._file

    def _drop_oldest(self) -> None:
        """Drop the oldest burst, which is not in memory."""
        burst = self._bursts.popleft()
        self._first += 1
        self._spooled -= burst.size
        self._floor = max(self._floor, burst.last + 1)
        self._layouts.update((layout[1:5], layout) for _, layout in burst.layouts)
        if burst.file is not None and (not self._bursts or self._bursts[0].file is not burst.file):
            burst.file.close()


def with_layouts(data: list[bytes], layouts: dict[bytes, bytes]) -> list[bytes]:
    """Return the messages with earlier layouts that their rows need.

    Those layouts are removed from `layouts`.
    """
    if not layouts or not any(
        head[1:] in layouts or head[:1] == b"T" for head in {message[:5] for message in data}
    ):
        return data
    found: list[bytes] = []
    for message in data:
        kind = message[0]
        if kind == messages.RELATION:
            layouts.pop(message[1:5], None)
        elif kind in _CHANGES and message[1:5] in layouts:
            found.append(layouts.pop(message[1:5]))
        elif kind == messages.TRUNCATE:
            numbers = [number.to_bytes(4, "big") for number in messages.truncated_tables(message)]
            found += [layouts.pop(number) for number in numbers if number in layouts]
        found.append(message)
    return found


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
