"""The store of several hosts: a schema of a PostgreSQL database. Opened by open.py only.

Every transaction that writes is one call of a function in the server (sql/postgres.sql) and locks the one row of `state` first: the checks, the next
revision and the writes are one moment, revisions are in the order of commits, and no client holds the lock while it thinks.
"""

from contextlib import suppress
from typing import Any

from psycopg.errors import InsufficientPrivilege, QueryCanceled

from tidegate.model.errors import TidegateError
from tidegate.store import places
from tidegate.store.backend import (
    Change,
    ChangeKind,
    Changes,
    Check,
    Committed,
    Compacted,
    Forgotten,
    MapSize,
    Retention,
    Row,
    Token,
    Transaction,
    Void,
)
from tidegate.store.encoding import KEY_BYTES_MAX
from tidegate.store.errors import Conflict, StoreDamaged, StoreUnavailable
from tidegate.store.postgres_address import read_address
from tidegate.store.postgres_connections import SQL, Connections, Limits
from tidegate.store.postgres_schema import prepare

# No key is longer, and no code point is behind this one: what begins with a prefix lies between the prefix and the prefix with this behind it.
_LAST = "\U0010ffff" * (KEY_BYTES_MAX // 4)
_QUERIES = {
    name: SQL[name].encode() for name in ("read", "scan", "revision", "judge", "transact", "settle", "feed", "size_by_map", "compact")
}  # as bytes, since psycopg takes text for a literal only


class PostgresBackend:
    """One schema."""

    def __init__(self, url: str, *, retention: Retention, limits: Limits | None = None) -> None:
        self._retention = retention
        address = read_address(url)
        self._shown = address.shown
        self._connections = Connections(address, limits=limits or Limits())
        try:
            self._store = prepare(self._connections)
        except BaseException:
            self._connections.close()
            raise

    def read(self, map: str, key: str) -> Row | None:
        with self._connections.asking() as db:
            found = db.execute(_QUERIES["read"], {"map": map, "key": key}).fetchone()
        return None if found is None else Row(*found)

    def scan(self, map: str, prefix: str) -> list[Row]:
        with self._connections.asking() as db:
            found = db.execute(_QUERIES["scan"], {"map": map, "prefix": prefix, "last": prefix + _LAST}).fetchall()
        return [Row(*row) for row in found]

    def revision(self) -> int:
        with self._connections.asking() as db:
            found = db.execute(_QUERIES["revision"]).fetchone()
        return int(self._one(found)[0])

    def apply(self, transaction: Transaction) -> int:
        if not transaction.writes:
            return self._question(transaction.checks)
        checks, writes, token = transaction.checks, transaction.writes, transaction.token
        arguments = {
            "store": self._store,
            "token": token.id,
            "since": token.since,
            "check_maps": [check.map for check in checks],
            "check_keys": [check.key for check in checks],
            "check_versions": [check.version for check in checks],
            "write_maps": [write.map for write in writes],
            "write_keys": [write.key for write in writes],
            "write_values": [write.text for write in writes],
            "threshold": self._retention.threshold,
            "kept": self._retention.kept,
        }
        with self._connections.writing() as db:
            places.inside_transaction()
            outcome, number, place = self._one(db.execute(_QUERIES["transact"], arguments).fetchone())
        if outcome == "committed":
            return int(number)
        if outcome == "conflict":
            raise _conflict(checks, place, number)
        raise self._refusal(outcome)

    def settle(self, token: Token) -> Committed | Void | Forgotten:
        with self._connections.asking() as db:
            arguments = {"store": self._store, "token": token.id, "since": token.since}
            outcome, number = self._one(db.execute(_QUERIES["settle"], arguments).fetchone())
        match outcome:
            case "committed":
                return Committed(number)
            case "void":
                return Void()
            case "forgotten":
                return Forgotten()
        raise self._refusal(outcome)

    def feed(self, map: str, since: int) -> Changes | Compacted:
        with self._connections.asking() as db:
            found = db.execute(_QUERIES["feed"], {"map": map, "since": since}).fetchall()
        revision, floor, *_ = self._one(found[0] if found else None)
        if not floor <= since <= revision:
            return Compacted(revision)
        return Changes(tuple(Change(key, version, ChangeKind(kind)) for _, _, key, version, kind in found if key is not None), revision)

    def size_by_map(self) -> dict[str, MapSize]:
        with self._connections.asking() as db:
            return {map: MapSize(entries, int(size)) for map, entries, size in db.execute(_QUERIES["size_by_map"])}

    def compact(self) -> None:
        places.before_compaction()
        with self._connections.asking() as db:
            db.execute(_QUERIES["compact"], {"kept": self._retention.kept})
            places.inside_compaction()
            for statement in SQL.statements("give_space_back"):
                with suppress(InsufficientPrivilege, QueryCanceled):  # then the server's own vacuum does it later
                    db.execute(statement.encode(), prepare=False)
        places.after_compaction()

    def close(self) -> None:
        self._connections.close()

    def _question(self, checks: tuple[Check, ...]) -> int:
        arguments = {"maps": [check.map for check in checks], "keys": [check.key for check in checks], "versions": [check.version for check in checks]}
        with self._connections.asking() as db:
            revision, place, found = self._one(db.execute(_QUERIES["judge"], arguments).fetchone())
        if place is not None:
            raise _conflict(checks, place, found)
        return int(revision)

    def _one(self, row: tuple[Any, ...] | None) -> tuple[Any, ...]:
        """The answer of a query that has a row as long as the store has its state."""
        if row is None:
            raise StoreDamaged(f"the store {self._shown} has lost its state: nothing was written; restore the database from a copy, or use another schema")
        return row

    def _refusal(self, outcome: str) -> TidegateError:
        match outcome:
            case "void":
                return StoreUnavailable("the transaction came after it had been given up; nothing was written")
            case "replaced":
                return StoreDamaged(f"the store {self._shown} was removed or replaced while it was open: nothing was written; start again")
            case "went-back":
                return StoreDamaged(
                    f"the store {self._shown} is older than it was before: a copy was restored, or a standby that lagged behind has taken over. "
                    "Nothing was written; start all processes again"
                )
        raise AssertionError(f"the store's function answered {outcome}")


def _conflict(checks: tuple[Check, ...], place: int, found: int) -> Conflict:
    check = checks[place - 1]
    return Conflict(check.map, check.key, check.version, found)
