"""Find where records end in the bytes of csv, text and json-lines files.

Called by batch_planning.py (driver: cutting files) and file_blocks.py (tasks: cutting blocks). A
newline ends a record unless it is inside quotes or after an escape character. Quotes are
interpreted as Arrow's parser does: a quote opens only at the beginning of a field, and after its
closing quote the rest of the field is plain text. So a cut is exact whatever a file holds. Blocks
without a quote are only searched for one, so quotes cost time only if they exist.
"""

import os
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidegate.connectors.localfile.delimited_dialect import DelimitedDialect

BLOCK_BYTES = 8 << 20
SKIPPED_BYTES = 512 << 10


class _QuotedSpans:
    """Quoted spans of a block that begins with a record: [opens[i], closes[i]]."""

    def __init__(self, block: bytes, dialect: DelimitedDialect) -> None:
        self.block = block
        self.dialect = dialect
        self.opens: Any = ()
        self.closes: Any = ()
        self.counted = False
        if dialect.quote and dialect.quote in block:
            counted = None if dialect.escape else _spans_by_counting(block, dialect)
            self.counted = counted is not None
            self.opens, self.closes = counted or (
                _spans_by_token(block, dialect)
                if dialect.escape
                else _spans_by_pattern(block, dialect)
            )

    def span_at(self, offset: int) -> tuple[int, int] | None:
        """Return the quoted span around an offset."""
        at = int(np.searchsorted(self.opens, offset)) - 1
        if at >= 0 and self.closes[at] > offset:
            return int(self.opens[at]), int(self.closes[at])
        return None

    @property
    def open_at(self) -> int:
        """Offset of the unclosed quote; -1 if all are closed."""
        return int(self.opens[-1]) if len(self.opens) and self.closes[-1] >= len(self.block) else -1

    @property
    def misplaced(self) -> bool:
        """Report whether there is text between a closing quote and the end of its field."""
        starts, quote = self.dialect.starts, self.dialect.quote
        if self.counted or not len(self.opens):
            return False  # counting accepts only quotes at the ends of fields
        size = len(self.block)
        return any(
            c + 1 < size and not self.block.startswith((*starts, quote), c + 1)
            for c in map(int, self.closes)
        )

    def escaped(self, offset: int) -> bool:
        escape = self.dialect.escape
        before = offset
        while escape and before > 0 and self.block[before - 1 : before] == escape:
            before -= 1
        return (offset - before) % 2 == 1


def _spans_by_counting(block: bytes, dialect: DelimitedDialect) -> tuple[Any, Any] | None:
    """Find the spans by counting quotes.

    Correct only if each opening quote is at the start of a field and each closing one at its end;
    otherwise returns None.
    """
    if len(dialect.delimiter) != 1 or len(dialect.terminator) != 1:
        return None
    data = np.frombuffer(block, np.uint8)
    quotes = np.flatnonzero(data == dialect.quote[0])
    opens, closes = quotes[0::2], quotes[1::2]
    bounds = np.zeros(256, np.bool_)
    bounds[list(b"".join(dialect.starts) + dialect.quote)] = True
    before = bounds[data[np.maximum(opens - 1, 0)]]
    after = bounds[data[np.minimum(closes + 1, len(data) - 1)]]
    if not np.all(before | (opens == 0)) or not np.all(after | (closes == len(data) - 1)):
        return None
    # A quote right before an opening one closes the previous span: a doubled quote, and the field
    # continues.
    return opens, closes if len(closes) == len(opens) else np.append(closes, len(block))


def _spans_by_pattern(block: bytes, dialect: DelimitedDialect) -> tuple[list[int], list[int]]:
    """Find the spans field by field: for blocks with misplaced quotes."""
    quote = re.escape(dialect.quote)
    start = b"|".join(b"(?<=" + re.escape(s) + b")" for s in dialect.starts)
    field = re.compile(
        b"(?:\\A|"
        + start
        + b")"
        + quote
        + b"(?:[^"
        + quote
        + b"]++|"
        + quote * 2
        + b")*+("
        + quote
        + b"?)"
    )
    found = [(m.start(), m.end() - 1 if m[1] else len(block)) for m in field.finditer(block)]
    return [a for a, _ in found], [b for _, b in found]


