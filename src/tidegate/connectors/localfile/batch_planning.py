"""Cut files into batches by limits, and a batch into parts for tasks. Runs in the driver.

Called by source.py. Files are cut where records end (bytes), or between row groups and stripes;
what cannot be cut (codecs, archives, JSON documents) is read as a whole. Every cut depends on the
bytes of the file alone, so that it is the same whenever it is made again.
"""

from enum import Enum
from itertools import pairwise

from tidegate.connectors.localfile.columnar import group_rows
from tidegate.connectors.localfile.delimited import DelimitedReader
from tidegate.connectors.localfile.delimited_dialect import DelimitedDialect, dialect_of
from tidegate.connectors.localfile.file_blocks import FilePart, codec_of, is_splittable, open_part
from tidegate.connectors.localfile.jsonlines import LINES, by_lines
from tidegate.connectors.localfile.position import BATCH_CHARS_MAX, Segment
from tidegate.connectors.localfile.record_boundaries import BLOCK_BYTES, record_end, rows_end
from tidegate.connectors.localfile.table_files import TableFiles
from tidegate.plugin.contract import Limit

ROW_BYTES_ESTIMATE = 50
"""Assumed size of a row if only the size of its file is known."""
_HEAD_BYTES = 1 << 20


class SplitShape(Enum):
    """How a file can be cut."""

    RECORDS = "at the ends of records"
    GROUPS = "between row groups or stripes"
    WHOLE = "not at all"


def split_shape(files: TableFiles, part: FilePart) -> SplitShape:
    """Determine how a file can be cut; reads the beginning of json files."""
    values = files.values
    if files.form in ("parquet", "orc"):
        return SplitShape.GROUPS
    if (
        values["archive_compress_codec"] != "none"
        or codec_of(part.path, values)
        or not is_splittable(values["encoding"])
    ):
        return SplitShape.WHOLE
    if len(_dialect(files).terminator) != 1:
        return SplitShape.WHOLE
    if files.form == "json":
        with open_part(part) as file:
            return SplitShape.RECORDS if by_lines(file.read(_HEAD_BYTES)) else SplitShape.WHOLE
    return SplitShape.RECORDS


def _dialect(files: TableFiles) -> DelimitedDialect:
    if files.form == "json":
        return LINES
    return (
        dialect_of({**files.values, "quote_char": None, "escape_char": None})
        if _has_plain_lines(files)
        else dialect_of(files.values)
    )


def _has_plain_lines(files: TableFiles) -> bool:
    schema = files.values["schema"] or {}
    return not (
        schema.get("fields") or schema.get("columns") or files.values["csv_use_header_line"]
    )


