"""`tidegate checkpoints list|show|verify`: retained checkpoints, their content and integrity."""

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from tidegate.cli import exits
from tidegate.cli.display import duration
from tidegate.cli.installation import installation
from tidegate.coordinator.job_snapshot import JobSnapshot, job_of_name, read_job
from tidegate.coordinator.savepoint_requests import UnknownJob
from tidegate.model.document import to_document
from tidegate.model.errors import UserError
from tidegate.model.records import JOB_STATES, CheckpointRef
from tidegate.store.base import Store
from tidegate.store.errors import StoreDamaged

HomeAndConfig = tuple[str | None, Path | None]


class NoSuchCheckpoint(UserError):
    """A checkpoint that is not retained."""

    condition = "unknown-checkpoint"

    def __init__(self, job: str, there: Sequence[str]) -> None:
        super().__init__(
            f"no such checkpoint of job {job!r}; retained checkpoints: {', '.join(there) or 'none'}"
        )


@click.group(name="checkpoints")
@click.option("--home", help="Directory of the installation (TIDEGATE_HOME).")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="The engine's file.  [default: TIDEGATE_CONFIG, or tidegate.yaml of the home]",
)
@click.pass_context
def checkpoints(context: click.Context, home: str | None, config: Path | None) -> None:
    """List, show and verify the checkpoints of jobs.

    \b
    Examples:
      tidegate checkpoints list orders
      tidegate checkpoints show 7 12
      tidegate checkpoints verify
    """
    context.obj = home, config


@checkpoints.command(name="list")
@click.argument("job", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def list_command(location: HomeAndConfig, job: str | None, as_json: bool) -> None:
    """List the retained checkpoints of JOB (id or name), or of all jobs."""
    with installation(*location) as here:
        rows = [
            {**entry_of(snapshot, pipeline, ref), "damage": here.storage.damage(ref.path)}
            for snapshot, pipeline, ref in retained(here.store, job)
        ]
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    click.echo(
        f"{'job':>20} {'pipeline':>8} {'id':>6}  {'kind':16} {'completed':20} {'took':>8}"
        f" {'rows read':>12} {'bytes':>9}  state"
    )
    for row in rows:
        click.echo(
            f"{row['job_id']:>20} {row['pipeline']:>8} {row['checkpoint']:>6}  {row['kind']:16}"
            f" {row['completed']:20} {row['took']:>8} {row['rows_read']:>12,} {row['bytes']:>9,} "
            f" {'damaged' if row['damage'] else 'sound'}"
        )


@checkpoints.command()
@click.argument("job")
@click.argument("checkpoint", type=int, required=False)
@click.option("--pipeline", type=int, default=None, help="Only this pipeline.")
@click.pass_obj
def show(location: HomeAndConfig, job: str, checkpoint: int | None, pipeline: int | None) -> None:
    """Show the content of a checkpoint of JOB as JSON; the latest one unless an id is given."""
    shown = []
    with installation(*location) as here:
        for ref in selected(here.store, job, checkpoint, pipeline):
            whole = here.storage.read(ref.path)
            shown.append(
                {
                    "path": here.storage.files.describe(ref.path),
                    "manifest": to_document(whole.manifest),
                    "states": dict(whole.states),
                }
            )
    click.echo(json.dumps(shown, indent=1, ensure_ascii=False))


@checkpoints.command()
@click.argument("job", required=False)
@click.argument("checkpoint", type=int, required=False)
@click.pass_obj
def verify(location: HomeAndConfig, job: str | None, checkpoint: int | None) -> None:
    """Check every byte of the checkpoints of JOB, or of all jobs; exit code 1 if one is damaged."""
    damaged, there = 0, []
    with installation(*location) as here:
        for snapshot, pipeline, ref in retained(here.store, job):
            there.append(str(ref.checkpoint))
            if checkpoint is None or ref.checkpoint == checkpoint:
                damage = here.storage.damage(ref.path)
                damaged += bool(damage)
                click.echo(
                    f"job {snapshot.job_id} pipeline {pipeline} checkpoint {ref.checkpoint}:"
                    f" {damage or 'sound'}"
                )
        if job is not None and (
            not there or (checkpoint is not None and str(checkpoint) not in there)
        ):
            raise NoSuchCheckpoint(job, there)
    if not there:
        click.echo("there are no checkpoints in this installation")
    sys.exit(exits.FAILED if damaged else exits.FINISHED)


def retained(store: Store, job: str | None) -> Iterator[tuple[JobSnapshot, int, CheckpointRef]]:
    """Yield every retained checkpoint of one job or of all, with its pipeline."""
    for snapshot in jobs(store, job):
        for pipeline in snapshot.pipelines:
            for ref in pipeline.value.retained:
                yield snapshot, pipeline.value.pipeline, ref


def jobs(store: Store, job: str | None) -> Iterator[JobSnapshot]:
    """Yield one job by id or name, or all of them."""
    if job is None:
        for entry in store.list(JOB_STATES):
            try:
                yield read_job(store, int(entry.key))
            except StoreDamaged as error:  # the others are shown
                click.echo(f"tidegate: {error}", err=True)
        return
    job_id = int(job) if job.isdigit() else job_of_name(store, job)
    snapshot = read_job(store, job_id) if job_id is not None else None
    if snapshot is None or snapshot.state is None:
        raise UnknownJob(job)
    yield snapshot


def selected(
    store: Store, job: str, checkpoint: int | None, pipeline: int | None
) -> list[CheckpointRef]:
    """Return the selected checkpoints, one for each pipeline."""
    found, there = [], []
    for snapshot in jobs(store, job):
        for stored in snapshot.pipelines:
            if pipeline is None or stored.value.pipeline == pipeline:
                there += [str(ref.checkpoint) for ref in stored.value.retained]
                found += [
                    ref
                    for ref in stored.value.retained
                    if (
                        ref == stored.value.latest
                        if checkpoint is None
                        else ref.checkpoint == checkpoint
                    )
                ]
    if not found:
        raise NoSuchCheckpoint(job, there)
    return found


def entry_of(snapshot: JobSnapshot, pipeline: int, ref: CheckpointRef) -> dict[str, Any]:
    """Return a checkpoint as a row of the list."""
    return {
        "job_id": snapshot.job_id,
        "pipeline": pipeline,
        "checkpoint": ref.checkpoint,
        "kind": ref.kind.value,
        "completed": (
            datetime.fromtimestamp(ref.completed_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        ),
        "took": duration((ref.completed_ms - ref.begun_ms) / 1000),
        "rows_read": ref.rows_read,
        "rows_written": ref.rows_written,
        "bytes": ref.bytes,
        "path": ref.path,
    }
