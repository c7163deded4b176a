"""The backend of the embedded store: one SQLite file. Opened by open.py only.

A transaction that writes has the store to itself (file.py), so checks, revision and writes are
atomic, and revisions follow the order of commits. Transactions of several threads share a commit
(combine.py). The SQL is in sql/sqlite.sql.
"""

import json
import sqlite3
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TypeVar

from tidegate.store import failpoints
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
)
from tidegate.store.combine import Combiner, Outcome
from tidegate.store.sqlite.file import SQL, StoreFile
from tidegate.store.sqlite.write_batch import (
    EntryKey,
    WriteBatch,
    decide_batch,
    entries_to_read,
    require_checks,
)

BUSY_TIMEOUT_S = 30.0
KINDS = {kind.value: kind for kind in ChangeKind}
T = TypeVar("T")


class SqliteBackend:
    """One store file. `create`: create it if it is missing."""

    def __init__(
        self,
        path: Path,
        *,
        retention: Retention,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        create: bool = True,
    ) -> None:
        self._retention = retention
        self._file = StoreFile(path, busy_timeout_s=busy_timeout_s, create=create)
        self._writers = Combiner(self._commit_batch)

    def read(self, map: str, key: str) -> StoredRow | None:
        return next(iter(self._rows(lambda db: _get(db, map, key))), None)

    def scan(self, map: str, prefix: str) -> list[StoredRow]:
        return self._rows(lambda db: _scan(db, map, prefix))

    def query(self, queries: Sequence[Query]) -> list[list[StoredRow]]:
        def answer(db: sqlite3.Connection) -> list[list[StoredRow]]:
            found = _get_all(db, [each for each in queries if isinstance(each, Get)])
            return [
                (
                    found.get((each.map, each.key), [])
                    if isinstance(each, Get)
                    else _scan(db, each.map, each.prefix)
                )
                for each in queries
            ]

        return self._rows(answer)

    def revision(self) -> int:
        with self._file.read_transaction() as db:
            return self._note_revision(_state(db)[0])

    def apply(self, transaction: Transaction) -> int:
        if not transaction.writes:
            with self._file.read_transaction() as db:
                require_checks(transaction.checks, _versions(db, entries_to_read([transaction])))
                return _state(db)[0]
        return self._writers.apply(transaction, self._file.writer_mutex())

    def resolve_outcome(
        self, token: TransactionName
    ) -> Committed | NotCommitted | OutcomeForgotten:
        with self._file.write_transaction() as db:
            found = db.execute(
                SQL["find_outcome"], {"token": token.id, "since": token.since}
            ).fetchone()
            if found:
                return Committed(found[0])
            if db.execute(SQL["find_void"], {"token": token.id}).fetchone():
                return NotCommitted()
            revision, floor, _ = _state(db)
            if floor > token.since:
                return OutcomeForgotten()
            db.execute(SQL["make_void"], {"token": token.id, "revision": revision})
            return NotCommitted()

    def feed(self, maps: Collection[str], since: int) -> Changes | Compacted:
        with self._file.read_transaction() as db:
            revision, floor, _ = _state(db)
            self._note_revision(revision)
            if not floor <= since <= revision:
                return Compacted(revision)
            found = (
                db.execute(SQL["feed"], {"maps": json.dumps(list(maps)), "since": since}).fetchall()
                if since < revision
                else ()
            )
        return Changes(
            tuple([Change(map, key, version, KINDS[kind]) for map, key, version, kind in found]),
            revision,
        )

    def size_by_map(self) -> dict[str, MapSize]:
        with self._file.read_transaction() as db:
            return {
                map: MapSize(entries, size) for map, entries, size in db.execute(SQL["size_by_map"])
            }

    def compact(self) -> None:
        failpoints.before_compaction()
        with self._file.write_transaction() as db:
            self._prune(db)
            failpoints.inside_compaction()
        self._file.return_free_pages()
        failpoints.after_compaction()

    def close(self) -> None:
        self._file.close()

    def _commit_batch(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        """Commit transactions together; one with a conflict writes nothing.

        The number of statements does not depend on the size of the batch: Python may switch threads
        around each of them, while this one holds the store.
        """
        with self._file.write_transaction_locked() as db:
            batch = decide_batch(
                transactions,
                _state(db)[0],
                _versions(db, entries_to_read(transactions)),
                _voided(db, transactions),
            )
            if batch.committed:
                _write(db, batch)
                revision, floor, change_rows = _state(db)
                if self._retention.due(change_rows, revision - floor):
                    self._prune(db)
                failpoints.inside_transaction()
        self._note_revision(batch.revision)
        return batch.outcomes

    def _note_revision(self, revision: int) -> int:
        # Threads may race here; an older revision is harmless.
        self._file.newest_revision = max(self._file.newest_revision, revision)
        return revision

    def _rows(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run queries in one read transaction.

        Bytes that are not UTF-8, which only damage leaves, become text that fails its checksum.
        """
        with self._file.read_transaction() as db:
            try:
                return query(db)
            except sqlite3.OperationalError as error:
                if "decode to UTF-8" not in str(error):
                    raise
            db.text_factory = _any_text
            try:
                return query(db)
            finally:
                db.text_factory = str

    def _prune(self, db: sqlite3.Connection) -> None:
        revision, floor, _ = _state(db)
        kept = self._retention.kept
        beyond = db.execute(SQL["newest_beyond"], {"kept": kept}).fetchone()
        new = {"floor": max(floor, beyond[0] if beyond else 0, revision - kept)}
        for query in ("prune_changes", "prune_outcomes", "prune_voids", "set_floor"):
            db.execute(SQL[query], new)


def _any_text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")


def _state(db: sqlite3.Connection) -> tuple[int, int, int]:
    revision, floor, change_rows = db.execute(SQL["state"]).fetchone()
    return revision, floor, change_rows


def _get(db: sqlite3.Connection, map: str, key: str) -> list[StoredRow]:
    return [StoredRow(*row) for row in db.execute(SQL["read"], {"map": map, "key": key})]


def _get_all(db: sqlite3.Connection, gets: Sequence[Get]) -> dict[tuple[str, str], list[StoredRow]]:
    """Read many entries in one statement, because a statement costs more than a row."""
    if not gets:
        return {}
    pairs = json.dumps([(each.map, each.key) for each in gets])
    return {
        (map, key): [StoredRow(key, text, version)]
        for map, key, text, version in db.execute(SQL["read_many"], {"pairs": pairs})
    }


def _scan(db: sqlite3.Connection, map: str, prefix: str) -> list[StoredRow]:
    above = _prefix_end(prefix)
    query = "scan_prefix" if prefix else "scan_map"
    if prefix and above is None:
        query = "scan_from"
    return [
        StoredRow(*row)
        for row in db.execute(SQL[query], {"map": map, "prefix": prefix, "behind": above})
    ]


def _versions(db: sqlite3.Connection, keys: Collection[EntryKey]) -> dict[EntryKey, int]:
    if not keys:
        return {}
    return {
        (map, key): version
        for map, key, version in db.execute(SQL["versions"], {"pairs": json.dumps(list(keys))})
    }


def _voided(db: sqlite3.Connection, transactions: Sequence[Transaction]) -> set[bytes]:
    tokens = json.dumps([transaction.token.id.hex().upper() for transaction in transactions])
    return {bytes.fromhex(token) for (token,) in db.execute(SQL["find_voids"], {"tokens": tokens})}


def _write(db: sqlite3.Connection, batch: WriteBatch) -> None:
    if batch.deleted:
        db.execute(SQL["delete"], {"pairs": json.dumps(batch.deleted)})
    if batch.put:
        db.execute(SQL["put"], {"entries": json.dumps(batch.put)})
    if batch.changes:
        db.execute(SQL["log_changes"], {"changes": json.dumps(batch.changes)})
    db.executemany(SQL["log_outcome"], batch.committed)
    db.execute(SQL["advance"], {"revision": batch.revision, "rows": len(batch.changes)})


def _prefix_end(prefix: str) -> str | None:
    """Return the smallest text above every text with this prefix.

    None if the prefix consists of the last code point only.
    """
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    return stem[:-1] + chr(0xE000 if following == 0xD800 else following)  # skip the surrogates
