"""The picture of a server: what a reader sees while a turn of it is under way."""

import pytest
from coordinator_parts import Installation

from tidegate.coordinator.ending import ending_of
from tidegate.coordinator.observe import Picture
from tidegate.model.records import JobStatus
from tidegate.store.base import Store


def test_a_job_that_ends_is_running_until_the_turn_is_complete_and_never_in_no_map(here: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    here.submit(7)
    picture = Picture(here.store, here.clock)
    picture.refresh()
    ending = ending_of(here.known(7), JobStatus.CANCELED, here.clock.now_ms())
    here.store.transact(ending.checks, ending.writes)
    seen: list[tuple[bool, bool]] = []
    changes = Store.changes

    def look(store: Store, map: str, since: int) -> object:
        seen.append((7 in picture.jobs(), picture.outcome(7) is not None))
        return changes(store, map, since)

    monkeypatch.setattr(Store, "changes", look)
    picture.refresh()
    assert seen
    assert set(seen) == {(True, False)}
    assert (7 in picture.jobs(), picture.outcome(7) is not None) == (False, True)
