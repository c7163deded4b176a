"""Loads and plans a job file for a command, and prints its problems for humans.

Shared by run, validate and explain. It must import nothing heavier than click, because `tidegate
validate` must answer at once.
"""

import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click

from tidegate.cli.exits import BAD_INPUT
from tidegate.config.load import LoadResult, read_job
from tidegate.config.variables import read_variables
from tidegate.model.errors import UserError
from tidegate.model.plan import Plan
from tidegate.model.problem import Location, Problem, ProblemKind, Severity, Strictness
from tidegate.planner.plan import Planned, in_file_order, plan
from tidegate.redact import is_delicate_line

F = TypeVar("F", bound=Callable[..., Any])

EXCERPT_CHARS_MAX = 120
_STRICTNESS = {
    Strictness.STRICT: "Every unknown key is an error.",
    Strictness.LENIENT: "Unknown options of a connector are warnings, not errors.",
}
_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTICE: "cyan"}


def load(
    path: str,
    *,
    variables: Mapping[str, str],
    environ: Mapping[str, str],
    strict: Strictness = Strictness.NORMAL,
    fatal: Collection[ProblemKind] = (),
) -> Planned:
    """Read and plan a job file; return all problems in file order, also of a missing file.

    Warnings of the kinds in `fatal` become errors: each command decides whether missing or
    unsuitable data stops it.
    """
    try:
        reading = read_job(
            path, variables=variables, environment=environ, strict=strict is Strictness.STRICT
        )
    except UserError as error:
        problem = Problem(kind=ProblemKind.SYNTAX, message=str(error), at=Location(path))
        return Planned(plan=None, problems=[problem])
    if reading.spec is None:
        return Planned(plan=None, problems=list(reading.problems))
    planned = plan(reading.spec, strictness=strict)
    problems = in_file_order(
        [*reading.problems, *_new_problems(reading, planned.problems)], reading.spec.file
    )
    problems = [replace(p, severity=Severity.ERROR) if p.kind in fatal else p for p in problems]
    wrong = any(problem.severity is Severity.ERROR for problem in problems)
    return Planned(plan=None if wrong else planned.plan, problems=problems)


def _new_problems(reading: LoadResult, problems: Iterable[Problem]) -> list[Problem]:
    """Return the planner's problems, without those at positions that already have an error.

    For example, a path with an unset variable cannot exist.
    """
    wrong = {problem.path for problem in reading.errors if problem.path.count("[")}
    return [problem for problem in problems if problem.path not in wrong]


def load_plan(
    file: str, variable: Sequence[str], strict: Strictness, *, here: bool = False
) -> Plan:
    """Return the plan of a valid job file.

    Problems go to stderr; an error ends the command with BAD_INPUT. With `here` the job runs on
    this host, so the files that it reads must exist.
    """
    fatal = (ProblemKind.PATH,) if here else ()
    planned = load(
        file, variables=values_of(variable), environ=os.environ, strict=strict, fatal=fatal
    )
    print_problems(planned.problems, sys.stderr)
    if planned.plan is None:
        click.echo(f"{file}: {summary(planned.problems)}; nothing was started", err=True)
        raise SystemExit(BAD_INPUT)
    return planned.plan


def print_problems(problems: Sequence[Problem], stream: TextIO) -> None:
    """Print problems by file and line, each with the line that it is about.

    The format is `file:line: error: path: message (expected ...); did you mean ...?`.
    """
    for file, group in groupby(problems, key=lambda problem: problem.at.file):
        lines = _lines(file)
        for problem in group:
            click.echo(_coloured(problem), file=stream)
            excerpt = _excerpt(lines, problem.at.line)
            if excerpt:
                click.echo(click.style(excerpt, dim=True), file=stream)


def summary(problems: Sequence[Problem]) -> str:
    """Count the problems: `2 errors, 1 warning`, or `no problems`."""
    counts = [
        (sum(problem.severity is severity for problem in problems), severity.value)
        for severity in Severity
    ]
    return ", ".join(counted(count, word) for count, word in counts if count) or "no problems"


def counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _coloured(problem: Problem) -> str:
    """Color the severity in the problem's sentence; click omits colors if it is no terminal."""
    word = f" {problem.severity}: "
    return str(problem).replace(
        word, f" {click.style(problem.severity, fg=_COLOURS[problem.severity], bold=True)}: ", 1
    )


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _excerpt(lines: list[str], number: int) -> str:
    if not 1 <= number <= len(lines):
        return ""
    text = lines[number - 1].strip()
    if not text or not text.isprintable() or is_delicate_line(text):
        return ""
    return (
        f"    {number:>4} |"
        f" {text if len(text) <= EXCERPT_CHARS_MAX else text[: EXCERPT_CHARS_MAX - 3] + '...'}"
    )


def values_of(variable: Sequence[str]) -> dict[str, str]:
    """Parse the values of `-i`, or raise a usage error."""
    try:
        return read_variables(variable)
    except UserError as error:
        raise click.UsageError(str(error)) from None


def _strictness(_context: object, _option: object, value: str | None) -> Strictness:
    return Strictness(value or Strictness.NORMAL)


def options(command: F) -> F:
    """Add the options of every command with a job file.

    `-i NAME=VALUE` is passed as `variable`, `--strict` and `--lenient` as `strict`.
    """
    for name, text in _STRICTNESS.items():
        command = click.option(
            f"--{name}", "strict", flag_value=name.value, callback=_strictness, help=text
        )(command)
    text = "Value of ${NAME} in the job file; may be repeated."
    return click.option("-i", "--variable", multiple=True, metavar="NAME=VALUE", help=text)(command)
