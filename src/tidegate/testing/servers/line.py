"""A line to a server on the loopback that can be cut at a chosen moment: for tests of lost requests
and lost answers.

Used as `with Line(server.port) as line: ... line.port ...`. What a client sends in one piece is
taken as one request, what the server sends next as its answer: true for clients that ask one
question at a time.
"""

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType

CHUNK = 1 << 20
PATIENCE_S = 60.0


class RequestFault(StrEnum):
    """What becomes of the next request; after it the line is cut, and the next connection is a good
    one.
    """

    NONE = "none"
    REQUEST_LOST = "request-lost"  # it does not arrive
    REQUEST_HELD_BACK = "request-held-back"  # it arrives when `deliver` is called
    ANSWER_LOST = "answer-lost"  # it is carried out, and nothing comes back
    ANSWER_CUT = "answer-cut"  # it is carried out, and all but the last bytes come back


@dataclass(slots=True)
class ProxiedConnection:
    """One connection of a client, and ours to the server for it."""

    client: socket.socket
    server: socket.socket
    answer: RequestFault = RequestFault.NONE

    def cut(self) -> None:
        """Both pumps wake up and end."""
        for end in (self.client, self.server):
            hang_up(end)


class Line:
    """All connections that go through one port."""

    def __init__(self, port: int, *, tail_bytes: int = 6) -> None:
        self._target = ("127.0.0.1", port)
        self._tail_bytes = tail_bytes  # PostgreSQL's word that it has committed has 6
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._next = RequestFault.NONE
        self._pairs: list[ProxiedConnection] = []
        self._held: list[tuple[socket.socket, bytes]] = []
        self._open = threading.Event()
        self._open.set()
        self._threads: list[threading.Thread] = []
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> "Line":
        self._spawn(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        hang_up(self._listener)
        self.unmute()
        for pair in self._pairs:
            pair.cut()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for end in [
            self._listener,
            *(end for pair in self._pairs for end in (pair.client, pair.server)),
        ]:
            end.close()

    def trouble(self, kind: RequestFault) -> None:
        """For the next request, on whatever connection."""
        with self._lock:
            self._next = kind

    def mute(self) -> None:
        """Drop everything silently from now on."""
        self._open.clear()

    def unmute(self) -> None:
        """What was sent meanwhile passes now."""
        self._open.set()

    def deliver(self) -> int:
        """What was held back arrives now, and is answered; how many there were."""
        held, self._held = self._held, []
        for server, data in held:
            server.settimeout(PATIENCE_S)
            server.sendall(data)
            server.recv(CHUNK)
            hang_up(server)
        return len(held)

    def _spawn(self, act: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=act, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            pair = ProxiedConnection(client, socket.create_connection(self._target))
            self._pairs.append(pair)
            self._spawn(self._requests, pair)
            self._spawn(self._answers, pair)

    def _requests(self, pair: ProxiedConnection) -> None:
        while data := self._received(pair.client):
            with self._lock:
                kind, self._next = self._next, RequestFault.NONE
            if kind is RequestFault.REQUEST_LOST:
                break
            if kind is RequestFault.REQUEST_HELD_BACK:
                self._held.append((pair.server, data))
                hang_up(pair.client)
                return
            pair.answer = kind
            if not sent(pair.server, data):
                break
        pair.cut()

    def _answers(self, pair: ProxiedConnection) -> None:
        while data := self._received(pair.server):
            if pair.answer is RequestFault.ANSWER_CUT:
                sent(pair.client, data[: -self._tail_bytes])
            if pair.answer is not RequestFault.NONE or not sent(pair.client, data):
                break
        pair.cut()

    def _received(self, end: socket.socket) -> bytes:
        """The next piece; nothing at the end."""
        try:
            data = end.recv(CHUNK)
        except OSError:
            return b""
        self._open.wait(PATIENCE_S)
        return data


def sent(end: socket.socket, data: bytes) -> bool:
    try:
        end.sendall(data)
    except OSError:
        return False
    return True


def hang_up(end: socket.socket) -> None:
    """Who reads here wakes up; the number of the socket stays taken until the line is closed, so
    that no thread can meet another one under it.
    """
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
