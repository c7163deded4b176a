"""One line in the history of a job id. Part of the records of a job."""

from dataclasses import dataclass
from enum import StrEnum


class JobEventKind(StrEnum):
    """What a line in the history of a job is about."""

    SUBMITTED = (  # a new incarnation; `to` is fresh or restore, the reason what it continues
        "submitted"
    )
    STATUS = "status"  # `to` is the status that was entered
    RESTART = "restart"  # the driver is replaced, for this reason
    COMMAND = "command"  # `to` is what was asked for; the reason says what became of it


@dataclass(frozen=True, kw_only=True, slots=True)
class JobEvent:
    """One line in the history of a job id.

    Lines are only ever appended; `coordinator/job_history` bounds their number.
    """

    at_ms: int
    kind: JobEventKind
    to: str = ""
    by: str = ""
    generation: int = 0
    reason: str = ""
