"""Offset of a Jdbc source: the chunks of every table, fixed at the start, and how many are done.

Pure; called by source.py. The chunks are part of the offset, so that a repeated batch reads the
same ranges, and a killed read resumes at a chunk. The store limits documents to 1 MiB, and a
pending batch holds two offsets of every source: the chunks of all tables together stay below
EDGES_CHARS_MAX.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

from tidegate.databases.chunks import Bound
from tidegate.model.errors import TerminalError
from tidegate.plugin.contract import Limit, Offset

VERSION = 2
"""Version 1 has no chunks for null keys; it is still written if there are none."""
EDGES_CHARS_MAX = 100_000
ROW_BYTES = 64
"""Assumed size of a row, for the weight of a split."""


class Nulls(StrEnum):
    """Whether a range has the rows with a null key."""

    ALSO = "also"
    NOT = "not"
    ONLY = "only"


class Span(NamedTuple):
    """A range of a table's column; None if it is open."""

    low: Bound
    high: Bound
    nulls: Nulls


@dataclass(frozen=True, kw_only=True, slots=True)
class TableChunks:
    """One table, split by `column` at the values `edges`; both are empty if it is not split.

    With `nulls` the first chunk has the rows with a null key; otherwise they are in the first
    range.
    """

    path: str
    column: str = ""
    edges: tuple[Bound, ...] = ()
    rows_each: int = 0
    nulls: bool = False

    @property
    def count(self) -> int:
        """How many chunks it has."""
        return len(self.edges) + 1 + self.nulls

    def span(self, first: int, last: int) -> Span:
        """The range of the chunks first, ..., last - 1 together."""
        if self.nulls and (first, last) == (0, 1):
            return Span(None, None, Nulls.ONLY)
        low, high = max(first - self.nulls, 0), last - self.nulls
        return Span(
            self.edges[low - 1] if low else None,
            self.edges[high - 1] if high <= len(self.edges) else None,
            Nulls.NOT if first else Nulls.ALSO,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkPosition:
    """An offset: `done` is the number of chunks read, counted over all tables in order."""

    tables: tuple[TableChunks, ...]
    done: int = 0

    @property
    def total(self) -> int:
        return sum(table.count for table in self.tables)

    def rows(self, chunks: int) -> int:
        """Estimated number of rows of the first chunks."""
        rows = 0
        for table in self.tables:
            rows += min(chunks, table.count) * table.rows_each
            chunks = max(0, chunks - table.count)
        return rows

    def spans(self, until: int) -> Iterator[tuple[int, int, int]]:
        """Chunks between `done` and `until`: table index, first chunk, chunk after the last."""
        before = 0
        for index, table in enumerate(self.tables):
            first, last = max(self.done - before, 0), min(until - before, table.count)
            if first < last:
                yield index, first, last
            before += table.count

    def to_json(self) -> dict[str, Any]:
        """The format that is stored in checkpoints."""
        tables = [
            {"path": t.path, "column": t.column, "edges": list(t.edges), "rows_each": t.rows_each}
            | ({"nulls": True} if t.nulls else {})
            for t in self.tables
        ]
        return {
            "version": 2 if any(t.nulls for t in self.tables) else 1,
            "tables": tables,
            "done": self.done,
        }

    @staticmethod
    def from_json(raw: Any) -> "ChunkPosition":
        if raw.get("version") not in range(1, VERSION + 1):
            raise TerminalError(
                f"this position of a Jdbc source has version {raw.get('version')}; this release"
                f" supports versions up to {VERSION}"
            )
        tables = [
            TableChunks(
                path=t["path"],
                column=t["column"],
                edges=tuple(t["edges"]),
                rows_each=t["rows_each"],
                nulls=t.get("nulls", False),
            )
            for t in raw["tables"]
        ]
        return ChunkPosition(tables=tuple(tables), done=raw["done"])


def end_of_batch(start: Offset, limit: Limit) -> Offset:
    """The end of the next batch: as many chunks as the limit allows, and at least one."""
    position = ChunkPosition.from_json(start)
    if position.done >= position.total:
        return start
    rows_max = min(
        (
            n
            for n in (limit.rows, limit.bytes // ROW_BYTES if limit.bytes else None)
            if n is not None
        ),
        default=None,
    )
    done, before = position.done + 1, position.rows(position.done)
    while done < position.total and (
        rows_max is None or position.rows(done + 1) - before <= rows_max
    ):
        done += 1
    return ChunkPosition(tables=position.tables, done=done).to_json()


def thin_edges(
    tables: Sequence[TableChunks], chars_max: int = EDGES_CHARS_MAX
) -> tuple[TableChunks, ...]:
    """Remove every second edge until all of them fit."""
    while sum(len(json.dumps(t.edges)) for t in tables) > chars_max and any(
        t.edges for t in tables
    ):
        tables = [
            replace(t, edges=t.edges[1::2], rows_each=t.rows_each * 2 if t.edges else t.rows_each)
            for t in tables
        ]
    return tuple(tables)
