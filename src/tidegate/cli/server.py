"""`tidegate server` and `tidegate worker`: long-running processes.

Loads the engine's settings, prints their problems, and calls server.py.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import click

from tidegate import server as composition
from tidegate.cli import exits, job_file
from tidegate.cli.rights import exposed_files
from tidegate.config.engine.settings import load_engine
from tidegate.home import Home
from tidegate.model.errors import TidegateError, UserError
from tidegate.model.problem import Severity
from tidegate.runner.java import SparkMissing, check_spark
from tidegate.server import ServerSettings


@click.command()
@click.option(
    "--home",
    help=(
        "Directory of this installation: store, checkpoints, logs (TIDEGATE_HOME). Servers of the"
        " same host may share it."
    ),
)
@click.option(
    "--http-port",
    type=click.IntRange(0, 65535),
    help="Port of the API; 0 selects a free one.  [default: 8080]",
)
@click.option(
    "--config",
    "config",
    type=click.Path(path_type=Path),
    help="The engine's file.  [default: TIDEGATE_CONFIG, or tidegate.yaml of the home]",
)
@click.option(
    "--no-worker", is_flag=True, help="Run no jobs here: other servers or `tidegate worker` do."
)
def server(
    home: str | None, http_port: int | None, config: Path | None, no_worker: bool
) -> NoReturn:
    """Serve the REST API, lead jobs if no other server does, and run them.

    \b
    Ctrl-C (or SIGTERM) shuts the server down, a second signal kills it. Jobs keep running, and a
    restarted server finds them.
    Exit code: 0 shut down, 1 failed, 2 bad settings or port in use.

    \b
    Examples:
      tidegate server
      tidegate server --http-port 8081    # a second one on the same home: leads if the first dies
      tidegate server --config tidegate.yaml --no-worker
    """
    start = load_settings(home, config)
    if http_port is not None:
        http = replace(
            start.settings.http, port=http_port, https_port=http_port, dynamic_port=False
        )
        start = replace(start, settings=replace(start.settings, http=http))
    has_worker = not no_worker and _can_run_jobs()
    sys.exit(
        run_until_end(lambda: composition.serve(replace(start, worker=has_worker), click.echo))
    )


def _can_run_jobs() -> bool:
    """Return whether the packages of drivers are installed; print a message if not."""
    try:
        check_spark()
    except SparkMissing as error:
        click.echo(f"tidegate: {error}; jobs wait for a server or worker that has it", err=True)
        return False
    return True


@click.command()
@click.option(
    "--home",
    help=(
        "Directory of this installation: logs, work files, and the store where no other is named"
        " (TIDEGATE_HOME)."
    ),
)
@click.option(
    "--config",
    "config",
    type=click.Path(path_type=Path),
    help="The engine's file.  [default: TIDEGATE_CONFIG, or tidegate.yaml of the home]",
)
def worker(home: str | None, config: Path | None) -> NoReturn:
    """Run jobs for the servers that share this store.

    Ctrl-C (or SIGTERM) ends the worker. The jobs that it has started keep running, and another
    worker on this host adopts them.

    \b
    Examples:
      tidegate worker --config tidegate.yaml
    """
    start = load_settings(home, config)

    def run() -> None:
        check_spark()
        composition.run_worker(start, click.echo)

    sys.exit(run_until_end(run))


def load_settings(home: str | None, config: Path | None) -> ServerSettings:
    """Load the settings; an error in the engine's file ends the command."""
    found = Home.find(home, os.environ)
    settings, sources, problems = load_engine(config, os.environ, home=found)
    if any(problem.severity is Severity.ERROR for problem in problems):
        job_file.print_problems(problems, sys.stderr)
        click.echo(
            f"tidegate: {job_file.summary(problems)} in the engine's file; nothing was started",
            err=True,
        )
        raise SystemExit(exits.BAD_INPUT)
    exposed = exposed_files(found, settings, sources.file, os.environ)
    return ServerSettings(
        home=found,
        settings=settings,
        environ=dict(os.environ),
        notices=tuple(map(str, (*problems, *exposed))),
    )


def run_until_end(run: Callable[[], None]) -> int:
    """Run until the end; print an error in one sentence, and return the exit code."""
    try:
        run()
    except UserError as error:
        click.echo(f"tidegate: {error}", err=True)
        return exits.BAD_INPUT
    except (TidegateError, OSError) as error:
        click.echo(f"tidegate: {error}", err=True)
        return exits.FAILED
    return exits.FINISHED
