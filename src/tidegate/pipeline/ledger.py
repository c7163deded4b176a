"""The durable state of one pipeline, on behalf of one generation.

No other code of a driver writes PipelineState. Every write is conditioned on the document version
that was last read. Only the job's leader changes it besides, and only to set the generation. So
after a conflict the state is read again, and a newer generation raises Fenced. While the store is
unreachable nothing is begun or completed: calls wait, and continue if the generation is still the
current one when the store is back.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidegate.checkpoints.retention import retain
from tidegate.clock import Clock
from tidegate.failpoint import failpoint
from tidegate.model.document import UnreadableDocument, from_document, to_document
from tidegate.model.errors import Fenced, OtherCopy, TerminalError
from tidegate.model.records import (
    CHECKPOINT_HISTORY,
    PIPELINES,
    CheckpointHistory,
    CheckpointKind,
    CheckpointRef,
    Failure,
    PendingBatch,
    PipelineSavepoint,
    PipelineState,
    PipelineStatus,
    SourceRange,
)
from tidegate.model.restore import Replan
from tidegate.model.throughput import add_volumes
from tidegate.retry import backoff, retry
from tidegate.store.base import OUTAGE_ERRORS, Check, OutcomeUnknown, Put, Store
from tidegate.store.errors import Conflict, DocumentDamaged, StoreUnavailable

LOG = logging.getLogger("tidegate.pipeline")
HISTORY_MAX = 32
OUTAGE_PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


def pipeline_key(job_id: int, pipeline: int) -> str:
    """The key of a pipeline in the maps that have one entry per pipeline."""
    return f"{job_id}/{pipeline}"


class Ledger:
    """Begins, completes and ends the batches of one pipeline, for one generation."""

    def __init__(
        self,
        store: Store,
        job_id: int,
        pipeline: int,
        generation: int,
        *,
        clock: Clock,
        abandon: threading.Event,
        token: str = "",
    ) -> None:
        self.store = store
        self.job_id = job_id
        self.pipeline = pipeline
        self.generation = generation
        self.token = token
        self.clock = clock
        self.abandon = abandon
        self.key = pipeline_key(job_id, pipeline)
        self._version = 0
        self._state: PipelineState | None = None
        self._history = CheckpointHistory()

    @property
    def state(self) -> PipelineState:
        """The state as last seen."""
        assert self._state is not None, "load first"
        return self._state

    def load(self) -> PipelineState:
        """Read the state; Fenced if it belongs to a newer generation."""
        self._retry(self._read)
        return self.state

    def start(self, initial: Mapping[str, Callable[[], Any]], warnings: Sequence[str] = ()) -> None:
        """Set RUNNING, with this driver's token, and record where the sources begin.

        Each source is asked for its initial offset only once in the life of a pipeline.
        """
        known = self.state.initial or {}
        recorded = {
            **known,
            **{name: offset_of() for name, offset_of in initial.items() if name not in known},
        }
        driver = f"{self.generation}-{self.token}" if self.token else ""
        all_warnings = tuple(dict.fromkeys([*self.state.warnings, *warnings]))
        self._change(
            lambda s: replace(
                s,
                status=PipelineStatus.RUNNING,
                initial=recorded,
                error=None,
                driver=driver,
                warnings=all_warnings,
            )
        )

    def begin(
        self, ranges: Mapping[str, SourceRange], *, replaces: PendingBatch | None = None
    ) -> PendingBatch:
        """Record the next batch, before any of it is read.

        Its id is never used again. `replaces` is a batch that is abandoned in the same transaction.
        """
        pending = PendingBatch(
            checkpoint=self.state.next_checkpoint,
            ranges=ranges,
            generation=self.generation,
            begun_ms=self.clock.now_ms(),
        )
        assert self.state.pending == replaces, "a pending batch is repeated, unless it is given up"
        failpoint("ledger.begin.before")
        self._change(lambda s: replace(s, pending=pending, next_checkpoint=pending.checkpoint + 1))
        failpoint("ledger.begin.after")
        self._log("batch_begun", checkpoint=pending.checkpoint)
        return pending

    def give_up(self) -> None:
        """Abandon the pending batch when there is nothing to read instead."""
        failpoint("ledger.give_up.before")
        self._change(lambda s: replace(s, pending=None))
        failpoint("ledger.give_up.after")

    def repeat(self, checkpoint: int, ranges: Mapping[str, SourceRange]) -> PendingBatch:
        """Record a batch that a sink has and the store has lost, under its own id.

        A checkpoint of this id that was pending deletion is kept.
        """
        pending = PendingBatch(
            checkpoint=checkpoint,
            ranges=ranges,
            generation=self.generation,
            begun_ms=self.clock.now_ms(),
        )

        def begun(state: PipelineState) -> PipelineState:
            pending_deletion = tuple(
                ref for ref in state.pending_deletion if ref.checkpoint != checkpoint
            )
            return replace(
                state,
                pending=pending,
                next_checkpoint=max(state.next_checkpoint, checkpoint + 1),
                pending_deletion=pending_deletion,
            )

        failpoint("ledger.repeat.before")
        self._change(begun)
        failpoint("ledger.repeat.after")
        self._log("batch_repeated", checkpoint=checkpoint)
        return pending

    def complete(
        self, ref: CheckpointRef, ready: Sequence[str], retained_max: int, deleted: Sequence[str]
    ) -> None:
        """Record the batch as a checkpoint.

        Checkpoints that are no longer retained become `pending_deletion` before they are deleted.
        """
        self._history = replace(
            self._history, entries=(*self._history.entries, replace(ref, volumes={}))[-HISTORY_MAX:]
        )
        failpoint("ledger.complete.before")
        self._change(
            lambda s: _completed(s, ref, ready, retained_max, deleted),
            Put(CHECKPOINT_HISTORY, self.key, to_document(self._history)),
        )
        failpoint("ledger.complete.after")
        self._log(
            "checkpoint_completed",
            checkpoint=ref.checkpoint,
            rows_read=ref.rows_read,
            rows_written=ref.rows_written,
            bytes=ref.bytes,
        )

    def is_unreferenced(self, ref: CheckpointRef) -> bool:
        """Return whether nothing refers to a checkpoint that this fenced generation has published.

        This cannot change later, because ids only grow.
        """
        entry = self.store.get(PIPELINES, self.key)
        if entry is None:
            return True
        state = from_document(PipelineState, entry.value)
        repeated = state.pending is not None and state.pending.checkpoint == ref.checkpoint
        return not repeated and ref.path not in {r.path for r in state.retained}

    def save_savepoint_part(self, part: PipelineSavepoint) -> None:
        """Record this pipeline's part in a savepoint: first as chosen, later as copied."""
        failpoint("ledger.save.before")
        self._change(lambda s: replace(s, savepoint=part))
        failpoint("ledger.save.after")

    def check(self) -> Check:
        """Return a check that fences a write to another record by this pipeline's generation."""
        return Check(PIPELINES, self.key, self._version)

    def confirm(self) -> None:
        """Record that there is nothing to read, so the last checkpoint is up to date."""
        now_ms = self.clock.now_ms()
        self._change(lambda s: replace(s, confirmed_ms=now_ms, error=None))

    def source_unreachable(self, failure: Failure) -> None:
        """Record once that a source is unreachable, as the reason for the lack of progress."""
        if self.state.error is None or self.state.error.message != failure.message:
            self._change(lambda s: replace(s, error=failure))
            self._log("source_unreachable", condition=failure.condition, why=failure.message)

    def retry(self, failure: Failure) -> None:
        """Count a failed attempt durably, so that a restart does not reset the retry budget."""
        self._change(lambda s: replace(s, restarts=s.restarts + 1, error=failure))
        self._log(
            "attempt_failed",
            restarts=self.state.restarts,
            condition=failure.condition,
            why=failure.message,
        )

    def end(self, status: PipelineStatus, failure: Failure | None = None) -> None:
        """End the pipeline.

        FINISHED makes the last checkpoint the completed point in the same transaction.
        """
        failpoint("ledger.end.before")
        self._change(lambda s: _ended(s, status, failure))
        failpoint("ledger.end.after")
        self._log("pipeline_ended", to=status.value, why=failure.message if failure else "")

    def _read(self) -> None:
        entry = self.store.get(PIPELINES, self.key)
        if entry is None:
            raise TerminalError(
                f"pipeline {self.pipeline} of job {self.job_id} is not in the store"
            )
        state = from_document(PipelineState, entry.value, f"state of pipeline {self.key}")
        if state.generation != self.generation:
            raise Fenced(f"job {self.job_id}", self.generation, state.generation)
        generation, _, token = state.driver.partition("-")
        if self.token and generation == str(self.generation) and token != self.token:
            raise OtherCopy(
                f"the state of pipeline {self.pipeline} of job {self.job_id} in the store",
                self.generation,
            )
        if self._state is None:
            self._history = self._read_history()
        self._state = state
        self._version = entry.version

    def _read_history(self) -> CheckpointHistory:
        """Read the last checkpoints, for displays; start a new list if they cannot be read."""
        monitor = self.store.get(CHECKPOINT_HISTORY, self.key)
        try:
            return (
                from_document(CheckpointHistory, monitor.value, f"history of pipeline {self.key}")
                if monitor
                else CheckpointHistory()
            )
        except (DocumentDamaged, UnreadableDocument) as error:
            LOG.warning(
                "checkpoint_history_lost",
                extra={"job_id": self.job_id, "pipeline": self.pipeline, "why": str(error)},
            )
            return CheckpointHistory()

    def _change(self, change: Callable[[PipelineState], PipelineState], *more: Put) -> None:
        """Apply a change exactly once, across store outages and unknown outcomes."""
        target = change(self.state)

        def attempt() -> None:
            nonlocal target
            try:
                document = to_document(target)
                self._version = self.store.transact(
                    [Check(PIPELINES, self.key, self._version)],
                    [Put(PIPELINES, self.key, document), *more],
                )
                self._state = target
            except (Conflict, OutcomeUnknown):
                before = self.state
                self._read()
                if self.state != target:
                    assert self.state == before, "only this driver changes more than the generation"
                    raise StoreUnavailable("the pipeline's state was changed: retry") from None

        self._retry(attempt)

    def _log(self, event: str, **fields: object) -> None:
        """Log one event for each transition."""
        LOG.info(
            event,
            extra={
                "job_id": self.job_id,
                "pipeline": self.pipeline,
                "generation": self.generation,
                **fields,
            },
        )

    def _retry(self, attempt: Callable[[], None]) -> None:
        """Retry while the store is unavailable, until this driver must end at once."""
        pause = backoff(OUTAGE_PAUSES_S, wait=lambda s: self.clock.wait(self.abandon, s))
        retry(attempt, OUTAGE_ERRORS, pause)


