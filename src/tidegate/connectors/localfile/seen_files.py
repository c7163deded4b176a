"""Marks of the files that a continuous source has read.

Called by source.py. A mark is kept while its file exists, and for file_retention after the file was
found missing: files of an unmounted disk come back. The mark holds the minute in which the file was
first found missing. If more marks than the limit would have to be kept, the files that are missing
longest are forgotten first, with a warning; never one that has been missing for less than an hour:
then the source fails instead.
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
    """Hashes of the files that are done, and since which minute some of them are missing."""

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
    """Return the marks after a batch.

    Times are rounded to a hundredth of the retention, so that there are few distinct ones.
    """
    tick = max(1, retention_ms // 100 // MINUTE_MS)
    minute = now_ms // MINUTE_MS // tick * tick
    missing = (position.seen or frozenset()) - frozenset(present) - frozenset(done)
    missing_since = {each: position.missing_since.get(each, minute) for each in missing}
    missing_since = {
        each: since
        for each, since in missing_since.items()
        if now_ms - since * MINUTE_MS < retention_ms + (tick * MINUTE_MS if retention_ms else 0)
    }
    seen = ((position.seen or frozenset()) - missing) | frozenset(done)
    over = len(seen) + len(missing_since) - limit
    if over > 0:
        missing_since = _forget(missing_since, over, minute, len(seen))
    return SeenFiles(seen | missing_since.keys(), missing_since)


def _forget(
    missing_since: dict[bytes, int], count: int, minute: int, seen: int
) -> dict[bytes, int]:
    oldest = sorted(missing_since, key=lambda each: (missing_since[each], each))[:count]
    if len(oldest) < count or any(
        minute - missing_since[each] < KEPT_MINUTES_MIN for each in oldest
    ):
        raise SeenFilesOverflow(seen + len(missing_since), len(missing_since))
    LOG.warning(
        "file_marks_forgotten",
        extra={"files": count, "missing_min": minute - missing_since[oldest[0]]},
    )
    return {each: since for each, since in missing_since.items() if each not in set(oldest)}


def check_mounts(
    mounts: Sequence[str],
    listed: Sequence[tuple[int, FileInfo]],
    seen: Collection[bytes],
    skips: Callable[[str], bool],
) -> None:
    """Check that the disks that files were read from are still mounted.

    SourceUnreachable if one is not, and none of its files exists.
    """
    for mount in mounts:
        if os.path.ismount(mount) or skips(mount):
            continue
        below = mount.rstrip("/") + "/"
        if not any(
            info.path.startswith(below) and file_hash(table, info.path) in seen
            for table, info in listed
        ):
            raise SourceUnreachable(
                f"{mount} is no longer mounted, and files were read from it: mount it, or restart"
                f" without it with --restore latest --skip-file {mount}"
            )
