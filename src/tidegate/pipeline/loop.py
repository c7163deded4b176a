"""The loop of one pipeline: plan, begin, write, commit, publish, complete (see the package). Called
by driver, one thread for each pipeline.

It must not know Spark, nor which connectors there are. A crash between any two lines is repaired by
`open` of the next generation.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tidegate import __version__
from tidegate.checkpoints.manifest import Damaged, Manifest
from tidegate.checkpoints.operator_identity import IDENTITY, identity_of
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.clock import Clock
from tidegate.failpoint import failpoint
from tidegate.model.errors import SourceUnreachable, TerminalError, TidegateError, agree_on_lineage
from tidegate.model.plan import Action
from tidegate.model.records import (
    CheckpointKind,
    CheckpointRef,
    JobRecord,
    PendingBatch,
    PipelineState,
    PipelineStatus,
    SourceRange,
)
from tidegate.pipeline.abandoned_batches import Abandoned, abandoned, in_batch
from tidegate.pipeline.engine import Batch, Engine, Written
from tidegate.pipeline.failures import failure_of
from tidegate.pipeline.graph import Graph
from tidegate.pipeline.ledger import Ledger
from tidegate.pipeline.pacing import BatchPacing
from tidegate.pipeline.progress import PipelineProgress
from tidegate.pipeline.savepoints import SavepointCoordinator
from tidegate.pipeline.sink_records import (
    LINEAGE,
    SinkLostRecord,
    appends_beside,
    awaited,
    consented_checkpoint,
    recorded_sinks,
)
from tidegate.pipeline.source_retention import retained_offsets
from tidegate.pipeline.uncheckpointed import beginning, ranges_of, to_repeat
from tidegate.plugin.contract import (
    Commit,
    CommitRange,
    Committer,
    Offset,
    ResourceRegistry,
    SinkRestore,
)

LOG = logging.getLogger("tidegate.pipeline")
IDLE_PAUSE_S_MIN = 0.05
SAVING_PAUSE_S = 1.0
UNREACHABLE_PAUSE_S_MIN = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineContext:
    """What a loop works with.

    `stop` asks it to end at the next checkpoint; `savepoints` knows whether one is wanted (None:
    nobody can ask).
    """

    job: JobRecord
    storage: CheckpointStorage
    engine: Engine
    clock: Clock
    stop: threading.Event
    retained_max: int
    interval_s: float
    savepoints: SavepointCoordinator | None = None
    books: Callable[[Action], ResourceRegistry] | None = (
        None  # where operators record what they create outside (None: nowhere)
    )
    installation: str = ""  # the id of the store


class BatchLoop:
    """One attempt at running a pipeline, from its restore point until it ends or fails."""

    def __init__(
        self, context: PipelineContext, graph: Graph, ledger: Ledger, progress: PipelineProgress
    ) -> None:
        self.context = context
        self.graph = graph
        self.ledger = ledger
        self.progress = progress
        self.pacing = BatchPacing.of(context.job.plan.env, context.interval_s)
        self.bounded = all(source.bounded for source in graph.sources.values())
        self.scale = 1.0
        self.offsets: dict[str, Offset] = {}
        self.kept: dict[
            int, Mapping[str, Offset]
        ] = {}  # offsets of the retained checkpoints, for release
        self.deleted: list[str] = []
        self.committers: dict[str, Committer] = {}
        self.uncheckpointed_commits: list[
            CommitRange
        ] = []  # batches that a sink has and the registry of checkpoints has lost
        self.abandoned: Abandoned | None = None  # the pending batch, where it is planned anew
        self.ready: list[str] = []
        self.warnings: list[str] = []

    def run(self) -> PipelineStatus:
        """Until all sources are ready to close (FINISHED) or a stop is wanted (CANCELED)."""
        self._open()
        try:
            self._resume_saving()
            self._catch_up()
            status = self._run_batches()
        finally:
            for committer in self.committers.values():
                committer.close()
        self.ledger.end(
            status
        )  # last: until then a successor opens the sinks again, and finishes what they left
        if status is PipelineStatus.FINISHED:
            self._forget()
        if self.context.savepoints is not None and status is PipelineStatus.FINISHED:
            self.context.savepoints.serve(
                self.ledger
            )  # the others may only have waited for this one
        return status

    def _forget(self) -> None:
        """Only a savepoint can bring a finished pipeline back: without one, no sink needs its
        record any more. What fails here is left where it is.
        """
        desk = self.context.savepoints
        if desk is not None and (desk.wanted is not None or desk.has_any(self.ledger.pipeline)):
            return
        for name, committer in self.committers.items():
            try:
                committer.forget()
            except TidegateError as error:
                LOG.warning(
                    "sink_record_left",
                    extra={"job_id": self.ledger.job_id, "operator": name, "why": str(error)},
                )

    def _run_batches(self) -> PipelineStatus:
        clock = self.context.clock
        while True:
            if self._pending() is None and self._stopped():
                return PipelineStatus.CANCELED
            began_s = clock.monotonic_s()
            behind: bool | None = False
            try:
                pending = self._pending() or self._plan()
                if pending is not None:
                    self._batch(pending)
            except SourceUnreachable as error:
                self._wait_for_source(error)
                continue
            if pending is not None:
                behind = self._behind()
                self.scale = self.pacing.rescaled(self.scale, clock.monotonic_s() - began_s, behind)
            else:
                self.ready = self._ready()
            if self.bounded and self.ready == sorted(self.graph.sources):
                return self._finish()
            if pending is None:
                self.ledger.confirm()
                self.progress.idle()
            pause_s = self.pacing.pause_s(clock.monotonic_s() - began_s, behind)
            self._pause(pause_s if pending else max(pause_s, IDLE_PAUSE_S_MIN))

    def _pending(self) -> PendingBatch | None:
        return self.ledger.state.pending if self.abandoned is None else None

    def _wait_for_source(self, error: SourceUnreachable) -> None:
        """A source that comes back by itself is waited for, where the pipeline has no end: nothing
        is confirmed meanwhile, so it becomes LATE with this reason.

        A stop is obeyed: a batch that was begun waits for the next start.
        """
        if self.bounded:
            raise error
        self.progress.phase("planning")
        self.ledger.unreachable(
            failure_of(
                error, self.context.clock.now_ms(), self.ledger.generation, self.ledger.pipeline
            )
        )
        self._pause(max(self.pacing.pause_s(0, None), UNREACHABLE_PAUSE_S_MIN))
        if self.context.stop.is_set() and self._pending() is not None:
            raise error

    def _stopped(self) -> bool:
        """Between two batches: give what a savepoint wants of this pipeline, and wait with it where
        the job is to end with the savepoint. Whether to end.
        """
        desk = self.context.savepoints
        while not self.context.stop.is_set():
            if desk is None:
                return False
            desk.serve(self.ledger)
            if desk.over:
                return True
            if not desk.waits(self.ledger.state):
                return False
            self.progress.phase("saving")
            self.ledger.confirm()
            self._pause(SAVING_PAUSE_S)
        return True

    def _resume_saving(self) -> None:
        """A part that was chosen and not copied is copied first: the batches to come may take the
        place of its checkpoint.
        """
        part, desk = self.ledger.state.savepoint, self.context.savepoints
        if desk is not None and part is not None and not part.copied:
            desk.serve(self.ledger)

    def _pause(self, seconds: float) -> None:
        if self.context.savepoints is None:
            self.context.clock.wait(self.context.stop, seconds)
        else:
            self.context.savepoints.wait(self.context.stop, seconds)

    def _open(self) -> None:
        """Take up the place that the store, the last checkpoint and the sinks tell; sinks undo or
        finish what is newer.

        All sinks are fenced and asked before the first one is told what becomes of the batches
        after the restore point.
        """
        self.progress.phase("restoring")
        state = self.ledger.load()
        states = self._recall(state)
        resumes = self._resumes(state, states)
        expected = recorded_sinks(state, states)
        if any(sink.on_engine for sink in self.graph.sinks.values()):
            nothing = Batch(
                lineage=state.lineage,
                pipeline=state.pipeline,
                checkpoint=0,
                generation=self.ledger.generation,
                ranges={},
            )
            self.context.engine.run(
                self.graph, nothing
            )  # waits until the engine is up, and raises what keeps it from that
        committers = {name: sink.committer() for name, sink in self.graph.sinks.items()}
        self._ask_memory(committers, resumes, expected)
        found = {
            name: committer.uncheckpointed_commits(resumes[name])
            for name, committer in committers.items()
        }
        checkpoint = state.latest.checkpoint if state.latest else 0
        self._start(
            self.kept[checkpoint] if state.latest else {}, {} if state.latest else beginning(found)
        )
        self.uncheckpointed_commits = (
            []
            if state.rewind or state.dropped_operators
            else to_repeat(checkpoint, self.offsets, found)
        )
        # Before any sink takes a row back: no checkpoint may be found again that counts it.
        self.context.storage.sweep(
            state.job_id,
            state.pipeline,
            {ref.path for ref in state.retained},
            self.ledger.generation,
            self.ledger.token,
        )
        self.abandoned = abandoned(state, self.graph, found)
        if self.abandoned is not None:
            resumes = {
                name: replace(each, pending=None, rewind=each.rewind or self.abandoned.rewind)
                for name, each in resumes.items()
            }
            self.uncheckpointed_commits = []
        for name, committer in committers.items():
            committer.open(
                replace(
                    resumes[name],
                    uncheckpointed_commits=tuple(
                        record.checkpoint for record in self.uncheckpointed_commits
                    ),
                )
            )
            self.committers[name] = committer
        self.progress.restored(self.ledger.state)
        self._measure()

    def _resumes(self, state: PipelineState, states: Mapping[str, Any]) -> dict[str, SinkRestore]:
        """Where each sink is to go on."""
        return {
            name: SinkRestore(
                lineage=state.lineage,
                generation=self.ledger.generation,
                checkpoint=state.latest.checkpoint if state.latest else 0,
                pending=state.pending.checkpoint if state.pending else None,
                state=None
                if name in state.dropped_operators
                else states.get(name, {}).get("state"),
                rewind=state.rewind,
                token=self.ledger.token,
                installation=self.context.installation,
            )
            for name in self.graph.sinks
        }

    def _ask_memory(
        self,
        committers: Mapping[str, Committer],
        resumes: Mapping[str, SinkRestore],
        expected: frozenset[str],
    ) -> None:
        """Before anything is created in a target: it must remember the checkpoint that it is to go
        on from.
        """
        consented = consented_checkpoint(self.context.job, self.ledger.pipeline)
        for name, committer in committers.items():
            must = name in expected and resumes[name].checkpoint != consented
            memory = awaited(
                partial(committer.memory, resumes[name]),
                resumes[name].checkpoint if must else 0,
                self.context.clock,
                self.context.stop,
            )
            if memory is None:
                continue
            if must and memory.checkpoint < resumes[name].checkpoint:
                raise SinkLostRecord(name, memory, resumes[name].checkpoint)
            if memory.others:
                self.warnings.append(appends_beside(memory))
                LOG.warning(
                    "target_holds_other_rows",
                    extra={
                        "job_id": self.ledger.job_id,
                        "operator": name,
                        "why": appends_beside(memory),
                    },
                )

    def _catch_up(self) -> None:
        """Repeat what the sinks have and the registry has lost, each batch under its own id.

        Asked for again by whoever comes after a crash in the middle.
        """
        pending = self.ledger.state.pending
        if pending is not None and [
            record.checkpoint for record in self.uncheckpointed_commits
        ] in (
            [],
            [pending.checkpoint],
        ):
            # as after any crash: the very same batch is repeated, and sinks refuse one with other
            # ranges
            return
        for record in self.uncheckpointed_commits:
            if self.context.stop.is_set() and self.ledger.state.pending is None:
                return
            self._batch(self.ledger.repeat(record.checkpoint, ranges_of(record)))

    def _recall(self, state: PipelineState) -> Mapping[str, Any]:
        """The states of the latest checkpoint, which must be sound; of older ones only the offsets,
        where they can be read.
        """
        states: Mapping[str, Any] = {}
        for ref in state.retained:
            try:
                checkpoint = self.context.storage.read(ref.path)
                states = checkpoint.states
            except Damaged:
                if ref == state.latest:
                    raise
                continue
            if ref == state.latest and not self.context.job.fork:  # a fork has a lineage of its own
                claims = {
                    f"pipeline {state.pipeline}": state.lineage,
                    f"its checkpoint {ref.checkpoint}": checkpoint.manifest.lineage,
                }
                agree_on_lineage(state.job_id, claims)
            self.kept[ref.checkpoint] = {
                name: states[name]["offset"] for name in self.graph.sources if name in states
            }
        return states

    def _start(self, restored: Mapping[str, Offset], begun: Mapping[str, Offset]) -> None:
        """The offsets to go on from: the checkpoint's, else where the source began (the store knows
        it, or a sink's first record), else where it begins.
        """
        known = {
            **begun,
            **{
                name: offset
                for name, offset in restored.items()
                if name not in self.ledger.state.dropped_operators
            },
        }
        asked = {
            name: partial(known.__getitem__, name) if name in known else source.initial
            for name, source in self.graph.sources.items()
        }
        self.ledger.start(asked, self.warnings)
        began = self.ledger.state.initial or {}
        self.offsets = {
            name: (
                restored[name]
                if name in restored and name not in self.ledger.state.dropped_operators
                else began[name]
            )
            for name in self.graph.sources
        }
        if restored:
            pending = self.ledger.state.pending is not None
            self.offsets = retained_offsets(
                self.graph.sources, self.offsets, self.context.job.on_not_held, pending=pending
            )

    def _plan(self) -> PendingBatch | None:
        """The next range of every source, recorded; None where there is nothing new. The first
        batch is made even if it is empty: so every pipeline has a checkpoint, and can be saved.
        Where the job is to end with a savepoint, that one reads nothing.
        """
        self.progress.phase("planning")
        desk, first = self.context.savepoints, self.ledger.state.latest is None
        hurry = first and desk is not None and desk.wanted is not None and desk.wanted.stop
        ranges = {}
        for name, source in self.graph.sources.items():
            readers, start = self.graph.nodes[name].action.parallelism, self.offsets[name]
            ranges[name] = SourceRange(
                start,
                start if hurry else source.latest(start, self.pacing.limit(self.scale, readers)),
            )
        replaces, self.abandoned = self.abandoned.pending if self.abandoned else None, None
        if first or not _empty(ranges):
            return self.ledger.begin(ranges, replaces=replaces)
        if replaces is not None:
            self.ledger.give_up()
        return None

    def _batch(self, pending: PendingBatch) -> None:
        """Write, commit, publish, complete. Every step can be repeated by a successor."""
        self.progress.batch(pending.checkpoint)
        batch = Batch(
            lineage=self.ledger.state.lineage,
            pipeline=self.ledger.pipeline,
            checkpoint=pending.checkpoint,
            generation=self.ledger.generation,
            ranges=pending.ranges,
        )
        failpoint("batch.write.before")
        try:
            written = (
                self._nothing()
                if _empty(batch.ranges)
                else self.context.engine.run(self.graph, batch)
            )
        except TidegateError as error:
            raise in_batch(error, pending.checkpoint) from error
        failpoint("batch.write.after")
        self.progress.written(written)
        self.ledger.load()  # overtaken while writing: Fenced before anything is made visible
        self._commit(batch, written)
        self.ledger.load()
        self.offsets = {
            **self.offsets,
            **{name: r.end for name, r in pending.ranges.items() if name in self.offsets},
        }
        ref = self._publish(pending, written)
        self.kept[pending.checkpoint] = self.offsets
        self.ready = self._ready()
        try:
            self.ledger.complete(ref, self.ready, self.context.retained_max, self.deleted)
        except TerminalError:  # Fenced, or the job has ended without us
            if self.ledger.nobody_needs(ref):
                self.context.storage.delete(ref.path, self.ledger.generation, self.ledger.token)
            raise
        self.progress.completed(self.ledger.state)
        self._measure()
        self._tidy()

    def _nothing(self) -> Written:
        """What the engine would say of an empty batch."""
        return Written(
            rows_read=dict.fromkeys(self.graph.sources, 0),
            messages={name: () for name in self.graph.sinks},
        )

    def _commit(self, batch: Batch, written: Written) -> None:
        self.progress.phase("committing")
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
        self.progress.phase("publishing")
        state = self.ledger.state
        rows_read, rows_written = sum(written.rows_read.values()), written.rows_written()
        identities = {name: identity_of(node.action) for name, node in self.graph.nodes.items()}
        states: dict[str, object] = {
            name: {"offset": offset, IDENTITY: identities[name]}
            for name, offset in self.offsets.items()
        }
        states |= {
            name: {"state": committer.state(), IDENTITY: identities[name], LINEAGE: state.lineage}
            for name, committer in self.committers.items()
        }
        desk = self.context.savepoints
        kind = (
            CheckpointKind.SAVEPOINT
            if desk is not None and desk.open_part(state)
            else CheckpointKind.CHECKPOINT
        )
        manifest = Manifest(
            job_id=state.job_id,
            pipeline=state.pipeline,
            checkpoint=pending.checkpoint,
            lineage=state.lineage,
            generation=self.ledger.generation,
            kind=kind,
            begun_ms=pending.begun_ms,
            rows_read=rows_read,
            rows_written=rows_written,
            software=__version__,
            files={},
            token=self.ledger.token,
        )
        published = self.context.storage.publish(manifest, states)
        return CheckpointRef(
            checkpoint=pending.checkpoint,
            path=published.path,
            kind=kind,
            generation=self.ledger.generation,
            begun_ms=pending.begun_ms,
            completed_ms=self.context.clock.now_ms(),
            bytes=published.bytes,
            rows_read=rows_read,
            rows_written=rows_written,
            volumes=written.volumes,
        )

    def _tidy(self) -> None:
        """Delete what is doomed, let sinks and sources forget what no restore point needs.

        All of it is done again if it was not done.
        """
        state = self.ledger.state
        for ref in state.pending_deletion:
            self.context.storage.delete(ref.path, self.ledger.generation, self.ledger.token)
        self.deleted = [ref.path for ref in state.pending_deletion]
        for checkpoint in [c for c in self.kept if c < state.retained[0].checkpoint]:
            del self.kept[checkpoint]
        desk = self.context.savepoints
        held = desk.held(state.pipeline, state.retained) if desk is not None else {}
        if held is None:
            return  # what savepoints need is not known now: nothing is forgotten
        points = {**self.kept, **held}
        oldest = min([state.retained[0].checkpoint, *held])
        for committer in self.committers.values():
            committer.retain(oldest)
        for name, source in self.graph.sources.items():
            if name in points.get(oldest, {}):
                source.release(points[oldest][name])

    def _ready(self) -> list[str]:
        """The sources that have nothing more to read after the current offsets: derived, so a lost
        set costs nothing.
        """
        return sorted(
            name
            for name, source in self.graph.sources.items()
            if source.bounded and source.is_exhausted(self.offsets[name])
        )

    def _behind(self) -> bool | None:
        """Whether some source has more than the last batch was allowed to take; None where none
        says so and one cannot tell.
        """
        told = {
            source.has_backlog(self.offsets[name]) for name, source in self.graph.sources.items()
        }
        return True if True in told else None if None in told else False

    def _finish(self) -> PipelineStatus:
        """All sources are ready to close: the sinks agree, then the completed point and FINISHED at
        once.
        """
        self.progress.phase("finishing")
        failpoint("batch.finish.before")
        for committer in self.committers.values():
            committer.finish()
        failpoint("batch.finish.after")
        return PipelineStatus.FINISHED

    def _measure(self) -> None:
        """Tell the display how far the sources are."""
        known = [
            p
            for name, source in self.graph.sources.items()
            if (p := source.progress(self.offsets[name])) is not None
        ]
        if self.bounded and known and len({p.unit for p in known}) == 1:
            self.progress.progress(
                sum(p.done for p in known), sum(p.total for p in known), known[0].unit
            )


def _empty(ranges: Mapping[str, SourceRange]) -> bool:
    return all(r.start == r.end for r in ranges.values())
