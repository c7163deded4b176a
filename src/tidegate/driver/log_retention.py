"""Monitors how long the sources keep the log that the oldest restore point needs. Caller: main.

The answers become part of the pipeline's metrics. The monitor queries source instances of its own
in a thread of its own, so it does not disturb a source that reads, and a server that does not
answer delays no batch. If no source of a job can lose its log, the thread ends at once. A failed
query is logged and keeps the last known answer.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.clock import Clock
from tidegate.model.document import from_document
from tidegate.model.engine import DriverSpec
from tidegate.model.log_retention import LogRetentionMetric, RetentionLevel
from tidegate.model.plan import PipelinePlan
from tidegate.model.records import PIPELINES, JobRecord, PipelineState
from tidegate.pipeline.graph import build
from tidegate.pipeline.ledger import pipeline_key
from tidegate.pipeline.progress import PipelineProgress
from tidegate.plugin.contract import LogRetention, Offset, Source
from tidegate.store.base import Store

LOG = logging.getLogger("tidegate.driver")
LEVEL_EVENTS = {
    RetentionLevel.LOW: "log_retention_low",
    RetentionLevel.GONE: "log_retention_lost",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchedPipeline:
    """A pipeline with sources whose log is deleted after some time."""

    plan: PipelinePlan
    sources: Mapping[str, Source]
    progress: PipelineProgress


@dataclass(frozen=True, slots=True)
class RetainedPoint:
    """A restore point and its source offsets."""

    checkpoint: int
    offsets: Mapping[str, Offset]


class LogRetentionMonitor:
    def __init__(
        self, store: Store, storage: CheckpointStorage, spec: DriverSpec, clock: Clock
    ) -> None:
        self.store = store
        self.storage = storage
        self.spec = spec
        self.clock = clock
        self.pipelines: list[WatchedPipeline] = []
        # the oldest checkpoint of each pipeline, as read from this path
        self._points: dict[int, tuple[str, RetainedPoint]] = {}
        self._ended = threading.Event()

    def start(self, job: JobRecord, progress: Sequence[PipelineProgress]) -> None:
        threading.Thread(
            target=self._run, args=(job, progress), name="log-retention", daemon=True
        ).start()

    def find(self, job: JobRecord, pipelines: Sequence[PipelineProgress]) -> None:
        plans = {plan.id: plan for plan in job.plan.pipelines}
        for progress in pipelines:
            plan = plans[progress.read().pipeline]
            sources = {
                name: source
                for name, source in build(job, plan).sources.items()
                if type(source).log_retention is not Source.log_retention
            }
            if sources:
                self.pipelines.append(
                    WatchedPipeline(plan=plan, sources=sources, progress=progress)
                )

    def stop(self) -> None:
        """End after the current query. Does not wait for a source that does not answer."""
        self._ended.set()

    def _run(self, job: JobRecord, progress: Sequence[PipelineProgress]) -> None:
        try:
            self.find(job, progress)
        except Exception:  # the batch loops meet the same error and handle it
            LOG.exception("log_retention_monitor_failed", extra={"job_id": job.job_id})
        interval_s = self.spec.log_retention_interval_ms / 1000
        while self.pipelines and not self.clock.wait(self._ended, interval_s):
            for watched in self.pipelines:
                self.step(watched)

    def step(self, watched: WatchedPipeline) -> None:
        """Query the sources of one pipeline, and log a warning when a level becomes worse."""
        try:
            point = self._oldest(watched.plan.id)
        except Exception as error:  # of the store or the storage; the batch loop reports outages
            LOG.info(
                "log_retention_skipped",
                extra={
                    "job_id": self.spec.job_id,
                    "pipeline": watched.plan.id,
                    "why": f"{type(error).__name__}: {error}",
                },
            )
            return
        metrics = [
            metric
            for name, source in watched.sources.items()
            if name in point.offsets and (metric := self._query(watched, name, source, point))
        ]
        before = {metric.source: metric.level for metric in watched.progress.read().log_retention}
        for metric in metrics:
            if metric.level in LEVEL_EVENTS and before.get(metric.source) is not metric.level:
                fields = {
                    "job_id": self.spec.job_id,
                    "pipeline": watched.plan.id,
                    "generation": self.spec.generation,
                }
                LOG.warning(LEVEL_EVENTS[metric.level], extra={**fields, "why": metric.describe()})
        watched.progress.set_log_retention(metrics)

    def _query(
        self, watched: WatchedPipeline, name: str, source: Source, point: RetainedPoint
    ) -> LogRetentionMetric | None:
        try:
            retention = source.log_retention(point.offsets[name])
        except Exception as error:  # an unreachable source keeps its last known answer
            LOG.info(
                "log_retention_query_failed",
                extra={
                    "job_id": self.spec.job_id,
                    "pipeline": watched.plan.id,
                    "why": f"{name}: {type(error).__name__}: {error}",
                },
            )
            known = watched.progress.read().log_retention
            return next((metric for metric in known if metric.source == name), None)
        return LogRetentionMetric(
            source=name,
            level=self._level(retention),
            checkpoint=point.checkpoint,
            reason=retention.reason,
            seconds_left=retention.seconds_left,
            bytes_left=retention.bytes_left,
            at_ms=self.clock.now_ms(),
        )

    def _level(self, retention: LogRetention) -> RetentionLevel:
        if not retention.held:
            return RetentionLevel.GONE
        few = (
            retention.seconds_left is not None
            and retention.seconds_left * 1000 < self.spec.log_retention_warning_ms
        )
        return RetentionLevel.LOW if retention.low or few else RetentionLevel.OK

    def _oldest(self, pipeline: int) -> RetainedPoint:
        """Return the oldest retained checkpoint, or the initial offsets if there is none."""
        key = pipeline_key(self.spec.job_id, pipeline)
        entry = self.store.get(PIPELINES, key)
        state = from_document(PipelineState, entry.value, f"pipeline {key}") if entry else None
        if state is None or not state.retained:
            return RetainedPoint(0, (state.initial if state else None) or {})
        oldest = state.retained[0]
        path, point = self._points.get(pipeline, ("", None))
        if point is None or path != oldest.path:
            states = self.storage.read(oldest.path).states
            point = RetainedPoint(
                oldest.checkpoint,
                {
                    name: kept["offset"]
                    for name, kept in states.items()
                    if isinstance(kept, Mapping) and "offset" in kept
                },
            )
            self._points[pipeline] = oldest.path, point
        return point
