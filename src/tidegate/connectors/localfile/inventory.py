"""Files that a bounded source has to read, as recorded when it began.

Called by source.py. A listed file that no longer exists is missing, not done.

The record is part of every offset, and the store takes no document over 1 MiB. So it holds every
file by name (path, size, time) while that fits into LIST_CHARS_MAX. A longer list is recorded as up
to RANGES_MAX ranges of paths, each with the number of its files, their bytes and the sum of their
digests. The digests of files that are done are subtracted, so that these files may be deleted. A
file that was added later is not read: it is not in a list by name; and a range matches without the
files that are younger than the list.
"""

import base64
import json
import os
import zlib
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from tidegate.connectors.localfile.listing import FileInfo
from tidegate.connectors.localfile.source_errors import (
    FilesMissing,
    ListedFileChanged,
    ListedFileExcluded,
    RangeChanged,
)

LIST_CHARS_MAX = 40_000
NAMES_MAX = 20_000
"""With more files than this, a list by name is not tried."""
RANGES_MAX = 256
SHOWN_MISSING_MAX = 5
"""How many missing files a message names."""
_MODULUS = 1 << 128

Key = tuple[int, str]
ListedFile = tuple[int, FileInfo]


@dataclass(frozen=True, slots=True)
class RangeProgress:
    """What is done of a range: its index, the number of files and the sum of their digests."""

    range: int = 0
    files: int = 0
    sum: int = 0


