"""A job to run, as words of the command line: what `run` takes, and `restore-plan` in the same
words.

Nothing heavier than click may be imported here.
"""

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from tidegate.cli import job_file
from tidegate.cli import restore_options as restore_words
from tidegate.home import Home
from tidegate.model.ids import JOB_ID_MAX
from tidegate.model.problem import Strictness

F = TypeVar("F", bound=Callable[..., Any])
NAMES = ("file", "home", "job_id", "name", "restoring", "config", "as_json", "variable", "strict")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunArguments:
    """What was said. `job_id` is also the one that goes with the restore."""

    file: str
    home: Home
    job_id: int | None
    name: str | None
    restoring: restore_words.RestoreArguments
    config: Path | None
    as_json: bool
    variable: tuple[str, ...]
    strict: Strictness


def command_line(said: RunArguments, environ: Mapping[str, str]) -> str:
    """The command that runs the same job again, but for what it restores."""
    home = [] if said.home == Home.find(None, environ) else ["--home", str(said.home.root)]
    given = (("--job-id", said.job_id), ("--name", said.name), ("--config", said.config))
    named = [word for option, value in given if value is not None for word in (option, str(value))]
    variables = [word for each in said.variable for word in ("-i", each)]
    flags = [
        *(["--json"] if said.as_json else []),
        *([] if said.strict is Strictness.NORMAL else [f"--{said.strict}"]),
    ]
    return shlex.join(["tidegate", "run", said.file, *home, *named, *variables, *flags])


def options(command: F) -> F:
    """The job file and all options of a run, given to the command as `said`."""

    @wraps(command)
    def packed(**values: Any) -> Any:
        given = {name: values.pop(name) for name in NAMES}
        given["home"] = Home.find(given["home"], os.environ)
        given["job_id"] = given["job_id"] or given["restoring"].job_id
        return command(said=RunArguments(**given), **values)

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
        help="The job's id; without it the job is known by its name.",
    ),
    click.option("-n", "--name", help="The job's name, instead of job.name of the file."),
    restore_words.options,
    click.option(
        "--config",
        type=click.Path(path_type=Path),
        help="The engine's file; else TIDEGATE_CONFIG, tidegate.yaml of the home, defaults.",
    ),
    click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="For machines: one JSON object a line, of a plan one document.",
    ),
    job_file.options,
)
