"""`tidegate seatunnel`: SeaTunnel's own command line, for scripts that call `seatunnel.sh`.

Options have SeaTunnel's meaning. A dangerous default of SeaTunnel (a client that is killed cancels
its job) applies only with its option. The precedence of actions is SeaTunnel's: check, encrypt,
decrypt, list, metrics, state, cancel, savepoint, submit.
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

NOT_SET = "SeaTunnel"  # SeaTunnel's default of --name, which means that it was not given
SAMPLE_MAX = 10_000
NO_ACTION = (
    "no action given: use -c FILE to submit a job, or -l, -j, -s, -can, -f, --metrics (see --help)"
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
    help="Run the job here, or submit it to servers.",
)
@click.option("-cn", "--cluster", "_cluster", help="Accepted and ignored; use --server.")
@click.option("--check", is_flag=True, help="Validate the job file and start nothing.")
@click.option(
    "-d",
    "--dry-run",
    type=click.Choice(["static", "connect", "sample"]),
    help=(
        "static: as --check, and unknown keys are errors. connect: also connect to sources and"
        " sinks. sample: also read a few rows."
    ),
)
@click.option(
    "--sample-limit",
    type=click.IntRange(1, SAMPLE_MAX),
    default=10,
    show_default=True,
    help="Rows per source for --dry-run sample.",
)
@click.option("--sample-print-data", is_flag=True, help="Print the rows of the sample.")
@click.option("--encrypt", is_flag=True, help="Print the job file with its secrets encoded.")
@click.option("--decrypt", is_flag=True, help="Print the job file with its secrets decoded.")
@click.option(
    "-r",
    "--restore",
    "--restore-job",
    "restore",
    metavar="JOB",
    help="Resume this job under its id.",
)
@click.option(
    "--restore-with-checkpoint",
    metavar="JOB",
    help="Start a new job from the last checkpoint of this one.",
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
    help="Cancel the job when this client is terminated.",
)
@remote.options
def seatunnel(client: Client, _cluster: str | None, **options: Any) -> None:
    """Run with SeaTunnel's options: `-c job.conf`, `-l`, `-j JOB`, `-s JOB`, `-can JOB` ...

    \b
    Examples:
      tidegate seatunnel -c job.conf --async
      tidegate seatunnel -c job.conf -r 7
      tidegate seatunnel -s 7
      tidegate seatunnel -c job.conf --dry-run sample --sample-print-data
    """
    if options["check"] or options["dry_run"]:
        _check(options)
    elif options["encrypt"] or options["decrypt"]:
        click.echo(_encoded(_file(options), options["variable"], encrypt=options["encrypt"]))
    elif not _query_jobs(client, options):
        _submit(client, options)


def _check(options: Mapping[str, Any]) -> None:
    """Validate the job file, and its sources and sinks as far as requested."""
    plan = job_file.load_plan(_file(options), options["variable"], strict=Strictness.STRICT)
    if options["dry_run"] in ("connect", "sample"):
        _dry_run(plan, options)
    click.echo(f"{options['file']} is valid; nothing was started")


def _dry_run(plan: Plan, options: Mapping[str, Any]) -> None:
    """Connect to the operators, and sample rows; a failure ends the command."""
    from tidegate.cli import dry_run  # Arrow, which the other commands do not need

    graphs = dry_run.graphs_of(plan)
    findings = [finding for graph in graphs for finding in dry_run.check_connections(graph)]
    for finding in findings:
        click.echo(str(finding))
    if any(finding.verdict == dry_run.FAILED for finding in findings):
        click.echo(
            f"{options['file']}: some sources or sinks cannot be reached; nothing was started",
            err=True,
        )
        sys.exit(exits.FAILED)
    if options["dry_run"] != "sample":
        return
    for graph in graphs:
        for name, node in graph.nodes.items():
            if why := dry_run.reason_not_sampled(node):
                click.echo(f"{name}: no sample: {why}")
        for name, sample in dry_run.sample_pipeline(
            graph, options["sample_limit"], show=options["sample_print_data"]
        ).items():
            tables = ", ".join(f"{rows} of {table}" for table, rows in sample.rows.items())
            click.echo(f"{name}: {sum(sample.rows.values())} rows{': ' if tables else ''}{tables}")
            for line in sample.shown:
                click.echo(f"  {line}")


def _file(options: Mapping[str, Any]) -> str:
    if not options["file"]:
        raise UserError(NO_ACTION)
    return str(options["file"])


def _query_jobs(client: Client, options: Mapping[str, Any]) -> bool:
    """Run the action on existing jobs; return False if the options name none."""
    if options["list_jobs"]:
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
    elif options["all_metrics"]:
        remote.print_json({job["jobId"]: job["metrics"] for job in client.get("/running-jobs")})
    elif options["state_of"]:
        remote.print_json(_state(client, options["state_of"]))
    elif options["cancel"] or options["force"]:
        codes = [
            stop_all(client, _ids(words), {"force": force})
            for words, force in ((options["cancel"], False), (options["force"], True))
        ]
        sys.exit(max(codes))
    elif options["metrics_of"]:
        remote.print_json(remote.job_of(client, options["metrics_of"])["metrics"])
    elif options["savepoint"]:
        sys.exit(stop_all(client, [options["savepoint"]], {"isStopWithSavePoint": True}))
    else:
        return False
    return True


def _ids(words: Sequence[str]) -> list[str]:
    """Split job ids at blanks and commas, from one option or several."""
    return [job_id for word in words for job_id in word.replace(",", " ").split()]


def _state(client: Client, job_id: str) -> dict[str, Any]:
    """Return a job in the shape of SeaTunnel's `-j`."""
    job = client.get(f"/job-info/{job_id}")
    if "jobStatus" not in job:
        return {"err": f"jobId : {job_id} not found"}
    checkpoints = {
        p["pipelineId"]: p for p in client.get(f"/jobs/checkpoints/{job_id}")["pipelines"]
    }
    pipelines = {
        str(number): {"pipelineStatus": job["jobStatus"], "executionStateMap": {}}
        for number in checkpoints
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


def _encoded(file: str, variable: Sequence[str], *, encrypt: bool) -> str:
    job_file.load_plan(file, variable, strict=Strictness.NORMAL)
    document = Document(
        name=file,
        data=json.loads(resolved_json(file, variables=job_file.values_of(variable))),
        positions={},
    )
    return json.dumps((encode if encrypt else decode)(document).data, indent=2, ensure_ascii=False)


def _submit(client: Client, options: Mapping[str, Any]) -> None:
    file, name = _file(options), options["name"] if options["name"] != NOT_SET else None
    if options["master"] == "local":
        _run_here(file, name, options)
    query = {"jobName": name} if name else {}
    if options["restore"]:
        query |= _restore_of(options["restore"])
    if options["restore_with_checkpoint"]:
        query |= {
            "restoreMode": "CHECKPOINT",
            "restoreSourceJobId": str(options["restore_with_checkpoint"]),
        }
    if options["set_job_id"]:
        query["jobId"] = str(options["set_job_id"])
    taken = submit.send(client, file, options["variable"], Strictness.NORMAL, query)
    click.echo(f"Job id: {taken['jobId']}")
    if options["detached"]:
        return
    if options["close_job"]:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        ended = submit.wait_for_end(client, taken["jobId"])
    except KeyboardInterrupt:
        if options["close_job"]:
            client.post("/stop-job", {"jobId": taken["jobId"]})
        click.echo(
            f"stop requested for job {taken['jobId']}"
            if options["close_job"]
            else f"job {taken['jobId']} keeps running; `tidegate stop` stops it",
            err=True,
        )
        sys.exit(exits.CANCELED)
    click.echo(_summary(ended))
    sys.exit(submit.code_of(ended))


def _restore_of(word: str) -> dict[str, str]:
    """Return the parameters of -r: a job id resumes that job, a path is a savepoint."""
    if word.isascii() and word.isdigit():
        return {"jobId": word, "isStartWithSavePoint": "true"}
    return {"restore": f"savepoint:{word}"}


def _run_here(file: str, name: str | None, options: Mapping[str, Any]) -> None:
    """Run the job in this process, as `tidegate run`."""
    from tidegate.cli.run import run

    arguments = [
        file,
        *(("--name", name) if name else ()),
        *(word for each in options["variable"] for word in ("-i", each)),
    ]
    if options["set_job_id"]:
        arguments += ["--job-id", str(options["set_job_id"])]
    if options["restore"]:
        arguments += ["--job-id", options["restore"], "--restore", "latest"]
    if options["detached"]:
        click.echo("--async has no effect on a job that runs in this process", err=True)
    run.main(arguments, prog_name="tidegate run")


def _summary(job: Mapping[str, Any]) -> str:
    metrics = job.get("metrics", {})
    read, written = (
        int(metrics.get("SourceReceivedCount", 0)),
        int(metrics.get("SinkWriteCount", 0)),
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
