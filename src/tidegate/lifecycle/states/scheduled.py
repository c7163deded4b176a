"""SCHEDULED: a worker must start the driver; waits for its registration in the store."""

from tidegate.lifecycle.deadline import Deadline
from tidegate.lifecycle.decision import Decision, NoTransition, Transition
from tidegate.lifecycle.observation import DriverSupervision, JobObservation
from tidegate.lifecycle.recovery import after_driver_end, reassign, restart
from tidegate.lifecycle.stopping import Gone, driver_liveness, first_command
from tidegate.model.records import Failure, JobStatus, PipelineStatus

NAME = JobStatus.SCHEDULED
GOES_TO = frozenset(
    {
        JobStatus.RUNNING,
        JobStatus.RECOVERING,
        JobStatus.FAILING,
        JobStatus.CANCELING,
        JobStatus.FINISHED,
    }
)
DEADLINE: Deadline | None = Deadline(
    ms=lambda limits: limits.start_ms,
    then=frozenset({JobStatus.RECOVERING, JobStatus.FAILING}),
    what="from the assignment to the registration of the driver",
)


def decide(view: JobObservation) -> Decision:
    """RUNNING once the driver is registered; if it already died, decided as in RUNNING."""
    gone = driver_liveness(view) if view.has_driver else None
    if isinstance(gone, Gone) and view.outcome is PipelineStatus.FINISHED:
        return after_driver_end(view, gone.proof)
    if view.stop_requested:
        return Transition(to=JobStatus.CANCELING, command=first_command(view))
    if isinstance(gone, Gone):
        return after_driver_end(view, gone.proof)
    return Transition(to=JobStatus.RUNNING) if view.has_driver else _waiting(view)


def _waiting(view: JobObservation) -> Decision:
    if view.supervision is not DriverSupervision.ALIVE:
        worker = view.assignment.worker if view.assignment else "the worker"
        return reassign(view, f"{worker} was lost before it started the driver")
    if view.state_age_ms >= view.limits.start_ms:
        message = f"the driver did not start within {view.limits.start_ms // 1000} s"
        return restart(
            view,
            Failure(
                at_ms=view.now_ms,
                generation=view.state.generation,
                condition="start-timeout",
                message=message,
            ),
        )
    return NoTransition(reason=view.state.reason)
