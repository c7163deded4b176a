"""Savepoint requests: made, completed or abandoned; and the deletion of savepoints.

Called by commands, transitions, the supervisor and the CLI. Making the savepoint is the driver's
work (pipeline/savepoints).
"""

from dataclasses import dataclass, replace

from tidegate.checkpoints import paths
from tidegate.checkpoints.savepoints import Savepoint, Savepoints
from tidegate.clock import Clock
from tidegate.coordinator.job_history import savepoint_events
from tidegate.coordinator.job_snapshot import JobSnapshot, Stored, read_job
from tidegate.coordinator.restore.claimed_paths import claimed_paths, is_claimed
from tidegate.failpoint import failpoint
from tidegate.model.document import to_document
from tidegate.model.errors import TransientError, UserError
from tidegate.model.records import (
    RUNNING_JOBS,
    SAVEPOINTS,
    JobStatus,
    SavepointRequest,
    SavepointStatus,
)
from tidegate.store.base import Check, OutcomeUnknown, Put, Store
from tidegate.store.errors import Conflict

TRIES_MAX = 8


class JobEnded(UserError):
    """A savepoint was requested of a job that has ended."""

    condition = "job-ended"

    def __init__(self, job_id: int, status: str) -> None:
        super().__init__(
            f"job {job_id} has ended as {status}: what it has left can be restored, but a savepoint"
            " can only be made of a job that runs"
        )
        self.job_id = job_id


class UnknownJob(UserError):
    condition = "unknown-job"

    def __init__(self, job: int | str) -> None:
        super().__init__(f"there is no job {job!r} here")
        self.job = job


class SavepointInUse(UserError):
    """A savepoint to be deleted is still needed."""

    condition = "savepoint-in-use"


class SavepointBusy(TransientError):
    """Concurrent changes by others won on every attempt."""

    condition = "busy"


@dataclass(frozen=True, slots=True)
class SavepointReply:
    """The result of a request, to be written in another transaction."""

    checks: tuple[Check, ...] = ()
    writes: tuple[Put, ...] = ()
    request: SavepointRequest | None = None  # with its result


def request_of(snapshot: JobSnapshot) -> Stored[SavepointRequest] | None:
    """Return the last request to the current or last incarnation, ignoring older ones."""
    current = (
        snapshot.record.value.initialization_ms
        if snapshot.record
        else snapshot.state.value.initialization_ms
        if snapshot.state
        else None
    )
    found = snapshot.savepoint
    return found if found is not None and found.value.initialization_ms == current else None


def request_savepoint(
    store: Store, savepoints: Savepoints, clock: Clock, job_id: int, *, stop: bool, by: str = ""
) -> SavepointRequest:
    """Request a savepoint, durably.

    A request joins one that is pending, and may add `stop`; so a repeated request makes nothing
    twice.
    """
    for _ in range(TRIES_MAX):
        snapshot = read_job(store, job_id)
        standing = request_of(snapshot)
        if (
            snapshot.record is None
            or snapshot.state is None
            or snapshot.state.value.status.terminal
        ):
            return _request_after_end(snapshot, standing)
        if standing is not None and _joins(standing.value, stop=stop):
            return standing.value
        wanted = _wanted(snapshot, standing, savepoints, clock, stop=stop, by=by)
        version = snapshot.savepoint.version if snapshot.savepoint else 0
        failpoint("command.savepoint.before")
        try:
            store.transact(
                [
                    Check(RUNNING_JOBS, str(job_id), snapshot.record.version),
                    Check(SAVEPOINTS, str(job_id), version),
                ],
                [Put(SAVEPOINTS, str(job_id), to_document(wanted))],
            )
        except (Conflict, OutcomeUnknown):
            continue  # read again: if it was written after all, it is found and joined
        failpoint("command.savepoint.after")
        return wanted
    raise SavepointBusy(f"job {job_id} is being changed by others at this moment; try again")


