"""`tidegate validate FILE...`: is this a job that could start, and if not, everything that is wrong. Starts nothing: no JVM, no Arrow, no store."""

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from tidegate.cli.exits import BAD_INPUT, FINISHED
from tidegate.cli.job_file import counted, load, options, print_problems, summary, values_of
from tidegate.model.problem import Problem, Strictness
from tidegate.planner.plan import Planned


@click.command("validate")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@options
@click.option("--json", "as_json", is_flag=True, help="For machines: a list with the problems of each file.")
def validate(files: tuple[str, ...], variable: Sequence[str], strict: Strictness, as_json: bool) -> None:
    """Judge job files: all their problems at once, each with its line and what to write instead.

    Exit code 0 means that every file is good, 2 that one is not. Warnings and notices are shown and do no harm.

    \b
    Examples:
      tidegate validate job.conf
      tidegate validate jobs/*.conf --strict --json
    """
    variables = values_of(variable)
    judged = [(file, load(file, variables=variables, environ=os.environ, strict=strict)) for file in files]
    if as_json:
        click.echo(json.dumps([_document(file, planned) for file, planned in judged], indent=2, ensure_ascii=False))
    else:
        for _, planned in judged:
            print_problems(planned.problems, sys.stdout)
        click.echo(_verdict(judged))
    raise SystemExit(FINISHED if all(not planned.errors for _, planned in judged) else BAD_INPUT)


def _document(file: str, planned: Planned) -> dict[str, Any]:
    return {"file": file, "ok": not planned.errors, "problems": [problem_document(problem) for problem in planned.problems]}


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
    verdict = "all good" if not bad else f"{bad} of them not good" if len(judged) > 1 else "not good"
    return f"{counted(len(judged), 'file')}, {verdict}: {found}" if len(judged) > 1 else f"{judged[0][0]}: {'good' if not bad else 'not good'}: {found}"
