"""The store in a schema of a PostgreSQL database, for several hosts. Opened by open.py only.

Every transaction that writes is one call of a server function (sql/postgres.sql), which first locks
the only row of `state`. So checks, revision and writes are atomic, revisions follow the order of
commits, and no client holds the lock between statements. Threads of a process that write at the
same time share such a statement and its commit (combine.py).
"""

import json
import threading
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any

from psycopg.errors import InsufficientPrivilege, QueryCanceled

from tidegate.model.errors import TidegateError
from tidegate.store import failpoints
from tidegate.store.backend import (
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
)
from tidegate.store.combine import Combiner, Outcome
from tidegate.store.encoding import KEY_BYTES_MAX
from tidegate.store.errors import Conflict, StoreDamaged, StoreLost, StoreUnavailable
from tidegate.store.postgres.address import read_address
from tidegate.store.postgres.connection_pool import SQL, ConnectionPool, PoolTimeouts
from tidegate.store.postgres.schema import prepare

# No key is longer and no code point is higher: keys with a prefix lie between the prefix and the
# prefix with this suffix.
_LAST = "\U0010ffff" * (KEY_BYTES_MAX // 4)
_QUERIES = {
    name: SQL[name].encode()
    for name in (
        "read",
        "scan",
        "ask",
        "revision",
        "judge",
        "transact",
        "transact_all",
        "settle",
        "feed",
        "size_by_map",
        "compact",
    )
}  # as bytes, since psycopg takes text for a literal only


VACUUM_EVERY_MIN = 1_000  # revisions


class PostgresBackend:
    def __init__(
        self,
        url: str,
        *,
        retention: Retention,
        limits: PoolTimeouts | None = None,
        create: bool = True,
    ) -> None:
        self._retention = retention
        self._vacuum_every = max(VACUUM_EVERY_MIN, retention.threshold // 2)
        self._vacuuming: threading.Thread | None = None
        address = read_address(url)
        self._shown = address.shown
        self._connections = ConnectionPool(address, limits=limits or PoolTimeouts())
        self._writers = Combiner(self._commit_batch)
        try:
            self._store = prepare(self._connections, create=create)
        except BaseException:
            self._connections.close()
            raise

    def read(self, map: str, key: str) -> StoredRow | None:
        with self._connections.repeatable() as db:
            found = db.execute(_QUERIES["read"], {"map": map, "key": key}).fetchone()
        return None if found is None else StoredRow(*found)

    def scan(self, map: str, prefix: str) -> list[StoredRow]:
        with self._connections.repeatable() as db:
            found = db.execute(
                _QUERIES["scan"], {"map": map, "prefix": prefix, "last": prefix + _LAST}
            ).fetchall()
        return [StoredRow(*row) for row in found]

    def query(self, queries: Sequence[Query]) -> list[list[StoredRow]]:
        ranges = [
            (
                (each.map, each.key, each.key)
                if isinstance(each, Get)
                else (each.map, each.prefix, each.prefix + _LAST)
            )
            for each in queries
        ]
        maps, firsts, lasts = ([each[part] for each in ranges] for part in range(3))
        answers: list[list[StoredRow]] = [[] for _ in queries]
        with self._connections.repeatable() as db:
            for place, key, text, version in db.execute(
                _QUERIES["ask"], {"maps": maps, "firsts": firsts, "lasts": lasts}
            ):
                answers[place - 1].append(StoredRow(key, text, version))
        return answers

    def revision(self) -> int:
        with self._connections.repeatable() as db:
            found = db.execute(_QUERIES["revision"]).fetchone()
        revision, store = self._one(found)
        self._require_same_store(store)
        return int(revision)

    def apply(self, transaction: Transaction) -> int:
        if not transaction.writes:
            return self._check_only(transaction.checks)
        return self._writers.apply(transaction, self._connections.writer_mutex())

    def resolve_outcome(
        self, token: TransactionName
    ) -> Committed | NotCommitted | OutcomeForgotten:
        with self._connections.repeatable() as db:
            arguments = {"store": self._store, "token": token.id, "since": token.since}
            outcome, number = self._one(db.execute(_QUERIES["settle"], arguments).fetchone())
        match outcome:
            case "committed":
                return Committed(number)
            case "void":
                return NotCommitted()
            case "forgotten":
                return OutcomeForgotten()
        raise self._rejection(outcome)

    def feed(self, maps: Collection[str], since: int) -> Changes | Compacted:
        with self._connections.repeatable() as db:
            found = db.execute(_QUERIES["feed"], {"maps": list(maps), "since": since}).fetchall()
        revision, floor, store, *_ = self._one(found[0] if found else None)
        self._require_same_store(store)
        if not floor <= since <= revision:
            return Compacted(revision)
        return Changes(
            tuple(
                Change(map, key, version, ChangeKind(kind))
                for _, _, _, map, key, version, kind in found
                if key is not None
            ),
            revision,
        )

    def size_by_map(self) -> dict[str, MapSize]:
        with self._connections.repeatable() as db:
            return {
                map: MapSize(entries, int(size))
                for map, entries, size in db.execute(_QUERIES["size_by_map"])
            }

    def compact(self) -> None:
        failpoints.before_compaction()
        with self._connections.repeatable() as db:
            db.execute(_QUERIES["compact"], {"kept": self._retention.kept})
        failpoints.inside_compaction()
        self._vacuum()
        failpoints.after_compaction()

    def close(self) -> None:
        self._connections.close()
        if self._vacuuming is not None:
            self._vacuuming.join()  # its statements have a time limit

    def _commit_batch(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        """Commit transactions in one statement; one with a conflict writes nothing.

        In one statement, so that a stopped process does not hold the lock.
        """
        common = {
            "store": self._store,
            "threshold": self._retention.threshold,
            "kept": self._retention.kept,
        }
        with self._connections.transactional() as db:
            failpoints.inside_transaction()
            if len(transactions) == 1:
                found = [
                    self._one(
                        db.execute(
                            _QUERIES["transact"], {**common, **_arguments(transactions[0])}
                        ).fetchone()
                    )
                ]
            else:
                batch = json.dumps(
                    [{**_arguments(each), "token": each.token.id.hex()} for each in transactions],
                    ensure_ascii=False,
                )
                found = db.execute(_QUERIES["transact_all"], {**common, "batch": batch}).fetchall()
        outcomes = [
            self._outcome(transaction, *row)
            for transaction, row in zip(transactions, found, strict=True)
        ]
        self._vacuum_if_due(outcome for outcome in outcomes if isinstance(outcome, int))
        return outcomes

    def _vacuum_if_due(self, revisions: Iterable[int]) -> None:
        """Vacuum before many dead rows accumulate, because autovacuum runs only once a minute.

        Each revision is given to one process, so only one of them vacuums.
        """
        if any(revision % self._vacuum_every == 0 for revision in revisions):
            self._vacuuming = threading.Thread(
                target=self._vacuum_in_background, name="store-vacuum", daemon=True
            )
            self._vacuuming.start()

    def _vacuum_in_background(self) -> None:
        with suppress(TidegateError):  # only an optimization
            self._vacuum()

    def _vacuum(self) -> None:
        with self._connections.repeatable() as db:
            for statement in SQL.statements("give_space_back"):
                # otherwise autovacuum does it later
                with suppress(InsufficientPrivilege, QueryCanceled):
                    db.execute(statement.encode(), prepare=False)

    def _outcome(self, transaction: Transaction, outcome: str, number: int, place: int) -> Outcome:
        if outcome == "committed":
            return int(number)
        return (
            _conflict(transaction.checks, place, number)
            if outcome == "conflict"
            else self._rejection(outcome)
        )

    def _check_only(self, checks: tuple[Check, ...]) -> int:
        arguments = {
            "maps": [check.map for check in checks],
            "keys": [check.key for check in checks],
            "versions": [check.version for check in checks],
        }
        with self._connections.repeatable() as db:
            revision, place, found = self._one(db.execute(_QUERIES["judge"], arguments).fetchone())
        if place is not None:
            raise _conflict(checks, place, found)
        return int(revision)

    def _one(self, row: tuple[Any, ...] | None) -> tuple[Any, ...]:
        """Return the row of a query that has one as long as the store is intact."""
        if row is None:
            raise StoreLost(
                f"the store {self._shown} has lost its state: nothing was written; restore the"
                " database from a copy, or use another schema"
            )
        return row

    def _require_same_store(self, store: object) -> None:
        """Raise StoreLost if the data come from another store than the one that was opened."""
        if store != self._store:
            raise self._rejection("replaced")

    def _rejection(self, outcome: str) -> TidegateError:
        match outcome:
            case "void":
                return StoreUnavailable(
                    "the transaction arrived after its token was voided; nothing was written"
                )
            case "replaced":
                return StoreLost(
                    f"the store {self._shown} was removed or replaced while it was open: nothing"
                    " was written; bring the former one back, or stop all processes and start them"
                    " again"
                )
            case "went-back":
                return StoreDamaged(
                    f"the store {self._shown} is older than it was before: a copy was restored, or"
                    " a standby that lagged behind has taken over. Nothing was written; start all"
                    " processes again"
                )
        raise AssertionError(f"the store's function answered {outcome}")


def _arguments(transaction: Transaction) -> dict[str, Any]:
    checks, writes, token = transaction.checks, transaction.writes, transaction.token
    return {
        "token": token.id,
        "since": token.since,
        "check_maps": [check.map for check in checks],
        "check_keys": [check.key for check in checks],
        "check_versions": [check.version for check in checks],
        "write_maps": [write.map for write in writes],
        "write_keys": [write.key for write in writes],
        "write_values": [write.text for write in writes],
    }


def _conflict(checks: tuple[Check, ...], place: int, found: int) -> Conflict:
    check = checks[place - 1]
    return Conflict(check.map, check.key, check.version, found)
