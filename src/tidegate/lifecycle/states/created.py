"""CREATED: accepted and durable.

The first look of a leader gives it to a worker where there is room, else it puts it into the queue.
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
    what="from the first look of a leader, which moves it on at once",
)


def decide(view: JobObservation) -> Decision:
    """To a worker, or to the queue; or to the end where it is not wanted any more and nothing of an
    earlier incarnation runs.
    """
    if view.stop_wanted and not view.driver_lives:
        return Transition(to=JobStatus.CANCELED, reason="canceled before it started")
    if view.stop_wanted or view.driver_lives or view.saved or isinstance(view.place, Unplaceable):
        return Transition(to=JobStatus.PENDING)
    return Transition(to=JobStatus.SCHEDULED, worker=view.place.worker)
