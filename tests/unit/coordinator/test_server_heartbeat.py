"""Heartbeats of servers: listed while alive, removed at shutdown or when silent."""

from typing import Any

import pytest

from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.coordinator.server_heartbeat import (
    ServerHeartbeat,
    live_servers,
    remove_silent_servers,
)
from tidegate.election import Elector, Leader
from tidegate.model.records import SERVERS, ServerRecord
from tidegate.store.base import Store
from tidegate.store.errors import StoreUnavailable
from tidegate.store.open import open_store
from tidegate.testing.faulty_store import Fault, faulty_store

LEASE_MS = 4_000


class Hands:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.at_s = 100.0

    def now_ms(self) -> int:
        return round(self.at_s * 1000)

    def monotonic_s(self) -> float:
        return self.at_s

    def wait(self, event: Any, _seconds: float) -> bool:
        return bool(event.is_set())


class World:
    """Servers on one store, and how one of them, the leader, sees them."""

    def __init__(self) -> None:
        self.clock = Hands()
        self.store = open_store("memory:")
        self.cache = ClusterCache(self.store, self.clock)
        self.elector = Elector(self.store, "coordinator", "a", "", LEASE_MS, self.clock)

    def server(self, name: str, store: Store | None = None) -> ServerHeartbeat:
        made = ServerHeartbeat(
            store or self.store,
            ServerRecord(id=name, address=f"http://{name}"),
            LEASE_MS,
            self.clock,
        )
        made.step()
        return made

    def turn(self, *living: ServerHeartbeat, seconds: float = 0.0) -> None:
        """Time passes in tenths of a lease; these give their signs of life, and the leader looks
        and sweeps.
        """
        end_s = self.clock.at_s + seconds
        while True:
            for each in living:
                each.step()
            self.cache.refresh()
            leading = self.elector.step()
            assert isinstance(leading, Leader)
            remove_silent_servers(self.cache, leading, LEASE_MS, self.clock)
            self.cache.refresh()
            if self.clock.at_s >= end_s:
                return
            self.clock.at_s += LEASE_MS / 10_000

    def seen(self) -> list[str]:
        return [each.id for each in live_servers(self.cache, LEASE_MS, self.clock)]

    def kept(self) -> list[str]:
        return [entry.key for entry in self.store.list(SERVERS)]


def test_a_live_server_is_listed() -> None:
    world = World()
    a, b = world.server("a"), world.server("b")
    for _ in range(3):
        world.turn(a, b, seconds=LEASE_MS / 1000)
        assert world.seen() == ["a", "b"]


def test_a_server_that_shuts_down_is_removed_at_once() -> None:
    world = World()
    a, b = world.server("a"), world.server("b")
    b.withdraw()
    world.turn(a, b, seconds=1)
    assert (world.seen(), world.kept()) == (["a"], ["a"])


def test_a_silent_server_is_removed_and_returns_with_its_next_heartbeat() -> None:
    world = World()
    a, b = world.server("a"), world.server("b")
    world.turn(a, seconds=LEASE_MS / 1000 * 0.9)
    assert world.kept() == ["a", "b"]
    world.turn(a, seconds=1)
    assert (world.seen(), world.kept()) == (["a"], ["a"])
    world.turn(a, b)
    assert world.seen() == ["a", "b"]


def test_a_follower_hides_silent_servers_without_deleting_them() -> None:
    world = World()
    world.server("b")
    world.cache.refresh()
    world.clock.at_s += LEASE_MS / 1000 + 0.1
    assert (world.seen(), world.kept()) == ([], ["b"])


def test_a_fenced_leader_removes_nothing() -> None:
    world = World()
    world.server("b")
    leading = world.elector.step()
    assert isinstance(leading, Leader)
    world.cache.refresh()
    world.clock.at_s += LEASE_MS / 1000 + 0.1
    Elector(world.store, "coordinator", "other", "", LEASE_MS, world.clock).claim()
    remove_silent_servers(world.cache, leading, LEASE_MS, world.clock)
    assert world.kept() == ["b"]


def test_heartbeats_are_few_and_retried_after_errors() -> None:
    world, fault = World(), [Fault.NONE]
    store, _ = faulty_store(world.store, lambda _operation: fault[0])
    b = world.server("b", store)
    first = b.me.number
    for _ in range(10):
        b.step()
    assert b.me.number == first
    fault[0] = Fault.UNAVAILABLE
    world.clock.at_s += LEASE_MS / 1000
    with pytest.raises(StoreUnavailable):
        b.step()
    fault[0] = Fault.NONE
    b.step()
    world.cache.refresh()
    assert world.seen() == ["b"]
    fault[0] = Fault.UNAVAILABLE
    b.withdraw()  # says so in the log, and leaves the rest to the leader
    assert world.kept() == ["b"]


def test_a_server_that_cannot_write_knows_why_after_a_while_and_forgets_it_when_it_can() -> None:
    world, fault = World(), Fault.NONE
    store, _ = faulty_store(world.store, lambda _operation: fault)
    server = world.server("a", store)
    assert server.trouble(0.0) == ""
    fault = Fault.UNAVAILABLE
    for seconds, known in ((2.0, False), (4.0, False), (2.0, True)):
        world.clock.at_s += seconds
        with pytest.raises(StoreUnavailable):
            server.step()
        assert bool(server.trouble(5.0)) is known
    fault = Fault.NONE
    server.step()
    assert server.trouble(0.0) == ""
