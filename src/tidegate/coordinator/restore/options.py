"""Restore options of a submit, and what they mean given the previous run. Pure."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

from tidegate.model.option_error import MessagePart, OptionError, OptionMention
from tidegate.model.restore import OnDamaged, OnIncompatible, OnMissing, OnPositionLost, OnSinkLost
from tidegate.model.table_changes import AcceptedChange

E = TypeVar("E", bound=StrEnum)
FILES_MAX = 100
FILES_CHARS_MAX = 20_000
CHANGES_MAX = 100
RESTORE_SYNTAX = "latest, checkpoint:<id>, savepoint:<id or path>, path:<directory>, fresh or auto"


class RestoreSource(StrEnum):
    ASK = "ask"  # no option was given
    AUTO = "auto"
    LATEST = "latest"
    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"
    PATH = "path"
    FRESH = "fresh"


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """The requested restore.

    `checkpoint` applies only to RestoreSource.CHECKPOINT, `location` to SAVEPOINT and PATH.
    """

    start: RestoreSource
    checkpoint: int = 0
    location: str = ""
    source_job: int | None = None  # restore-from: another job's state
    takeover: bool = False  # fence a run that is still alive
    on_missing: OnMissing = OnMissing.FAIL
    on_damaged: OnDamaged = OnDamaged.OLDER
    on_incompatible: OnIncompatible = OnIncompatible.FAIL
    on_position_lost: OnPositionLost = OnPositionLost.FAIL
    on_sink_lost: OnSinkLost = OnSinkLost.FAIL
    duplicates: bool = False  # consent: rows may be written twice
    skip_files: tuple[str, ...] = ()  # absolute paths of files and directories to exclude
    accept_files: tuple[str, ...] = ()  # paths of files to read although they have changed
    accept_changes: tuple[AcceptedChange, ...] = ()  # decisions about changes of tables

    @staticmethod
    def parse(text: str | None) -> "RestoreOptions":
        """Parse `latest`, `checkpoint:7`, `savepoint:<id>`, `path:7/1/12`, `fresh`, `auto`."""
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
        raise OptionError(
            OptionMention("--restore", repr(text)), f" is invalid: use {RESTORE_SYNTAX}"
        )

    @property
    def by_location(self) -> bool:
        """Whether the state is named by its location, and not by the job's last run."""
        return self.start in (RestoreSource.SAVEPOINT, RestoreSource.PATH)

    def from_job(self, source_job: int | None, own: int | None) -> "RestoreOptions":
        """Use the state of another job: its `latest` unless another source is given."""
        if source_job is None or source_job == own:
            return self
        if self.start is RestoreSource.FRESH:
            raise OptionError(
                OptionMention("--restore", "fresh"),
                " cannot be combined with ",
                OptionMention("--restore-from", str(source_job)),
                ": a fresh start uses no state",
            )
        return replace(
            self,
            source_job=source_job,
            start=RestoreSource.LATEST if self.start is RestoreSource.ASK else self.start,
        )


def parse_files(option: str, paths: Iterable[str]) -> tuple[str, ...]:
    """Parse the paths of an option; they must be absolute, as the driver may run elsewhere."""
    found = []
    for text in paths:
        path = re.sub(r"^file:(//)?(?=/)", "", text.strip())
        if not path.startswith("/"):
            raise OptionError(
                OptionMention(option, repr(text)),
                " is not an absolute path: copy it from the job's error",
            )
        found.append(os.path.normpath(path))
    if len(found) > FILES_MAX or sum(map(len, found)) > FILES_CHARS_MAX:
        raise OptionError(
            OptionMention(option),
            f" is given {len(found)} times, with {sum(map(len, found))} characters: at most"
            f" {FILES_MAX}, with {FILES_CHARS_MAX}; a directory stands for all files below it",
        )
    return tuple(dict.fromkeys(found))


