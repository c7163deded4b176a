"""FAILING: it will be FAILED; waits for the end of the driver."""

from tidegate.lifecycle.deadline import Deadline, ladder_ms
from tidegate.lifecycle.decision import Decision, Go
from tidegate.lifecycle.stopping import Gone, Overdue, life, press
from tidegate.lifecycle.view import JobView
from tidegate.model.records import JobStatus, Order, PipelineStatus, Wish

NAME = JobStatus.FAILING
GOES_TO = frozenset({JobStatus.FAILED, JobStatus.FINISHED})
DEADLINE: Deadline | None = Deadline(
    ms=ladder_ms,
    then=frozenset({JobStatus.FAILED}),
    what="ask, interrupt, terminate, kill; a driver that has stalled is killed at once",
)


def decide(view: JobView) -> Decision:
    """A driver that has itself reported the failure is asked first, so that its other pipelines end
    at a checkpoint: FAILED can be resumed.
    """
    gone = life(view)
    if isinstance(gone, Gone):
        finished = view.driven and view.outcome is PipelineStatus.FINISHED
        return Go(
            to=JobStatus.FINISHED if finished else JobStatus.FAILED,
            reason="" if finished else view.state.reason,
            proof=gone.proof,
        )
    first = (
        Order.KILL
        if view.wish is Wish.FORCE_STOP or view.standing in (None, Order.RUN)
        else Order.STOP
    )
    pressed = press(view, first)
    return (
        Go(to=JobStatus.FAILED, reason=view.state.reason, failure=pressed.failure)
        if isinstance(pressed, Overdue)
        else pressed
    )
