"""Offset of a LocalFile source, and its JSON. Called by source.py only; pure.

An offset says which files are done, how far a partly read file is, and, as the end of a batch,
exactly which parts of which files the batch holds, with their sizes and times: repeating a batch
never lists the directory again. Bounded sources read in the order of paths, so the last path done
is sufficient; their files are those of the list that was recorded when they began (inventory.py).
Continuous sources keep a hash of every path done, and since when its file is missing: a missing
file is not forgotten before file_retention.

The store takes no document over 1 MiB, and the document of a pending batch holds two offsets of
every source. So a batch lists files only up to BATCH_CHARS_MAX, whatever the limits are, and a
continuous source handles at most SEEN_FILES_MAX files: together about 0.35 MiB of the document, as
start and as end.
"""

import base64
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from tidegate.connectors.localfile.file_blocks import FilePart
from tidegate.connectors.localfile.inventory import RangeProgress
from tidegate.model.errors import TerminalError

VERSION = 2
READABLE_VERSIONS = (1, 2)
BATCH_CHARS_MAX = 150_000
"""Length of the JSON of the files in one batch: about a thousand of them."""
SEEN_FILES_MAX = 20_000
"""How many files a continuous source can handle."""
Key = tuple[int, str]
"""A file of a source: the index of its table, and its path."""
FileHash = bytes
"""Hash of a file that is done."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a file in a batch. `weight` is its approximate size in bytes."""

    table: int
    part: FilePart
    weight: int

    @property
    def chars(self) -> int:
        """Length of the segment's JSON."""
        return len(json.dumps(_as_row(self))) + 1


@dataclass(frozen=True, slots=True)
class Partial:
    """A file that is read up to a position. `weight` is about the bytes before it."""

    table: int
    part: FilePart
    weight: int


@dataclass(frozen=True, kw_only=True, slots=True)
class FilePosition:
    """An offset of a LocalFile source.

    `after` and `until` bound a bounded source; `seen` holds the files that a continuous source has
    read (None if bounded). `listed` is the inventory of a bounded source (None: recorded by version
    1, which kept none), `done` the progress in its current range. `missing_since` are those of
    `seen` that are missing, with the minute in which that was found; `mounts` are the mount points
    on which a continuous source has files; `skip` are the paths that the user has left out.
    """

    after: Key | None = None
    until: Key | None = None
    seen: frozenset[bytes] | None = None
    partial: Partial | None = None
    batch: tuple[Segment, ...] = ()
    files: int = 0
    bytes: int = 0
    total: int = 0
    listed: Mapping[str, Any] | None = None
    done: RangeProgress = field(default_factory=RangeProgress)
    missing_since: Mapping[FileHash, int] = field(default_factory=dict)
    mounts: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Encode as JSON for checkpoints."""
        return {
            "version": VERSION,
            "after": list(self.after) if self.after else None,
            "until": list(self.until) if self.until else None,
            "seen": None
            if self.seen is None
            else pack_hashes(self.seen - self.missing_since.keys()),
            "partial": _as_row(self.partial) if self.partial else None,
            "batch": [_as_row(s) for s in self.batch],
            "files": self.files,
            "bytes": self.bytes,
            "total": self.total,
            "listed": self.listed,
            "done": [self.done.range, self.done.files, f"{self.done.sum:x}"],
            "away": _pack_missing(self.missing_since),
            "mounts": list(self.mounts),
            "skip": list(self.skip),
        }

    @staticmethod
    def of(raw: Any) -> "FilePosition":
        if raw.get("version") not in READABLE_VERSIONS:
            raise TerminalError(
                f"this offset of a LocalFile source has version {raw.get('version')}; this release"
                f" reads up to version {VERSION}"
            )
        missing_since = {
            mark: minute for minute, text in raw.get("away") or () for mark in unpack_hashes(text)
        }
        index, files, total = raw.get("done") or (0, 0, "0")
        return FilePosition(
            after=_key(raw["after"]),
            until=_key(raw["until"]),
            seen=None if raw["seen"] is None else unpack_hashes(raw["seen"]) | missing_since.keys(),
            partial=(
                Partial(raw["partial"][0], FilePart(*raw["partial"][1:6]), raw["partial"][6])
                if raw["partial"]
                else None
            ),
            batch=tuple(Segment(s[0], FilePart(*s[1:6]), s[6]) for s in raw["batch"]),
            files=raw["files"],
            bytes=raw["bytes"],
            total=raw["total"],
            listed=raw.get("listed"),
            done=RangeProgress(index, files, int(total, 16)),
            missing_since=missing_since,
            mounts=tuple(raw.get("mounts") or ()),
            skip=tuple(raw.get("skip") or ()),
        )


def _as_row(segment: Segment | Partial) -> list[Any]:
    part = segment.part
    return [
        segment.table,
        part.path,
        part.size,
        part.mtime_ns,
        part.start,
        part.end,
        segment.weight,
    ]


def _key(raw: Any) -> Key | None:
    return (raw[0], raw[1]) if raw else None


def _pack_missing(away: Mapping[bytes, int]) -> list[list[Any]]:
    by_minute: dict[int, set[bytes]] = defaultdict(set)
    for each, minute in away.items():
        by_minute[minute].add(each)
    return [[minute, pack_hashes(by_minute[minute])] for minute in sorted(by_minute)]


def pack_hashes(hashes: Iterable[bytes]) -> str:
    """Encode hashes as text, the same for the same set."""
    return base64.b64encode(b"".join(sorted(hashes))).decode()


def unpack_hashes(text: str) -> frozenset[bytes]:
    data = base64.b64decode(text)
    return frozenset(data[i : i + 8] for i in range(0, len(data), 8))


def file_hash(table: int, path: str) -> bytes:
    """Hash the table and the path of a file."""
    return blake2b(f"{table}\0{path}".encode("utf-8", "surrogateescape"), digest_size=8).digest()


def file_hashes(keys: Iterable[Key]) -> frozenset[bytes]:
    """Return the hashes of several files."""
    return frozenset(file_hash(*key) for key in keys)
