"""Where a Jdbc source is: the chunks of every table, fixed when it began, and how many of them are done. Pure; called by source.py.

The chunks are part of the offset, so that a batch that is repeated asks for the same ranges, and a killed read goes on at a chunk. The store takes no document
over 1 MiB, and a pending batch holds two offsets of every source: the chunks of all tables together are kept below EDGES_CHARS_MAX.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.databases.chunks import Bound
from tidegate.model.errors import TerminalError

VERSION = 1
EDGES_CHARS_MAX = 100_000


@dataclass(frozen=True, kw_only=True, slots=True)
class TableChunks:
    """One table: `edges` are the values between its chunks, by `column`; none of both where it is read as a whole."""

    path: str
    column: str = ""
    edges: tuple[Bound, ...] = ()
    rows_each: int = 0

    @property
    def count(self) -> int:
        """How many chunks it has."""
        return len(self.edges) + 1

    def bounds(self, first: int, last: int) -> tuple[Bound, Bound]:
        """The range of the chunks first, ..., last - 1 together."""
        return (self.edges[first - 1] if first > 0 else None), (self.edges[last - 1] if last < self.count else None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Position:
    """An offset: the chunks before `done` are read, counted over all tables in order."""

    tables: tuple[TableChunks, ...]
    done: int = 0

    @property
    def total(self) -> int:
        """All chunks."""
        return sum(table.count for table in self.tables)

    def rows(self, chunks: int) -> int:
        """About how many rows the first chunks have."""
        rows = 0
        for table in self.tables:
            rows += min(chunks, table.count) * table.rows_each
            chunks = max(0, chunks - table.count)
        return rows

    def spans(self, until: int) -> Iterator[tuple[int, int, int]]:
        """What is between `done` and `until`: for each table its index, first chunk, and the one after the last."""
        before = 0
        for index, table in enumerate(self.tables):
            first, last = max(self.done - before, 0), min(until - before, table.count)
            if first < last:
                yield index, first, last
            before += table.count

    def to_json(self) -> dict[str, Any]:
        """As it is kept in checkpoints."""
        tables = [{"path": t.path, "column": t.column, "edges": list(t.edges), "rows_each": t.rows_each} for t in self.tables]
        return {"version": VERSION, "tables": tables, "done": self.done}

    @staticmethod
    def of(raw: Any) -> "Position":
        """From its JSON."""
        if raw.get("version") != VERSION:
            raise TerminalError(f"this position of a Jdbc source has version {raw.get('version')}; version {VERSION} is understood")
        tables = [TableChunks(path=t["path"], column=t["column"], edges=tuple(t["edges"]), rows_each=t["rows_each"]) for t in raw["tables"]]
        return Position(tables=tuple(tables), done=raw["done"])


def thinned(tables: Sequence[TableChunks], chars_max: int = EDGES_CHARS_MAX) -> tuple[TableChunks, ...]:
    """Every second edge goes until all of them fit."""
    while sum(len(json.dumps(t.edges)) for t in tables) > chars_max and any(t.edges for t in tables):
        tables = [TableChunks(path=t.path, column=t.column, edges=t.edges[1::2], rows_each=t.rows_each * 2 if t.edges else t.rows_each) for t in tables]
    return tuple(tables)
