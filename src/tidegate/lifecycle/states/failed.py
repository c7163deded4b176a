"""FAILED: it cannot get on. It can be resumed."""

from tidegate.lifecycle.deadline import Deadline
from tidegate.lifecycle.decision import Decision, Stay
from tidegate.lifecycle.view import JobView
from tidegate.model.records import JobStatus

NAME = JobStatus.FAILED
GOES_TO: frozenset[JobStatus] = frozenset()
DEADLINE: Deadline | None = None


def decide(_: JobView) -> Decision:
    return Stay()
