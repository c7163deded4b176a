"""The contract of a store as a suite: every backend passes all of it, and what is not in it does
not exist.

A backend's test module derives a class from `StoreContract` (or from `DurableStoreContract`,
store_durability.py) and gives it the fixture `world`: an empty store that several users can open.
Lost answers are judged in store_outcomes.py, which is part of the suite.
"""

import os
import threading
from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from tidegate.model.document import to_document
from tidegate.model.records import Heartbeat
from tidegate.store import (
    Change,
    ChangeKind,
    Changes,
    Check,
    Compacted,
    Conflict,
    Delete,
    DocumentDamaged,
    Get,
    Listing,
    MapSize,
    Put,
    Query,
    Store,
    StoreClosed,
    StoreRefused,
    undamaged,
)
from tidegate.store.backend import Transaction, TransactionName, Write
from tidegate.store.follow import Follower
from tidegate.testing.store_outcomes import OutcomeContract
from tidegate.testing.store_worker import ACCOUNTS, ACTS

ROUND_TRIPS: list[dict[str, Any]] = [
    {},
    {"null": None, "yes": True, "no": False, "zero": 0, "one": 1.0, "tiny": 5e-324, "minus": -0.0},
    {"big": 2**63, "bigger": -(10**300), "exact": 0.1 + 0.2},
    {
        "text": 'quote " slash / \\ nul \0 line \n tab \t',
        "größe": "日本語 🌊 e\u0301 \u2028",
        "": "empty name",
    },
    {"deep": {"list": [[], [{}], [1, [2, [3, None]]]], "z": {"b": 1, "a": {"x": []}}}},
    {"long": "x" * 500_000},
]
REFUSED_VALUES: list[Any] = [
    None,
    [],
    "text",
    {"nan": float("nan")},
    {"deep": [float("inf")]},
    {1: "a name that is not text"},
    {"deep": [{None: 1}]},
    {"bytes": b"x"},
    {"set": {1}},
    {"half": "\ud800"},
    {"too long": "x" * (1024 * 1024)},
    {"digits": 10**5000},
]
REFUSED_KEYS: list[Any] = [
    "",
    "a\nb",
    "nul\0",
    "\x7f",
    "half \ud800",
    "x" * 513,
    "ä" * 257,
    7,
    None,
]
REFUSED_MAPS: list[Any] = ["", "Upper", "under_score", "1st", "a/b", "x" * 64, "ä", "a\n", 7, None]
ORDERED_KEYS = [
    "a",
    "a/",
    "a/1",
    "a/10",
    "a/2",
    "a0",
    "a\ud7ff",
    "a\ud7ff!",
    "a\ue000",
    "aé",
    "a🌊",
    "a\U0010ffff",
    "a\U0010ffffz",
    "b",
    "\U0010ffff",
]


class StoreWorld(Protocol):
    """One store, empty at first, and its users."""

    def open(self, *, compaction_threshold: int = 10_000) -> Store:
        """One more user. The first one decides the threshold."""

    def work(self, act: str, *, workers: int, amount: int) -> None:
        """Let workers of store_worker.py do something at the same time, to the end: processes where
        the store can have several.
        """


