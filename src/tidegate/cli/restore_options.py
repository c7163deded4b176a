"""The options of a restore, the same in `run` and `restore-plan`, including SeaTunnel's own.

It must import nothing heavier than click.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, TypeVar, cast

import click

from tidegate.coordinator.restore.options import (
    RestoreOptions,
    parse_changes,
    parse_choice,
    parse_files,
)
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
    """The parsed options.

    `job_id` is the id that the options imply: `-r 7` resumes job 7. `new_job`: a new job starts
    from the state of another one.
    """

    options: RestoreOptions
    job_id: int | None = None
    new_job: bool = False


def options(command: F) -> F:
    """Add all options of a restore, and pass them to the command as `restoring`."""

    @wraps(command)
    def packed(*arguments: Any, **values: Any) -> Any:
        said = {name: values.pop(name) for name in NAMES}
        return command(*arguments, restoring=parse_restore(said), **values)

    for add in reversed(_OPTIONS):
        packed = add(packed)
    return cast(F, packed)


def parse_restore(values: dict[str, Any]) -> RestoreArguments:
    """Parse the options, or raise a usage error."""
    try:
        return _parse_restore(values)
    except UserError as error:
        raise click.UsageError(str(error)) from None


def _parse_restore(values: dict[str, Any]) -> RestoreArguments:
    text, source, with_checkpoint = (
        values["restore"],
        values["restore_from"],
        values["restore_with_checkpoint"],
    )
    if with_checkpoint is not None and (text is not None or source is not None):
        raise UserError(
            "--restore-with-checkpoint already selects what is restored: omit --restore and"
            " --restore-from"
        )
    job_id = None
    # SeaTunnel's -r: the latest state of this job, which keeps its id
    if text is not None and text.isascii() and text.isdigit():
        job_id, text = int(text), "latest"
    elif text is not None and "/" in text and text.partition(":")[0] not in ("savepoint", "path"):
        text = f"path:{text}"
    options = replace(
        RestoreOptions.parse(text),
        takeover=values["takeover"],
        duplicates=values["allow_duplicates"],
        skip_files=parse_files("--skip-file", map(absolute, values["skip_file"])),
        accept_files=parse_files("--accept-file", map(absolute, values["accept_file"])),
        accept_changes=parse_changes(values["accept_change"]),
        on_missing=parse_choice(OnMissing, "--on-missing", values["on_missing"], OnMissing.FAIL),
        on_damaged=parse_choice(OnDamaged, "--on-damaged", values["on_damaged"], OnDamaged.OLDER),
        on_incompatible=parse_choice(
            OnIncompatible, "--on-incompatible", values["on_incompatible"], OnIncompatible.FAIL
        ),
        on_position_lost=parse_choice(
            OnPositionLost, "--on-not-held", values["on_not_held"], OnPositionLost.FAIL
        ),
        on_sink_lost=parse_choice(
            OnSinkLost, "--on-sink-lost", values["on_sink_lost"], OnSinkLost.FAIL
        ),
    )
    return RestoreArguments(
        options.from_job(with_checkpoint if with_checkpoint is not None else source, job_id),
        job_id,
        with_checkpoint is not None,
    )


def _choice(name: str, kind: Any, text: str) -> Callable[[Any], Any]:
    return click.option(
        name, type=click.Choice([each.value for each in kind], case_sensitive=False), help=text
    )


def absolute(path: str) -> str:
    """Make a path absolute, as the driver needs it; URLs of files stay."""
    return path if path.startswith("file:") else os.path.abspath(path)


CONSENT_OPTIONS = (
    click.option(
        "--skip-file",
        multiple=True,
        metavar="PATH",
        help="Skip this damaged or lost file, or all files below this directory. Repeatable.",
    ),
    click.option(
        "--accept-file",
        multiple=True,
        metavar="PATH",
        help=(
            "Read this file, or all files below this directory, although it has changed."
            " Repeatable."
        ),
    ),
    click.option(
        "--accept-change",
        multiple=True,
        metavar="[TABLE@]POSITION=CHOICE",
        help=(
            "Decide about a table change that stopped the job: adopt, reread or skip. Repeatable."
        ),
    ),
)
_OPTIONS = (
    click.option(
        "-r",
        "--restore",
        metavar="WORD",
        help=(
            "Restore point: latest, checkpoint:N, savepoint:ID, path:DIR, fresh or auto. A job id"
            " means the latest state of that job, under its id."
        ),
    ),
    click.option(
        "--restore-from",
        type=JOB_ID,
        metavar="JOB",
        help=(
            "Restore the state of another job. If that job is running, this one is a fork with its"
            " own lineage."
        ),
    ),
    click.option(
        "--restore-with-checkpoint",
        type=JOB_ID,
        metavar="JOB",
        help="Restore the last checkpoint of another job, under a new id (or --job-id).",
    ),
    click.option(
        "--takeover",
        is_flag=True,
        help="If the job is running: fence and end that run, then resume.",
    ),
    _choice("--on-missing", OnMissing, "If there is no state to restore (default: fail)."),
    _choice(
        "--on-damaged",
        OnDamaged,
        "If the newest checkpoint is damaged (default: older, the newest intact one).",
    ),
    _choice(
        "--on-incompatible",
        OnIncompatible,
        "If the state does not match the job file (default: fail; drop discards unmatched state).",
    ),
    _choice(
        "--on-not-held",
        OnPositionLost,
        "If a source no longer has the position (default: fail).",
    ),
    _choice(
        "--on-sink-lost",
        OnSinkLost,
        "If a sink's target has no record of the checkpoint (default: fail; continue: lost rows are"
        " not written again).",
    ),
    click.option(
        "--allow-duplicates",
        is_flag=True,
        help="Accept duplicate rows if a sink cannot roll them back.",
    ),
    *CONSENT_OPTIONS,
)
