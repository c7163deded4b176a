"""Choices for state that does not match, and the restore report that is kept with a job."""

from dataclasses import dataclass, field
from enum import StrEnum


class OnMissing(StrEnum):
    """What to do if the requested state does not exist."""

    FAIL = "fail"
    FRESH = "fresh"


class OnDamaged(StrEnum):
    """What to do if the newest checkpoint cannot be used."""

    OLDER = "older"  # use the next older one that verifies
    FAIL = "fail"


class OnIncompatible(StrEnum):
    """What to do if the state does not match the job file."""

    FAIL = "fail"
    DROP = "drop"  # drop state without an owner, restore the rest
    FRESH = "fresh"


class OnPositionLost(StrEnum):
    """What to do if the source no longer retains the position."""

    FAIL = "fail"
    INITIAL = "initial"  # begin where a new job would: with a new snapshot
    LATEST = "latest"  # continue with changes from now on


class OnSinkLost(StrEnum):
    """What to do if a sink's target does not know the checkpoint that is restored."""

    FAIL = "fail"
    CONTINUE = "continue"  # with the rows after the checkpoint; earlier rows stay lost


class Replan(StrEnum):
    """Whether a batch that was begun may be planned anew instead of being repeated.

    Applies until the first checkpoint after the restore.
    """

    NEVER = ""  # no user has restored since it was begun
    CHANGED = "changed"  # if its source can no longer return the same rows
    ASKED = "asked"  # a user has named the checkpoint before it


class Verdict(StrEnum):
    """The overall result of a restore plan."""

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
    resumes: str  # what it resumes from
    replays: str = ""  # the rows it receives again
    changes: tuple[str, ...] = ()  # against the plan of the checkpoint
    held: str = ""  # sources: whether the position is still retained
    problem: str = ""  # why the restore is impossible


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineReport:
    """The restore point of one pipeline."""

    pipeline: int
    checkpoint: int  # 0: from its beginning
    path: str = ""
    replays_rows: int = 0
    # An older point on purpose: sinks undo what is newer.
    rewind: bool = field(default=False, metadata={"key": "back"})


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoreReport:
    """The restore plan; after the restore, its report.

    `start` is fresh, resume or nothing.
    """

    version: int = 1
    job_id: int
    start: str
    origin: str = ""  # description of the state that it continues
    source_job: int = 0
    lineage: str = ""
    fork: bool = False
    verdict: Verdict = Verdict.OK
    pipelines: tuple[PipelineReport, ...] = ()
    operators: tuple[OperatorReport, ...] = ()
    # Operators whose state is dropped.
    dropped_operators: tuple[str, ...] = field(default=(), metadata={"key": "dropped"})
    problems: tuple[str, ...] = ()
    consents: tuple[str, ...] = ()  # effects that need the user's consent
    lost: tuple[str, ...] = ()  # of these, the sinks whose targets do not know the checkpoint
    notes: tuple[str, ...] = ()
