"""Whether RUNNING means progress: OK, LATE, STALLED, and why. Pure; the observer measures the ages
and keeps them.

Progress is a completed checkpoint, or the confirmation that there is nothing to read. A pipeline is
LATE when it has made none for one interval and one timeout, STALLED after the window: max(interval,
timeout) x (tolerable failures + 2). While it starts or restores it has the start window on top of
that; when it has started, the count begins anew. A job without an interval is a single batch that
may take what it takes: there only the driver's signs of life count.

There are two clocks and one function. What is done is decided with ages on the leader's monotonic
clock (`Mark`: the age begins anew when it changes); what is shown may use the wall
(`shown_age_ms`). Reasons hold no ages, so that an unchanged state has an unchanged reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from tidegate.lifecycle.observation import JobHealth
from tidegate.model.engine import CheckpointSettings
from tidegate.model.job import JobEnv, JobMode
from tidegate.model.records import CheckpointHealth, PipelineMetrics, PipelineState, PipelineStatus

STREAMING_INTERVAL_MS = 10_000
START_MS = 120_000
STARTING_PHASES = ("", "restoring", "starting")


class Stall(StrEnum):
    """What holds a pipeline up, as far as it can be known from outside."""

    NO_TRIGGER = "no trigger"  # no next batch is begun
    BATCH_TOO_LONG = "batch too long"
    SINK_BLOCKED = "sink blocked"
    SOURCE_UNREACHABLE = "source unreachable"
    STORE_UNREACHABLE = "store unreachable"
    DRIVER_GONE = "driver gone"
    DRIVER_HELD_UP = "driver held up"
    STARTING = "starting"
    ATTEMPTS_FAIL = "attempts fail"


# What the loop of a pipeline does (the phases of its meter) when it does not get on.
BY_PHASE = {
    "planning": (Stall.SOURCE_UNREACHABLE, "the source has not said what there is to read"),
    "writing": (Stall.BATCH_TOO_LONG, "its rows are being read and staged"),
    "committing": (Stall.SINK_BLOCKED, "the sink has not committed"),
    "finishing": (Stall.SINK_BLOCKED, "the sink has not closed"),
    "publishing": (Stall.STORE_UNREACHABLE, "the checkpoint storage has not taken it"),
    "retrying": (Stall.ATTEMPTS_FAIL, "one try after the other"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgressPolicy:
    """How often a job is expected to make progress."""

    interval_ms: int | None  # None: a single batch
    timeout_ms: int
    tolerable_failures: int = 0
    start_ms: int = START_MS
    concurrency: int | None = None  # how many pipelines run at the same time; None: all

    @staticmethod
    def of(env: JobEnv, settings: CheckpointSettings, start_ms: int = START_MS) -> "ProgressPolicy":
        """The job's own values, else the engine's.

        A BATCH job has an interval only where its file gives one.
        """
        general = (
            settings.interval_ms or STREAMING_INTERVAL_MS if env.mode is JobMode.STREAMING else None
        )
        interval_ms = env.checkpoint_interval_ms or general
        pause_ms = (
            settings.pause_ms_min
            if env.checkpoint_pause_ms_min is None
            else env.checkpoint_pause_ms_min
        )
        return ProgressPolicy(
            interval_ms=max(interval_ms, pause_ms) if interval_ms else None,
            timeout_ms=env.checkpoint_timeout_ms or settings.timeout_ms,
            tolerable_failures=settings.tolerable_failures,
            start_ms=start_ms,
            concurrency=env.pipeline_concurrency,
        )

    @property
    def late_ms(self) -> int:
        """One interval, and what a checkpoint may take."""
        return (self.interval_ms or 0) + self.timeout_ms

    @property
    def window_ms(self) -> int:
        """After this, something has to be done. Never shorter than `late_ms`."""
        return max(self.interval_ms or 0, self.timeout_ms) * (self.tolerable_failures + 2)

    def level(self, age_ms: int, grace_ms: int = 0) -> CheckpointHealth:
        """The level of an age: the one rule for what is done and what is shown."""
        if age_ms > self.window_ms + grace_ms:
            return CheckpointHealth.STALLED
        return CheckpointHealth.LATE if age_ms > self.late_ms + grace_ms else CheckpointHealth.OK


class ProgressMarker(NamedTuple):  # one is created and compared in each check of a pipeline
    """What changes with progress.

    The age of a pipeline's progress begins anew whenever this is another one.
    """

    generation: int
    status: PipelineStatus
    starting: bool
    checkpoints: int
    confirmed_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineSignals:
    """One pipeline as it is seen from outside."""

    state: PipelineState
    metrics: PipelineMetrics | None = None
    age_ms: int = 0  # since its Mark changed
    silent_ms: int = 0  # since its figures were last written
    seen: bool = True  # whether a living worker watches the driver's process


def mark(state: PipelineState, metrics: PipelineMetrics | None) -> ProgressMarker:
    """The mark of a pipeline as it is now."""
    return ProgressMarker(
        state.generation,
        state.status,
        is_starting(state, metrics),
        state.checkpoints,
        state.confirmed_ms,
    )


def is_starting(state: PipelineState, metrics: PipelineMetrics | None) -> bool:
    """Whether the driver still starts, or the pipeline restores.

    The phase is written less often than checkpoints complete: once this generation has completed
    one, only a phase that says "starting" itself (a batch that waits for executors) counts.
    """
    if state.status is PipelineStatus.CREATED:
        return True
    phase = _phase(state, metrics)
    latest = state.latest
    if latest is not None and latest.generation == state.generation:
        return phase == "starting"
    return phase in STARTING_PHASES


def shown_age_ms(state: PipelineState, now_ms: int) -> int | None:
    """How old the last progress is, by the clocks on the walls; None before the first. For
    displays: the two clocks may differ.
    """
    last_ms = max(state.confirmed_ms, state.latest.completed_ms if state.latest else 0)
    return max(0, now_ms - last_ms) if last_ms else None


def pipeline_health(rhythm: ProgressPolicy, signs: PipelineSignals) -> JobHealth:
    """The health of one pipeline of a running job. One that has ended is not judged here."""
    if signs.state.status not in (PipelineStatus.CREATED, PipelineStatus.RUNNING):
        return JobHealth()
    starting = is_starting(signs.state, signs.metrics)
    grace_ms = rhythm.start_ms if starting else 0
    silent = rhythm.level(signs.silent_ms, grace_ms)
    slow = (
        rhythm.level(signs.age_ms, grace_ms)
        if rhythm.interval_ms is not None or starting
        else CheckpointHealth.OK
    )
    if silent is not CheckpointHealth.OK and SEVERITY[silent] >= SEVERITY[slow]:
        return JobHealth(silent, _silence(signs))
    return (
        JobHealth(slow, _reason(signs, starting))
        if slow is not CheckpointHealth.OK
        else JobHealth()
    )


def health_of(
    env: JobEnv,
    settings: CheckpointSettings,
    pipelines: Sequence[PipelineState],
    metrics: Mapping[int, PipelineMetrics],
    ages: Mapping[int, int],
    silences: Mapping[int, int] = MappingProxyType({}),
    *,
    seen: bool = True,
    start_ms: int = START_MS,
) -> JobHealth:
    """The health of a job, from its records and, by pipeline: how long its `mark` has been the
    same, and how long its figures have not been written.
    """
    signs = [
        PipelineSignals(
            state=p,
            metrics=metrics.get(p.pipeline),
            age_ms=ages.get(p.pipeline, 0),
            silent_ms=silences.get(p.pipeline, 0),
            seen=seen,
        )
        for p in pipelines
    ]
    return job_health(ProgressPolicy.of(env, settings, start_ms), signs)


def job_health(rhythm: ProgressPolicy, pipelines: Sequence[PipelineSignals]) -> JobHealth:
    """The worst of its pipelines; of equal ones the first.

    Those that wait for their turn are not judged.
    """
    running = sum(s.state.status is PipelineStatus.RUNNING for s in pipelines)
    queued = rhythm.concurrency is not None and running >= rhythm.concurrency
    judged = [s for s in pipelines if not (queued and s.state.status is PipelineStatus.CREATED)]
    found = [(signs, pipeline_health(rhythm, signs)) for signs in judged]
    signs, worst = max(found, key=lambda pair: SEVERITY[pair[1].level], default=(None, JobHealth()))
    if signs is None or len(pipelines) == 1 or worst.level is CheckpointHealth.OK:
        return worst
    return JobHealth(worst.level, f"pipeline {signs.state.pipeline}: {worst.reason}")


def explained(health: JobHealth, held_up: str) -> JobHealth:
    """The same health with what the driver's host says of its process, which is the better reason
    where it says something.
    """
    if health.level is CheckpointHealth.OK or not held_up:
        return health
    return JobHealth(health.level, f"{Stall.DRIVER_HELD_UP}: {held_up}")


SEVERITY = {CheckpointHealth.OK: 0, CheckpointHealth.LATE: 1, CheckpointHealth.STALLED: 2}


def _phase(state: PipelineState, metrics: PipelineMetrics | None) -> str:
    return metrics.phase if metrics is not None and metrics.generation == state.generation else ""


def _silence(signs: PipelineSignals) -> str:
    if signs.seen:
        return (
            f"{Stall.STORE_UNREACHABLE}: the driver's process is there, but nothing of it reaches"
            " the store"
        )
    return f"{Stall.DRIVER_GONE}: it gives no sign of life, and no worker sees it"


def _reason(signs: PipelineSignals, starting: bool) -> str:
    """In words: what it is, where it is, and the last error if there was one."""
    state = signs.state
    error = f"; last error: {state.error.message}" if state.error else ""
    if starting:
        waits_for = (
            signs.metrics.waits_for if _phase(state, signs.metrics) and signs.metrics else ""
        )
        return f"{Stall.STARTING}: {waits_for or 'the pipeline is not up yet'}{error}"
    stall, what = BY_PHASE.get(
        _phase(state, signs.metrics), (Stall.NO_TRIGGER, "the loop begins no batch")
    )
    batch = f"checkpoint {state.pending.checkpoint}: " if state.pending else ""
    waits_for = (
        signs.metrics.waits_for
        if signs.metrics is not None and _phase(state, signs.metrics)
        else ""
    )
    if waits_for:
        return f"{Stall.STORE_UNREACHABLE}: {batch}{waits_for}"
    return f"{stall}: {batch}{what}{error}"
