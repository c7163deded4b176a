"""The front of every store: checks what callers give, encodes it, and resolves lost answers.
Backends do the rest (backend.py).

Callers get a `Store` from `open_store`. Nothing here may know which backend it stands on.
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
    Question,
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
    "Question",
    "Store",
    "sound",
]

SETTLE_PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8)  # between the tries to read an outcome back


@dataclass(frozen=True, slots=True)
class Entry:
    """A document of a map. `version` is the revision of its last change."""

    key: str
    value: dict[str, Any]
    version: int


class DamagedEntry(Entry):
    """A document that is not what was written: its key and version may be used, and whoever asks
    for its value is told. So one that is damaged keeps nobody from the others of a list, or from
    taking it away.
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
    """Write a document, new or over the old one."""

    map: str
    key: str
    value: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Delete:
    """Take an entry away. Where there is none, nothing happens."""

    map: str
    key: str


class OutcomeUnknown(TransientError):
    """A transaction may or may not have been written, and the store could not be asked.

    `Store.resolve_outcome(token)` asks again.
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
    """Named maps of versioned documents. Threads may share one."""

    def __init__(self, backend: Backend, *, pause: Callable[[float], None] = time.sleep) -> None:
        self.backend = backend
        self._pause = pause
        self._seen = backend.revision()  # a revision that surely came before the next transaction

    def get(self, map: str, key: str) -> Entry | None:
        """The entry, or nothing.

        Reading the value of one that is damaged is DocumentDamaged, here and in all that is read
        below.
        """
        check_map(map)
        check_key(key)
        row = self.backend.read(map, key)
        return None if row is None else _entry(map, row)

    def list(self, map: str, prefix: str = "") -> Entries:
        """The entries whose key begins with `prefix`, as of one moment, ordered by the code points
        of their keys.
        """
        check_map(map)
        check_prefix(prefix)
        return [_entry(map, row) for row in self.backend.scan(map, prefix)]

    def ask(self, questions: Sequence[Question]) -> Answers:
        """Several questions at once, all answered as of one moment: for a `Get` its entry, if there
        is one; for a `Listing` what `list` gives.
        """
        for question in questions:
            check_map(question.map)
            if isinstance(question, Get):
                check_key(question.key)
            else:
                check_prefix(question.prefix)
        answers = self.backend.ask(questions)
        return [
            [_entry(question.map, row) for row in rows]
            for question, rows in zip(questions, answers, strict=True)
        ]

    def transact(self, checks: Sequence[Check] = (), writes: Sequence[Put | Delete] = ()) -> int:
        """If all checks hold, make all writes; the revision.

        Conflict, StoreUnavailable, StoreRefused: nothing was written. OutcomeUnknown: could not be
        found out. Without writes it is a question: did all checks hold at one moment?
        """
        transaction = Transaction(
            token=self._token(), checks=_checked(checks), writes=_encoded(writes)
        )
        if not writes:
            return self._saw(self.backend.apply(transaction))
        failpoint("store.transact.before")
        revision = self._apply(transaction)
        failpoint("store.transact.after")
        return self._saw(revision)

    def resolve_outcome(self, token: TransactionName) -> Committed | NotCommitted:
        """What became of a transaction whose outcome was unknown; after `Void` it is sure that it
        will never be written.
        """
        for pause_s in (*SETTLE_PAUSES_S, None):
            try:
                outcome = self.backend.resolve_outcome(token)
            except StoreUnavailable as error:
                if pause_s is None:
                    raise OutcomeUnknown(token, str(error)) from error
                self._pause(pause_s)
                continue
            if isinstance(outcome, OutcomeForgotten):
                raise OutcomeUnknown(token, "so much was written since that its trace is gone")
            return outcome
        raise AssertionError("unreachable")

    def revision(self) -> int:
        """The revision of the newest transaction; 0 for a new store."""
        return self._saw(self.backend.revision())

    def changes(self, maps: str | Collection[str], since: int) -> Changes | Compacted:
        """What happened to a map, or to several, after revision `since`.

        To follow them: `revision()`, `list`, then this again and again.
        """
        names = (maps,) if isinstance(maps, str) else maps
        for name in names:
            check_map(name)
        changes = self.backend.feed(names, since)
        self._saw(changes.revision)
        return changes

    def size_by_map(self) -> dict[str, MapSize]:
        """Entries and bytes of every map that has any."""
        return self.backend.size_by_map()

    def compact(self) -> None:
        """Shorten the change log and give space back now.

        Never needed for correctness: the store also does it by itself.
        """
        self.backend.compact()

    def close(self) -> None:
        """Let go of files and connections.

        May be repeated; any other call afterwards is StoreClosed.
        """
        self.backend.close()

    def _apply(self, transaction: Transaction) -> int:
        try:
            return self.backend.apply(transaction)
        except AnswerLost as error:
            match self.resolve_outcome(transaction.token):
                case Committed(revision):
                    return revision
                case NotCommitted():
                    raise StoreUnavailable(f"the transaction was not written: {error}") from error

    def _token(self) -> TransactionName:
        return TransactionName(id=os.urandom(16), since=self._seen)

    def _saw(self, revision: int) -> int:
        # Two threads may race here; the loser leaves an older revision, which is as true and only
        # less sharp.
        self._seen = max(self._seen, revision)
        return revision


def _entry(map: str, row: StoredRow) -> Entry:
    try:
        return Entry(row.key, decode(map, row.key, row.text), row.version)
    except DocumentDamaged as damage:
        return DamagedEntry(row, damage)


def sound(entries: Iterable[Entry]) -> Entries:
    """Those that are not damaged, for callers to whom one that is missing makes no difference.

    Follower.unreadable names the others.
    """
    return [entry for entry in entries if not isinstance(entry, DamagedEntry)]


def _checked(checks: Sequence[Check]) -> tuple[Check, ...]:
    if len(checks) > OPERATIONS_MAX:
        raise StoreRefused(
            f"a transaction of {len(checks)} checks is too big; at most {OPERATIONS_MAX} are taken"
        )
    for check in checks:
        check_map(check.map)
        check_key(check.key)
        if check.version < 0:
            raise StoreRefused(f"{check.map}/{check.key} cannot be at version {check.version}")
    return tuple(checks)


def _encoded(writes: Sequence[Put | Delete]) -> tuple[Write, ...]:
    if len(writes) > OPERATIONS_MAX:
        raise StoreRefused(
            f"a transaction of {len(writes)} writes is too big; at most {OPERATIONS_MAX} are taken"
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
