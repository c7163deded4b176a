"""`tidegate seatunnel`: the reference's own command line, letter by letter, for scripts that call
`seatunnel.sh`.

What each option means here is what it means there; where the reference has a default that is a trap
(a client that is killed cancels its job), the option is needed to get it. The order in which
options win is the reference's: check, encrypt, decrypt, list, metrics, state, cancel, savepoint,
submit.
"""

import json
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from tidegate.cli import exits, job_file, remote, submit
from tidegate.cli.jobs import stop_all
from tidegate.client import Client
from tidegate.config.document import Document
from tidegate.config.encryption import decode, encode
from tidegate.config.load import resolved_json
from tidegate.model.errors import UserError
from tidegate.model.ids import JOB_ID_MAX
from tidegate.model.plan import Plan
from tidegate.model.problem import Strictness

NOT_SET = "SeaTunnel"  # the reference's default of --name, which means: not given
SAMPLE_MAX = 10_000
NEEDS_ONE = (
    "say what to do: -c FILE to submit a job, or -l, -j, -s, -can, -f, --metrics (see --help)"
)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-c", "--config", "file", type=click.Path(), help="The job file.")
@click.option(
    "-i",
    "--variable",
    multiple=True,
    metavar="NAME=VALUE",
    help="Value of ${NAME} in the job file; may be repeated.",
)
@click.option("-n", "--name", default=NOT_SET, help="The job's name.")
@click.option(
    "-m",
    "--master",
    "-e",
    "--deploy-mode",
    "master",
    type=click.Choice(["local", "cluster"]),
    default="cluster",
    help="Run here, or hand it to servers.",
)
@click.option("-cn", "--cluster", "_cluster", help="Accepted; servers are named by --server.")
@click.option("--check", is_flag=True, help="Judge the job file and start nothing.")
@click.option(
    "-d",
    "--dry-run",
    type=click.Choice(["static", "connect", "sample"]),
    help=(
        "static: as --check, and unknown keys are errors. connect: also ask sources and sinks."
        " sample: also read a few rows."
    ),
)
@click.option(
    "--sample-limit",
    type=click.IntRange(1, SAMPLE_MAX),
    default=10,
    show_default=True,
    help="Rows of each source for --dry-run sample.",
)
@click.option("--sample-print-data", is_flag=True, help="Print the rows of the sample.")
@click.option("--encrypt", is_flag=True, help="Print the job file with its secrets shaded.")
@click.option("--decrypt", is_flag=True, help="Print it with its secrets in clear.")
@click.option(
    "-r",
    "--restore",
    "--restore-job",
    "restore",
    metavar="JOB",
    help="Go on with this job, under its id.",
)
@click.option(
    "--restore-with-checkpoint",
    metavar="JOB",
    help="Begin a new job from the last checkpoint of this one.",
)
@click.option(
    "-s",
    "--savepoint",
    "--savepoint-job",
    "savepoint",
    metavar="JOB",
    help="Stop with a savepoint.",
)
@click.option(
    "-can",
    "--cancel-job",
    "--cancel",
    "cancel",
    multiple=True,
    metavar="JOB",
    help="Cancel; may be repeated.",
)
@click.option(
    "-f", "--force-cancel", "force", multiple=True, metavar="JOB", help="Kill now; may be repeated."
)
@click.option("-j", "--job-id", "state_of", metavar="JOB", help="Print the state of a job as JSON.")
@click.option("-l", "--list", "list_jobs", is_flag=True, help="List jobs.")
@click.option("--metrics", "metrics_of", metavar="JOB", help="Print the metrics of a job as JSON.")
@click.option(
    "--get_running_job_metrics",
    "all_metrics",
    is_flag=True,
    help="Print the metrics of all running jobs as JSON.",
)
@click.option("--set-job-id", type=click.IntRange(1, JOB_ID_MAX), help="The id of the new job.")
@click.option("--async", "detached", is_flag=True, help="Submit and do not wait.")
@click.option(
    "-cj",
    "--close-job",
    "--close",
    "close_job",
    is_flag=True,
    help="Cancel the job when this client is ended.",
)
@remote.options
def seatunnel(client: Client, _cluster: str | None, **asked: Any) -> None:
    """The reference's options: `tidegate seatunnel -c job.conf`, `-l`, `-j JOB`, `-s JOB`, `-can
    JOB` ...

    \b
    Examples:
      tidegate seatunnel -c job.conf --async
      tidegate seatunnel -c job.conf -r 7
      tidegate seatunnel -s 7
      tidegate seatunnel -c job.conf --dry-run sample --sample-print-data
    """
    if asked["check"] or asked["dry_run"]:
        _check(asked)
    elif asked["encrypt"] or asked["decrypt"]:
        click.echo(_shaded(_file(asked), asked["variable"], encrypt=asked["encrypt"]))
    elif not _about_jobs(client, asked):
        _submit(client, asked)


