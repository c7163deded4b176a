"""The copy of the store that servers and workers keep in memory, against a real store."""

from collections.abc import Callable, Iterator

import pytest

from tidegate.model.document import to_document
from tidegate.model.records import BEATS, LEASES, Beat, Lease
from tidegate.store import Delete, Put, Store, StoreUnavailable
from tidegate.store.follow import SINGLE_READ_BYTES, SINGLE_READS_MAX, Follower
from tidegate.store.open import open_store
from tidegate.testing.faulty_store import Fault, Operation, faulty_store, scripted

MANY = SINGLE_READS_MAX * 3


@pytest.fixture
def store() -> Iterator[Store]:
    opened = open_store("memory:", compaction_threshold=10 * MANY)
    yield opened
    opened.close()


def follower(store: Store) -> Follower:
    return Follower(store, {BEATS: Beat, LEASES: Lease}, lambda: 1.0, lazy=(LEASES,))


def beat(store: Store, office: str, number: int) -> None:
    store.transact((), [Put(BEATS, office, to_document(Beat(term=1, number=number)))])


def beats(copy: Follower) -> dict[str, int]:
    return {key: seen.value.number for key, seen in copy.all(BEATS).items()}


def questions(store: Store, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Counts how the entries are read from now on."""
    asked = {"read": 0, "scan": 0}

    def counted(name: str) -> Callable[..., object]:
        real = getattr(store.backend, name)

        def ask(*arguments: object) -> object:
            asked[name] += 1
            return real(*arguments)

        return ask

    for name in asked:
        monkeypatch.setattr(store.backend, name, counted(name))
    return asked


def test_few_changes_are_read_one_by_one(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(MANY):
        beat(store, f"o{number}", 0)
    copy = follower(store)
    copy.refresh()
    asked = questions(store, monkeypatch)
    beat(store, "o3", 7)
    store.transact((), [Delete(BEATS, "o4")])
    assert copy.refresh() == {(BEATS, "o3"), (BEATS, "o4")}
    assert beats(copy) == {f"o{n}": 7 if n == 3 else 0 for n in range(MANY) if n != 4}
    assert asked == {"read": 2, "scan": 0}


def test_many_changes_of_small_documents_are_read_with_one_look_at_the_map(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2 * MANY):
        beat(store, f"o{number}", 0)
    copy = follower(store)
    copy.refresh()
    untouched = copy.get(BEATS, f"o{2 * MANY - 1}")
    asked = questions(store, monkeypatch)
    for number in range(MANY):
        beat(store, f"o{number}", 5)
    assert copy.refresh() == {(BEATS, f"o{number}") for number in range(MANY)}
    assert beats(copy) == {f"o{number}": 5 if number < MANY else 0 for number in range(2 * MANY)}
    assert copy.get(BEATS, f"o{2 * MANY - 1}") is untouched
    assert asked == {"read": 0, "scan": 1}


def test_many_changes_in_a_map_of_large_documents_are_read_one_by_one(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    large = to_document(Lease(holder="h" * 2 * SINGLE_READ_BYTES, term=1))
    for number in range(MANY):
        store.transact((), [Put(LEASES, f"o{number}", large)])
    copy = follower(store)
    copy.refresh()
    asked = questions(store, monkeypatch)
    for number in range(MANY - 1):
        store.transact((), [Put(LEASES, f"o{number}", {**large, "term": 2})])
    copy.refresh()
    assert sorted(seen.value.term for seen in copy.all(LEASES).values()) == [1] + [2] * (MANY - 1)
    assert asked == {"read": MANY - 1, "scan": 0}


def test_a_copy_that_is_older_than_the_log_is_made_anew_and_keeps_what_has_not_changed(store: Store) -> None:
    beat(store, "old", 1)
    beat(store, "gone", 1)
    copy = follower(store)
    copy.refresh()
    kept = copy.get(BEATS, "old")
    store.transact((), [Delete(BEATS, "gone")])
    for number in range(30 * MANY):
        beat(store, "busy", number)
    assert copy.refresh() == {(BEATS, "gone"), (BEATS, "busy")}
    assert beats(copy) == {"old": 1, "busy": 30 * MANY - 1}
    assert copy.get(BEATS, "old") is kept


def test_a_document_that_cannot_be_read_is_left_out_and_the_others_are_seen(store: Store) -> None:
    beat(store, "good", 1)
    store.transact((), [Put(BEATS, "newer", {"version": 99})])
    copy = follower(store)
    copy.refresh()
    assert beats(copy) == {"good": 1}
    assert "99" in copy.unreadable[BEATS, "newer"]
    beat(store, "newer", 2)
    copy.refresh()
    assert beats(copy) == {"good": 1, "newer": 2}
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
    assert (seen.peek("holder"), seen.value.holder, seen.peek("holder"), seen.value) == ("me", "me", "me", Lease(holder="me", term=4))


def test_what_a_turn_saw_before_the_store_was_lost_is_told_by_the_next(store: Store) -> None:
    failing, _ = faulty_store(store, scripted({Operation.FEED: [Fault.NONE, Fault.NONE, Fault.NONE, Fault.UNAVAILABLE]}))
    copy = follower(failing)
    copy.refresh()
    store.transact((), [Put(BEATS, "o1", to_document(Beat(term=1, number=1)))])
    assert copy.refresh() == {(BEATS, "o1")}
    store.transact((), [Put(BEATS, "o2", to_document(Beat(term=1, number=1)))])
    with pytest.raises(StoreUnavailable):
        copy.refresh()
    assert beats(copy) == {"o1": 1, "o2": 1}, "the first map was read already"
    assert copy.refresh() == {(BEATS, "o2")}
