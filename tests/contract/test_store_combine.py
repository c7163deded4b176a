"""Writers of one process that share a turn of the store."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from tidegate.store.backend import Transaction, TransactionName
from tidegate.store.combine import BATCH_MAX, Combiner, Outcome, _Queued
from tidegate.store.errors import AnswerLost, Conflict, StoreUnavailable

PATIENCE_S = 60.0


class Turns:
    """A store whose writers take turns: it only remembers what it was given, and does what the test
    wants.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.batches: list[list[int]] = []
        self.entered = threading.Event()
        self.go_on = threading.Event()
        self.act: Callable[[int], Outcome] = lambda number: number * 10
        self.combiner = Combiner(self.carry_out)

    def carry_out(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        self.batches.append([each.token.since for each in transactions])
        self.entered.set()
        assert self.go_on.wait(PATIENCE_S)
        return [self.act(each.token.since) for each in transactions]

    @contextmanager
    def turn(self, no_turn: threading.Event | None) -> Iterator[None]:
        if no_turn is not None:
            assert no_turn.wait(PATIENCE_S)
            raise StoreUnavailable("no turn in time")
        with self.lock:
            yield

    def apply(self, number: int, no_turn: threading.Event | None = None) -> int:
        return self.combiner.apply(transaction(number), self.turn(no_turn))


def transaction(number: int) -> Transaction:
    return Transaction(token=TransactionName(id=b"", since=number), checks=(), writes=())


class Writer(threading.Thread):
    """One thread that writes; with `no_turn`, one that waits for its turn until it is refused."""

    def __init__(self, turns: Turns, number: int, no_turn: threading.Event | None = None) -> None:
        super().__init__()
        self.turns = turns
        self.number = number
        self.no_turn = no_turn
        self.outcome: int | BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.outcome = self.turns.apply(self.number, self.no_turn)
        except BaseException as error:
            self.outcome = error

    def refuse(self) -> None:
        assert self.no_turn is not None
        self.no_turn.set()

    def ended(self) -> int | BaseException | None:
        self.join(PATIENCE_S)
        assert not self.is_alive()
        return self.outcome


@pytest.fixture
def turns() -> Iterator[Turns]:
    made = Turns()
    yield made
    made.go_on.set()


def queued(turns: Turns, count: int) -> None:
    """Wait until so many are in the queue."""
    for _ in range(int(PATIENCE_S * 1000)):
        if len(turns.combiner._queue) >= count:
            return
        threading.Event().wait(0.001)
    raise AssertionError(f"{len(turns.combiner._queue)} in the queue, and not {count}")


def busy(turns: Turns, waiting: Sequence[int]) -> tuple[Writer, list[Writer]]:
    """One that writes, and others that came meanwhile, in this order."""
    first, others = Writer(turns, 1), []
    assert turns.entered.wait(PATIENCE_S)
    for number in waiting:
        others.append(Writer(turns, number))
        queued(turns, len(others))
    return first, others


def test_one_alone_does_not_wait(turns: Turns) -> None:
    turns.go_on.set()
    assert [turns.apply(n) for n in (1, 2, 3)] == [10, 20, 30]
    assert turns.batches == [[1], [2], [3]]


def test_transactions_queued_during_a_commit_share_the_next_one_in_order(turns: Turns) -> None:
    first, others = busy(turns, [5, 3, 4])
    turns.go_on.set()
    assert (first.ended(), [other.ended() for other in others]) == (10, [50, 30, 40])
    assert turns.batches == [[1], [5, 3, 4]]


def test_a_conflict_is_one_transactions_own(turns: Turns) -> None:
    turns.act = lambda number: Conflict("jobs", "a", 1, 2) if number == 3 else number
    _, others = busy(turns, [2, 3, 4])
    turns.go_on.set()
    outcomes = [other.ended() for other in others]
    assert (outcomes[0], outcomes[2]) == (2, 4)
    assert isinstance(outcomes[1], Conflict)


def test_an_error_of_a_batch_is_raised_in_all_its_threads_and_the_next_batch_works(
    turns: Turns,
) -> None:
    def act(number: int) -> int:
        if number == 3:
            raise AnswerLost("the disk went away")
        return number

    turns.act = act
    _, others = busy(turns, [2, 3])
    turns.go_on.set()
    assert all(isinstance(other.ended(), AnswerLost) for other in others)
    assert turns.apply(7) == 7


def test_a_withdrawn_transaction_is_never_written(turns: Turns) -> None:
    turns.go_on.set()
    late = Writer(turns, 2, no_turn=threading.Event())
    queued(turns, 1)
    late.refuse()
    assert isinstance(late.ended(), StoreUnavailable)
    assert turns.apply(3) == 30
    assert turns.batches == [[3]]


def test_a_timeout_while_another_thread_commits_is_answer_lost(
    turns: Turns,
) -> None:
    late = Writer(turns, 2, no_turn=threading.Event())
    queued(turns, 1)
    first = Writer(turns, 1)
    assert turns.entered.wait(PATIENCE_S)
    late.refuse()
    assert isinstance(late.ended(), AnswerLost)
    turns.go_on.set()
    assert first.ended() == 10
    assert turns.batches == [[2, 1]]


def test_a_timeout_after_another_thread_committed_has_the_outcome(turns: Turns) -> None:
    late = Writer(turns, 2, no_turn=threading.Event())
    queued(turns, 1)
    turns.go_on.set()
    assert turns.apply(1) == 10
    late.refuse()
    assert late.ended() == 20


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, RuntimeError])
def test_an_interrupt_leaves_the_others_not_knowing_and_the_turn_free(
    turns: Turns, interrupt: type[BaseException]
) -> None:
    def act(number: int) -> int:
        if number == 2:
            raise interrupt
        return number

    turns.act = act
    _, others = busy(turns, [2, 3])
    turns.go_on.set()
    assert {type(other.ended()) for other in others} == {interrupt, AnswerLost}
    assert turns.apply(7) == 7


def test_no_batch_is_larger_than_the_limit(turns: Turns) -> None:
    first, others = busy(turns, range(2, BATCH_MAX + 5))
    turns.go_on.set()
    assert [other.ended() for other in others] == [other.number * 10 for other in others]
    assert first.ended() == 10
    assert [len(batch) for batch in turns.batches] == [1, BATCH_MAX, 3]


def test_a_forked_child_drops_transactions_queued_by_its_parent(turns: Turns) -> None:
    turns.go_on.set()
    parents = _Queued(transaction(2))
    parents.process = os.getpid() + 1
    turns.combiner._queue.append(parents)
    assert turns.apply(3) == 30
    assert (turns.batches, parents.outcome) == ([[3]], None)
