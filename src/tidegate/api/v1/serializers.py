"""Convert records to models. Pure.

Options of plugins are not shown, and secrets in `env` are masked.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tidegate.api.pipelines import pipelines_of
from tidegate.api.rates import average_rates, rates_of, started_ms
from tidegate.api.running_jobs import RunningJob
from tidegate.api.seatunnel import serializers as v2
from tidegate.api.seatunnel.volumes import byte_counts, byte_rates, merged, with_zeros
from tidegate.api.v1 import models
from tidegate.coordinator.accepted_changes import table_stops
from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.coordinator.job_history import history_of
from tidegate.model.document import to_document
from tidegate.model.plan import Plan
from tidegate.model.records import (
    CheckpointRef,
    CleanupRecord,
    Failure,
    JobOutcome,
    JobStatus,
    PipelineMetrics,
    PipelineState,
    WorkerRecord,
)
from tidegate.model.restore import RestoreReport
from tidegate.model.table_changes import ChangeStop
from tidegate.model.throughput import PipelineRates, Rate, Tables, Volumes, total_volume


def to_optional_time(ms: int) -> datetime | None:
    """Convert to a time in UTC; None for 0."""
    return datetime.fromtimestamp(ms / 1000, UTC) if ms else None


def to_time(ms: int) -> datetime:
    """Convert to a time in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def running(cache: ClusterCache, job: RunningJob, now_ms: int) -> models.Job:
    """Convert a job that has not ended."""
    return models.Job(**_running(cache, job, now_ms))


def details(cache: ClusterCache, job: RunningJob, now_ms: int) -> models.JobDetails:
    """Convert a job that has not ended, with its details."""
    job_id, record = job.state.job_id, job.record.value
    places = [p.value for p in cache.pipelines(job_id)]
    live = {
        m.value.pipeline: m.value
        for m in cache.metrics(job_id)
        if m.value.generation == job.state.generation
    }
    return models.JobDetails(
        **_running(cache, job, now_ms),
        pipelines=[
            pipeline(place, live.get(place.pipeline)) for place in pipelines_of(cache, job_id)
        ],
        graph=graph(record.plan, _volumes(record.plan, places), rates_of(job.state, live.values())),
        env=v2.env_options(record.plan.env, record.name),
        failures=[failure(each) for each in reversed(job.state.failures)],
        events=_events(cache, job_id),
        restore=as_plan(record.restore) if record.restore else None,
    )


def _events(cache: ClusterCache, job_id: int) -> list[models.JobEventModel]:
    return [
        models.JobEventModel(
            at=to_time(each.at_ms),
            kind=each.kind.value,
            what=each.to,
            by=each.by,
            generation=each.generation,
            reason=each.reason,
        )
        for each in reversed(history_of(cache.snapshot(job_id)))
    ]


def _volumes(plan: Plan, places: Sequence[PipelineState]) -> Volumes:
    """Return the volumes of all operators in pipelines that have a checkpoint."""
    parts = {part.id: part for part in plan.pipelines}
    known = [p for p in places if p.checkpoints and p.pipeline in parts]
    return {
        operator: tables
        for p in known
        for operator, tables in with_zeros(
            [parts[p.pipeline]], p.volumes, p.rows_read, p.rows_written
        ).items()
    }


def _final_volumes(plan: Plan, outcome: JobOutcome) -> Volumes:
    """Return the volumes of all operators of a job that has ended."""
    return (
        with_zeros(plan.pipelines, outcome.volumes, outcome.rows_read, outcome.rows_written)
        if outcome.checkpoints
        else {}
    )


def _running(cache: ClusterCache, job: RunningJob, now_ms: int) -> dict[str, Any]:
    record, state = job.record.value, job.state
    places = [p.value for p in cache.pipelines(state.job_id)]
    live = [m.value for m in cache.metrics(state.job_id) if m.value.generation == state.generation]
    last, assignment = v2.lagging(places), cache.assignment(state.job_id)
    confirmed = v2.confirmed_ms(last) if last else 0
    return {
        "id": str(record.job_id),
        "name": record.name,
        "status": state.status,
        "mode": record.plan.env.mode.value,
        "submitted": to_time(record.initialization_ms),
        "started": to_optional_time(started_ms(state)),
        "ended": None,
        "submitted_by": record.intent.by,
        "lineage": record.lineage,
        "generation": state.generation,
        "restored": record.restored,
        "restorable": v2.restorable(places),
        "desired": record.intent.desired.value,
        "reason": state.reason,
        "health": state.health,
        "health_reason": state.health_reason,
        "last_checkpoint": max((p.latest.checkpoint for p in places if p.latest), default=None),
        "last_checkpoint_at": to_optional_time(
            last.latest.completed_ms if last and last.latest else 0
        ),
        "seconds_since_checkpoint": max(0, now_ms - confirmed) / 1000 if confirmed else None,
        "restarts": v2.restarts_of(state),
        "restarts_without_progress": state.restarts,
        "worker": assignment.value.worker if assignment else None,
        "metrics": _metrics(job, places, live),
        "last_failure": failure(state.failures[-1]) if state.failures else None,
    }


