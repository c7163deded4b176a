"""`tidegate savepoint JOB`: want a savepoint of a running job, and wait for it. `tidegate
savepoints ...`: what there is, and what people do with it.

Works on the store and the checkpoint storage themselves, so it is the same for servers and for
`tidegate run`.
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
from tidegate.coordinator.savepoint_requests import UnknownJob, ask, delete, request_of
from tidegate.model.document import NewerDocument, to_document
from tidegate.model.errors import TransientError, UserError
from tidegate.model.records import SavepointRequest, SavepointStatus
from tidegate.store.base import Store
from tidegate.store.errors import StoreUnavailable

HOME = click.option("--home", help="Directory of the installation (TIDEGATE_HOME).")
CONFIG = click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="The engine's file; else TIDEGATE_CONFIG, tidegate.yaml of the home, defaults.",
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="For machines.")
JOB = click.option(
    "--job",
    help="The job (id or name) that an id is of; without it the id is looked for among all jobs.",
)
LOOK_S = 0.2


class NobodyRunsIt(UserError):
    """A job without a process that could make a savepoint."""

    condition = "job-not-led"


class NotYet(TransientError):
    """The time to wait is over."""

    condition = "savepoint-not-yet"


@click.command()
@click.argument("job")
@click.option("--stop", is_flag=True, help="End the job with it: SAVEPOINT_DONE.")
@click.option(
    "--wait/--no-wait",
    default=True,
    help="Wait until it is done, or failed; with --stop, until the job has ended.",
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

    \b The running batch is finished first; a savepoint stays until it is deleted (`tidegate
    savepoints delete`). Asking again while one is being made joins that one. Where it fails, the
    job goes on. Exit code: 0 done, 1 failed or not done in time, 3 there is no such job, or it has
    ended.

    \b
    Examples:
      tidegate savepoint 7
      tidegate savepoint orders --stop
    """
    with installation(home, config) as here:
        job_id = known_job(here.store, job)
        check_led(here.store, job_id)
        request = ask(
            here.store, Savepoints(here.storage.files), SystemClock(), job_id, stop=stop, by="cli"
        )
        if wait:
            request = awaited(here.store, request, timeout_s)
        echo_request(here, request, as_json)
    sys.exit(exits.FAILED if request.status is SavepointStatus.FAILED else exits.FINISHED)


def known_job(store: Store, job: str) -> int:
    """The id of a job that was given by its id or name."""
    job_id = int(job) if job.isdecimal() else job_of_name(store, job)
    if job_id is None:
        raise UnknownJob(job)
    return job_id


def check_led(store: Store, job_id: int) -> None:
    """A job whose `tidegate run` has died makes no savepoint: said at once, not after the time to
    wait.
    """
    state = read_job(store, job_id).state
    leader = state.value.leader if state and not state.value.status.terminal else None
    if leader is not None and alive_here(leader) is False:
        raise NobodyRunsIt(
            f"process {leader.pid} on {leader.host}, which ran job {job_id}, has died: resume the"
            " job first; its checkpoints are there"
        )


def awaited(store: Store, request: SavepointRequest, timeout_s: float) -> SavepointRequest:
    """The request when it is answered; with `stop` and done, when the job has ended too."""
    clock, never = SystemClock(), threading.Event()
    end_s = clock.monotonic_s() + timeout_s
    while True:
        try:
            snapshot = read_job(store, request.job_id)
            standing = request_of(snapshot)
            if standing is None or standing.value.id != request.id:
                raise NotYet(
                    f"savepoint {request.id} of job {request.job_id} is not known any more: the job"
                    " was submitted again"
                )
            request = standing.value
            if request.status is SavepointStatus.FAILED or (
                request.status is SavepointStatus.DONE
                and (not request.stop or snapshot.record is None)
            ):
                return request
        except StoreUnavailable:
            pass  # waited for, like the savepoint
        if clock.monotonic_s() >= end_s:
            raise NotYet(
                f"savepoint {request.id} of job {request.job_id} is not done after {timeout_s:g} s;"
                " it stays wanted. Ask again to wait longer"
            )
        clock.wait(never, LOOK_S)


