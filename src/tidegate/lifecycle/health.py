"""Whether a RUNNING job makes progress: OK, LATE, STALLED, and why.

Pure; the observer measures the ages and keeps them. Progress is a completed checkpoint, or the
confirmation that there is nothing to read. A pipeline is LATE when it has made none for one
interval and one timeout, STALLED after the window: max(interval, timeout) x (tolerable failures +
2). While it starts or restores, the start window is added; when it has started, its age restarts at
zero. A job without an interval is a single batch of any length: only the driver's heartbeats count.

There are two clocks and one function. Decisions use ages on the leader's monotonic clock (an age
restarts when the `ProgressMarker` changes); displays may use the wall clock (`displayed_age_ms`).
Reasons contain no ages, so that an unchanged state has an unchanged reason.
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


class StallCause(StrEnum):
    """What blocks a pipeline, as far as it can be observed from outside."""

    NO_TRIGGER = "no trigger"  # no next batch is begun
    BATCH_TOO_LONG = "batch too long"
    SINK_BLOCKED = "sink blocked"
    SOURCE_UNREACHABLE = "source unreachable"
    STORE_UNREACHABLE = "store unreachable"
    DRIVER_GONE = "driver gone"
    DRIVER_BLOCKED = "driver blocked"
    STARTING = "starting"
    ATTEMPTS_FAIL = "attempts fail"


# The cause of a stall by the phase of the batch loop, with a description.
BY_PHASE = {
    "planning": (StallCause.SOURCE_UNREACHABLE, "the source has not reported what to read"),
    "writing": (StallCause.BATCH_TOO_LONG, "its rows are being read and staged"),
    "committing": (StallCause.SINK_BLOCKED, "the sink has not committed"),
    "finishing": (StallCause.SINK_BLOCKED, "the sink has not closed"),
    "publishing": (StallCause.STORE_UNREACHABLE, "the checkpoint storage has not stored it"),
    "retrying": (StallCause.ATTEMPTS_FAIL, "every attempt has failed"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgressPolicy:
    """How often a job is expected to make progress."""

    interval_ms: int | None  # None: a single batch
    timeout_ms: int
    tolerable_failures: int = 0
    start_ms: int = START_MS
    concurrency: int | None = None  # pipelines that run at the same time; None: all

    @staticmethod
    def of(env: JobEnv, settings: CheckpointSettings, start_ms: int = START_MS) -> "ProgressPolicy":
        """Build the policy from the job's own values, else the engine's.

        A BATCH job has an interval only if its file gives one.
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
        """The age after which a pipeline is LATE: one interval and one checkpoint timeout."""
        return (self.interval_ms or 0) + self.timeout_ms

    @property
    def window_ms(self) -> int:
        """The age after which a pipeline is STALLED; never shorter than `late_ms`."""
        return max(self.interval_ms or 0, self.timeout_ms) * (self.tolerable_failures + 2)

    def level(self, age_ms: int, grace_ms: int = 0) -> CheckpointHealth:
        """Return the health level of an age: one rule for decisions and displays."""
        if age_ms > self.window_ms + grace_ms:
            return CheckpointHealth.STALLED
        return CheckpointHealth.LATE if age_ms > self.late_ms + grace_ms else CheckpointHealth.OK


class ProgressMarker(NamedTuple):  # one is created and compared in each check of a pipeline
    """The facts that change with progress.

    The age of a pipeline's progress restarts whenever its marker changes.
    """

    generation: int
    status: PipelineStatus
    starting: bool
    checkpoints: int
    confirmed_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineSignals:
    """One pipeline as observed from outside."""

    state: PipelineState
    metrics: PipelineMetrics | None = None
    age_ms: int = 0  # since its ProgressMarker changed
    silent_ms: int = 0  # since its metrics were last written
    observed: bool = True  # whether a live worker supervises the driver's process


