"""SAVEPOINT_DONE: it ended with a savepoint, and can be resumed from it."""

from tidegate.lifecycle.deadline import Deadline
from tidegate.lifecycle.decision import Decision, NoTransition
from tidegate.lifecycle.observation import JobObservation
from tidegate.model.records import JobStatus

NAME = JobStatus.SAVEPOINT_DONE
GOES_TO: frozenset[JobStatus] = frozenset()
DEADLINE: Deadline | None = None


def decide(_: JobObservation) -> Decision:
    return NoTransition()
