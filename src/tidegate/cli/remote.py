"""Connects commands to servers: `--server`, credentials, and error messages.

Shared by submit, jobs and seatunnel.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.table import Table

from tidegate.cli import exits
from tidegate.cli.pipe_console import PipeConsole
from tidegate.client import Client, NotAllowed, Refused
from tidegate.client.client import Credentials
from tidegate.model.errors import TidegateError, UserError

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT = "http://127.0.0.1:8080"
PIPE_COLUMNS = 200
RETRY_FOR_S = 10.0  # after the death of a leader, another one leads within seconds


class UnknownJobName(UserError):
    """The servers know no job by this id or name."""

    condition = "unknown-job"


def options(command: F) -> F:
    """Add `--server` and `--ca-file`, pass a `client`, and turn errors into messages."""

    @wraps(command)
    def called(*arguments: Any, server: str | None, ca_file: str | None, **named: Any) -> Any:
        try:
            return command(*arguments, client=client_of(server, ca_file, os.environ), **named)
        except NotAllowed as error:
            _end(
                f"{error}. The token is read from TIDEGATE_TOKEN, or from the file that"
                " TIDEGATE_TOKEN_FILE names",
                exits.REFUSED,
            )
        except Refused as error:
            _end(str(error), exits.BAD_INPUT)
        except TidegateError as error:
            _end(str(error), exits.code_of(error))

    decorated = click.option(
        "--ca-file", help="PEM file of the authority that signed the servers' certificates."
    )(called)
    text = (
        "Address of a server, or of several, separated by commas (TIDEGATE_SERVER).  [default:"
        f" {DEFAULT}]"
    )
    add_server = click.option("--server", metavar="URL[,URL]", help=text)
    return add_server(decorated)  # type: ignore[return-value]  # click has no types for it


def client_of(server: str | None, ca_file: str | None, environ: Mapping[str, str]) -> Client:
    """Create the client from the command line and the environment.

    A token is never an argument, because every user of the host can read arguments.
    """
    servers = [
        each.strip()
        for each in (server or environ.get("TIDEGATE_SERVER") or DEFAULT).split(",")
        if each.strip()
    ]
    access = Credentials(
        token=_token(environ),
        user=environ.get("TIDEGATE_USER", ""),
        password=environ.get("TIDEGATE_PASSWORD", ""),
        authorities=ca_file or environ.get("TIDEGATE_CA_FILE", ""),
        certificate=environ.get("TIDEGATE_CLIENT_CERTIFICATE", ""),
        private_key=environ.get("TIDEGATE_CLIENT_KEY", ""),
    )
    return Client(servers, access, retry_for_s=RETRY_FOR_S)


def _token(environ: Mapping[str, str]) -> str:
    if environ.get("TIDEGATE_TOKEN"):
        return environ["TIDEGATE_TOKEN"].strip()
    path = environ.get("TIDEGATE_TOKEN_FILE")
    if not path:
        return ""
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise UserError(
            f"the token cannot be read from {path}: {error.strerror or error}"
        ) from None


def job_of(client: Client, word: str) -> dict[str, Any]:
    """Return a job by its id, or by its name if the name is unique."""
    if word.isascii() and word.isdigit():
        job: dict[str, Any] = client.get(f"/job-info/{word}")
        if "jobStatus" in job:
            return job
        raise UnknownJobName(f"there is no job {word}: `tidegate jobs` lists them")
    found = [job for job in client.get("/running-jobs") if job["jobName"] == word]
    found = found or [job for job in client.get("/finished-jobs") if job["jobName"] == word][:1]
    if len(found) == 1:
        return dict(found[0])
    if not found:
        raise UnknownJobName(f"there is no job named {word!r}: `tidegate jobs` lists them")
    raise UserError(
        f"several jobs are named {word!r}: select one by its id:"
        f" {', '.join(job['jobId'] for job in found)}"
    )


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a human-readable table that keeps its columns on any terminal and in a pipe."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console = PipeConsole(highlight=False, markup=False)
    (
        console
        if console.is_terminal
        else PipeConsole(highlight=False, markup=False, width=PIPE_COLUMNS)
    ).print(table)


def _end(message: str, code: int) -> None:
    click.echo(f"tidegate: {message}", err=True)
    sys.exit(code)
