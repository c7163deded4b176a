"""The LocalFile source: which files are next, how a batch of them is shared among tasks, and the reading of a share. The engine calls it by plugin.contract.

A batch names each of its files in the store, so it holds about a thousand of them at most: a BATCH job without checkpoint.interval, otherwise one batch, is a
few where there are more files. A continuous source keeps a mark for every file that is there, and refuses directories with more than SEEN_FILES_MAX.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tidegate.connectors.localfile.listing import FileInfo
from tidegate.connectors.localfile.planning import Taker, cut
from tidegate.connectors.localfile.position import SEEN_FILES_MAX, Key, Partial, Position, Segment, mark, marks
from tidegate.connectors.localfile.streams import FileChanged, Part
from tidegate.connectors.localfile.tables import tables_of
from tidegate.model.errors import Domain, TerminalError
from tidegate.model.job import JobMode
from tidegate.model.types import Table
from tidegate.plugin.contract import Limit, Offset, OperatorContext, Progress, Source, Split
from tidegate.plugin.option import Values

PIECE_BYTES_MIN = 1 << 20
"""Less than this is not worth a task of its own."""


class TooManyFiles(TerminalError):
    """More files than a continuous source can keep in mind."""

    condition = "too-many-files"
    domain = Domain.USER

    def __init__(self, paths: Sequence[str], count: int) -> None:
        super().__init__(
            f"there are {count} files in {', '.join(paths)}: discovery_mode = continuous looks after {SEEN_FILES_MAX} at most; "
            "move files away once they are read, or give each of several jobs a directory of its own, and start again with --restore latest"
        )
        self.count = count


class LocalFileSource(Source):
    """Files on a local or shared disk."""

    def __init__(self, values: Values, context: OperatorContext) -> None:
        super().__init__(values, context)
        self.files = tables_of(values)
        self.piece_bytes_min = PIECE_BYTES_MIN
        self._listed: list[tuple[int, FileInfo]] | None = None
        self._listed_at = 0.0
        self._before: dict[Key, FileInfo] = {}
        self._more = True  # whether files waited for the next batch; who has not looked yet had better do so soon

    def __getstate__(self) -> dict[str, Any]:
        """Tasks need no listing."""
        return {**self.__dict__, "_listed": None, "_before": {}}

    @property
    def bounded(self) -> bool:
        """Batch jobs end, and so does a look at a directory that is made once."""
        return self.context.mode is JobMode.BATCH or self.values["discovery_mode"] == "once"

    def tables(self) -> tuple[Table, ...]:
        """The tables, with the columns of the job file or of their first files."""
        return tuple(files.table() for files in self.files)

    def initial(self) -> Offset:
        """Nothing is done; a bounded source ends with the last file that is there now."""
        if not self.bounded:
            return Position(seen=frozenset()).to_json()
        listed = self._list()
        last = (listed[-1][0], listed[-1][1].path) if listed else None
        return Position(until=last, total=sum(info.size for _, info in listed)).to_json()

    def latest(self, start: Offset, limit: Limit) -> Offset:
        """The next files, or the next part of a large one."""
        position = Position.of(start)
        queue = self._queue(position)
        taker = Taker(limit)
        done: list[Key] = []
        partial: Partial | None = None
        self._more = True
        for table, part, weight in self._resumed(position, queue):
            if taker.full():
                break
            segment = taker.take(self.files[table], part, weight)
            if segment is None:
                break
            if segment.part.end >= 0:
                partial = Partial(table, replace(part, start=segment.part.end), weight + segment.weight)
                break
            done.append((table, part.path))
        else:
            self._more = False
        if not taker.segments:
            return start
        return self._moved(position, taker.segments, done, partial, queue).to_json()

    def splits(self, start: Offset, end: Offset, count: int) -> Sequence[Split]:  # noqa: ARG002  # the end says it all
        """Parts of about the same size: large files are cut, small ones packed together."""
        batch = Position.of(end).batch
        target = max(-(-sum(s.weight for s in batch) // max(count, 1)), self.piece_bytes_min)
        splits: list[Split] = []
        for files in self.files:
            pieces = [p for s in batch if s.table == files.index for p in cut(files, s, max(1, round(s.weight / target)))]
            splits += [_split(files.name, files.index, pack) for pack in _packs(pieces, target)]
        return splits

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """The rows of a split."""
        table, parts = split.payload
        yield from self.files[table].read([Part(*part) for part in parts])

    def inspect(self, rows: int) -> Iterator[str]:
        """What is wrong with the first rows of the first files."""
        for files in self.files:
            yield from files.inspect(rows)

    def at_end(self, offset: Offset) -> bool:
        """Whether all files that were there at the beginning are read, or gone."""
        position = Position.of(offset)
        if not self.bounded or position.partial:
            return False
        return position.after == position.until or not self._queue(position)

    def behind(self, offset: Offset) -> bool:  # noqa: ARG002  # the last look knows
        """Whether a file, or a part of one, was left for the next batch."""
        return self._more

    def progress(self, offset: Offset) -> Progress | None:
        """In bytes of the files."""
        position = Position.of(offset)
        return Progress(position.bytes, max(position.total, position.bytes), "bytes") if self.bounded else None

    def _queue(self, position: Position) -> list[tuple[int, FileInfo]]:
        """What is not done yet, in order."""
        listed = self._list()
        if position.seen is not None:
            begun = (position.partial.table, position.partial.part.path) if position.partial else None
            return [(t, i) for t, i in listed if mark(t, i.path) not in position.seen and ((t, i.path) == begun or self._settled(t, i))]
        if position.until is None:
            return []
        after, until = position.after or (-1, ""), position.until
        return [(t, i) for t, i in listed if after < (t, i.path) <= until]

    def _resumed(self, position: Position, queue: list[tuple[int, FileInfo]]) -> Iterator[tuple[int, Part, int]]:
        """The files to read, the one that is partly read first."""
        begun = position.partial
        if begun:
            self._unchanged(begun, queue)
            yield begun.table, begun.part, begun.weight
        for table, info in queue:
            if not (begun and (table, info.path) == (begun.table, begun.part.path)):
                yield table, Part(info.path, info.size, info.mtime_ns, 0, -1), 0

    @staticmethod
    def _unchanged(begun: Partial, queue: list[tuple[int, FileInfo]]) -> None:
        now = next((i for t, i in queue if (t, i.path) == (begun.table, begun.part.path)), None)
        if now is None:
            raise FileChanged(begun.part.path, "is gone")
        if (now.size, now.mtime_ns) != (begun.part.size, begun.part.mtime_ns):
            raise FileChanged(begun.part.path, f"was written (it has {now.size} bytes, it had {begun.part.size})")

    def _moved(self, position: Position, segments: list[Segment], done: list[Key], partial: Partial | None, queue: list[tuple[int, FileInfo]]) -> Position:
        there = sum(info.size for _, info in queue) - (position.partial.weight if position.partial else 0)
        seen = position.seen
        if seen is not None:  # forget what is gone, so that this stays as small as the directory
            seen = (seen & marks((t, i.path) for t, i in self._list())) | marks(done)
        return replace(
            position,
            after=done[-1] if done and position.seen is None else position.after,
            seen=seen,
            partial=partial,
            batch=tuple(segments),
            files=position.files + len(done),
            bytes=position.bytes + sum(s.weight for s in segments),
            total=position.bytes + there,
        )

    def _list(self) -> list[tuple[int, FileInfo]]:
        """All files of all tables. A bounded source looks once, a continuous one every scan_interval."""
        age = time.monotonic() - self._listed_at
        if self._listed is not None and (self.bounded or age * 1000 < self.values["scan_interval"]):
            return self._listed
        self._before = {(t, i.path): i for t, i in self._listed or ()}
        self._listed = [(files.index, info) for files in self.files for info in files.files()]
        self._listed_at = time.monotonic()
        if not self.bounded and len(self._listed) > SEEN_FILES_MAX:
            count, self._listed = len(self._listed), None
            raise TooManyFiles([str(files.values["path"]) for files in self.files], count)
        return self._listed

    def _settled(self, table: int, info: FileInfo) -> bool:
        """Whether a file seems to be written to its end: it did not change for a scan_interval."""
        age_ms = _now_ms() - info.mtime_ns // 1_000_000
        return age_ms >= self.values["scan_interval"] or self._before.get((table, info.path)) == info


def _now_ms() -> int:
    return time.time_ns() // 1_000_000  # noqa: TID251  # what files say about their age is wall-clock time


def _packs(pieces: list[Segment], target: int) -> Iterator[list[Segment]]:
    """Neighbours together, until they have about the target's size."""
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


def _split(name: str, index: int, pack: list[Segment]) -> Split:
    parts = [[p.part.path, p.part.size, p.part.mtime_ns, p.part.start, p.part.end] for p in pack]
    return Split(name, [index, parts], max(1, sum(p.weight for p in pack)))
