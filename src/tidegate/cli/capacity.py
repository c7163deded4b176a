"""`tidegate capacity`: how much checkpoint storage jobs need.

For jobs that have run, it is computed from their checkpoints; for a job file, it is estimated.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from tidegate.checkpoints import paths
from tidegate.checkpoints.capacity import (
    SAFETY,
    OperatorEstimate,
    PipelineSizes,
    StorageNeed,
    estimated,
    measured,
)
from tidegate.checkpoints.manifest import Damaged
from tidegate.cli.installation import LocalInstallation, installation
from tidegate.cli.job_file import load_plan
from tidegate.cli.state import AS_JSON, CONFIG, HOME, echo
from tidegate.cli.state_tables import table
from tidegate.model.byte_size import format_size as size
from tidegate.model.document import NewerDocument, from_document
from tidegate.model.plan import Plan
from tidegate.model.problem import Strictness
from tidegate.model.records import (
    CHECKPOINT_HISTORY,
    JOB_OUTCOMES,
    JOB_STATES,
    METRICS,
    PIPELINES,
    RUNNING_JOBS,
    CheckpointHistory,
    JobOutcome,
    JobRecord,
    PipelineState,
)
from tidegate.store.base import Store, undamaged

OF_JOBS = (RUNNING_JOBS, JOB_STATES, PIPELINES, METRICS, CHECKPOINT_HISTORY)
SAMPLES_MAX = 200  # checkpoints that are read for the sizes of operators


@click.command()
@click.argument("file", required=False)
@click.option(
    "-i", "--variable", multiple=True, help="Value of a variable in the job file: name=value."
)
@HOME
@CONFIG
@AS_JSON
def capacity(
    file: str | None, variable: Sequence[str], home: str | None, config: Path | None, as_json: bool
) -> None:
    """Show how much checkpoint storage jobs need: all jobs of the store, or the job of FILE.

    \b
    storage = checkpoint x (max-retained + 1) x 1.5, for every pipeline
    Each savepoint needs one more checkpoint.

    \b
    Examples:
      tidegate capacity
      tidegate capacity job.conf --json
    """
    plan = load_plan(file, variable, strict=Strictness.NORMAL) if file else None
    with installation(home, config) as here:
        if plan is None:
            document, lines = fleet(here)
        else:
            document, lines = of_file(here, plan)
    if as_json:
        click.echo(json.dumps(document, indent=1))
    else:
        echo(lines)


def fleet(here: LocalInstallation) -> tuple[dict[str, Any], list[str]]:
    """Return the need of all jobs of the store, as a document and as text."""
    rows = [(job_id, name, need) for job_id, name, need in needs(here) if need is not None]
    total, a_job = sum(need.storage_bytes for _, _, need in rows), store_bytes_of_a_job(here.store)
    quota = here.settings.checkpoint.quota_mb * 1_000_000
    document = {
        "jobs": [
            {
                "job_id": job_id,
                "name": name,
                **asdict(need),
                "savepoint_bytes": need.savepoint_bytes,
            }
            for job_id, name, need in rows
        ],
        "storage_bytes": total,
        "store_bytes_of_a_job": a_job,
        "quota_bytes": quota,
    }
    cells = [
        (
            str(job_id),
            name,
            size(need.checkpoint_bytes),
            str(need.retained_max),
            size(need.storage_bytes),
            size(need.savepoint_bytes),
        )
        for job_id, name, need in rows
    ]
    lines = (
        [
            *table(
                ("job", "name", "checkpoint", "retained", "storage", "each savepoint"),
                cells,
                left=2,
            ),
            "",
        ]
        if rows
        else ["no job here has a checkpoint yet"]
    )
    lines.append(
        f"checkpoint storage for {len(rows)} jobs: {size(total)}; checkpoints x (retained + 1) x"
        f" {SAFETY}"
    )
    lines.append(f"store: {size(a_job)} for each job on average")
    if quota:
        lines.append(f"quota: {size(quota)}, of which that is {total * 100 // quota} %")
    return document, lines


def needs(here: LocalInstallation) -> Iterator[tuple[int, str, StorageNeed | None]]:
    """Yield the need of every job that has pipelines in the store."""
    plans = plans_of(here.store)
    by_job: dict[int, list[PipelineSizes]] = {}
    for entry in undamaged(here.store.list(PIPELINES)):
        state = from_document(PipelineState, entry.value, f"pipeline {entry.key}")
        history = here.store.get(CHECKPOINT_HISTORY, entry.key)
        past = (
            from_document(CheckpointHistory, history.value, f"history of {entry.key}").entries
            if history
            else ()
        )
        sizes = {ref.checkpoint: ref.bytes for ref in (*past, *state.retained)}
        plan = plans.get(state.job_id, ("", None))[1]
        by_job.setdefault(state.job_id, []).append(
            PipelineSizes(
                pipeline=state.pipeline,
                retained_max=retained_of(here, plan),
                bytes=tuple(sizes[number] for number in sorted(sizes)),
            )
        )
    for job_id, pipelines in sorted(by_job.items()):
        yield job_id, plans.get(job_id, ("", None))[0], measured(pipelines)


def retained_of(here: LocalInstallation, plan: Plan | None) -> int:
    """Return how many checkpoints a job keeps, from its env or from the engine's settings."""
    return (
        plan.env.checkpoints_retained_max if plan else None
    ) or here.settings.checkpoint.retained_max


