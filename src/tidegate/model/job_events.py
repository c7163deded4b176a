"""Events in the history of a job id. Part of the records of a job."""

from dataclasses import dataclass
from enum import StrEnum


class JobEventKind(StrEnum):
    """What an event in the history of a job is about."""

    # A new incarnation: `to` is fresh or restore, `reason` is what it continues.
    SUBMITTED = "submitted"
    STATUS = "status"  # `to` is the status that was entered
    RESTART = "restart"  # the driver is replaced, for this reason
    COMMAND = "command"  # `to` is the command, `reason` its result


@dataclass(frozen=True, kw_only=True, slots=True)
class JobEvent:
    """One event in the history of a job id.

    Events are only ever appended; `coordinator/job_history` bounds their number.
    """

    at_ms: int
    kind: JobEventKind
    to: str = ""
    by: str = ""
    generation: int = 0
    reason: str = ""
