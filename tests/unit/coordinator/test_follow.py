"""The copy of the store that servers and workers keep in memory, against a real store."""

from collections.abc import Iterator, Sequence

import pytest

from tidegate.model.document import to_document
from tidegate.model.records import HEARTBEATS, LEASES, Heartbeat, Lease
from tidegate.store import Delete, Put, Store, StoreUnavailable
from tidegate.store.backend import Query, StoredRow
from tidegate.store.base import Get, Listing
from tidegate.store.follow import SINGLE_READS_MAX, SINGLE_READS_SHARE, Follower
from tidegate.store.open import open_store
from tidegate.testing.faulty_store import Fault, StoreCall, faulty_store, scripted

MANY = SINGLE_READS_MAX * 3


@pytest.fixture
def store() -> Iterator[Store]:
    opened = open_store("memory:", compaction_threshold=10 * MANY)
    yield opened
    opened.close()


def follower(store: Store) -> Follower:
    return Follower(store, {HEARTBEATS: Heartbeat, LEASES: Lease}, lambda: 1.0, lazy=(LEASES,))


def beat(store: Store, office: str, number: int) -> None:
    store.transact((), [Put(HEARTBEATS, office, to_document(Heartbeat(term=1, number=number)))])


def heartbeats(copy: Follower) -> dict[str, int]:
    return {key: seen.value.number for key, seen in copy.all(HEARTBEATS).items()}


