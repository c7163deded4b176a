"""`tidegate submit`: submits a job to the servers.

The file is read, resolved and validated here, so that includes, variables and problems with their
lines work as in `tidegate run`. The resolved job is sent.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from tidegate.cli import exits, job_file, remote
from tidegate.cli.restore_options import CONSENT_OPTIONS, absolute
from tidegate.client import Client
from tidegate.config.load import resolved_json
from tidegate.model.ids import JOB_ID_MAX
from tidegate.model.problem import Strictness
from tidegate.model.records import TERMINAL, JobStatus

POLL_S = 1.0
EXIT_CODES = {
    JobStatus.FINISHED: exits.FINISHED,
    JobStatus.SAVEPOINT_DONE: exits.FINISHED,
    JobStatus.CANCELED: exits.CANCELED,
}


@click.command()
@click.argument("file", type=click.Path())
@click.option(
    "--job-id",
    type=click.IntRange(1, JOB_ID_MAX),
    help="The job's id.  [default: a new one]",
)
@click.option("-n", "--name", help="The job's name; overrides job.name of the file.")
@click.option(
    "--restore", metavar="WORD", help="Restore point: latest, checkpoint:N, fresh, auto ..."
)
@CONSENT_OPTIONS[0]
@CONSENT_OPTIONS[1]
@CONSENT_OPTIONS[2]
@click.option("--wait", is_flag=True, help="Wait for its end; the exit code is its result.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@job_file.options
@remote.options
def submit(
    client: Client,
    file: str,
    job_id: int | None,
    name: str | None,
    restore: str | None,
    skip_file: Sequence[str],
    accept_file: Sequence[str],
    accept_change: Sequence[str],
    wait: bool,
    as_json: bool,
    variable: Sequence[str],
    strict: Strictness,
) -> None:
    """Submit a job to the servers, which run it from then on.

    \b
    Exit code: 0 submitted (with --wait: finished), 1 failed or no server answers, 2 bad input,
    3 not allowed, 130 cancelled.

    \b
    Examples:
      tidegate submit job.conf
      tidegate submit job.conf --job-id 7 --restore auto --wait
      tidegate submit job.conf -i day=2024-05-01 --server http://a:8080,http://b:8080
    """
    query = {key: value for key, value in (("jobName", name), ("restore", restore)) if value}
    for parameter, paths in (("skipFile", skip_file), ("acceptFile", accept_file)):
        query |= {parameter: "\n".join(map(absolute, paths))} if paths else {}
    if accept_change:
        query["acceptChange"] = "\n".join(accept_change)
    if job_id is not None:
        query["jobId"] = str(job_id)
    taken = send(client, file, variable, strict, query)
    if not wait:
        (
            remote.print_json(taken)
            if as_json
            else click.echo(
                f"job {taken['jobId']} {taken['jobName']!r} submitted; `tidegate show"
                f" {taken['jobId']}` shows its status"
            )
        )
        return
    ended = wait_for_end(client, taken["jobId"])
    remote.print_json(ended) if as_json else click.echo(describe_end(ended))
    sys.exit(code_of(ended))


def send(
    client: Client, file: str, variable: Sequence[str], strict: Strictness, query: Mapping[str, str]
) -> dict[str, str]:
    """Validate a job file and submit it; errors in the file end the command."""
    job_file.load_plan(file, variable, strict)
    if strict is Strictness.LENIENT:
        query = {**query, "lenient": "true"}
    text = resolved_json(file, variables=job_file.values_of(variable), environment=os.environ)
    return client.submit(text.encode(), query)


def wait_for_end(
    client: Client, job_id: str, sleep: Callable[[float], None] = time.sleep
) -> dict[str, Any]:
    """Wait until a job has ended, and return it."""
    while True:
        job: dict[str, Any] = client.get(f"/job-info/{job_id}")
        if job.get("jobStatus") in {status.value for status in TERMINAL}:
            return job
        sleep(POLL_S)


def describe_end(job: Mapping[str, Any]) -> str:
    """Describe in one line how a job ended."""
    metrics = job.get("metrics", {})
    read, written = metrics.get("SourceReceivedCount", 0), metrics.get("SinkWriteCount", 0)
    why = f": {job['errorMsg']}" if job.get("errorMsg") else ""
    return (
        f"job {job['jobId']} {job['jobName']!r} {job['jobStatus']}, {read} rows read, {written}"
        f" written{why}"
    )


def code_of(job: Mapping[str, Any]) -> int:
    """Return the exit code for the final status of a job."""
    return EXIT_CODES.get(JobStatus(job["jobStatus"]), exits.FAILED)
