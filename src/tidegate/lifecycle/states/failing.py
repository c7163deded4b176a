"""FAILING: it will be FAILED; waits for the end of the driver."""

from tidegate.lifecycle.deadline import Deadline, ladder_ms
from tidegate.lifecycle.decision import Decision, Transition
from tidegate.lifecycle.observation import JobObservation
from tidegate.lifecycle.stopping import Gone, Overdue, driver_liveness, escalate
from tidegate.model.records import DesiredState, DriverCommand, JobStatus, PipelineStatus

NAME = JobStatus.FAILING
GOES_TO = frozenset({JobStatus.FAILED, JobStatus.FINISHED})
DEADLINE: Deadline | None = Deadline(
    ms=ladder_ms,
    then=frozenset({JobStatus.FAILED}),
    what="ask, interrupt, terminate, kill; a driver that has stalled is killed at once",
)


def decide(view: JobObservation) -> Decision:
    """A driver that has itself reported the failure is asked first, so that its other pipelines end
    at a checkpoint: FAILED can be resumed.
    """
    gone = driver_liveness(view)
    if isinstance(gone, Gone):
        finished = view.driven and view.outcome is PipelineStatus.FINISHED
        return Transition(
            to=JobStatus.FINISHED if finished else JobStatus.FAILED,
            reason="" if finished else view.state.reason,
            proof=gone.proof,
        )
    first = (
        DriverCommand.KILL
        if view.wish is DesiredState.FORCE_STOP or view.standing in (None, DriverCommand.RUN)
        else DriverCommand.STOP
    )
    pressed = escalate(view, first)
    return (
        Transition(to=JobStatus.FAILED, reason=view.state.reason, failure=pressed.failure)
        if isinstance(pressed, Overdue)
        else pressed
    )
