"""`tidegate support-bundle`: collects the diagnostics of a job in one file, without secrets."""

import io
import json
import os
import tarfile
import time
from pathlib import Path
from typing import Any

import click

from tidegate.cli import remote
from tidegate.client import Client, Refused
from tidegate.model.errors import UserError
from tidegate.redact import mask_text

LOG_CHARS_MAX = 5_000_000


@click.command(name="support-bundle")
@click.argument("job")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The file to write.  [default: tidegate-JOB.tar.gz]",
)
@remote.options
def support_bundle(client: Client, job: str, output: Path | None) -> None:
    """Collect the diagnostics of JOB (id or name) in one archive.

    \b
    It contains the job's records, checkpoints, failures and logs, the queue, the workers, metrics
    and threads. Secrets are masked. Review the archive before you send it to anybody: it names
    tables, hosts and files.
    Example:
      tidegate support-bundle 7 -o /tmp/seven.tar.gz
    """
    found = remote.job_of(client, job)
    job_id = str(found["jobId"])
    path = output or Path(f"tidegate-{job_id}.tar.gz")
    files = {f"job-{job_id}/{name}": text for name, text in contents(client, job_id).items()}
    try:
        with (
            open(path, "xb", opener=_open_private) as file,
            tarfile.open(fileobj=file, mode="w:gz") as bundle,
        ):
            for name, text in files.items():
                data = mask_text(text).encode()
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                entry.mtime = int(time.time())
                entry.mode = 0o600
                bundle.addfile(entry, io.BytesIO(data))
    except FileExistsError:
        raise UserError(f"{path} exists already: choose another name with -o") from None
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from None
    click.echo(f"{path}: {len(files)} files, readable by its owner only")


def _open_private(path: str, flags: int) -> int:
    """Create a file that other users cannot read at any moment."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def contents(client: Client, job_id: str) -> dict[str, str]:
    """Return the files of the bundle by name.

    A file whose data the server refuses contains the refusal.
    """
    paths = {
        "job.json": f"/job-info/{job_id}",
        "failures.json": f"/job-info/{job_id}/failures",
        "checkpoints.json": f"/jobs/checkpoints/{job_id}",
        "typed.json": f"/api/v1/jobs/{job_id}",
        "overview.json": "/overview",
        "workers.json": "/api/v1/workers",
        "servers.json": "/api/v1/coordinators",
        "cleanups.json": "/api/v1/cleanups",
        "pending.json": "/pending-jobs",
        "server.json": "/system-monitoring-information",
        "threads.json": "/thread-dump",
        "health.json": "/health",
    }
    found = {name: _pretty(client, path) for name, path in paths.items()}
    found["metrics.txt"] = client.text("/metrics")
    for entry in client.get("/logs", {"format": "json"}):
        name = entry["logName"]
        if name.startswith((f"{job_id}/", "server-", "worker-")):
            found[f"logs/{name}"] = client.text(f"/logs/{name}")[-LOG_CHARS_MAX:]
    return found


def _pretty(client: Client, path: str) -> str:
    try:
        value: Any = client.get(path)
    except Refused as refusal:
        value = {"refused": str(refusal)}
    return json.dumps(value, indent=1, ensure_ascii=False)
