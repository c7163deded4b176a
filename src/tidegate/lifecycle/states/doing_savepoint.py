"""DOING_SAVEPOINT: the driver makes a savepoint and ends with it.

The driver works on its own; this state supervises it and decides when it has ended. If the
savepoint fails, the job continues, and the request states the reason.
"""

from tidegate.lifecycle.deadline import Deadline
from tidegate.lifecycle.decision import Decision, Transition
from tidegate.lifecycle.observation import JobObservation
from tidegate.lifecycle.recovery import after_driver_end, fail, pipeline_failure, restart, resume
from tidegate.lifecycle.states.running import stall_failure, supervise
from tidegate.lifecycle.stopping import (
    Gone,
    KillOverdue,
    driver_liveness,
    escalate,
    first_command,
    target_worker,
)
from tidegate.model.records import CheckpointHealth, DriverCommand, JobStatus, PipelineStatus

NAME = JobStatus.DOING_SAVEPOINT
GOES_TO = frozenset(
    {
        JobStatus.SAVEPOINT_DONE,
        JobStatus.RUNNING,
        JobStatus.FINISHED,
        JobStatus.FAILING,
        JobStatus.RECOVERING,
        JobStatus.CANCELING,
    },
)
DEADLINE: Deadline | None = Deadline(
    ms=lambda limits: limits.savepoint_ms,
    then=frozenset({JobStatus.RUNNING}),
    what="until the savepoint is complete; without one the job continues, with the reason",
)


def decide(view: JobObservation) -> Decision:
    """SAVEPOINT_DONE when the savepoint is complete and the driver has ended.

    If it fails or is overdue, the job continues as RUNNING.
    """
    gone = driver_liveness(view)
    if isinstance(gone, Gone) and view.outcome is PipelineStatus.FINISHED:
        return after_driver_end(view, gone.proof)
    if view.stop_requested:
        return Transition(
            to=JobStatus.CANCELING, command=first_command(view), worker=target_worker(view)
        )
    if view.stop_savepoint_done:
        return _done(view, gone)
    if isinstance(gone, Gone):
        return after_driver_end(view, gone.proof)
    return _in_progress(view)


def _done(view: JobObservation, gone: object) -> Decision:
    """The savepoint is complete: the driver gets some time to exit by itself."""
    if isinstance(gone, Gone):
        return Transition(to=JobStatus.SAVEPOINT_DONE, proof=gone.proof)
    escalated = escalate(view, DriverCommand.STOP, stop_ms=view.limits.exit_ms)
    return (
        Transition(to=JobStatus.SAVEPOINT_DONE, failure=escalated.failure)
        if isinstance(escalated, KillOverdue)
        else escalated
    )


def _in_progress(view: JobObservation) -> Decision:
    """Decide while the driver lives and the savepoint is not complete."""
    if view.outcome is PipelineStatus.FAILED:
        return fail(view, pipeline_failure(view), command=DriverCommand.STOP)
    if view.outcome is PipelineStatus.CANCELED:
        return resume(view)
    if not view.stops_with_savepoint:
        why = view.savepoint.reason if view.savepoint else "it is no longer requested"
        return Transition(to=JobStatus.RUNNING, reason=f"there is no savepoint: {why}")
    if view.health.level is CheckpointHealth.STALLED:
        return restart(view, stall_failure(view))
    if view.state_age_ms >= view.limits.savepoint_ms:
        why = overdue_reason(view)
        return Transition(
            to=JobStatus.RUNNING, reason=f"there is no savepoint: {why}", savepoint=why
        )
    return supervise(view)


def overdue_reason(view: JobObservation) -> str:
    """Return why a savepoint is abandoned, with the pipelines that have not made their part."""
    wanted = view.savepoint.id if view.savepoint else ""
    open_parts = [
        str(p.pipeline)
        for p in view.pipelines
        if p.status is not PipelineStatus.FINISHED
        and not (p.savepoint and p.savepoint.id == wanted and p.savepoint.copied)
    ]
    waits = f"; pipeline {', '.join(open_parts)} has made no checkpoint" if open_parts else ""
    return f"it was not complete within {view.limits.savepoint_ms // 1000} s{waits}"
