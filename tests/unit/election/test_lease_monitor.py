"""Leases of others: alive, silent, vacant."""

import pytest

from tidegate.election import Alive, Elector, Leader, LeaseMonitor, Silent, Vacant, expire, forget
from tidegate.model.records import HEARTBEATS, LEASES
from tidegate.store import Conflict, Put, Store, StoreUnavailable
from tidegate.testing.faulty_store import Fault, StoreCall, faulty_store, scripted

LEASE_S = 5.0
POLL_S = 0.5


def worker(store: Store, clock, id: str) -> Elector:
    elector = Elector(store, f"worker/{id}", id, f"http://{id}", int(LEASE_S * 1000), clock)
    assert isinstance(elector.claim(), Leader)
    return elector


def watch_for(watch: LeaseMonitor, clock, seconds: float, *living: Elector) -> dict[str, str]:
    """Looks at the usual pace, while these go on renewing; the last sight, in words."""
    sights = watch.step()
    for _ in range(round(seconds / POLL_S)):
        clock.turn(POLL_S)
        for elector in living:
            elector.step()
        sights = watch.step()
    return {office: type(sight).__name__ for office, sight in sights.items()}


def silent_one(watch: LeaseMonitor, clock) -> Silent:
    watch_for(watch, clock, LEASE_S)
    (sight,) = watch.step().values()
    assert isinstance(sight, Silent)
    return sight


def test_only_the_worker_that_does_not_renew_is_silent_and_only_after_a_whole_lease(
    store: Store, clock
) -> None:
    living, _ = worker(store, clock, "a"), worker(store, clock, "b")
    watch = LeaseMonitor(store, int(LEASE_S * 1000), clock)
    assert watch_for(watch, clock, LEASE_S - POLL_S, living) == {
        "worker/a": "Alive",
        "worker/b": "Alive",
    }
    assert watch_for(watch, clock, POLL_S, living) == {"worker/a": "Alive", "worker/b": "Silent"}


def test_a_new_monitor_waits_a_whole_lease_for_everyone(store: Store, clock) -> None:
    worker(store, clock, "a")
    clock.turn(3600)
    watch = LeaseMonitor(store, int(LEASE_S * 1000), clock)
    assert watch_for(watch, clock, LEASE_S - POLL_S) == {"worker/a": "Alive"}


def test_a_monitor_does_not_count_its_own_absence_as_silence(store: Store, clock) -> None:
    worker(store, clock, "a")
    watch = LeaseMonitor(store, int(LEASE_S * 1000), clock)
    watch_for(watch, clock, LEASE_S / 2)
    clock.turn(3600)
    assert watch_for(watch, clock, 0) == {"worker/a": "Alive"}


def test_a_worker_that_renews_again_is_alive_again(store: Store, clock) -> None:
    elector = worker(store, clock, "a")
    watch = LeaseMonitor(store, int(LEASE_S * 1000), clock)
    silent_one(watch, clock)
    elector.step()
    assert isinstance(watch.step()["worker/a"], Alive)


def test_an_expired_lease_is_gone_in_the_transaction_that_acts_on_it_and_its_holder_takes_it_anew(
    store: Store, clock
) -> None:
    elector = worker(store, clock, "a")
    old = elector.leadership()
    assert isinstance(old, Leader)
    watch = LeaseMonitor(store, int(LEASE_S * 1000), clock)
    part = expire(silent_one(watch, clock))
    store.transact(part.checks, [*part.writes, Put("assignments", "7", {"worker": "b"})])
    assert isinstance(watch.step()["worker/a"], Vacant)
    with pytest.raises(Conflict):
        store.transact([old.check()], [Put("drivers", "7", {})])
    again = elector.step()
    assert isinstance(again, Leader)
    assert again.term == 2
    assert not old.trusted()


def test_a_worker_that_renewed_at_the_last_moment_is_not_expired(store: Store, clock) -> None:
    elector = worker(store, clock, "a")
    part = expire(silent_one(LeaseMonitor(store, int(LEASE_S * 1000), clock), clock))
    standing = elector.step()
    with pytest.raises(Conflict):
        store.transact(part.checks, [*part.writes, Put("assignments", "7", {"worker": "b"})])
    assert (elector.step(), store.list("assignments")) == (standing, [])


def test_a_released_lease_is_vacant_until_it_is_forgotten(store: Store, clock) -> None:
    elector = worker(store, clock, "a")
    watch = LeaseMonitor(store, int(LEASE_S * 1000), clock)
    watch.step()
    elector.resign()
    vacant = watch.step()["worker/a"]
    assert isinstance(vacant, Vacant)
    part = forget(vacant)
    store.transact(part.checks, part.writes)
    assert (watch.step(), store.list(LEASES), store.list(HEARTBEATS)) == ({}, [], [])


def test_a_lease_that_is_held_again_is_not_forgotten(store: Store, clock) -> None:
    elector = worker(store, clock, "a")
    watch = LeaseMonitor(store, int(LEASE_S * 1000), clock)
    elector.resign()
    vacant = watch.step()["worker/a"]
    assert isinstance(vacant, Vacant)
    worker(store, clock, "a")
    part = forget(vacant)
    with pytest.raises(Conflict):
        store.transact(part.checks, part.writes)


def test_only_leases_with_the_prefix_are_observed(store: Store, clock) -> None:
    Elector(store, "coordinator", "s", "", 1000, clock).step()
    worker(store, clock, "a")
    assert list(LeaseMonitor(store, 1000, clock).step()) == ["worker/a"]
    assert list(LeaseMonitor(store, 1000, clock, prefix="coordinator").step()) == ["coordinator"]


def test_what_is_known_of_a_living_holder_can_be_checked(store: Store, clock) -> None:
    worker(store, clock, "a")
    sight = LeaseMonitor(store, 1000, clock).step()["worker/a"]
    assert isinstance(sight, Alive)
    assert (sight.holder, sight.address, sight.term) == ("a", "http://a", 1)
    store.transact([sight.check()], [Put("assignments", "7", {})])


def test_a_lease_of_a_newer_kind_is_watched_by_its_versions(store: Store, clock) -> None:
    store.transact(
        writes=[
            Put(LEASES, "worker/a", {"version": 99}),
            Put(HEARTBEATS, "worker/a", {"version": 99}),
        ]
    )
    watch = LeaseMonitor(store, int(LEASE_S * 1000), clock)
    assert watch_for(watch, clock, LEASE_S - POLL_S) == {"worker/a": "Alive"}
    assert watch_for(watch, clock, POLL_S) == {"worker/a": "Silent"}


def test_an_unavailable_store_is_raised_and_keeps_the_observations(store: Store, clock) -> None:
    worker(store, clock, "a")
    broken, _ = faulty_store(
        store, scripted({StoreCall.SCAN: [Fault.NONE, Fault.NONE, Fault.UNAVAILABLE]})
    )
    watch = LeaseMonitor(broken, int(LEASE_S * 1000), clock)
    watch.step()
    clock.turn(POLL_S)
    with pytest.raises(StoreUnavailable):
        watch.step()
    assert watch_for(watch, clock, LEASE_S - POLL_S) == {"worker/a": "Silent"}
