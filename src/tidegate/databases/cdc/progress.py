"""Snapshot progress of each table, and the chunks that come next.

Called by source.py, in the driver. A chunk is a range of one column of the key, by default its
first (keys.py decides what can be split). The progress of a table is JSON:

    None                                     nothing is read
    {"upto": 16192, "cuts": [8096, 16192]}   keys up to 16192 are read, in the last
                                             batch as these chunks
    {"upto": null, "cuts": [24288, null]}    everything is read; null is unbounded

It also has "order": [column, collation], which gives the bounds their meaning; former versions,
which knew integers only, wrote none. Bounds of other types are strings, {"number": "1.5"} or
{"bytes": "0a"}, as chunks.py writes them.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any

from tidegate.databases.cdc.keys import KeyChunk, SplitKey
from tidegate.databases.chunks import Bound, walk_keys
from tidegate.databases.session import Session

CHUNKS_MAX = 256
Progress = dict[str, Any] | None


def is_done(progress: Progress) -> bool:
    """Return whether the snapshot of a table is complete."""
    return progress is not None and progress["upto"] is None


def snapshot_done() -> dict[str, Any]:
    """Return the progress of a table of which only the log is read."""
    return {"upto": None, "cuts": []}


def chunks_between(start: Progress, end: Progress) -> list[KeyChunk]:
    """Return the chunks of a table that a batch reads."""
    if end is None or start == end or is_done(start):
        return []
    low = start["upto"] if start else None
    found = []
    for high in end["cuts"]:
        found.append(KeyChunk(low, high))
        low = high
    return found


def next_cuts(
    session: Session,
    relation: str,
    key: SplitKey | None,
    progress: Progress,
    rows_each: int,
    count: int,
) -> dict[str, Any]:
    """Return the progress after about `count` more chunks."""
    if key is None:
        return {"upto": None, "cuts": [None]}
    low = progress["upto"] if progress else None
    cuts: list[Bound] = list(
        islice(
            walk_keys(session, key.keys(relation), rows_each, ahead=rows_each - 1, after=low), count
        )
    )
    if len(cuts) < count:
        cuts.append(None)  # end of the index: the last chunk is unbounded
    return {"upto": cuts[-1], "cuts": cuts, "order": key.order}


def chunk_budget(limit_rows: int | None, rows_each: int, parallelism: int) -> int:
    """Return how many chunks one batch reads."""
    return max(parallelism, min(CHUNKS_MAX, (limit_rows or CHUNKS_MAX * rows_each) // rows_each), 1)


def unfinished(progress: dict[str, Any], paths: Sequence[str]) -> list[str]:
    """Return the tables whose snapshot is not complete, in order."""
    return [path for path in paths if not is_done(progress.get(path))]
