"""How a person says from where a job shall go on, and what that means for a job in a given
condition. Pure.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

from tidegate.model.errors import UserError
from tidegate.model.restore import OnDamaged, OnIncompatible, OnMissing, OnPositionLost, OnSinkLost
from tidegate.model.table_changes import AcceptedChange

E = TypeVar("E", bound=StrEnum)
FILES_MAX = 100
FILES_CHARS_MAX = 20_000
CHANGES_MAX = 100
RESTORE_SYNTAX = "latest, checkpoint:<id>, savepoint:<id or path>, path:<directory>, fresh or auto"


class RestoreSource(StrEnum):
    ASK = "ask"  # nothing was said
    AUTO = "auto"
    LATEST = "latest"
    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"
    PATH = "path"
    FRESH = "fresh"


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """What was asked for; `checkpoint` only with From.CHECKPOINT, `where` only with From.SAVEPOINT
    and From.PATH.
    """

    start: RestoreSource
    checkpoint: int = 0
    location: str = ""
    source_job: int | None = None  # restore-from: another job's state
    takeover: bool = False  # fence a run that is alive
    on_missing: OnMissing = OnMissing.FAIL
    on_damaged: OnDamaged = OnDamaged.OLDER
    on_incompatible: OnIncompatible = OnIncompatible.FAIL
    on_position_lost: OnPositionLost = OnPositionLost.FAIL
    on_sink_lost: OnSinkLost = OnSinkLost.FAIL
    duplicates: bool = False  # consent: rows may be there twice
    skip_files: tuple[str, ...] = ()  # absolute paths of files and directories that are left out
    accept_files: tuple[str, ...] = ()  # and of those that are read although they have changed
    accept_changes: tuple[AcceptedChange, ...] = ()  # what is decided about changes of tables

    @staticmethod
    def parse(text: str | None) -> "RestoreOptions":
        """`latest`, `checkpoint:7`, `savepoint:1700000000000`, `path:7/1/12`, `fresh`, `auto`, or
        nothing.
        """
        if text is None:
            return RestoreOptions(RestoreSource.ASK)
        word, _, rest = text.partition(":")
        if (
            word == RestoreSource.CHECKPOINT
            and rest.isascii()
            and rest.isdigit()
            and len(rest) <= 18
            and int(rest)
        ):
            return RestoreOptions(RestoreSource.CHECKPOINT, int(rest))
        if word in (RestoreSource.SAVEPOINT, RestoreSource.PATH) and rest.strip():
            return RestoreOptions(RestoreSource(word), location=rest.strip())
        if rest == "" and text in (RestoreSource.AUTO, RestoreSource.LATEST, RestoreSource.FRESH):
            return RestoreOptions(RestoreSource(text))
        raise UserError(f"--restore {text!r} is not understood: say {RESTORE_SYNTAX}")

    @property
    def by_location(self) -> bool:
        """Whether the state is named by its place, and not by the job's last run."""
        return self.start in (RestoreSource.SAVEPOINT, RestoreSource.PATH)

    def from_job(self, source_job: int | None, own: int | None) -> "RestoreOptions":
        """With the state of another job: `latest` of it where nothing else is said."""
        if source_job is None or source_job == own:
            return self
        if self.start is RestoreSource.FRESH:
            raise UserError(
                f"--restore fresh and --restore-from {source_job} do not go together: a fresh start"
                " takes no state"
            )
        return replace(
            self,
            source_job=source_job,
            start=RestoreSource.LATEST if self.start is RestoreSource.ASK else self.start,
        )


def parse_files(option: str, paths: Iterable[str]) -> tuple[str, ...]:
    """The paths of an option; they must be absolute, as the driver may run elsewhere."""
    found = []
    for text in paths:
        path = re.sub(r"^file:(//)?(?=/)", "", text.strip())
        if not path.startswith("/"):
            raise UserError(
                f"{option} {text!r} is not an absolute path: write it as the job's error does"
            )
        found.append(os.path.normpath(path))
    if len(found) > FILES_MAX or sum(map(len, found)) > FILES_CHARS_MAX:
        raise UserError(
            f"{option} is given {len(found)} times, with {sum(map(len, found))} characters: at most"
            f" {FILES_MAX}, with {FILES_CHARS_MAX}; a directory stands for all files below it"
        )
    return tuple(dict.fromkeys(found))


