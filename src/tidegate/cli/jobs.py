"""`tidegate jobs`, `show`, `stop`, `cancel`, `logs`: list, inspect and stop jobs of servers."""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from tidegate.cli import exits, remote
from tidegate.cli.submit import describe_end, wait_for_end
from tidegate.client import Client
from tidegate.model.errors import UserError
from tidegate.model.records import JobStatus

ENDED_SHOWN_MAX = 20
FOLLOW_EVERY_S = 1.0
DRIVER_LOG = "driver.log"
SHOWN_STATES = tuple(
    each.value for each in JobStatus if each is not JobStatus.RECOVERING
)  # which servers show as PENDING


class NoLog(UserError):
    """The answering server has no log of the job."""

    condition = "unknown-log"


def _state_of(_context: click.Context, _parameter: click.Parameter, word: str | None) -> str | None:
    """Parse a state in upper or lower case, or raise a usage error that names all states."""
    if word is not None and word.upper() not in SHOWN_STATES:
        raise click.BadParameter(
            f"{word!r} is not a job state; the states are {', '.join(SHOWN_STATES)}"
        )
    return word.upper() if word is not None else None


@click.command()
@click.option(
    "--state",
    callback=_state_of,
    metavar="STATE",
    help=f"Only jobs of this state: {', '.join(SHOWN_STATES)}.",
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help=f"All ended jobs, not only the last {ENDED_SHOWN_MAX}.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@remote.options
def jobs(client: Client, state: str | None, everything: bool, as_json: bool) -> None:
    """List running, waiting and ended jobs.

    \b
    Examples:
      tidegate jobs
      tidegate jobs --state FAILED --json
    """
    has_ended = state is not None and JobStatus(state).terminal
    running = (
        []
        if has_ended
        else [job for job in client.get("/running-jobs") if state in (None, job["jobStatus"])]
    )
    ended = (
        []
        if state and not has_ended
        else client.get(f"/finished-jobs/{state}" if state else "/finished-jobs")
    )
    ended = ended if everything or state else ended[:ENDED_SHOWN_MAX]
    if as_json:
        remote.print_json([*running, *ended])
        return
    rows = [_row(job, _health(job)) for job in running] + [
        _row(job, job.get("errorMsg") or "") for job in ended
    ]
    remote.print_table(
        ("job", "name", "status", "submitted", "rows read", "written", "last checkpoint", "remark"),
        rows,
    )


def _row(job: dict[str, Any], remark: str) -> list[str]:
    metrics, age = job.get("metrics", {}), job.get("secondsSinceLastCheckpoint")
    last = (
        f"{job['lastCheckpointId']}, {age} s ago"
        if job.get("lastCheckpointId") and age
        else job.get("finishTime", "")
    )
    counts = [metrics.get("SourceReceivedCount", ""), metrics.get("SinkWriteCount", "")]
    return [
        job["jobId"],
        job["jobName"],
        job["jobStatus"],
        job.get("createTime", ""),
        *counts,
        last,
        remark.splitlines()[0] if remark else "",
    ]


def _health(job: dict[str, Any]) -> str:
    if job.get("checkpointHealth", "OK") != "OK":
        return f"{job['checkpointHealth']}: {job.get('healthReason', '')}"
    return str(job.get("statusReason") or "")


@click.command()
@click.argument("job")
@click.option("--json", "as_json", is_flag=True, help="Print the whole object as JSON.")
@remote.options
def show(client: Client, job: str, as_json: bool) -> None:
    """Show one job, by id or name: status, checkpoints, metrics, failures.

    \b
    Examples:
      tidegate show orders
      tidegate show 7 --json
    """
    found = remote.job_of(client, job)
    if as_json:
        remote.print_json(found)
        return
    click.echo(f"job {found['jobId']} {found['jobName']!r}: {found['jobStatus']}")
    wanted = (
        "createTime",
        "startTime",
        "finishTime",
        "lastCheckpointId",
        "lastCheckpointTime",
        "secondsSinceLastCheckpoint",
        "checkpointHealth",
    )
    for key in (*wanted, "healthReason", "statusReason", "restarts", "errorMsg", "lastError"):
        if found.get(key) not in (None, ""):
            click.echo(f"  {key:<28} {found[key]}")
    for key, value in sorted(found.get("metrics", {}).items()):
        if isinstance(value, str):
            click.echo(f"  {key:<28} {value}")
    failures = client.get(f"/job-info/{found['jobId']}/failures")
    for failure in failures:
        click.echo(
            f"  failure {failure['time']} (generation {failure['generation']},"
            f" {failure['condition']}): {failure['message']}"
        )


@click.command()
@click.argument("job", nargs=-1, required=True)
@click.option("--savepoint", is_flag=True, help="Make a savepoint; the job ends SAVEPOINT_DONE.")
@click.option(
    "--force",
    is_flag=True,
    help="Kill it now; when submitted again, it resumes from its last checkpoint.",
)
@click.option("--wait", is_flag=True, help="Wait until it has ended.")
@remote.options
def stop(client: Client, job: Sequence[str], savepoint: bool, force: bool, wait: bool) -> None:
    """Stop jobs, by id or name: at the next checkpoint, with a savepoint, or by force.

    \b
    Exit code: 0 requested (with --wait: ended), 1 no server answers, 2 bad input,
    3 a job does not exist or has already ended.

    \b
    Examples:
      tidegate stop 7 --wait
      tidegate stop orders --savepoint
    """
    if savepoint and force:
        raise click.UsageError("--savepoint and --force exclude each other")
    sys.exit(stop_all(client, job, {"isStopWithSavePoint": savepoint, "force": force}, wait=wait))


def stop_all(
    client: Client, jobs: Sequence[str], how: Mapping[str, bool], *, wait: bool = False
) -> int:
    """Request the stop of jobs, by id or name; return the exit code.

    An unknown job stops none of them; ended jobs are reported and skipped.
    """
    code = exits.FINISHED
    for job in [remote.job_of(client, each) for each in jobs]:
        what = f"job {job['jobId']} {job['jobName']!r}"
        if JobStatus(job["jobStatus"]).terminal:
            click.echo(
                f"tidegate: {what} has already ended as {job['jobStatus']}: there is nothing to"
                " stop",
                err=True,
            )
            code = exits.REFUSED
            continue
        client.post("/stop-job", {"jobId": job["jobId"], **how})
        click.echo(
            describe_end(wait_for_end(client, job["jobId"]))
            if wait
            else f"stop requested for {what}"
        )
    return code


@click.command()
@click.argument("job", nargs=-1, required=True)
@click.option("--wait", is_flag=True, help="Wait until it has ended.")
@remote.options
def cancel(client: Client, job: Sequence[str], wait: bool) -> None:
    """Stop jobs at the next checkpoint; they end CANCELED and keep their state.

    The exit codes are those of `tidegate stop`.

    \b
    Examples:
      tidegate cancel orders --wait
      tidegate cancel 7 8
    """
    sys.exit(stop_all(client, job, {}, wait=wait))


@click.command()
@click.argument("job")
@click.option("-f", "--follow", is_flag=True, help="Print new lines as they arrive, until Ctrl-C.")
@remote.options
def logs(client: Client, job: str, follow: bool) -> None:
    """Print the log of a job's driver, from the server that answers.

    \b
    Examples:
      tidegate logs orders --follow
    """
    job_id = remote.job_of(client, job)["jobId"]
    names = {entry["logName"] for entry in client.get(f"/logs/{job_id}", {"format": "json"})}
    name = f"{job_id}/{DRIVER_LOG}"
    if name not in names:
        raise NoLog(
            f"this server has no log of job {job_id}: query the server on the host of its driver"
            + (f"; this one has {', '.join(sorted(names))}" if names else "")
        )
    shown = 0
    while True:
        text = client.text(f"/logs/{name}")
        click.echo(text[shown:] if len(text) >= shown else text, nl=False)
        shown = len(text)
        if not follow:
            return
        time.sleep(FOLLOW_EVERY_S)
