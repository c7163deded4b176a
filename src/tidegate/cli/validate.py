"""`tidegate validate FILE...`: checks whether jobs could start, and prints all their problems.

Starts nothing: no JVM, no store, and no Arrow unless `--sample` requests the first rows of the
data.
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
@click.option("--sample", is_flag=True, help="Also read the first rows of every file on this host.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print a JSON list with the problems of each file."
)
def validate(
    files: tuple[str, ...], variable: Sequence[str], strict: Strictness, sample: bool, as_json: bool
) -> None:
    """Validate job files: print all problems, each with its line and a correction.

    If the input files of a job are on this host, the first lines of a few of them are compared with
    the schema. --sample reads the first 1000 rows of up to 100 of them. A missing path is only a
    warning, because the job may run on another host.

    Exit code 0 means that every file is valid, 2 that one is not. Warnings and notices are printed
    and do not change the exit code.

    \b
    Examples:
      tidegate validate job.conf
      tidegate validate job.conf --sample
      tidegate validate jobs/*.conf --strict --json
    """
    variables = values_of(variable)
    validated = [(file, _validated(file, variables, strict, sample)) for file in files]
    if as_json:
        click.echo(
            json.dumps(
                [_document(file, planned) for file, planned in validated],
                indent=2,
                ensure_ascii=False,
            )
        )
    else:
        for _, planned in validated:
            print_problems(planned.problems, sys.stdout)
        click.echo(_verdict(validated))
    raise SystemExit(FINISHED if all(not planned.errors for _, planned in validated) else BAD_INPUT)


def _validated(
    file: str, variables: Mapping[str, str], strict: Strictness, sample: bool
) -> Planned:
    """Load and plan a job file; problems with the existing data are errors here."""
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
    """Return a problem as JSON. `line` 0 means the file as a whole."""
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


def _verdict(validated: list[tuple[str, Planned]]) -> str:
    bad = sum(bool(planned.errors) for _, planned in validated)
    found = summary([problem for _, planned in validated for problem in planned.problems])
    if len(validated) == 1:
        return f"{validated[0][0]}: {'invalid' if bad else 'valid'}: {found}"
    verdict = f"{bad} invalid" if bad else "all valid"
    return f"{counted(len(validated), 'file')}, {verdict}: {found}"
