"""The batch loop of one pipeline: plan, begin, write, commit, publish, complete (see the package).

Called by the driver, one thread for each pipeline. It must know neither Spark nor any connector.
After a crash between any two lines, recovery (recovery.py) repairs what is left, in the next
generation.
"""

import logging
from collections.abc import Mapping

from tidegate import __version__
from tidegate.checkpoints.manifest import Manifest
from tidegate.checkpoints.operator_identity import IDENTITY, identity_of
from tidegate.failpoint import failpoint
from tidegate.model.errors import SourceUnreachable, TerminalError, TidegateError
from tidegate.model.records import (
    CheckpointKind,
    CheckpointRef,
    PendingBatch,
    PipelineStatus,
    SourceRange,
)
from tidegate.pipeline.abandoned_batches import Abandoned, with_batch_number
from tidegate.pipeline.context import PipelineContext
from tidegate.pipeline.engine import Batch, Written
from tidegate.pipeline.failures import failure_of
from tidegate.pipeline.graph import Graph
from tidegate.pipeline.ledger import Ledger
from tidegate.pipeline.pacing import BatchPacing
from tidegate.pipeline.progress import PipelineProgress
from tidegate.pipeline.recovery import PipelineRecovery
from tidegate.pipeline.sink_records import LINEAGE
from tidegate.pipeline.uncheckpointed import ranges_of
from tidegate.plugin.contract import Commit, CommitRange, Committer, Offset

LOG = logging.getLogger("tidegate.pipeline")
IDLE_PAUSE_S_MIN = 0.05
SAVEPOINT_PAUSE_S = 1.0
UNREACHABLE_PAUSE_S_MIN = 1.0


