"""CANCELED: somebody ended it. It can be resumed, unless the job file says otherwise."""

from tidegate.lifecycle.deadline import Deadline
from tidegate.lifecycle.decision import Decision, NoTransition
from tidegate.lifecycle.observation import JobObservation
from tidegate.model.records import JobStatus

NAME = JobStatus.CANCELED
GOES_TO: frozenset[JobStatus] = frozenset()
DEADLINE: Deadline | None = None


def decide(_: JobObservation) -> Decision:
    return NoTransition()