class StoreContract(OutcomeContract):
    @pytest.fixture
    def store(self, world: StoreWorld) -> Iterator[Store]:
        store = world.open()
        yield store
        store.close()

    def test_a_new_store_is_empty(self, store: Store) -> None:
        assert (
            store.get("jobs", "a"),
            store.list("jobs"),
            store.revision(),
            store.size_by_map(),
        ) == (None, [], 0, {})

    def test_a_put_is_read_back_at_the_revision_of_its_transaction(self, store: Store) -> None:
        first = store.transact(writes=[Put("jobs", "a", {"n": 1})])
        second = store.transact(writes=[Put("jobs", "b", {"n": 2})])
        assert 0 < first < second == store.revision()
        entries = [store.get("jobs", "a"), store.get("jobs", "b")]
        assert [(e.key, e.value, e.version) for e in entries if e] == [
            ("a", {"n": 1}, first),
            ("b", {"n": 2}, second),
        ]

    def test_an_older_version_is_a_conflict_that_names_what_was_found(self, store: Store) -> None:
        old = store.transact(writes=[Put("jobs", "a", {"n": 1})])
        new = store.transact([Check("jobs", "a", old)], [Put("jobs", "a", {"n": 2})])
        with pytest.raises(
            Conflict, match=f"jobs/a is at version {new} and not at version {old}"
        ) as conflict:
            store.transact([Check("jobs", "a", old)], [Put("jobs", "a", {"n": 3})])
        assert (
            conflict.value.map,
            conflict.value.key,
            conflict.value.expected,
            conflict.value.found,
        ) == ("jobs", "a", old, new)
        assert _value(store, "jobs", "a") == {"n": 2}

    def test_of_two_that_expect_an_absent_entry_one_wins(self, store: Store) -> None:
        store.transact([Check("jobs", "a", 0)], [Put("jobs", "a", {"by": "first"})])
        with pytest.raises(Conflict, match="and not absent"):
            store.transact([Check("jobs", "a", 0)], [Put("jobs", "a", {"by": "second"})])
        assert _value(store, "jobs", "a") == {"by": "first"}

    def test_an_entry_that_should_be_there_and_is_not_is_a_conflict(self, store: Store) -> None:
        with pytest.raises(Conflict, match="jobs/a is absent"):
            store.transact([Check("jobs", "a", 7)], [Put("jobs", "a", {})])
        assert store.get("jobs", "a") is None

    def test_all_writes_of_a_transaction_have_its_revision(self, store: Store) -> None:
        store.transact(writes=[Put("jobs", "gone", {})])
        revision = store.transact(
            writes=[
                Put("jobs", "a", {}),
                Put("jobs", "b", {}),
                Put("states", "a", {}),
                Delete("jobs", "gone"),
            ]
        )
        assert [(e.key, e.version) for e in store.list("jobs")] == [
            ("a", revision),
            ("b", revision),
        ]
        assert [(e.key, e.version) for e in store.list("states")] == [("a", revision)]

    @pytest.mark.parametrize("place", [0, 1, 2])
    def test_one_failed_check_of_many_writes_nothing_at_all(self, store: Store, place: int) -> None:
        version = store.transact(writes=[Put("jobs", key, {"n": 1}) for key in "abc"])
        checks = [Check("jobs", key, version) for key in "abc"]
        checks[place] = Check("jobs", "abc"[place], version + 1)
        with pytest.raises(Conflict):
            store.transact(
                checks, [Put("jobs", "a", {"n": 2}), Delete("jobs", "b"), Put("states", "new", {})]
            )
        assert [(e.key, e.value, e.version) for e in store.list("jobs")] == [
            (key, {"n": 1}, version) for key in "abc"
        ]
        assert (store.list("states"), store.revision()) == ([], version)
        assert store.changes("jobs", version) == Changes((), version)

    def test_an_entry_that_was_deleted_and_made_again_never_has_an_old_version(
        self, store: Store
    ) -> None:
        seen = []
        for n in range(5):
            seen.append(
                store.transact([Check("jobs", "a", 0)], [Put("jobs", "a", {"same": "value"})])
            )
            store.transact([Check("jobs", "a", seen[-1])], [Delete("jobs", "a")])
            with pytest.raises(Conflict):
                store.transact([Check("jobs", "a", seen[n])], [Put("jobs", "a", {})])
        assert seen == sorted(set(seen))

    def test_deleting_what_is_not_there_is_no_change(self, store: Store) -> None:
        revision = store.transact(writes=[Put("jobs", "a", {}), Delete("jobs", "never")])
        store.transact(writes=[Delete("jobs", "never")])
        changes = store.changes("jobs", 0)
        assert isinstance(changes, Changes)
        assert changes.events == (Change("jobs", "a", revision, ChangeKind.PUT),)

    def test_a_transaction_without_writes_only_asks(self, store: Store) -> None:
        revision = store.transact(writes=[Put("jobs", "a", {})])
        assert store.transact([Check("jobs", "a", revision), Check("jobs", "b", 0)]) == revision
        with pytest.raises(Conflict):
            store.transact([Check("jobs", "a", revision), Check("jobs", "b", 1)])
        assert store.revision() == revision

    def test_a_list_is_ordered_by_code_points_whatever_the_order_of_writing(
        self, store: Store
    ) -> None:
        store.transact(writes=[Put("jobs", key, {}) for key in reversed(ORDERED_KEYS)])
        store.transact(writes=[Put("jobs-2", "a/1", {}), Put("job", "a/1", {})])
        assert [e.key for e in store.list("jobs")] == sorted(ORDERED_KEYS)

    @pytest.mark.parametrize(
        "prefix", ["a", "a/", "a/1", "a\ud7ff", "a\U0010ffff", "\U0010ffff", "c", "%", "a_", "A"]
    )
    def test_a_list_with_a_prefix_has_just_the_keys_that_begin_so(
        self, store: Store, prefix: str
    ) -> None:
        store.transact(writes=[Put("jobs", key, {}) for key in ORDERED_KEYS])
        assert [e.key for e in store.list("jobs", prefix)] == sorted(
            key for key in ORDERED_KEYS if key.startswith(prefix)
        )

    def test_the_change_feed_has_every_change_of_a_map_in_order(self, store: Store) -> None:
        first = store.transact(
            writes=[Put("jobs", "b", {}), Put("states", "x", {}), Put("jobs", "a", {})]
        )
        store.transact(writes=[Put("states", "x", {})])
        second = store.transact(writes=[Delete("jobs", "a")])
        third = store.transact(writes=[Put("jobs", "b", {})])
        put, delete = ChangeKind.PUT, ChangeKind.DELETE
        events = (
            Change("jobs", "a", first, put),
            Change("jobs", "b", first, put),
            Change("jobs", "a", second, delete),
            Change("jobs", "b", third, put),
        )
        assert store.changes("jobs", 0) == Changes(events, third)
        assert store.changes("jobs", first) == Changes(events[2:], third)
        assert store.changes("jobs", third) == Changes((), third)
        assert store.changes("never-written", 0) == Changes((), third)

    def test_several_maps_have_one_change_feed(self, store: Store) -> None:
        first = store.transact(
            writes=[
                Put("states", "x", {}),
                Put("jobs", "b", {}),
                Put("jobs", "a", {}),
                Put("others", "o", {}),
            ]
        )
        second = store.transact(writes=[Put("others", "o", {})])
        third = store.transact(writes=[Delete("states", "x"), Put("jobs", "a", {})])
        put, delete = ChangeKind.PUT, ChangeKind.DELETE
        events = (
            Change("jobs", "a", first, put),
            Change("jobs", "b", first, put),
            Change("states", "x", first, put),
        )
        later = (Change("jobs", "a", third, put), Change("states", "x", third, delete))
        assert store.changes(("jobs", "states", "never-written"), 0) == Changes(
            events + later, third
        )
        assert store.changes({"states", "jobs"}, second) == Changes(later, third)
        assert store.changes(["jobs", "states"], third) == Changes((), third)
        assert store.changes((), 0) == Changes((), third)
        assert store.changes(("jobs", "states"), third + 1) == Compacted(third)

    def test_several_questions_are_answered_at_once_and_each_as_if_it_were_asked_alone(
        self, store: Store
    ) -> None:
        store.transact(writes=[Put("jobs", key, {"key": key}) for key in reversed(ORDERED_KEYS)])
        store.transact(
            writes=[
                Put("states", "a", {"n": 1}),
                Put("states", "a/1", {"n": 2}),
                Put("jobs-2", "a/1", {}),
            ]
        )
        entry, listed = store.get("states", "a"), store.list("jobs", "a/")
        assert store.query([]) == []
        assert store.query(
            [Get("states", "a"), Get("states", "none"), Listing("jobs", "a/"), Get("states", "a")]
        ) == [[entry], [], listed, [entry]]
        assert store.query([Listing("jobs"), Listing("never-written"), Listing("states", "b")]) == [
            store.list("jobs"),
            [],
            [],
        ]
        prefixes = ["a", "a\ud7ff", "a\U0010ffff", "\U0010ffff", "%"]
        assert store.query([Listing("jobs", prefix) for prefix in prefixes]) == [
            store.list("jobs", prefix) for prefix in prefixes
        ]

    def test_as_many_questions_as_one_likes_can_be_asked_at_once(self, store: Store) -> None:
        for start in range(0, 700, 100):
            store.transact(
                writes=[Put("jobs", f"{n:03d}", {"n": n}) for n in range(start, start + 100)]
            )
        questions: list[Query] = [
            *(Get("jobs", f"{n:03d}") for n in range(0, 700, 2)),
            Listing("jobs"),
            Get("jobs", "none"),
            Listing("jobs", "69"),
        ]
        answers = store.query(questions)
        assert [[entry.value["n"] for entry in answer] for answer in answers[:350]] == [
            [n] for n in range(0, 700, 2)
        ]
        assert [[entry.value["n"] for entry in answer] for answer in answers[350:]] == [
            list(range(700)),
            [],
            list(range(690, 700)),
        ]

    def test_questions_that_cannot_be_asked_are_refused(self, store: Store) -> None:
        for question in (
            Get("Upper", "a"),
            Get("jobs", ""),
            Get("jobs", "a\n"),
            Listing("Upper"),
            Listing("jobs", "a\n"),
        ):
            with pytest.raises(StoreRefused):
                store.query([Get("jobs", "a"), question])

    def test_a_revision_that_the_store_never_had_is_compacted(self, store: Store) -> None:
        revision = store.transact(writes=[Put("jobs", "a", {})])
        assert store.changes("jobs", revision + 1) == Compacted(revision)

    def test_the_change_log_is_bounded_and_says_so(self, world: StoreWorld) -> None:
        store = world.open(compaction_threshold=50)
        revisions = [
            store.transact(writes=[Put("jobs", "a", {"n": n}), Put("jobs", "b", {"n": n})])
            for n in range(200)
        ]
        assert store.changes("jobs", 0) == Compacted(revisions[-1])
        assert store.changes("jobs", revisions[-30]) == Compacted(revisions[-1])
        newest = store.changes("jobs", revisions[-11])
        assert newest == Changes(
            tuple(Change("jobs", key, r, ChangeKind.PUT) for r in revisions[-10:] for key in "ab"),
            revisions[-1],
        )
        assert _value(store, "jobs", "a") == {"n": 199}
        store.close()

    def test_a_compaction_changes_nothing_that_is_there(self, world: StoreWorld) -> None:
        store = world.open(compaction_threshold=20)
        for n in range(30):
            store.transact(writes=[Put("jobs", str(n), {"n": n}), Delete("jobs", str(n - 5))])
        before = (store.list("jobs"), store.revision(), store.size_by_map())
        store.compact()
        assert (store.list("jobs"), store.revision(), store.size_by_map()) == before
        assert (
            store.transact([Check("jobs", "29", before[0][-1].version)], [Put("jobs", "29", {})])
            > before[1]
        )
        store.close()

    @pytest.mark.parametrize("value", ROUND_TRIPS)
    def test_a_value_comes_back_as_it_was(self, store: Store, value: dict[str, Any]) -> None:
        store.transact(writes=[Put("jobs", "a", value)])
        assert repr(_value(store, "jobs", "a")) == repr(
            value
        )  # the order of names too: a schema is an ordered thing
        assert [e.value for e in store.list("jobs")] == [value]

    @pytest.mark.parametrize(
        "value",
        REFUSED_VALUES,
        ids=lambda value: repr(value)[:30] if not _is_huge(value) else "huge",
    )
    def test_a_value_that_would_not_come_back_is_refused(self, store: Store, value: Any) -> None:
        with pytest.raises(StoreRefused, match="the value of jobs/b"):
            store.transact(writes=[Put("jobs", "a", {}), Put("jobs", "b", value)])
        assert (store.list("jobs"), store.revision()) == ([], 0)

    @pytest.mark.parametrize("key", REFUSED_KEYS, ids=ascii)
    def test_a_key_that_cannot_be_one_is_refused(self, store: Store, key: Any) -> None:
        for call in (
            lambda: store.transact(writes=[Put("jobs", key, {})]),
            lambda: store.transact(writes=[Delete("jobs", key)]),
            lambda: store.transact([Check("jobs", key, 0)]),
            lambda: store.get("jobs", key),
        ):
            with pytest.raises(StoreRefused, match="key"):
                call()

    @pytest.mark.parametrize("map", REFUSED_MAPS, ids=ascii)
    def test_a_name_that_cannot_be_a_maps_is_refused(self, store: Store, map: Any) -> None:
        for call in (
            lambda: store.transact(writes=[Put(map, "a", {})]),
            lambda: store.transact([Check(map, "a", 0)]),
            lambda: store.get(map, "a"),
            lambda: store.list(map),
            lambda: store.changes(["jobs", map], 0),
        ):
            with pytest.raises(StoreRefused, match="cannot name a map"):
                call()

    def test_transactions_that_are_too_big_or_contradict_themselves_are_refused(
        self, store: Store
    ) -> None:
        with pytest.raises(StoreRefused, match="writes jobs/a twice"):
            store.transact(writes=[Put("jobs", "a", {}), Delete("jobs", "a")])
        with pytest.raises(StoreRefused, match="101 writes"):
            store.transact(writes=[Put("jobs", str(n), {}) for n in range(101)])
        with pytest.raises(StoreRefused, match="101 checks"):
            store.transact([Check("jobs", str(n), 0) for n in range(101)])
        with pytest.raises(StoreRefused, match="version -1"):
            store.transact([Check("jobs", "a", -1)])
        assert store.revision() == 0
        store.transact(
            [Check("jobs", str(n), 0) for n in range(100)],
            [Put("jobs", str(n), {}) for n in range(100)],
        )
        assert len(store.list("jobs")) == 100

    def test_what_callers_do_to_a_document_afterwards_is_their_own_affair(
        self, store: Store
    ) -> None:
        given: dict[str, Any] = {"list": [1]}
        store.transact(writes=[Put("jobs", "a", given)])
        given["list"].append(2)
        _value(store, "jobs", "a")["list"].append(3)
        assert _value(store, "jobs", "a") == {"list": [1]}

    def test_the_size_of_a_map_is_its_keys_and_its_canonical_values(self, store: Store) -> None:
        store.transact(
            writes=[
                Put("jobs", "é", {"b": "ü", "a": 1}),
                Put("jobs", "k", {}),
                Put("states", "gone", {}),
            ]
        )
        store.transact(writes=[Delete("states", "gone")])
        assert store.size_by_map() == {
            "jobs": MapSize(
                2, 2 + len('{"a":1,"b":"ü"}'.encode()) + 1 + 2 + len(',"~crc~":"00000000"') * 2 - 1
            )
        }

    def test_a_document_that_was_changed_behind_the_store_is_named_and_keeps_nobody_from_the_others(
        self, store: Store
    ) -> None:
        store.transact(
            writes=[
                Put("jobs", key, {"version": 1, "lineage": f"{key}-19a0"})
                for key in ("a", "b", "c")
            ]
        )
        row = store.backend.read("jobs", "b")
        assert row is not None
        for text in (
            row.text.replace("19a0", "19a1"),
            row.text[:-1],
            "[]",
            "no JSON",
            '{"version":1,"~crc~":7}',
        ):
            _write_behind(store, "jobs", "b", text)
            entries = store.list("jobs")
            assert [entry.key for entry in entries] == ["a", "b", "c"]
            assert [entry.value["lineage"] for entry in undamaged(entries)] == ["a-19a0", "c-19a0"]
            for found in (store.get("jobs", "b"), entries[1], *store.query([Get("jobs", "b")])[0]):
                assert found is not None
                with pytest.raises(
                    DocumentDamaged, match="the stored document jobs/b is damaged and is not used"
                ):
                    _ = found.value
        version = store.list("jobs")[1].version
        store.transact([Check("jobs", "b", version)], [Put("jobs", "b", {"whole": True})])
        assert _value(store, "jobs", "b") == {"whole": True}

    def test_a_document_that_was_moved_to_another_key_or_map_is_damage(self, store: Store) -> None:
        store.transact(
            writes=[
                Put("jobs", "a", {"n": 1}),
                Put("jobs", "b", {"n": 2}),
                Put("states", "a", {"n": 3}),
            ]
        )
        texts = {
            place: store.backend.read(*place)
            for place in (("jobs", "a"), ("jobs", "b"), ("states", "a"))
        }
        for (map, key), other in (
            (("jobs", "a"), ("jobs", "b")),
            (("jobs", "b"), ("jobs", "a")),
            (("states", "a"), ("jobs", "a")),
        ):
            row = texts[other]
            assert row is not None
            _write_behind(store, map, key, row.text)
            entry = store.get(map, key)
            assert entry is not None
            with pytest.raises(
                DocumentDamaged, match=f"the stored document {map}/{key} is damaged.*another key"
            ):
                _ = entry.value

    def test_a_document_of_the_first_release_has_no_checksum_and_is_read(
        self, store: Store
    ) -> None:
        _write_behind(store, "jobs", "a", '{"version":1,"lineage":"7-19a0"}')
        assert _value(store, "jobs", "a") == {"version": 1, "lineage": "7-19a0"}

    def test_who_follows_a_map_leaves_a_damaged_document_out_and_names_it_until_it_is_whole(
        self, store: Store
    ) -> None:
        store.transact(
            writes=[
                Put("beats", key, to_document(Heartbeat(term=1, number=2))) for key in ("a", "b")
            ]
        )
        row = store.backend.read("beats", "b")
        assert row is not None
        _write_behind(store, "beats", "b", row.text.replace('"number":2', '"number":3'))
        follower = Follower(store, {"beats": Heartbeat}, lambda: 0.0)
        follower.refresh()
        assert list(follower.all("beats")) == ["a"]
        assert "the stored document beats/b is damaged" in follower.unreadable["beats", "b"]
        store.transact(writes=[Put("beats", "b", to_document(Heartbeat(term=1, number=4)))])
        follower.refresh()
        assert follower.all("beats")["b"].value.number == 4
        assert follower.unreadable == {}

    def test_a_counter_is_exact_when_four_add_to_it(self, world: StoreWorld) -> None:
        store = world.open()
        world.work("count", workers=4, amount=60)
        assert _value(store, "counters", "common") == {"amount": 240}
        changes = store.changes("counters", 0)
        assert isinstance(changes, Changes)
        assert len({change.version for change in changes.events}) == len(changes.events) == 240
        store.close()

    def test_threads_that_share_a_store_are_as_exact(self, store: Store) -> None:
        troubles: list[BaseException] = []
        store.transact(writes=[Put("counters", "common", {"amount": 0})])

        def add(thread: int) -> None:
            try:
                for n in range(15):
                    ACTS["count"](store, thread, 1)
                    store.transact(
                        [Check("own", f"{thread}/{n}", 0)], [Put("own", f"{thread}/{n}", {})]
                    )
                    with pytest.raises(Conflict):
                        store.transact(
                            [Check("own", f"{thread}/{n}", 0)],
                            [Put("own", f"{thread}/{n}", {}), Put("never", f"{thread}", {})],
                        )
            except BaseException as error:
                troubles.append(error)

        threads = [threading.Thread(target=add, args=(thread,)) for thread in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert troubles == []
        assert (
            _value(store, "counters", "common"),
            len(store.list("own")),
            store.list("never"),
        ) == ({"amount": 90}, 90, [])
        changes = store.changes(("counters", "own"), 0)
        assert isinstance(changes, Changes)
        assert len({change.version for change in changes.events}) == len(changes.events) == 181

    def test_money_is_neither_made_nor_lost_by_four_who_move_it(self, world: StoreWorld) -> None:
        store = world.open()
        store.transact(
            writes=[Put("bank", f"account-{n}", {"amount": 1000}) for n in range(ACCOUNTS)]
        )
        done = threading.Event()
        sums: list[int] = []
        accounts = [Get("bank", f"account-{n}") for n in range(ACCOUNTS)]

        def watch() -> None:
            while not done.is_set():
                sums.append(sum(e.value["amount"] for e in store.list("bank")))
                sums.append(
                    sum(e.value["amount"] for answer in store.query(accounts) for e in answer)
                )

        watcher = threading.Thread(target=watch)
        watcher.start()
        world.work("transfer", workers=4, amount=40)
        done.set()
        watcher.join()
        assert set(sums) == {
            1000 * ACCOUNTS
        }  # a list is one moment, even while others write, and so are several answers
        assert sum(e.value["amount"] for e in store.list("bank")) == 1000 * ACCOUNTS
        assert [e.value["amount"] for e in store.list("bank")] != [1000] * ACCOUNTS
        store.close()

    def test_who_follows_the_feed_while_others_write_sees_every_change_once(
        self, world: StoreWorld
    ) -> None:
        store = world.open()
        seen: list[int] = []
        worker = threading.Thread(target=lambda: world.work("count", workers=2, amount=60))
        worker.start()
        since, last_look = 0, False
        while True:
            last_look = not worker.is_alive()
            changes = store.changes("counters", since)
            assert isinstance(changes, Changes)
            seen += [change.version for change in changes.events]
            since = changes.revision
            if last_look:
                break
        worker.join()
        assert seen == sorted(set(seen))
        assert len(seen) == 120
        store.close()

    def test_a_closed_store_takes_no_more_calls(self, world: StoreWorld) -> None:
        store = world.open()
        store.transact(writes=[Put("jobs", "a", {})])
        store.close()
        store.close()
        for call in (
            lambda: store.get("jobs", "a"),
            lambda: store.list("jobs"),
            lambda: store.query([Get("jobs", "a")]),
            lambda: store.revision(),
            lambda: store.changes("jobs", 0),
            lambda: store.transact(writes=[Put("jobs", "a", {})]),
            lambda: store.size_by_map(),
            lambda: store.compact(),
        ):
            with pytest.raises(StoreClosed):
                call()


def _write_behind(store: Store, map: str, key: str, text: str) -> None:
    """Put a text into the store as something else than Tidegate would."""
    store.backend.apply(
        Transaction(
            token=TransactionName(id=os.urandom(16), since=store.revision()),
            checks=(),
            writes=(Write(map, key, text),),
        )
    )


def _value(store: Store, map: str, key: str) -> dict[str, Any]:
    entry = store.get(map, key)
    assert entry is not None, f"{map}/{key} is not there"
    return entry.value


def _is_huge(value: object) -> bool:
    return isinstance(value, dict) and ("digits" in value or "too long" in value)
