"""The words of a restore: what shall happen to state that does not fit, and the report of what was
restored, which stays with its job.
"""

from dataclasses import dataclass, field
from enum import StrEnum


class OnMissing(StrEnum):
    """State that was asked for and is not there."""

    FAIL = "fail"
    FRESH = "fresh"


class OnDamaged(StrEnum):
    """The newest checkpoint cannot be used."""

    OLDER = "older"  # the next older one that verifies
    FAIL = "fail"


class OnIncompatible(StrEnum):
    """The state does not fit the job file."""

    FAIL = "fail"
    DROP = "drop"  # what finds no owner is given up, the rest is restored
    FRESH = "fresh"


class OnPositionLost(StrEnum):
    """The source does not hold the position any more."""

    FAIL = "fail"
    INITIAL = "initial"  # begins where a new job would: a new snapshot
    LATEST = "latest"  # goes on with what is new from now on


class OnSinkLost(StrEnum):
    """A sink's target does not know of the checkpoint that is restored."""

    FAIL = "fail"
    CONTINUE = "continue"  # with the rows after the checkpoint: what was there before stays lost


class Replan(StrEnum):
    """Whether a batch that was begun may be planned anew instead of being repeated.

    Until the first checkpoint after it.
    """

    NEVER = ""  # no person has restored since it was begun
    CHANGED = "changed"  # where its source cannot give the same rows any more
    ASKED = "asked"  # a person has named the checkpoint before it


class Verdict(StrEnum):
    """What a restore plan amounts to."""

    OK = "ok"
    REPLAY = "ok with replay"
    CONSENT = "needs consent"
    IMPOSSIBLE = "impossible"


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorReport:
    """One source, transform or sink of the job file."""

    operator: str
    kind: str
    pipeline: int
    resumes: str  # from what it goes on
    replays: str = ""  # what it sees again
    changes: tuple[str, ...] = ()  # against the plan of the checkpoint
    held: str = ""  # sources: whether the position is still there
    problem: str = ""  # what makes it impossible


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineReport:
    """Where one pipeline goes on."""

    pipeline: int
    checkpoint: int  # 0: from its beginning
    path: str = ""
    replays_rows: int = 0
    # An older point on purpose: sinks undo what is newer.
    rewind: bool = field(default=False, metadata={"key": "back"})


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoreReport:
    """The restore plan, and once it is carried out the report.

    `start` is fresh, resume or nothing.
    """

    version: int = 1
    job_id: int
    start: str
    origin: str = ""  # in words: what it goes on from
    source_job: int = 0
    lineage: str = ""
    fork: bool = False
    verdict: Verdict = Verdict.OK
    pipelines: tuple[PipelineReport, ...] = ()
    operators: tuple[OperatorReport, ...] = ()
    # Operators whose state is given up.
    dropped_operators: tuple[str, ...] = field(default=(), metadata={"key": "dropped"})
    problems: tuple[str, ...] = ()
    consents: tuple[str, ...] = ()  # what has to be agreed to
    lost: tuple[str, ...] = ()  # of these, the sinks whose targets do not know of the checkpoint
    notes: tuple[str, ...] = ()
