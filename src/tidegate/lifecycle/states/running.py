"""RUNNING: a driver is on record and alive, as far as anyone can tell.

It lasts as long as there is progress.
"""

from tidegate.lifecycle.deadline import Deadline
from tidegate.lifecycle.decision import Decision, NoTransition, Transition
from tidegate.lifecycle.observation import DriverSupervision, JobObservation
from tidegate.lifecycle.recovery import after_end, fail, pipeline_failure, restart, resume
from tidegate.lifecycle.stopping import (
    Gone,
    Overdue,
    driver_liveness,
    escalate,
    first_order,
    target_worker,
)
from tidegate.model.records import (
    CheckpointHealth,
    DriverCommand,
    Failure,
    JobStatus,
    PipelineStatus,
)

NAME = JobStatus.RUNNING
GOES_TO = frozenset(
    {
        JobStatus.FINISHED,
        JobStatus.FAILING,
        JobStatus.RECOVERING,
        JobStatus.CANCELING,
        JobStatus.DOING_SAVEPOINT,
    }
)
DEADLINE: Deadline | None = None


def decide(view: JobObservation) -> Decision:
    """Facts about the driver first, then wishes, then health.

    A savepoint is the driver's own work: all that is left to do here is to see that it ends.
    """
    gone = driver_liveness(view)
    if isinstance(gone, Gone) and view.outcome is PipelineStatus.FINISHED:
        return after_end(view, gone.proof)
    if view.stop_wanted:
        return Transition(
            to=JobStatus.CANCELING, order=first_order(view), worker=target_worker(view)
        )
    if view.saved:
        return Transition(to=JobStatus.DOING_SAVEPOINT)
    if isinstance(gone, Gone):
        return after_end(view, gone.proof)
    if view.outcome is not None:
        return _ended(view, view.outcome)
    if view.health.level is CheckpointHealth.STALLED:
        return restart(view, stalled(view))
    if view.stops_saved:
        return Transition(to=JobStatus.DOING_SAVEPOINT)
    return watched(view)


def stalled(view: JobObservation) -> Failure:
    """No progress, as a failure."""
    message = f"stalled: {view.health.reason}" if view.health.reason else "stalled"
    return Failure(
        at_ms=view.now_ms,
        generation=view.state.generation,
        condition="stalled",
        domain="external",
        message=message,
    )


def _ended(view: JobObservation, outcome: PipelineStatus) -> Decision:
    """The pipelines have ended and the driver is still there.

    Its part is done: it gets a while to go by itself.
    """
    if outcome is PipelineStatus.FAILED:
        return fail(view, pipeline_failure(view), order=DriverCommand.STOP)
    if outcome is PipelineStatus.CANCELED:
        return resume(view)
    pressed = escalate(view, DriverCommand.STOP, ask_ms=view.limits.linger_ms)
    return (
        Transition(to=JobStatus.FINISHED, failure=pressed.failure)
        if isinstance(pressed, Overdue)
        else pressed
    )


def watched(view: JobObservation) -> NoTransition:
    """A lost worker takes nothing with it: another one on the host adopts the driver; without one,
    its signs of life are enough.
    """
    match view.watcher:
        case DriverSupervision.REPLACEABLE:
            return NoTransition(worker=view.adopter)
        case DriverSupervision.GONE:
            worker = view.assignment.worker if view.assignment else "its worker"
            return NoTransition(
                reason=(
                    f"{worker} is gone and no other worker sees that host; the driver gives signs"
                    " of life and goes on"
                )
            )
        case DriverSupervision.NONE:
            return NoTransition(order=DriverCommand.RUN, worker=target_worker(view))
        case _:
            return NoTransition()
