"""The store of a simulated world: the contract of every store, in memory, quick, and watched.
Views on it fail as the fault rates say.

Documents are read from their text once, when they are written, and shared by all readers: nobody
changes a document in place. `witness` is shown every transaction that was taken, with what was
there before.
"""

import bisect
import itertools
import json
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.store.backend import (
    Backend,
    Change,
    ChangeKind,
    Changes,
    Check,
    Committed,
    Compacted,
    Get,
    MapSize,
    NotCommitted,
    OutcomeForgotten,
    Query,
    Retention,
    StoredRow,
    Transaction,
    TransactionName,
    Write,
)
from tidegate.store.base import Answers, Delete, Entry, Put, Store
from tidegate.store.encoding import OPERATIONS_MAX
from tidegate.store.errors import Conflict, StoreUnavailable

ENCODER = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
)
TOKENS = itertools.count(1)
Witness = Callable[[Mapping[tuple[str, str], "tuple[ReadRow | None, ReadRow | None]"]], None]


@dataclass(frozen=True, slots=True)
class ReadRow(StoredRow):
    """A row with its document."""

    value: dict[str, Any]


def document_of(text: str) -> dict[str, Any]:
    """The document of a text, read once: whoever reads it again gets the same one."""
    known = _documents.get(text)
    if known is None:
        known = _documents[text] = json.loads(text)
    return known


def forget_documents() -> None:
    _documents.clear()


_documents: dict[str, dict[str, Any]] = {}
_version = operator.attrgetter("version")
_place = operator.attrgetter("map", "key")


class WatchedBackend:
    """Maps in memory. One at a time: no locks."""

    def __init__(self, retention: Retention, witness: Witness) -> None:
        self.entries: dict[str, dict[str, ReadRow]] = {}
        self.witness = witness
        self._retention = retention
        self._log: list[Change] = []  # by revision, map and key
        self._outcomes: dict[bytes, int] = {}
        self._voids: dict[bytes, int] = {}
        self._revision = 0
        self._floor = 0

    def read(self, map: str, key: str) -> ReadRow | None:
        """The entry as of now."""
        rows = self.entries.get(map)
        return rows.get(key) if rows else None

    def scan(self, map: str, prefix: str) -> list[StoredRow]:
        """The entries whose key begins so."""
        rows = self.entries.get(map, {})
        return [rows[key] for key in sorted(rows) if key.startswith(prefix)]

    def query(self, queries: Sequence[Query]) -> list[list[StoredRow]]:
        return [
            self.scan(each.map, each.prefix) if not isinstance(each, Get) else self._get(each)
            for each in queries
        ]

    def revision(self) -> int:
        return self._revision

    def apply(self, transaction: Transaction) -> int:
        if transaction.token.id in self._voids:
            raise StoreUnavailable(
                "the transaction arrived after its token was voided; nothing was written"
            )
        for check in transaction.checks:
            row = self.read(check.map, check.key)
            found = row.version if row else 0
            if found != check.version:
                raise Conflict(check.map, check.key, check.version, found)
        if not transaction.writes:
            return self._revision
        self._revision += 1
        seen = {}
        changes = []
        for write in transaction.writes:
            rows = self.entries.setdefault(write.map, {})
            before = rows.get(write.key)
            if write.text is None:
                if before is None:
                    continue
                del rows[write.key]
                after, kind = None, ChangeKind.DELETE
            else:
                after = rows[write.key] = ReadRow(
                    write.key, write.text, self._revision, document_of(write.text)
                )
                kind = ChangeKind.PUT
            seen[write.map, write.key] = (before, after)
            changes.append(Change(write.map, write.key, self._revision, kind))
        self._log += sorted(changes, key=_place) if len(changes) > 1 else changes
        self._outcomes[transaction.token.id] = self._revision
        if self._retention.due(len(self._log), self._revision - self._floor):
            self.compact()
        self.witness(seen)
        return self._revision

    def resolve_outcome(
        self, token: TransactionName
    ) -> Committed | NotCommitted | OutcomeForgotten:
        """Was it written? If not, it never will be."""
        if token.id in self._outcomes:
            return Committed(self._outcomes[token.id])
        if token.id in self._voids:
            return NotCommitted()
        if self._floor > token.since:
            return OutcomeForgotten()
        self._voids[token.id] = self._revision
        return NotCommitted()

    def feed(self, maps: Collection[str], since: int) -> Changes | Compacted:
        """The change log of some maps."""
        if not self._floor <= since <= self._revision:
            return Compacted(self._revision)
        newer = self._log[bisect.bisect_right(self._log, since, key=_version) :]
        return Changes(tuple([change for change in newer if change.map in maps]), self._revision)

    def size_by_map(self) -> dict[str, MapSize]:
        """How many; bytes do not matter here."""
        return {map: MapSize(len(rows), 0) for map, rows in self.entries.items() if rows}

    def compact(self) -> None:
        kept = self._retention.kept
        by_rows = self._log[-kept - 1].version if len(self._log) > kept else 0
        self._floor = max(self._floor, by_rows, self._revision - kept)
        self._log = self._log[bisect.bisect_right(self._log, self._floor, key=_version) :]
        self._outcomes = {
            token: revision for token, revision in self._outcomes.items() if revision > self._floor
        }
        self._voids = {
            token: revision for token, revision in self._voids.items() if revision >= self._floor
        }

    def close(self) -> None:
        pass

    def _get(self, question: Get) -> list[StoredRow]:
        row = self.read(question.map, question.key)
        return [] if row is None else [row]


class QuickStore(Store):
    """A front that hands documents out as they were read once, and trusts its callers: names and
    documents are checked by the contract suite, not here.
    """

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend, pause=lambda _: None)

    def get(self, map: str, key: str) -> Entry | None:
        row = self.backend.read(map, key)
        return Entry(row.key, row.value, row.version) if isinstance(row, ReadRow) else None

    def list(self, map: str, prefix: str = "") -> "list[Entry]":
        """The entries whose key begins with `prefix`."""
        return [
            Entry(row.key, row.value, row.version)
            for row in self.backend.scan(map, prefix)
            if isinstance(row, ReadRow)
        ]

    def query(self, queries: Sequence[Query]) -> Answers:
        return [
            [Entry(row.key, row.value, row.version) for row in rows if isinstance(row, ReadRow)]
            for rows in self.backend.query(queries)
        ]

    def changes(self, maps: str | Collection[str], since: int) -> Changes | Compacted:
        """What happened to some maps after revision `since`."""
        changes = self.backend.feed((maps,) if isinstance(maps, str) else maps, since)
        self._note_revision(changes.revision)
        return changes

    def transact(self, checks: Sequence[Check] = (), writes: Sequence[Put | Delete] = ()) -> int:
        """If all checks hold, make all writes; the revision."""
        encoded = tuple(
            Write(w.map, w.key, ENCODER.encode(w.value) if isinstance(w, Put) else None)
            for w in writes
        )
        assert len(encoded) <= OPERATIONS_MAX >= len(checks), "no store takes so much at once"
        assert len({(w.map, w.key) for w in encoded}) == len(encoded), (
            "no store takes an entry twice"
        )
        token = TransactionName(id=next(TOKENS).to_bytes(8), since=self._newest_revision)
        transaction = Transaction(token=token, checks=tuple(checks), writes=encoded)
        return self._note_revision(
            self._commit(transaction) if writes else self.backend.apply(transaction)
        )
