"""Publish a recorded batch: rename its staged files to their final names.

Called by the committer, and by lineage_cleanup for batches that a dead lineage left half-done. Any
process may do it, at any time, concurrently with others, and repeatedly.
"""

import logging
import os
from collections.abc import Sequence

from tidegate.connectors.localfile.commit_record import CommitRecord, StagedFile
from tidegate.connectors.localfile.durable_io import DiskTrouble, make_directory, sync_all, touch
from tidegate.connectors.localfile.fence import DirectoryRemoved, removed_message
from tidegate.connectors.localfile.sink_layout import SinkLayout
from tidegate.failpoint import failpoint

_MOVES_MAX = 5
_log = logging.getLogger(__name__)


def is_done(layout: SinkLayout, record: CommitRecord) -> bool:
    """Report whether all files of a record are published."""
    return os.path.exists(layout.done(record.checkpoint, record.identity))


def publish(layout: SinkLayout, record: CommitRecord) -> None:
    failpoint("filesink.publish.before")
    # Otherwise the target directories would be created again, on whichever disk is mounted now.
    if not os.path.isdir(layout.base):
        raise DirectoryRemoved(removed_message(layout, f"the file sink {record.sink}"))
    changed: set[str] = set()
    for index, file in enumerate(record.files):
        final = layout.final(file.final)
        changed.update(make_directory(os.path.dirname(final)), [os.path.dirname(final)])
        if not _move(staged_paths(layout, record, file), final) and not os.path.exists(final):
            _log.warning(
                "published_file_missing",
                extra={"path": final, "checkpoint": record.checkpoint},
            )
        if index == 0 and len(record.files) > 1:
            failpoint("filesink.publish.middle")
    sync_all(changed)
    touch(layout.done(record.checkpoint, record.identity))
    failpoint("filesink.publish.after")


def staged_paths(layout: SinkLayout, record: CommitRecord, file: StagedFile) -> list[str]:
    """List the paths at which a staged file may be."""
    return [
        os.path.join(directory, file.staged)
        for directory in (layout.staging(record.generation), layout.retired(record.generation))
    ]


def _move(candidates: Sequence[str], final: str) -> bool:
    """Rename the first existing candidate; False if none exists, so it was moved before."""
    for candidate in candidates:
        for _ in range(_MOVES_MAX):
            try:
                os.rename(candidate, final)
                return True
            except FileNotFoundError:
                if not os.path.lexists(candidate):
                    break
                # The target's directory is gone: another process removes empty ones.
                make_directory(os.path.dirname(final))
        else:
            raise DiskTrouble(f"{final} cannot be published: its directory is removed repeatedly")
    return False
