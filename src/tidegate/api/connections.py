"""Limit the connections of the API: their number, those of one peer, and how long each may wait.

uvicorn answers requests, but it closes neither half-sent headers, nor silent TLS handshakes, nor
bodies that never end, and it takes every file descriptor of the process. So asyncio accepts through
`Listener`, a listening socket that counts a connection from accept to close, before TLS and before
the first byte. Limits apply at two points:

* When a limit is reached, the oldest connection that waits for a request is closed to make room,
  first one of the peer with the most connections. Connections with a request in progress, including
  event streams, are never closed for others; if there are only such, the new one is refused.
* `sweep`, about once a second, closes connections that have waited too long: for a handshake, a
  header, a body, or for a client that does not read its response. It reads uvicorn's own state, so
  requests cost nothing extra.

Some descriptors are never used for connections: drivers and the store need them (`limits`).
"""

import contextlib
import ipaddress
import os
import resource
import socket
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tidegate.model.engine import HttpSettings

TOTAL_MAX = 10_000  # even if the limit of descriptors allows more
TOTAL_MIN = 16
PER_PEER_MIN = 8
RESERVED_MIN = 64
CLOSING_S = 1.0  # how long a connection may take to close
IPV6_NETWORK = 64  # bits: a host usually has a whole /64 network
TIMEOUT_ANSWER = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Maximum number of connections, in total and of one peer."""

    total: int
    per_peer: int


class ConnectionPhase(Enum):
    """What a connection is doing."""

    HANDSHAKE = 1  # uvicorn does not know of it yet
    HEAD = 2
    BODY = 3
    IDLE = 4  # between two requests: uvicorn's own timeout ends it
    ANSWERED = 5
    UNREAD = 6  # there is a response that the client does not read

    @property
    def waits(self) -> bool:
        """Whether closing it interrupts no request in progress."""
        return self in (
            ConnectionPhase.HANDSHAKE,
            ConnectionPhase.HEAD,
            ConnectionPhase.BODY,
            ConnectionPhase.IDLE,
        )


@dataclass(slots=True)
class OpenConnection:
    """An open connection, and since when it has made no progress."""

    peer: str
    progress: tuple[object, ...] = ()
    since_s: float = 0.0
    closed_s: float | None = None  # when closing it began


class CountedSocket(socket.socket):
    """The socket of a connection; reports when it is closed, by any code."""

    on_close: Callable[["CountedSocket"], None] | None = None

    def close(self) -> None:
        """Close the socket and remove it from the table."""
        on_close, self.on_close = self.on_close, None
        if on_close is not None:
            on_close(self)
        super().close()


class ConnectionTable:
    """All connections of one server. Used by the thread of its event loop only.

    `protocols` returns the protocol objects of uvicorn.
    """

    def __init__(
        self,
        http: HttpSettings,
        limits: ConnectionLimits,
        protocols: Callable[[], Iterable[Any]],
        now_s: Callable[[], float],
    ) -> None:
        self.limits = limits
        self.protocols = protocols
        self.now_s = now_s
        self.open: dict[CountedSocket, OpenConnection] = {}  # oldest first
        self.peers: Counter[str] = Counter()
        head_s, body_s = http.header_timeout_ms / 1000, http.body_timeout_ms / 1000
        self.timeouts_s = {
            ConnectionPhase.HANDSHAKE: head_s,
            ConnectionPhase.HEAD: head_s,
            ConnectionPhase.BODY: body_s,
            ConnectionPhase.UNREAD: body_s,
        }

    def make_room(self) -> None:
        """Close a connection if the table is full; BlockingIOError until it is closed."""
        if len(self.open) < self.limits.total:
            return
        now_s = self.now_s()
        leaving = any(
            c.closed_s is not None and now_s - c.closed_s < CLOSING_S for c in self.open.values()
        )
        if (
            leaving
            or self._close_oldest(max(self.peers, key=lambda peer: self.peers[peer]))
            or self._close_oldest(None)
        ):
            raise BlockingIOError

    def admit(self, made: CountedSocket, address: Any) -> bool:
        """Add an accepted connection; False if it exceeds a limit."""
        peer = peer_of(address)
        if len(self.open) >= self.limits.total:
            return False
        if self.peers[peer] >= self.limits.per_peer and not self._close_oldest(peer):
            return False
        self.open[made] = OpenConnection(peer, since_s=self.now_s())
        self.peers[peer] += 1
        made.on_close = self._forget
        return True

    def sweep(self) -> None:
        """Close every connection that has waited longer than the timeout of its phase."""
        now_s, protocols = self.now_s(), self._protocols()
        for made, connection in list(self.open.items()):
            protocol = protocols.get(made.fileno())
            phase, progress = progress_of(protocol)
            if progress != connection.progress:
                connection.progress = progress
                connection.since_s = now_s
            elif phase in self.timeouts_s and now_s - connection.since_s >= self.timeouts_s[phase]:
                self._end(made, protocol, phase)

    def _close_oldest(self, peer: str | None) -> bool:
        """Close the oldest waiting connection of this peer, or of any; False if there is none."""
        protocols = self._protocols()
        for made, connection in self.open.items():
            if connection.closed_s is None and peer in (None, connection.peer):
                protocol = protocols.get(made.fileno())
                phase, _ = progress_of(protocol)
                if phase.waits:
                    self._end(made, protocol, phase)
                    return True
        return False

    def _end(self, made: CountedSocket, protocol: Any, phase: ConnectionPhase) -> None:
        """Close a connection. One without a protocol belongs to asyncio, which closes it at EOF."""
        self.open[made].closed_s = self.now_s()
        if protocol is None:
            with contextlib.suppress(OSError):
                made.shutdown(socket.SHUT_RDWR)
        elif phase is ConnectionPhase.HEAD:
            protocol.transport.write(TIMEOUT_ANSWER)
            protocol.transport.close()
        else:
            protocol.transport.abort()

    def _protocols(self) -> dict[int, Any]:
        found = {}
        for protocol in self.protocols():
            made = (
                protocol.transport.get_extra_info("socket")
                if protocol.transport is not None
                else None
            )
            if made is not None:
                found[made.fileno()] = protocol
        return found

    def _forget(self, made: CountedSocket) -> None:
        connection = self.open.pop(made)
        self.peers[connection.peer] -= 1
        if not self.peers[connection.peer]:
            del self.peers[connection.peer]


class Listener(socket.socket):
    """A listening socket that accepts only as many connections as the table allows."""

    connections: ConnectionTable

    @classmethod
    def around(cls, listener: socket.socket, connections: ConnectionTable) -> "Listener":
        """Wrap an existing listening socket."""
        made = cls(listener.family, listener.type, listener.proto, fileno=listener.detach())
        made.connections = connections
        return made

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection.

        Raises BlockingIOError or ConnectionAbortedError at a limit; asyncio takes both for "none".
        """
        self.connections.make_room()
        descriptor, address = self._accept()  # type: ignore[attr-defined]  # as socket.accept does
        made = CountedSocket(self.family, self.type, self.proto, fileno=descriptor)
        if not self.connections.admit(made, address):
            made.close()
            raise ConnectionAbortedError
        return made, address