def _metrics(
    job: RunningJob, places: Sequence[PipelineState], live: Sequence[PipelineMetrics]
) -> models.JobMetricsModel:
    (read, written), plan = v2.rows_so_far(places, live), job.record.value.plan
    bytes_read, bytes_written = byte_counts(plan, merged(places))
    return models.JobMetricsModel(
        rows_read=read,
        rows_written=written,
        rows_committed=sum(p.rows_written for p in places),
        bytes_read=bytes_read,
        bytes_written=bytes_written,
        **_per_second(plan, rates_of(job.state, live)),
    )


def _per_second(plan: Plan | None, rates: PipelineRates | None) -> dict[str, float | None]:
    read, written = byte_rates(plan, rates) if rates else (None, None)
    return {
        "rows_read_per_second": rates.rows_read if rates else None,
        "rows_written_per_second": rates.rows_written if rates else None,
        "bytes_read_per_second": read,
        "bytes_written_per_second": written,
    }


def ended(outcome: JobOutcome) -> models.Job:
    """Convert a job that has ended."""
    return models.Job(**_ended(outcome))


def ended_details(cache: ClusterCache, outcome: JobOutcome) -> models.JobDetails:
    """Convert a job that has ended, with the details that still exist."""
    plan = outcome.plan
    return models.JobDetails(
        **_ended(outcome),
        pipelines=[pipeline(p, None) for p in pipelines_of(cache, outcome.job_id)],
        graph=graph(plan, _final_volumes(plan, outcome), average_rates(outcome)) if plan else [],
        env=v2.env_options(plan.env, outcome.name) if plan else {},
        failures=[failure(each) for each in reversed(outcome.failures)],
        stopped_at=[change_stop(each) for each in table_stops(outcome)],
        events=_events(cache, outcome.job_id),
        restore=as_plan(outcome.restore) if outcome.restore else None,
    )


def as_plan(report: RestoreReport) -> models.RestorePlan:
    """Convert a restore report to its model."""
    return models.RestorePlan(
        verdict=report.verdict.value,
        start=report.start,
        origin=report.origin,
        problems=list(report.problems),
        consents=list(report.consents),
        notes=list(report.notes),
        document=to_document(report),
    )


def _ended(outcome: JobOutcome) -> dict[str, Any]:
    bytes_read, bytes_written = byte_counts(outcome.plan, outcome.volumes)
    return {
        "id": str(outcome.job_id),
        "name": outcome.name,
        "status": outcome.status,
        "mode": outcome.plan.env.mode.value if outcome.plan else "",
        "submitted": to_time(outcome.initialization_ms),
        "started": to_optional_time(started_ms(outcome)),
        "ended": to_time(outcome.finished_ms),
        "submitted_by": "",
        "lineage": outcome.lineage,
        "generation": outcome.generation,
        "restored": outcome.restored,
        "restorable": _restorable(outcome),
        "desired": None,
        "reason": "",
        "health": None,
        "health_reason": "",
        "last_checkpoint": outcome.last_checkpoint or None,
        "last_checkpoint_at": to_optional_time(outcome.last_checkpoint_ms),
        "seconds_since_checkpoint": None,
        "restarts": v2.restarts_of(outcome),
        "restarts_without_progress": outcome.restarts,
        "worker": None,
        "metrics": models.JobMetricsModel(
            rows_read=outcome.rows_read,
            rows_written=outcome.rows_written,
            rows_committed=outcome.rows_written,
            bytes_read=bytes_read,
            bytes_written=bytes_written,
            **_per_second(outcome.plan, average_rates(outcome)),
        ),
        "last_failure": failure(outcome.failures[-1]) if outcome.failures else None,
    }


