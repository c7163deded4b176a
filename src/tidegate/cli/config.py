"""`tidegate config show`: the effective engine settings and the source of each.

Reads the file and starts nothing.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from tidegate.cli.exits import BAD_INPUT, FINISHED
from tidegate.cli.job_file import print_problems
from tidegate.cli.validate import problem_document
from tidegate.config.engine.options import IGNORED
from tidegate.config.engine.settings import EngineSources, load_engine
from tidegate.config.engine.view import ShownSetting, effective_settings
from tidegate.home import Home
from tidegate.model.problem import Problem, Severity


@click.group("config")
def config() -> None:
    """Show the effective settings of the engine.

    \b
    Examples:
      tidegate config show
      tidegate config show --config tidegate.yaml --json
    """


@config.command("show")
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    help="The engine's file (TIDEGATE_CONFIG; else tidegate.yaml or seatunnel.yaml of the home).",
)
@click.option(
    "--home", help="Directory of this installation: store, checkpoints, logs (TIDEGATE_HOME)."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--strict", is_flag=True, help="Unknown keys are errors, not warnings.")
def show(file: Path | None, home: str | None, as_json: bool, strict: bool) -> None:
    """Show every effective key, its value, and where the value came from.

    Secrets are masked. Exit code 0 means that a server could start with these settings, 2 that the
    file has errors, which are shown as those of a job file.
    """
    found = Home.find(home, os.environ)
    settings, sources, problems = load_engine(file, os.environ, home=found, strict=strict)
    rows = effective_settings(settings, sources, found)
    if as_json:
        click.echo(
            json.dumps(_document(found, sources, rows, problems), indent=2, ensure_ascii=False)
        )
    else:
        print_problems(problems, sys.stderr)
        _print(found, sources, rows)
    raise SystemExit(
        BAD_INPUT if any(problem.severity is Severity.ERROR for problem in problems) else FINISHED
    )


def _print(home: Home, sources: EngineSources, rows: list[ShownSetting]) -> None:
    """Print in columns that do not depend on the width of the terminal."""
    click.echo(f"# home: {home.root}")
    click.echo(f"# file: {sources.file or 'none, everything has its default'}")
    texts = [(row.key, _text(row.value), str(row.source)) for row in rows]
    widths = [min(56, max(len(text[column]) for text in texts)) for column in (0, 1)]
    for key, value, source in texts:
        click.echo(f"{key:<{widths[0]}}  {value:<{widths[1]}}  {source}")
    for key in sources.ignored:
        click.echo(f"{key:<{widths[0]}}  {'(ignored)':<{widths[1]}}  {IGNORED[key]}")


def _text(value: Any) -> str:
    """Format a value as in the file; `-` if there is none."""
    if value is None or value == "":
        return "-"
    return value if isinstance(value, str) else json.dumps(value)


def _document(
    home: Home, sources: EngineSources, rows: list[ShownSetting], problems: list[Problem]
) -> dict[str, Any]:
    return {
        "home": str(home.root),
        "file": sources.file or None,
        "settings": {row.key: _setting(row) for row in rows},
        "ignored": {key: IGNORED[key] for key in sources.ignored},
        "problems": [problem_document(problem) for problem in problems],
    }


def _setting(row: ShownSetting) -> dict[str, Any]:
    source = row.source
    place = {"file": source.at.file, "line": source.at.line} if source.at else {}
    names = {"variables": list(source.names)} if source.names else {}
    return {"value": row.value, "source": source.origin.value, **place, **names}
