"""Carries out cleanup records: deletes what an ended or replaced incarnation left behind.

Idempotent; any leader may do it, at any time. A process that carries one out may be paused in the
middle for any time. So a record names only checkpoint ids that no newer incarnation uses, and the
keys of a job are deleted only on proof that they still belong to the incarnation of the record.
"""

from collections.abc import Sequence

from tidegate.checkpoints import paths
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.coordinator.restore.claimed_paths import claimed_paths, is_claimed
from tidegate.failpoint import failpoint
from tidegate.model.document import from_document
from tidegate.model.records import (
    ASSIGNMENTS,
    CHECKPOINT_HISTORY,
    DRIVERS,
    JOB_STATES,
    METRICS,
    PENDING_CLEANUPS,
    PIPELINES,
    RUNNING_JOBS,
    SAVEPOINTS,
    CleanupRecord,
    JobState,
    PipelineState,
)
from tidegate.store.base import Check, Delete, Entry, Store

CHUNK = 90  # keys that one transaction deletes


class StillClaimed(OSError):
    """A restore is about to copy what should be deleted: try again later."""


def carry_out_cleanup(
    store: Store,
    storage: CheckpointStorage,
    job_id: int,
    *,
    keep_state: bool = False,
    checks: Sequence[Check] = (),
) -> None:
    """Delete what the record of this job names, then the record.

    StillClaimed if that has to wait. `keep_state` leaves the tombstone to the history's expiry;
    `checks` are a leader's.
    """
    entry = store.get(PENDING_CLEANUPS, str(job_id))
    if entry is None:
        return
    record = from_document(CleanupRecord, entry.value, f"cleanup of job {job_id}")
    if record.checkpoints_below and is_claimed(
        paths.job_directory(job_id).as_posix(), claimed_paths(store)
    ):
        raise StillClaimed(f"checkpoints of job {job_id} are being restored by another job")
    failpoint("cleanup.delete.before")
    if record.checkpoints_below:
        storage.delete_job(job_id, record.checkpoints_below, record.generation or None)
    if record.resumable:
        sweep(store, storage, record)
    failpoint("cleanup.delete.after")
    own = Check(PENDING_CLEANUPS, entry.key, entry.version)
    guard, keys = leftovers(store, record, keep_state)
    failpoint("cleanup.keys.before")
    for start in range(0, len(keys), CHUNK):
        store.transact([*checks, own, *guard], keys[start : start + CHUNK])
    failpoint("cleanup.keys.after")
    last = (
        [Delete(JOB_STATES, entry.key)] if guard and not keep_state and not record.resumable else []
    )
    store.transact([*checks, own, *guard], [*last, Delete(PENDING_CLEANUPS, entry.key)])


def sweep(store: Store, storage: CheckpointStorage, record: CleanupRecord) -> None:
    """Delete all but the retained checkpoints of a job that can be resumed.

    No later driver will delete those that the last one had pending for deletion, or half written.
    Nothing is touched if a newer incarnation or a restore uses the job.
    """
    key = str(record.job_id)
    state = store.get(JOB_STATES, key)
    if (
        state is None
        or store.get(RUNNING_JOBS, key) is not None
        or is_claimed(paths.job_directory(record.job_id).as_posix(), claimed_paths(store))
    ):
        return
    ended = from_document(JobState, state.value, f"state of job {key}")
    if ended.initialization_ms != record.initialization_ms:
        return
    for entry in store.list(PIPELINES, f"{key}/"):
        pipeline = from_document(PipelineState, entry.value, f"pipeline {entry.key}")
        storage.sweep(
            record.job_id,
            pipeline.pipeline,
            {ref.path for ref in pipeline.retained},
            ended.generation,
        )


def leftovers(
    store: Store, record: CleanupRecord, keep_state: bool
) -> tuple[list[Check], list[Delete]]:
    """Return the keys of that incarnation besides its state, and checks that prove the owner."""
    key = str(record.job_id)
    state, job = store.get(JOB_STATES, key), store.get(RUNNING_JOBS, key)
    if (
        state is not None
        and from_document(JobState, state.value, f"state of job {key}").initialization_ms
        != record.initialization_ms
    ):
        return [], []
    guard = [
        Check(JOB_STATES, key, state.version if state else 0),
        Check(RUNNING_JOBS, key, job.version if job else 0),
    ]
    if job is not None:
        return [], []
    keys = [
        *_keys(DRIVERS, store.get(DRIVERS, key)),
        *_keys(ASSIGNMENTS, store.get(ASSIGNMENTS, key)),
        *_keys(METRICS, *store.list(METRICS, f"{key}/")),
    ]
    if not record.resumable:
        keys += _keys(PIPELINES, *store.list(PIPELINES, f"{key}/"))
        if not keep_state:
            keys += _keys(SAVEPOINTS, store.get(SAVEPOINTS, key))
            keys += _keys(CHECKPOINT_HISTORY, *store.list(CHECKPOINT_HISTORY, f"{key}/"))
    return guard, keys


def _keys(map: str, *entries: Entry | None) -> list[Delete]:
    return [Delete(map, entry.key) for entry in entries if entry is not None]
