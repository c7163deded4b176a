"""`tidegate savepoint JOB` makes a savepoint of a running job; `tidegate savepoints` manages them.

Both use the store and the checkpoint storage directly, so they work the same for jobs of servers
and of `tidegate run`.
"""

import json
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from tidegate.checkpoints.manifest import Damaged
from tidegate.checkpoints.savepoints import NoSavepoint, Savepoint, Savepoints
from tidegate.cli import exits
from tidegate.cli.installation import LocalInstallation, installation
from tidegate.clock import SystemClock
from tidegate.coordinator.job_snapshot import job_of_name, read_job
from tidegate.coordinator.reconciler import alive_here
from tidegate.coordinator.savepoint_requests import (
    UnknownJob,
    delete_savepoint,
    request_of,
    request_savepoint,
)
from tidegate.model.document import NewerDocument, to_document
from tidegate.model.errors import TransientError, UserError
from tidegate.model.records import SavepointRequest, SavepointStatus
from tidegate.store.base import Store
from tidegate.store.errors import StoreUnavailable

HOME = click.option("--home", help="Directory of the installation (TIDEGATE_HOME).")
CONFIG = click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="The engine's file.  [default: TIDEGATE_CONFIG, or tidegate.yaml of the home]",
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
JOB = click.option(
    "--job",
    help="The job (id or name) of the savepoint.  [default: search all jobs]",
)
POLL_S = 0.2


class NoRunningProcess(UserError):
    """No process runs the job that could make a savepoint."""

    condition = "job-not-led"


class SavepointTimeout(TransientError):
    """The savepoint was not complete within the timeout."""

    condition = "savepoint-not-yet"


@click.command()
@click.argument("job")
@click.option(
    "--stop", is_flag=True, help="Stop the job with the savepoint; it ends SAVEPOINT_DONE."
)
@click.option(
    "--wait/--no-wait",
    default=True,
    help="Wait until it is complete or failed; with --stop, until the job has ended.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    default=900.0,
    show_default=True,
    help="How many seconds to wait.",
)
@HOME
@CONFIG
@AS_JSON
def savepoint(
    job: str,
    stop: bool,
    wait: bool,
    timeout_s: float,
    home: str | None,
    config: Path | None,
    as_json: bool,
) -> None:
    """Make a savepoint of JOB (id or name).

    \b
    The running batch is finished first. A savepoint is kept until `tidegate savepoints delete`
    deletes it. A request while one is being made joins that one. If it fails, the job continues.
    Exit code: 0 complete, 1 failed or not complete in time, 3 the job does not exist or has ended.

    \b
    Examples:
      tidegate savepoint 7
      tidegate savepoint orders --stop
    """
    with installation(home, config) as here:
        job_id = known_job(here.store, job)
        check_led(here.store, job_id)
        request = request_savepoint(
            here.store, Savepoints(here.storage.files), SystemClock(), job_id, stop=stop, by="cli"
        )
        if wait:
            request = wait_for_savepoint(here.store, request, timeout_s)
        echo_request(here, request, as_json)
    sys.exit(exits.FAILED if request.status is SavepointStatus.FAILED else exits.FINISHED)


def known_job(store: Store, job: str) -> int:
    """Return the id of a job by its id or name, or raise UnknownJob."""
    job_id = int(job) if job.isdecimal() else job_of_name(store, job)
    if job_id is None:
        raise UnknownJob(job)
    return job_id


def check_led(store: Store, job_id: int) -> None:
    """Raise NoRunningProcess at once, and not after the timeout, if `tidegate run` has died."""
    state = read_job(store, job_id).state
    leader = state.value.leader if state and not state.value.status.terminal else None
    if leader is not None and alive_here(leader) is False:
        raise NoRunningProcess(
            f"process {leader.pid} on {leader.host}, which ran job {job_id}, has died: resume the"
            " job first; its checkpoints exist"
        )


