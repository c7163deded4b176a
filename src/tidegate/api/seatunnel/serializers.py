"""Convert records to SeaTunnel's JSON. Pure.

Almost every scalar is a string, and times are `yyyy-MM-dd HH:mm:ss` in the server's time zone.
Options of plugins are not shown, and secrets in `env` are masked. What SeaTunnel does not have
(checkpoint health, why a job waits, restarts) is added under new keys and replaces nothing.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from functools import lru_cache
from typing import Any

from tidegate.api.rates import average_rates, rates_of, started_ms
from tidegate.api.seatunnel import volumes
from tidegate.api.seatunnel.volumes import decimal
from tidegate.model.document import to_document
from tidegate.model.job import JobEnv, JobMode
from tidegate.model.log_retention import log_retention_status
from tidegate.model.plan import Action, PipelinePlan, Plan
from tidegate.model.records import (
    CheckpointRef,
    Failure,
    JobOutcome,
    JobRecord,
    JobState,
    JobStatus,
    PipelineMetrics,
    PipelineState,
    PipelineStatus,
)
from tidegate.model.throughput import PipelineRates
from tidegate.plugin.schema import DEFAULT_TABLE
from tidegate.redact import mask_value

WAITING = frozenset(
    {JobStatus.INITIALIZING, JobStatus.CREATED, JobStatus.PENDING, JobStatus.RECOVERING}
)
_ENV_KEYS = {
    "retry_times": "job.retry.times",
    "retry_interval_s": "job.retry.interval.seconds",
    "checkpoint_interval_ms": "checkpoint.interval",
    "checkpoint_timeout_ms": "checkpoint.timeout",
    "checkpoint_pause_ms_min": "min-pause",
    "retain_after_cancel": "checkpoint.retain-after-job-cancelled",
    "checkpoints_retained_max": "checkpoint.max-retained",
    "rows_per_second": "read_limit.rows_per_second",
    "bytes_per_second": "read_limit.bytes_per_second",
    "batch_rows_max": "batch.max-rows",
    "batch_bytes_max": "batch.max-bytes",
    "batch_files_max": "batch.max-files",
    "pipeline_concurrency": "pipeline_concurrency",
    "tags": "tag_filter",
    "custom_parameters": "custom_parameters",
}


def shown_status(status: JobStatus) -> str:
    """Return SeaTunnel's name of a status: it has no RECOVERING."""
    return JobStatus.PENDING.value if status is JobStatus.RECOVERING else status.value


