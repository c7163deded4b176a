"""CREATED: accepted and durable.

The leader assigns it to a worker with a free slot, or puts it into the queue.
"""

from tidegate.lifecycle.deadline import Deadline
from tidegate.lifecycle.decision import Decision, Transition
from tidegate.lifecycle.observation import JobObservation, Unplaceable
from tidegate.model.records import JobStatus

NAME = JobStatus.CREATED
GOES_TO = frozenset({JobStatus.PENDING, JobStatus.SCHEDULED, JobStatus.CANCELED, JobStatus.FAILING})
DEADLINE: Deadline | None = Deadline(
    ms=lambda limits: limits.accept_ms,
    then=frozenset({JobStatus.PENDING}),
    what="from the first check by a leader, which moves it on at once",
)


def decide(view: JobObservation) -> Decision:
    """Assign the job to a worker, queue it, or cancel it.

    It is canceled at once only if no driver of an earlier incarnation runs.
    """
    if view.stop_requested and not view.driver_may_live:
        return Transition(to=JobStatus.CANCELED, reason="canceled before it started")
    if (
        view.stop_requested
        or view.driver_may_live
        or view.stop_savepoint_done
        or isinstance(view.placement, Unplaceable)
    ):
        return Transition(to=JobStatus.PENDING)
    return Transition(to=JobStatus.SCHEDULED, worker=view.placement.worker)