def echo_request(here: LocalInstallation, request: SavepointRequest, as_json: bool) -> None:
    """What became of it, in a line."""
    place = here.storage.files.describe(request.path) if request.path else ""
    if as_json:
        click.echo(json.dumps({**to_document(request), "place": place}))
    elif request.status is SavepointStatus.FAILED:
        click.echo(
            f"tidegate: there is no savepoint {request.id} of job {request.job_id}:"
            f" {request.reason}. The job goes on, unless it has ended",
            err=True,
        )
    elif request.status is SavepointStatus.WANTED:
        click.echo(f"savepoint {request.id} of job {request.job_id} is wanted")
    else:
        click.echo(
            f"savepoint {request.id} of job {request.job_id} is"
            f" done{', and the job has ended with it' if request.stop else ''}: {place}"
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
        overtaken = "  (overtaken)" if each.overtaken else ""
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
    """Show what SAVEPOINT (id or path) holds, as JSON."""
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
    """Copy SAVEPOINT (id or path) into DIRECTORY, which is made: to keep it elsewhere, or to bring
    it to another installation.
    """
    with installation(home, config) as here:
        there = Savepoints(here.storage.files)
        found = find(here.store, there, job, savepoint)
        if directory.exists() and any(directory.iterdir()):
            raise UserError(f"{directory} is not empty: name a directory that is not there yet")
        there.export(found, directory.absolute())
    click.echo(f"savepoint {found.id} of job {found.job_id} is in {directory}")


@savepoints.command(name="import")
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@HOME
@CONFIG
def import_command(directory: Path, home: str | None, config: Path | None) -> None:
    """Bring in a savepoint that was exported to DIRECTORY, under the job and id that it has.

    Restore it with `--restore savepoint:<path>`.
    """
    with installation(home, config) as here:
        found = Savepoints(here.storage.files).take_in(directory.absolute())
        place = here.storage.files.describe(found.path)
    click.echo(f"savepoint {found.id} of job {found.job_id} is in {place}")


@savepoints.command(name="delete")
@click.argument("savepoint")
@JOB
@HOME
@CONFIG
def delete_command(savepoint: str, job: str | None, home: str | None, config: Path | None) -> None:
    """Delete SAVEPOINT (id or path). Refused while a job restores from it, or ends with it."""
    with installation(home, config) as here:
        there = Savepoints(here.storage.files)
        found = find(here.store, there, job, savepoint)
        delete(here.store, there, found)
    click.echo(f"savepoint {found.id} of job {found.job_id} is deleted")


def find(store: Store, there: Savepoints, job: str | None, word: str) -> Savepoint:
    """By id or path; an id alone must mean one savepoint only."""
    job_id = known_job(store, job) if job is not None else None
    if job_id is not None or "/" in word:
        return there.find(job_id, word)
    same = [each for each in there.list() if each.id == word]
    if len(same) > 1:
        raise NoSavepoint(
            f"several jobs have a savepoint {word}: say which with --job"
            f" ({', '.join(str(each.job_id) for each in same)})"
        )
    return there.find(same[0].job_id if same else None, word)


def damage_of(there: Savepoints, savepoint: Savepoint) -> str:
    """What is wrong with a savepoint, in words; empty when it is sound."""
    try:
        there.read(savepoint.path)
    except (Damaged, NewerDocument) as error:
        return str(error)
    return ""


def made(savepoint: Savepoint) -> str:
    """When it was asked for."""
    return datetime.fromtimestamp(savepoint.made_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def size_of(savepoint: Savepoint) -> int:
    """Its bytes, without its head."""
    return sum(point.bytes for point in savepoint.pipelines.values())


def row(savepoint: Savepoint) -> dict[str, Any]:
    """A row of the list."""
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
        "overtaken": to_document(savepoint.overtaken),
        "damage": "",
    }
