"""Remove what older lineages of the same job left for this sink.

Called by the committer when a fresh lineage opens: the drivers of older lineages are dead, and
nothing will ever be restored from them. Must not touch anything of another job, pipeline or sink.

A batch that was recorded but not published is published first, so that a reader never keeps half of
it. Then everything of the old lineage is removed atomically, by a rename; after an interruption,
the next fresh start completes it. Published files stay.

A lineage is removed only if its fence proves that it is ours and dead: it names this installation,
and a generation below this one. Numbers only grow within an installation, so a copy of it that has
continued since has a higher one. Lineages of other installations stay, and those of releases whose
fences named no installation. A lineage that another job has taken over belongs to that job, as a
mark says, and nothing of it is touched.
"""

import logging
import os
import re
from collections.abc import Collection, Iterator
from contextlib import suppress

from tidegate.connectors.localfile.commit_record import (
    BadRecord,
    CommitRecord,
    NoRecord,
    read_record,
    recorded_checkpoints,
)
from tidegate.connectors.localfile.durable_io import (
    create_file,
    discard,
    list_names,
    remove_empty,
    remove_tree,
    sync,
    touch,
)
from tidegate.connectors.localfile.fence import Fence, highest_fence
from tidegate.connectors.localfile.publishing import is_done, publish
from tidegate.connectors.localfile.rollback import GENERATIONS_MAX, TRANSACTION, data_files
from tidegate.connectors.localfile.sink_layout import SinkDirectory, SinkLayout
from tidegate.failpoint import failpoint

COUNTED_MAX = 1000
_LINEAGE = re.compile(r"(?P<job>-?\d+)-[0-9a-f]+")
_log = logging.getLogger(__name__)


def remove_older_lineages(sink: SinkDirectory, lineage: str, mine: Fence) -> None:
    """Remove older lineages, as described above.

    A lineage without a job's id in its name has no older ones.
    """
    for older in _older_lineages(sink, lineage):
        layout = sink.layout(older)
        if layout.owners() or not (
            _is_superseded(layout, mine)
            or (os.path.isdir(layout.removal) and not os.path.isdir(layout.base))
        ):
            continue
        failpoint("filesink.lineages.before")
        _publish_pending(layout)
        remove_tree(layout.removal)
        with suppress(FileNotFoundError):
            os.rename(
                layout.base, layout.removal
            )  # atomically: half of the records would be worse than none
        failpoint("filesink.lineages.middle")
        remove_tree(layout.removal)
        remove_empty(os.path.dirname(layout.base))
        failpoint("filesink.lineages.after")
        _log.info("lineage_removed", extra={"lineage": older, "sink": sink.operator})


def _is_superseded(layout: SinkLayout, mine: Fence) -> bool:
    fence = highest_fence(layout)
    return (
        fence is not None
        and fence.installation == mine.installation
        and fence.generation < mine.generation
    )


def describe_foreign_files(sink: SinkDirectory, lineage: str) -> str:
    """Describe the files of other lineages below the path; empty if there are none.

    Counting stops early: a directory may be large.
    """
    ours = {sink.digest(lineage, generation) for generation in range(GENERATIONS_MAX)}
    found = []
    for path in data_files(sink.root):
        if not any(m["digest"] in ours for m in TRANSACTION.finditer(os.path.basename(path))):
            found.append(path)
        if len(found) == COUNTED_MAX:
            return f"at least {COUNTED_MAX} files"
    return f"{len(found)} file{'s' if len(found) > 1 else ''}" if found else ""


def stop_other_writers(mine: SinkLayout, removed: Collection[str]) -> None:
    """Stop the lineages whose files the save mode is about to remove.

    Applies to lineages that have written some of these files and have not finished. First their
    mark is set, then their staging directories are retired: from then on they can commit nothing,
    and find the mark.
    """
    by = (
        f"job {os.path.basename(os.path.dirname(mine.base)).partition('-')[0]} (lineage"
        f" {os.path.basename(os.path.dirname(mine.base))})"
    )
    removed_digests = {
        found["digest"]
        for path in removed
        for found in TRANSACTION.finditer(os.path.basename(path))
    }
    for layout in _unfinished(mine) if removed_digests else ():
        if removed_digests & _digests(layout):
            failpoint("filesink.dropped.before")
            with suppress(FileExistsError):
                create_file(layout.dropped, by.encode())
            sync(layout.base)
            failpoint("filesink.dropped.after")
            for name in list_names(layout.staging_root):
                retire_staging(
                    os.path.join(layout.staging_root, name), os.path.join(layout.retired_root, name)
                )
            _log.warning(
                "save_mode_removes_files",
                extra={
                    "by": by,
                    "lineage": os.path.basename(os.path.dirname(layout.base)),
                },
            )


def _unfinished(mine: SinkLayout) -> Iterator[SinkLayout]:
    """Yield all other sinks of any job that have records below this path."""
    root = mine.sink.bookkeeping
    for lineage in list_names(root):
        for name in list_names(os.path.join(root, lineage)):
            base = os.path.join(root, lineage, name)
            if base != mine.base and not name.endswith(".gone"):
                yield SinkLayout(mine.sink, base)


def _digests(layout: SinkLayout) -> set[str]:
    """Return the digests in the names of this sink's files; its records identify the sink."""
    for checkpoint in reversed(recorded_checkpoints(layout)):
        try:
            record = read_record(layout, checkpoint)
        except BadRecord:
            continue
        if isinstance(record, CommitRecord):
            sink = SinkDirectory(layout.sink.root, record.pipeline, record.sink)
            return {
                sink.digest(record.lineage, generation)
                for generation in range(max(layout.fences(), default=0) + 1)
            }
    return set()


def retire_staging(staging: str, retired: str) -> None:
    """Rename a staging directory to its retired name.

    If one of this name was retired before, its files are merged into that.
    """
    try:
        os.rename(staging, retired)
    except FileNotFoundError:
        return
    except OSError:
        if not os.path.isdir(retired):
            raise
        for name in list_names(staging):
            os.replace(os.path.join(staging, name), os.path.join(retired, name))
        remove_empty(staging)


def mark_owner(layout: SinkLayout, lineage: str, job_id: int) -> None:
    """Record this job as owner of a lineage that another job began."""
    began = _LINEAGE.fullmatch(lineage)
    if began and int(began["job"]) != job_id:
        touch(layout.owner(job_id))
    elif began:
        for mark in layout.owners():
            discard(mark)


def _older_lineages(sink: SinkDirectory, lineage: str) -> list[str]:
    mine = _LINEAGE.fullmatch(lineage)
    found = (
        [(name, _LINEAGE.fullmatch(name)) for name in list_names(sink.bookkeeping)] if mine else []
    )
    return [
        name
        for name, other in found
        if mine and other and other["job"] == mine["job"] and name != lineage
    ]


def _publish_pending(layout: SinkLayout) -> None:
    for checkpoint in recorded_checkpoints(layout):
        try:
            record = read_record(layout, checkpoint)
        except BadRecord as error:
            _log.warning("commit_record_unreadable", extra={"error": str(error)})
            continue
        if not isinstance(record, NoRecord) and not is_done(layout, record):
            publish(layout, record)