def progress_of(protocol: Any) -> tuple[ConnectionPhase, tuple[object, ...]]:
    """Return a connection's phase, and a value that is constant while it makes no progress."""
    if protocol is None:
        return ConnectionPhase.HANDSHAKE, (ConnectionPhase.HANDSHAKE,)
    cycle = protocol.cycle
    if cycle is None or cycle.response_complete:
        phase = (
            ConnectionPhase.IDLE
            if protocol.timeout_keep_alive_task is not None
            else ConnectionPhase.HEAD
        )
        return phase, (phase, id(cycle))
    if cycle.more_body:
        return ConnectionPhase.BODY, (ConnectionPhase.BODY, id(cycle))
    unread = protocol.transport.get_write_buffer_size()
    phase = ConnectionPhase.UNREAD if unread else ConnectionPhase.ANSWERED
    return phase, (phase, id(cycle), unread)


def limits(
    http: HttpSettings, descriptors: int | None = None, in_use: int | None = None
) -> ConnectionLimits:
    """Compute the limits: a quarter of the descriptors is reserved for drivers and the store."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if descriptors is None else descriptors
    total = TOTAL_MAX
    if soft != resource.RLIM_INFINITY:
        used = _in_use() if in_use is None else in_use
        total = min(TOTAL_MAX, max(TOTAL_MIN, soft - used - max(RESERVED_MIN, soft // 4)))
    if http.connections_max:
        total = min(total, http.connections_max)
    per_peer = http.connections_per_peer_max or max(PER_PEER_MIN, total // 2)
    return ConnectionLimits(total, min(total, per_peer))


def peer_of(address: Any) -> str:
    """Identify the peer: its IPv4 address, or the /64 network of its IPv6 address."""
    try:
        found = ipaddress.ip_address(str(address[0]).partition("%")[0])
    except (ValueError, IndexError):
        return str(address)
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped:
            return str(found.ipv4_mapped)
        network = int(found) >> IPV6_NETWORK << IPV6_NETWORK
        return str(ipaddress.ip_network((network, IPV6_NETWORK)))
    return str(found)


def _in_use() -> int:
    """Count the open file descriptors of this process."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return RESERVED_MIN
