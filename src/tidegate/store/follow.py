"""A copy of some maps in memory, kept up to date by the change log: reads cost nothing, and a
thousand idle jobs cost one question a turn.

Called by servers and workers, each from one thread; what others may read is replaced whole and
never changed in place. The copy may be old by one turn: every decision that is made on it is
recorded with the versions that were seen, so that an old copy leads to a Conflict and never to a
wrong write.
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
SINGLE_READS_MAX = 16  # so many entries of a map are always read by their keys,
# and more of them up to this part of the map: a question about one key costs as much as so many
# entries of a list
SINGLE_READS_SHARE = 4


class CachedEntry(Generic[T]):
    """A record, the version of its document, and when this process first saw that version, on its
    monotonic clock. Its text is read on first use.
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
            # The text is read before the value is checked again: another thread may decode it at
            # the same moment and drop the text.
            text = self._text
            value = self._value
            if value is None:
                what = f"{self._map}/{self.key}"
                value = from_document(self.kind, decode(self._map, self.key, text), what)
                self._value = value
                self._text = ""
        return value

    def peek(self, field: str) -> Any:
        """One plain field of a record that is not read, and kept, whole for it."""
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
    """Follows the maps that it was given, each with the kind of its records. A document that cannot
    be read is left out and named once in the log.

    Records of the maps in `lazy` are many and rarely needed: they are read when someone asks.
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
        self._turn = threading.Lock()
        self.unreadable: dict[tuple[str, str], str] = {}

    def refresh(self) -> set[tuple[str, str]]:
        """Catch up; the (map, key) of all that has changed since the last time.

        After StoreUnavailable the copy is as it was.
        """
        with self._turn:
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
        """A map as of the last turn; it does not change under the reader."""
        return MappingProxyType(self._maps[map])

    def _has(self, event: Change) -> bool:
        """Whether it was seen already: entries are read after the log, and may be newer."""
        known = self._maps[event.map].get(event.key)
        return known is not None and known.version >= event.version

    def _read(self, keys: Mapping[str, set[str]]) -> None:
        """These entries as of one moment, past the front of the store: it would decode a whole map
        where only some of it has changed.
        """
        questions: list[Query] = []
        for map, changed in keys.items():
            single = len(changed) <= max(
                SINGLE_READS_MAX, len(self._maps[map]) // SINGLE_READS_SHARE
            )
            questions += [Get(map, key) for key in changed] if single else [Listing(map)]
        found: dict[str, dict[str, StoredRow]] = {map: {} for map in keys}
        for question, rows in zip(questions, self.store.backend.query(questions), strict=True):
            found[question.map].update((row.key, row) for row in rows)
        for map, changed in keys.items():
            fresh = dict(self._maps[map])
            for key in changed:
                self._take(fresh, map, key, found[map].get(key))
            self._maps[map] = fresh

    def _load(self, revision: int) -> set[tuple[str, str]]:
        """All maps. The revision was read before: what is newer will be read once more."""
        told: set[tuple[str, str]] = set()
        answers = self.store.backend.query([Listing(map) for map in self.kinds])
        for map, listed in zip(self.kinds, answers, strict=True):
            before, fresh, rows = (
                self._maps[map],
                dict(self._maps[map]),
                {row.key: row for row in listed},
            )
            for key in before.keys() | rows.keys():
                self._take(fresh, map, key, rows.get(key))
            self._maps[map] = fresh
            told |= {
                (map, key)
                for key in before.keys() | fresh.keys()
                if before.get(key) is not fresh.get(key)
            }
        self._since = revision
        return told

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
        except Exception as error:  # whatever is wrong with one document, the others must be seen
            fresh.pop(key, None)
            if self.unreadable.get((map, key)) != str(error):
                self.unreadable[map, key] = str(error)
                LOG.error(
                    "a document cannot be read", extra={"map": map, "key": key, "why": str(error)}
                )
