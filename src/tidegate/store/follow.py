"""A copy of some maps in memory, kept up to date by the change log: reads cost nothing, and a thousand idle jobs cost one question a turn.

Called by servers and workers, each from one thread; what others may read is replaced whole and never changed in place. The copy may be old by one turn:
every decision that is made on it is recorded with the versions that were seen, so that an old copy leads to a Conflict and never to a wrong write.
"""

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from tidegate.model.document import from_document
from tidegate.store.base import Changes, Entry, Store

LOG = logging.getLogger("tidegate.store")
T = TypeVar("T")
SINGLE_READS_MAX = 16  # more changes than that at once, and the whole map is read


class Seen(Generic[T]):
    """A record, the version of its document, and when this process first saw that version, on its monotonic clock. Read on first use."""

    __slots__ = ("_document", "_value", "kind", "since_s", "version", "what")

    def __init__(self, kind: type[T], document: dict[str, Any], what: str, version: int, since_s: float) -> None:
        self.kind, self.what, self.version, self.since_s = kind, what, version, since_s
        self._document: dict[str, Any] = document
        self._value: T | None = None

    @property
    def value(self) -> T:
        """The record."""
        document = self._document  # before the look at the value: another thread may read it at the same moment, and let the document go
        if self._value is None:
            self._value = from_document(self.kind, document, self.what)
            self._document = {}
        return self._value

    def peek(self, field: str) -> Any:
        """One field of a record that need not be read whole for it."""
        document = self._document
        return document.get(field) if self._value is None else getattr(self._value, field)


class Follower:
    """Follows the maps that it was given, each with the kind of its records. A document that cannot be read is left out and named once in the log.

    Records of the maps in `lazy` are many and rarely needed: they are read when someone asks.
    """

    def __init__(self, store: Store, kinds: Mapping[str, type], monotonic_s: Callable[[], float], lazy: Collection[str] = ()) -> None:
        self.store, self.kinds, self.monotonic_s, self.lazy = store, kinds, monotonic_s, lazy
        self._since: dict[str, int] = {}
        self._maps: dict[str, dict[str, Seen[Any]]] = {map: {} for map in kinds}
        self._revision = -1
        self._untold: set[tuple[str, str]] = set()  # what was seen by a turn that could not be finished
        self._turn = threading.Lock()
        self.unreadable: dict[tuple[str, str], str] = {}

    def refresh(self) -> set[tuple[str, str]]:
        """Catch up; the (map, key) of all that has changed since the last time. After StoreUnavailable the copy may be newer in some maps than in others;
        what has changed there is told by the next turn."""
        with self._turn:
            revision = self.store.revision()
            if revision == self._revision:
                return set()
            for map in self.kinds:
                self._untold |= {(map, key) for key in self._refresh(map)}
            self._revision = revision
            told, self._untold = self._untold, set()
            return told

    def get(self, map: str, key: str) -> Seen[Any] | None:
        """One record."""
        return self._maps[map].get(key)

    def all(self, map: str) -> Mapping[str, Seen[Any]]:
        """A map as of the last turn; it does not change under the reader."""
        return MappingProxyType(self._maps[map])

    def _refresh(self, map: str) -> set[str]:
        if map not in self._since:
            return self._load(map, self.store.revision())
        changes = self.store.changes(map, self._since[map])
        if not isinstance(changes, Changes):
            return self._load(map, changes.revision)
        keys = {event.key for event in changes.events}
        if keys:
            fresh = dict(self._maps[map])
            many = {e.key: e for e in self.store.list(map)} if len(keys) > SINGLE_READS_MAX else None
            for key in keys:
                self._take(fresh, map, key, self.store.get(map, key) if many is None else many.get(key))
            self._maps[map] = fresh
        self._since[map] = changes.revision
        return keys

    def _load(self, map: str, revision: int) -> set[str]:
        """The whole map. The revision was read before: what is newer will be read once more."""
        before, fresh = self._maps[map], dict(self._maps[map])
        entries = {entry.key: entry for entry in self.store.list(map)}
        for key in before.keys() | entries.keys():
            self._take(fresh, map, key, entries.get(key))
        self._maps[map], self._since[map] = fresh, revision
        return {key for key in before.keys() | fresh.keys() if before.get(key) is not fresh.get(key)}

    def _take(self, fresh: dict[str, Seen[Any]], map: str, key: str, entry: Entry | None) -> None:
        if entry is None:
            fresh.pop(key, None)
            self.unreadable.pop((map, key), None)
            return
        known = fresh.get(key)
        if known is not None and known.version == entry.version:
            return
        try:
            seen: Seen[Any] = Seen(self.kinds[map], entry.value, f"{map}/{key}", entry.version, self.monotonic_s())
            if map not in self.lazy:
                _ = seen.value
            fresh[key] = seen
            self.unreadable.pop((map, key), None)
        except Exception as error:  # whatever is wrong with one document, the others must be seen
            fresh.pop(key, None)
            if self.unreadable.get((map, key)) != str(error):
                self.unreadable[map, key] = str(error)
                LOG.error("a document cannot be read", extra={"map": map, "key": key, "why": str(error)})
