"""Carries out what a record says: staged files get their final names. Anyone may do it, at any
time, together with others, and again.

Called by the committer, and by write_lineages for batches that a dead lineage left half-done.
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
    """Whether everything in a record is in place."""
    return os.path.exists(layout.done(record.checkpoint, record.identity))


def publish(layout: SinkLayout, record: CommitRecord) -> None:
    failpoint("filesink.publish.before")
    if not os.path.isdir(
        layout.base
    ):  # else the directories of the files would be made anew, on whatever disk is there now
        raise DirectoryRemoved(removed_message(layout, f"the file sink {record.sink}"))
    changed: set[str] = set()
    for index, file in enumerate(record.files):
        final = layout.final(file.final)
        changed.update(make_directory(os.path.dirname(final)), [os.path.dirname(final)])
        if not _move(staged_paths(layout, record, file), final) and not os.path.exists(final):
            _log.warning(
                "file sink: %s of checkpoint %d was published before, and is not there any more",
                final,
                record.checkpoint,
            )
        if index == 0 and len(record.files) > 1:
            failpoint("filesink.publish.middle")
    sync_all(changed)
    touch(layout.done(record.checkpoint, record.identity))
    failpoint("filesink.publish.after")


def staged_paths(layout: SinkLayout, record: CommitRecord, file: StagedFile) -> list[str]:
    """Where a staged file may be."""
    return [
        os.path.join(directory, file.staged)
        for directory in (layout.staging(record.generation), layout.retired(record.generation))
    ]


def _move(candidates: Sequence[str], final: str) -> bool:
    """Renames the first of these that is there. False: none is, so it was moved before."""
    for place in candidates:
        for _ in range(_MOVES_MAX):
            try:
                os.rename(place, final)
                return True
            except FileNotFoundError:
                if not os.path.lexists(place):
                    break
                make_directory(
                    os.path.dirname(final)
                )  # it was the target's directory that is gone: someone tidies up empty ones
        else:
            raise DiskTrouble(
                f"{final} cannot be put in place: its directory is removed again and again"
            )
    return False
