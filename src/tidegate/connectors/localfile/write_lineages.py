"""Collects what older lineages of the same job left for this sink: their drivers are dead, and nothing will ever be restored from them.

Called by the committer when a fresh lineage opens.

A batch that was decided but not carried out is carried out first, so that a reader never keeps half of it. Then everything of the old lineage goes at once, by
a rename; whatever cuts this off, the next fresh start goes on with it. Published files stay. A driver that is alive all the same, of another installation that
uses the same job id and directory, finds its staging directory gone and is fenced; when it opens again it goes by the names of its files.

A lineage that another job has taken up is that job's: it says so by a mark, and nothing of it is touched.

Must not touch anything of another job, pipeline or sink.
"""

import logging
import os
import re
from contextlib import suppress

from tidegate.connectors.localfile.durable import discard, names, remove_empty, remove_tree, touch
from tidegate.connectors.localfile.write_layout import Layout, Place
from tidegate.connectors.localfile.write_publish import is_done, publish
from tidegate.connectors.localfile.write_record import BadRecord, NoRecord, checkpoints, read_record
from tidegate.failpoint import failpoint

_LINEAGE = re.compile(r"(?P<job>-?\d+)-[0-9a-f]+")
_log = logging.getLogger(__name__)


def collect_older(place: Place, lineage: str) -> None:
    """See the module's text. A lineage without a job's id in its name has no older ones."""
    for older in _others(place, lineage):
        layout = place.layout(older)
        if layout.owners() or not (os.path.isdir(layout.base) or os.path.isdir(layout.gone)):
            continue
        failpoint("filesink.lineages.before")
        _carry_out(layout)
        remove_tree(layout.gone)
        with suppress(FileNotFoundError):
            os.rename(layout.base, layout.gone)  # all at once: half of the records would be worse than none
        failpoint("filesink.lineages.middle")
        remove_tree(layout.gone)
        remove_empty(os.path.dirname(layout.base))
        failpoint("filesink.lineages.after")
        _log.info("file sink: collected what lineage %s left", older, extra={"sink": place.operator})


def mark_owner(layout: Layout, lineage: str, job_id: int) -> None:
    """Say whose this lineage is, where it is not the job's that began it."""
    began = _LINEAGE.fullmatch(lineage)
    if began and int(began["job"]) != job_id:
        touch(layout.owner(job_id))
    elif began:
        for mark in layout.owners():
            discard(mark)


def _others(place: Place, lineage: str) -> list[str]:
    mine = _LINEAGE.fullmatch(lineage)
    found = [(name, _LINEAGE.fullmatch(name)) for name in names(place.bookkeeping)] if mine else []
    return [name for name, other in found if mine and other and other["job"] == mine["job"] and name != lineage]


def _carry_out(layout: Layout) -> None:
    for checkpoint in checkpoints(layout):
        try:
            record = read_record(layout, checkpoint)
        except BadRecord as error:
            _log.warning("file sink: a batch of an older lineage cannot be carried out: %s", error)
            continue
        if not isinstance(record, NoRecord) and not is_done(layout, record):
            publish(layout, record)
