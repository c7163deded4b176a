"""Asks the sources, now and then, how long they will hold what the oldest restore point needs, and
keeps the answers with the figures. Caller: main.

It asks instances of its own, in a thread of its own: a source that reads is not disturbed, and a
server that does not answer delays no batch. Where no source of a job can lose anything, the thread
ends at once. A source that does not say is told in the log, and nothing is claimed about it.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.clock import Clock
from tidegate.model.document import from_document
from tidegate.model.engine import DriverSpec
from tidegate.model.log_retention import LogRetentionMetric, RunwayLevel
from tidegate.model.plan import PipelinePlan
from tidegate.model.records import PIPELINES, JobRecord, PipelineState
from tidegate.pipeline.graph import build
from tidegate.pipeline.ledger import pipeline_key
from tidegate.pipeline.progress import PipelineProgress
from tidegate.plugin.contract import LogRetention, Offset, Source
from tidegate.store.base import Store

LOG = logging.getLogger("tidegate.driver")
WARN = {RunwayLevel.LOW: "runway low", RunwayLevel.GONE: "runway gone"}


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchedPipeline:
    """A pipeline with sources that may lose something."""

    plan: PipelinePlan
    sources: Mapping[str, Source]
    progress: PipelineProgress


@dataclass(frozen=True, slots=True)
class Point:
    """A restore point, with the positions in it."""

    checkpoint: int
    offsets: Mapping[str, Offset]


class LogRetentionMonitor:
    def __init__(
        self, store: Store, storage: CheckpointStorage, order: DriverSpec, clock: Clock
    ) -> None:
        self.store = store
        self.storage = storage
        self.order = order
        self.clock = clock
        self.lanes: list[WatchedPipeline] = []
        self._points: dict[
            int, tuple[str, Point]
        ] = {}  # what was read of each pipeline's oldest checkpoint, by its path
        self._ended = threading.Event()

    def start(self, job: JobRecord, progress: Sequence[PipelineProgress]) -> None:
        threading.Thread(target=self._run, args=(job, progress), name="runway", daemon=True).start()

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
                self.lanes.append(WatchedPipeline(plan=plan, sources=sources, progress=progress))

    def stop(self) -> None:
        """Ask no more. A source that does not answer is not waited for."""
        self._ended.set()

    def _run(self, job: JobRecord, progress: Sequence[PipelineProgress]) -> None:
        try:
            self.find(job, progress)
        except Exception:  # the loops meet the same error, and deal with it
            LOG.exception("nobody is asked for the runway", extra={"job_id": job.job_id})
        while self.lanes and not self.clock.wait(self._ended, self.order.runway_interval_ms / 1000):
            for lane in self.lanes:
                self.step(lane)

    def step(self, lane: WatchedPipeline) -> None:
        """Ask the sources of one pipeline."""
        try:
            point = self._oldest(lane.plan.id)
        except Exception as error:  # the store, the storage: others wait for them and say so
            LOG.info(
                "runway not looked at",
                extra={
                    "job_id": self.order.job_id,
                    "pipeline": lane.plan.id,
                    "why": f"{type(error).__name__}: {error}",
                },
            )
            return
        figures = [
            figure
            for name, source in lane.sources.items()
            if name in point.offsets and (figure := self._ask(lane, name, source, point))
        ]
        before = {figure.source: figure.level for figure in lane.progress.read().log_retention}
        for figure in figures:
            if figure.level in WARN and before.get(figure.source) is not figure.level:
                facts = {
                    "job_id": self.order.job_id,
                    "pipeline": lane.plan.id,
                    "generation": self.order.generation,
                }
                LOG.warning(WARN[figure.level], extra={**facts, "why": figure.words()})
        lane.progress.log_retention(figures)

    def _ask(
        self, lane: WatchedPipeline, name: str, source: Source, point: Point
    ) -> LogRetentionMetric | None:
        try:
            told = source.log_retention(point.offsets[name])
        except Exception as error:  # a source that is out of reach holds what it held
            LOG.info(
                "runway not told",
                extra={
                    "job_id": self.order.job_id,
                    "pipeline": lane.plan.id,
                    "why": f"{name}: {type(error).__name__}: {error}",
                },
            )
            return next(
                (figure for figure in lane.progress.read().log_retention if figure.source == name),
                None,
            )
        return LogRetentionMetric(
            source=name,
            level=self._level(told),
            checkpoint=point.checkpoint,
            reason=told.reason,
            seconds_left=told.seconds_left,
            bytes_left=told.bytes_left,
            at_ms=self.clock.now_ms(),
        )

    def _level(self, told: LogRetention) -> RunwayLevel:
        if not told.held:
            return RunwayLevel.GONE
        few = (
            told.seconds_left is not None
            and told.seconds_left * 1000 < self.order.runway_warning_ms
        )
        return RunwayLevel.LOW if told.low or few else RunwayLevel.OK

    def _oldest(self, pipeline: int) -> Point:
        """The oldest retained checkpoint; where there is none, the beginning."""
        key = pipeline_key(self.order.job_id, pipeline)
        entry = self.store.get(PIPELINES, key)
        state = from_document(PipelineState, entry.value, f"pipeline {key}") if entry else None
        if state is None or not state.retained:
            return Point(0, (state.initial if state else None) or {})
        oldest = state.retained[0]
        path, point = self._points.get(pipeline, ("", None))
        if point is None or path != oldest.path:
            states = self.storage.read(oldest.path).states
            point = Point(
                oldest.checkpoint,
                {
                    name: kept["offset"]
                    for name, kept in states.items()
                    if isinstance(kept, Mapping) and "offset" in kept
                },
            )
            self._points[pipeline] = oldest.path, point
        return point
