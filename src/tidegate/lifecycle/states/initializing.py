"""INITIALIZING: only its name is known. Nothing runs; decided like CREATED."""

from tidegate.lifecycle.deadline import Deadline
from tidegate.lifecycle.decision import Decision
from tidegate.lifecycle.observation import JobObservation
from tidegate.lifecycle.states import created
from tidegate.model.records import JobStatus

NAME = JobStatus.INITIALIZING
GOES_TO = created.GOES_TO
DEADLINE: Deadline | None = created.DEADLINE


def decide(view: JobObservation) -> Decision:
    return created.decide(view)
