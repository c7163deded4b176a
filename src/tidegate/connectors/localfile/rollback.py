"""Takes batches back by the names of their files, where the records are gone: after a job finished,
or by hand. Called by the committer when it opens.

The transaction id in every name says sink, lineage, generation and batch. Only names that a lower
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
"""How far above this generation another copy of the installation is looked for."""
_log = logging.getLogger(__name__)


def roll_back_by_name(
    sink: SinkDirectory,
    resume: SinkRestore,
    *,
    only: Collection[int] | None = None,
    keep: Collection[int] = (),
) -> None:
    """Removes the files of all batches after the restore point, or of some.

    The pending one too: without a record its repeat would not be recognised.
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
            "file sink: took back %d files after checkpoint %d by their names",
            len(newer),
            resume.checkpoint,
            extra={"sink": sink.operator},
        )


class NewerFiles(TerminalError):
    """The target holds more than the restore point tells of, and the records that would say what it
    is are gone.
    """

    condition = "sink-newer-files"

    def __init__(self, root: str, found: int, checkpoint: int) -> None:
        super().__init__(
            f"{root} holds files of checkpoint {found}, after the restore point {checkpoint}, and"
            " no record of them: another copy of this installation has finished the job there, or"
            " .tidegate was removed. Nothing was changed. If that output is to go, go back on"
            " purpose (--restore checkpoint:<id>), or start over with --restore fresh"
        )
        self.root = root
        self.found = found
        self.checkpoint = checkpoint


def refuse_newer_by_name(sink: SinkDirectory, resume: SinkRestore, what: str) -> None:
    """Where all records are gone: files after the restore point are another copy's of this
    installation, except those of the batch that will be repeated, and those of lower generations on
    the way back on purpose.
    """
    lower = {sink.digest(resume.lineage, generation) for generation in range(resume.generation)}
    higher = {
        sink.digest(resume.lineage, resume.generation + more) for more in range(GENERATIONS_MAX)
    }
    for digest, number in _transactions(sink):
        if number > resume.checkpoint and digest in higher:
            raise OtherCopy(f"{what} at {sink.root}", resume.generation)
        if (
            number > resume.checkpoint
            and digest in lower
            and not resume.rewind
            and number != resume.pending
        ):
            raise NewerFiles(sink.root, number, resume.checkpoint)


def checkpoint_by_names(sink: SinkDirectory, resume: SinkRestore, *, transactional: bool) -> int:
    """The checkpoint that the files prove where neither record nor fence is left: the restore
    point, or an older one; 0 where nothing is there.

    The state of the checkpoint says which one was the last with files. Without transactions the
    names say nothing: then any file will do.
    """
    filled = (resume.state or {}).get("filled")
    if filled == 0:
        return resume.checkpoint  # never a file: nothing can be missing
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
    """Whose batches the files are of, by their names."""
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
    """All files below, in any order, but nothing hidden; listed as they are asked for."""
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