def _joins(standing: SavepointRequest, *, stop: bool) -> bool:
    """Whether the pending request is as good as a new one, or the job already ends with one."""
    if standing.status is SavepointStatus.WANTED:
        return standing.stop or not stop
    return standing.status is SavepointStatus.DONE and standing.stop


def _wanted(
    snapshot: JobSnapshot,
    standing: Stored[SavepointRequest] | None,
    savepoints: Savepoints,
    clock: Clock,
    *,
    stop: bool,
    by: str,
) -> SavepointRequest:
    assert snapshot.record is not None
    if standing is not None and standing.value.status is SavepointStatus.WANTED:
        return replace(standing.value, stop=True)
    now_ms = clock.now_ms()
    newest = max(
        savepoints.newest(snapshot.job_id),
        snapshot.savepoint.value.id if snapshot.savepoint else "",
        key=lambda id: int(id or 0),
    )
    id = paths.savepoint_name(now_ms, newest)
    earlier = savepoint_events(standing.value) if standing is not None else ()
    return SavepointRequest(
        job_id=snapshot.job_id,
        initialization_ms=snapshot.record.value.initialization_ms,
        id=id,
        stop=stop,
        asked_ms=now_ms,
        by=by,
        earlier=earlier,
    )


def _request_after_end(
    snapshot: JobSnapshot, standing: Stored[SavepointRequest] | None
) -> SavepointRequest:
    """Return the request of a job that ended with a savepoint; raise JobEnded for any other."""
    status = (
        snapshot.state.value.status
        if snapshot.state
        else snapshot.outcome.status
        if snapshot.outcome
        else None
    )
    if status is None:
        raise UnknownJob(snapshot.job_id)
    if status is JobStatus.SAVEPOINT_DONE and standing is not None:
        return standing.value
    raise JobEnded(snapshot.job_id, status.value)


def abandon_savepoint(snapshot: JobSnapshot, reason: str, now_ms: int) -> SavepointReply:
    """Abandon the pending savepoint for this reason; nothing if none is pending."""
    standing = request_of(snapshot)
    if not reason or standing is None or standing.value.status is not SavepointStatus.WANTED:
        return SavepointReply()
    answer = replace(standing.value, status=SavepointStatus.FAILED, reason=reason, ended_ms=now_ms)
    key = str(snapshot.job_id)
    return SavepointReply(
        (Check(SAVEPOINTS, key, standing.version),),
        (Put(SAVEPOINTS, key, to_document(answer)),),
        answer,
    )


def savepoint_at_end(snapshot: JobSnapshot, status: JobStatus, now_ms: int) -> SavepointReply:
    """Complete a pending request when the job ends.

    A request of the last moment, not yet seen here, must not be left without a result: so the
    transaction requires that the request has not changed.
    """
    answer = abandon_savepoint(
        snapshot, f"the job ended as {status.value} before there was one", now_ms
    )
    return replace(
        answer,
        checks=(
            Check(
                SAVEPOINTS,
                str(snapshot.job_id),
                snapshot.savepoint.version if snapshot.savepoint else 0,
            ),
        ),
    )


def delete_savepoint(store: Store, savepoints: Savepoints, savepoint: Savepoint) -> None:
    """Delete a savepoint; SavepointInUse if a restore copies from it, or it is being made."""
    if is_claimed(savepoint.path, claimed_paths(store)):
        raise SavepointInUse(
            f"savepoint {savepoint.id} of job {savepoint.job_id} is being restored: delete it when"
            " that job has its first checkpoint"
        )
    snapshot = read_job(store, savepoint.job_id)
    standing = request_of(snapshot)
    if (
        snapshot.record is not None
        and standing is not None
        and standing.value.id == savepoint.id
        and (standing.value.status is SavepointStatus.WANTED or standing.value.stop)
    ):
        raise SavepointInUse(
            f"job {savepoint.job_id} is ending with savepoint {savepoint.id}: delete it when the"
            " job has ended"
        )
    savepoints.delete(savepoint)
