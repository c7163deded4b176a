"""FAILED: it cannot get on. It can be resumed."""

from tidegate.lifecycle.deadline import Deadline
from tidegate.lifecycle.decision import Decision, NoTransition
from tidegate.lifecycle.observation import JobObservation
from tidegate.model.records import JobStatus

NAME = JobStatus.FAILED
GOES_TO: frozenset[JobStatus] = frozenset()
DEADLINE: Deadline | None = None


def decide(_: JobObservation) -> Decision:
    return NoTransition()
