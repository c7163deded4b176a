"""The seam between the front (base.py) and the backends: what a backend gets and what it must
answer.

A backend gets only what the front has checked and encoded: it never sees a document, only its text.
It must not retry, sleep or log.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class Check:
    """A condition of a transaction: the entry is at this version; 0 = it is absent."""

    map: str
    key: str
    version: int


@dataclass(frozen=True, slots=True)
class Write:
    """A put of this text, or, without a text, a delete."""

    map: str
    key: str
    text: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TransactionName:
    """The name of one transaction. Its revision, if it ever gets one, is above `since`."""

    id: bytes
    since: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Transaction:
    """All of it or nothing. The writes name each entry at most once."""

    token: TransactionName
    checks: tuple[Check, ...]
    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class StoredRow:
    """An entry as it is stored."""

    key: str
    text: str
    version: int


@dataclass(frozen=True, slots=True)
class Get:
    map: str
    key: str


@dataclass(frozen=True, slots=True)
class Listing:
    """A question: the entries whose key begins so, ordered by code points."""

    map: str
    prefix: str = ""


Question: TypeAlias = Get | Listing


class ChangeKind(StrEnum):
    """What happened to an entry; stored, so never renamed."""

    PUT = "put"  # written, new or again
    DELETE = "delete"  # was there and is not any more


class Change(NamedTuple):  # half the cost of a dataclass: every server creates one for each write
    """One change of one entry.

    The value is not kept: who wants it reads the entry, which may be newer by then.
    """

    map: str
    key: str
    version: int
    kind: ChangeKind


@dataclass(frozen=True, slots=True)
class Changes:
    """Everything that happened to some maps after `since`, ordered by revision, map and key, up to
    `revision`: the next `since`.
    """

    events: tuple[Change, ...]
    revision: int


@dataclass(frozen=True, slots=True)
class Compacted:
    """What happened after `since` is no longer known. List the maps, then go on from `revision`."""

    revision: int


@dataclass(frozen=True, slots=True)
class MapSize:
    """How much a map holds: bytes of keys and of values."""

    entries: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Committed:
    """The transaction was written, as this revision."""

    revision: int


@dataclass(frozen=True, slots=True)
class NotCommitted:
    """The transaction was not written, and never will be."""


@dataclass(frozen=True, slots=True)
class OutcomeForgotten:
    """So much was written since that the token may have been pruned."""


class Backend(Protocol):
    """One kind of store. All methods may be called by several threads at once."""

    def read(self, map: str, key: str) -> StoredRow | None:
        """The entry as of now."""

    def scan(self, map: str, prefix: str) -> list[StoredRow]:
        """The entries whose key begins so, as of one moment, ordered by code points."""

    def ask(self, questions: Sequence[Question]) -> list[list[StoredRow]]:
        """The rows of each question, all as of one moment; however many there are, no more round
        trips than it needs.
        """

    def revision(self) -> int:
        """The revision of the newest transaction."""

    def apply(self, transaction: Transaction) -> int:
        """Judge and write. Conflict, StoreUnavailable = not written; AnswerLost = who knows.
        Without writes: the revision of that moment.

        A token that was made void is turned away with StoreUnavailable.
        """

    def resolve_outcome(
        self, token: TransactionName
    ) -> Committed | NotCommitted | OutcomeForgotten:
        """Was it written? If not, make the token void in the same step. May be repeated."""

    def feed(self, maps: Collection[str], since: int) -> Changes | Compacted:
        """The change log of these maps.

        A `since` that is ahead of the store is Compacted: it belongs to another store's life.
        """

    def size_by_map(self) -> dict[str, MapSize]:
        """The maps that have entries."""

    def compact(self) -> None:
        """Do now what the store otherwise does by and by: shorten the log and the tokens, give
        space back.
        """

    def close(self) -> None:
        """Let go of everything. May be repeated."""


DEFAULT_COMPACTION_THRESHOLD = 10_000


@dataclass(frozen=True, slots=True)
class Retention:
    """How long the change log and the tokens may get: at most `threshold` rows; a compaction leaves
    nine tenths of that.
    """

    threshold: int = DEFAULT_COMPACTION_THRESHOLD

    @property
    def kept(self) -> int:
        """Rows that a compaction leaves, so that not every transaction has to compact."""
        return self.threshold * 9 // 10

    def due(self, change_rows: int, token_rows: int) -> bool:
        """Is it time to compact?"""
        return max(change_rows, token_rows) > self.threshold
