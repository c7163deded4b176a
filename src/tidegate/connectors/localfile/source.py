"""The LocalFile source: plans batches of files, splits them among tasks, reads the splits.

The engine calls it through plugin.contract.

A batch names each of its files in the store, so it holds about a thousand of them at most: a BATCH
job without checkpoint.interval, otherwise one batch, has several if there are more files. A bounded
source reads the files that it listed when it began, and fails by name if one of them is missing or
changed. A continuous one keeps a mark for every file that it has read (seen_files.py), at most
SEEN_FILES_MAX of them, and waits while its directory does not exist.
"""

import logging
import os
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import pyarrow as pa

from tidegate.connectors.localfile.batch_planning import BatchBuilder, split_segment
from tidegate.connectors.localfile.file_blocks import FilePart
from tidegate.connectors.localfile.inventory import (
    Inventory,
    ListedFile,
    RemainingFiles,
    path_matcher,
    record_listing,
)
from tidegate.connectors.localfile.listing import FileInfo, FileListing, fixed_directory, scan
from tidegate.connectors.localfile.position import (
    SEEN_FILES_MAX,
    FilePosition,
    Key,
    Partial,
    Segment,
    file_hash,
    file_hashes,
)
from tidegate.connectors.localfile.seen_files import (
    SeenFilesOverflow,
    check_mounts,
    update_seen_files,
)
from tidegate.connectors.localfile.source_errors import (
    BadFile,
    FileChanged,
    FilesMissing,
    ListedFileChanged,
    TooManyFiles,
    advise_recovery,
)
from tidegate.connectors.localfile.table_files import tables_of
from tidegate.model.errors import SourceUnreachable, UserError
from tidegate.model.job import JobMode
from tidegate.model.types import Table
from tidegate.plugin.contract import Limit, Offset, OperatorContext, Progress, Source, Split
from tidegate.plugin.option import Values

LOG = logging.getLogger("tidegate.localfile")
PIECE_BYTES_MIN = 1 << 20
"""Smaller pieces do not get a task of their own."""


