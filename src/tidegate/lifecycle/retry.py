"""How often a job may be restarted, and how soon. Pure; called by the states.

The budget (`job.retry.times`) counts restarts in a row without progress between them, to tell a job
that cannot run from one with a passing failure. A generation has progressed when every pipeline
that it began has completed a checkpoint, or has found nothing to read; then the count restarts.
Every pipeline, because one that works must not pay for another that kills the driver repeatedly.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tidegate.model.records import DriverRecord, PipelineState, PipelineStatus

DOUBLINGS_MAX = 3  # the pause grows to at most eight times the interval


@dataclass(frozen=True, slots=True)
class Retry:
    """One more restart. `number` counts from 1; `healed`: the count restarted."""

    number: int
    healed: bool


@dataclass(frozen=True, slots=True)
class Exhausted:
    """The budget of restarts is used up."""

    times: int


def next_retry(*, restarts: int, times: int, progressed: bool) -> Retry | Exhausted:
    """Decide whether a job with this many restarts may be restarted once more."""
    number = (0 if progressed else restarts) + 1
    return Retry(number, progressed) if number <= times else Exhausted(times)


def backoff_ms(interval_s: float, number: int) -> int:
    """Return the pause before a restart: the interval, doubled for each one in a row.

    No pause before a restart that does not count.
    """
    if number < 1:
        return 0
    return int(interval_s * 1000 * 2 ** min(number - 1, DOUBLINGS_MAX))


def backoff_ms_max(interval_s: float) -> int:
    return int(interval_s * 1000 * 2**DOUBLINGS_MAX)


def has_progressed(
    driver: DriverRecord | None, generation: int, pipelines: Iterable[PipelineState]
) -> bool:
    """Whether every pipeline that this generation's driver began has made progress."""
    if driver is None or driver.generation != generation:
        return False
    begun = [
        p
        for p in pipelines
        if p.status not in (PipelineStatus.CREATED, PipelineStatus.FINISHED)
        or _completed(p, generation)
    ]
    return bool(begun) and all(_pipeline_progressed(p, generation) for p in begun)


def _pipeline_progressed(pipeline: PipelineState, generation: int) -> bool:
    """Whether a pipeline made progress in this generation.

    `confirmed_ms` begins at 0 with each generation: its value is of some host's clock, but that it
    was written is a fact of this generation.
    """
    return _completed(pipeline, generation) or pipeline.confirmed_ms > 0


def _completed(pipeline: PipelineState, generation: int) -> bool:
    """Whether this generation completed a checkpoint, also of a pipeline that has finished.

    One that was finished before says nothing about this driver.
    """
    return pipeline.latest is not None and pipeline.latest.generation == generation