class BatchLoop:
    """One attempt at running a pipeline, from its restore point until it ends or fails."""

    def __init__(
        self, context: PipelineContext, graph: Graph, ledger: Ledger, progress: PipelineProgress
    ) -> None:
        self.context = context
        self.graph = graph
        self.ledger = ledger
        self.progress = progress
        self.savepoints = context.savepoints
        self.pacing = BatchPacing.of(context.job.plan.env, context.interval_s)
        self.bounded = all(source.bounded for source in graph.sources.values())
        self.scale = 1.0
        self.offsets: dict[str, Offset] = {}
        # source offsets of the retained checkpoints, for the release of older positions
        self.checkpoint_offsets: dict[int, Mapping[str, Offset]] = {}
        self.deleted_paths: list[str] = []
        self.committers: dict[str, Committer] = {}
        # batches that a sink has and that the store no longer knows
        self.uncheckpointed_commits: list[CommitRange] = []
        self.abandoned: Abandoned | None = None  # the pending batch, if it is planned anew
        self.ready: list[str] = []

    def run(self) -> PipelineStatus:
        """Run until all sources are ready to close (FINISHED) or a stop is requested (CANCELED)."""
        self._open()
        try:
            self._finish_savepoint_part()
            self._repeat_uncheckpointed()
            status = self._run_batches()
        finally:
            for committer in self.committers.values():
                committer.close()
        # Last: until then a successor opens the sinks again, and finishes what they left.
        self.ledger.end(status)
        if status is PipelineStatus.FINISHED:
            self._forget_sinks()
            # the other pipelines may have waited only for this one
            self.savepoints.serve(self.ledger)
        return status

    def _open(self) -> None:
        """Recover from the restore point, and continue from there."""
        recovered = PipelineRecovery(self.context, self.graph, self.ledger, self.progress).run()
        self.offsets = recovered.offsets
        self.checkpoint_offsets = recovered.checkpoint_offsets
        self.committers = recovered.committers
        self.uncheckpointed_commits = recovered.uncheckpointed_commits
        self.abandoned = recovered.abandoned
        self._report_progress()

    def _forget_sinks(self) -> None:
        """Delete the sinks' records of a finished pipeline, unless a savepoint may need them.

        Only a savepoint can restart a finished pipeline. A failure leaves the record where it is.
        """
        if self.savepoints.requested is not None or self.savepoints.has_any(self.ledger.pipeline):
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
            if self._pending() is None and self._should_stop():
                return PipelineStatus.CANCELED
            began_s = clock.monotonic_s()
            has_backlog: bool | None = False
            try:
                pending = self._pending() or self._plan()
                if pending is not None:
                    self._batch(pending)
            except SourceUnreachable as error:
                self._wait_for_source(error)
                continue
            if pending is not None:
                has_backlog = self._has_backlog()
                self.scale = self.pacing.rescaled(
                    self.scale, clock.monotonic_s() - began_s, has_backlog
                )
            else:
                self.ready = self._ready()
            if self.bounded and self.ready == sorted(self.graph.sources):
                return self._finish()
            if pending is None:
                self.ledger.confirm()
                self.progress.idle()
            pause_s = self.pacing.pause_s(clock.monotonic_s() - began_s, has_backlog)
            self._pause(pause_s if pending else max(pause_s, IDLE_PAUSE_S_MIN))

    def _pending(self) -> PendingBatch | None:
        return self.ledger.state.pending if self.abandoned is None else None

    def _wait_for_source(self, error: SourceUnreachable) -> None:
        """Pause until a source can be reached again, if the pipeline is unbounded.

        Nothing is confirmed meanwhile, so the pipeline becomes LATE with this reason. A stop is
        honoured: a batch that was begun waits for the next start.
        """
        if self.bounded:
            raise error
        self.progress.set_phase("planning")
        self.ledger.source_unreachable(
            failure_of(
                error, self.context.clock.now_ms(), self.ledger.generation, self.ledger.pipeline
            )
        )
        self._pause(max(self.pacing.pause_s(0, None), UNREACHABLE_PAUSE_S_MIN))
        if self.context.stop.is_set() and self._pending() is not None:
            raise error

    def _should_stop(self) -> bool:
        """Serve a requested savepoint between two batches, and return whether to end.

        If the job is to stop with the savepoint, this waits until the other pipelines have given
        their parts.
        """
        while not self.context.stop.is_set():
            self.savepoints.serve(self.ledger)
            if self.savepoints.ends_job:
                return True
            if not self.savepoints.must_wait(self.ledger.state):
                return False
            self.progress.set_phase("saving")
            self.ledger.confirm()
            self._pause(SAVEPOINT_PAUSE_S)
        return True

    def _finish_savepoint_part(self) -> None:
        """Copy a savepoint part that was chosen but not copied, before retention drops it."""
        part = self.ledger.state.savepoint
        if part is not None and not part.copied:
            self.savepoints.serve(self.ledger)

    def _pause(self, seconds: float) -> None:
        self.savepoints.wait(self.context.stop, seconds)

    def _repeat_uncheckpointed(self) -> None:
        """Repeat the batches that the sinks have and the store has lost, each under its own id.

        After a crash in the middle, the successor's recovery finds them again.
        """
        pending = self.ledger.state.pending
        checkpoints = [record.checkpoint for record in self.uncheckpointed_commits]
        if pending is not None and checkpoints in ([], [pending.checkpoint]):
            # As after any crash, the same batch is repeated; sinks reject one with other ranges.
            return
        for record in self.uncheckpointed_commits:
            if self.context.stop.is_set() and self.ledger.state.pending is None:
                return
            self._batch(self.ledger.repeat(record.checkpoint, ranges_of(record)))

    def _plan(self) -> PendingBatch | None:
        """Begin the next batch over a new range of every source; None if there is nothing to read.

        The first batch is made even if it is empty, so that every pipeline has a checkpoint and can
        be part of a savepoint. If the job is to stop with a savepoint, that first batch reads
        nothing.
        """
        self.progress.set_phase("planning")
        first = self.ledger.state.latest is None
        requested = self.savepoints.requested
        empty = first and requested is not None and requested.stop
        ranges = {}
        for name, source in self.graph.sources.items():
            readers = self.graph.nodes[name].action.parallelism
            start = self.offsets[name]
            limit = self.pacing.limit(self.scale, readers)
            ranges[name] = SourceRange(start, start if empty else source.latest(start, limit))
        replaces = self.abandoned.pending if self.abandoned else None
        self.abandoned = None
        if first or not _empty(ranges):
            return self.ledger.begin(ranges, replaces=replaces)
        if replaces is not None:
            self.ledger.give_up()
        return None

    def _batch(self, pending: PendingBatch) -> None:
        """Write, commit, publish, complete. A successor can repeat every step."""
        self.progress.begin_batch(pending.checkpoint)
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
                self._empty_result()
                if _empty(batch.ranges)
                else self.context.engine.run(self.graph, batch)
            )
        except TidegateError as error:
            raise with_batch_number(error, pending.checkpoint) from error
        failpoint("batch.write.after")
        self.progress.written(written)
        self.ledger.load()  # raises Fenced, before anything is made visible, if superseded
        self._commit(batch, written)
        self.ledger.load()
        self.offsets = {
            **self.offsets,
            **{name: r.end for name, r in pending.ranges.items() if name in self.offsets},
        }
        ref = self._publish(pending, written)
        self.checkpoint_offsets[pending.checkpoint] = self.offsets
        self.ready = self._ready()
        try:
            self.ledger.complete(ref, self.ready, self.context.retained_max, self.deleted_paths)
        except TerminalError:  # Fenced, or the job has ended meanwhile
            if self.ledger.is_unreferenced(ref):
                self.context.storage.delete(ref.path, self.ledger.generation, self.ledger.token)
            raise
        self.progress.completed(self.ledger.state)
        self._report_progress()
        self._clean_up()

    def _empty_result(self) -> Written:
        """Return the result of a batch without rows, for which the engine is not started."""
        return Written(
            rows_read=dict.fromkeys(self.graph.sources, 0),
            messages={name: () for name in self.graph.sinks},
        )

    def _commit(self, batch: Batch, written: Written) -> None:
        self.progress.set_phase("committing")
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
        self.progress.set_phase("publishing")
        state = self.ledger.state
        rows_read = sum(written.rows_read.values())
        rows_written = written.rows_written()
        identities = {name: identity_of(node.action) for name, node in self.graph.nodes.items()}
        states: dict[str, object] = {
            name: {"offset": offset, IDENTITY: identities[name]}
            for name, offset in self.offsets.items()
        }
        states |= {
            name: {"state": committer.state(), IDENTITY: identities[name], LINEAGE: state.lineage}
            for name, committer in self.committers.items()
        }
        kind = CheckpointKind.CHECKPOINT
        if self.savepoints.part_missing(state):
            kind = CheckpointKind.SAVEPOINT
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

    def _clean_up(self) -> None:
        """Delete dropped checkpoints; release what no restore point needs in sinks and sources.

        A crash in the middle is harmless: the next batch does all of it again.
        """
        state = self.ledger.state
        for ref in state.pending_deletion:
            self.context.storage.delete(ref.path, self.ledger.generation, self.ledger.token)
        self.deleted_paths = [ref.path for ref in state.pending_deletion]
        for checkpoint in [c for c in self.checkpoint_offsets if c < state.retained[0].checkpoint]:
            del self.checkpoint_offsets[checkpoint]
        saved = self.savepoints.retained_points(state.pipeline, state.retained)
        if saved is None:
            return  # what savepoints need is unknown now, so nothing is released
        points = {**self.checkpoint_offsets, **saved}
        oldest = min([state.retained[0].checkpoint, *saved])
        for committer in self.committers.values():
            committer.retain(oldest)
        for name, source in self.graph.sources.items():
            if name in points.get(oldest, {}):
                source.release(points[oldest][name])

    def _ready(self) -> list[str]:
        """Return the sources that have nothing to read after the current offsets.

        It is derived from the sources, so a lost set does no harm.
        """
        return sorted(
            name
            for name, source in self.graph.sources.items()
            if source.bounded and source.is_exhausted(self.offsets[name])
        )

    def _has_backlog(self) -> bool | None:
        """Return whether a source has more rows than the last batch was allowed to read.

        None if no source says so and at least one cannot tell.
        """
        answers = {
            source.has_backlog(self.offsets[name]) for name, source in self.graph.sources.items()
        }
        if True in answers:
            return True
        return None if None in answers else False

    def _finish(self) -> PipelineStatus:
        """Let all sinks finish, once all sources are ready to close."""
        self.progress.set_phase("finishing")
        failpoint("batch.finish.before")
        for committer in self.committers.values():
            committer.finish()
        failpoint("batch.finish.after")
        return PipelineStatus.FINISHED

    def _report_progress(self) -> None:
        """Report how far the bounded sources have been read, if they use the same unit."""
        known = [
            p
            for name, source in self.graph.sources.items()
            if (p := source.progress(self.offsets[name])) is not None
        ]
        if self.bounded and known and len({p.unit for p in known}) == 1:
            self.progress.set_read(
                sum(p.done for p in known), sum(p.total for p in known), known[0].unit
            )


def _empty(ranges: Mapping[str, SourceRange]) -> bool:
    return all(r.start == r.end for r in ranges.values())
