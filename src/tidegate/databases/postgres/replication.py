"""An open replication stream of PostgreSQL and the messages that it sent last. Called by
shared_stream.py.

The stream reads through a temporary copy of the slot that belongs to its connection: the slot
itself is never moved, and stays free for others. The server decodes the log once, whatever the
number of ranges that are read from it. What was sent last is kept, so that a range can be read
again; how much is bounded, and so is what is fetched ahead.
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

from tidegate.databases.errors import DatabaseTrouble
from tidegate.databases.postgres import lsn
from tidegate.databases.postgres import pgoutput_messages as messages
from tidegate.databases.postgres.session import connect, ours
from tidegate.databases.url import Address

KEPT_BYTES_MAX = 32 << 20
SPOOLED_BYTES_MAX = 512 << 20
"""In a file: the driver looks through a range before a task reads it, where it does not know yet
how the tables were.
"""
FILE_BYTES_MAX = 64 << 20
AHEAD_BYTES_MAX = 8 << 20
BURST_MESSAGES_MAX = 4096
BURST_BYTES_MAX = 4 << 20
GAP_BYTES_MAX = 128 << 20
"""A range that begins further after the last message is cheaper to find by a new stream, which
sends nothing before it.
"""
SENDER_TIMEOUT = "60s"
"""After so long without a report the server takes us for lost."""
REPORT_S = 10.0
SILENCE_S_MAX = 600.0
ASK_S = 0.02
GATHER_S = 0.001
AHEAD_S = 0.005
_DATA, _KEEPALIVE = b"wk"
_DATA_HEADER = 25
_STATUS = struct.Struct(">cQQQqB")
_CHANGES = (messages.INSERT, messages.UPDATE, messages.DELETE)


@dataclass(slots=True)
class Burst:
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
        """The index of the first message of a transaction whose commit is at or after a position."""
        if self.before >= position:
            return 0
        found = bisect_left(self.commits, position)
        return self.begins[found] if found < len(self.begins) else self.count

    def messages(self) -> list[bytes]:
        """From memory, or from the file that they were moved to."""
        if self.file is None:
            return self.data
        text = os.pread(self.file.fileno(), self.size, self.offset)
        return [text[low:high] for low, high in pairwise(accumulate(self.sizes, initial=0))]

    def move(self, file: Any) -> None:
        """To the end of a file; OSError where it takes no more, and then nothing has changed."""
        offset = file.seek(0, os.SEEK_END)
        if file.write(b"".join(self.data)) != self.size:
            raise OSError("the disk is full")
        self.file, self.offset, self.sizes, self.data = (
            file,
            offset,
            array("I", map(len, self.data)),
            [],
        )


class ReplicationStream:
    """One connection that sends the transactions of a publication from `start` on.

    One range is read at a time.
    """

    def __init__(self, address: Address, slot: str, publication: str, start: int) -> None:
        self._address = address
        self._wire = threading.Lock()
        self._bursts: deque[Burst] = deque()
        self._first = 0  # number of the first burst that is kept
        self._size = 0  # of bursts in memory
        self._spooled = 0  # of those in files, which come first
        self._moved = 0  # number of the first burst that is in memory
        self._file: Any = None
        self._ahead = 0
        self._layouts: dict[bytes, bytes] = {}  # as they were before the first burst that is kept
        self._floor = start
        self._commit = 0
        self._seen = start
        self._read = 0  # number of the first burst that nobody has read
        self._asked_s = self._pulled_s = 0.0
        self._answered = True
        self._heard_s = self._reported_s = time.monotonic()
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
        """A server that takes any reader for a synchronous standby would let its commits wait for
        us.
        """
        result = self._run(
            "select current_setting('synchronous_standby_names'),"
            " current_setting('application_name')"
        )
        standbys, name = (
            str(result.get_value(0, column) or b"", "utf-8").lower() for column in (0, 1)
        )
        if "*" in standbys or (name and name in standbys):
            raise DatabaseTrouble(
                str(self._address), f"a stream would be a synchronous standby of {standbys}"
            )

    def _run(self, statement: str) -> Any:
        try:
            result = self.connection.pgconn.exec_(statement.encode())
        except psycopg.Error as error:
            raise ours(self._address, error.sqlstate, str(error)) from None
        if result.status in (psycopg.pq.ExecStatus.FATAL_ERROR, psycopg.pq.ExecStatus.BAD_RESPONSE):
            refused = psycopg.errors.error_from_result(result)
            raise ours(self._address, refused.sqlstate, str(refused))
        return result

    def covers(self, start: int) -> bool:
        """Whether a range that begins there can be read from here."""
        return self._floor <= start <= max(self._seen, self._commit) + GAP_BYTES_MAX

    def check(self) -> None:
        """Raise where the server has ended the stream."""
        self._pull(wait=False)

    def lists(self, start: int, end: int) -> Generator[list[bytes], None, None]:
        """The messages of the transactions with start <= commit < end.

        Each list is what a read of this range alone would give: the layout of a table comes before
        its first row.
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
                    yield announced(burst.messages()[low:high], layouts)
                if self._ahead < AHEAD_BYTES_MAX and time.monotonic() - self._pulled_s > AHEAD_S:
                    self._pull(wait=False)  # so that the server goes on while these are used
                if high < burst.count:
                    return
                number += 1
                if number > self._read:
                    self._read = number
                    self._ahead -= burst.size
                self._forget(number)
            elif self._seen >= end:
                return
            else:
                self._pull(wait=True)

    def keep_alive(self, *, idle: bool) -> None:
        """Report that we are there; where nobody reads, also fetch a little ahead, so that a server
        can shut down.
        """
        while idle and self._ahead < AHEAD_BYTES_MAX and self._pull(wait=False):
            self._forget(self._read)
        if time.monotonic() - self._reported_s >= REPORT_S:
            with self._wire:
                self._report()

    def close(self) -> None:
        """End the connection, and the copy of the slot with it."""
        with self._wire:
            self.connection.close()
        for file in {self._file, *(burst.file for burst in self._bursts)} - {None}:
            file.close()

    def _pull(self, *, wait: bool) -> bool:
        """Take what the server has sent; False where that is nothing."""
        with self._wire:
            self._pulled_s = time.monotonic()
            try:
                data = self._arrived()
                if not data and wait:
                    self._wait()
                    data = self._arrived()
            except psycopg.Error as error:
                raise ours(self._address, error.sqlstate, str(error)) from None
        if data:
            self._keep(data)
        return bool(data)

    def _arrived(self) -> list[bytes]:
        """Messages that are here already."""
        connection = self.connection.pgconn
        take = connection.get_copy_data
        found: list[bytes] = []
        size = left = 0
        consumed = False
        while len(found) < BURST_MESSAGES_MAX and size < BURST_BYTES_MAX:
            left, data = take(1)
            if left > 0:
                if data[0] == _DATA:
                    found.append(bytes(data[_DATA_HEADER:]))
                    size += left
                elif data[0] == _KEEPALIVE:
                    self._heard(bytes(data))
            elif left < 0:
                self._ended()
            elif consumed:
                break
            else:
                connection.consume_input()
                consumed = True
        if found:
            self._heard_s = time.monotonic()
        return found

    def _heard(self, data: bytes) -> None:
        """A keepalive: every transaction whose commit lies before its position was sent before it."""
        (position,) = struct.unpack_from(">Q", data, 1)
        self._heard_s = time.monotonic()
        self._answered = True
        self._seen = max(self._seen, position)
        if data[17]:
            self._report()

    def _ended(self) -> None:
        """The server ended the stream: by an error, or as it shuts down."""
        while (result := self.connection.pgconn.get_result()) is not None:
            if result.status == psycopg.pq.ExecStatus.FATAL_ERROR:
                raise psycopg.errors.error_from_result(result)
        raise psycopg.OperationalError("the server ended the replication stream")

    def _wait(self) -> None:
        """Until something comes, for a moment; the server is asked how far it is."""
        now_s = time.monotonic()
        if now_s - self._heard_s > SILENCE_S_MAX:
            raise psycopg.OperationalError(
                f"the replication stream is silent for {SILENCE_S_MAX:g} s"
            )
        if now_s - self._asked_s > (ASK_S if self._answered else REPORT_S):
            self._report(ask=True)
        poller = select.poll()
        poller.register(self.connection.pgconn.socket, select.POLLIN)
        if poller.poll(ASK_S * 1000):
            time.sleep(GATHER_S)  # many messages at once cost less than one by one
        self.connection.pgconn.consume_input()

    def _report(self, *, ask: bool = False) -> None:
        """Tell the server how far we are; it answers with a keepalive where it is asked."""
        at = max(self._seen, self._commit)
        self.connection.pgconn.put_copy_data(_STATUS.pack(b"r", at, at, at, 0, int(ask)))
        self.connection.pgconn.flush()
        self._reported_s = time.monotonic()
        if ask:
            self._asked_s = self._reported_s
            self._answered = False

    def _keep(self, data: list[bytes]) -> None:
        """Messages after those that are kept."""
        burst = Burst(data, len(data), sum(map(len, data)), self._commit)
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
        self._ahead += burst.size

    def _forget(self, before: int) -> None:
        """Move the oldest bursts that were read, up to a number, out of memory, and drop those that
        are too many there too.
        """
        while self._size > KEPT_BYTES_MAX and self._moved < min(before, self._read):
            burst = self._bursts[self._moved - self._first]
            self._moved += 1
            self._size -= burst.size
            self._spooled += burst.size
            try:
                burst.move(self._spool())
            except OSError:  # no room: what is not kept is read again
                while self._first < self._moved:
                    self._drop()
        while self._spooled > SPOOLED_BYTES_MAX and self._first < min(before, self._moved):
            self._drop()

    def _spool(self) -> Any:
        """A file without a name, which goes with the process; another one after a while, so that
        the first can be given up.
        """
        if self._file is None or self._file.closed or self._file.tell() > FILE_BYTES_MAX:
            self._file = tempfile.TemporaryFile(prefix="tidegate-", buffering=0)  # noqa: SIM115  # closed with its last burst
        return self._file

    def _drop(self) -> None:
        """The oldest burst, which is not in memory."""
        burst = self._bursts.popleft()
        self._first += 1
        self._spooled -= burst.size
        self._floor = max(self._floor, burst.last + 1)
        self._layouts.update((layout[1:5], layout) for _, layout in burst.layouts)
        if burst.file is not None and (not self._bursts or self._bursts[0].file is not burst.file):
            burst.file.close()


def announced(data: list[bytes], layouts: dict[bytes, bytes]) -> list[bytes]:
    """The messages, with layouts from before them that their rows need; those are taken out of
    `layouts`.
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
            numbers = [number.to_bytes(4, "big") for number in messages.truncated(message)]
            found += [layouts.pop(number) for number in numbers if number in layouts]
        found.append(message)
    return found


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
