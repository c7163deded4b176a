"""The interface between `Store` (base.py) and its backends.

A backend receives only validated and encoded input: it never sees a document, only its text. It
must not retry, sleep or log.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class Check:
    """A condition of a transaction: the entry is at this version; 0 if it must be absent."""

    map: str
    key: str
    version: int


@dataclass(frozen=True, slots=True)
class Write:
    """Put this text, or delete the entry if there is none."""

    map: str
    key: str
    text: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TransactionName:
    """The token of one transaction. Its revision, if it ever gets one, is above `since`."""

    id: bytes
    since: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Transaction:
    """An atomic set of writes under conditions; each entry is written at most once."""

    token: TransactionName
    checks: tuple[Check, ...]
    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class StoredRow:
    """One stored entry with its undecoded text."""

    key: str
    text: str
    version: int


@dataclass(frozen=True, slots=True)
class Get:
    map: str
    key: str


@dataclass(frozen=True, slots=True)
class Listing:
    """A query for the entries whose key begins so, ordered by code points."""

    map: str
    prefix: str = ""


Query: TypeAlias = Get | Listing


class ChangeKind(StrEnum):
    """What happened to an entry. The values are stored, so they never change."""

    PUT = "put"  # created or replaced
    DELETE = "delete"  # existed and was removed


class Change(NamedTuple):  # half the cost of a dataclass: every server creates one for each write
    """One change of one entry, without its value.

    A reader that needs the value reads the entry, which may be newer by then.
    """

    map: str
    key: str
    version: int
    kind: ChangeKind


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of some maps after `since`, up to `revision`, which is the next `since`.

    They are ordered by revision, map and key.
    """

    events: tuple[Change, ...]
    revision: int


@dataclass(frozen=True, slots=True)
class Compacted:
    """The changes after `since` were pruned: list the maps, then continue from `revision`."""

    revision: int


@dataclass(frozen=True, slots=True)
class MapSize:
    """Number of entries of a map, and bytes of their keys and values."""

    entries: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Committed:
    """The transaction was written with this revision."""

    revision: int


@dataclass(frozen=True, slots=True)
class NotCommitted:
    """The transaction was not written, and never will be."""


@dataclass(frozen=True, slots=True)
class OutcomeForgotten:
    """The token may have been pruned, because so much was written since."""


class Backend(Protocol):
    """One kind of store. All methods are thread-safe."""

    def read(self, map: str, key: str) -> StoredRow | None:
        """Return the current entry, or None."""

    def scan(self, map: str, prefix: str) -> list[StoredRow]:
        """Return a snapshot of the entries whose key begins so, ordered by code points."""

    def query(self, queries: Sequence[Query]) -> list[list[StoredRow]]:
        """Return the rows of each query, all from one snapshot.

        The number of round trips must not grow with the number of queries.
        """

    def revision(self) -> int:
        """Return the revision of the newest transaction."""

    def apply(self, transaction: Transaction) -> int:
        """Check and write. Conflict, StoreUnavailable: not written; AnswerLost: not known.

        Without writes it returns the revision at which the checks hold. A voided token is rejected
        with StoreUnavailable.
        """

    def resolve_outcome(
        self, token: TransactionName
    ) -> Committed | NotCommitted | OutcomeForgotten:
        """Return whether it was written; if not, void the token in the same step. Repeatable."""

    def feed(self, maps: Collection[str], since: int) -> Changes | Compacted:
        """Read the change log of these maps.

        A `since` above the newest revision is Compacted: the store was replaced or restored.
        """

    def size_by_map(self) -> dict[str, MapSize]:
        """Return the size of each map that has entries."""

    def compact(self) -> None:
        """Prune the change log and the tokens now, and return free space."""

    def close(self) -> None:
        """Release all resources; may be repeated."""


DEFAULT_COMPACTION_THRESHOLD = 10_000


@dataclass(frozen=True, slots=True)
class Retention:
    """Limit of the change log and of the tokens, in rows; a compaction keeps nine tenths of it."""

    threshold: int = DEFAULT_COMPACTION_THRESHOLD

    @property
    def kept(self) -> int:
        """Rows that a compaction leaves, so that not every transaction has to compact."""
        return self.threshold * 9 // 10

    def due(self, change_rows: int, token_rows: int) -> bool:
        """Whether a compaction is due."""
        return max(change_rows, token_rows) > self.threshold
