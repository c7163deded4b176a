"""How a person says from where a job shall go on, and what that means for a job in a given condition. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from tidegate.model.errors import UserError


class From(StrEnum):
    """The words of `--restore`."""

    ASK = "ask"  # nothing was said
    AUTO = "auto"
    LATEST = "latest"
    CHECKPOINT = "checkpoint"
    FRESH = "fresh"


@dataclass(frozen=True, slots=True)
class RestoreWish:
    """What was asked for; `checkpoint` only with From.CHECKPOINT."""

    start: From
    checkpoint: int = 0

    @staticmethod
    def parse(text: str | None) -> "RestoreWish":
        """`latest`, `checkpoint:7`, `fresh`, `auto`, or nothing."""
        if text is None:
            return RestoreWish(From.ASK)
        word, _, number = text.partition(":")
        if word == From.CHECKPOINT and number.isascii() and number.isdigit():
            return RestoreWish(From.CHECKPOINT, int(number))
        if number == "" and text in (From.AUTO, From.LATEST, From.FRESH):
            return RestoreWish(From(text))
        raise UserError(f"--restore {text!r} is not understood: say latest, checkpoint:<id>, fresh or auto")


class Condition(StrEnum):
    """What there is of an earlier run."""

    NONE = "none"  # never ran
    FINISHED = "finished"  # ran to its end
    DISCARDED = "discarded"  # ended, and nothing of it is kept: its checkpoints are being deleted
    WORK_DONE = "work-done"  # every pipeline finished, but the run was killed before it could say so
    UNFINISHED = "unfinished"  # killed, failed or stopped: something to resume


class Start(StrEnum):
    """What will be done."""

    FRESH = "fresh"
    RESUME = "resume"
    NOTHING = "nothing"  # only the end is left to be recorded


class NeedsChoice(UserError):
    """An unfinished run is there, and nobody said what to do with it."""

    condition = "needs-restore-choice"

    def __init__(self, job: str, status: str, place: str) -> None:
        super().__init__(
            f"{job} has an unfinished run ({status}; {place}). Say how to go on:\n"
            "  --restore latest           from its last completed checkpoint\n"
            "  --restore checkpoint:<id>  from an older one (see `tidegate checkpoints list`)\n"
            "  --restore auto             as latest; fresh after a run that finished\n"
            "  --restore fresh            from the beginning; what the unfinished run has written stays where it is"
        )


class NothingToRestore(UserError):
    """A restore was asked for and there is nothing to restore."""

    condition = "nothing-to-restore"


def decide(wish: RestoreWish, condition: Condition, *, job: str, status: str, place: str) -> Start:
    """What a wish means; never a silent fresh start."""
    if wish.start is From.FRESH or (condition in (Condition.NONE, Condition.FINISHED, Condition.DISCARDED) and wish.start in (From.ASK, From.AUTO)):
        return Start.FRESH
    match condition:
        case Condition.NONE:
            raise NothingToRestore(f"{job} has never run here: there is no checkpoint to restore. Start it with --restore fresh or --restore auto")
        case Condition.FINISHED:
            raise NothingToRestore(f"{job} has finished: there is nothing left to restore. Run it again without --restore, or with --restore fresh")
        case Condition.DISCARDED:
            raise NothingToRestore(f"{job} has ended, and nothing of it is kept. Run it again without --restore, or with --restore fresh")
        case Condition.WORK_DONE:
            return Start.NOTHING
    if wish.start is From.ASK:
        raise NeedsChoice(job, status, place)
    return Start.RESUME