def parse_changes(texts: Iterable[str]) -> tuple[AcceptedChange, ...]:
    """Parse the values of --accept-change: one choice per position and table."""
    found: dict[tuple[str, str], AcceptedChange] = {}
    for change in map(AcceptedChange.parse, texts):
        before = found.setdefault((change.at, change.table), change)
        if before != change:
            raise OptionError(
                OptionMention("--accept-change"),
                f" is given both as {before} and as {change}: choose one",
            )
    if len(found) > CHANGES_MAX:
        raise OptionError(
            OptionMention("--accept-change"),
            f" is given {len(found)} times: at most {CHANGES_MAX}",
        )
    return tuple(found.values())


def parse_choice(kind: type[E], option: str, text: str | None, default: E) -> E:
    """Parse the value of an option such as on-missing; an unknown one is rejected."""
    if text is None:
        return default
    try:
        return kind(text.lower())
    except ValueError:
        raise OptionError(
            OptionMention(option, repr(text)),
            f" is invalid: use {' or '.join(each.value for each in kind)}",
        ) from None


class PreviousRun(StrEnum):
    """What exists of an earlier run."""

    NONE = "none"  # never ran
    FINISHED = "finished"  # ran to its end
    DISCARDED = "discarded"  # ended, and its checkpoints are being deleted
    WORK_DONE = (  # every pipeline finished, but the run was killed before it could say so
        "work-done"
    )
    UNFINISHED = "unfinished"  # killed, failed or stopped: something to resume


class StartMode(StrEnum):
    FRESH = "fresh"
    RESUME = "resume"
    NOTHING = "nothing"  # only the end has to be recorded


class NeedsChoice(OptionError):
    """An unfinished run exists, and no option says what to do with it."""

    condition = "needs-restore-choice"

    def __init__(self, job: str, status: str, place: str, *, checkpoints: bool = True) -> None:
        points = {
            "latest": "from its last completed checkpoint",
            "checkpoint:<id>": "from an older one (see `tidegate checkpoints list`)",
            "savepoint:<id>": "from a savepoint",
            "auto": "as latest; fresh after a run that finished",
        }
        begun = {
            "auto": "from its beginning, as the same run; sinks recognise rows that it has written"
        }
        fresh = {
            "fresh": "from the beginning; what the unfinished run has written stays where it is"
        }
        parts: list[MessagePart] = [
            f"{job} has an unfinished run ({status}; {place}). Choose how to continue:"
        ]
        for value, meaning in ((points if checkpoints else begun) | fresh).items():
            padding = " " * (len("checkpoint:<id>") - len(value))
            parts += ["\n  ", OptionMention("--restore", value), f"{padding}  {meaning}"]
        super().__init__(*parts)


class NothingToRestore(OptionError):
    """A restore was requested, and no state exists."""

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
    """Decide how a job starts; never silently fresh.

    `searched` says where state was searched for.
    """
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
    there = f" (searched in {searched})" if searched else ""
    match condition:
        case PreviousRun.NONE:
            raise NothingToRestore(
                f"{job} has never run here: there is no checkpoint to restore{there}."
                " Start it with ",
                OptionMention("--restore", "fresh"),
                " or ",
                OptionMention("--restore", "auto"),
                ", or use ",
                OptionMention("--on-missing", "fresh"),
            )
        case PreviousRun.FINISHED:
            raise NothingToRestore(
                f"{job} has finished: there is nothing left to restore. Run it again without ",
                OptionMention("--restore"),
                ", or with ",
                OptionMention("--restore", "fresh"),
            )
        case PreviousRun.DISCARDED:
            raise NothingToRestore(
                f"{job} has ended, and nothing of it is kept. Run it again without ",
                OptionMention("--restore"),
                ", or with ",
                OptionMention("--restore", "fresh"),
            )
        case PreviousRun.WORK_DONE:
            return StartMode.NOTHING
    if options.start is RestoreSource.ASK and not options.takeover:
        raise NeedsChoice(job, status, position, checkpoints=checkpoints)
    return StartMode.RESUME
