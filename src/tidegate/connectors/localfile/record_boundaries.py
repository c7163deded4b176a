"""Where records end in the bytes of csv, text and json-lines files. Called by planning.py (driver:
cutting files) and streams.py (tasks: cutting blocks).

A newline ends a record unless it stands in quotes or behind an escape character. What is in quotes
is decided as Arrow's parser does: a quote opens only at the beginning of a field, and from its
closing quote on the field goes on as plain text. So a cut is exact whatever a file holds, and
quotes cost time only where there are some: blocks without a quote are only searched for it.
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
    """The quoted stretches of a block that begins with a record: [opens[i], closes[i]]."""

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

    def span_at(self, place: int) -> tuple[int, int] | None:
        """The quoted stretch that holds a place."""
        at = int(np.searchsorted(self.opens, place)) - 1
        if at >= 0 and self.closes[at] > place:
            return int(self.opens[at]), int(self.closes[at])
        return None

    @property
    def open_at(self) -> int:
        """Where the quote stands that is not closed; -1 where all are."""
        return int(self.opens[-1]) if len(self.opens) and self.closes[-1] >= len(self.block) else -1

    @property
    def misplaced(self) -> bool:
        """Whether text stands between a closing quote and the end of its field."""
        starts, quote = self.dialect.starts, self.dialect.quote
        if self.counted or not len(self.opens):
            return False  # counting takes quotes in their places only
        size = len(self.block)
        return any(
            c + 1 < size and not self.block.startswith((*starts, quote), c + 1)
            for c in map(int, self.closes)
        )

    def escaped(self, place: int) -> bool:
        escape = self.dialect.escape
        before = place
        while escape and before > 0 and self.block[before - 1 : before] == escape:
            before -= 1
        return (place - before) % 2 == 1


def _spans_by_counting(block: bytes, dialect: DelimitedDialect) -> tuple[Any, Any] | None:
    """The stretches by counting quotes, right where each one is in its place: an opening one at the
    start of a field, a closing one at its end.
    """
    if len(dialect.delimiter) != 1 or len(dialect.terminator) != 1:
        return None
    data = np.frombuffer(block, np.uint8)
    places = np.flatnonzero(data == dialect.quote[0])
    opens, closes = places[0::2], places[1::2]
    bounds = np.zeros(256, np.bool_)
    bounds[list(b"".join(dialect.starts) + dialect.quote)] = True
    before = bounds[data[np.maximum(opens - 1, 0)]]
    after = bounds[data[np.minimum(closes + 1, len(data) - 1)]]
    if not np.all(before | (opens == 0)) or not np.all(after | (closes == len(data) - 1)):
        return None
    # A quote right before an opening one is the closing one of the stretch before: a doubled quote,
    # and the field goes on.
    return opens, closes if len(closes) == len(opens) else np.append(closes, len(block))


def _spans_by_pattern(block: bytes, dialect: DelimitedDialect) -> tuple[list[int], list[int]]:
    """The stretches, field by field: for blocks with quotes in other places."""
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
    """The stretches, quote by quote: where there is an escape character."""
    token = re.compile(re.escape(dialect.escape) + b".|" + re.escape(dialect.quote), re.DOTALL)
    opens: list[int] = []
    closes: list[int] = []
    place = escaped = 0
    while match := token.search(block, place):
        at, place = match.start(), match.end()
        if place - at == 2:
            escaped = place  # a character that means only itself, a delimiter too
        elif len(opens) == len(closes):
            if at == 0 or (at != escaped and block[max(at - 16, 0) : at].endswith(dialect.starts)):
                opens.append(at)
        elif block[at + 1 : at + 2] == dialect.quote:
            place = at + 2  # doubled: a quote in the field
        else:
            closes.append(at)
    return opens, closes if len(closes) == len(opens) else [*closes, len(block)]


@dataclass(frozen=True, slots=True)
class RecordCut:
    """The last whole record of a block ends at `end` (0: there is none).

    `open_at` is the quote that is not closed (-1: none).
    """

    end: int
    misplaced: bool = False
    open_at: int = -1


def find_cut(block: bytes, dialect: DelimitedDialect) -> RecordCut:
    """Where a block that begins with a record can be cut, and whether its quotes are where they
    belong.
    """
    width = len(dialect.terminator)
    place = block.rfind(dialect.terminator)
    if dialect.plain:
        return RecordCut(place + width if place >= 0 else 0)
    spans = _QuotedSpans(block, dialect)
    misplaced, open_at = spans.misplaced, spans.open_at
    while place >= 0:
        context = spans.span_at(place)
        if context is None and not spans.escaped(place):
            return RecordCut(place + width, misplaced, open_at)
        place = block.rfind(dialect.terminator, 0, context[0] if context else place)
    return RecordCut(0, misplaced, open_at)


def last_end(block: bytes, dialect: DelimitedDialect) -> int:
    """The end of the last whole record of a block that begins with a record; 0 where there is none."""
    return find_cut(block, dialect).end


def first_end(block: bytes, dialect: DelimitedDialect, target: int) -> int:
    """The first end of a record at or behind a target, in a block that begins with a record; -1
    where the block does not hold it.
    """
    width = len(dialect.terminator)
    place = block.find(dialect.terminator, max(target - width, 0))
    if dialect.plain or place < 0:
        return place + width if place >= 0 else -1
    spans = _QuotedSpans(block, dialect)
    while place >= 0:
        context = spans.span_at(place)
        if context is None and not spans.escaped(place):
            return place + width
        place = block.find(dialect.terminator, context[1] if context else place + 1)
    return -1


def record_end(file: int, start: int, target: int, size: int, dialect: DelimitedDialect) -> int:
    """The first end of a record at or behind `target` in a file of `size` bytes, where a record
    begins at `start`.
    """
    if dialect.plain:
        start = max(start, target - 1)  # nothing before can matter
    length = 2 * SKIPPED_BYTES  # the target is mostly near
    while start < size:
        start = start if dialect.plain else _skip_unquoted(file, start, target, dialect)
        block = os.pread(file, length, start)
        end = first_end(block, dialect, target - start) if start + len(block) >= target else -1
        if end >= 0:
            return start + end
        if start + len(block) >= size or len(block) > dialect.record_bytes_max:
            return size  # a record that is too long is not cut; who reads it reports it
        step = len(block) - 1 if dialect.plain else last_end(block, dialect)
        start += step
        length = (
            BLOCK_BYTES if step else length * 2
        )  # a record that is longer than the block: see more of it
    return size


def _skip_unquoted(file: int, start: int, target: int, dialect: DelimitedDialect) -> int:
    """A beginning of a record behind `start` and before `target`, as far as there is neither quote
    nor escape; `start` where there is nothing to skip.

    The same small buffer again and again: it stays in the processor's cache, and this is four times
    as quick as reading blocks to search them.
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
    """The end of at most `rows` lines (but at least one record) from `start` on, and how many lines
    that are.
    """
    place, left = start, rows
    while place < size:
        block = os.pread(file, 1 << 20, place)
        lines = block.count(dialect.terminator)
        if lines >= left:
            places = np.flatnonzero(np.frombuffer(block, np.uint8) == dialect.terminator[0])
            target = place + int(places[left - 1]) + 1
            return record_end(file, start, target, size, dialect), rows
        place, left = place + len(block), left - lines
    return size, rows - left + 1  # the last line may lack its terminator
