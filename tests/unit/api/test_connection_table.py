"""Connection limits: which connection is closed to make room; on sockets, without a server."""

import resource
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.api.connections import (
    ConnectionLimits,
    ConnectionPhase,
    ConnectionTable,
    Listener,
    limits,
    peer_of,
    progress_of,
)
from tidegate.model.engine import HttpSettings


class Transport:
    def __init__(self, made: socket.socket) -> None:
        self.made = made
        self.unread = 0
        self.written = b""

    def get_extra_info(self, _name: str) -> socket.socket:
        return self.made

    def get_write_buffer_size(self) -> int:
        return self.unread

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.made.close()

    abort = close


class Place:
    """A listener on loopback with a manual clock."""

    def __init__(self, total: int, per_peer: int) -> None:
        self.now_s = 0.0
        self.protocols: list[Any] = []
        http = HttpSettings(header_timeout_ms=10_000, body_timeout_ms=60_000)
        self.table = ConnectionTable(
            http, ConnectionLimits(total, per_peer), lambda: self.protocols, lambda: self.now_s
        )
        self.listener = Listener.around(socket.create_server(("127.0.0.1", 0)), self.table)
        self.clients: list[socket.socket] = []

    def accept(self, phase: ConnectionPhase = ConnectionPhase.HANDSHAKE) -> Any:
        self.clients.append(socket.create_connection(self.listener.getsockname()))
        made, _ = self.listener.accept()
        if phase is ConnectionPhase.HANDSHAKE:
            return made
        done = phase in (ConnectionPhase.HEAD, ConnectionPhase.IDLE)
        cycle = SimpleNamespace(response_complete=done, more_body=phase is ConnectionPhase.BODY)
        protocol = SimpleNamespace(
            transport=Transport(made),
            cycle=cycle,
            timeout_keep_alive_task=object() if phase is ConnectionPhase.IDLE else None,
        )
        self.protocols.append(protocol)
        assert progress_of(protocol)[0] is phase
        return protocol


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place(total=3, per_peer=3)
    yield made
    for each in (*made.table.open, *made.clients, made.listener):
        each.close()


def test_the_oldest_waiting_connection_is_closed_and_active_ones_stay(place: Place) -> None:
    first, second = place.accept(ConnectionPhase.ANSWERED), place.accept(ConnectionPhase.IDLE)
    place.accept(ConnectionPhase.HEAD)
    with pytest.raises(BlockingIOError):
        place.accept()
    assert second.transport.made.fileno() == -1
    assert first.transport.made.fileno() > 0
    assert len(place.table.open) == 2


def test_a_new_connection_is_rejected_if_all_others_are_active(place: Place) -> None:
    for _ in range(3):
        place.accept(ConnectionPhase.ANSWERED)
    with pytest.raises(ConnectionAbortedError):
        place.accept()
    assert len(place.table.open) == 3


def test_one_peer_cannot_take_every_connection() -> None:
    place = Place(total=10, per_peer=2)
    first = place.accept(ConnectionPhase.HEAD)
    place.accept(ConnectionPhase.ANSWERED)
    place.accept(ConnectionPhase.ANSWERED)
    assert first.transport.made.fileno() == -1, "its own oldest one makes room"
    with pytest.raises(ConnectionAbortedError):
        place.accept(ConnectionPhase.HEAD)
    for each in (*place.table.open, *place.clients, place.listener):
        each.close()


@pytest.mark.parametrize(
    ("phase", "after_s"),
    [(ConnectionPhase.HANDSHAKE, 11), (ConnectionPhase.HEAD, 11), (ConnectionPhase.BODY, 61)],
)
def test_connections_that_wait_too_long_are_closed(
    place: Place, phase: ConnectionPhase, after_s: float
) -> None:
    made = place.accept(phase)
    place.table.sweep()
    place.now_s = after_s - 2
    place.table.sweep()
    waiting = (
        place.table.open[made if phase is ConnectionPhase.HANDSHAKE else made.transport.made]
        if place.table.open
        else None
    )
    assert waiting is not None
    assert waiting.closed_s is None
    place.now_s = after_s
    place.table.sweep()
    assert phase is not ConnectionPhase.HANDSHAKE or waiting.closed_s == after_s
    assert phase is ConnectionPhase.HANDSHAKE or place.table.open == {}
    assert phase is not ConnectionPhase.HEAD or b" 408 " in made.transport.written


def test_an_unread_response_is_closed_and_a_stream_that_is_read_is_not(place: Place) -> None:
    stuck, stream = place.accept(ConnectionPhase.ANSWERED), place.accept(ConnectionPhase.ANSWERED)
    stuck.transport.unread = 5_000
    for place.now_s in (0.0, 30.0, 61.0, 500.0):
        place.table.sweep()
    assert stuck.transport.made.fileno() == -1
    assert stream.transport.made.fileno() > 0


def test_some_descriptors_are_reserved() -> None:
    http = HttpSettings()
    assert limits(http, 256, 40) == ConnectionLimits(152, 76)
    assert limits(http, 1024, 60) == ConnectionLimits(708, 354)
    assert limits(http, 64, 60) == ConnectionLimits(16, 8)
    assert limits(http, resource.RLIM_INFINITY) == ConnectionLimits(10_000, 5_000)
    assert limits(HttpSettings(connections_max=5_000), 1024, 60).total == 708
    assert limits(
        HttpSettings(connections_max=100, connections_per_peer_max=500), 1024, 60
    ) == ConnectionLimits(100, 100)


def test_a_network_of_ipv6_is_one_peer() -> None:
    assert peer_of(("2001:db8:1:2:3:4:5:6", 1, 0, 0)) == peer_of(("2001:db8:1:2::9", 2, 0, 0))
    assert peer_of(("2001:db8:1:3::9", 2, 0, 0)) != peer_of(("2001:db8:1:2::9", 2, 0, 0))
    assert peer_of(("::ffff:10.0.0.1", 1, 0, 0)) == peer_of(("10.0.0.1", 1)) == "10.0.0.1"
    assert peer_of(("fe80::1%eth0", 1, 0, 2)) == peer_of(("fe80::2", 1, 0, 0))
