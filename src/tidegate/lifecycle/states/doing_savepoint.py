"""DOING_SAVEPOINT: the driver makes a savepoint and ends with it. It does so by itself; here it is
watched, and judged when it has ended. Where no savepoint comes of it, the job goes on, and the
request says why.
"""

from tidegate.lifecycle.deadline import Deadline
from tidegate.lifecycle.decision import Decision, Transition
from tidegate.lifecycle.observation import JobObservation
from tidegate.lifecycle.recovery import after_end, fail, pipeline_failure, restart, resume
from tidegate.lifecycle.states.running import stalled, watched
from tidegate.lifecycle.stopping import (
    Gone,
    Overdue,
    driver_liveness,
    escalate,
    first_order,
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
    what="until there is a savepoint; without one the job goes on, and says why",
)


def decide(view: JobObservation) -> Decision:
    """Done when the savepoint is whole and the driver has ended.

    One that fails, or does not come, lets the job run on.
    """
    gone = driver_liveness(view)
    if isinstance(gone, Gone) and view.outcome is PipelineStatus.FINISHED:
        return after_end(view, gone.proof)
    if view.stop_wanted:
        return Transition(
            to=JobStatus.CANCELING, order=first_order(view), worker=target_worker(view)
        )
    if view.saved:
        return _done(view, gone)
    if isinstance(gone, Gone):
        return after_end(view, gone.proof)
    return _undone(view)


def _done(view: JobObservation, gone: object) -> Decision:
    """The savepoint is there: the driver gets a while to go by itself."""
    if isinstance(gone, Gone):
        return Transition(to=JobStatus.SAVEPOINT_DONE, proof=gone.proof)
    pressed = escalate(view, DriverCommand.STOP, ask_ms=view.limits.linger_ms)
    return (
        Transition(to=JobStatus.SAVEPOINT_DONE, failure=pressed.failure)
        if isinstance(pressed, Overdue)
        else pressed
    )


def _undone(view: JobObservation) -> Decision:
    """The driver lives, and there is no savepoint yet."""
    if view.outcome is PipelineStatus.FAILED:
        return fail(view, pipeline_failure(view), order=DriverCommand.STOP)
    if view.outcome is PipelineStatus.CANCELED:
        return resume(view)
    if not view.stops_saved:
        why = view.savepoint.reason if view.savepoint else "it is not wanted any more"
        return Transition(to=JobStatus.RUNNING, reason=f"there is no savepoint: {why}")
    if view.health.level is CheckpointHealth.STALLED:
        return restart(view, stalled(view))
    if view.state_age_ms >= view.limits.savepoint_ms:
        why = overdue(view)
        return Transition(
            to=JobStatus.RUNNING, reason=f"there is no savepoint: {why}", savepoint=why
        )
    return watched(view)


def overdue(view: JobObservation) -> str:
    """Why a savepoint is given up that does not come, with the pipelines that have not given their
    part.
    """
    wanted = view.savepoint.id if view.savepoint else ""
    open_parts = [
        str(p.pipeline)
        for p in view.pipelines
        if p.status is not PipelineStatus.FINISHED
        and not (p.savepoint and p.savepoint.id == wanted and p.savepoint.copied)
    ]
    waits = f"; pipeline {', '.join(open_parts)} has not come to a checkpoint" if open_parts else ""
    return f"it was not done within {view.limits.savepoint_ms // 1000} s{waits}"
