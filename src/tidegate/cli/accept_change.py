"""`tidegate accept-change JOB`: decide about a table change that has stopped a job, and resume it.

A job of `tidegate run` resumes in this process, as with `tidegate run --restore latest`. A job of
servers resumes there; the request goes to one of them, or to the store that they share.
"""

import os
import shlex
import sys
from pathlib import Path
from typing import NoReturn

import click

from tidegate.cli import exits, remote, run
from tidegate.cli.installation import LocalInstallation, installation
from tidegate.cli.run import print_error, run_stored
from tidegate.cli.savepoint import AS_JSON, CONFIG, HOME, known_job
from tidegate.client import Client, NotAllowed, Refused
from tidegate.clock import SystemClock
from tidegate.coordinator.accepted_changes import stopped_job
from tidegate.coordinator.commands import Commands
from tidegate.coordinator.job_snapshot import read_job
from tidegate.coordinator.restore.options import RestoreOptions, RestoreSource
from tidegate.home import Home
from tidegate.model.errors import TidegateError
from tidegate.model.records import JobOutcome
from tidegate.model.table_changes import AcceptedChange, ChangeChoice
from tidegate.runner.java import JavaMissing, SparkMissing, check_spark, find_java

CONFLICT = 409


@click.command("accept-change")
@click.argument("job")
@click.option(
    "--at", required=True, metavar="POSITION", help="Position of the change, from the job's error."
)
@click.option(
    "--choice",
    required=True,
    type=click.Choice([each.value for each in ChangeChoice], case_sensitive=False),
    help="How to continue.",
)
@click.option(
    "--table",
    default="",
    metavar="TABLE",
    help="Only this table.  [default: every table that this change stops]",
)
@HOME
@CONFIG
@click.option(
    "--server",
    metavar="URL[,URL]",
    help="Send the request to a server, not to the store of this installation (TIDEGATE_SERVER).",
)
@click.option("--ca-file", help="PEM file of the authority that signed the servers' certificates.")
@AS_JSON
def accept_change(
    job: str,
    at: str,
    choice: str,
    table: str,
    home: str | None,
    config: Path | None,
    server: str | None,
    ca_file: str | None,
    as_json: bool,
) -> NoReturn:
    """Decide about a table change that has stopped JOB (id or name), and resume the job.

    \b
    adopt   use the new table definition; rows in the target stay as they are
    reread  use the new table definition and read the whole table again; rows that the table no
            longer has stay in the target: delete them there
    skip    continue as if the change had not happened

    \b
    The job's error names the position and the available choices. A job of `tidegate run` runs
    here, to its end, with the exit codes of `tidegate run`. Servers resume their own jobs.
    Exit code: 0 resumed; 1 failed, or no server answers; 2 bad input, or the change does not have
    this choice; 3 nothing was done: the job does not exist, or was not stopped by this change.

    \b
    Examples:
      tidegate accept-change orders --at mysql-bin.000004:1234 --choice adopt
      tidegate accept-change 7 --at 0/1A2B3C8 --choice reread --table shop.public.orders
    """
    change = AcceptedChange(at=at.strip(), choice=ChangeChoice(choice.lower()), table=table.strip())
    if server or (os.environ.get("TIDEGATE_SERVER") and home is None):
        sys.exit(resume_on_servers(job, change, server, ca_file, as_json))
    with installation(home, config) as here:
        job_id = known_job(here.store, job)
        snapshot = read_job(here.store, job_id)
        if snapshot.record is None and snapshot.outcome is not None and snapshot.outcome.file:
            sys.exit(resume_locally(here, stopped_job(snapshot, change), change, as_json=as_json))
        commands = Commands(here.store, here.storage, here.settings, SystemClock())
        record = commands.accept_change(job_id, change, by="cli")
        print_result(
            str(record.job_id),
            record.name,
            change,
            list(record.restore.notes) if record.restore else [],
            as_json,
        )
    sys.exit(exits.FINISHED)


def resume_locally(
    here: LocalInstallation, outcome: JobOutcome, change: AcceptedChange, *, as_json: bool
) -> int:
    """Run the job in this process with the plan of its last run; return the exit code."""
    try:
        check_spark()
        find_java(os.environ)
    except (SparkMissing, JavaMissing) as error:
        return print_error(str(error), exits.FAILED)
    assert outcome.plan is not None, "a job that failed has run"
    home_option = (
        [] if here.home == Home.find(None, os.environ) else ["--home", str(here.home.root)]
    )
    options = run.RunOptions(
        home=here.home,
        job_id=outcome.job_id,
        name=outcome.name,
        options=RestoreOptions(RestoreSource.LATEST, accept_changes=(change,)),
        as_json=as_json,
        settings=here.settings,
        command=shlex.join(
            ["tidegate", "run", outcome.file, *home_option, "--job-id", str(outcome.job_id)]
        ),
    )
    return run_stored(here.store, outcome.plan, outcome.file, options)


def resume_on_servers(
    job: str, change: AcceptedChange, server: str | None, ca_file: str | None, as_json: bool
) -> int:
    """Let the servers resume the job; return the exit code."""
    try:
        client: Client = remote.client_of(server, ca_file, os.environ)
        job_id = remote.job_of(client, job)["jobId"]
        body = {"at": change.at, "choice": change.choice.value, "table": change.table}
        answer = client.post(f"/api/v1/jobs/{job_id}/accept-change", body)
    except NotAllowed as error:
        return print_error(
            f"{error}. The token is read from TIDEGATE_TOKEN, or from the file that"
            " TIDEGATE_TOKEN_FILE names",
            exits.REFUSED,
        )
    except Refused as error:
        return print_error(
            str(error), exits.REFUSED if error.status == CONFLICT else exits.BAD_INPUT
        )
    except TidegateError as error:
        return print_error(str(error), exits.code_of(error))
    print_result(answer["id"], answer["name"], change, answer["notes"], as_json)
    return exits.FINISHED


def print_result(
    job_id: str, name: str, change: AcceptedChange, notes: list[str], as_json: bool
) -> None:
    """Print what was done, and what the user still has to do."""
    if as_json:
        remote.print_json(
            {"jobId": job_id, "jobName": name, "accepted": str(change), "notes": notes}
        )
        return
    for note in notes:
        click.echo(note, err=True)
    click.echo(
        f"job {job_id} {name!r} resumes from its last checkpoint; `tidegate show {job_id}` shows"
        " its status"
    )
