"""Bound the connections of the API: how many there are, from whom, and how long one may wait. Used
by the server, around uvicorn.

uvicorn answers requests; it closes neither half-sent heads, nor silent TLS handshakes, nor bodies
that never end, and takes every descriptor of the process. So asyncio accepts through `Listener`, a
listening socket that counts a connection from accept to close, before TLS and before the first
byte. Twice:

* At a limit the oldest connection that waits for a request is closed to make room, first of the
  peer
  that has the most. Connections whose request is being answered, event streams among them, are never
  closed for others; where there are only such, the new one is refused.
* `sweep`, about once a second, closes what has waited too long: for a handshake, a head, a body, or
  for
  a client that does not read its answer. It reads uvicorn's own state, so a request costs nothing more.

Some descriptors are never given to connections: drivers and the store need them (`limits`).
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

TOTAL_MAX = 10_000  # where the limit of descriptors says nothing
TOTAL_MIN = 16
PER_PEER_MIN = 8
RESERVED_MIN = 64
CLOSING_S = 1.0  # how long a connection that was closed may take to be gone
IPV6_NETWORK = 64  # bits: who has one address there has all
TIMEOUT_ANSWER = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How many connections there may be."""

    total: int
    per_peer: int


class ConnectionPhase(Enum):
    """What a connection is doing."""

    HANDSHAKE = 1  # nothing has been heard of it by uvicorn
    HEAD = 2
    BODY = 3
    IDLE = 4  # between two requests: uvicorn's own timeout ends it
    ANSWERED = 5
    UNREAD = 6  # there is an answer that the client does not take

    @property
    def waits(self) -> bool:
        """Whether nothing is lost but a client's patience where it is closed."""
        return self in (
            ConnectionPhase.HANDSHAKE,
            ConnectionPhase.HEAD,
            ConnectionPhase.BODY,
            ConnectionPhase.IDLE,
        )


@dataclass(slots=True)
class OpenConnection:
    """One that is open, and since when it has been doing the same."""

    peer: str
    progress: tuple[object, ...] = ()
    since_s: float = 0.0
    closed_s: float | None = None  # when it was told to go


class CountedSocket(socket.socket):
    """A connection that is forgotten when it is closed, whoever closes it."""

    on_close: Callable[["CountedSocket"], None] | None = None

    def close(self) -> None:
        """Close it, and let the next one come."""
        forget, self.on_close = self.on_close, None
        if forget is not None:
            forget(self)
        super().close()


class ConnectionTable:
    """All connections of one server.

    Only the thread of its event loop calls it. `protocols` are those of uvicorn.
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
        self.open: dict[CountedSocket, OpenConnection] = {}  # the oldest first
        self.peers: Counter[str] = Counter()
        head_s, body_s = http.header_timeout_ms / 1000, http.body_timeout_ms / 1000
        self.timeouts_s = {
            ConnectionPhase.HANDSHAKE: head_s,
            ConnectionPhase.HEAD: head_s,
            ConnectionPhase.BODY: body_s,
            ConnectionPhase.UNREAD: body_s,
        }

    def make_room(self) -> None:
        """Before a connection is accepted: BlockingIOError where one has to go first, and is on its
        way.
        """
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
        """Whether a connection that was just accepted may stay."""
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
        """Close every connection that has been waiting for too long."""
        now_s, protocols = self.now_s(), self._protocols()
        for made, connection in list(self.open.items()):
            protocol = protocols.get(made.fileno())
            phase, doing = progress_of(protocol)
            if doing != connection.progress:
                connection.progress = doing
                connection.since_s = now_s
            elif phase in self.timeouts_s and now_s - connection.since_s >= self.timeouts_s[phase]:
                self._end(made, protocol, phase)

    def _close_oldest(self, peer: str | None) -> bool:
        """Close the oldest one that waits, of this peer or of any; whether there was one."""
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
        """Close it. Without a protocol the transport is asyncio's alone: it sees the end of the
        stream, and closes.
        """
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
    """A listening socket through which only so many come as there is room for."""

    connections: ConnectionTable

    @classmethod
    def around(cls, listener: socket.socket, connections: ConnectionTable) -> "Listener":
        """Take a listening socket over."""
        made = cls(listener.family, listener.type, listener.proto, fileno=listener.detach())
        made.connections = connections
        return made

    def accept(self) -> tuple[socket.socket, Any]:
        """One connection; BlockingIOError or ConnectionAbortedError, which asyncio takes for none,
        where there is no room.
        """
        self.connections.make_room()
        descriptor, address = self._accept()  # type: ignore[attr-defined]  # as socket.accept does
        made = CountedSocket(self.family, self.type, self.proto, fileno=descriptor)
        if not self.connections.admit(made, address):
            made.close()
            raise ConnectionAbortedError
        return made, address


def progress_of(protocol: Any) -> tuple[ConnectionPhase, tuple[object, ...]]:
    """What a connection is doing, and a value that stays the same while it makes no progress."""
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
    """How many connections leave a quarter of the descriptors, and what is in use already, to
    drivers and the store.
    """
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
    """Who calls: an IPv4 address, or the network of an IPv6 one."""
    try:
        found = ipaddress.ip_address(str(address[0]).partition("%")[0])
    except (ValueError, IndexError):
        return str(address)
    if isinstance(found, ipaddress.IPv6Address):
        mapped = found.ipv4_mapped
        return (
            str(mapped)
            if mapped
            else str(
                ipaddress.ip_network((int(found) >> IPV6_NETWORK << IPV6_NETWORK, IPV6_NETWORK))
            )
        )
    return str(found)


def _in_use() -> int:
    """Descriptors that this process has open."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return RESERVED_MIN