def parse_changes(texts: Iterable[str]) -> tuple[AcceptedChange, ...]:
    """The values of --accept-change; one position and table can have one choice only."""
    found: dict[tuple[str, str], AcceptedChange] = {}
    for change in map(AcceptedChange.parse, texts):
        before = found.setdefault((change.at, change.table), change)
        if before != change:
            raise UserError(
                f"--accept-change is given both as {before} and as {change}: choose one"
            )
    if len(found) > CHANGES_MAX:
        raise UserError(f"--accept-change is given {len(found)} times: at most {CHANGES_MAX}")
    return tuple(found.values())


def parse_choice(kind: type[E], option: str, text: str | None, default: E) -> E:
    """The value of an option such as on-missing; an unknown one is refused with the choices."""
    if text is None:
        return default
    try:
        return kind(text.lower())
    except ValueError:
        raise UserError(
            f"{option} {text!r} is not understood: say {' or '.join(each.value for each in kind)}"
        ) from None


class PreviousRun(StrEnum):
    """What there is of an earlier run."""

    NONE = "none"  # never ran
    FINISHED = "finished"  # ran to its end
    DISCARDED = "discarded"  # ended, and nothing of it is kept: its checkpoints are being deleted
    WORK_DONE = (  # every pipeline finished, but the run was killed before it could say so
        "work-done"
    )
    UNFINISHED = "unfinished"  # killed, failed or stopped: something to resume


class StartMode(StrEnum):
    FRESH = "fresh"
    RESUME = "resume"
    NOTHING = "nothing"  # only the end is left to be recorded


class NeedsChoice(UserError):
    """An unfinished run is there, and nobody said what to do with it."""

    condition = "needs-restore-choice"

    def __init__(self, job: str, status: str, place: str, *, checkpoints: bool = True) -> None:
        points = (
            "  --restore latest           from its last completed checkpoint\n"
            "  --restore checkpoint:<id>  from an older one (see `tidegate checkpoints list`)\n"
            "  --restore savepoint:<id>   from a savepoint\n"
            "  --restore auto             as latest; fresh after a run that finished\n"
        )
        begun = (
            "  --restore auto             from its beginning, as the same run; sinks recognise what"
            " it has written\n"
        )
        super().__init__(
            f"{job} has an unfinished run ({status}; {place}). Say how to go"
            f" on:\n{points if checkpoints else begun}  --restore fresh            from the"
            " beginning; what the unfinished run has written stays where it is"
        )


class NothingToRestore(UserError):
    """A restore was asked for and there is nothing to restore."""

    condition = "nothing-to-restore"


def decide(
    options: RestoreOptions,
    condition: PreviousRun,
    *,
    job: str,
    status: str,
    position: str,
    searched: str = "",
    checkpoints: bool = True,
) -> StartMode:
    """What a wish means; never a silent fresh start. `looked` says where state was looked for."""
    none = condition in (PreviousRun.NONE, PreviousRun.FINISHED, PreviousRun.DISCARDED)
    if options.by_location:
        return StartMode.RESUME
    if options.start is RestoreSource.FRESH or (
        none
        and (
            options.start in (RestoreSource.ASK, RestoreSource.AUTO)
            or options.on_missing is OnMissing.FRESH
        )
    ):
        return StartMode.FRESH
    there = f" (looked for in {searched})" if searched else ""
    match condition:
        case PreviousRun.NONE:
            raise NothingToRestore(
                f"{job} has never run here: there is no checkpoint to restore{there}. "
                "Start it with --restore fresh or --restore auto, or say --on-missing fresh"
            )
        case PreviousRun.FINISHED:
            raise NothingToRestore(
                f"{job} has finished: there is nothing left to restore. Run it again without"
                " --restore, or with --restore fresh"
            )
        case PreviousRun.DISCARDED:
            raise NothingToRestore(
                f"{job} has ended, and nothing of it is kept. Run it again without --restore, or"
                " with --restore fresh"
            )
        case PreviousRun.WORK_DONE:
            return StartMode.NOTHING
    if options.start is RestoreSource.ASK and not options.takeover:
        raise NeedsChoice(job, status, position, checkpoints=checkpoints)
    return StartMode.RESUME
