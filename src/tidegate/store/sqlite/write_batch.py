"""Decide a batch of transactions in memory, each as if those before it were written. Pure.

Called by backend.py, which holds the store meanwhile and writes the result in a few statements.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tidegate.store.backend import ChangeKind, Check, Transaction
from tidegate.store.combine import Outcome
from tidegate.store.errors import Conflict, StoreUnavailable

EntryKey: TypeAlias = tuple[str, str]
"""Map and key."""


@dataclass(slots=True)
class WriteBatch:
    """What a batch writes.

    An entry that is written more than once is in `entries` in its last version, and in `changes`
    every time.
    """

    revision: int  # of the last transaction
    outcomes: list[Outcome] = field(default_factory=list)  # one for each transaction
    # revision and token of each transaction that is written
    committed: list[tuple[int, bytes]] = field(default_factory=list)
    changes: list[tuple[int, str, str, str]] = field(default_factory=list)
    # version and text; None for a deleted entry
    entries: dict[EntryKey, tuple[int, str] | None] = field(default_factory=dict)

    @property
    def put(self) -> list[tuple[str, str, int, str]]:
        """Map, key, version and text."""
        return [(*key, *entry) for key, entry in self.entries.items() if entry is not None]

    @property
    def deleted(self) -> list[EntryKey]:
        return [key for key, entry in self.entries.items() if entry is None]


def entries_to_read(transactions: Iterable[Transaction]) -> set[EntryKey]:
    """Return the entries whose versions must be known: those that are checked or deleted.

    Deleted ones, because deleting a missing entry is not a change.
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


def require_checks(checks: Iterable[Check], versions: Mapping[EntryKey, int]) -> None:
    """Raise Conflict if a check does not hold."""
    for check in checks:
        found = versions.get((check.map, check.key), 0)
        if found != check.version:
            raise Conflict(check.map, check.key, check.version, found)


def decide_batch(
    transactions: Sequence[Transaction],
    revision: int,
    versions: Mapping[EntryKey, int],
    voided: Collection[bytes],
) -> WriteBatch:
    """Apply transactions on top of this revision; an entry without a version does not exist."""
    batch = WriteBatch(revision)
    current = dict(versions)
    for transaction in transactions:
        try:
            if transaction.token.id in voided:
                raise StoreUnavailable(
                    "the transaction arrived after its token was voided; nothing was written"
                )
            require_checks(transaction.checks, current)
        except (Conflict, StoreUnavailable) as error:
            batch.outcomes.append(error)
        else:
            _add(batch, transaction, current)
    return batch


def _add(batch: WriteBatch, transaction: Transaction, current: dict[EntryKey, int]) -> None:
    batch.revision += 1
    for write in transaction.writes:
        key = (write.map, write.key)
        if write.text is not None:
            current[key] = batch.revision
            batch.entries[key] = (batch.revision, write.text)
            batch.changes.append((batch.revision, *key, ChangeKind.PUT.value))
        elif current.pop(key, 0):
            batch.entries[key] = None
            batch.changes.append((batch.revision, *key, ChangeKind.DELETE.value))
    batch.outcomes.append(batch.revision)
    batch.committed.append((batch.revision, transaction.token.id))
