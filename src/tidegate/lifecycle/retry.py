"""How often a job may be started again, and how soon. Pure arithmetic; called by the states.

The budget (`job.retry.times`) counts restarts in a row without getting on between them: it shall
tell "cannot get on" from "stumbles". A generation has got on when every pipeline that it began has
completed a checkpoint, or has found nothing to read; then the count begins anew. All of them,
because a pipeline that thrives must not pay for another one that kills the driver over and over.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tidegate.model.records import DriverRecord, PipelineState, PipelineStatus

DOUBLINGS_MAX = 3  # the pause grows to eight times the interval, no further


@dataclass(frozen=True, slots=True)
class Retry:
    """One more time. `number` counts from 1; `healed`: the count began anew."""

    number: int
    healed: bool


@dataclass(frozen=True, slots=True)
class Exhausted:
    """All restarts are used up."""

    times: int


def next_retry(*, restarts: int, times: int, got_on: bool) -> Retry | Exhausted:
    """Whether a job that has been restarted so often may be restarted once more."""
    number = (0 if got_on else restarts) + 1
    return Retry(number, got_on) if number <= times else Exhausted(times)


def backoff_ms(interval_s: float, number: int) -> int:
    """The pause before a restart: the interval, doubled with each one in a row, up to eight times.
    None before one that does not count.
    """
    if number < 1:
        return 0
    return int(interval_s * 1000 * 2 ** min(number - 1, DOUBLINGS_MAX))


def backoff_ms_max(interval_s: float) -> int:
    return int(interval_s * 1000 * 2**DOUBLINGS_MAX)


def got_on(
    driver: DriverRecord | None, generation: int, pipelines: Iterable[PipelineState]
) -> bool:
    """Whether this generation's driver has done what it is there for."""
    if driver is None or driver.generation != generation:
        return False
    begun = [
        p
        for p in pipelines
        if p.status not in (PipelineStatus.CREATED, PipelineStatus.FINISHED)
        or _completed(p, generation)
    ]
    return bool(begun) and all(_got_on(p, generation) for p in begun)


def _got_on(pipeline: PipelineState, generation: int) -> bool:
    """`confirmed_ms` begins at 0 with each generation: when it was written is of some host's clock,
    that it was written is of this generation.
    """
    return _completed(pipeline, generation) or pipeline.confirmed_ms > 0


def _completed(pipeline: PipelineState, generation: int) -> bool:
    """Also of one that has finished: whether it was this generation that got it there.

    One that was finished before says nothing about this driver.
    """
    return pipeline.latest is not None and pipeline.latest.generation == generation
