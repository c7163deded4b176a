"""The durable state of a pipeline: fenced, and exact in spite of faults of the store."""

import threading

import pytest

from tidegate.clock import SystemClock
from tidegate.model.document import from_document, to_document
from tidegate.model.errors import Fenced, OtherCopy
from tidegate.model.records import (
    PIPELINES,
    CheckpointKind,
    CheckpointRef,
    Failure,
    PipelineState,
    PipelineStatus,
    SourceRange,
)
from tidegate.pipeline.ledger import HISTORY_MAX, Ledger
from tidegate.store.base import Put, Store
from tidegate.store.errors import StoreUnavailable
from tidegate.store.open import open_store
from tidegate.testing.faulty_store import faulty_store, seeded

RANGES = {"s": SourceRange(0, 10)}


class NoWait(SystemClock):
    """A clock that does not wait for a store that is out of reach."""

    def wait(self, event: threading.Event, seconds: float) -> bool:  # noqa: ARG002  # protocol
        return event.is_set()


def new_store(generation: int = 1) -> Store:
    store = open_store("memory:")
    store.transact(
        [],
        [
            Put(
                PIPELINES,
                "1/1",
                to_document(
                    PipelineState(job_id=1, pipeline=1, lineage="l", generation=generation)
                ),
            )
        ],
    )
    return store


def ledger_of(store: Store, generation: int = 1) -> Ledger:
    ledger = Ledger(store, 1, 1, generation, clock=NoWait(), abandon=threading.Event())
    ledger.load()
    return ledger


def stored(store: Store) -> PipelineState:
    entry = store.get(PIPELINES, "1/1")
    assert entry is not None
    return from_document(PipelineState, entry.value)


def ref(checkpoint: int) -> CheckpointRef:
    return CheckpointRef(
        checkpoint=checkpoint,
        path=f"1/1/{checkpoint}",
        generation=1,
        begun_ms=0,
        completed_ms=1,
        rows_read=10,
        rows_written=9,
    )


def turn(ledger: Ledger, retained_max: int = 2) -> None:
    pending = ledger.begin(RANGES)
    ledger.complete(ref(pending.checkpoint), ["s"], retained_max, [])


def test_initial_offsets_are_read_only_once() -> None:
    store, asked = new_store(), []

    def initial() -> int:
        asked.append(1)
        return len(asked)

    ledger_of(store).start({"s": initial})
    ledger_of(store).start({"s": initial})
    assert len(asked) == 1
    assert stored(store).initial == {"s": 1}


def test_a_begun_batch_is_durable_and_its_id_is_not_reused() -> None:
    store = new_store()
    pending = ledger_of(store).begin(RANGES)
    assert stored(store).pending == pending
    assert stored(store).next_checkpoint == 2


def test_complete_retains_checkpoints_and_records_deletions() -> None:
    store = new_store()
    ledger = ledger_of(store)
    for _ in range(4):
        turn(ledger)
    state = stored(store)
    assert [r.checkpoint for r in state.retained] == [3, 4]
    assert [r.checkpoint for r in state.pending_deletion] == [1, 2]
    assert (
        state.rows_read,
        state.rows_written,
        state.checkpoints,
        state.pending,
        state.ready_to_close,
    ) == (40, 36, 4, None, ("s",))
    ledger.begin(RANGES)
    ledger.complete(ref(5), [], 2, ["1/1/1", "1/1/2"])
    assert [r.checkpoint for r in stored(store).pending_deletion] == [3]


def test_an_older_generation_is_fenced_at_every_write() -> None:
    store = new_store()
    old = ledger_of(store)
    pending = old.begin(RANGES)
    taken = PipelineState(
        job_id=1, pipeline=1, lineage="l", generation=2, next_checkpoint=2, pending=pending
    )
    store.transact([], [Put(PIPELINES, "1/1", to_document(taken))])
    for write in (
        lambda: old.complete(ref(1), [], 1, []),
        old.confirm,
        lambda: old.end(PipelineStatus.FINISHED),
        lambda: old.retry(Failure(at_ms=0, generation=1)),
    ):
        with pytest.raises(Fenced):
            write()
    assert stored(store) == taken
    with pytest.raises(Fenced):
        ledger_of(store, generation=1)