def plans_of(store: Store) -> dict[int, tuple[str, Plan | None]]:
    """Return name and plan of every job of the store."""
    ended = [
        from_document(JobOutcome, e.value, f"outcome of job {e.key}")
        for e in undamaged(store.list(JOB_OUTCOMES))
    ]
    running = [
        from_document(JobRecord, e.value, f"job {e.key}")
        for e in undamaged(store.list(RUNNING_JOBS))
    ]
    return {job.job_id: (job.name, job.plan) for job in ended} | {
        job.job_id: (job.name, job.plan) for job in running
    }


def store_bytes_of_a_job(store: Store) -> int:
    """Return the average size of a job in the store."""
    jobs = {entry.key for entry in store.list(JOB_STATES)}
    return sum(each.bytes for name, each in store.size_by_map().items() if name in OF_JOBS) // max(
        1, len(jobs)
    )


def of_file(here: LocalInstallation, plan: Plan) -> tuple[dict[str, Any], list[str]]:
    """Return the estimated need of a job that has not run, as a document and as text."""
    need, rows = estimated(plan, retained_of(here, plan), sizes_by_plugin(here))
    document = {
        "job": plan.job_name,
        **asdict(need),
        "savepoint_bytes": need.savepoint_bytes,
        "operators": [asdict(row) for row in rows],
    }
    return document, list(estimate_lines(plan, need, rows))


def estimate_lines(
    plan: Plan, need: StorageNeed, rows: Iterable[OperatorEstimate]
) -> Iterator[str]:
    yield f"estimate for {plan.job_name!r}; it is measured once the job has run"
    yield from table(
        ("operator", "based on", "tables", "at least", "at most"),
        [
            (row.operator, row.source, str(row.tables), size(row.low_bytes), size(row.high_bytes))
            for row in rows
        ],
        left=2,
    )
    yield f"checkpoint: {size(need.low_bytes)} to {size(need.checkpoint_bytes)}"
    yield (
        f"checkpoint storage: {size(need.storage_bytes)} ({need.retained_max} retained + 1 being"
        f" written, x {SAFETY})"
    )
    yield f"each savepoint: {size(need.savepoint_bytes)}"


def sizes_by_plugin(here: LocalInstallation) -> dict[str, list[int]]:
    """Return the sizes of operator states in the latest checkpoints, by plugin."""
    plans = plans_of(here.store)
    found: dict[str, list[int]] = {}
    for entry in undamaged(here.store.list(PIPELINES))[:SAMPLES_MAX]:
        state = from_document(PipelineState, entry.value, f"pipeline {entry.key}")
        plan = plans.get(state.job_id, ("", None))[1]
        if state.latest is None or plan is None:
            continue
        plugins = {
            action.operator: action.plugin
            for pipeline in plan.pipelines
            for action in pipeline.actions
        }
        try:
            files = here.storage.manifest(state.latest.path).files
        except (Damaged, NewerDocument):
            continue
        for name, each in files.items():
            operator = paths.operator_of(name.split("/")[0])
            if operator in plugins:
                found.setdefault(plugins[operator], []).append(each.bytes)
    return found
