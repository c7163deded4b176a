"""Expiry of history: what the store forgets of an ended job, and what stays.

Called by housekeeping and by `tidegate state expire`. Deletes the outcome, the tombstone, the
metrics and the checkpoint records from the store. Checkpoint and savepoint directories stay: that
the job has left some is recorded, so that the collector knows since when they are orphans.
"""

from collections.abc import Iterator, Sequence

from tidegate.coordinator.job_snapshot import name_key
from tidegate.failpoint import failpoint
from tidegate.model.document import from_document, to_document
from tidegate.model.maintenance import EXPIRED_JOBS, ExpiredJob
from tidegate.model.records import (
    CHECKPOINT_HISTORY,
    JOB_NAMES,
    JOB_OUTCOMES,
    JOB_STATES,
    METRICS,
    PENDING_CLEANUPS,
    PIPELINES,
    RUNNING_JOBS,
    SAVEPOINTS,
    JobOutcome,
    JobState,
    PipelineState,
)
from tidegate.store.base import Check, Delete, Put, Store, undamaged


def expired(store: Store, before_ms: int) -> Iterator[JobOutcome]:
    """Yield the ended jobs whose retention is over, except those not cleaned up yet."""
    for entry in undamaged(store.list(JOB_OUTCOMES)):
        outcome = from_document(JobOutcome, entry.value, f"outcome of job {entry.key}")
        if outcome.finished_ms <= before_ms and store.get(PENDING_CLEANUPS, entry.key) is None:
            yield outcome


def expire(
    store: Store, job_id: int, before_ms: int, now_ms: int, checks: Sequence[Check] = ()
) -> bool:
    """Forget an ended job, in one transaction; return whether there was something to forget.

    `checks` are a leader's.
    """
    key = str(job_id)
    outcome, job, state, cleanup = (
        store.get(map, key) for map in (JOB_OUTCOMES, RUNNING_JOBS, JOB_STATES, PENDING_CLEANUPS)
    )
    if outcome is None or cleanup is not None:
        return False
    record = from_document(JobOutcome, outcome.value, f"outcome of job {key}")
    if record.finished_ms > before_ms:
        return False
    seen = [
        Check(JOB_OUTCOMES, key, outcome.version),
        Check(RUNNING_JOBS, key, job.version if job else 0),
        Check(JOB_STATES, key, state.version if state else 0),
    ]
    writes: list[Put | Delete] = [Delete(JOB_OUTCOMES, key)]
    if job is None and (state is None or _ended(state.value, record)):
        writes += _forgotten(store, record, now_ms)
    failpoint("history.expire.before")
    store.transact([*checks, *seen], writes)
    failpoint("history.expire.after")
    return True


def _forgotten(store: Store, record: JobOutcome, now_ms: int) -> list[Put | Delete]:
    """Return the deletes for all documents of a job without a newer incarnation."""
    key = str(record.job_id)
    pipelines = store.list(PIPELINES, f"{key}/")
    writes: list[Put | Delete] = [Delete(JOB_STATES, key), Delete(SAVEPOINTS, key)]
    writes += [
        Delete(map, entry.key)
        for map in (CHECKPOINT_HISTORY, METRICS)
        for entry in store.list(map, f"{key}/")
    ]
    writes += [Delete(PIPELINES, entry.key) for entry in pipelines]
    name = store.get(JOB_NAMES, name_key(record.name))
    if name is not None and name.value.get("job_id") == record.job_id:
        writes.append(Delete(JOB_NAMES, name.key))
    if any(
        from_document(PipelineState, entry.value, f"pipeline {entry.key}").retained
        for entry in pipelines
    ):
        left = ExpiredJob(
            job_id=record.job_id,
            name=record.name,
            status=record.status.value,
            finished_ms=record.finished_ms,
            expired_ms=now_ms,
        )
        writes.append(Put(EXPIRED_JOBS, key, to_document(left)))
    return writes


def _ended(state: dict[str, object], outcome: JobOutcome) -> bool:
    """Whether a state is the tombstone of that outcome, and not a newer incarnation."""
    tombstone = from_document(JobState, state, f"state of job {outcome.job_id}")
    return tombstone.status.terminal and tombstone.initialization_ms == outcome.initialization_ms
