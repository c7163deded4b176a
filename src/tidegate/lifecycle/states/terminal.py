"""The terminal states: a job in one of them has ended, and nothing follows."""

from dataclasses import dataclass, field

from tidegate.lifecycle.deadline import Deadline
from tidegate.lifecycle.decision import Decision, NoTransition
from tidegate.lifecycle.observation import JobObservation
from tidegate.model.records import JobStatus


@dataclass(frozen=True)
class TerminalState:
    """A state without exits; `meaning` is for the docs."""

    NAME: JobStatus
    meaning: str
    GOES_TO: frozenset[JobStatus] = field(default=frozenset(), init=False)
    DEADLINE: Deadline | None = field(default=None, init=False)

    def decide(self, _: JobObservation, /) -> Decision:
        return NoTransition()


TERMINAL_STATES = (
    TerminalState(JobStatus.FINISHED, "all rows were read and written. Nothing is left to resume"),
    TerminalState(JobStatus.SAVEPOINT_DONE, "ended with a savepoint, and can be resumed from it"),
    TerminalState(
        JobStatus.CANCELED, "stopped by a user. It can be resumed, unless the job file forbids it"
    ),
    TerminalState(JobStatus.FAILED, "ended by a failure. It can be resumed"),
    TerminalState(
        JobStatus.UNKNOWABLE,
        "the job is listed, but its state is missing in the store. No state leads here",
    ),
)
