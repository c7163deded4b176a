"""A store that fails on purpose, over any real one: for the contract suite and for simulation.

`faulty_store(store, choose)` gives a second front over the same data. Before every call,
`choose(operation)` says what goes wrong.
"""

import random
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum

from tidegate.store.backend import (
    Backend,
    Changes,
    Committed,
    Compacted,
    MapSize,
    NotCommitted,
    OutcomeForgotten,
    Query,
    StoredRow,
    Transaction,
    TransactionName,
)
from tidegate.store.base import Store
from tidegate.store.errors import AnswerLost, Conflict, StoreUnavailable


class StoreCall(StrEnum):
    """The calls that can fail."""

    READ = "read"
    SCAN = "scan"
    ASK = "ask"
    REVISION = "revision"
    APPLY = "apply"
    SETTLE = "settle"
    FEED = "feed"
    SIZE = "size"
    COMPACT = "compact"


class Fault(StrEnum):
    """What goes wrong with one call.

    For calls that write nothing, all but NONE and SLOW are UNAVAILABLE.
    """

    NONE = "none"
    SLOW = "slow"  # `pause` is called first
    UNAVAILABLE = "unavailable"  # refused, and known to be
    REQUEST_LOST = "request-lost"  # not done, and not known
    ANSWER_LOST = "answer-lost"  # done, and not known
    HELD_BACK = "held-back"  # not done and not known, and done by `deliver` later


Choose = Callable[[StoreCall], Fault]


def scripted(faults: Mapping[StoreCall, Iterable[Fault]]) -> Choose:
    """The faults of each operation in order; when they are used up, all goes well."""
    left = {operation: iter(list(sequence)) for operation, sequence in faults.items()}
    return lambda operation: next(left.get(operation, iter(())), Fault.NONE)


def seeded(seed: int, probability: float) -> Choose:
    """Each call fails with this probability, the kind by chance; the same seed gives the same
    faults.
    """
    chance = random.Random(seed)
    kinds = [fault for fault in Fault if fault is not Fault.NONE]
    lock = threading.Lock()

    def choose(_: StoreCall) -> Fault:
        with lock:
            return chance.choice(kinds) if chance.random() < probability else Fault.NONE

    return choose


class FaultyBackend:
    """Stands between a front and a backend."""

    def __init__(
        self, inner: Backend, choose: Choose, *, pause: Callable[[], None] = lambda: None
    ) -> None:
        self.inner = inner
        self.choose = choose
        self.pause = pause
        self.held: list[Transaction] = []

    def deliver(self) -> list[int]:
        """What was held back arrives now; the revisions of those that were still taken."""
        taken = []
        held, self.held = self.held, []
        for transaction in held:
            try:
                taken.append(self.inner.apply(transaction))
            except (Conflict, StoreUnavailable):
                continue
        return taken

    def read(self, map: str, key: str) -> StoredRow | None:
        self._simple(StoreCall.READ)
        return self.inner.read(map, key)

    def scan(self, map: str, prefix: str) -> list[StoredRow]:
        self._simple(StoreCall.SCAN)
        return self.inner.scan(map, prefix)

    def query(self, queries: Sequence[Query]) -> list[list[StoredRow]]:
        self._simple(StoreCall.ASK)
        return self.inner.query(queries)

    def revision(self) -> int:
        self._simple(StoreCall.REVISION)
        return self.inner.revision()

    def apply(self, transaction: Transaction) -> int:
        fault = self._chosen(StoreCall.APPLY)
        if fault is Fault.HELD_BACK:
            self.held.append(transaction)
        if fault in (Fault.REQUEST_LOST, Fault.HELD_BACK):
            raise AnswerLost("the request was lost on purpose")
        revision = self.inner.apply(transaction)
        if fault is Fault.ANSWER_LOST:
            raise AnswerLost("the answer was lost on purpose")
        return revision

    def resolve_outcome(
        self, token: TransactionName
    ) -> Committed | NotCommitted | OutcomeForgotten:
        fault = self._chosen(StoreCall.SETTLE)
        if fault in (Fault.REQUEST_LOST, Fault.HELD_BACK):
            raise StoreUnavailable("the question was lost on purpose")
        outcome = self.inner.resolve_outcome(token)
        if fault is Fault.ANSWER_LOST:
            raise StoreUnavailable("the answer was lost on purpose")
        return outcome

    def feed(self, maps: Collection[str], since: int) -> Changes | Compacted:
        self._simple(StoreCall.FEED)
        return self.inner.feed(maps, since)

    def size_by_map(self) -> dict[str, MapSize]:
        self._simple(StoreCall.SIZE)
        return self.inner.size_by_map()

    def compact(self) -> None:
        self._simple(StoreCall.COMPACT)
        self.inner.compact()

    def close(self) -> None:
        self.inner.close()

    def _chosen(self, operation: StoreCall) -> Fault:
        fault = self.choose(operation)
        if fault is Fault.SLOW:
            self.pause()
        if fault is Fault.UNAVAILABLE:
            raise StoreUnavailable("unavailable on purpose")
        return fault

    def _simple(self, operation: StoreCall) -> None:
        if self._chosen(operation) not in (Fault.NONE, Fault.SLOW):
            raise StoreUnavailable("unavailable on purpose")


def faulty_store(
    store: Store, choose: Choose, *, pause: Callable[[], None] = lambda: None
) -> tuple[Store, FaultyBackend]:
    """A front over the same data that fails as chosen, and its backend (`deliver`, `choose`).

    Opening it does not fail, and it never sleeps.
    """
    backend = FaultyBackend(store.backend, lambda _: Fault.NONE, pause=pause)
    front = Store(backend, pause=lambda _: None)
    backend.choose = choose
    return front, backend
