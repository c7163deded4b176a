"""The picture of a server: what a reader sees while a turn of it is under way."""

from collections.abc import Collection
from typing import Any

import pytest
from coordinator_parts import Installation

from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.coordinator.ending import ending_of
from tidegate.model.records import JobStatus
from tidegate.store.base import Store
from tidegate.store.follow import Follower


def test_a_job_that_ends_is_running_until_the_turn_is_complete_and_never_in_no_map(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.submit(7)
    picture = ClusterCache(here.store, here.clock)
    picture.refresh()
    ending = ending_of(here.known(7), JobStatus.CANCELED, here.clock.now_ms())
    here.store.transact(ending.checks, ending.writes)
    seen: list[tuple[bool, bool]] = []
    changes, take = Store.changes, Follower._take

    def look(store: Store, maps: Collection[str], since: int) -> object:
        seen.append((7 in picture.jobs(), picture.outcome(7) is not None))
        return changes(store, maps, since)

    def look_again(follower: Follower, *arguments: Any) -> None:
        take(follower, *arguments)
        seen.append((7 in picture.jobs(), picture.outcome(7) is not None))

    monkeypatch.setattr(Store, "changes", look)
    monkeypatch.setattr(Follower, "_take", look_again)
    picture.refresh()
    assert len(seen) > 3, "the log, and every entry that has changed"
    assert set(seen) == {(True, False)}
    assert (7 in picture.jobs(), picture.outcome(7) is not None) == (False, True)


def test_who_waits_for_what_was_written_shares_any_turn_that_began_after_it(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = ClusterCache(here.store, here.clock)
    picture.refresh()
    turns: list[int] = []
    changes = Store.changes

    def look(store: Store, maps: Collection[str], since: int) -> object:
        turns.append(since)
        return changes(store, maps, since)

    monkeypatch.setattr(Store, "changes", look)
    here.submit(7)
    written_s = here.clock.monotonic_s()
    here.clock.ms += 1
    picture.refresh(written_s)
    assert (len(turns), 7 in picture.jobs()) == (1, True)
    assert picture.refresh(written_s) == set()
    assert len(turns) == 1
    here.submit(8)
    picture.refresh(here.clock.monotonic_s())
    assert (len(turns), 8 in picture.jobs()) == (2, True)
