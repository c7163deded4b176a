"""The loop of one pipeline: plan, begin, write, commit, publish, complete (see the package). Called by driver, one thread for each pipeline.

It must not know Spark, nor which connectors there are. A crash between any two lines is repaired by `open` of the next generation.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate import __version__
from tidegate.checkpoints.manifest import Damaged, Manifest
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.failpoint import failpoint
from tidegate.model.errors import TerminalError
from tidegate.model.records import CheckpointRef, JobRecord, PendingBatch, PipelineState, PipelineStatus, SourceRange
from tidegate.pipeline.admission import Pace
from tidegate.pipeline.clock import Clock
from tidegate.pipeline.engine import Batch, Engine, Written
from tidegate.pipeline.graph import Graph
from tidegate.pipeline.ledger import Ledger
from tidegate.pipeline.meter import Meter
from tidegate.plugin.contract import Commit, Committer, Offset, Resume

IDLE_PAUSE_S_MIN = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """What a loop works with. `stop` asks it to end at the next checkpoint."""

    job: JobRecord
    storage: CheckpointStorage
    engine: Engine
    clock: Clock
    stop: threading.Event
    retained_max: int
    interval_s: float


class Loop:
    """One attempt at running a pipeline, from its restore point until it ends or fails."""

    def __init__(self, around: Surroundings, graph: Graph, ledger: Ledger, meter: Meter) -> None:
        self.around, self.graph, self.ledger, self.meter = around, graph, ledger, meter
        self.pace = Pace.of(around.job.plan.env, around.interval_s)
        self.bounded = all(source.bounded for source in graph.sources.values())
        self.scale = 1.0
        self.offsets: dict[str, Offset] = {}
        self.kept: dict[int, Mapping[str, Offset]] = {}  # offsets of the retained checkpoints, for release
        self.deleted: list[str] = []
        self.committers: dict[str, Committer] = {}
        self.ready: list[str] = []

    def run(self) -> PipelineStatus:
        """Until all sources are ready to close (FINISHED) or a stop is wanted (CANCELED)."""
        self._open()
        try:
            status = self._turns()
        finally:
            for committer in self.committers.values():
                committer.close()
        self.ledger.end(status)  # last: until then a successor opens the sinks again, and finishes what they left
        return status

    def _turns(self) -> PipelineStatus:
        clock = self.around.clock
        while True:
            if self.around.stop.is_set() and self.ledger.state.pending is None:
                return PipelineStatus.CANCELED
            began_s = clock.monotonic_s()
            pending = self.ledger.state.pending or self._plan()
            if pending is not None:
                self._batch(pending)
                self.scale = self.pace.rescaled(self.scale, clock.monotonic_s() - began_s)
            else:
                self.ready = self._ready()
            if self.bounded and self.ready == sorted(self.graph.sources):
                return self._finish()
            if pending is None:
                self.ledger.confirm()
                self.meter.phase("idle")
            pause_s = self.pace.pause_s(clock.monotonic_s() - began_s)
            clock.wait(self.around.stop, pause_s if pending else max(pause_s, IDLE_PAUSE_S_MIN))

    def _open(self) -> None:
        """Take up the place that the store and the last checkpoint tell; sinks undo or finish what is newer."""
        self.meter.phase("restoring")
        state = self.ledger.load()
        states = self._recall(state)
        self._start(self.kept[state.latest.checkpoint] if state.latest else None)
        self.around.storage.sweep(state.job_id, state.pipeline, {ref.path for ref in state.retained}, self.ledger.generation)
        for name, sink in self.graph.sinks.items():
            committer = sink.committer()
            committer.open(
                Resume(
                    lineage=state.lineage,
                    generation=self.ledger.generation,
                    checkpoint=state.latest.checkpoint if state.latest else 0,
                    pending=state.pending.checkpoint if state.pending else None,
                    state=states.get(name, {}).get("state"),
                )
            )
            self.committers[name] = committer
        self.meter.restored(self.ledger.state)
        self._measure()

    def _recall(self, state: PipelineState) -> Mapping[str, Any]:
        """The states of the latest checkpoint, which must be sound; of older ones only the offsets, where they can be read."""
        states: Mapping[str, Any] = {}
        for ref in state.retained:
            try:
                states = self.around.storage.read(ref.path).states
            except Damaged:
                if ref == state.latest:
                    raise
                continue
            self.kept[ref.checkpoint] = {name: states[name]["offset"] for name in self.graph.sources if name in states}
        return states

    def _start(self, restored: Mapping[str, Offset] | None) -> None:
        """The offsets to go on from: the checkpoint's, else where the source began, else where it says that it begins."""

        def initial() -> dict[str, Offset]:
            return {name: source.initial() for name, source in self.graph.sources.items()}

        self.ledger.start(initial)
        begun = self.ledger.state.initial or {}
        known = {**begun, **(restored or {})}
        self.offsets = {name: known[name] if name in known else source.initial() for name, source in self.graph.sources.items()}

    def _plan(self) -> PendingBatch | None:
        """The next range of every source, recorded; None where there is nothing new."""
        self.meter.phase("planning")
        ranges = {}
        for name, source in self.graph.sources.items():
            readers = self.graph.nodes[name].action.parallelism
            ranges[name] = SourceRange(self.offsets[name], source.latest(self.offsets[name], self.pace.limit(self.scale, readers)))
        if all(r.start == r.end for r in ranges.values()):
            return None
        return self.ledger.begin(ranges)

    def _batch(self, pending: PendingBatch) -> None:
        """Write, commit, publish, complete. Every step can be repeated by a successor."""
        self.meter.batch(pending.checkpoint)
        batch = Batch(
            lineage=self.ledger.state.lineage,
            pipeline=self.ledger.pipeline,
            checkpoint=pending.checkpoint,
            generation=self.ledger.generation,
            ranges=pending.ranges,
        )
        failpoint("batch.write.before")
        written = self.around.engine.run(self.graph, batch)
        failpoint("batch.write.after")
        self.meter.written(written)
        self.ledger.load()  # overtaken while writing: Fenced before anything is made visible
        self._commit(batch, written)
        self.ledger.load()
        self.offsets = {**self.offsets, **{name: r.end for name, r in pending.ranges.items() if name in self.offsets}}
        ref = self._publish(pending, written)
        self.kept[pending.checkpoint] = self.offsets
        self.ready = self._ready()
        try:
            self.ledger.complete(ref, self.ready, self.around.retained_max, self.deleted)
        except TerminalError:  # Fenced, or the job has ended without us
            if self.ledger.nobody_needs(ref):
                self.around.storage.delete(ref.path, self.ledger.generation)
            raise
        self.meter.completed(self.ledger.state)
        self._measure()
        self._tidy()

    def _commit(self, batch: Batch, written: Written) -> None:
        self.meter.phase("committing")
        offsets = {name: {"start": r.start, "end": r.end} for name, r in batch.ranges.items()}
        failpoint("batch.commit.before")
        for name, committer in self.committers.items():
            committer.commit(
                Commit(
                    lineage=batch.lineage,
                    pipeline=batch.pipeline,
                    checkpoint=batch.checkpoint,
                    generation=batch.generation,
                    offsets=offsets,
                    messages=written.messages[name],
                )
            )
            failpoint("batch.commit.middle")
        failpoint("batch.commit.after")

    def _publish(self, pending: PendingBatch, written: Written) -> CheckpointRef:
        self.meter.phase("publishing")
        state = self.ledger.state
        rows_read, rows_written = sum(written.rows_read.values()), written.rows_written()
        states: dict[str, object] = {name: {"offset": offset} for name, offset in self.offsets.items()}
        states |= {name: {"state": committer.state()} for name, committer in self.committers.items()}
        manifest = Manifest(
            job_id=state.job_id,
            pipeline=state.pipeline,
            checkpoint=pending.checkpoint,
            lineage=state.lineage,
            generation=self.ledger.generation,
            begun_ms=pending.begun_ms,
            rows_read=rows_read,
            rows_written=rows_written,
            software=__version__,
            files={},
        )
        published = self.around.storage.publish(manifest, states)
        return CheckpointRef(
            checkpoint=pending.checkpoint,
            path=published.path,
            generation=self.ledger.generation,
            begun_ms=pending.begun_ms,
            completed_ms=self.around.clock.now_ms(),
            bytes=published.bytes,
            rows_read=rows_read,
            rows_written=rows_written,
        )

    def _tidy(self) -> None:
        """Delete what is doomed, let sinks and sources forget what no restore point needs. All of it is done again if it was not done."""
        state = self.ledger.state
        for ref in state.doomed:
            self.around.storage.delete(ref.path, self.ledger.generation)
        self.deleted = [ref.path for ref in state.doomed]
        oldest = state.retained[0].checkpoint
        for checkpoint in [c for c in self.kept if c < oldest]:
            del self.kept[checkpoint]
        for committer in self.committers.values():
            committer.retain(oldest)
        for name, source in self.graph.sources.items():
            if name in self.kept.get(oldest, {}):
                source.release(self.kept[oldest][name])

    def _ready(self) -> list[str]:
        """The sources that have nothing more to read after the current offsets: derived, so a lost set costs nothing."""
        return sorted(name for name, source in self.graph.sources.items() if source.bounded and source.at_end(self.offsets[name]))

    def _finish(self) -> PipelineStatus:
        """All sources are ready to close: the sinks agree, then the completed point and FINISHED at once."""
        self.meter.phase("finishing")
        failpoint("batch.finish.before")
        for committer in self.committers.values():
            committer.finish()
        failpoint("batch.finish.after")
        return PipelineStatus.FINISHED

    def _measure(self) -> None:
        """Tell the display how far the sources are."""
        known = [p for name, source in self.graph.sources.items() if (p := source.progress(self.offsets[name])) is not None]
        if self.bounded and known and len({p.unit for p in known}) == 1:
            self.meter.progress(sum(p.done for p in known), sum(p.total for p in known), known[0].unit)
