"""FAILING: the job has failed; waits for the end of the driver."""

from tidegate.lifecycle.deadline import Deadline, escalation_ms
from tidegate.lifecycle.decision import Decision, Transition
from tidegate.lifecycle.observation import JobObservation
from tidegate.lifecycle.stopping import Gone, KillOverdue, driver_liveness, escalate
from tidegate.model.records import DesiredState, DriverCommand, JobStatus, PipelineStatus

NAME = JobStatus.FAILING
GOES_TO = frozenset({JobStatus.FAILED, JobStatus.FINISHED})
DEADLINE: Deadline | None = Deadline(
    ms=escalation_ms,
    then=frozenset({JobStatus.FAILED}),
    what="stop, interrupt, terminate, kill; a driver that has stalled is killed at once",
)


def decide(view: JobObservation) -> Decision:
    """FAILED once the driver is dead.

    A driver that has itself reported the failure is stopped gently first, so that its other
    pipelines end at a checkpoint and the job can be resumed.
    """
    gone = driver_liveness(view)
    if isinstance(gone, Gone):
        finished = view.has_driver and view.outcome is PipelineStatus.FINISHED
        return Transition(
            to=JobStatus.FINISHED if finished else JobStatus.FAILED,
            reason="" if finished else view.state.reason,
            proof=gone.proof,
        )
    first = (
        DriverCommand.KILL
        if view.desired is DesiredState.FORCE_STOP
        or view.current_command in (None, DriverCommand.RUN)
        else DriverCommand.STOP
    )
    escalated = escalate(view, first)
    return (
        Transition(to=JobStatus.FAILED, reason=view.state.reason, failure=escalated.failure)
        if isinstance(escalated, KillOverdue)
        else escalated
    )
