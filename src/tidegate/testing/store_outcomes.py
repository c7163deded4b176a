"""The part of the store's contract that is about lost answers: a transaction was written or it was
not, and its author gets to know which.

Part of `StoreContract` (store_contract.py); not to be used alone.
"""

from typing import Any

import pytest

from tidegate.store import Changes, Check, Conflict, OutcomeUnknown, Put, Store, StoreUnavailable
from tidegate.store.backend import Committed, NotCommitted
from tidegate.testing.faulty_store import Fault, StoreCall, faulty_store, scripted, seeded

LOST_FOR_LONG = [Fault.UNAVAILABLE, Fault.REQUEST_LOST] * 3  # more than `settle` tries


class OutcomeContract:
    """What every store does when answers are lost."""

    def test_a_transaction_whose_answer_was_lost_is_found_and_returns_its_revision(
        self, store: Store
    ) -> None:
        faulty, _ = faulty_store(store, scripted({StoreCall.APPLY: [Fault.ANSWER_LOST]}))
        revision = faulty.transact([Check("jobs", "a", 0)], [Put("jobs", "a", {"n": 1})])
        entry = store.get("jobs", "a")
        assert entry is not None
        assert (entry.value, entry.version, store.revision()) == ({"n": 1}, revision, revision)

    def test_it_is_found_even_when_others_have_written_meanwhile(self, store: Store) -> None:
        def others_write() -> None:
            for n in range(5):
                store.transact(writes=[Put("jobs", "a", {"by": f"other {n}"})])

        faulty, _ = faulty_store(
            store,
            scripted({StoreCall.APPLY: [Fault.ANSWER_LOST], StoreCall.SETTLE: [Fault.SLOW]}),
            pause=others_write,
        )
        assert faulty.transact(writes=[Put("jobs", "a", {"by": "me"})]) == 1
        assert store.revision() == 6

    def test_a_transaction_whose_request_was_lost_is_known_not_to_be_written(
        self, store: Store
    ) -> None:
        faulty, _ = faulty_store(store, scripted({StoreCall.APPLY: [Fault.REQUEST_LOST]}))
        with pytest.raises(StoreUnavailable, match="was not written"):
            faulty.transact(writes=[Put("jobs", "a", {"n": 1})])
        assert (store.get("jobs", "a"), store.revision()) == (None, 0)
        assert faulty.transact([Check("jobs", "a", 0)], [Put("jobs", "a", {"n": 1})]) == 1

    def test_a_request_that_arrives_after_it_was_given_up_is_turned_away(
        self, store: Store
    ) -> None:
        faulty, backend = faulty_store(store, scripted({StoreCall.APPLY: [Fault.HELD_BACK]}))
        with pytest.raises(StoreUnavailable, match="was not written"):
            faulty.transact(writes=[Put("jobs", "a", {"n": 1})])
        assert backend.deliver() == []
        assert (store.get("jobs", "a"), store.revision()) == (None, 0)

    def test_a_conflict_is_a_conflict_on_a_bad_line_too(self, store: Store) -> None:
        store.transact(writes=[Put("jobs", "a", {})])
        faulty, _ = faulty_store(store, scripted({StoreCall.APPLY: [Fault.ANSWER_LOST]}))
        with pytest.raises(Conflict):
            faulty.transact([Check("jobs", "a", 0)], [Put("jobs", "a", {})])

    @pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.REQUEST_LOST, Fault.ANSWER_LOST])
    @pytest.mark.parametrize("written", [True, False])
    def test_the_question_is_repeated_when_it_is_lost_itself(
        self, store: Store, fault: Fault, written: bool
    ) -> None:
        lost = Fault.ANSWER_LOST if written else Fault.REQUEST_LOST
        faulty, _ = faulty_store(
            store, scripted({StoreCall.APPLY: [lost], StoreCall.SETTLE: [fault] * 3})
        )
        if written:
            assert faulty.transact(writes=[Put("jobs", "a", {})]) == 1
        else:
            with pytest.raises(StoreUnavailable, match="was not written"):
                faulty.transact(writes=[Put("jobs", "a", {})])
        assert (store.get("jobs", "a") is not None) is written

    @pytest.mark.parametrize("written", [True, False])
    def test_an_outcome_is_unknown_only_while_the_store_cannot_be_asked(
        self, store: Store, written: bool
    ) -> None:
        lost = Fault.ANSWER_LOST if written else Fault.HELD_BACK
        faulty, backend = faulty_store(
            store, scripted({StoreCall.APPLY: [lost], StoreCall.SETTLE: LOST_FOR_LONG})
        )
        with pytest.raises(OutcomeUnknown) as unknown:
            faulty.transact(writes=[Put("jobs", "a", {})])
        assert (
            store.resolve_outcome(unknown.value.token)
            == faulty.resolve_outcome(unknown.value.token)
            == (Committed(1) if written else NotCommitted())
        )
        assert backend.deliver() == []

    def test_an_outcome_stays_unknown_when_its_trace_may_have_been_pruned(self, world: Any) -> None:
        store = world.open(compaction_threshold=20)
        faulty, _ = faulty_store(
            store,
            scripted({StoreCall.APPLY: [Fault.REQUEST_LOST], StoreCall.SETTLE: LOST_FOR_LONG}),
        )
        with pytest.raises(OutcomeUnknown) as unknown:
            faulty.transact(writes=[Put("jobs", "a", {})])
        for _ in range(40):
            store.transact(writes=[Put("jobs", "b", {})])
        with pytest.raises(OutcomeUnknown, match="its token was pruned"):
            store.resolve_outcome(unknown.value.token)
        store.close()

    def test_a_new_user_of_a_store_that_was_compacted_long_ago_gets_to_know_both_outcomes(
        self, world: Any
    ) -> None:
        store = world.open(compaction_threshold=20)
        for _ in range(40):
            store.transact(writes=[Put("jobs", "b", {})])
        for fault in (Fault.REQUEST_LOST, Fault.ANSWER_LOST):
            faulty, _ = faulty_store(store, scripted({StoreCall.APPLY: [fault]}))
            if fault is Fault.REQUEST_LOST:
                with pytest.raises(StoreUnavailable, match="was not written"):
                    faulty.transact(writes=[Put("jobs", "a", {})])
            else:
                assert faulty.transact(writes=[Put("jobs", "a", {})]) == store.revision() == 41
        store.close()

    @pytest.mark.parametrize("seed", range(3))
    def test_on_a_bad_line_what_is_acknowledged_is_there_and_what_is_refused_is_not(
        self, store: Store, seed: int
    ) -> None:
        faulty, backend = faulty_store(store, seeded(seed, 0.4))
        expected: list[str] = []
        for n in range(120):
            try:
                faulty.transact(writes=[Put("jobs", f"{n:03d}", {})])
            except OutcomeUnknown as unknown:
                if isinstance(store.resolve_outcome(unknown.token), NotCommitted):
                    continue
            except StoreUnavailable:
                continue
            expected.append(f"{n:03d}")
        backend.deliver()
        assert [e.key for e in store.list("jobs")] == expected
        assert 20 < len(expected) < 120
        changes = store.changes("jobs", 0)
        assert isinstance(changes, Changes)
        assert [change.key for change in changes.events] == expected