def test_finishing_makes_the_last_checkpoint_the_completed_point() -> None:
    store = new_store()
    ledger = ledger_of(store)
    turn(ledger)
    ledger.end(PipelineStatus.FINISHED)
    assert stored(store).status is PipelineStatus.FINISHED
    assert [r.kind for r in stored(store).retained] == [CheckpointKind.COMPLETED_POINT]


def test_restarts_count_until_there_is_progress() -> None:
    store = new_store()
    ledger = ledger_of(store)
    ledger.retry(Failure(at_ms=0, generation=1, message="x"))
    ledger.retry(Failure(at_ms=0, generation=1, message="y"))
    assert stored(store).restarts == 2
    turn(ledger)
    assert stored(store).restarts == 0


def test_history_is_bounded() -> None:
    store = new_store()
    ledger = ledger_of(store)
    for _ in range(HISTORY_MAX + 5):
        turn(ledger)
    entry = store.get("checkpoint-monitor", "1/1")
    assert entry is not None
    assert [e["checkpoint"] for e in entry.value["entries"]] == list(range(6, HISTORY_MAX + 6))


@pytest.mark.parametrize("number", range(60))
def test_lost_answers_and_outages_do_not_change_the_outcome(number: int) -> None:
    store = new_store()
    faulty, _ = faulty_store(store, seeded(number, 0.3))
    ledger = Ledger(faulty, 1, 1, 1, clock=NoWait(), abandon=threading.Event())
    ledger.load()
    for _ in range(5):
        turn(ledger)
    ledger.end(PipelineStatus.CANCELED)
    state = stored(store)
    assert (state.checkpoints, state.rows_read, state.next_checkpoint, state.status) == (
        5,
        50,
        6,
        PipelineStatus.CANCELED,
    )


def test_an_unreachable_store_is_retried_until_the_driver_must_end() -> None:
    store, abandon = new_store(), threading.Event()
    ledger = ledger_of(store)
    ledger.abandon = abandon
    calls = []

    def unreachable(*_: object) -> int:
        calls.append(1)
        if len(calls) == 5:
            abandon.set()
        raise StoreUnavailable("no answer")

    store.transact = unreachable  # type: ignore[method-assign]  # the store goes away under it
    with pytest.raises(StoreUnavailable):
        ledger.confirm()
    assert len(calls) == 5


def claimed(store: Store, token: str, generation: int = 1) -> Ledger:
    ledger = Ledger(store, 1, 1, generation, clock=NoWait(), abandon=threading.Event(), token=token)
    ledger.load()
    ledger.start({})
    return ledger


def test_the_store_rejects_a_second_driver_of_a_generation() -> None:
    store = new_store()
    first = claimed(store, "aa")
    assert stored(store).driver == "1-aa"
    with pytest.raises(OtherCopy, match="another copy of this installation"):
        claimed(store, "bb")
    turn(first)
    assert stored(store).checkpoints == 1


def test_a_driver_whose_state_was_claimed_cannot_write() -> None:
    store = new_store()
    zombie = claimed(store, "aa")
    entry = store.get(PIPELINES, "1/1")
    assert entry is not None
    store.transact(
        [], [Put(PIPELINES, "1/1", {**entry.value, "driver": "1-bb"})]
    )  # as by a store that was put back, and led again
    with pytest.raises(OtherCopy):
        zombie.begin(RANGES)
    assert stored(store).pending is None


def test_the_driver_of_the_next_generation_claims_the_state_anew() -> None:
    store = new_store()
    claimed(store, "aa")
    entry = store.get(PIPELINES, "1/1")
    assert entry is not None
    store.transact([], [Put(PIPELINES, "1/1", {**entry.value, "generation": 2})])
    claimed(store, "bb", 2)
    assert stored(store).driver == "2-bb"
