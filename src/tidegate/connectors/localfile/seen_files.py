"""What a continuous source remembers of the files that it has read: kept while they are in sight,
and for file_retention after.

Called by source.py.

Out of sight is not gone: a disk that is not mounted has all its files back when it is. So a mark
is kept, with the minute in which the file was first found missing. Where more than the limit
would have to be kept, those that are out of sight longest are forgotten first, with a warning;
never one that has been out of sight for less than an hour: then the source stops instead.
"""

import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tidegate.connectors.localfile.listing import FileInfo
from tidegate.connectors.localfile.position import FilePosition, file_hash
from tidegate.model.errors import SourceUnreachable

LOG = logging.getLogger("tidegate.localfile")
MINUTE_MS = 60_000
KEPT_MINUTES_MIN = 60


class SeenFilesOverflow(Exception):
    """Too many files are remembered, and none of them may be forgotten."""

    def __init__(self, count: int, away: int) -> None:
        super().__init__(count, away)
        self.count = count
        self.missing = away


@dataclass(frozen=True, slots=True)
class SeenFiles:
    """The marks of the files that are done, and since which minute some of them are out of sight."""

    seen: frozenset[bytes]
    missing_since: Mapping[bytes, int]


def update_seen_files(
    position: FilePosition,
    present: Collection[bytes],
    done: Collection[bytes],
    *,
    now_ms: int,
    retention_ms: int,
    limit: int,
) -> SeenFiles:
    """The memory after a batch.

    Times are rounded to a hundredth of the retention, so that they are few.
    """
    tick = max(1, retention_ms // 100 // MINUTE_MS)
    minute = now_ms // MINUTE_MS // tick * tick
    out_of_sight = (position.seen or frozenset()) - frozenset(present) - frozenset(done)
    away = {each: position.missing_since.get(each, minute) for each in out_of_sight}
    away = {
        each: since
        for each, since in away.items()
        if now_ms - since * MINUTE_MS < retention_ms + (tick * MINUTE_MS if retention_ms else 0)
    }
    seen = ((position.seen or frozenset()) - out_of_sight) | frozenset(done)
    over = len(seen) + len(away) - limit
    if over > 0:
        away = _forget(away, over, minute, len(seen))
    return SeenFiles(seen | away.keys(), away)


def _forget(away: dict[bytes, int], count: int, minute: int, seen: int) -> dict[bytes, int]:
    oldest = sorted(away, key=lambda each: (away[each], each))[:count]
    if len(oldest) < count or any(minute - away[each] < KEPT_MINUTES_MIN for each in oldest):
        raise SeenFilesOverflow(seen + len(away), len(away))
    LOG.warning(
        "file_marks_forgotten: there are too many files to remember; those out of sight longest"
        " would be read again if they came back",
        extra={"files": count, "out_of_sight_min": minute - away[oldest[0]]},
    )
    return {each: since for each, since in away.items() if each not in set(oldest)}


def check_mounts(
    mounts: Sequence[str],
    listed: Sequence[tuple[int, FileInfo]],
    seen: Collection[bytes],
    skips: Callable[[str], bool],
) -> None:
    """SourceUnreachable where a disk that files were read from is not mounted any more, and none of
    them is there.
    """
    for place in mounts:
        if os.path.ismount(place) or skips(place):
            continue
        below = place.rstrip("/") + "/"
        if not any(
            info.path.startswith(below) and file_hash(table, info.path) in seen
            for table, info in listed
        ):
            raise SourceUnreachable(
                f"{place} is not mounted any more, and files were read from it: mount it, or start"
                f" again without it with --restore latest --skip-file {place}"
            )
