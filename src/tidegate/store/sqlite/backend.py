"""The embedded store: one SQLite file, several processes of one host. Opened by open.py only.

Every transaction that writes is alone in the store (sqlite_file.py), so the checks, the next
revision and the writes are one moment, and revisions are in the order of commits. Those of several
threads share a commit (combine.py). SQL is in sql/sqlite.sql.
"""

import json
import sqlite3
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TypeVar

from tidegate.store import failpoints as places
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
    Question,
    Retention,
    StoredRow,
    Transaction,
    TransactionName,
)
from tidegate.store.combine import Combiner, Outcome
from tidegate.store.sqlite.file import SQL, StoreFile
from tidegate.store.sqlite.write_batch import Place, WriteBatch, decided, judge, places_of

BUSY_TIMEOUT_S = 30.0
KINDS = {kind.value: kind for kind in ChangeKind}
T = TypeVar("T")


class SqliteBackend:
    """One file. `create`: make it where there is none."""

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
        self._writers = Combiner(self._write_all)

    def read(self, map: str, key: str) -> StoredRow | None:
        return next(iter(self._rows(lambda db: _get(db, map, key))), None)

    def scan(self, map: str, prefix: str) -> list[StoredRow]:
        return self._rows(lambda db: _scan(db, map, prefix))

    def ask(self, questions: Sequence[Question]) -> list[list[StoredRow]]:
        def answer(db: sqlite3.Connection) -> list[list[StoredRow]]:
            found = _get_all(db, [each for each in questions if isinstance(each, Get)])
            return [
                (
                    found.get((each.map, each.key), [])
                    if isinstance(each, Get)
                    else _scan(db, each.map, each.prefix)
                )
                for each in questions
            ]

        return self._rows(answer)

    def revision(self) -> int:
        with self._file.reading() as db:
            return self._saw(_state(db)[0])

    def apply(self, transaction: Transaction) -> int:
        if not transaction.writes:
            with self._file.reading() as db:
                judge(transaction.checks, _versions(db, places_of([transaction])))
                return _state(db)[0]
        return self._writers.apply(transaction, self._file.turn())

    def resolve_outcome(
        self, token: TransactionName
    ) -> Committed | NotCommitted | OutcomeForgotten:
        with self._file.writing() as db:
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
        with self._file.reading() as db:
            revision, floor, _ = _state(db)
            self._saw(revision)
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
        with self._file.reading() as db:
            return {
                map: MapSize(entries, size) for map, entries, size in db.execute(SQL["size_by_map"])
            }

    def compact(self) -> None:
        places.before_compaction()
        with self._file.writing() as db:
            self._prune(db)
            places.inside_compaction()
        self._file.give_space_back()
        places.after_compaction()

    def close(self) -> None:
        self._file.close()

    def _write_all(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        """All of them in one commit; those that meet a conflict write nothing. Few statements,
        however many transactions there are and however much they write: around each statement this
        thread gives way to all others, with the store in its hands.
        """
        with self._file.writing_in_turn() as db:
            batch = decided(
                transactions,
                _state(db)[0],
                _versions(db, places_of(transactions)),
                _given_up(db, transactions),
            )
            if batch.outcomes_written:
                _write(db, batch)
                self._prune_if_due(db)
                places.inside_transaction()
        self._saw(batch.revision)
        return batch.outcomes

    def _saw(self, revision: int) -> int:
        """Remember. Threads may race here; the loser leaves an older revision, which is as true."""
        self._file.revision_seen = max(self._file.revision_seen, revision)
        return revision

    def _rows(self, ask: Callable[[sqlite3.Connection], T]) -> T:
        """Rows as of one moment.

        Bytes that are no text, which only damage leaves there, become text that its checksum does
        not fit.
        """
        with self._file.reading() as db:
            try:
                return ask(db)
            except sqlite3.OperationalError as error:
                if "decode to UTF-8" not in str(error):
                    raise
            db.text_factory = _any_text
            try:
                return ask(db)
            finally:
                db.text_factory = str

    def _prune_if_due(self, db: sqlite3.Connection) -> None:
        revision, floor, change_rows = _state(db)
        if self._retention.due(change_rows, revision - floor):
            self._prune(db)

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


def _get_all(
    db: sqlite3.Connection, asked: Sequence[Get]
) -> dict[tuple[str, str], list[StoredRow]]:
    """One statement, however many there are: each costs more by itself than a row does."""
    if not asked:
        return {}
    pairs = json.dumps([(each.map, each.key) for each in asked])
    return {
        (map, key): [StoredRow(key, text, version)]
        for map, key, text, version in db.execute(SQL["read_many"], {"pairs": pairs})
    }


def _scan(db: sqlite3.Connection, map: str, prefix: str) -> list[StoredRow]:
    behind = _behind(prefix)
    query = "scan_map" if not prefix else "scan_from" if behind is None else "scan_prefix"
    return [
        StoredRow(*row)
        for row in db.execute(SQL[query], {"map": map, "prefix": prefix, "behind": behind})
    ]


def _versions(db: sqlite3.Connection, places: Collection[Place]) -> dict[Place, int]:
    if not places:
        return {}
    return {
        (map, key): version
        for map, key, version in db.execute(SQL["versions"], {"pairs": json.dumps(list(places))})
    }


def _given_up(db: sqlite3.Connection, transactions: Sequence[Transaction]) -> set[bytes]:
    tokens = json.dumps([transaction.token.id.hex().upper() for transaction in transactions])
    return {bytes.fromhex(token) for (token,) in db.execute(SQL["find_voids"], {"tokens": tokens})}


def _write(db: sqlite3.Connection, batch: WriteBatch) -> None:
    if batch.gone:
        db.execute(SQL["delete"], {"pairs": json.dumps(batch.gone)})
    if batch.put:
        db.execute(SQL["put"], {"entries": json.dumps(batch.put)})
    if batch.changes:
        db.execute(SQL["log_changes"], {"changes": json.dumps(batch.changes)})
    db.executemany(SQL["log_outcome"], batch.outcomes_written)
    db.execute(SQL["advance"], {"revision": batch.revision, "rows": len(batch.changes)})


def _behind(prefix: str) -> str | None:
    """The smallest text that is behind every text with this prefix; none if the prefix is made of
    the last code point only.
    """
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    return stem[:-1] + chr(0xE000 if following == 0xD800 else following)  # surrogates are no text