def asked_of(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[list[Query]]:
    """The questions about entries from now on, as they are put together."""
    asked: list[list[Query]] = []
    real = store.backend.query

    def ask(questions: Sequence[Query]) -> list[list[StoredRow]]:
        asked.append(list(questions))
        return real(questions)

    monkeypatch.setattr(store.backend, "query", ask)
    return asked


def test_few_changes_of_all_maps_are_read_by_their_keys_and_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(MANY):
        beat(store, f"o{number}", 0)
    copy = follower(store)
    copy.refresh()
    asked = asked_of(store, monkeypatch)
    beat(store, "o3", 7)
    store.transact(
        (), [Delete(HEARTBEATS, "o4"), Put(LEASES, "o4", to_document(Lease(holder="me", term=4)))]
    )
    assert copy.refresh() == {(HEARTBEATS, "o3"), (HEARTBEATS, "o4"), (LEASES, "o4")}
    assert heartbeats(copy) == {f"o{n}": 7 if n == 3 else 0 for n in range(MANY) if n != 4}
    assert [seen.value.holder for seen in copy.all(LEASES).values()] == ["me"]
    assert [set(questions) for questions in asked] == [
        {Get(HEARTBEATS, "o3"), Get(HEARTBEATS, "o4"), Get(LEASES, "o4")}
    ]


def test_where_nothing_has_changed_nothing_is_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat(store, "o", 1)
    copy = follower(store)
    copy.refresh()
    asked = asked_of(store, monkeypatch)
    store.transact((), [Put("other", "o", {})])
    assert copy.refresh() == copy.refresh() == set()
    assert asked == []


def test_many_changes_are_read_with_one_look_at_the_map(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2 * MANY):
        beat(store, f"o{number}", 0)
    copy = follower(store)
    copy.refresh()
    untouched = copy.get(HEARTBEATS, f"o{2 * MANY - 1}")
    asked = asked_of(store, monkeypatch)
    for number in range(MANY):
        beat(store, f"o{number}", 5)
    assert copy.refresh() == {(HEARTBEATS, f"o{number}") for number in range(MANY)}
    assert heartbeats(copy) == {
        f"o{number}": 5 if number < MANY else 0 for number in range(2 * MANY)
    }
    assert copy.get(HEARTBEATS, f"o{2 * MANY - 1}") is untouched
    assert asked == [[Listing(HEARTBEATS)]]


def test_changes_in_a_small_part_of_a_large_map_are_read_by_their_keys(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(MANY * SINGLE_READS_SHARE):
        beat(store, f"o{number}", 0)
    copy = follower(store)
    copy.refresh()
    asked = asked_of(store, monkeypatch)
    for number in range(MANY):
        beat(store, f"o{number}", 5)
    copy.refresh()
    assert sum(heartbeats(copy).values()) == 5 * MANY
    assert [len(questions) for questions in asked] == [MANY]


def test_a_copy_that_is_older_than_the_log_is_made_anew_and_keeps_what_has_not_changed(
    store: Store,
) -> None:
    beat(store, "old", 1)
    beat(store, "gone", 1)
    copy = follower(store)
    copy.refresh()
    kept = copy.get(HEARTBEATS, "old")
    store.transact((), [Delete(HEARTBEATS, "gone")])
    for number in range(30 * MANY):
        beat(store, "busy", number)
    assert copy.refresh() == {(HEARTBEATS, "gone"), (HEARTBEATS, "busy")}
    assert heartbeats(copy) == {"old": 1, "busy": 30 * MANY - 1}
    assert copy.get(HEARTBEATS, "old") is kept


def test_a_document_that_cannot_be_read_is_left_out_and_the_others_are_seen(store: Store) -> None:
    beat(store, "good", 1)
    store.transact((), [Put(HEARTBEATS, "newer", {"version": 99})])
    copy = follower(store)
    copy.refresh()
    assert heartbeats(copy) == {"good": 1}
    assert "99" in copy.unreadable[HEARTBEATS, "newer"]
    beat(store, "newer", 2)
    copy.refresh()
    assert heartbeats(copy) == {"good": 1, "newer": 2}
    assert not copy.unreadable


def test_one_field_can_be_seen_of_a_document_that_is_too_new_to_be_read_whole(store: Store) -> None:
    store.transact((), [Put(LEASES, "o", {"version": 99, "holder": "somebody", "term": 4})])
    copy = follower(store)
    copy.refresh()
    seen = copy.get(LEASES, "o")
    assert seen is not None
    assert (seen.peek("holder"), seen.peek("term"), seen.peek("nothing")) == ("somebody", 4, None)
    with pytest.raises(Exception, match="99"):
        _ = seen.value


def test_fields_and_the_record_agree_whichever_is_asked_first(store: Store) -> None:
    store.transact((), [Put(LEASES, "o", to_document(Lease(holder="me", term=4)))])
    copy = follower(store)
    copy.refresh()
    seen = copy.get(LEASES, "o")
    assert seen is not None
    assert (seen.peek("holder"), seen.value.holder, seen.peek("holder"), seen.value) == (
        "me",
        "me",
        "me",
        Lease(holder="me", term=4),
    )


@pytest.mark.parametrize("lost", [StoreCall.FEED, StoreCall.ASK])
def test_a_failed_refresh_keeps_the_copy_and_the_next_reports_all_changes(
    store: Store, lost: StoreCall
) -> None:
    failing, _ = faulty_store(
        store,
        scripted({lost: [Fault.NONE] * (2 if lost is StoreCall.ASK else 1) + [Fault.UNAVAILABLE]}),
    )
    copy = follower(failing)
    copy.refresh()
    beat(store, "o1", 1)
    assert copy.refresh() == {(HEARTBEATS, "o1")}
    store.transact(
        (),
        [
            Put(HEARTBEATS, "o2", to_document(Heartbeat(term=1, number=1))),
            Put(LEASES, "o2", to_document(Lease(holder="me", term=4))),
        ],
    )
    with pytest.raises(StoreUnavailable):
        copy.refresh()
    assert heartbeats(copy) == {"o1": 1}
    assert copy.refresh() == {(HEARTBEATS, "o2"), (LEASES, "o2")}
    assert heartbeats(copy) == {"o1": 1, "o2": 1}


def test_what_was_read_newer_than_the_log_is_not_read_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, _ = faulty_store(
        store,
        scripted({StoreCall.ASK: [Fault.NONE, Fault.SLOW]}),
        pause=lambda: beat(store, "o", 3),
    )
    copy = follower(writing)
    copy.refresh()
    beat(store, "o", 2)
    assert copy.refresh() == {(HEARTBEATS, "o")}
    assert heartbeats(copy) == {"o": 3}
    asked = asked_of(writing, monkeypatch)
    assert copy.refresh() == set()
    assert asked == []
