"""The job file and the options that `run` and `restore-plan` share.

It must import nothing heavier than click.
"""

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from tidegate.cli import job_file, restore_options
from tidegate.home import Home
from tidegate.model.ids import JOB_ID_MAX
from tidegate.model.problem import Strictness

F = TypeVar("F", bound=Callable[..., Any])
NAMES = ("file", "home", "job_id", "name", "restoring", "config", "as_json", "variable", "strict")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunArguments:
    """The parsed command line. `job_id` is also the one that the restore options imply."""

    file: str
    home: Home
    job_id: int | None
    name: str | None
    restoring: restore_options.RestoreArguments
    config: Path | None
    as_json: bool
    variable: tuple[str, ...]
    strict: Strictness


def command_line(arguments: RunArguments, environ: Mapping[str, str]) -> str:
    """Return the command that runs the same job again, without its restore options."""
    home = (
        [] if arguments.home == Home.find(None, environ) else ["--home", str(arguments.home.root)]
    )
    options = (
        ("--job-id", arguments.job_id),
        ("--name", arguments.name),
        ("--config", arguments.config),
    )
    named = [
        word for option, value in options if value is not None for word in (option, str(value))
    ]
    variables = [word for each in arguments.variable for word in ("-i", each)]
    flags = [
        *(["--json"] if arguments.as_json else []),
        *([] if arguments.strict is Strictness.NORMAL else [f"--{arguments.strict}"]),
    ]
    return shlex.join(["tidegate", "run", arguments.file, *home, *named, *variables, *flags])


def options(command: F) -> F:
    """Add the job file and all options of a run, and pass them to the command as `arguments`."""

    @wraps(command)
    def packed(**values: Any) -> Any:
        given = {name: values.pop(name) for name in NAMES}
        given["home"] = Home.find(given["home"], os.environ)
        given["job_id"] = given["job_id"] or given["restoring"].job_id
        return command(arguments=RunArguments(**given), **values)

    for add in reversed(_OPTIONS):
        packed = add(packed)
    return cast(F, packed)


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.argument("file", type=click.Path()),
    click.option(
        "--home", help="Directory of this installation: store, checkpoints, logs (TIDEGATE_HOME)."
    ),
    click.option(
        "--job-id",
        type=click.IntRange(1, JOB_ID_MAX),
        help="The job's id; without it the job is identified by its name.",
    ),
    click.option("-n", "--name", help="The job's name; overrides job.name of the file."),
    restore_options.options,
    click.option(
        "--config",
        type=click.Path(path_type=Path),
        help="The engine's file.  [default: TIDEGATE_CONFIG, or tidegate.yaml of the home]",
    ),
    click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="Print one JSON object per line; for a plan, one document.",
    ),
    job_file.options,
)