@dataclass(frozen=True, slots=True)
class FileRange:
    """Consecutive files, up to and including `last`."""

    last: Key
    files: int
    bytes: int
    sum: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Inventory:
    """The recorded list. `names` has every file, or is None if there are `ranges`."""

    at_ms: int
    names: Mapping[Key, tuple[int, int]] | None = None
    ranges: Sequence[FileRange] = ()

    @staticmethod
    def of(raw: Mapping[str, Any]) -> "Inventory":
        """Decode the JSON of an offset."""
        if "names" in raw:
            return Inventory(at_ms=raw["at"], names=_names(_unpacked(raw["names"])))
        return Inventory(
            at_ms=raw["at"], ranges=[_range(each) for each in _unpacked(raw["ranges"])]
        )

    @property
    def listed_at(self) -> str:
        """When the files were listed, as text."""
        return datetime.fromtimestamp(self.at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")

    def advance(self, done: RangeProgress, files: Iterable[ListedFile]) -> RangeProgress:
        """Return the progress after these files, which come in order."""
        if self.names is not None:
            return done
        lasts = [each.last for each in self.ranges]
        for table, info in files:
            index = bisect_right(lasts, (table, info.path))
            index -= index > 0 and lasts[index - 1] == (table, info.path)
            if index != done.range:
                done = RangeProgress(index)
            done = RangeProgress(
                index, done.files + 1, (done.sum + file_digest(table, info)) % _MODULUS
            )
        return done


@dataclass(frozen=True, kw_only=True, slots=True)
class RemainingFiles:
    """Compares the existing files with those still to be read.

    `skip` are paths that are left out, `accepted` are read as they are now.
    """

    inventory: Inventory
    after: Key | None
    done: RangeProgress
    skip: Sequence[str] = ()
    accepted: Sequence[str] = ()

    def verify(self, present: Sequence[ListedFile]) -> list[ListedFile]:
        """Return the files still to be read, in order; raise if one was changed or is missing."""
        after = self.after or (-1, "")
        remaining = [each for each in present if (each[0], each[1].path) > after]
        return (
            self._by_name(remaining, after)
            if self.inventory.names is not None
            else self._by_range(remaining, after)
        )

    def _by_name(self, remaining: Sequence[ListedFile], after: Key) -> list[ListedFile]:
        names = self.inventory.names or {}
        skips, accepts = path_matcher(self.skip), path_matcher(self.accepted)
        present = {(table, info.path): info for table, info in remaining}
        missing, queue = [], []
        for key, (size, mtime_ns) in names.items():
            if key <= after or skips(key[1]):
                continue
            info = present.get(key)
            if info is None:
                if not (accepts(key[1]) and _current_size(key[1]) == 0):
                    missing.append((key[1], size))
            elif not accepts(key[1]) and (info.size, info.mtime_ns) != (size, mtime_ns):
                raise ListedFileChanged(
                    key[1],
                    f"had {size} bytes when the files were listed at {self.inventory.listed_at},"
                    f" and {_describe_change(info, size)}",
                )
            else:
                queue.append((key[0], info))
        if missing:
            named = ", ".join(
                f"{path} ({size} bytes)" for path, size in missing[:SHOWN_MISSING_MAX]
            )
            more = (
                f" and {len(missing) - SHOWN_MISSING_MAX} more"
                if len(missing) > SHOWN_MISSING_MAX
                else ""
            )
            self._check_filtered(missing)
            paths = [path for path, _ in missing]
            raise FilesMissing(paths, f"{named}{more}, listed at {self.inventory.listed_at}")
        return queue

    def _check_filtered(self, missing: Sequence[tuple[str, int]]) -> None:
        """Raise for files that exist but are no longer listed.

        They were truncated, or new options exclude them.
        """
        for path, size in missing:
            now = _current_size(path)
            if now == size:
                raise ListedFileExcluded(path, self.inventory.listed_at)
            if now is not None:
                what = (
                    f"had {size} bytes when the files were listed at {self.inventory.listed_at},"
                    f" and has {now} now"
                )
                raise ListedFileChanged(path, what)

    def _by_range(self, remaining: Sequence[ListedFile], after: Key) -> list[ListedFile]:
        queue: list[ListedFile] = []
        keys = [(table, info.path) for table, info in remaining]
        begin, before = 0, (-1, "")
        for index, each in enumerate(self.inventory.ranges):
            if each.last > after:
                end = bisect_right(keys, each.last)
                queue += self._range(index, each, before, remaining[begin:end])
                begin = end
            before = each.last
        skips = path_matcher(self.skip)
        return [item for item in queue if not skips(item[1].path)]

    def _range(
        self, index: int, listed: FileRange, before: Key, present: Sequence[ListedFile]
    ) -> Sequence[ListedFile]:
        done = self.done if index == self.done.range else RangeProgress(index)
        files, total = listed.files - done.files, (listed.sum - done.sum) % _MODULUS
        if any(
            _may_be_in_range(path, before, listed.last) for path in (*self.skip, *self.accepted)
        ):
            return present  # the user has decided what to do with files of this range
        old = present
        if len(present) != files or _sum(present) != total:
            old = [
                item
                for item in present
                if item[1].ctime_ns <= (self.inventory.at_ms + 1) * 1_000_000
            ]
        if len(old) == files and _sum(old) == total:
            return old
        first = f"after {before[1]} " if before[1] else ""
        raise RangeChanged(
            f"of {files} files that were listed {first}up to {listed.last[1]} at"
            f" {self.inventory.listed_at}",
            listed.last[1],
            missing=max(0, files - len(present)),
        )


def record_listing(files: Sequence[ListedFile], at_ms: int) -> dict[str, Any]:
    """Encode the list for offsets: by name if that fits, else by ranges."""
    if len(files) <= NAMES_MAX:
        text = _packed(_front_coded((t, i.path, i.size, i.mtime_ns) for t, i in files))
        if len(text) <= LIST_CHARS_MAX:
            return {"at": at_ms, "names": text}
    count = RANGES_MAX
    while True:
        text = _packed(_front_coded(_ranges(files, count)))
        if len(text) <= LIST_CHARS_MAX or count == 1:
            return {"at": at_ms, "ranges": text}
        count //= 2


def file_digest(table: int, info: FileInfo) -> int:
    """Compute what a file adds to the sum of its range."""
    text = f"{table}\0{info.path}\0{info.size}\0{info.mtime_ns}".encode("utf-8", "surrogateescape")
    return int.from_bytes(blake2b(text, digest_size=16).digest(), "big")


def _sum(files: Iterable[ListedFile]) -> int:
    return sum(file_digest(table, info) for table, info in files) % _MODULUS


def _may_be_in_range(path: str, before: Key, last: Key) -> bool:
    """Report whether a path, or what is below it, is in a range of files."""
    return any(
        (table, path + "0") > before and (table, path) <= last
        for table in range(max(before[0], 0), last[0] + 1)
    )


def path_matcher(paths: Collection[str]) -> Callable[[str], bool]:
    """Return a test whether a path is one of these, or below one of them."""
    files = frozenset(path.rstrip("/") for path in paths)
    folders = tuple(f"{path}/" for path in files)
    return lambda path: path in files or path.startswith(folders)


def _current_size(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except OSError:
        return None


def _describe_change(info: FileInfo, size: int) -> str:
    return f"has {info.size} now" if info.size != size else "was written since"


def _ranges(files: Sequence[ListedFile], count: int) -> Iterable[tuple[Any, ...]]:
    each = max(1, -(-len(files) // count))
    for start in range(0, len(files), each):
        part = files[start : start + each]
        table, last = part[-1]
        yield table, last.path, len(part), sum(info.size for _, info in part), f"{_sum(part):032x}"


def _range(row: Sequence[Any]) -> FileRange:
    table, path, files, size, total = row
    return FileRange((table, path), files, size, int(total, 16))


def _names(rows: Iterable[Sequence[Any]]) -> dict[Key, tuple[int, int]]:
    return {(table, path): (size, mtime_ns) for table, path, size, mtime_ns in rows}


def _front_coded(rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    """Replace the beginning that a path shares with the previous one by its length."""
    coded, before = [], ""
    for table, path, *rest in rows:
        same = next(
            (i for i, (one, other) in enumerate(zip(before, path, strict=False)) if one != other),
            min(len(before), len(path)),
        )
        coded.append([table, same, path[same:], *rest])
        before = path
    return coded


def _packed(rows: list[list[Any]]) -> str:
    return base64.b64encode(
        zlib.compress(json.dumps(rows, separators=(",", ":")).encode(), 9)
    ).decode()


def _unpacked(text: str) -> Iterable[list[Any]]:
    before = ""
    for table, same, rest, *more in json.loads(zlib.decompress(base64.b64decode(text))):
        before = before[:same] + rest
        yield [table, before, *more]
