"""Group commit: threads that write at the same moment share one commit, and so its fsync.

Called by the backends that have one writer at a time. Each thread queues its transaction and waits
for the mutex. The thread that gets it commits everything that is queued as one batch; the others
find their outcome when they get the mutex. A conflict of one transaction does not affect the rest
of its batch.
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
"""The revision, or why it was not written (AnswerLost: it may or may not have been)."""


class _Queued:
    """A transaction in the queue.

    `process` identifies the copies that a forked child has of its parent's; they are dropped.
    """

    __slots__ = ("outcome", "process", "transaction")

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.process = os.getpid()
        self.outcome: Outcome | None = None


class Combiner:
    """The queue of one backend.

    `commit` makes a batch durable; what it raises is the outcome of every transaction of the batch.
    The queue needs no lock: the operations of a deque are atomic, and only the holder of the mutex
    takes from it, except for a thread that withdraws its own transaction.
    """

    def __init__(self, commit: Callable[[Sequence[Transaction]], Sequence[Outcome]]) -> None:
        self._commit = commit
        self._queue: deque[_Queued] = deque()

    def apply(self, transaction: Transaction, mutex: AbstractContextManager[None]) -> int:
        """Commit the transaction, or wait until another thread has committed it.

        If entering the mutex raises, nothing was written.
        """
        mine = _Queued(transaction)
        entered = False
        self._queue.append(mine)
        try:
            with mutex:
                entered = True
                while mine.outcome is None:
                    self._commit_batch()
        except BaseException as error:
            withdrawn = self._withdraw(mine)
            if entered or withdrawn or not isinstance(error, TidegateError):
                raise
            if mine.outcome is None:  # another thread is committing it
                raise AnswerLost(f"another thread was writing the transaction: {error}") from error
        if isinstance(mine.outcome, int):
            return mine.outcome
        assert mine.outcome is not None
        raise mine.outcome

    def _commit_batch(self) -> None:
        batch = self._take_batch()
        outcomes: Sequence[Outcome] = [
            AnswerLost("the thread that wrote the transaction was interrupted")
        ] * len(batch)
        try:
            outcomes = self._commit([queued.transaction for queued in batch])
        except TidegateError as error:
            outcomes = [error] * len(batch)
        finally:
            for queued, outcome in zip(batch, outcomes, strict=True):
                queued.outcome = outcome

    def _take_batch(self) -> list[_Queued]:
        batch: list[_Queued] = []
        while len(batch) < BATCH_MAX:
            try:
                queued = self._queue.popleft()
            except IndexError:
                break
            if queued.process == os.getpid():
                batch.append(queued)
        return batch

    def _withdraw(self, mine: _Queued) -> bool:
        """Remove it from the queue; False if another thread has already taken it."""
        try:
            self._queue.remove(mine)
        except ValueError:
            return False
        return True
