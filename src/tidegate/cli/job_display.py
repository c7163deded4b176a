"""Derives what is shown of a running job from the store's records. Pure; drawn by display.py."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.coordinator.job_snapshot import JobSnapshot
from tidegate.model.records import PipelineMetrics


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineView:
    """One line of the display.

    Rows are those that tasks have processed, which may be more than those committed.
    """

    pipeline: int
    status: str
    phase: str
    rows_read: int
    rows_written: int
    rows_per_second: float | None  # of committed rows; None while it starts
    checkpoint: int
    checkpoint_age_s: float | None
    done: float
    total: float
    unit: str
    restarts: int
    waits_for: str = ""  # what the start of the engine waits for


@dataclass(frozen=True, kw_only=True, slots=True)
class JobDisplay:
    job_id: int
    name: str
    status: str
    generation: int
    elapsed_s: float
    pipelines: tuple[PipelineView, ...]


def job_view(
    snapshot: JobSnapshot,
    metrics: Mapping[int, PipelineMetrics],
    *,
    name: str,
    started_s: float,
    now_s: float,
    now_ms: int,
) -> JobDisplay:
    """Derive the current display from a snapshot and the metrics."""
    pipelines: Sequence[PipelineView] = []
    for stored in snapshot.pipelines:
        state = stored.value
        now = metrics.get(state.pipeline)
        rows_read = max(state.rows_read, now.rows_read if now else 0)
        confirmed_ms = max(state.confirmed_ms, state.latest.completed_ms if state.latest else 0)
        pipelines = [
            *pipelines,
            PipelineView(
                pipeline=state.pipeline,
                status=state.status.value,
                phase=now.phase if now else "starting",
                rows_read=rows_read,
                rows_written=max(state.rows_written, now.rows_written if now else 0),
                rows_per_second=now.rates.rows_read if now and now.rates else None,
                checkpoint=state.latest.checkpoint if state.latest else 0,
                checkpoint_age_s=max(0.0, (now_ms - confirmed_ms) / 1000) if confirmed_ms else None,
                done=now.done if now else 0,
                total=now.total if now else 0,
                unit=now.unit if now else "",
                restarts=state.restarts,
                waits_for=now.waits_for if now else "",
            ),
        ]
    state_of_job = snapshot.state.value if snapshot.state else None
    return JobDisplay(
        job_id=snapshot.job_id,
        name=name,
        status=state_of_job.status.value if state_of_job else "",
        generation=state_of_job.generation if state_of_job else 0,
        elapsed_s=now_s - started_s,
        pipelines=tuple(pipelines),
    )
