"""From a job file on the command line to a plan, and its problems in a form that people like.
Shared by run, validate and explain.

Nothing heavier than click may be imported here: `tidegate validate` has to answer at once.
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
    """A job file read and planned: all problems of both, in file order. A file that is not there is
    a problem too.

    Warnings of the kinds in `fatal` become errors: whether data that is not there, or does not fit,
    stops a command is up to the command.
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
        [*reading.problems, *_news(reading, planned.problems)], reading.spec.file
    )
    problems = [replace(p, severity=Severity.ERROR) if p.kind in fatal else p for p in problems]
    wrong = any(problem.severity is Severity.ERROR for problem in problems)
    return Planned(plan=None if wrong else planned.plan, problems=problems)


def _news(reading: LoadResult, problems: Iterable[Problem]) -> list[Problem]:
    """The planner's problems without those at places that are wrong already: a path with an unset
    variable in it does of course not exist.
    """
    wrong = {problem.path for problem in reading.errors if problem.path.count("[")}
    return [problem for problem in problems if problem.path not in wrong]


def planned(file: str, variable: Sequence[str], strict: Strictness, *, here: bool = False) -> Plan:
    """The plan of a good job file. Problems go to stderr; with an error among them the command ends
    with BAD_INPUT.

    `here`: the job runs on this host, so what it reads must be there.
    """
    fatal = (ProblemKind.PATH,) if here else ()
    judged = load(
        file, variables=values_of(variable), environ=os.environ, strict=strict, fatal=fatal
    )
    print_problems(judged.problems, sys.stderr)
    if judged.plan is None:
        click.echo(f"{file}: {summary(judged.problems)}; nothing was started", err=True)
        raise SystemExit(BAD_INPUT)
    return judged.plan


def print_problems(problems: Sequence[Problem], stream: TextIO) -> None:
    """`file:line: error: path: message (expected ...); did you mean ...?`, by file and line, each
    with the line it is about.
    """
    for file, group in groupby(problems, key=lambda problem: problem.at.file):
        lines = _lines(file)
        for problem in group:
            click.echo(_coloured(problem), file=stream)
            excerpt = _excerpt(lines, problem.at.line)
            if excerpt:
                click.echo(click.style(excerpt, dim=True), file=stream)


def summary(problems: Sequence[Problem]) -> str:
    """`2 errors, 1 warning`, or `no problems`."""
    counts = [
        (sum(problem.severity is severity for problem in problems), severity.value)
        for severity in Severity
    ]
    return ", ".join(counted(count, word) for count, word in counts if count) or "no problems"


def counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _coloured(problem: Problem) -> str:
    """The problem's own sentence, with its severity in colour (which click leaves out where it is
    not a terminal).
    """
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
    """What `-i` gave, or a usage error."""
    try:
        return read_variables(variable)
    except UserError as error:
        raise click.UsageError(str(error)) from None


def _strictness(_context: object, _option: object, value: str | None) -> Strictness:
    return Strictness(value or Strictness.NORMAL)


def options(command: F) -> F:
    """`-i NAME=VALUE` as `variable`, `--strict` and `--lenient` as `strict`: for every verb with a
    job file.
    """
    for name, text in _STRICTNESS.items():
        command = click.option(
            f"--{name}", "strict", flag_value=name.value, callback=_strictness, help=text
        )(command)
    text = "Value of ${NAME} in the job file; may be repeated."
    return click.option("-i", "--variable", multiple=True, metavar="NAME=VALUE", help=text)(command)