def wait_for_savepoint(
    store: Store, request: SavepointRequest, timeout_s: float
) -> SavepointRequest:
    """Wait until the request is complete or failed; with `stop`, until the job has ended too."""
    clock, never = SystemClock(), threading.Event()
    end_s = clock.monotonic_s() + timeout_s
    while True:
        try:
            snapshot = read_job(store, request.job_id)
            standing = request_of(snapshot)
            if standing is None or standing.value.id != request.id:
                raise SavepointTimeout(
                    f"savepoint {request.id} of job {request.job_id} no longer exists: the job was"
                    " submitted again"
                )
            request = standing.value
            if request.status is SavepointStatus.FAILED or (
                request.status is SavepointStatus.DONE
                and (not request.stop or snapshot.record is None)
            ):
                return request
        except StoreUnavailable:
            pass  # wait for the store too
        if clock.monotonic_s() >= end_s:
            raise SavepointTimeout(
                f"savepoint {request.id} of job {request.job_id} is not complete after"
                f" {timeout_s:g} s; it remains requested. Repeat the command to wait longer"
            )
        clock.wait(never, POLL_S)


def echo_request(here: LocalInstallation, request: SavepointRequest, as_json: bool) -> None:
    """Print the outcome of a request in one line."""
    path = here.storage.files.describe(request.path) if request.path else ""
    if as_json:
        click.echo(json.dumps({**to_document(request), "place": path}))
    elif request.status is SavepointStatus.FAILED:
        click.echo(
            f"tidegate: savepoint {request.id} of job {request.job_id} failed:"
            f" {request.reason}. The job continues, unless it has ended",
            err=True,
        )
    elif request.status is SavepointStatus.WANTED:
        click.echo(f"savepoint {request.id} of job {request.job_id} is requested")
    else:
        click.echo(
            f"savepoint {request.id} of job {request.job_id} is"
            f" done{', and the job has ended with it' if request.stop else ''}: {path}"
        )


@click.group(name="savepoints")
def savepoints() -> None:
    """List, show, verify, export, import and delete savepoints.

    \b
    Examples:
      tidegate savepoints list orders
      tidegate savepoints export 1763300000000 /backup/orders
      tidegate savepoints delete 1763300000000 --job orders
    """


@savepoints.command(name="list")
@click.argument("job", required=False)
@HOME
@CONFIG
@AS_JSON
def list_command(job: str | None, home: str | None, config: Path | None, as_json: bool) -> None:
    """List the savepoints of JOB (id or name), or of all jobs."""
    with installation(home, config) as here:
        there = Savepoints(here.storage.files)
        job_id = known_job(here.store, job) if job is not None else None
        found, damaged = there.list(job_id), there.damaged(job_id)
    if as_json:
        rows = [row(each) for each in found]
        click.echo(
            json.dumps([*rows, *({"path": path, "damage": why} for path, why in damaged)], indent=1)
        )
        return
    click.echo(f"{'job':>20} {'savepoint':>15}  {'made':20} {'bytes':>9}  {'checkpoints':16} name")
    for each in found:
        points = ", ".join(
            f"{pipeline}:{point.checkpoint}" for pipeline, point in each.pipelines.items()
        )
        overtaken = "  (overtaken)" if each.superseded else ""
        click.echo(
            f"{each.job_id:>20} {each.id:>15}  {made(each):20} {size_of(each):>9,}  {points:16}"
            f" {each.name}{overtaken}"
        )
    for path, why in damaged:
        click.echo(f"{path}: {why}", err=True)


@savepoints.command()
@click.argument("savepoint")
@JOB
@HOME
@CONFIG
def show(savepoint: str, job: str | None, home: str | None, config: Path | None) -> None:
    """Show the content of SAVEPOINT (id or path) as JSON."""
    with installation(home, config) as here:
        there = Savepoints(here.storage.files)
        found = find(here.store, there, job, savepoint)
        states = {
            str(pipeline): dict(there.storage.read(point.path).states)
            for pipeline, point in found.pipelines.items()
        }
        shown = {
            **to_document(found),
            "place": here.storage.files.describe(found.path),
            "states": states,
        }
    click.echo(json.dumps(shown, indent=1, ensure_ascii=False))


