"""The throughput of a job as it is displayed: what its drivers measured (pipeline/rates). Pure."""

from collections.abc import Iterable, Sequence

from tidegate.model.records import (
    CheckpointHealth,
    JobOutcome,
    JobState,
    JobStatus,
    PipelineMetrics,
)
from tidegate.model.throughput import PipelineRates, Rate

MOVING = frozenset({JobStatus.RUNNING, JobStatus.DOING_SAVEPOINT, JobStatus.CANCELING})


def rates_of(state: JobState, metrics: Iterable[PipelineMetrics]) -> PipelineRates | None:
    """Sum the rates of all pipelines.

    None while no driver of this generation has committed anything, and if no driver runs.
    """
    if state.status not in MOVING:
        return None
    if state.health is CheckpointHealth.STALLED:
        return PipelineRates()
    return _sum(
        [m.rates for m in metrics if m.generation == state.generation and m.rates is not None]
    )


def average_rates(outcome: JobOutcome) -> PipelineRates | None:
    """Return the average rates over the whole run of a job that has ended.

    None if the run continued an earlier one: its totals are not of this run alone.
    """
    took_s = (outcome.finished_ms - started_ms(outcome)) / 1000
    if outcome.restored or took_s <= 0 or not started_ms(outcome):
        return None
    return PipelineRates(
        rows_read=round(outcome.rows_read / took_s, 3),
        rows_written=round(outcome.rows_written / took_s, 3),
        operators={
            operator: {
                table: Rate(round(volume.rows / took_s, 3), round(volume.bytes / took_s, 3))
                for table, volume in tables.items()
            }
            for operator, tables in outcome.volumes.items()
        },
    )


def started_ms(run: JobState | JobOutcome) -> int:
    """Return when an incarnation was first started; 0 if it was not yet.

    Older releases did not record it: only the last time is known then.
    """
    entered = run.entered
    return (
        run.started_ms
        or entered.get(JobStatus.SCHEDULED.value, 0)
        or entered.get(JobStatus.RUNNING.value, 0)
    )


def _sum(parts: Sequence[PipelineRates]) -> PipelineRates | None:
    if not parts:
        return None
    return PipelineRates(
        rows_read=round(sum(part.rows_read for part in parts), 3),
        rows_written=round(sum(part.rows_written for part in parts), 3),
        operators={
            operator: tables for part in parts for operator, tables in part.operators.items()
        },
    )
