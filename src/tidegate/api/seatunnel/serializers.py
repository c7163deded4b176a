"""Records -> the reference's JSON, pure: almost every scalar is a string, times are `yyyy-MM-dd
HH:mm:ss` in the zone of the server.

Called by fragments. Options of plugins are not shown at all, and of `env` only what is no secret.
What the reference does not have (checkpoints and their health, why a job waits, restarts) is added,
never put in the place of something.
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
    """The status in the reference's words: it has no RECOVERING."""
    return JobStatus.PENDING.value if status is JobStatus.RECOVERING else status.value


def time_text(ms: int) -> str:
    """A moment in the zone of the server; empty where there was none."""
    return _second_text(ms // 1000) if ms else ""


@lru_cache(maxsize=8192)
def _second_text(second: int) -> str:
    return datetime.fromtimestamp(second).strftime("%Y-%m-%d %H:%M:%S")


def identity(record: JobRecord) -> dict[str, Any]:
    """What does not change in the life of an incarnation."""
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
    """What changes while a job lives. Ages are not in it: they change all the time."""
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
    """A job that has ended."""
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
    """The graph. Vertexes are counted over the whole job, from 1."""
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
    """The env block as text: what was set, and the three that every reader looks for."""
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
    """How long the sources hold what the oldest restore point needs, as they said last."""
    figures = [
        figure for m in metrics if m.generation == state.generation for figure in m.log_retention
    ]
    found = log_retention_status(figures)
    sources = [
        {
            "source": figure.source,
            "level": figure.level.value,
            "checkpointId": str(figure.checkpoint),
            "secondsLeft": figure.seconds_left,
            "bytesLeft": figure.bytes_left,
            "reason": figure.reason,
        }
        for figure in figures
    ]
    return {"level": found.level.value, "reason": found.reason, "sources": sources}


def running_metrics(
    state: JobState,
    plan: Plan,
    pipelines: Sequence[PipelineState],
    metrics: Sequence[PipelineMetrics],
) -> dict[str, Any]:
    """Rows that were read and written, also those that are not committed yet; committed ones by
    themselves, with their bytes and tables. Rates are of committed rows; a job that has none yet
    shows 0, as SeaTunnel has no other word.
    """
    read, written = rows_so_far(pipelines, [m for m in metrics if m.generation == state.generation])
    rates = rates_of(state, metrics)
    return _counts(read, written, sum(p.rows_written for p in pipelines), rates) | volumes.metrics(
        plan, volumes.merged(pipelines), rates
    )


def rows_so_far(
    pipelines: Sequence[PipelineState], live: Sequence[PipelineMetrics]
) -> tuple[int, int]:
    """Rows that were read and written, also those that are not committed yet.

    `live` is what the driver of this generation has said last.
    """
    said = {m.pipeline: m for m in live}
    read = sum(
        max(p.rows_read, said[p.pipeline].rows_read if p.pipeline in said else 0) for p in pipelines
    )
    written = sum(
        max(p.rows_written, said[p.pipeline].rows_written if p.pipeline in said else 0)
        for p in pipelines
    )
    return read, written


def finished_metrics(outcome: JobOutcome) -> dict[str, Any]:
    """The same of a job that has ended, with the average rates of its run."""
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
    """All restarts of a run; of one that began under an older release, those that were counted."""
    return max(run.restarts_total, run.restarts)


def lagging(pipelines: Sequence[PipelineState]) -> PipelineState | None:
    """The unfinished pipeline whose last checkpoint is the oldest: a job is only as safe as that
    one. Of a job whose pipelines have all ended, the newest.
    """
    going = [p for p in pipelines if p.status is not PipelineStatus.FINISHED]
    if going:
        return min(going, key=confirmed_ms)
    return max(pipelines, key=confirmed_ms, default=None)


def restorable(pipelines: Sequence[PipelineState]) -> bool:
    """Whether there is a checkpoint to go on from."""
    return any(p.latest for p in pipelines)


def confirmed_ms(pipeline: PipelineState) -> int:
    """When it was last known that everything up to now is in a checkpoint; 0 = never."""
    latest: CheckpointRef | None = pipeline.latest
    return max(pipeline.confirmed_ms, latest.completed_ms if latest else 0)


def error_text(failures: Sequence[Failure]) -> str | None:
    return failures[-1].message if failures else None


def failure(failed: Failure) -> dict[str, Any]:
    """One entry of the failure history."""
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
