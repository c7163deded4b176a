"""The transaction that ends an incarnation: status, outcome and cleanup record.

Called by the process that leads the job. FINISHED leaves nothing to resume. FAILED and CANCELED
keep their checkpoints, unless the job file says otherwise for CANCELED, or nothing ever began.
"""

import contextlib
from dataclasses import dataclass, replace

from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.coordinator.cleanup import StillClaimed, carry_out_cleanup
from tidegate.coordinator.external_resources import drop_unneeded
from tidegate.coordinator.job_history import history_of, with_status
from tidegate.coordinator.job_snapshot import JobSnapshot, next_checkpoint, read_job
from tidegate.coordinator.savepoint_requests import savepoint_at_end
from tidegate.failpoint import failpoint
from tidegate.lifecycle.final_statuses import final_statuses
from tidegate.model.document import to_document
from tidegate.model.errors import Fenced
from tidegate.model.records import (
    ASSIGNMENTS,
    JOB_OUTCOMES,
    JOB_STATES,
    PENDING_CLEANUPS,
    PIPELINES,
    RESTORE_CLAIMS,
    RUNNING_JOBS,
    CleanupRecord,
    Failure,
    JobOutcome,
    JobState,
    JobStatus,
    PipelineStatus,
)
from tidegate.store.base import Check, Delete, Put, Store
from tidegate.store.errors import Conflict

FAILURES_MAX = 20


@dataclass(frozen=True, slots=True)
class OwnedGeneration:
    """The generation that the caller leads: only its own run may be ended."""

    job_id: int
    generation: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TerminalTransaction:
    """The transaction that ends a job, not yet executed."""

    checks: tuple[Check, ...]
    writes: tuple[Put | Delete, ...]
    outcome: JobOutcome
    state: JobState


def status_of(snapshot: JobSnapshot) -> JobStatus | None:
    """Return the combined status of the pipelines; None while one of them has not ended."""
    statuses = {p.value.status for p in snapshot.pipelines}
    if PipelineStatus.FAILED in statuses:
        return JobStatus.FAILED
    if statuses & {PipelineStatus.CREATED, PipelineStatus.RUNNING}:
        return None
    return JobStatus.CANCELED if PipelineStatus.CANCELED in statuses else JobStatus.FINISHED


def end_job(
    store: Store,
    storage: CheckpointStorage,
    claim: OwnedGeneration,
    status: JobStatus,
    now_ms: int,
    failure: Failure | None = None,
    reason: str = "",
) -> JobOutcome:
    """Execute the terminal transition of an embedded run, then its cleanup."""
    while True:
        snapshot = read_job(store, claim.job_id)
        if (
            snapshot.record is None and snapshot.outcome is not None
        ):  # another process ended it first
            outcome = snapshot.outcome
            break
        assert snapshot.state is not None
        if snapshot.state.value.generation != claim.generation:
            raise Fenced(f"job {claim.job_id}", claim.generation, snapshot.state.value.generation)
        ending = terminal_transaction(snapshot, status, now_ms, failure=failure, reason=reason)
        failpoint("job.end.before")
        try:
            store.transact(ending.checks, ending.writes)
        except Conflict:  # a command that came at the last moment: read again, and include it
            continue
        failpoint("job.end.after")
        outcome = ending.outcome
        break
    clean_up(store, storage, claim.job_id, now_ms)
    return outcome


def clean_up(store: Store, storage: CheckpointStorage, job_id: int, now_ms: int) -> None:
    """Carry out the cleanup at the end of an embedded run.

    What another job is about to copy is left to the next run of this one.
    """
    with contextlib.suppress(StillClaimed):
        carry_out_cleanup(store, storage, job_id, keep_state=True)
    drop_unneeded(store, now_ms)


