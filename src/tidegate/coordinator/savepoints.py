"""Savepoints as people see them: asking for one, what becomes of the request when the job ends or
it takes too long, deleting one. Called by commands, the recorder, the supervisor and the CLI.
Making one is the driver's work (pipeline/savepoint).
"""

from dataclasses import dataclass, replace

from tidegate.checkpoints import paths
from tidegate.checkpoints.savepoints import Savepoint, Savepoints
from tidegate.coordinator.history import requested
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
from tidegate.pipeline.clock import Clock
from tidegate.store.base import Check, OutcomeUnknown, Put, Store
from tidegate.store.errors import Conflict

TRIES_MAX = 8


class JobEnded(UserError):
    """Nothing can be saved of a job that has ended."""

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
    """Somebody needs a savepoint that was to be deleted."""

    condition = "savepoint-in-use"


class TooBusy(TransientError):
    """Others were quicker, again and again."""

    condition = "busy"


@dataclass(frozen=True, slots=True)
class SavepointReply:
    """A request that gets its answer in a transaction of somebody else."""

    checks: tuple[Check, ...] = ()
    writes: tuple[Put, ...] = ()
    request: SavepointRequest | None = None  # with its answer


def request_of(known: JobSnapshot) -> Stored[SavepointRequest] | None:
    """The last request about the incarnation that runs, or ran last; those about older ones are
    history.
    """
    current = (
        known.record.value.initialization_ms
        if known.record
        else known.state.value.initialization_ms
        if known.state
        else None
    )
    found = known.savepoint
    return found if found is not None and found.value.initialization_ms == current else None


def ask(
    store: Store, savepoints: Savepoints, clock: Clock, job_id: int, *, stop: bool, by: str = ""
) -> SavepointRequest:
    """Want a savepoint, durably.

    While one is wanted, this joins it, and may add the wish to stop; so a repeated request makes
    nothing twice.
    """
    for _ in range(TRIES_MAX):
        known = read_job(store, job_id)
        standing = request_of(known)
        if known.record is None or known.state is None or known.state.value.status.terminal:
            return _too_late(known, standing)
        if standing is not None and _joins(standing.value, stop=stop):
            return standing.value
        wanted = _wanted(known, standing, savepoints, clock, stop=stop, by=by)
        version = known.savepoint.version if known.savepoint else 0
        failpoint("command.savepoint.before")
        try:
            store.transact(
                [
                    Check(RUNNING_JOBS, str(job_id), known.record.version),
                    Check(SAVEPOINTS, str(job_id), version),
                ],
                [Put(SAVEPOINTS, str(job_id), to_document(wanted))],
            )
        except (Conflict, OutcomeUnknown):
            continue  # look again: where it was written after all, it is found and joined
        failpoint("command.savepoint.after")
        return wanted
    raise TooBusy(f"job {job_id} is being changed by others at this moment; try again")


def _joins(standing: SavepointRequest, *, stop: bool) -> bool:
    """Whether the standing request is as good as a new one: it is under way, or the job ends with
    it already.
    """
    if standing.status is SavepointStatus.WANTED:
        return standing.stop or not stop
    return standing.status is SavepointStatus.DONE and standing.stop


def _wanted(
    known: JobSnapshot,
    standing: Stored[SavepointRequest] | None,
    savepoints: Savepoints,
    clock: Clock,
    *,
    stop: bool,
    by: str,
) -> SavepointRequest:
    assert known.record is not None
    if standing is not None and standing.value.status is SavepointStatus.WANTED:
        return replace(standing.value, stop=True)
    now_ms = clock.now_ms()
    newest = max(
        savepoints.newest(known.job_id),
        known.savepoint.value.id if known.savepoint else "",
        key=lambda id: int(id or 0),
    )
    id = paths.savepoint_name(now_ms, newest)
    earlier = requested(standing.value) if standing is not None else ()
    return SavepointRequest(
        job_id=known.job_id,
        initialization_ms=known.record.value.initialization_ms,
        id=id,
        stop=stop,
        asked_ms=now_ms,
        by=by,
        earlier=earlier,
    )


def _too_late(known: JobSnapshot, standing: Stored[SavepointRequest] | None) -> SavepointRequest:
    """A job that has ended with a savepoint has done what is asked for; any other one cannot any
    more.
    """
    status = (
        known.state.value.status if known.state else known.outcome.status if known.outcome else None
    )
    if status is None:
        raise UnknownJob(known.job_id)
    if status is JobStatus.SAVEPOINT_DONE and standing is not None:
        return standing.value
    raise JobEnded(known.job_id, status.value)


def given_up(known: JobSnapshot, reason: str, now_ms: int) -> SavepointReply:
    """The savepoint that is wanted is given up, for this reason; nothing where none is wanted."""
    standing = request_of(known)
    if not reason or standing is None or standing.value.status is not SavepointStatus.WANTED:
        return SavepointReply()
    answer = replace(standing.value, status=SavepointStatus.FAILED, reason=reason, ended_ms=now_ms)
    key = str(known.job_id)
    return SavepointReply(
        (Check(SAVEPOINTS, key, standing.version),),
        (Put(SAVEPOINTS, key, to_document(answer)),),
        answer,
    )


def at_the_end(known: JobSnapshot, status: JobStatus, now_ms: int) -> SavepointReply:
    """What is said of a savepoint that is still wanted when the job ends. One that was asked for at
    the last moment, and is not known here yet, must not be left without an answer: so nothing ends
    on old knowledge of it.
    """
    answer = given_up(known, f"the job ended as {status.value} before there was one", now_ms)
    return replace(
        answer,
        checks=(
            Check(SAVEPOINTS, str(known.job_id), known.savepoint.version if known.savepoint else 0),
        ),
    )


def delete(store: Store, savepoints: Savepoints, savepoint: Savepoint) -> None:
    """Delete a savepoint that nobody needs; SavepointInUse where a restore copies from it, or it is
    being made.
    """
    if is_claimed(savepoint.path, claimed_paths(store)):
        raise SavepointInUse(
            f"savepoint {savepoint.id} of job {savepoint.job_id} is being restored: delete it when"
            " that job has its first checkpoint"
        )
    known = read_job(store, savepoint.job_id)
    standing = request_of(known)
    if (
        known.record is not None
        and standing is not None
        and standing.value.id == savepoint.id
        and (standing.value.status is SavepointStatus.WANTED or standing.value.stop)
    ):
        raise SavepointInUse(
            f"job {savepoint.job_id} is ending with savepoint {savepoint.id}: delete it when the"
            " job has ended"
        )
    savepoints.delete(savepoint)