@savepoints.command()
@click.argument("job", required=False)
@HOME
@CONFIG
def verify(job: str | None, home: str | None, config: Path | None) -> None:
    """Check every byte of the savepoints of JOB, or of all jobs; exit code 1 if one is damaged."""
    damaged = 0
    with installation(home, config) as here:
        there = Savepoints(here.storage.files)
        job_id = known_job(here.store, job) if job is not None else None
        found = there.list(job_id)
        for each in found:
            damage = damage_of(there, each)
            damaged += bool(damage)
            click.echo(f"job {each.job_id} savepoint {each.id}: {damage or 'sound'}")
        for path, why in there.damaged(job_id):
            damaged += 1
            click.echo(f"{path}: {why}")
        if job is not None and not found and not damaged:
            raise NoSavepoint(f"there is no savepoint of job {job!r} here")
    sys.exit(exits.FAILED if damaged else exits.FINISHED)


@savepoints.command()
@click.argument("savepoint")
@click.argument("directory", type=click.Path(path_type=Path))
@JOB
@HOME
@CONFIG
def export(
    savepoint: str, directory: Path, job: str | None, home: str | None, config: Path | None
) -> None:
    """Copy SAVEPOINT (id or path) into the new DIRECTORY, for a backup or another installation."""
    with installation(home, config) as here:
        there = Savepoints(here.storage.files)
        found = find(here.store, there, job, savepoint)
        if directory.exists() and any(directory.iterdir()):
            raise UserError(f"{directory} is not empty: choose a directory that does not exist")
        there.export(found, directory.absolute())
    click.echo(f"savepoint {found.id} of job {found.job_id} is in {directory}")


@savepoints.command(name="import")
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@HOME
@CONFIG
def import_command(directory: Path, home: str | None, config: Path | None) -> None:
    """Import a savepoint that was exported to DIRECTORY, under its own job and id.

    Restore it with `--restore savepoint:<path>`.
    """
    with installation(home, config) as here:
        found = Savepoints(here.storage.files).import_from(directory.absolute())
        path = here.storage.files.describe(found.path)
    click.echo(f"savepoint {found.id} of job {found.job_id} is in {path}")


@savepoints.command(name="delete")
@click.argument("savepoint")
@JOB
@HOME
@CONFIG
def delete_command(savepoint: str, job: str | None, home: str | None, config: Path | None) -> None:
    """Delete SAVEPOINT (id or path); refused while a job restores from it or stops with it."""
    with installation(home, config) as here:
        there = Savepoints(here.storage.files)
        found = find(here.store, there, job, savepoint)
        delete_savepoint(here.store, there, found)
    click.echo(f"savepoint {found.id} of job {found.job_id} is deleted")


def find(store: Store, there: Savepoints, job: str | None, word: str) -> Savepoint:
    """Find a savepoint by id or path; an id without a job must be unique."""
    job_id = known_job(store, job) if job is not None else None
    if job_id is not None or "/" in word:
        return there.find(job_id, word)
    same = [each for each in there.list() if each.id == word]
    if len(same) > 1:
        raise NoSavepoint(
            f"several jobs have a savepoint {word}: select one with --job"
            f" ({', '.join(str(each.job_id) for each in same)})"
        )
    return there.find(same[0].job_id if same else None, word)


def damage_of(there: Savepoints, savepoint: Savepoint) -> str:
    """Describe the damage of a savepoint; empty if it is intact."""
    try:
        there.read(savepoint.path)
    except (Damaged, NewerDocument) as error:
        return str(error)
    return ""


def made(savepoint: Savepoint) -> str:
    """Format the time at which the savepoint was requested."""
    return datetime.fromtimestamp(savepoint.made_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def size_of(savepoint: Savepoint) -> int:
    """Return the bytes of its checkpoints, without the head file."""
    return sum(point.bytes for point in savepoint.pipelines.values())


def row(savepoint: Savepoint) -> dict[str, Any]:
    """Return a savepoint as a row of the list."""
    return {
        "job_id": savepoint.job_id,
        "savepoint": savepoint.id,
        "name": savepoint.name,
        "made": made(savepoint),
        "path": savepoint.path,
        "bytes": size_of(savepoint),
        "lineage": savepoint.lineage,
        "pipelines": {
            str(pipeline): point.checkpoint for pipeline, point in savepoint.pipelines.items()
        },
        "overtaken": to_document(savepoint.superseded),
        "damage": "",
    }
