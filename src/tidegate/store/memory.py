"""An in-memory store for unit tests and simulation. Opened by open.py only.

It keeps the same contract as the durable backends, including the bounded change log.
"""

import threading
from collections.abc import Collection, Sequence

from tidegate.store.backend import (
    Change,
    ChangeKind,
    Changes,
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
from tidegate.store.errors import Conflict, StoreClosed, StoreUnavailable


class MemoryBackend:
    """Plain dictionaries under one lock."""

    def __init__(self, *, retention: Retention) -> None:
        self._retention = retention
        self._lock = threading.Lock()
        self._entries: dict[str, dict[str, StoredRow]] = {}
        self._log: list[Change] = []
        self._outcomes: dict[bytes, int] = {}
        self._voids: dict[bytes, int] = {}
        self._revision = 0
        self._floor = 0  # the log is complete after this revision
        self._closed = False

    def read(self, map: str, key: str) -> StoredRow | None:
        with self._lock:
            self._check_open()
            return self._entries.get(map, {}).get(key)

    def scan(self, map: str, prefix: str) -> list[StoredRow]:
        with self._lock:
            self._check_open()
            return self._scan(map, prefix)

    def query(self, queries: Sequence[Query]) -> list[list[StoredRow]]:
        with self._lock:
            self._check_open()
            return [
                self._scan(each.map, each.prefix) if not isinstance(each, Get) else self._get(each)
                for each in queries
            ]

    def revision(self) -> int:
        with self._lock:
            self._check_open()
            return self._revision

    def apply(self, transaction: Transaction) -> int:
        with self._lock:
            self._check_open()
            self._require_checks(transaction)
            if not transaction.writes:
                return self._revision
            self._revision += 1
            for write in transaction.writes:
                self._write(write)
            self._outcomes[transaction.token.id] = self._revision
            if self._retention.due(len(self._log), self._revision - self._floor):
                self._prune()
            return self._revision

    def resolve_outcome(
        self, token: TransactionName
    ) -> Committed | NotCommitted | OutcomeForgotten:
        with self._lock:
            self._check_open()
            if token.id in self._outcomes:
                return Committed(self._outcomes[token.id])
            if token.id in self._voids:
                return NotCommitted()
            if self._floor > token.since:
                return OutcomeForgotten()
            self._voids[token.id] = self._revision
            return NotCommitted()

    def feed(self, maps: Collection[str], since: int) -> Changes | Compacted:
        with self._lock:
            self._check_open()
            if not self._floor <= since <= self._revision:
                return Compacted(self._revision)
            events = [
                change for change in self._log if change.map in maps and change.version > since
            ]
            revision = self._revision
        return Changes(
            tuple(sorted(events, key=lambda change: (change.version, change.map, change.key))),
            revision,
        )

    def size_by_map(self) -> dict[str, MapSize]:
        with self._lock:
            self._check_open()
            return {
                map: MapSize(
                    len(rows),
                    sum(len(row.key.encode()) + len(row.text.encode()) for row in rows.values()),
                )
                for map, rows in sorted(self._entries.items())
                if rows
            }

    def compact(self) -> None:
        with self._lock:
            self._check_open()
            self._prune()

    def close(self) -> None:
        with self._lock:
            self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed()

    def _get(self, query: Get) -> list[StoredRow]:
        row = self._entries.get(query.map, {}).get(query.key)
        return [] if row is None else [row]

    def _scan(self, map: str, prefix: str) -> list[StoredRow]:
        return sorted(
            (row for key, row in self._entries.get(map, {}).items() if key.startswith(prefix)),
            key=lambda row: row.key,
        )

    def _require_checks(self, transaction: Transaction) -> None:
        if transaction.token.id in self._voids:
            raise StoreUnavailable(
                "the transaction arrived after its token was voided; nothing was written"
            )
        for check in transaction.checks:
            row = self._entries.get(check.map, {}).get(check.key)
            found = row.version if row else 0
            if found != check.version:
                raise Conflict(check.map, check.key, check.version, found)

    def _write(self, write: Write) -> None:
        rows = self._entries.setdefault(write.map, {})
        if write.text is None:
            if rows.pop(write.key, None) is None:
                return
            kind = ChangeKind.DELETE
        else:
            rows[write.key] = StoredRow(write.key, write.text, self._revision)
            kind = ChangeKind.PUT
        self._log.append(Change(write.map, write.key, self._revision, kind))

    def _prune(self) -> None:
        kept = self._retention.kept
        by_rows = self._log[-kept - 1].version if len(self._log) > kept else 0
        self._floor = max(self._floor, by_rows, self._revision - kept)
        self._log = [change for change in self._log if change.version > self._floor]
        self._outcomes = {
            token: revision for token, revision in self._outcomes.items() if revision > self._floor
        }
        self._voids = {
            token: revision for token, revision in self._voids.items() if revision >= self._floor
        }
