"""Takes batches back by the names of their files, where the records are gone: after a job finished, or by hand. Called by the committer when it opens.

The transaction id in every name says sink, lineage, generation and batch. Only names that a lower generation of this very sink can have given are touched.
"""

import logging
import os
import re
from collections.abc import Collection, Iterator

from tidegate.connectors.localfile.durable import discard, names, sync_all
from tidegate.connectors.localfile.write_layout import Place
from tidegate.failpoint import failpoint
from tidegate.plugin.contract import Resume

_TRANSACTION = re.compile(r"T_\d+_(?P<digest>[0-9a-f]{10})_\d+_(?P<checkpoint>\d+)")
_log = logging.getLogger(__name__)


def take_back_by_name(place: Place, resume: Resume, *, only: Collection[int] | None = None, spared: Collection[int] = ()) -> None:
    """Removes the files of all batches after the restore point, or of some. The pending one too: without a record its repeat would not be recognised."""
    digests = {place.digest(resume.lineage, generation) for generation in range(resume.generation)}
    failpoint("filesink.takeback.before")
    newer = [path for path in _files(place.root) if _is_newer(os.path.basename(path), digests, resume.checkpoint, only, spared)]
    for index, path in enumerate(newer):
        discard(path)
        if index == 0:
            failpoint("filesink.takeback.middle")
    sync_all(os.path.dirname(path) for path in newer)
    failpoint("filesink.takeback.after")
    if newer:
        _log.info("file sink: took back %d files after checkpoint %d by their names", len(newer), resume.checkpoint, extra={"sink": place.operator})


def _is_newer(name: str, digests: set[str], checkpoint: int, only: Collection[int] | None, spared: Collection[int]) -> bool:
    found = [int(m["checkpoint"]) for m in _TRANSACTION.finditer(name) if m["digest"] in digests]
    return any(number > checkpoint and (only is None or number in only) and number not in spared for number in found)


def _files(directory: str) -> Iterator[str]:
    """All files below, but nothing hidden."""
    for name in names(directory):
        path = os.path.join(directory, name)
        if name.startswith("."):
            continue
        if os.path.isdir(path) and not os.path.islink(path):
            yield from _files(path)
        else:
            yield path