class LocalFileSource(Source):
    """Files on a local or shared disk."""

    def __init__(self, values: Values, context: OperatorContext) -> None:
        super().__init__(values, context)
        self.files = tables_of(values)
        self.piece_bytes_min = PIECE_BYTES_MIN
        self._listed: list[ListedFile] | None = None
        self._listed_at = 0.0
        self._mounts: frozenset[str] = frozenset()
        self._previous: dict[Key, FileInfo] = {}
        self._remaining: tuple[FilePosition, list[ListedFile], list[Key]] | None = None
        self._accepted: set[str] = set()  # files of abandoned batches: read as they are now
        self._warned: set[str] = set()  # files that a warning has named
        # Whether files waited for the next batch; True until the first listing.
        self._has_more = True

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_listed": None, "_before": {}, "_remaining": None}

    @property
    def bounded(self) -> bool:
        """Batch jobs end, and so does a source that lists its directory once."""
        return self.context.mode is JobMode.BATCH or self.values["discovery_mode"] == "once"

    def tables(self) -> tuple[Table, ...]:
        """Return the tables, with the columns of the job file or of their first files."""
        return tuple(files.table() for files in self.files)

    def initial(self) -> Offset:
        """Return the offset before the first file.

        A bounded source records the existing files, and ends with the last one.
        """
        if not self.bounded:
            return FilePosition(seen=frozenset()).to_json()
        listed = self._list()
        last = (listed[-1][0], listed[-1][1].path) if listed else None
        return FilePosition(
            until=last,
            total=sum(info.size for _, info in listed),
            listed=record_listing(listed, _now_ms()),
        ).to_json()

    def latest(self, start: Offset, limit: Limit) -> Offset:
        """Plan the next files, or the next part of a large one."""
        position = self._unskipped(FilePosition.of(start))
        unfinished = position.partial
        taker = BatchBuilder(limit)
        done: list[ListedFile] = []
        partial: Partial | None = None
        self._has_more = True
        with advise_recovery(unfinished.part.path if unfinished else ""):
            for table, part, weight in self._files_to_read(position):
                if taker.is_full():
                    break
                segment = self._take(taker, table, part, weight)
                if segment is None:
                    break
                if segment.part.end >= 0:
                    partial = Partial(
                        table, replace(part, start=segment.part.end), weight + segment.weight
                    )
                    break
                done.append((table, FileInfo(part.path, part.size, part.mtime_ns)))
            else:
                self._has_more = False
        if not taker.segments:
            return start
        return self._advanced(position, taker.segments, done, partial).to_json()

    def _take(self, taker: BatchBuilder, table: int, part: FilePart, weight: int) -> Segment | None:
        try:
            return taker.add(self.files[table], part, weight)
        except BadFile:
            return taker.add_whole(self.files[table], part, weight)

    def splits(self, start: Offset, end: Offset, count: int) -> Sequence[Split]:
        """Return parts of about the same size: large files are cut, small ones packed together."""
        position = FilePosition.of(end)
        batch, partial_path = position.batch, _partial_path(FilePosition.of(start))
        target = max(-(-sum(s.weight for s in batch) // max(count, 1)), self.piece_bytes_min)
        splits: list[Split] = []
        with advise_recovery(partial_path):
            self._check_present(position)
            for files in self.files:
                pieces = [
                    p
                    for s in batch
                    if s.table == files.index
                    for p in split_segment(files, s, max(1, round(s.weight / target)))
                ]
                splits += [
                    _split(files.name, files.index, pack, partial_path)
                    for pack in _packs(pieces, target)
                ]
        return splits

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """The rows of a split."""
        table, parts, partial_path = split.payload
        with advise_recovery(partial_path):
            try:
                yield from self.files[table].read([FilePart(*part) for part in parts])
            except FileChanged as error:
                if os.path.lexists(error.path):
                    raise
                raise self._missing_error(table, error.path) from error

    def cannot_repeat(self, start: Offset, end: Offset) -> str:
        """Explain why the batch cannot be repeated: a file has changed or is skipped now.

        A file of which a part is in earlier checkpoints must not have changed at all.
        """
        position, partial_path = FilePosition.of(end), _partial_path(FilePosition.of(start))
        skips = self._skip_matcher(position)
        for part in (segment.part for segment in position.batch):
            if skips(part.path):
                return f"{part.path} is skipped"
            now = _stat(part.path)
            if (
                now is not None
                and part.path != partial_path
                and (now.size, now.mtime_ns) != (part.size, part.mtime_ns)
            ):
                return f"{part.path} has changed: it has {now.size} bytes and had {part.size}"
        return ""

    def abandon_batch(self, start: Offset, end: Offset) -> None:  # noqa: ARG002  # `end` has all
        """Read the files of this batch as they are now, if they are still to be read."""
        self._accepted |= {segment.part.path for segment in FilePosition.of(end).batch}
        self._remaining = None

    def inspect(self, rows: int) -> Iterator[str]:
        """Yield the problems of the first rows of the first files."""
        for files in self.files:
            yield from files.inspect(rows)

    def is_exhausted(self, offset: Offset) -> bool:
        """Report whether all files that existed at the beginning are read."""
        position = self._unskipped(FilePosition.of(offset))
        if not self.bounded or position.partial:
            return False
        return position.after == position.until or next(self._queue(position), None) is None

    def has_backlog(self, offset: Offset) -> bool:  # noqa: ARG002  # known from the last listing
        """Report whether a file, or a part of one, was left for the next batch."""
        return self._has_more

    def progress(self, offset: Offset) -> Progress | None:
        """In bytes of the files."""
        position = FilePosition.of(offset)
        return (
            Progress(position.bytes, max(position.total, position.bytes), "bytes")
            if self.bounded
            else None
        )

    def _queue(self, position: FilePosition) -> Iterator[ListedFile]:
        """Yield the files that are not done yet, in order."""
        if position.seen is not None:
            return iter(self._unread_files(position))
        if position.until is None:
            return iter(())
        files, keys = self._remaining_files(position)
        return islice(files, bisect_right(keys, position.after) if position.after else 0, None)

    def _unread_files(self, position: FilePosition) -> list[ListedFile]:
        """List the files that a continuous source has not read."""
        assert position.seen is not None
        listed, skips = self._list(), self._skip_matcher(position)
        check_mounts(position.mounts, listed, position.seen, skips)
        partial_path = _partial_path(position)
        found = []
        for table, info in listed:
            if file_hash(table, info.path) in position.seen:
                self._warn_changed(table, info)
            elif not skips(info.path) and (
                info.path == partial_path or self._is_complete(table, info)
            ):
                found.append((table, info))
        return found

    def _remaining_files(self, position: FilePosition) -> tuple[list[ListedFile], list[Key]]:
        """Return the files that a bounded source has still to read, verified once."""
        known = self._remaining
        if (
            known is None
            or known[0].listed != position.listed
            or (known[0].after or (-1, "")) > (position.after or (-1, ""))
        ):
            files = self._verified(position)
            known = self._remaining = position, files, [(table, info.path) for table, info in files]
        return known[1:]

    def _verified(self, position: FilePosition) -> list[ListedFile]:
        present = self._list()
        if position.listed is None:
            return self._verified_by_size(position, present)
        return RemainingFiles(
            inventory=Inventory.of(position.listed),
            after=position.after,
            done=position.done,
            skip=(*position.skip, *self.context.skip_files),
            accepted=(*self._accepted, *self.context.accept_files),
        ).verify(present)

    def _verified_by_size(
        self, position: FilePosition, present: list[ListedFile]
    ) -> list[ListedFile]:
        """Verify an offset of version 1, which has no list of files.

        It has the number of bytes still to be read: there may be more now, but not less.
        """
        after, until, skips = (
            position.after or (-1, ""),
            position.until or (-1, ""),
            self._skip_matcher(position),
        )
        remaining = [
            (table, info) for table, info in present if after < (table, info.path) <= until
        ]
        present_bytes = sum(info.size for _, info in remaining) - (
            position.partial.weight if position.partial else 0
        )
        if present_bytes < position.total - position.bytes and not self.context.skip_files:
            raise UserError(
                f"{position.total - position.bytes} bytes of files in {self._paths()} were still"
                f" to be read, but only {present_bytes} bytes exist: mount or restore the missing"
                " files and restart with --restore latest, skip lost files with --skip-file, or"
                " start over with --restore fresh"
            )
        return [item for item in remaining if not skips(item[1].path)]

    def _files_to_read(self, position: FilePosition) -> Iterator[tuple[int, FilePart, int]]:
        """Yield the files to read, the partly read one first."""
        partial = position.partial
        if partial:
            self._check_partial(partial)
            yield partial.table, partial.part, partial.weight
        for table, info in self._queue(position):
            if not (
                partial and (table, info.path) == (partial.table, partial.part.path)
            ) and self._is_unchanged(table, info):
                yield table, FilePart(info.path, info.size, info.mtime_ns, 0, -1), 0

    def _check_partial(self, partial: Partial) -> None:
        now = _stat(partial.part.path)
        if now is None:
            raise self._missing_error(partial.table, partial.part.path, partial.part.size)
        if (now.size, now.mtime_ns) != (partial.part.size, partial.part.mtime_ns):
            raise FileChanged(
                partial.part.path,
                f"was written (it has {now.size} bytes, it had {partial.part.size})",
            )

    def _is_unchanged(self, table: int, info: FileInfo) -> bool:
        """Report whether a file is still as it was listed.

        A continuous source postpones a growing file, a bounded one fails by name.
        """
        now = _stat(info.path)
        if now is not None and (now.size, now.mtime_ns) == (info.size, info.mtime_ns):
            return True
        if not self.bounded:
            return False
        if now is None:
            raise self._missing_error(table, info.path, info.size)
        raise ListedFileChanged(
            info.path,
            f"had {info.size} bytes when it was listed, and was written since: it has"
            f" {now.size} now",
        )

    def _check_present(self, position: FilePosition) -> None:
        """Check in the driver that the files of a batch exist.

        So the source waits for a disk that is not mounted.
        """
        for segment in position.batch:
            if not os.path.lexists(segment.part.path):
                if position.seen is not None:
                    check_mounts(position.mounts, (), (), self._skip_matcher(position))
                raise self._missing_error(segment.table, segment.part.path, segment.part.size)

    def _missing_error(
        self, table: int, path: str, size: int | None = None
    ) -> FilesMissing | SourceUnreachable:
        """Build the error for a file that disappeared; the whole directory may be unreachable."""
        root = fixed_directory(self.files[table].values["path"])
        if not os.path.exists(root):
            return SourceUnreachable(
                f"{root} does not exist any more, and {path} is to be read from it: mount or"
                " restore it"
            )
        return FilesMissing([path], f"{path} ({size} bytes)" if size is not None else path)

    def _advanced(
        self,
        position: FilePosition,
        segments: list[Segment],
        done: list[ListedFile],
        partial: Partial | None,
    ) -> FilePosition:
        moved = replace(
            position,
            partial=partial,
            batch=tuple(segments),
            files=position.files + len(done),
            bytes=position.bytes + sum(s.weight for s in segments),
            skip=tuple(sorted({*position.skip, *self.context.skip_files})),
        )
        keys = [(table, info.path) for table, info in done]
        if position.seen is not None:
            return self._with_seen_files(moved, keys)
        after = keys[-1] if keys else position.after
        if position.listed is None:
            remaining_bytes = sum(info.size for _, info in self._queue(position)) - (
                position.partial.weight if position.partial else 0
            )
            return replace(moved, after=after, total=position.bytes + remaining_bytes)
        return replace(
            moved, after=after, done=Inventory.of(position.listed).advance(position.done, done)
        )

    def _with_seen_files(self, moved: FilePosition, done: list[Key]) -> FilePosition:
        """Add what a continuous source has read, and on which disks."""
        listed, skips = self._list(), self._skip_matcher(moved)
        skipped = [(table, info.path) for table, info in listed if skips(info.path)]
        skipped += [(files.index, path) for files in self.files for path in self.context.skip_files]
        present = file_hashes((table, info.path) for table, info in listed)
        retention_ms = self.values["file_retention"]
        try:
            memory = update_seen_files(
                moved,
                present,
                file_hashes([*done, *skipped]),
                now_ms=_now_ms(),
                retention_ms=retention_ms,
                limit=SEEN_FILES_MAX,
            )
        except SeenFilesOverflow as error:
            raise self._too_many_error(error.count, error.missing) from None
        mounts = {
            mount for mount in {*self._mounts, *moved.mounts} if mount != "/" and not skips(mount)
        }
        return replace(
            moved,
            seen=memory.seen,
            missing_since=memory.missing_since,
            mounts=tuple(sorted(mounts)),
            total=moved.bytes,
            skip=(),
        )

    def _skip_matcher(self, position: FilePosition) -> Callable[[str], bool]:
        """Match the paths that the user has skipped."""
        return path_matcher((*position.skip, *self.context.skip_files))

    def _unskipped(self, position: FilePosition) -> FilePosition:
        """Drop the partly read file if its rest is skipped."""
        left_out = position.partial is not None and self._skip_matcher(position)(
            position.partial.part.path
        )
        return replace(position, partial=None) if left_out else position

    def _list(self) -> list[ListedFile]:
        """List all files of all tables.

        A bounded source lists them once, a continuous one every scan_interval.
        """
        age = time.monotonic() - self._listed_at
        if self._listed is not None and (self.bounded or age * 1000 < self.values["scan_interval"]):
            return self._listed
        before, self._listed = self._listed, None
        found = [(files.index, self._scan(files.values)) for files in self.files]
        self._previous = {(t, i.path): i for t, i in before or ()} or self._previous
        self._listed = [(table, info) for table, each in found for info in each.files]
        self._mounts = frozenset[str]().union(*(each.mounts for _, each in found))
        self._listed_at = time.monotonic()
        if not self.bounded and len(self._listed) > SEEN_FILES_MAX:
            count, self._listed = len(self._listed), None
            raise self._too_many_error(count)
        return self._listed

    def _scan(self, values: Values) -> FileListing:
        """List one table.

        In a continuous source, a pattern may match nothing, but the directory before it must exist.
        """
        root = fixed_directory(values["path"])
        if not self.bounded and not os.path.exists(root):
            raise SourceUnreachable(
                f"{root} does not exist: mount or restore it, or correct `path`"
            )
        found = scan(values)
        for link in found.broken:
            if link not in self._warned:
                LOG.warning(
                    "broken_link",
                    extra={"path": link, "operator": self.context.operator},
                )
        self._warned |= set(found.broken)
        return found

    def _warn_changed(self, table: int, info: FileInfo) -> None:
        """Warn about a file that was written after it was read: it is not read again."""
        before = self._previous.get((table, info.path), info)
        if before != info and info.path not in self._warned:
            self._warned.add(info.path)
            LOG.warning(
                "file_changed_after_reading",
                extra={"path": info.path, "bytes": info.size, "bytes_before": before.size},
            )

    def _too_many_error(self, count: int, gone: int = 0) -> TooManyFiles:
        return TooManyFiles(
            [str(files.values["path"]) for files in self.files], count, SEEN_FILES_MAX, gone=gone
        )

    def _paths(self) -> str:
        return ", ".join(str(files.values["path"]) for files in self.files)

    def _is_complete(self, table: int, info: FileInfo) -> bool:
        """Report whether a file did not change for a scan_interval, so that it seems complete."""
        age_ms = _now_ms() - info.mtime_ns // 1_000_000
        return (
            age_ms >= self.values["scan_interval"] or self._previous.get((table, info.path)) == info
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000  # noqa: TID251  # the times of files are wall-clock times


def _partial_path(position: FilePosition) -> str:
    """Path of the file that is partly read."""
    return position.partial.part.path if position.partial else ""


def _stat(path: str) -> FileInfo | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return FileInfo(path, status.st_size, status.st_mtime_ns)


def _packs(pieces: list[Segment], target: int) -> Iterator[list[Segment]]:
    """Group neighbours until they have about the target size."""
    pack: list[Segment] = []
    weight = 0
    for piece in pieces:
        if pack and weight + piece.weight > target * 1.25:
            yield pack
            pack, weight = [], 0
        pack.append(piece)
        weight += piece.weight
    if pack:
        yield pack


def _split(name: str, index: int, pack: list[Segment], partial_path: str) -> Split:
    parts = [[p.part.path, p.part.size, p.part.mtime_ns, p.part.start, p.part.end] for p in pack]
    return Split(name, [index, parts, partial_path], max(1, sum(p.weight for p in pack)))