def _restorable(outcome: JobOutcome) -> bool:
    if outcome.restorable is not None:
        return outcome.restorable
    return (
        outcome.status not in (JobStatus.FINISHED, JobStatus.UNKNOWABLE) and outcome.checkpoints > 0
    )


def failure(failed: Failure) -> models.FailureModel:
    """Convert one entry of the failure history."""
    return models.FailureModel(
        at=to_time(failed.at_ms),
        generation=failed.generation,
        pipeline=failed.pipeline or None,
        condition=failed.condition,
        domain=failed.domain,
        message=failed.message,
        change=change_stop(failed.change) if failed.change else None,
    )


def change_stop(change: ChangeStop) -> models.ChangeStopModel:
    """Convert a change that has stopped a job."""
    return models.ChangeStopModel(
        table=change.table, at=change.at, statement=change.statement, choices=list(change.choices)
    )


def checkpoint(ref: CheckpointRef, state: PipelineState) -> models.CheckpointModel:
    """Convert a completed checkpoint of a pipeline."""
    return models.CheckpointModel(
        checkpoint=ref.checkpoint,
        pipeline=state.pipeline,
        kind=ref.kind,
        generation=ref.generation,
        begun=to_time(ref.begun_ms),
        completed=to_time(ref.completed_ms),
        seconds=max(0, ref.completed_ms - ref.begun_ms) / 1000,
        bytes=ref.bytes,
        rows_read=ref.rows_read,
        rows_written=ref.rows_written,
        retained=any(kept.checkpoint == ref.checkpoint for kept in state.retained),
    )


def pipeline(state: PipelineState, live: PipelineMetrics | None) -> models.Pipeline:
    """Convert a pipeline, with the last report of its driver."""
    return models.Pipeline(
        pipeline=state.pipeline,
        status=state.status,
        generation=state.generation,
        checkpoints=state.checkpoints,
        latest=checkpoint(state.latest, state) if state.latest else None,
        pending=state.pending.checkpoint if state.pending else None,
        phase=live.phase if live else "",
        rows_read=max(state.rows_read, live.rows_read if live else 0),
        rows_written=max(state.rows_written, live.rows_written if live else 0),
        done=live.done if live and live.unit else None,
        total=live.total if live and live.unit else None,
        unit=live.unit if live else "",
        ready_to_close=list(state.ready_to_close),
    )


def graph(
    plan: Plan, volumes: Volumes | None = None, rates: PipelineRates | None = None
) -> list[models.Vertex]:
    """Convert the operators of a job, with their volumes and rates."""
    volumes = volumes or {}
    by_operator = rates.operators if rates else None
    return [
        models.Vertex(
            operator=action.operator,
            label=action.label,
            kind=action.kind.value,
            plugin=action.plugin,
            pipeline=part.id,
            inputs=list(action.inputs),
            parallelism=action.parallelism,
            delivery=action.delivery.value if action.delivery else None,
            **(
                _volume(
                    volumes[action.operator],
                    by_operator.get(action.operator, {}) if by_operator is not None else None,
                )
                if action.operator in volumes
                else {}
            ),
        )
        for part in plan.pipelines
        for action in part.actions
    ]


def _volume(tables: Tables, rates: Mapping[str, Rate] | None) -> dict[str, Any]:
    whole = total_volume(tables)
    return {
        "rows": whole.rows,
        "bytes": whole.bytes,
        "rows_per_second": (
            round(sum(rate.rows for rate in rates.values()), 3) if rates is not None else None
        ),
        "tables": [
            models.TableVolume(table=table, rows=volume.rows, bytes=volume.bytes)
            for table, volume in tables.items()
        ],
    }


def worker(record: WorkerRecord, jobs: Sequence[int]) -> models.WorkerModel:
    """Convert a worker, with the jobs that are assigned to it."""
    return models.WorkerModel(
        id=record.id,
        host=record.host,
        address=record.address,
        slots=record.slots,
        free_slots=max(0, record.slots - len(jobs)),
        tags=dict(record.tags),
        warm=record.warm,
        started=to_optional_time(record.started_ms),
        jobs=[str(job) for job in jobs],
    )


def cleanup(record: CleanupRecord) -> models.Cleanup:
    """Convert the pending cleanup of an ended job."""
    return models.Cleanup(
        id=str(record.job_id),
        due=to_time(record.due_ms),
        resumable=record.resumable,
        attempts=record.attempts,
        error=record.error,
    )
