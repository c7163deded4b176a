"""A copy of some maps in memory, kept up to date from the change log.

Reads cost nothing, and a thousand idle jobs cost one query per refresh. Called by servers and
workers, each from one thread; maps that other threads may read are replaced and never changed in
place. The copy may be stale: decisions based on it are written with the versions that were read, so
a stale copy causes a Conflict and never a wrong write.
"""

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from tidegate.model.document import from_document
from tidegate.store.backend import Change, StoredRow
from tidegate.store.base import Changes, Get, Listing, Query, Store
from tidegate.store.encoding import decode, verify

LOG = logging.getLogger("tidegate.store")
T = TypeVar("T")
# Up to this number of changed entries of a map are read by key, and more of them if they are at
# most this fraction of the map; else the whole map is listed.
SINGLE_READS_MAX = 16
SINGLE_READS_SHARE = 4


class CachedEntry(Generic[T]):
    """A record, its version, and when this process first saw that version (monotonic clock).

    The text is decoded on first use.
    """

    __slots__ = ("_map", "_peeked", "_text", "_value", "key", "kind", "since_s", "version")

    def __init__(self, kind: type[T], map: str, row: StoredRow, since_s: float) -> None:
        self.kind = kind
        self.key = row.key
        self.version = row.version
        self.since_s = since_s
        self._map = map
        self._text = row.text
        self._value: T | None = None
        self._peeked: dict[str, Any] | None = None

    @property
    def value(self) -> T:
        value = self._value
        if value is None:
            # Read the text before checking the value again: another thread may decode it at the
            # same moment and drop the text.
            text = self._text
            value = self._value
            if value is None:
                what = f"{self._map}/{self.key}"
                value = from_document(self.kind, decode(self._map, self.key, text), what)
                self._value = value
                self._text = ""
        return value

    def peek(self, field: str) -> Any:
        """Return one scalar field without decoding the whole record."""
        text = self._text
        if self._value is not None:
            return getattr(self._value, field)
        if self._peeked is None:
            self._peeked = {
                name: each
                for name, each in decode(self._map, self.key, text).items()
                if not isinstance(each, list | dict)
            }
        return self._peeked.get(field)


class Follower:
    """Follows some maps, each with the type of its records.

    A document that cannot be read is left out and logged once. Records of the maps in `lazy` are
    decoded on first use, because they are many and rarely needed.
    """

    def __init__(
        self,
        store: Store,
        kinds: Mapping[str, type],
        monotonic_s: Callable[[], float],
        lazy: Collection[str] = (),
    ) -> None:
        self.store = store
        self.kinds = kinds
        self.monotonic_s = monotonic_s
        self.lazy = lazy
        self._since: int | None = None
        self._maps: dict[str, dict[str, CachedEntry[Any]]] = {map: {} for map in kinds}
        self._lock = threading.Lock()
        self.unreadable: dict[tuple[str, str], str] = {}

    def refresh(self) -> set[tuple[str, str]]:
        """Read the changes since the last refresh; return (map, key) of each changed entry.

        After StoreUnavailable the copy is unchanged.
        """
        with self._lock:
            if self._since is None:
                return self._load(self.store.revision())
            changes = self.store.changes(self.kinds, self._since)
            if not isinstance(changes, Changes):
                return self._load(changes.revision)
            keys: dict[str, set[str]] = {}
            for event in changes.events:
                if not self._has(event):
                    keys.setdefault(event.map, set()).add(event.key)
            if keys:
                self._read(keys)
            self._since = changes.revision
            return {(map, key) for map, changed in keys.items() for key in changed}

    def get(self, map: str, key: str) -> CachedEntry[Any] | None:
        return self._maps[map].get(key)

    def all(self, map: str) -> Mapping[str, CachedEntry[Any]]:
        """Return a map as of the last refresh; it does not change while it is read."""
        return MappingProxyType(self._maps[map])

    def _has(self, event: Change) -> bool:
        """Whether the change was read already: entries are read after the log and may be newer."""
        known = self._maps[event.map].get(event.key)
        return known is not None and known.version >= event.version

    def _read(self, keys: Mapping[str, set[str]]) -> None:
        """Read these entries in one snapshot from the backend.

        `Store.query` would decode a whole map even if only a part of it has changed.
        """
        queries: list[Query] = []
        for map, changed in keys.items():
            single = len(changed) <= max(
                SINGLE_READS_MAX, len(self._maps[map]) // SINGLE_READS_SHARE
            )
            queries += [Get(map, key) for key in changed] if single else [Listing(map)]
        found: dict[str, dict[str, StoredRow]] = {map: {} for map in keys}
        for query, rows in zip(queries, self.store.backend.query(queries), strict=True):
            found[query.map].update((row.key, row) for row in rows)
        for map, changed in keys.items():
            fresh = dict(self._maps[map])
            for key in changed:
                self._take(fresh, map, key, found[map].get(key))
            self._maps[map] = fresh

    def _load(self, revision: int) -> set[tuple[str, str]]:
        """Read all maps. `revision` was read before, so newer changes are read once more."""
        changed: set[tuple[str, str]] = set()
        answers = self.store.backend.query([Listing(map) for map in self.kinds])
        for map, listed in zip(self.kinds, answers, strict=True):
            before = self._maps[map]
            fresh = dict(before)
            rows = {row.key: row for row in listed}
            for key in before.keys() | rows.keys():
                self._take(fresh, map, key, rows.get(key))
            self._maps[map] = fresh
            changed |= {
                (map, key)
                for key in before.keys() | fresh.keys()
                if before.get(key) is not fresh.get(key)
            }
        self._since = revision
        return changed

    def _take(
        self, fresh: dict[str, CachedEntry[Any]], map: str, key: str, row: StoredRow | None
    ) -> None:
        if row is None:
            fresh.pop(key, None)
            self.unreadable.pop((map, key), None)
            return
        known = fresh.get(key)
        if known is not None and known.version == row.version:
            return
        try:
            seen: CachedEntry[Any] = CachedEntry(self.kinds[map], map, row, self.monotonic_s())
            if map in self.lazy:
                verify(map, key, row.text)
            else:
                _ = seen.value
            fresh[key] = seen
            self.unreadable.pop((map, key), None)
        except Exception as error:  # one bad document must not hide the others
            fresh.pop(key, None)
            if self.unreadable.get((map, key)) != str(error):
                self.unreadable[map, key] = str(error)
                LOG.error("document_unreadable", extra={"map": map, "key": key, "why": str(error)})
