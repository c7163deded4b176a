"""Roll batches back by the names of their files, if the records are gone.

Called by the committer when it opens. Records are removed when a job finishes, or by hand. The
transaction id in every name identifies sink, lineage, generation and batch. Only names that a lower
generation of this very sink can have given are touched.
"""

import logging
import os
import re
from collections.abc import Collection, Iterator

from tidegate.connectors.localfile.durable_io import discard, sync_all
from tidegate.connectors.localfile.sink_layout import SinkDirectory
from tidegate.failpoint import failpoint
from tidegate.model.errors import OtherCopy, TerminalError
from tidegate.plugin.contract import SinkRestore

TRANSACTION = re.compile(r"T_\d+_(?P<digest>[0-9a-f]{10})_\d+_(?P<checkpoint>\d+)")
GENERATIONS_MAX = 1000
"""How many higher generations are checked to find another copy of the installation."""
_log = logging.getLogger(__name__)


def roll_back_by_name(
    sink: SinkDirectory,
    resume: SinkRestore,
    *,
    only: Collection[int] | None = None,
    keep: Collection[int] = (),
) -> None:
    """Remove the files of all batches after the restore point, or of the batches in `only`.

    Includes the pending batch: without a record its repetition would not be recognised.
    """
    digests = {sink.digest(resume.lineage, generation) for generation in range(resume.generation)}
    failpoint("filesink.takeback.before")
    newer = [
        path
        for path in data_files(sink.root)
        if _is_newer(os.path.basename(path), digests, resume.checkpoint, only, keep)
    ]
    for index, path in enumerate(newer):
        discard(path)
        if index == 0:
            failpoint("filesink.takeback.middle")
    sync_all(os.path.dirname(path) for path in newer)
    failpoint("filesink.takeback.after")
    if newer:
        _log.info(
            "files_rolled_back",
            extra={"files": len(newer), "checkpoint": resume.checkpoint, "sink": sink.operator},
        )


class NewerFiles(TerminalError):
    """The target holds files after the restore point, and no records that explain them."""

    condition = "sink-newer-files"

    def __init__(self, root: str, found: int, checkpoint: int) -> None:
        super().__init__(
            f"{root} holds files of checkpoint {found}, after the restore point {checkpoint}, and"
            " no record of them: another copy of this installation has finished the job there, or"
            " .tidegate was removed. Nothing was changed. To discard that output, restore an older"
            " checkpoint (--restore checkpoint:<id>), or start over with --restore fresh"
        )
        self.root = root
        self.found = found
        self.checkpoint = checkpoint


def refuse_newer_by_name(sink: SinkDirectory, resume: SinkRestore, description: str) -> None:
    """Check for files after the restore point if all records are gone.

    Such files belong to another copy of this installation, except those of the batch that will be
    repeated, and those of lower generations when rewinding on purpose.
    """
    lower = {sink.digest(resume.lineage, generation) for generation in range(resume.generation)}
    higher = {
        sink.digest(resume.lineage, resume.generation + more) for more in range(GENERATIONS_MAX)
    }
    for digest, number in _transactions(sink):
        if number > resume.checkpoint and digest in higher:
            raise OtherCopy(f"{description} at {sink.root}", resume.generation)
        if (
            number > resume.checkpoint
            and digest in lower
            and not resume.rewind
            and number != resume.pending
        ):
            raise NewerFiles(sink.root, number, resume.checkpoint)


def checkpoint_by_names(sink: SinkDirectory, resume: SinkRestore, *, transactional: bool) -> int:
    """Return the checkpoint that the files prove if neither record nor fence is left.

    That is the restore point or an older one, and 0 if nothing exists. The state of the checkpoint
    says which batch was the last with files. Without transactions the names prove nothing: then any
    file will do.
    """
    filled = (resume.state or {}).get("filled")
    if filled == 0:
        return resume.checkpoint  # no batch had files, so none can be missing
    if not transactional:
        return resume.checkpoint if next(data_files(sink.root), None) else 0
    digests = {
        sink.digest(resume.lineage, generation)
        for generation in range(resume.generation + GENERATIONS_MAX)
    }
    newest = max(
        (
            number
            for digest, number in _transactions(sink)
            if digest in digests and number <= resume.checkpoint
        ),
        default=0,
    )
    return resume.checkpoint if newest >= max(filled or 1, 1) else newest


def _transactions(sink: SinkDirectory) -> Iterator[tuple[str, int]]:
    """Yield the digest and the checkpoint in the names of the files."""
    for path in data_files(sink.root):
        for found in TRANSACTION.finditer(os.path.basename(path)):
            yield found["digest"], int(found["checkpoint"])


def _is_newer(
    name: str,
    digests: set[str],
    checkpoint: int,
    only: Collection[int] | None,
    keep: Collection[int],
) -> bool:
    found = [int(m["checkpoint"]) for m in TRANSACTION.finditer(name) if m["digest"] in digests]
    return any(
        number > checkpoint and (only is None or number in only) and number not in keep
        for number in found
    )


def data_files(directory: str) -> Iterator[str]:
    """Yield all files below a directory that are not hidden, in any order, lazily."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    yield from data_files(entry.path)
                else:
                    yield entry.path
    except FileNotFoundError:
        return
