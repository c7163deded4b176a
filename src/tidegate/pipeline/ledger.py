"""One generation's hand on the durable state of its pipeline. The only author of PipelineState in a
driver.

Every write is conditioned on the version of the document that was last seen. Only the job's leader
changes it besides, and only to move the generation: so a conflict is read again, and a newer
generation is Fenced. While the store is out of reach nothing is begun or completed: calls wait, and
go on if the generation is still the current one when it is back.
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
    """The key of a pipeline in the maps that have one entry for each."""
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
        """RUNNING, in the name of this driver; where the sources begin is asked and recorded now,
        each source only once.
        """
        known = self.state.initial or {}
        recorded = {**known, **{name: ask() for name, ask in initial.items() if name not in known}}
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
        """The next batch, durable before any of it is read.

        Its id is never used again. `replaces` is a batch that is given up, in the same transaction.
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
        self._log("batch begun", checkpoint=pending.checkpoint)
        return pending

    def give_up(self) -> None:
        """The pending batch is not repeated, and there is nothing to read instead."""
        failpoint("ledger.give_up.before")
        self._change(lambda s: replace(s, pending=None))
        failpoint("ledger.give_up.after")

    def repeat(self, checkpoint: int, ranges: Mapping[str, SourceRange]) -> PendingBatch:
        """A batch that a sink has and the registry has lost, under its own id again.

        A checkpoint of this id that was given up is not deleted any more.
        """
        pending = PendingBatch(
            checkpoint=checkpoint,
            ranges=ranges,
            generation=self.generation,
            begun_ms=self.clock.now_ms(),
        )

        def begun(state: PipelineState) -> PipelineState:
            doomed = tuple(ref for ref in state.pending_deletion if ref.checkpoint != checkpoint)
            return replace(
                state,
                pending=pending,
                next_checkpoint=max(state.next_checkpoint, checkpoint + 1),
                pending_deletion=doomed,
            )

        failpoint("ledger.repeat.before")
        self._change(begun)
        failpoint("ledger.repeat.after")
        self._log("batch taken up again", checkpoint=checkpoint)
        return pending

    def complete(
        self, ref: CheckpointRef, ready: Sequence[str], retained_max: int, deleted: Sequence[str]
    ) -> None:
        """The batch is a checkpoint now.

        What is no longer retained is named in `doomed` before anyone deletes it.
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
            "checkpoint completed",
            checkpoint=ref.checkpoint,
            rows_read=ref.rows_read,
            rows_written=ref.rows_written,
            bytes=ref.bytes,
        )

    def is_unreferenced(self, ref: CheckpointRef) -> bool:
        """Whether a checkpoint that this fenced generation has published is of no use to anyone:
        ids only grow, so that cannot change any more.
        """
        entry = self.store.get(PIPELINES, self.key)
        if entry is None:
            return True
        state = from_document(PipelineState, entry.value)
        repeated = state.pending is not None and state.pending.checkpoint == ref.checkpoint
        return not repeated and ref.path not in {r.path for r in state.retained}

    def save_savepoint_part(self, part: PipelineSavepoint) -> None:
        """This pipeline's part in a savepoint: chosen, and later copied."""
        failpoint("ledger.save.before")
        self._change(lambda s: replace(s, savepoint=part))
        failpoint("ledger.save.after")

    def check(self) -> Check:
        """What fences a write to another record: this pipeline is as it was last seen, and so of
        this generation.
        """
        return Check(PIPELINES, self.key, self._version)

    def confirm(self) -> None:
        """Nothing to read: the last checkpoint is as good as new."""
        now_ms = self.clock.now_ms()
        self._change(lambda s: replace(s, confirmed_ms=now_ms, error=None))

    def source_unreachable(self, failure: Failure) -> None:
        """A source cannot be asked: recorded as the reason why there is no progress, once."""
        if self.state.error is None or self.state.error.message != failure.message:
            self._change(lambda s: replace(s, error=failure))
            self._log("source unreachable", condition=failure.condition, why=failure.message)

    def retry(self, failure: Failure) -> None:
        """An attempt failed and another one follows: counted durably, so that no restart resets the
        budget.
        """
        self._change(lambda s: replace(s, restarts=s.restarts + 1, error=failure))
        self._log(
            "attempt failed",
            restarts=self.state.restarts,
            condition=failure.condition,
            why=failure.message,
        )

    def end(self, status: PipelineStatus, failure: Failure | None = None) -> None:
        """The pipeline ends.

        FINISHED makes the last checkpoint the completed point, in the same transaction.
        """
        failpoint("ledger.end.before")
        self._change(lambda s: _ended(s, status, failure))
        failpoint("ledger.end.after")
        self._log("pipeline ended", to=status.value, why=failure.message if failure else "")

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
        """The last checkpoints, for displays: where they cannot be read, the list begins anew."""
        monitor = self.store.get(CHECKPOINT_HISTORY, self.key)
        try:
            return (
                from_document(CheckpointHistory, monitor.value, f"history of pipeline {self.key}")
                if monitor
                else CheckpointHistory()
            )
        except (DocumentDamaged, UnreadableDocument) as error:
            LOG.warning(
                "history lost",
                extra={"job_id": self.job_id, "pipeline": self.pipeline, "why": str(error)},
            )
            return CheckpointHistory()

    def _change(self, change: Callable[[PipelineState], PipelineState], *more: Put) -> None:
        """Apply a change once, whatever happens to the store meanwhile."""
        wanted = change(self.state)

        def attempt() -> None:
            nonlocal wanted
            try:
                document = to_document(wanted)
                self._version = self.store.transact(
                    [Check(PIPELINES, self.key, self._version)],
                    [Put(PIPELINES, self.key, document), *more],
                )
                self._state = wanted
            except (Conflict, OutcomeUnknown):
                before = self.state
                self._read()
                if self.state != wanted:
                    assert self.state == before, "only this driver changes more than the generation"
                    raise StoreUnavailable("the pipeline's state was touched: once more") from None

        self._retry(attempt)

    def _log(self, event: str, **facts: object) -> None:
        """One event for each transition, as fields."""
        LOG.info(
            event,
            extra={
                "job_id": self.job_id,
                "pipeline": self.pipeline,
                "generation": self.generation,
                **facts,
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