def progress_marker(state: PipelineState, metrics: PipelineMetrics | None) -> ProgressMarker:
    """Return the current marker of a pipeline."""
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
    one, only an explicit "starting" phase (a batch that waits for executors) counts.
    """
    if state.status is PipelineStatus.CREATED:
        return True
    phase = _phase(state, metrics)
    latest = state.latest
    if latest is not None and latest.generation == state.generation:
        return phase == "starting"
    return phase in STARTING_PHASES


def displayed_age_ms(state: PipelineState, now_ms: int) -> int | None:
    """Return the age of the last progress by wall clocks, for display; None before the first.

    The two hosts' clocks may differ.
    """
    last_ms = max(state.confirmed_ms, state.latest.completed_ms if state.latest else 0)
    return max(0, now_ms - last_ms) if last_ms else None


def pipeline_health(policy: ProgressPolicy, signals: PipelineSignals) -> JobHealth:
    """Return the health of one pipeline of a running job; OK for one that has ended."""
    if signals.state.status not in (PipelineStatus.CREATED, PipelineStatus.RUNNING):
        return JobHealth()
    starting = is_starting(signals.state, signals.metrics)
    grace_ms = policy.start_ms if starting else 0
    silent = policy.level(signals.silent_ms, grace_ms)
    slow = (
        policy.level(signals.age_ms, grace_ms)
        if policy.interval_ms is not None or starting
        else CheckpointHealth.OK
    )
    if silent is not CheckpointHealth.OK and SEVERITY[silent] >= SEVERITY[slow]:
        return JobHealth(silent, _silence(signals))
    return (
        JobHealth(slow, _reason(signals, starting))
        if slow is not CheckpointHealth.OK
        else JobHealth()
    )


def health_of(
    env: JobEnv,
    settings: CheckpointSettings,
    pipelines: Sequence[PipelineState],
    metrics: Mapping[int, PipelineMetrics],
    progress_ages: Mapping[int, int],
    silences: Mapping[int, int] = MappingProxyType({}),
    *,
    observed: bool = True,
    start_ms: int = START_MS,
) -> JobHealth:
    """Return the health of a job, from its records and the ages of each pipeline.

    `progress_ages`: how long its `progress_marker` is unchanged; `silences`: how long its metrics
    have not been written.
    """
    signals = [
        PipelineSignals(
            state=p,
            metrics=metrics.get(p.pipeline),
            age_ms=progress_ages.get(p.pipeline, 0),
            silent_ms=silences.get(p.pipeline, 0),
            observed=observed,
        )
        for p in pipelines
    ]
    return job_health(ProgressPolicy.of(env, settings, start_ms), signals)


def job_health(policy: ProgressPolicy, pipelines: Sequence[PipelineSignals]) -> JobHealth:
    """Return the worst health of the pipelines; among equals the first.

    Pipelines that are queued by the concurrency limit are not checked.
    """
    running = sum(s.state.status is PipelineStatus.RUNNING for s in pipelines)
    queued = policy.concurrency is not None and running >= policy.concurrency
    checked = [s for s in pipelines if not (queued and s.state.status is PipelineStatus.CREATED)]
    found = [(signs, pipeline_health(policy, signs)) for signs in checked]
    signals, worst = max(
        found, key=lambda pair: SEVERITY[pair[1].level], default=(None, JobHealth())
    )
    if signals is None or len(pipelines) == 1 or worst.level is CheckpointHealth.OK:
        return worst
    return JobHealth(worst.level, f"pipeline {signals.state.pipeline}: {worst.reason}")


def explain(health: JobHealth, blocked: str) -> JobHealth:
    """Replace the reason by the host's report about the driver process, if there is one."""
    if health.level is CheckpointHealth.OK or not blocked:
        return health
    return JobHealth(health.level, f"{StallCause.DRIVER_BLOCKED}: {blocked}")


SEVERITY = {CheckpointHealth.OK: 0, CheckpointHealth.LATE: 1, CheckpointHealth.STALLED: 2}


def _phase(state: PipelineState, metrics: PipelineMetrics | None) -> str:
    return metrics.phase if metrics is not None and metrics.generation == state.generation else ""


def _silence(signals: PipelineSignals) -> str:
    if signals.observed:
        return (
            f"{StallCause.STORE_UNREACHABLE}: the driver's process runs, but none of its writes"
            " reaches the store"
        )
    return f"{StallCause.DRIVER_GONE}: it sends no heartbeat, and no worker can see it"


def _reason(signals: PipelineSignals, starting: bool) -> str:
    """Describe the stall: cause, location, and the last error if there was one."""
    state = signals.state
    error = f"; last error: {state.error.message}" if state.error else ""
    if starting:
        waits_for = (
            signals.metrics.waits_for if _phase(state, signals.metrics) and signals.metrics else ""
        )
        return f"{StallCause.STARTING}: {waits_for or 'the pipeline has not started yet'}{error}"
    stall, what = BY_PHASE.get(
        _phase(state, signals.metrics), (StallCause.NO_TRIGGER, "the loop starts no batch")
    )
    batch = f"checkpoint {state.pending.checkpoint}: " if state.pending else ""
    waits_for = (
        signals.metrics.waits_for
        if signals.metrics is not None and _phase(state, signals.metrics)
        else ""
    )
    if waits_for:
        return f"{StallCause.STORE_UNREACHABLE}: {batch}{waits_for}"
    return f"{stall}: {batch}{what}{error}"