def _check(asked: Mapping[str, Any]) -> None:
    """Judge the file, and as far as is wanted what it names."""
    plan = job_file.planned(_file(asked), asked["variable"], strict=Strictness.STRICT)
    if asked["dry_run"] in ("connect", "sample"):
        _look_outside(plan, asked)
    click.echo(f"{asked['file']} is good; nothing was started")


def _look_outside(plan: Plan, asked: Mapping[str, Any]) -> None:
    """Ask the operators; with the last words on a failure the command ends."""
    from tidegate.cli import dry_run  # Arrow, which the other verbs do without

    graphs = dry_run.graphs_of(plan)
    findings = [finding for graph in graphs for finding in dry_run.connected(graph)]
    for finding in findings:
        click.echo(str(finding))
    if any(finding.verdict == dry_run.FAILED for finding in findings):
        click.echo(
            f"{asked['file']}: not everything that it names can be reached; nothing was started",
            err=True,
        )
        sys.exit(exits.FAILED)
    if asked["dry_run"] != "sample":
        return
    for graph in graphs:
        for name, node in graph.nodes.items():
            if why := dry_run.unsampled(node):
                click.echo(f"{name}: no sample: {why}")
        for name, sample in dry_run.sampled(
            graph, asked["sample_limit"], show=asked["sample_print_data"]
        ).items():
            tables = ", ".join(f"{rows} of {table}" for table, rows in sample.rows.items())
            click.echo(f"{name}: {sum(sample.rows.values())} rows{': ' if tables else ''}{tables}")
            for line in sample.shown:
                click.echo(f"  {line}")


def _file(asked: Mapping[str, Any]) -> str:
    if not asked["file"]:
        raise UserError(NEEDS_ONE)
    return str(asked["file"])


def _about_jobs(client: Client, asked: Mapping[str, Any]) -> bool:
    """What is asked about jobs that are there; False where nothing is."""
    if asked["list_jobs"]:
        jobs = [*client.get("/running-jobs"), *client.get("/finished-jobs")]
        rows = [
            [
                j["jobId"],
                j["jobName"],
                j["jobStatus"],
                j.get("createTime", ""),
                j.get("finishTime", ""),
            ]
            for j in jobs
        ]
        remote.print_table(
            ("Job ID", "Job Name", "Job Status", "Submit Time", "Finished Time"), rows
        )
    elif asked["all_metrics"]:
        remote.print_json({job["jobId"]: job["metrics"] for job in client.get("/running-jobs")})
    elif asked["state_of"]:
        remote.print_json(_state(client, asked["state_of"]))
    elif asked["cancel"] or asked["force"]:
        codes = [
            stop_all(client, _ids(words), {"force": force})
            for words, force in ((asked["cancel"], False), (asked["force"], True))
        ]
        sys.exit(max(codes))
    elif asked["metrics_of"]:
        remote.print_json(remote.job_of(client, asked["metrics_of"])["metrics"])
    elif asked["savepoint"]:
        sys.exit(stop_all(client, [asked["savepoint"]], {"isStopWithSavePoint": True}))
    else:
        return False
    return True


def _ids(words: Sequence[str]) -> list[str]:
    """Job ids with blanks or commas between them, in one option or in several."""
    return [job_id for word in words for job_id in word.replace(",", " ").split()]


