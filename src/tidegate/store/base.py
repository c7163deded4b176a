"""The store that callers use: validates and encodes their input, and resolves lost answers.

Backends do the rest (backend.py). Callers get a `Store` from `open_store`. Nothing here may depend
on a certain backend.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.failpoint import failpoint
from tidegate.model.errors import Domain, TransientError
from tidegate.store.backend import (
    Backend,
    Change,
    ChangeKind,
    Changes,
    Check,
    Committed,
    Compacted,
    Get,
    Listing,
    MapSize,
    NotCommitted,
    OutcomeForgotten,
    Query,
    StoredRow,
    Transaction,
    TransactionName,
    Write,
)
from tidegate.store.encoding import (
    OPERATIONS_MAX,
    check_key,
    check_map,
    check_prefix,
    decode,
    encode,
)
from tidegate.store.errors import AnswerLost, DocumentDamaged, StoreRefused, StoreUnavailable

__all__ = [
    "Change",
    "ChangeKind",
    "Changes",
    "Check",
    "Compacted",
    "DamagedEntry",
    "Delete",
    "Entry",
    "Get",
    "Listing",
    "MapSize",
    "OutcomeUnknown",
    "Put",
    "Query",
    "Store",
    "undamaged",
]

OUTCOME_PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8)  # between the attempts to read an outcome back


@dataclass(frozen=True, slots=True)
class Entry:
    """One document of a map. `version` is the revision of its last change."""

    key: str
    value: dict[str, Any]
    version: int


class DamagedEntry(Entry):
    """A document whose bytes are not those that were written.

    Key and version are valid; reading `value` raises DocumentDamaged. So a damaged document blocks
    neither listing the others nor deleting it.
    """

    __slots__ = ("damage",)
    damage: DocumentDamaged

    def __init__(self, row: StoredRow, damage: DocumentDamaged) -> None:
        object.__setattr__(self, "key", row.key)
        object.__setattr__(self, "version", row.version)
        object.__setattr__(self, "damage", damage)

    @property
    def value(self) -> dict[str, Any]:
        raise DocumentDamaged(self.damage.map, self.damage.key, self.damage.why)


@dataclass(frozen=True, slots=True)
class Put:
    """Create or replace a document."""

    map: str
    key: str
    value: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an entry; it may be missing."""

    map: str
    key: str


class OutcomeUnknown(TransientError):
    """A transaction may or may not have been written, and the store does not answer.

    `Store.resolve_outcome(token)` finds out later.
    """

    condition = "store-outcome-unknown"
    domain = Domain.EXTERNAL

    def __init__(self, token: TransactionName, why: str) -> None:
        super().__init__(f"it is not known whether the last transaction was written: {why}")
        self.token = token


OUTAGE_ERRORS = (StoreUnavailable, OutcomeUnknown)
"""The store did not answer: the same call may succeed later."""

Entries = list[Entry]  # the method `list` hides the built-in name below
Answers = list[Entries]


