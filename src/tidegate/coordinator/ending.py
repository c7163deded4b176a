"""How an incarnation ends: one transaction with status, outcome and cleanup record. Called by whoever leads the job."""

from dataclasses import dataclass, replace

from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.coordinator.cleanup import carry_out_cleanup
from tidegate.coordinator.registry import Known, look, next_checkpoint
from tidegate.failpoint import failpoint
from tidegate.model.document import to_document
from tidegate.model.errors import Fenced
from tidegate.model.records import (
    CLEANUP,
    DRIVERS,
    FINISHED,
    JOBS,
    METRICS,
    PIPELINES,
    STATES,
    CleanupRecord,
    Failure,
    JobOutcome,
    JobStatus,
    PipelineStatus,
)
from tidegate.store.base import Check, Delete, Put, Store


def status_of(known: Known) -> JobStatus | None:
    """What the pipelines amount to; None while one of them has not ended."""
    statuses = {p.value.status for p in known.pipelines}
    if PipelineStatus.FAILED in statuses:
        return JobStatus.FAILED
    if statuses & {PipelineStatus.CREATED, PipelineStatus.RUNNING}:
        return None
    return JobStatus.CANCELED if PipelineStatus.CANCELED in statuses else JobStatus.FINISHED


@dataclass(frozen=True, slots=True)
class Owned:
    """The generation that the caller leads: only its own run may be ended."""

    job_id: int
    generation: int


def end(store: Store, storage: CheckpointStorage, claim: Owned, status: JobStatus, now_ms: int, failure: Failure | None = None) -> JobOutcome:
    """The terminal transition, then its cleanup. FINISHED leaves nothing to resume; FAILED and CANCELED keep their checkpoints, unless the job file says
    otherwise for CANCELED."""
    job_id = claim.job_id
    known = look(store, job_id)
    if known.record is None and known.outcome is not None:  # someone else found it done too, and was quicker
        carry_out_cleanup(store, storage, job_id)
        return known.outcome
    assert known.record is not None, "only a job that runs can end"
    assert known.state is not None
    if known.state.value.generation != claim.generation:
        raise Fenced(f"job {job_id}", claim.generation, known.state.value.generation)
    outcome = outcome_of(known, status, now_ms, failure)
    key = str(job_id)
    first = next_checkpoint(known)
    state = replace(known.state.value, status=status, leader=None, failures=outcome.failures, next_checkpoint=first, changed_ms=now_ms)
    checks = [Check(STATES, key, known.state.version), Check(JOBS, key, known.record.version)]
    writes: list[Put | Delete] = [Put(STATES, key, to_document(state)), Put(FINISHED, key, to_document(outcome)), Delete(JOBS, key)]
    writes += [Delete(DRIVERS, key), *(Delete(METRICS, f"{key}/{p.value.pipeline}") for p in known.pipelines)]
    if status is JobStatus.FINISHED or (status is JobStatus.CANCELED and not known.record.value.plan.env.retain_after_cancel):
        cleanup = CleanupRecord(job_id=job_id, initialization_ms=known.record.value.initialization_ms, checkpoints_below=first, due_ms=now_ms)
        writes += [Put(CLEANUP, key, to_document(cleanup)), *(Delete(PIPELINES, f"{key}/{p.value.pipeline}") for p in known.pipelines)]
    failpoint("job.end.before")
    store.transact(checks, writes)
    failpoint("job.end.after")
    carry_out_cleanup(store, storage, job_id)
    return outcome


def outcome_of(known: Known, status: JobStatus, now_ms: int, failure: Failure | None) -> JobOutcome:
    """The figures of a run, from its pipelines."""
    assert known.record is not None
    assert known.state is not None
    failures = known.state.value.failures + tuple(p.value.error for p in known.pipelines if p.value.error) + ((failure,) if failure else ())
    return JobOutcome(
        job_id=known.job_id,
        name=known.record.value.name,
        initialization_ms=known.record.value.initialization_ms,
        lineage=known.record.value.lineage,
        status=status,
        finished_ms=now_ms,
        entered=known.state.value.entered,
        generation=known.state.value.generation,
        next_checkpoint=next_checkpoint(known),
        plan=known.record.value.plan,
        restored=known.record.value.restored,
        restarts=known.state.value.restarts,
        rows_read=sum(p.value.rows_read for p in known.pipelines),
        rows_written=sum(p.value.rows_written for p in known.pipelines),
        checkpoints=sum(p.value.checkpoints for p in known.pipelines),
        failures=failures,
    )
