"""Carrying out cleanup records: what an ended or replaced incarnation has left on disk. Idempotent; any process may do it, at any time.

While a record is there no driver of that job starts, so what it names cannot belong to a newer incarnation.
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
    storage.delete_job(record.job_id)
    failpoint("cleanup.delete.after")
    store.transact([Check(CLEANUP, entry.key, entry.version)], [Delete(CLEANUP, entry.key)])
