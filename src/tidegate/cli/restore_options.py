"""From where a job shall go on, as words of the command line: the same in `run` and `restore-plan`,
with the reference's own beside them.

Nothing heavier than click may be imported here.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, TypeVar, cast

import click

from tidegate.coordinator.restore.options import RestoreOptions, changes_of, files_of, parse_choice
from tidegate.model.errors import UserError
from tidegate.model.ids import JOB_ID_MAX
from tidegate.model.restore import OnDamaged, OnIncompatible, OnMissing, OnPositionLost, OnSinkLost

F = TypeVar("F", bound=Callable[..., Any])
JOB_ID = click.IntRange(1, JOB_ID_MAX)
NAMES = (
    "restore",
    "restore_with_checkpoint",
    "restore_from",
    "takeover",
    "on_missing",
    "on_damaged",
    "on_incompatible",
    "on_not_held",
    "on_sink_lost",
    "allow_duplicates",
    "skip_file",
    "accept_file",
    "accept_change",
)


@dataclass(frozen=True, slots=True)
class RestoreArguments:
    """What was said.

    `job_id` is the id that goes with it: `-r 7` goes on as job 7. `another`: the state of one job
    for a new one.
    """

    options: RestoreOptions
    job_id: int | None = None
    another: bool = False


def options(command: F) -> F:
    """All options of a restore, given to the command as `restoring`."""

    @wraps(command)
    def packed(*arguments: Any, **values: Any) -> Any:
        said = {name: values.pop(name) for name in NAMES}
        return command(*arguments, restoring=restoring_of(said), **values)

    for add in reversed(_OPTIONS):
        packed = add(packed)
    return cast(F, packed)


def restoring_of(said: dict[str, Any]) -> RestoreArguments:
    """The options as a wish, or a usage error."""
    try:
        return _restoring(said)
    except UserError as error:
        raise click.UsageError(str(error)) from None


def _restoring(said: dict[str, Any]) -> RestoreArguments:
    text, source, another = said["restore"], said["restore_from"], said["restore_with_checkpoint"]
    if another is not None and (text is not None or source is not None):
        raise UserError(
            "--restore-with-checkpoint says already what is restored: leave --restore and"
            " --restore-from out"
        )
    job_id = None
    if (
        text is not None and text.isascii() and text.isdigit()
    ):  # the reference's -r: the latest state of this job, which keeps its id
        job_id, text = int(text), "latest"
    elif text is not None and "/" in text and text.partition(":")[0] not in ("savepoint", "path"):
        text = f"path:{text}"
    wish = replace(
        RestoreOptions.parse(text),
        takeover=said["takeover"],
        duplicates=said["allow_duplicates"],
        skip_files=files_of("--skip-file", map(absolute, said["skip_file"])),
        accept_files=files_of("--accept-file", map(absolute, said["accept_file"])),
        accept_changes=changes_of(said["accept_change"]),
        on_missing=parse_choice(OnMissing, "--on-missing", said["on_missing"], OnMissing.FAIL),
        on_damaged=parse_choice(OnDamaged, "--on-damaged", said["on_damaged"], OnDamaged.OLDER),
        on_incompatible=parse_choice(
            OnIncompatible, "--on-incompatible", said["on_incompatible"], OnIncompatible.FAIL
        ),
        on_not_held=parse_choice(
            OnPositionLost, "--on-not-held", said["on_not_held"], OnPositionLost.FAIL
        ),
        on_sink_lost=parse_choice(
            OnSinkLost, "--on-sink-lost", said["on_sink_lost"], OnSinkLost.FAIL
        ),
    )
    return RestoreArguments(
        wish.of_job(another if another is not None else source, job_id), job_id, another is not None
    )


def _choice(name: str, kind: Any, text: str) -> Callable[[Any], Any]:
    return click.option(
        name, type=click.Choice([each.value for each in kind], case_sensitive=False), help=text
    )


def absolute(path: str) -> str:
    """A path as the driver needs it."""
    return path if path.startswith("file:") else os.path.abspath(path)


CONSENT_OPTIONS = (
    click.option(
        "--skip-file",
        multiple=True,
        metavar="PATH",
        help="Leave this file out, or all below this directory: a bad or lost file. Repeatable.",
    ),
    click.option(
        "--accept-file",
        multiple=True,
        metavar="PATH",
        help=(
            "Read this file, or all below this directory, as it is now although it changed."
            " Repeatable."
        ),
    ),
    click.option(
        "--accept-change",
        multiple=True,
        metavar="[TABLE@]POSITION=CHOICE",
        help=(
            "Decide about a change of a table that stopped the job: adopt, reread or skip."
            " Repeatable."
        ),
    ),
)
_OPTIONS = (
    click.option(
        "-r",
        "--restore",
        metavar="WORD",
        help=(
            "From where to go on: latest, checkpoint:N, savepoint:ID, path:DIR, fresh or auto. A"
            " job id: the latest state of that job, under its id."
        ),
    ),
    click.option(
        "--restore-from",
        type=JOB_ID,
        metavar="JOB",
        help=(
            "Take the state of another job; a fork, with a lineage of its own, where that one runs."
        ),
    ),
    click.option(
        "--restore-with-checkpoint",
        type=JOB_ID,
        metavar="JOB",
        help="The last checkpoint of another job, under a new id (or --job-id).",
    ),
    click.option(
        "--takeover", is_flag=True, help="Where the job runs: fence that run, end it, and go on."
    ),
    _choice("--on-missing", OnMissing, "Where there is no state (fail)."),
    _choice(
        "--on-damaged",
        OnDamaged,
        "Where the newest checkpoint is damaged (older: the next one that is sound).",
    ),
    _choice(
        "--on-incompatible",
        OnIncompatible,
        "Where the state does not fit the job file (fail; drop gives up what has no owner).",
    ),
    _choice(
        "--on-not-held",
        OnPositionLost,
        "Where a source does not hold the position any more (fail).",
    ),
    _choice(
        "--on-sink-lost",
        OnSinkLost,
        "Where a sink's target knows nothing of the checkpoint (fail; continue: what it held stays"
        " lost).",
    ),
    click.option(
        "--allow-duplicates",
        is_flag=True,
        help="Agree that rows come twice where a sink cannot take them back.",
    ),
    *CONSENT_OPTIONS,
)
