"""What a batch of transactions comes to, decided in memory: one after the other, each as if those
before it were written. Called by sqlite.py, with the store in its hands; it writes the whole of it
in a few statements.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tidegate.store.backend import ChangeKind, Check, Transaction
from tidegate.store.combine import Outcome
from tidegate.store.errors import Conflict, StoreUnavailable

Place: TypeAlias = tuple[str, str]
"""Map and key."""


@dataclass(slots=True)
class WriteBatch:
    """What there is to write.

    An entry that is written more than once is here as it is in the end, and in `changes` every
    time.
    """

    revision: int  # the newest
    outcomes: list[Outcome] = field(default_factory=list)  # one for each transaction
    outcomes_written: list[tuple[int, bytes]] = field(
        default_factory=list
    )  # revision and token of those that are written
    changes: list[tuple[int, str, str, str]] = field(default_factory=list)
    entries: dict[Place, tuple[int, str] | None] = field(
        default_factory=dict
    )  # version and text; None: taken away

    @property
    def put(self) -> list[tuple[str, str, int, str]]:
        """Map, key, version and text."""
        return [(*place, *entry) for place, entry in self.entries.items() if entry is not None]

    @property
    def gone(self) -> list[Place]:
        return [place for place, entry in self.entries.items() if entry is None]


def places_of(transactions: Iterable[Transaction]) -> set[Place]:
    """Whose versions must be known: what is checked, and what is deleted, as a deletion of nothing
    is no change.
    """
    checked = {
        (check.map, check.key) for transaction in transactions for check in transaction.checks
    }
    return checked | {
        (write.map, write.key)
        for transaction in transactions
        for write in transaction.writes
        if write.text is None
    }


def judge(checks: Iterable[Check], versions: Mapping[Place, int]) -> None:
    """Conflict where one of them does not hold."""
    for check in checks:
        found = versions.get((check.map, check.key), 0)
        if found != check.version:
            raise Conflict(check.map, check.key, check.version, found)


def decided(
    transactions: Sequence[Transaction],
    revision: int,
    versions: Mapping[Place, int],
    given_up: Collection[bytes],
) -> WriteBatch:
    """All of them on top of this revision, with these versions there (none: no entry)."""
    batch, now = WriteBatch(revision), dict(versions)
    for transaction in transactions:
        try:
            if transaction.token.id in given_up:
                raise StoreUnavailable(
                    "the transaction came after it had been given up; nothing was written"
                )
            judge(transaction.checks, now)
        except (Conflict, StoreUnavailable) as error:
            batch.outcomes.append(error)
        else:
            _add(batch, transaction, now)
    return batch


def _add(batch: WriteBatch, transaction: Transaction, now: dict[Place, int]) -> None:
    batch.revision += 1
    for write in transaction.writes:
        place = (write.map, write.key)
        if write.text is not None:
            now[place], batch.entries[place] = batch.revision, (batch.revision, write.text)
            batch.changes.append((batch.revision, *place, ChangeKind.PUT.value))
        elif now.pop(place, 0):
            batch.entries[place] = None
            batch.changes.append((batch.revision, *place, ChangeKind.DELETE.value))
    batch.outcomes.append(batch.revision)
    batch.outcomes_written.append((batch.revision, transaction.token.id))
