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
from tidegate.store.backend import Row
from tidegate.store.base import Changes, Store
from tidegate.store.encoding import decode

LOG = logging.getLogger("tidegate.store")
T = TypeVar("T")
SINGLE_READS_MAX = 16  # so many entries are always read one by one,
SINGLE_READ_BYTES = 16 * 1024  # and more of them where that is quicker than to read the whole map: a question costs as much as so many bytes


class Seen(Generic[T]):
    """A record, the version of its document, and when this process first saw that version, on its monotonic clock. Its text is read on first use."""

    __slots__ = ("_map", "_peeked", "_text", "_value", "key", "kind", "since_s", "version")

    def __init__(self, kind: type[T], map: str, row: Row, since_s: float) -> None:
        self.kind, self.key, self.version, self.since_s = kind, row.key, row.version, since_s
        self._map, self._text = map, row.text
        self._value: T | None = None
        self._peeked: dict[str, Any] | None = None

    @property
    def value(self) -> T:
        """The record."""
        text = self._text  # before the look at the value: another thread may read it at the same moment, and let the text go
        if self._value is None:
            self._value = from_document(self.kind, decode(self._map, self.key, text), f"{self._map}/{self.key}")
            self._text = ""
        return self._value

    def peek(self, field: str) -> Any:
        """One plain field of a record that is not read, and kept, whole for it."""
        text = self._text
        if self._value is not None:
            return getattr(self._value, field)
        if self._peeked is None:
            self._peeked = {name: each for name, each in decode(self._map, self.key, text).items() if not isinstance(each, list | dict)}
        return self._peeked.get(field)


class Follower:
    """Follows the maps that it was given, each with the kind of its records. A document that cannot be read is left out and named once in the log.

    Records of the maps in `lazy` are many and rarely needed: they are read when someone asks.
    """

    def __init__(self, store: Store, kinds: Mapping[str, type], monotonic_s: Callable[[], float], lazy: Collection[str] = ()) -> None:
        self.store, self.kinds, self.monotonic_s, self.lazy = store, kinds, monotonic_s, lazy
        self._since: dict[str, int] = {}
        self._maps: dict[str, dict[str, Seen[Any]]] = {map: {} for map in kinds}
        self._typical_bytes: dict[str, int] = dict.fromkeys(kinds, 0)  # of a document: the last one is as good as any
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
            fresh, rows = dict(self._maps[map]), self._rows(map, keys)
            for key in keys:
                self._take(fresh, map, key, rows.get(key))
            self._maps[map] = fresh
        self._since[map] = changes.revision
        return keys

    def _rows(self, map: str, keys: set[str]) -> dict[str, Row]:
        """These entries as they are stored, past the front of the store: it would decode a whole map where only some of it has changed."""
        backend = self.store.backend
        if len(keys) <= max(SINGLE_READS_MAX, len(self._maps[map]) * self._typical_bytes[map] // SINGLE_READ_BYTES):
            return {key: row for key in keys if (row := backend.read(map, key)) is not None}
        return {row.key: row for row in backend.scan(map, "") if row.key in keys}

    def _load(self, map: str, revision: int) -> set[str]:
        """The whole map. The revision was read before: what is newer will be read once more."""
        before, fresh = self._maps[map], dict(self._maps[map])
        rows = {row.key: row for row in self.store.backend.scan(map, "")}
        for key in before.keys() | rows.keys():
            self._take(fresh, map, key, rows.get(key))
        self._maps[map], self._since[map] = fresh, revision
        return {key for key in before.keys() | fresh.keys() if before.get(key) is not fresh.get(key)}

    def _take(self, fresh: dict[str, Seen[Any]], map: str, key: str, row: Row | None) -> None:
        if row is None:
            fresh.pop(key, None)
            self.unreadable.pop((map, key), None)
            return
        known = fresh.get(key)
        if known is not None and known.version == row.version:
            return
        self._typical_bytes[map] = len(row.text)
        try:
            seen: Seen[Any] = Seen(self.kinds[map], map, row, self.monotonic_s())
            if map not in self.lazy:
                _ = seen.value
            fresh[key] = seen
            self.unreadable.pop((map, key), None)
        except Exception as error:  # whatever is wrong with one document, the others must be seen
            fresh.pop(key, None)
            if self.unreadable.get((map, key)) != str(error):
                self.unreadable[map, key] = str(error)
                LOG.error("a document cannot be read", extra={"map": map, "key": key, "why": str(error)})