def _spans_by_token(block: bytes, dialect: DelimitedDialect) -> tuple[list[int], list[int]]:
    """Find the spans quote by quote: for dialects with an escape character."""
    token = re.compile(re.escape(dialect.escape) + b".|" + re.escape(dialect.quote), re.DOTALL)
    opens: list[int] = []
    closes: list[int] = []
    offset = escaped = 0
    while match := token.search(block, offset):
        at, offset = match.start(), match.end()
        if offset - at == 2:
            escaped = offset  # the next character is literal, even a delimiter
        elif len(opens) == len(closes):
            if at == 0 or (at != escaped and block[max(at - 16, 0) : at].endswith(dialect.starts)):
                opens.append(at)
        elif block[at + 1 : at + 2] == dialect.quote:
            offset = at + 2  # doubled: a quote in the field
        else:
            closes.append(at)
    return opens, closes if len(closes) == len(opens) else [*closes, len(block)]


@dataclass(frozen=True, slots=True)
class RecordCut:
    """Where to cut a block: the last complete record ends at `end` (0 if there is none).

    `open_at` is the offset of an unclosed quote (-1 if there is none).
    """

    end: int
    misplaced: bool = False
    open_at: int = -1


def find_cut(block: bytes, dialect: DelimitedDialect) -> RecordCut:
    """Find where a block that begins with a record can be cut, and check its quotes."""
    width = len(dialect.terminator)
    end = block.rfind(dialect.terminator)
    if dialect.plain:
        return RecordCut(end + width if end >= 0 else 0)
    spans = _QuotedSpans(block, dialect)
    misplaced, open_at = spans.misplaced, spans.open_at
    while end >= 0:
        context = spans.span_at(end)
        if context is None and not spans.escaped(end):
            return RecordCut(end + width, misplaced, open_at)
        end = block.rfind(dialect.terminator, 0, context[0] if context else end)
    return RecordCut(0, misplaced, open_at)


def last_end(block: bytes, dialect: DelimitedDialect) -> int:
    """Return the end of the last complete record of a block; 0 if there is none."""
    return find_cut(block, dialect).end


def first_end(block: bytes, dialect: DelimitedDialect, target: int) -> int:
    """Return the first end of a record at or after a target.

    The block begins with a record; -1 if the block does not contain the end.
    """
    width = len(dialect.terminator)
    end = block.find(dialect.terminator, max(target - width, 0))
    if dialect.plain or end < 0:
        return end + width if end >= 0 else -1
    spans = _QuotedSpans(block, dialect)
    while end >= 0:
        context = spans.span_at(end)
        if context is None and not spans.escaped(end):
            return end + width
        end = block.find(dialect.terminator, context[1] if context else end + 1)
    return -1


def record_end(file: int, start: int, target: int, size: int, dialect: DelimitedDialect) -> int:
    """Return the first end of a record at or after `target` in a file of `size` bytes.

    A record begins at `start`.
    """
    if dialect.plain:
        start = max(start, target - 1)  # nothing before it matters
    length = 2 * SKIPPED_BYTES  # the target is usually near
    while start < size:
        start = start if dialect.plain else _skip_unquoted(file, start, target, dialect)
        block = os.pread(file, length, start)
        end = first_end(block, dialect, target - start) if start + len(block) >= target else -1
        if end >= 0:
            return start + end
        if start + len(block) >= size or len(block) > dialect.record_bytes_max:
            return size  # a record that is too long is not cut; its reader reports it
        step = len(block) - 1 if dialect.plain else last_end(block, dialect)
        start += step
        length = (
            BLOCK_BYTES if step else length * 2
        )  # a record that is longer than the block: read more of it
    return size


def _skip_unquoted(file: int, start: int, target: int, dialect: DelimitedDialect) -> int:
    """Return a later beginning of a record before `target`, or `start`.

    Skips bytes without quotes and escapes. Reading into one small buffer repeatedly keeps it in the
    processor's cache: four times as fast as reading blocks to search them.
    """
    buffer = bytearray(SKIPPED_BYTES)
    while start + SKIPPED_BYTES < target:
        if os.preadv(file, [buffer], start) < SKIPPED_BYTES or any(
            mark and mark in buffer for mark in (dialect.quote, dialect.escape)
        ):
            break
        last = buffer.rfind(dialect.terminator)
        if last < 0:
            break
        start += last + len(dialect.terminator)
    return start


def rows_end(
    file: int, start: int, rows: int, size: int, dialect: DelimitedDialect
) -> tuple[int, int]:
    """Return the end of at most `rows` lines (but at least one record), and their number."""
    offset, left = start, rows
    while offset < size:
        block = os.pread(file, 1 << 20, offset)
        lines = block.count(dialect.terminator)
        if lines >= left:
            newlines = np.flatnonzero(np.frombuffer(block, np.uint8) == dialect.terminator[0])
            target = offset + int(newlines[left - 1]) + 1
            return record_end(file, start, target, size, dialect), rows
        offset, left = offset + len(block), left - lines
    return size, rows - left + 1  # the last line may lack its terminator