def time_text(ms: int) -> str:
    """Format a time in the server's time zone; empty for 0."""
    return _second_text(ms // 1000) if ms else ""


@lru_cache(maxsize=8192)
def _second_text(second: int) -> str:
    return datetime.fromtimestamp(second).strftime("%Y-%m-%d %H:%M:%S")


def identity(record: JobRecord) -> dict[str, Any]:
    """Return the part of a running job that is constant for an incarnation."""
    graph = dag(record.job_id, record.name, record.plan)
    return {
        "jobId": str(record.job_id),
        "jobName": record.name,
        "envOptions": graph["envOptions"],
        "createTime": time_text(record.initialization_ms),
        "jobDag": graph,
        "pluginJarsUrls": [{"jarPath": jar} for jar in record.plan.jars],
        "isStartWithSavePoint": record.restored,
        "restoreReport": to_document(record.restore),
    }


def progress(
    state: JobState,
    plan: Plan,
    pipelines: Sequence[PipelineState],
    metrics: Sequence[PipelineMetrics],
) -> dict[str, Any]:
    """Return the part of a running job that changes, except ages, which change constantly."""
    last = lagging(pipelines)
    return {
        "jobStatus": shown_status(state.status),
        "startTime": time_text(started_ms(state)),
        "metrics": running_metrics(state, plan, pipelines, metrics),
        "lastCheckpointId": _text(
            max((p.latest.checkpoint for p in pipelines if p.latest), default=None)
        ),
        "lastCheckpointTime": time_text(last.latest.completed_ms if last and last.latest else 0),
        "checkpointHealth": state.health.value,
        "healthReason": state.health_reason,
        "restorable": restorable(pipelines),
        "runway": log_retention(state, metrics),
        "statusReason": state.reason,
        "restarts": str(restarts_of(state)),
        "restartsWithoutProgress": str(state.restarts),
        "generation": str(state.generation),
        "lastError": error_text(state.failures[-1:]) or "",
    }


def finished(outcome: JobOutcome) -> dict[str, Any]:
    """Return the document of a job that has ended."""
    plan = outcome.plan
    return {
        "jobId": str(outcome.job_id),
        "jobName": outcome.name,
        "jobStatus": outcome.status.value,
        "errorMsg": (
            error_text(outcome.failures[-1:])
            if outcome.status in (JobStatus.FAILED, JobStatus.UNKNOWABLE)
            else None
        ),
        "createTime": time_text(outcome.initialization_ms),
        "startTime": time_text(started_ms(outcome)),
        "finishTime": time_text(outcome.finished_ms),
        "jobDag": dag(outcome.job_id, outcome.name, plan) if plan else {},
        "pluginJarsUrls": [],
        "metrics": finished_metrics(outcome),
        "isStartWithSavePoint": outcome.restored,
        "restoreReport": to_document(outcome.restore),
        "restarts": str(restarts_of(outcome)),
        "checkpoints": str(outcome.checkpoints),
    }


def dag(job_id: int, name: str, plan: Plan) -> dict[str, Any]:
    """Return the graph of a job. Vertices are numbered over the whole job, from 1."""
    numbers: dict[tuple[int, str], int] = {}
    for pipeline in plan.pipelines:
        for action in pipeline.actions:
            numbers[pipeline.id, action.operator] = len(numbers) + 1
    return {
        "jobId": str(job_id),
        "pipelineEdges": {str(p.id): _edges(p, numbers) for p in plan.pipelines},
        "envOptions": env_options(plan.env, name),
        "vertexInfoMap": [vertex for p in plan.pipelines for vertex in _vertexes(p, numbers)],
    }


def _edges(pipeline: PipelinePlan, numbers: Mapping[tuple[int, str], int]) -> list[dict[str, str]]:
    return [
        {
            "inputVertexId": str(numbers[pipeline.id, giver]),
            "targetVertexId": str(numbers[pipeline.id, action.operator]),
        }
        for action in pipeline.actions
        for giver in action.inputs
    ]


def _vertexes(
    pipeline: PipelinePlan, numbers: Mapping[tuple[int, str], int]
) -> Iterable[dict[str, Any]]:
    tables: dict[str, list[str]] = {}
    for action in pipeline.actions:
        given = [table for giver in action.inputs for table in tables.get(giver, ())]
        tables[action.operator] = (
            list(dict.fromkeys(given)) if action.inputs else _own_tables(action)
        )
        yield {
            "vertexId": numbers[pipeline.id, action.operator],
            "type": action.kind.value,
            "vertexName": f"pipeline-{pipeline.id} [{action.label}]",
            "tablePaths": tables[action.operator],
        }


def _own_tables(action: Action) -> list[str]:
    """The tables of a source as its block names them; what only the source itself can find out is
    not known here.
    """
    blocks = action.options.get("tables_configs") or [action.options]
    return list(
        dict.fromkeys(_table_name(block) for block in blocks if isinstance(block, Mapping))
    ) or [DEFAULT_TABLE]


def _table_name(block: Mapping[str, Any]) -> str:
    schema = block.get("schema")
    named = schema.get("table") if isinstance(schema, Mapping) else None
    return str(named or block.get("table_path") or block.get("plugin_output") or DEFAULT_TABLE)


def env_options(env: JobEnv, name: str) -> dict[str, str]:
    """Return the env block as text: options that were set, and three that are always present."""
    options: dict[str, Any] = {
        "job.mode": env.mode.value,
        "job.name": name,
        "parallelism": env.parallelism,
    }
    default = JobEnv(mode=JobMode.BATCH)
    for each in fields(env):
        value = getattr(env, each.name)
        if each.name in _ENV_KEYS and value != getattr(default, each.name):
            options[_ENV_KEYS[each.name]] = value
    options |= env.spark
    return {key: _option_text(mask_value(key, value)) for key, value in options.items()}


def _option_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return decimal(value)
    return (
        json.dumps(value, default=str, ensure_ascii=False)
        if isinstance(value, Mapping | list | tuple)
        else str(value)
    )


def log_retention(state: JobState, metrics: Sequence[PipelineMetrics]) -> dict[str, Any]:
    """Return how long the sources still keep the log that the oldest restore point needs."""
    reports = [
        report for m in metrics if m.generation == state.generation for report in m.log_retention
    ]
    found = log_retention_status(reports)
    sources = [
        {
            "source": report.source,
            "level": report.level.value,
            "checkpointId": str(report.checkpoint),
            "secondsLeft": report.seconds_left,
            "bytesLeft": report.bytes_left,
            "reason": report.reason,
        }
        for report in reports
    ]
    return {"level": found.level.value, "reason": found.reason, "sources": sources}


def running_metrics(
    state: JobState,
    plan: Plan,
    pipelines: Sequence[PipelineState],
    metrics: Sequence[PipelineMetrics],
) -> dict[str, Any]:
    """Return the metrics of a running job.

    Rows read and written include uncommitted ones. Committed rows are separate, with bytes and
    tables. Rates count committed rows; 0 if there is no rate yet, as SeaTunnel knows no null.
    """
    read, written = rows_so_far(pipelines, [m for m in metrics if m.generation == state.generation])
    rates = rates_of(state, metrics)
    return _counts(read, written, sum(p.rows_written for p in pipelines), rates) | volumes.metrics(
        plan, volumes.merged(pipelines), rates
    )


def rows_so_far(
    pipelines: Sequence[PipelineState], live: Sequence[PipelineMetrics]
) -> tuple[int, int]:
    """Return the rows read and written, including uncommitted ones.

    `live` is the last report of this generation's driver.
    """
    reports = {m.pipeline: m for m in live}
    read = written = 0
    for p in pipelines:
        report = reports.get(p.pipeline)
        read += max(p.rows_read, report.rows_read if report else 0)
        written += max(p.rows_written, report.rows_written if report else 0)
    return read, written


def finished_metrics(outcome: JobOutcome) -> dict[str, Any]:
    """Return the metrics of a job that has ended, with the average rates of its run."""
    rates = average_rates(outcome)
    return _counts(
        outcome.rows_read, outcome.rows_written, outcome.rows_written, rates
    ) | volumes.metrics(outcome.plan, outcome.volumes, rates)


def _counts(read: int, written: int, committed: int, rates: PipelineRates | None) -> dict[str, Any]:
    known = rates or PipelineRates()
    return {
        "SourceReceivedCount": str(read),
        "SourceReceivedQPS": decimal(known.rows_read),
        "SinkWriteCount": str(written),
        "SinkWriteQPS": decimal(known.rows_written),
        "SinkCommittedCount": str(committed),
        "SinkCommittedQPS": decimal(known.rows_written),
    }


def restarts_of(run: JobState | JobOutcome) -> int:
    """Return the restarts of a run; older releases counted only those without progress."""
    return max(run.restarts_total, run.restarts)


def lagging(pipelines: Sequence[PipelineState]) -> PipelineState | None:
    """Return the unfinished pipeline with the oldest checkpoint: the job is as old as that one.

    If all pipelines have finished, the one with the newest checkpoint.
    """
    unfinished = [p for p in pipelines if p.status is not PipelineStatus.FINISHED]
    if unfinished:
        return min(unfinished, key=confirmed_ms)
    return max(pipelines, key=confirmed_ms, default=None)


def restorable(pipelines: Sequence[PipelineState]) -> bool:
    """Return whether there is a checkpoint to resume from."""
    return any(p.latest for p in pipelines)


def confirmed_ms(pipeline: PipelineState) -> int:
    """Return when a checkpoint last covered everything that had been read; 0 = never."""
    latest: CheckpointRef | None = pipeline.latest
    return max(pipeline.confirmed_ms, latest.completed_ms if latest else 0)


def error_text(failures: Sequence[Failure]) -> str | None:
    return failures[-1].message if failures else None


def failure(failed: Failure) -> dict[str, Any]:
    """Return one entry of the failure history."""
    return {
        "timestamp": failed.at_ms,
        "time": time_text(failed.at_ms),
        "generation": failed.generation,
        "pipelineId": failed.pipeline or None,
        "condition": failed.condition,
        "domain": failed.domain,
        "message": failed.message,
        **({"change": to_document(failed.change)} if failed.change else {}),
    }


def _text(value: int | None) -> str:
    return "" if value is None else str(value)
