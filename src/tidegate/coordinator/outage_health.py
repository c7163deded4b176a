"""Displayed health of jobs while it cannot be written to the store.

The store is out of reach, full or read-only, or a document of the job is damaged. Otherwise the
leader decides about health, and displays read it from the store. During an outage nobody leads, and
the last stored value says OK forever. So every server applies the same rule (lifecycle/health.py)
to its memory: for how long it has seen no checkpoint and no heartbeat of a job. Writes nothing, and
takes no action. Called by the loop that refreshes the cluster cache.
"""

from tidegate.clock import Clock
from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.lifecycle.health import SEVERITY, ProgressPolicy, StallCause, health_of
from tidegate.lifecycle.observation import JobHealth
from tidegate.model.engine import EngineSettings
from tidegate.model.records import CheckpointHealth, JobState, JobStatus

CHECKED_STATUSES = (JobStatus.RUNNING, JobStatus.DOING_SAVEPOINT)
EVERY_S = 1.0  # there may be thousands of jobs
JOBS_NAMED_MAX = 5


class OutageHealth:
    """Checks all running jobs while there is a reason to."""

    def __init__(self, cache: ClusterCache, settings: EngineSettings, clock: Clock) -> None:
        self.cache = cache
        self.settings = settings
        self.clock = clock
        self._checked_s = float("-inf")
        self._since_s: float | None = None  # when the trouble began

    def step(self, trouble: str) -> None:
        """Run one check; `trouble` is why the store cannot be used, empty if it can."""
        damaged = self.cache.damaged_jobs()
        if not trouble:
            self._since_s = None
        elif self._since_s is None:
            self._since_s = self.clock.monotonic_s()
        if not trouble and not damaged:
            self._checked_s = float("-inf")
            self.cache.set_displayed_health({})
            return
        if self.clock.monotonic_s() - self._checked_s < EVERY_S:
            return
        self._checked_s = self.clock.monotonic_s()
        found = {
            job_id: self._health(job_id, trouble)
            for job_id in (self.cache.jobs() if trouble else damaged)
        }
        self.cache.set_displayed_health(
            {job_id: health for job_id, health in found.items() if health is not None}
        )

    def _health(self, job_id: int, trouble: str) -> JobHealth | None:
        """Return what to display instead of the stored health.

        None if that is as bad, or the job does not run.
        """
        record, stored = self.cache.jobs().get(job_id), self.cache.state(job_id)
        if record is None or stored is None or stored.value.status.terminal:
            return None
        damage = self.cache.damage(job_id)
        if damage:
            return JobHealth(CheckpointHealth.STALLED, damage)
        if stored.value.status not in CHECKED_STATUSES:
            return None
        now_s = self.clock.monotonic_s()
        pipelines, metrics = self.cache.pipelines(job_id), self.cache.metrics(job_id)
        level = health_of(
            record.value.plan.env,
            self.settings.checkpoint,
            tuple(p.value for p in pipelines),
            {m.value.pipeline: m.value for m in metrics},
            {p.value.pipeline: round((now_s - p.since_s) * 1000) for p in pipelines},
            {m.value.pipeline: round((now_s - m.since_s) * 1000) for m in metrics},
            start_ms=self.settings.coordinator.start_timeout_ms,
        ).level
        if self._since_s is not None:
            # No start can make progress without the store: its extra window does not apply.
            rhythm = ProgressPolicy.of(record.value.plan.env, self.settings.checkpoint)
            outage_level = rhythm.level(round((now_s - self._since_s) * 1000))
            level = max(level, outage_level, key=SEVERITY.__getitem__)
        if level is CheckpointHealth.OK or SEVERITY[level] < SEVERITY[stored.value.health]:
            return None
        return JobHealth(level, f"{StallCause.STORE_UNREACHABLE}: {trouble}")


def describe_jobs(cache: ClusterCache) -> str:
    """Describe the running jobs as last seen, for a response that has room for one sentence."""
    states = [
        state
        for job_id in cache.jobs()
        if (state := cache.displayed_state(job_id)) is not None and not state.status.terminal
    ]
    if not states:
        return ""
    states.sort(key=lambda state: (-SEVERITY[state.health], state.job_id))
    named = ", ".join(_word(state) for state in states[:JOBS_NAMED_MAX])
    more = f" and {len(states) - JOBS_NAMED_MAX} more" if len(states) > JOBS_NAMED_MAX else ""
    return f"As last seen: {named}{more}"


def _word(state: JobState) -> str:
    level = "" if state.health is CheckpointHealth.OK else f" and {state.health.value}"
    return f"job {state.job_id} is {state.status.value}{level}"
