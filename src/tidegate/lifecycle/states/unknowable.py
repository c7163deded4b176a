"""UNKNOWABLE: the job is listed, but where it was is not in the store.

No state leads here: it is said of what was found so.
"""

from tidegate.lifecycle.deadline import Deadline
from tidegate.lifecycle.decision import Decision, NoTransition
from tidegate.lifecycle.observation import JobObservation
from tidegate.model.records import JobStatus

NAME = JobStatus.UNKNOWABLE
GOES_TO: frozenset[JobStatus] = frozenset()
DEADLINE: Deadline | None = None


def decide(_: JobObservation) -> Decision:
    return NoTransition()
