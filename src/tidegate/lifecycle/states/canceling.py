"""CANCELING: a stop was requested; waits for the end of the driver, and escalates."""

from tidegate.lifecycle.deadline import Deadline, escalation_ms
from tidegate.lifecycle.decision import Decision, Transition
from tidegate.lifecycle.observation import JobObservation
from tidegate.lifecycle.recovery import pipeline_failure
from tidegate.lifecycle.stopping import Gone, KillOverdue, driver_liveness, escalate, first_command
from tidegate.model.records import JobStatus, PipelineStatus

NAME = JobStatus.CANCELING
GOES_TO = frozenset({JobStatus.CANCELED, JobStatus.FINISHED})
DEADLINE: Deadline | None = Deadline(
    ms=escalation_ms,
    then=frozenset({JobStatus.CANCELED}),
    what="stop, interrupt, terminate, kill; a forced stop begins with the kill",
)


def decide(view: JobObservation) -> Decision:
    """CANCELED once the driver is dead; FINISHED if the job finished before the stop.

    A driver that survives the kill is fenced and named in a failure.
    """
    gone = driver_liveness(view)
    if isinstance(gone, Gone):
        if view.has_driver and view.outcome is PipelineStatus.FINISHED:
            return Transition(to=JobStatus.FINISHED, proof=gone.proof)
        failure = pipeline_failure(view) if view.has_driver else None
        return Transition(to=JobStatus.CANCELED, failure=failure, proof=gone.proof)
    escalated = escalate(view, first_command(view))
    return (
        Transition(to=JobStatus.CANCELED, failure=escalated.failure)
        if isinstance(escalated, KillOverdue)
        else escalated
    )
