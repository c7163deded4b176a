"""`tidegate validate FILE...`: is this a job that could start, and if not, everything that is
wrong. Starts nothing: no JVM, no store, and no Arrow unless `--sample` asks for the first rows of
the data.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from tidegate.cli.exits import BAD_INPUT, FINISHED
from tidegate.cli.job_file import counted, load, options, print_problems, summary, values_of
from tidegate.model.plan import Plan
from tidegate.model.problem import Location, Problem, ProblemKind, Severity, Strictness
from tidegate.planner.plan import Planned

SAMPLE_ROWS = 1000


@click.command("validate")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@options
@click.option(
    "--sample", is_flag=True, help="Read the first rows of every file that is on this host, too."
)
@click.option(
    "--json", "as_json", is_flag=True, help="For machines: a list with the problems of each file."
)
def validate(
    files: tuple[str, ...], variable: Sequence[str], strict: Strictness, sample: bool, as_json: bool
) -> None:
    """Judge job files: all their problems at once, each with its line and what to write instead.

    Where the files that a job reads are on this host, the first lines of a few of them are compared
    with the schema; --sample reads the first 1000 rows of up to 100 of them. A path that is not
    there yet is a warning: the job may run elsewhere.

    Exit code 0 means that every file is good, 2 that one is not. Warnings and notices are shown and
    do no harm.

    \b
    Examples:
      tidegate validate job.conf
      tidegate validate job.conf --sample
      tidegate validate jobs/*.conf --strict --json
    """
    variables = values_of(variable)
    judged = [(file, _judged(file, variables, strict, sample)) for file in files]
    if as_json:
        click.echo(
            json.dumps(
                [_document(file, planned) for file, planned in judged], indent=2, ensure_ascii=False
            )
        )
    else:
        for _, planned in judged:
            print_problems(planned.problems, sys.stdout)
        click.echo(_verdict(judged))
    raise SystemExit(FINISHED if all(not planned.errors for _, planned in judged) else BAD_INPUT)


def _judged(file: str, variables: Mapping[str, str], strict: Strictness, sample: bool) -> Planned:
    """A job file, and what the data at hand says against it: that is an error here."""
    planned = load(file, variables=variables, environ=os.environ, strict=strict)
    problems = planned.problems
    if sample and planned.plan is not None:
        problems = [problem for problem in problems if problem.kind is not ProblemKind.DATA]
        problems += _sample_problems(file, planned.plan)
    problems = [
        replace(p, severity=Severity.ERROR) if p.kind is ProblemKind.DATA else p for p in problems
    ]
    return Planned(plan=planned.plan, problems=problems)


def _sample_problems(file: str, plan: Plan) -> Iterator[Problem]:
    from tidegate.cli.dry_run import graphs_of  # Arrow, which plain validation does without

    for graph in graphs_of(plan):
        for operator, source in graph.sources.items():
            if graph.nodes[operator].connector.spark:
                continue
            for what in source.inspect(SAMPLE_ROWS):
                yield Problem(kind=ProblemKind.DATA, message=what, at=Location(file), path=operator)


def _document(file: str, planned: Planned) -> dict[str, Any]:
    return {
        "file": file,
        "ok": not planned.errors,
        "problems": [problem_document(problem) for problem in planned.problems],
    }


def problem_document(problem: Problem) -> dict[str, Any]:
    """A problem as JSON. `line` 0 means the file as a whole."""
    return {
        "kind": problem.kind.value,
        "severity": problem.severity.value,
        "file": problem.at.file,
        "line": problem.at.line,
        "path": problem.path,
        "message": problem.message,
        "expected": problem.expected,
        "suggestion": problem.suggestion,
    }


def _verdict(judged: list[tuple[str, Planned]]) -> str:
    bad = sum(bool(planned.errors) for _, planned in judged)
    found = summary([problem for _, planned in judged for problem in planned.problems])
    verdict = (
        "all good" if not bad else f"{bad} of them not good" if len(judged) > 1 else "not good"
    )
    return (
        f"{counted(len(judged), 'file')}, {verdict}: {found}"
        if len(judged) > 1
        else f"{judged[0][0]}: {'good' if not bad else 'not good'}: {found}"
    )
