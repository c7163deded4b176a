"""How far the snapshot of each table is, and the chunks that come next. Called by source.py, in the driver.

A chunk is a range of the first column of the key, where that is a whole number: only then keys compare in Python as they do in the database. A table with
another key is one chunk. The progress of a table is JSON:

    None                                     nothing is read
    {"upto": 16192, "cuts": [8096, 16192]}   keys up to 16192 are read; the last batch read them in these pieces
    {"upto": null, "cuts": [24288, null]}    everything is read; null is the open end
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tidegate.databases.catalogue import TableInfo
from tidegate.databases.dialect import Dialect
from tidegate.databases.session import Session
from tidegate.model.types import Table, TypeName

CHUNKS_MAX = 256
WHOLE_DIGITS = 20
Progress = dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Chunk:
    """Keys above `low` and up to `high`; None where it is open."""

    low: int | None
    high: int | None

    def holds(self, key: Any) -> bool:
        """Whether a value of the key's first column is inside."""
        return (self.low is None or key > self.low) and (self.high is None or key <= self.high)


def split_column(table: Table, wanted: str | None = None) -> str | None:
    """The column whose ranges are chunks; None where the table is read in one piece."""
    name = wanted or (table.primary_key[0] if table.primary_key else None)
    kind = next((c.type for c in table.columns if c.name == name), None)
    if kind is None or name not in table.primary_key:
        return None
    whole = kind.name in (TypeName.TINYINT, TypeName.SMALLINT, TypeName.INT, TypeName.BIGINT)
    return name if whole or (kind.name is TypeName.DECIMAL and kind.scale == 0 and kind.precision <= WHOLE_DIGITS) else None


def is_done(progress: Progress) -> bool:
    """Whether all of a table is read."""
    return progress is not None and progress["upto"] is None


def done() -> dict[str, Any]:
    """A table of which nothing but the log is read."""
    return {"upto": None, "cuts": []}


def chunks_between(start: Progress, end: Progress) -> list[Chunk]:
    """The chunks that a batch reads of a table."""
    if end is None or start == end or is_done(start):
        return []
    low = start["upto"] if start else None
    found = []
    for high in end["cuts"]:
        found.append(Chunk(low, high))
        low = high
    return found


def next_cuts(session: Session, dialect: Dialect, info: TableInfo, column: str | None, progress: Progress, rows_each: int, count: int) -> dict[str, Any]:
    """The progress after about `count` more chunks."""
    if column is None:
        return {"upto": None, "cuts": [None]}
    cuts: list[int | None] = []
    low = progress["upto"] if progress else None
    for cut in _cuts(session, dialect, info, column, low, rows_each):
        cuts.append(cut)
        if cut is None or len(cuts) >= count:
            break
    return {"upto": cuts[-1], "cuts": cuts}


def _cuts(session: Session, dialect: Dialect, info: TableInfo, column: str, low: int | None, rows_each: int) -> Iterator[int | None]:
    """Ends of chunks, by walking the index of the key; the last one is open."""
    name, table = dialect.quote(column), dialect.qualified(info.name)
    while True:
        where, given = (f"where {name} > %s", (low,)) if low is not None else ("", ())
        sql = f"select max(k), count(*) from (select {name} as k from {table} {where} order by {name} limit {int(rows_each)}) c"
        high, rows = session.query(sql, given)[0]
        if rows < rows_each:
            yield None
            return
        low = int(high)
        yield low


def chunk_condition(dialect: Dialect, column: str | None, chunk: Chunk) -> str:
    """The rows of a chunk, as a condition; empty for all rows."""
    if column is None:
        return ""
    name = dialect.quote(column)
    parts = [f"{name} > {int(chunk.low)}"] if chunk.low is not None else []
    parts += [f"{name} <= {int(chunk.high)}"] if chunk.high is not None else []
    return " and ".join(parts)


def as_key(value: Any) -> Any:
    """A key's value from Arrow, as chunks compare it."""
    return int(value) if isinstance(value, Decimal) else value


def budget(limit_rows: int | None, rows_each: int, parallelism: int) -> int:
    """How many chunks one batch reads."""
    return max(parallelism, min(CHUNKS_MAX, (limit_rows or CHUNKS_MAX * rows_each) // rows_each), 1)


def unfinished(progress: dict[str, Any], paths: Sequence[str]) -> list[str]:
    """The tables that are not read to their end, in order."""
    return [path for path in paths if not is_done(progress.get(path))]
