"""The keys of a store in etcd, and what is stored under them. Pure. Called by the etcd backend.

Below the prefix of a store:

    charter                     identity of the store, how revisions are counted, floor of the log
    last                        written by every transaction: its etcd revision is the store's, its
                                version the number of transactions
    entry/<map>/<key>           the text; its etcd revision is its version
    log/<hint>/<token>/<rows>   changes of one transaction, whose etcd revision it has
    void/<token>                the revision when the token was voided

**Revisions.** A revision of the store is etcd's, counted from the charter's first one, without
those at which a token was voided (`gaps`). If others write to the same etcd, revisions have gaps.

**Order of the log.** A transaction does not know its revision, so the key of its log record has a
hint: the newest revision that its author had seen. It is written only if `last` is less than WINDOW
above the hint. So everything after revision s has a hint above s - WINDOW, and a reader that starts
there reads all of it. A record with a hint below f - WINDOW has revision f or lower, and is removed
when the log is pruned up to f.
"""

import bisect
import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from tidegate.model.errors import UserError
from tidegate.store.backend import Change, ChangeKind, StoredRow
from tidegate.store.errors import StoreDamaged
from tidegate.store.etcd.requests import KeyValue

FORMAT = 1
DIGITS = 20
WINDOW = 1000


class EtcdStoreTooNew(UserError):
    """The store was created by a newer release of Tidegate."""

    condition = "store-too-new"

    def __init__(self, prefix: str, found: object) -> None:
        super().__init__(
            f"the store under {prefix} in etcd has format {found}; this Tidegate knows {FORMAT}:"
            " upgrade it, or use another prefix"
        )
        self.prefix = prefix
        self.found = found


@dataclass(frozen=True, kw_only=True, slots=True)
class Charter:
    """The metadata of a store, which change rarely.

    The log is complete after revision `floor`; `history` is the etcd revision of the last pruning.
    """

    store: str  # random identity, so that another store in its place is recognized
    floor: int = 0
    history: int = 0
    gaps: tuple[int, ...] = ()  # etcd's revisions, ascending
    base: int = 0  # etcd's create revision of this charter
    mod: int = 0  # and its mod revision

    def number(self, mod: int) -> int:
        """Convert an etcd revision to the store's; 0 for absent and for a new store."""
        return mod - self.base - bisect.bisect_left(self.gaps, mod) if mod else 0

    def mod_of(self, number: int) -> int:
        """Convert a revision of the store to etcd's."""
        mod = number + self.base
        for gap in self.gaps:
            if gap > mod:
                break
            mod += 1
        return mod

    def version_mod(self, version: int) -> int:
        """Convert the version of an entry to an etcd revision; 0 if absent."""
        return self.mod_of(version) if version else 0

    def encoded(self, *, gap: bool = False) -> bytes:
        """Encode the charter; `gap`: the etcd revision of this write is a gap."""
        fields = {
            "format": FORMAT,
            "store": self.store,
            "floor": self.floor,
            "history": self.history,
            "gaps": self.gaps,
            "gap": gap,
        }
        return json.dumps(fields, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One transaction of the change log."""

    revision: int
    token: str
    rows: tuple[tuple[str, str, str], ...] = field(repr=False)  # map, key, kind
    hint: int

    def changes(self, maps: Collection[str]) -> list[Change]:
        """Return the changes of these maps, sorted by map and key."""
        rows = sorted(row for row in self.rows if row[0] in maps)
        return [Change(map, key, self.revision, ChangeKind(kind)) for map, key, kind in rows]


class KeyLayout:
    """Builds and decodes the keys of one store."""

    window = WINDOW

    def __init__(self, prefix: str) -> None:
        self.root = f"{prefix.strip('/')}/".encode()
        if self.root == b"/":
            raise UserError(
                "the address of the store on etcd names no prefix: it is"
                " etcd://host:port[,host:port...]/prefix"
            )
        self.charter, self.last = self.root + b"charter", self.root + b"last"
        self.entries, self.log, self.voids = (
            self.root + b"entry/",
            self.root + b"log/",
            self.root + b"void/",
        )

    def map(self, map: str) -> bytes:
        """Return the prefix of the entries of a map."""
        return self.entries + map.encode() + b"/"

    def entry(self, map: str, key: str) -> bytes:
        return self.map(map) + key.encode()

    def hint(self, number: int) -> bytes:
        """Return the prefix of the log records with this hint."""
        return self.log + b"%0*d" % (DIGITS, max(number, 0))

    def record(self, hint: int, token: bytes, rows: int) -> bytes:
        return self.hint(hint) + f"/{token.hex()}/{rows}".encode()

    def void(self, token: bytes) -> bytes:
        """Return the key that marks a voided token."""
        return self.voids + token.hex().encode()

    def read_charter(self, pairs: list[KeyValue]) -> Charter | None:
        """Decode the charter, if it exists."""
        if not pairs:
            return None
        pair = pairs[0]
        try:
            fields: dict[str, Any] = json.loads(pair.value)
            if fields.pop("format") != FORMAT:
                raise EtcdStoreTooNew(self.root.decode(), json.loads(pair.value)["format"])
            gaps = (*fields.pop("gaps"), *([pair.mod] if fields.pop("gap") else ()))
            return Charter(**fields, gaps=gaps, base=pair.created, mod=pair.mod)
        except (ValueError, KeyError, TypeError) as error:
            raise StoreDamaged(
                f"what is under {self.charter.decode()} in etcd is not the charter of a store: use"
                " another prefix"
            ) from error

    def read_record(self, charter: Charter, pair: KeyValue) -> LogRecord:
        """Decode a record of the log."""
        try:
            hint, token, _ = pair.key[len(self.log) :].decode().split("/")
            return LogRecord(
                charter.number(pair.mod),
                token,
                tuple((map, key, kind) for map, key, kind in json.loads(pair.value)),
                int(hint),
            )
        except (ValueError, TypeError) as error:
            raise StoreDamaged(
                f"the change log under {self.log.decode()} in etcd is damaged"
            ) from error

    def rows_of(self, pair: KeyValue) -> int:
        """Return the number of rows of a record."""
        return int(pair.key.rpartition(b"/")[2])

    def read_row(self, charter: Charter, start: bytes, pair: KeyValue) -> StoredRow:
        """Decode an entry of the map whose keys begin with `start`.

        Bytes that are not UTF-8 become text that fails its checksum.
        """
        key, text = pair.key[len(start) :], pair.value
        return StoredRow(
            key.decode(errors="backslashreplace"),
            text.decode(errors="backslashreplace"),
            charter.number(pair.mod),
        )


def encoded_rows(rows: list[tuple[str, str, str]]) -> bytes:
    """Encode the rows of a log record."""
    return json.dumps(rows, separators=(",", ":"), ensure_ascii=False).encode()