class Store:
    """Named maps of versioned documents. Thread-safe."""

    def __init__(self, backend: Backend, *, pause: Callable[[float], None] = time.sleep) -> None:
        self.backend = backend
        self._pause = pause
        self._newest_revision = backend.revision()

    def get(self, map: str, key: str) -> Entry | None:
        """Return the entry, or None.

        The value of a damaged entry raises DocumentDamaged when it is read; so for `list` and
        `query`.
        """
        check_map(map)
        check_key(key)
        row = self.backend.read(map, key)
        return None if row is None else _entry(map, row)

    def list(self, map: str, prefix: str = "") -> Entries:
        """Return a consistent snapshot of the entries whose key begins with `prefix`.

        They are ordered by the code points of their keys.
        """
        check_map(map)
        check_prefix(prefix)
        return [_entry(map, row) for row in self.backend.scan(map, prefix)]

    def query(self, queries: Sequence[Query]) -> Answers:
        """Run several queries on one consistent snapshot.

        A `Get` returns its entry, if it exists; a `Listing` returns what `list` returns.
        """
        for query in queries:
            check_map(query.map)
            if isinstance(query, Get):
                check_key(query.key)
            else:
                check_prefix(query.prefix)
        answers = self.backend.query(queries)
        return [
            [_entry(question.map, row) for row in rows]
            for question, rows in zip(queries, answers, strict=True)
        ]

    def transact(self, checks: Sequence[Check] = (), writes: Sequence[Put | Delete] = ()) -> int:
        """If all checks hold, make all writes atomically; return the revision.

        Conflict, StoreUnavailable, StoreRefused: nothing was written. OutcomeUnknown: it could not
        be found out. Without writes, it only verifies that all checks hold at one moment.
        """
        transaction = Transaction(
            token=self._token(),
            checks=_validate_checks(checks),
            writes=_encode_writes(writes),
        )
        return self._note_revision(
            self._commit(transaction) if writes else self.backend.apply(transaction)
        )

    def resolve_outcome(self, token: TransactionName) -> Committed | NotCommitted:
        """Find out whether a transaction was written.

        After `NotCommitted` it is certain that it will never be written.
        """
        for pause_s in (*OUTCOME_PAUSES_S, None):
            try:
                outcome = self.backend.resolve_outcome(token)
            except StoreUnavailable as error:
                if pause_s is None:
                    raise OutcomeUnknown(token, str(error)) from error
                self._pause(pause_s)
                continue
            if isinstance(outcome, OutcomeForgotten):
                raise OutcomeUnknown(token, "so much was written since that its token was pruned")
            return outcome
        raise AssertionError("unreachable")

    def revision(self) -> int:
        """Return the revision of the newest transaction; 0 for a new store."""
        return self._note_revision(self.backend.revision())

    def changes(self, maps: str | Collection[str], since: int) -> Changes | Compacted:
        """Return the changes of one or several maps after revision `since`.

        To follow maps: `revision()`, `list`, then this repeatedly.
        """
        names = (maps,) if isinstance(maps, str) else maps
        for name in names:
            check_map(name)
        changes = self.backend.feed(names, since)
        self._note_revision(changes.revision)
        return changes

    def size_by_map(self) -> dict[str, MapSize]:
        """Return entries and bytes of every map that is not empty."""
        return self.backend.size_by_map()

    def compact(self) -> None:
        """Prune the change log and return free space now.

        Not needed for correctness: the store also does it automatically.
        """
        self.backend.compact()

    def close(self) -> None:
        """Close files and connections; may be repeated.

        Any other call afterwards raises StoreClosed.
        """
        self.backend.close()

    def _commit(self, transaction: Transaction) -> int:
        failpoint("store.transact.before")
        revision = self._apply(transaction)
        failpoint("store.transact.after")
        return revision

    def _token(self) -> TransactionName:
        return TransactionName(id=os.urandom(16), since=self._newest_revision)

    def _apply(self, transaction: Transaction) -> int:
        """Write a transaction; read its outcome back if the answer is lost."""
        try:
            return self.backend.apply(transaction)
        except AnswerLost as error:
            outcome = self.resolve_outcome(transaction.token)
            if isinstance(outcome, NotCommitted):
                raise StoreUnavailable(f"the transaction was not written: {error}") from error
            return outcome.revision

    def _note_revision(self, revision: int) -> int:
        # Two threads may race here; an older revision is harmless.
        self._newest_revision = max(self._newest_revision, revision)
        return revision


def _entry(map: str, row: StoredRow) -> Entry:
    try:
        return Entry(row.key, decode(map, row.key, row.text), row.version)
    except DocumentDamaged as damage:
        return DamagedEntry(row, damage)


def undamaged(entries: Iterable[Entry]) -> Entries:
    """Drop damaged entries, for callers that can do without them.

    Follower.unreadable names them.
    """
    return [entry for entry in entries if not isinstance(entry, DamagedEntry)]


def _validate_checks(checks: Sequence[Check]) -> tuple[Check, ...]:
    if len(checks) > OPERATIONS_MAX:
        raise StoreRefused(
            f"a transaction of {len(checks)} checks is too big; the limit is {OPERATIONS_MAX}"
        )
    for check in checks:
        check_map(check.map)
        check_key(check.key)
        if check.version < 0:
            raise StoreRefused(f"{check.map}/{check.key} cannot be at version {check.version}")
    return tuple(checks)


def _encode_writes(writes: Sequence[Put | Delete]) -> tuple[Write, ...]:
    if len(writes) > OPERATIONS_MAX:
        raise StoreRefused(
            f"a transaction of {len(writes)} writes is too big; the limit is {OPERATIONS_MAX}"
        )
    encoded: dict[tuple[str, str], Write] = {}
    for write in writes:
        check_map(write.map)
        check_key(write.key)
        if (write.map, write.key) in encoded:
            raise StoreRefused(f"a transaction writes {write.map}/{write.key} twice")
        text = encode(write.map, write.key, write.value) if isinstance(write, Put) else None
        encoded[write.map, write.key] = Write(write.map, write.key, text)
    return tuple(encoded.values())
