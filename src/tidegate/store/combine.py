"""Threads that write at the same moment share a turn of the store, and so its fsync. Called by the
backends in which writers take turns.

Everyone queues its transaction and waits for the turn. Whoever gets it carries out all that is
queued, one after the other, durable together; the others find theirs done when their turn comes. A
transaction of a batch that meets a conflict has written nothing, and the rest of the batch does not
mind.
"""

import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeAlias

from tidegate.model.errors import TidegateError
from tidegate.store.backend import Transaction
from tidegate.store.errors import AnswerLost

BATCH_MAX = 64

Outcome: TypeAlias = int | TidegateError
"""The revision, or why it was not written (AnswerLost: or who knows)."""


class _Queued:
    """A transaction in the queue.

    After a fork the child has copies of those of its parent: they are none of its business.
    """

    __slots__ = ("outcome", "process", "transaction")

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.process = os.getpid()
        self.outcome: Outcome | None = None


class Combiner:
    """The queue of one backend. `carry_out` makes a batch durable; what it raises holds for all of
    the batch. The queue needs no lock: a deque's own operations are whole, and only who has the
    turn takes from it, but for those who give up.
    """

    def __init__(self, carry_out: Callable[[Sequence[Transaction]], Sequence[Outcome]]) -> None:
        self._carry_out = carry_out
        self._queue: deque[_Queued] = deque()

    def apply(self, transaction: Transaction, turn: AbstractContextManager[None]) -> int:
        """Carry it out, or have it carried out.

        What entering the turn raises means that nothing was written.
        """
        mine, entered = _Queued(transaction), False
        self._queue.append(mine)
        try:
            with turn:
                entered = True
                while mine.outcome is None:
                    self._batch()
        except BaseException as error:
            withdrawn = self._withdrawn(mine)
            if entered or withdrawn or not isinstance(error, TidegateError):
                raise
            if mine.outcome is None:  # somebody else has it in hand
                raise AnswerLost(f"another thread was writing the transaction: {error}") from error
        if isinstance(mine.outcome, int):
            return mine.outcome
        assert mine.outcome is not None
        raise mine.outcome

    def _batch(self) -> None:
        batch = self._taken()
        outcomes: Sequence[Outcome] = [
            AnswerLost("the thread that wrote the transaction was interrupted")
        ] * len(batch)
        try:
            outcomes = self._carry_out([wanted.transaction for wanted in batch])
        except TidegateError as error:
            outcomes = [error] * len(batch)
        finally:
            for wanted, outcome in zip(batch, outcomes, strict=True):
                wanted.outcome = outcome

    def _taken(self) -> list[_Queued]:
        batch: list[_Queued] = []
        while len(batch) < BATCH_MAX:
            try:
                wanted = self._queue.popleft()
            except IndexError:
                break
            if wanted.process == os.getpid():
                batch.append(wanted)
        return batch

    def _withdrawn(self, mine: _Queued) -> bool:
        """Take it out of the queue, unless somebody has it in hand."""
        try:
            self._queue.remove(mine)
        except ValueError:
            return False
        return True