def _completed(
    state: PipelineState,
    ref: CheckpointRef,
    ready: Sequence[str],
    retained_max: int,
    deleted: Sequence[str],
) -> PipelineState:
    kept, dropped = retain([*state.retained, ref], retained_max)
    return replace(
        state,
        pending=None,
        retained=kept,
        pending_deletion=(
            *(d for d in state.pending_deletion if d.path not in deleted),
            *(replace(d, volumes={}) for d in dropped),
        ),
        ready_to_close=tuple(sorted({*state.ready_to_close, *ready})),
        rows_read=state.rows_read + ref.rows_read,
        rows_written=state.rows_written + ref.rows_written,
        volumes=add_volumes(state.volumes, ref.volumes),
        checkpoints=state.checkpoints + 1,
        confirmed_ms=ref.completed_ms,
        restarts=0,
        error=None,
        rewind=False,
        dropped_operators=(),
        replan=Replan.NEVER,
    )


def _ended(state: PipelineState, status: PipelineStatus, failure: Failure | None) -> PipelineState:
    retained = state.retained
    if status is PipelineStatus.FINISHED and retained:
        retained = (*retained[:-1], replace(retained[-1], kind=CheckpointKind.COMPLETED_POINT))
    return replace(state, status=status, retained=retained, error=failure)
