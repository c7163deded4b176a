"""Detects that the job led by this process makes no progress.

Called by the supervisor of `tidegate run`; servers have the reconciler for that. A job without an
interval is a single batch of any length: nothing is checked. The driver is a child process, so a
lack of heartbeats says nothing either.
"""

from tidegate.clock import Clock
from tidegate.coordinator.job_snapshot import JobSnapshot
from tidegate.lifecycle.health import (
    ProgressMarker,
    ProgressPolicy,
    explain,
    health_of,
    progress_marker,
)
from tidegate.lifecycle.observation import JobHealth
from tidegate.model.document import from_document
from tidegate.model.engine import CheckpointSettings
from tidegate.model.records import METRICS, CheckpointHealth, PipelineMetrics
from tidegate.runner.process import blocked_reason
from tidegate.store.base import Store

CHECK_EVERY_S = 1.0


class StallDetector:
    """Measures how long each pipeline has made no progress, on this process's monotonic clock."""

    def __init__(self, store: Store, settings: CheckpointSettings, clock: Clock) -> None:
        self.store = store
        self.settings = settings
        self.clock = clock
        self._marks: dict[int, tuple[ProgressMarker, float]] = {}
        self._health = JobHealth()
        self._next_s = float("-inf")

    def begin(self) -> None:
        """Reset the timers for a new driver."""
        self._marks = {}
        self._health = JobHealth()
        self._next_s = float("-inf")

    def check(self, snapshot: JobSnapshot) -> JobHealth:
        """Return the health of the job; computed once a second."""
        now_s = self.clock.monotonic_s()
        if (
            snapshot.record is None
            or ProgressPolicy.of(snapshot.record.value.plan.env, self.settings).interval_ms is None
        ):
            return JobHealth()
        if now_s >= self._next_s:
            self._next_s = now_s + CHECK_EVERY_S
            self._health = self._check(snapshot, now_s)
        return self._health

    def _check(self, snapshot: JobSnapshot, now_s: float) -> JobHealth:
        assert snapshot.record is not None
        found = [
            from_document(PipelineMetrics, entry.value)
            for entry in self.store.list(METRICS, f"{snapshot.job_id}/")
        ]
        metrics = {m.pipeline: m for m in found}
        pipelines = [p.value for p in snapshot.pipelines]
        for pipeline in pipelines:
            now = progress_marker(pipeline, metrics.get(pipeline.pipeline))
            before = self._marks.get(pipeline.pipeline)
            if before is None or before[0] != now:
                self._marks[pipeline.pipeline] = (now, now_s)
        ages = {
            number: round((now_s - since_s) * 1000) for number, (_, since_s) in self._marks.items()
        }
        health = health_of(snapshot.record.value.plan.env, self.settings, pipelines, metrics, ages)
        return explain(
            health,
            (
                blocked_reason(snapshot.driver.value.process)
                if snapshot.driver and health.level is not CheckpointHealth.OK
                else ""
            ),
        )
