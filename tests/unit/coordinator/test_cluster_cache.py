"""The cluster cache of a server: what a reader sees during a refresh."""

from collections.abc import Collection
from typing import Any

import pytest
from coordinator_parts import Installation

from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.coordinator.terminal_transaction import terminal_transaction
from tidegate.model.records import JobStatus
from tidegate.store.base import Store
from tidegate.store.follow import Follower


def test_a_job_that_ends_is_never_missing_from_all_maps(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.submit(7)
    cache = ClusterCache(here.store, here.clock)
    cache.refresh()
    ending = terminal_transaction(here.snapshot(7), JobStatus.CANCELED, here.clock.now_ms())
    here.store.transact(ending.checks, ending.writes)
    seen: list[tuple[bool, bool]] = []
    changes, take = Store.changes, Follower._take

    def look(store: Store, maps: Collection[str], since: int) -> object:
        seen.append((7 in cache.jobs(), cache.outcome(7) is not None))
        return changes(store, maps, since)

    def look_again(follower: Follower, *arguments: Any) -> None:
        take(follower, *arguments)
        seen.append((7 in cache.jobs(), cache.outcome(7) is not None))

    monkeypatch.setattr(Store, "changes", look)
    monkeypatch.setattr(Follower, "_take", look_again)
    cache.refresh()
    assert len(seen) > 3, "the log, and every entry that has changed"
    assert set(seen) == {(True, False)}
    assert (7 in cache.jobs(), cache.outcome(7) is not None) == (False, True)


def test_waiters_share_any_refresh_that_began_after_the_write(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ClusterCache(here.store, here.clock)
    cache.refresh()
    turns: list[int] = []
    changes = Store.changes

    def look(store: Store, maps: Collection[str], since: int) -> object:
        turns.append(since)
        return changes(store, maps, since)

    monkeypatch.setattr(Store, "changes", look)
    here.submit(7)
    written_s = here.clock.monotonic_s()
    here.clock.ms += 1
    cache.refresh(written_s)
    assert (len(turns), 7 in cache.jobs()) == (1, True)
    assert cache.refresh(written_s) == set()
    assert len(turns) == 1
    here.submit(8)
    cache.refresh(here.clock.monotonic_s())
    assert (len(turns), 8 in cache.jobs()) == (2, True)
