"""Where a LocalFile source is: its offset as a value, and its JSON. Called by source.py only; pure.

An offset says which files are done, how far the one that is partly read is, and, as the end of a batch, exactly which parts of which files the batch holds,
with their sizes and times: a batch that is repeated never looks at the directory again. Bounded sources read in the order of paths, so the last path done
says it all; continuous ones keep a hash of every path done that still exists.

The store takes no document over 1 MiB, and that of a pending batch holds two offsets of every source. So a batch lists files only up to BATCH_CHARS_MAX,
whatever the limits are, and a continuous source looks after SEEN_FILES_MAX files at most: about 0.35 MiB of the document together, as start and as end.
"""

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from tidegate.connectors.localfile.streams import Part
from tidegate.model.errors import TerminalError

VERSION = 1
BATCH_CHARS_MAX = 150_000
"""The JSON of the files in one batch: about a thousand of them."""
SEEN_FILES_MAX = 20_000
"""How many files a continuous source can have in its directories."""
Key = tuple[int, str]
"""A file of a source: the index of its table, and its path."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a file in a batch. `weight` is about its bytes."""

    table: int
    part: Part
    weight: int

    @property
    def chars(self) -> int:
        """How long its JSON is."""
        return len(json.dumps(_packed(self))) + 1


@dataclass(frozen=True, slots=True)
class Partial:
    """A file that is read up to a position. `weight` is about the bytes before it."""

    table: int
    part: Part
    weight: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Position:
    """An offset. `after` and `until` bound a bounded source; `seen` is what a continuous one has done (None where bounded)."""

    after: Key | None = None
    until: Key | None = None
    seen: frozenset[bytes] | None = None
    partial: Partial | None = None
    batch: tuple[Segment, ...] = ()
    files: int = 0
    bytes: int = 0
    total: int = 0

    def to_json(self) -> dict[str, Any]:
        """As it is kept in checkpoints."""
        return {
            "version": VERSION,
            "after": list(self.after) if self.after else None,
            "until": list(self.until) if self.until else None,
            "seen": None if self.seen is None else base64.b64encode(b"".join(sorted(self.seen))).decode(),
            "partial": _packed(self.partial) if self.partial else None,
            "batch": [_packed(s) for s in self.batch],
            "files": self.files,
            "bytes": self.bytes,
            "total": self.total,
        }

    @staticmethod
    def of(raw: Any) -> "Position":
        """From its JSON."""
        if raw.get("version") != VERSION:
            raise TerminalError(f"this position of a LocalFile source has version {raw.get('version')}; version {VERSION} is understood")
        return Position(
            after=_key(raw["after"]),
            until=_key(raw["until"]),
            seen=None if raw["seen"] is None else unpack(raw["seen"]),
            partial=Partial(raw["partial"][0], Part(*raw["partial"][1:6]), raw["partial"][6]) if raw["partial"] else None,
            batch=tuple(Segment(s[0], Part(*s[1:6]), s[6]) for s in raw["batch"]),
            files=raw["files"],
            bytes=raw["bytes"],
            total=raw["total"],
        )


def _packed(segment: Segment | Partial) -> list[Any]:
    part = segment.part
    return [segment.table, part.path, part.size, part.mtime_ns, part.start, part.end, segment.weight]


def _key(raw: Any) -> Key | None:
    return (raw[0], raw[1]) if raw else None


def unpack(text: str) -> frozenset[bytes]:
    """The hashes of the files that are done."""
    data = base64.b64decode(text)
    return frozenset(data[i : i + 8] for i in range(0, len(data), 8))


def mark(table: int, path: str) -> bytes:
    """The hash of a file that is done."""
    return blake2b(f"{table}\0{path}".encode("utf-8", "surrogateescape"), digest_size=8).digest()


def marks(keys: Iterable[Key]) -> frozenset[bytes]:
    """The hashes of several files."""
    return frozenset(mark(*key) for key in keys)
