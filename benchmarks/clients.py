"""Clients that cost next to nothing: one thread, plain sockets, answers counted and not read.
Called by api.py.

What is measured is then the server: sixteen threads of one Python process would wait for one
another more than for an answer.
"""

import json
import re
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType

from benchmarks.sides import Trouble

ANSWER_S_MAX = 60.0
ROOM = 1 << 20
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
BODILESS, REFUSED, CLOSED = (204, 304), 503, 0


class Line:
    """One connection that is kept open, and asked again and again."""

    def __init__(self, port: int, room: memoryview) -> None:
        self.port = port
        self.room = room
        self.head = b""
        self.left = -1
        self.asked_s = 0.0
        self.status = 0
        self.open()

    def open(self) -> None:
        """Anew, where the server has closed it: it does so with one that it thinks unused."""
        self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_S_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self.socket.close()

    def ask(self, path: str, headers: Sequence[str] = ()) -> None:
        """Send a request; its answer is awaited elsewhere."""
        self.head = b""
        self.left = -1
        self.asked_s = time.perf_counter()
        self.socket.sendall(
            "\r\n".join((f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", "")).encode()
        )

    def heard(self) -> bool:
        """Take what is there; whether the answer is whole now, or will never be."""
        got = self.socket.recv_into(self.room)
        if not got:
            self.status = CLOSED
            return True
        if self.left >= 0:
            self.left -= got
            return self.left <= 0
        self.head += self.room[:got].tobytes()
        head, blank, body = self.head.partition(b"\r\n\r\n")
        if not blank:
            return False
        self.status, length = int(head[9:12]), LENGTH.search(head)
        self.left = (
            (int(length[1]) if length else 0) - len(body) if self.status not in BODILESS else 0
        )
        return self.left <= 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Answers:
    """What so many clients were answered: in a second, the seconds of each, sorted, and how often
    the server said that it knows nothing for sure (503), or hung up.
    """

    rate: float
    each: Sequence[float]
    refused: int


def ask_for(
    port: int,
    path: Callable[[int], str],
    *,
    clients: int,
    seconds: float,
    headers: Sequence[str] = (),
    wanted: int = 200,
) -> Answers:
    """So many clients, each asking again as soon as it is answered; those that were asked before
    the end are waited for.
    """
    room, each, number, refused = memoryview(bytearray(ROOM)), [], 0, 0
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        lines = [Line(port, room) for _ in range(clients)]
        began_s = time.perf_counter()
        for line in lines:
            stack.callback(line.close)
            selector.register(line.socket, selectors.EVENT_READ, line)
            line.ask(path(number), headers)
            number += 1
        while len(each) + refused < number:
            if time.perf_counter() > began_s + seconds + ANSWER_S_MAX:
                raise Trouble(f"{path(0)}: no answer within {ANSWER_S_MAX:g} s")
            for line in [key.data for key, _ in selector.select(1.0) if key.data.heard()]:
                now_s = time.perf_counter()
                if line.status == wanted:
                    each.append(now_s - line.asked_s)
                elif line.status in (REFUSED, CLOSED):
                    refused += 1
                else:
                    raise Trouble(f"{path(0)}: {line.status} instead of {wanted}")
                if line.status == CLOSED:
                    selector.unregister(line.socket)
                    line.socket.close()
                    line.open()
                    selector.register(line.socket, selectors.EVENT_READ, line)
                if now_s < began_s + seconds or not each:
                    line.ask(path(number), headers)
                    number += 1
        return Answers(
            rate=len(each) / (time.perf_counter() - began_s), each=sorted(each), refused=refused
        )


class Listeners:
    """Many clients of the stream of events, heard by one thread: who has been told of which job,
    and when.
    """

    def __init__(self, port: int, count: int) -> None:
        self.lines: list[socket.socket] = []
        self.greeted = 0
        self.events = 0
        self.trouble = ""
        self._told: dict[int, list[float]] = {}
        self._changed = threading.Condition()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._hear, name="listeners", daemon=True)
        for _ in range(count):
            line = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S_MAX)
            self.lines.append(line)
            line.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")

    def __enter__(self) -> "Listeners":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        for line in self.lines:
            line.close()

    def expect(self, job_id: int) -> None:
        """From now on, count who hears of this job."""
        with self._changed:
            self._told[job_id] = []

    def told(self, job_id: int, within_s: float) -> list[float]:
        """When each of them heard of it: wait until all have."""
        with self._changed:
            if not self._changed.wait_for(
                lambda: self.trouble or len(self._told[job_id]) >= len(self.lines), within_s
            ):
                raise Trouble(
                    f"{len(self._told[job_id])} of {len(self.lines)} listeners have heard of job"
                    f" {job_id} within {within_s:g} s"
                )
            if self.trouble:
                raise Trouble(self.trouble)
            return sorted(self._told.pop(job_id))

    def _hear(self) -> None:
        texts, heard = {line: b"" for line in self.lines}, {line: set[int]() for line in self.lines}
        with selectors.DefaultSelector() as selector:
            for line in self.lines:
                selector.register(line, selectors.EVENT_READ)
            while not self._over.is_set():
                for key, _ in selector.select(0.2):
                    line = key.fileobj
                    assert isinstance(line, socket.socket)
                    got = line.recv(ROOM)
                    if not got:
                        self.trouble = "the server has ended a stream"
                        return
                    *whole, texts[line] = (texts[line] + got).split(b"\n\n")
                    self._count(whole, heard[line])

    def _count(self, events: Sequence[bytes], heard: set[int]) -> None:
        now_s = time.perf_counter()
        for event in events:
            data = event.rpartition(b"data: ")[2].strip()
            self.greeted += b"event: hello" in event
            if b"event: jobs" not in event:
                continue
            self.events += 1
            said = json.loads(data)
            with self._changed:
                for job_id, times in self._told.items():
                    if job_id not in heard and (said.get("all") or str(job_id) in said["jobs"]):
                        heard.add(job_id)
                        times.append(now_s)
                self._changed.notify_all()
