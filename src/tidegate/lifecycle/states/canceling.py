"""CANCELING: somebody wants it to end; waits for the end of the driver, with growing force."""

from tidegate.lifecycle.deadline import Deadline, ladder_ms
from tidegate.lifecycle.decision import Decision, Transition
from tidegate.lifecycle.observation import JobObservation
from tidegate.lifecycle.recovery import pipeline_failure
from tidegate.lifecycle.stopping import Gone, Overdue, driver_liveness, escalate, first_order
from tidegate.model.records import JobStatus, PipelineStatus

NAME = JobStatus.CANCELING
GOES_TO = frozenset({JobStatus.CANCELED, JobStatus.FINISHED})
DEADLINE: Deadline | None = Deadline(
    ms=ladder_ms,
    then=frozenset({JobStatus.CANCELED}),
    what="ask, interrupt, terminate, kill; a forced stop begins with the kill",
)


def decide(view: JobObservation) -> Decision:
    """CANCELED without a driver; but a job that has finished before it could be stopped has
    FINISHED. One that does not die is fenced, and named.
    """
    gone = driver_liveness(view)
    if isinstance(gone, Gone):
        if view.driven and view.outcome is PipelineStatus.FINISHED:
            return Transition(to=JobStatus.FINISHED, proof=gone.proof)
        failure = pipeline_failure(view) if view.driven else None
        return Transition(to=JobStatus.CANCELED, failure=failure, proof=gone.proof)
    pressed = escalate(view, first_order(view))
    return (
        Transition(to=JobStatus.CANCELED, failure=pressed.failure)
        if isinstance(pressed, Overdue)
        else pressed
    )