def terminal_transaction(
    snapshot: JobSnapshot,
    status: JobStatus,
    now_ms: int,
    *,
    failure: Failure | None = None,
    reason: str = "",
    due_ms: int = 0,
    older: CleanupRecord | None = None,
    retain_after_cancel: bool = True,
) -> TerminalTransaction:
    """Build the transaction that ends a job.

    What stays gets a generation of its own, so that a driver whose death could not be confirmed is
    rejected. `older` is a cleanup that is still due: it is merged into this one.
    `retain_after_cancel` applies if the job file does not set it.
    """
    assert snapshot.record is not None, "only a job that runs can end"
    assert snapshot.state is not None
    key, record, before = str(snapshot.job_id), snapshot.record.value, snapshot.state.value
    first = next_checkpoint(snapshot)
    outcome = outcome_of(snapshot, status, now_ms, failure)
    began = any(p.value.initial is not None for p in snapshot.pipelines)
    own = record.plan.env.retain_after_cancel
    retained = retain_after_cancel if own is None else own
    kept = status in (JobStatus.FAILED, JobStatus.SAVEPOINT_DONE) or (
        status is JobStatus.CANCELED and retained
    )
    resumable = kept and began
    generation = before.generation + 1
    answer = savepoint_at_end(snapshot, status, now_ms)
    event_reason = reason or (outcome.failures[-1].message if failure and outcome.failures else "")
    merged = replace(before, events=history_of(snapshot, answer.request))
    state = replace(
        with_status(merged, status, now_ms, generation=generation, event_reason=event_reason),
        leader=None,
        failures=outcome.failures,
        reason=reason,
        next_checkpoint=first,
    )
    cleanup = CleanupRecord(
        job_id=snapshot.job_id,
        initialization_ms=record.initialization_ms,
        resumable=resumable,
        checkpoints_below=(older.checkpoints_below if older else 0) if resumable else first,
        generation=(older.generation if older else 0) if resumable else generation,
        due_ms=due_ms or now_ms,
    )
    states = [p.value for p in snapshot.pipelines]
    ended = [
        replace(p, generation=generation, status=own)
        for p, own in zip(states, final_statuses(states, status), strict=True)
    ]
    complete = replace(
        outcome,
        generation=generation,
        entered=state.entered,
        events=state.events,
        restorable=resumable and any(p.retained for p in states),
    )
    writes: list[Put | Delete] = [
        *answer.writes,
        Put(JOB_STATES, key, to_document(state)),
        Put(JOB_OUTCOMES, key, to_document(complete)),
        Put(PENDING_CLEANUPS, key, to_document(cleanup)),
        Delete(RUNNING_JOBS, key),
        Delete(ASSIGNMENTS, key),
        Delete(RESTORE_CLAIMS, key),
        *(Put(PIPELINES, f"{key}/{p.pipeline}", to_document(p)) for p in ended),
    ]
    checks = [
        *answer.checks,
        Check(JOB_STATES, key, snapshot.state.version),
        Check(RUNNING_JOBS, key, snapshot.record.version),
        *(Check(PIPELINES, f"{key}/{p.value.pipeline}", p.version) for p in snapshot.pipelines),
    ]
    return TerminalTransaction(
        checks=tuple(checks), writes=tuple(writes), outcome=outcome, state=state
    )


def outcome_of(
    snapshot: JobSnapshot, status: JobStatus, now_ms: int, failure: Failure | None
) -> JobOutcome:
    """Sum up the metrics of a run from its pipelines."""
    assert snapshot.record is not None
    assert snapshot.state is not None
    errors = tuple(
        p.value.error
        for p in snapshot.pipelines
        if p.value.error and p.value.error not in snapshot.state.value.failures
    )
    failures = (
        snapshot.state.value.failures
        + errors
        + ((failure,) if failure and failure not in errors else ())
    )
    latest = max(
        (p.value.latest for p in snapshot.pipelines if p.value.latest),
        key=lambda ref: ref.checkpoint,
        default=None,
    )
    return JobOutcome(
        job_id=snapshot.job_id,
        name=snapshot.record.value.name,
        initialization_ms=snapshot.record.value.initialization_ms,
        lineage=snapshot.record.value.lineage,
        status=status,
        finished_ms=now_ms,
        entered=snapshot.state.value.entered,
        generation=snapshot.state.value.generation,
        next_checkpoint=next_checkpoint(snapshot),
        plan=snapshot.record.value.plan,
        restored=snapshot.record.value.restored,
        restore=snapshot.record.value.restore,
        restarts=snapshot.state.value.restarts,
        rows_read=sum(p.value.rows_read for p in snapshot.pipelines),
        rows_written=sum(p.value.rows_written for p in snapshot.pipelines),
        volumes={
            operator: tables
            for p in snapshot.pipelines
            for operator, tables in p.value.volumes.items()
        },
        checkpoints=sum(p.value.checkpoints for p in snapshot.pipelines),
        failures=failures[-FAILURES_MAX:],
        started_ms=snapshot.state.value.started_ms,
        restarts_total=snapshot.state.value.restarts_total,
        last_checkpoint=latest.checkpoint if latest else 0,
        last_checkpoint_ms=latest.completed_ms if latest else 0,
        accepted_changes=snapshot.record.value.accepted_changes,
        file=snapshot.record.value.file,
    )
