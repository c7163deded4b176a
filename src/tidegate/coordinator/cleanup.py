"""Carrying out cleanup records: what an ended or replaced incarnation has left on disk. Idempotent; any process may do it, at any time.

Whoever carries one out may be paused in the middle and wake up in another time: a record names only checkpoint ids that no newer incarnation uses.
"""

from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.failpoint import failpoint
from tidegate.model.document import from_document
from tidegate.model.records import CLEANUP, CleanupRecord
from tidegate.store.base import Check, Delete, Store


def carry_out_cleanup(store: Store, storage: CheckpointStorage, job_id: int) -> None:
    """Delete what the record of this job names, then the record."""
    entry = store.get(CLEANUP, str(job_id))
    if entry is None:
        return
    record = from_document(CleanupRecord, entry.value, f"cleanup of job {job_id}")
    failpoint("cleanup.delete.before")
    storage.delete_job(record.job_id, record.checkpoints_below)
    failpoint("cleanup.delete.after")
    store.transact([Check(CLEANUP, entry.key, entry.version)], [Delete(CLEANUP, entry.key)])