def _state(client: Client, job_id: str) -> dict[str, Any]:
    """A job in the shape of the reference's `-j`."""
    job = client.get(f"/job-info/{job_id}")
    if "jobStatus" not in job:
        return {"err": f"jobId : {job_id} not found"}
    places = {p["pipelineId"]: p for p in client.get(f"/jobs/checkpoints/{job_id}")["pipelines"]}
    pipelines = {
        str(number): {"pipelineStatus": job["jobStatus"], "executionStateMap": {}}
        for number in places
    }
    return {
        "jobId": job["jobId"],
        "jobName": job["jobName"],
        "jobStatus": job["jobStatus"],
        "submitTime": job.get("createTime"),
        "finishTime": job.get("finishTime"),
        "pipelineStateMapperMap": pipelines,
        "errorMessage": job.get("errorMsg") or job.get("lastError") or None,
    }


def _shaded(file: str, variable: Sequence[str], *, encrypt: bool) -> str:
    job_file.planned(file, variable, strict=Strictness.NORMAL)
    document = Document(
        name=file,
        data=json.loads(resolved_json(file, variables=job_file.values_of(variable))),
        positions={},
    )
    return json.dumps((encode if encrypt else decode)(document).data, indent=2, ensure_ascii=False)


def _submit(client: Client, asked: Mapping[str, Any]) -> None:
    file, name = _file(asked), asked["name"] if asked["name"] != NOT_SET else None
    if asked["master"] == "local":
        _run_here(file, name, asked)
    query = {"jobName": name} if name else {}
    if asked["restore"]:
        query |= _restore_of(asked["restore"])
    if asked["restore_with_checkpoint"]:
        query |= {
            "restoreMode": "CHECKPOINT",
            "restoreSourceJobId": str(asked["restore_with_checkpoint"]),
        }
    if asked["set_job_id"]:
        query["jobId"] = str(asked["set_job_id"])
    taken = submit.send(client, file, asked["variable"], Strictness.NORMAL, query)
    click.echo(f"Job id: {taken['jobId']}")
    if asked["detached"]:
        return
    if asked["close_job"]:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        ended = submit.waited(client, taken["jobId"])
    except KeyboardInterrupt:
        if asked["close_job"]:
            client.post("/stop-job", {"jobId": taken["jobId"]})
        click.echo(
            f"job {taken['jobId']} "
            + ("shall stop" if asked["close_job"] else "goes on; `tidegate stop` ends it"),
            err=True,
        )
        sys.exit(exits.CANCELED)
    click.echo(_summary(ended))
    sys.exit(submit.code_of(ended))


def _restore_of(word: str) -> dict[str, str]:
    """A job id goes on under its id; a path is a savepoint."""
    if word.isascii() and word.isdigit():
        return {"jobId": word, "isStartWithSavePoint": "true"}
    return {"restore": f"savepoint:{word}"}


def _run_here(file: str, name: str | None, asked: Mapping[str, Any]) -> None:
    """An embedded run, in this process."""
    from tidegate.cli.run import run

    arguments = [
        file,
        *(("--name", name) if name else ()),
        *(word for each in asked["variable"] for word in ("-i", each)),
    ]
    if asked["set_job_id"]:
        arguments += ["--job-id", str(asked["set_job_id"])]
    if asked["restore"]:
        arguments += ["--job-id", asked["restore"], "--restore", "latest"]
    if asked["detached"]:
        click.echo("--async has no meaning for a job that runs in this process", err=True)
    run.main(arguments, prog_name="tidegate run")


def _summary(job: Mapping[str, Any]) -> str:
    figures = job.get("metrics", {})
    read, written = (
        int(figures.get("SourceReceivedCount", 0)),
        int(figures.get("SinkWriteCount", 0)),
    )
    rows = [
        ("Start Time", job.get("startTime", "")),
        ("End Time", job.get("finishTime", "")),
        ("Total Read Count", read),
        ("Total Write Count", written),
        ("Total Failed Count", max(0, read - written)),
    ]
    lines = [f"{name:<26}: {value}" for name, value in rows]
    error = f"\n{job['errorMsg']}" if job.get("errorMsg") else ""
    return (
        "Job Statistic Information\n"
        + "\n".join(lines)
        + f"\nJob {job['jobId']} {job['jobStatus']}{error}"
    )