class BatchBuilder:
    """Collects files for one batch until a limit is reached; at least one unit.

    The offset that names the files has a maximum length too.
    """

    def __init__(self, limit: Limit, chars_max: int = BATCH_CHARS_MAX) -> None:
        self.rows = limit.rows
        self.bytes = limit.bytes
        self.files = limit.files
        self.chars = chars_max
        self.segments: list[Segment] = []

    def is_full(self) -> bool:
        """Report whether no other file fits into this batch."""
        return bool(self.segments) and any(
            left is not None and left <= 0
            for left in (self.rows, self.bytes, self.files, self.chars)
        )

    def add(self, files: TableFiles, part: FilePart, done: int) -> Segment | None:
        """Add the next part of a file of which about `done` bytes are done.

        Returns None if it has to wait for the next batch.
        """
        left = part.size - done
        if self.rows is None and (self.bytes is None or left <= self.bytes):
            return self._append(files, part, -1, left, 0)
        match split_shape(files, part):
            case SplitShape.RECORDS:
                end, rows = self._records(files, part)
                return self._append(
                    files, part, -1 if end >= part.size else end, end - part.start, rows
                )
            case SplitShape.GROUPS:
                return self._groups(files, part, left)
            case SplitShape.WHOLE:
                rows = left // ROW_BYTES_ESTIMATE
                return self._append(files, part, -1, left, rows) if self._fits(left, rows) else None

    def add_whole(self, files: TableFiles, part: FilePart, done: int) -> Segment:
        """Add the rest of a file that cannot be cut because it is damaged.

        The task that reads it reports the damage, in a batch that is recorded.
        """
        return self._append(files, part, -1, part.size - done, 0)

    def _fits(self, size: int, rows: int) -> bool:
        """Report whether another unit fits; a first unit always does."""
        return not self.segments or (
            (self.bytes is None or size <= self.bytes) and (self.rows is None or rows <= self.rows)
        )

    def _records(self, files: TableFiles, part: FilePart) -> tuple[int, int]:
        dialect = _dialect(files)
        with open_part(part) as file:
            start = body_start(files, part)
            end, rows = part.size, 0
            if self.rows is not None:
                end, rows = rows_end(file.fileno(), start, max(self.rows, 1), part.size, dialect)
            if self.bytes is not None and end - part.start > self.bytes:
                end = record_end(
                    file.fileno(),
                    start,
                    max(part.start + self.bytes, start + 1),
                    part.size,
                    dialect,
                )
        return end, rows

    def _groups(self, files: TableFiles, part: FilePart, left: int) -> Segment | None:
        counts = group_rows(part, files.form)[part.start :]
        each = left // max(len(counts), 1)
        taken = rows = 0
        for count in counts:
            over = (self.bytes is not None and (taken + 1) * each > self.bytes) or (
                self.rows is not None and rows + count > self.rows
            )
            if over and (taken or self.segments):
                break
            taken, rows = taken + 1, rows + count
        if counts and not taken:
            return None
        end = -1 if taken == len(counts) else part.start + taken
        return self._append(files, part, end, left if end < 0 else taken * each, rows)

    def _append(
        self, files: TableFiles, part: FilePart, end: int, weight: int, rows: int
    ) -> Segment:
        segment = Segment(
            files.index, FilePart(part.path, part.size, part.mtime_ns, part.start, end), weight
        )
        self.segments.append(segment)
        self.chars -= segment.chars
        self.rows = None if self.rows is None else self.rows - rows
        self.bytes = None if self.bytes is None else self.bytes - weight
        self.files = None if self.files is None else self.files - (end < 0)
        return segment


def body_start(files: TableFiles, part: FilePart) -> int:
    """Find where the rows of a part begin: at the beginning of a file, after header lines."""
    if part.start or files.form == "json":
        return part.start
    values = (
        {**files.values, "csv_use_header_line": False} if _has_plain_lines(files) else files.values
    )
    reader = DelimitedReader(values, (), ())
    with open_part(part) as file:
        offset = reader.head_bytes(file.read(BLOCK_BYTES))
    return offset if offset >= 0 else part.size


def split_segment(files: TableFiles, segment: Segment, pieces: int) -> list[Segment]:
    """Cut a segment into about `pieces` parts of the same size."""
    part = segment.part
    shape = split_shape(files, part) if pieces > 1 else SplitShape.WHOLE
    if shape is SplitShape.WHOLE:
        return [segment]
    if shape is SplitShape.GROUPS:
        last = len(group_rows(part, files.form)) if part.end < 0 else part.end
        points = sorted(
            {part.start + (last - part.start) * i // pieces for i in range(1, pieces)}
            - {part.start}
        )
    else:
        last = part.size if part.end < 0 else part.end
        points = _record_points(files, part, last, pieces)
    bounds = [part.start, *points, part.end]
    weight = segment.weight // (len(bounds) - 1)
    return [
        Segment(files.index, FilePart(part.path, part.size, part.mtime_ns, a, b), weight)
        for a, b in pairwise(bounds)
    ]


def _record_points(files: TableFiles, part: FilePart, last: int, pieces: int) -> list[int]:
    dialect = _dialect(files)
    points: list[int] = []
    with open_part(part) as file:
        start = body_start(files, part)
        for i in range(1, pieces):
            target = part.start + (last - part.start) * i // pieces
            if target <= start:
                continue
            start = record_end(file.fileno(), start, target, last, dialect)
            if start >= last:
                break
            points.append(start)
    return points
