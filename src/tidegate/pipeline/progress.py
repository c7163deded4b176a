"""Metrics of a pipeline, for displays: set by the batch loop, written to the store by the driver.

Never used for decisions.
"""

import threading
from collections.abc import Sequence
from dataclasses import replace

from tidegate.clock import Clock, SystemClock
from tidegate.model.log_retention import LogRetentionMetric
from tidegate.model.records import PipelineMetrics, PipelineState
from tidegate.pipeline.engine import Written
from tidegate.pipeline.rates import RateWindow


class PipelineProgress:
    """The latest metrics of one pipeline; safe to read from another thread."""

    def __init__(self, pipeline: int, generation: int, clock: Clock | None = None) -> None:
        self._lock = threading.Lock()
        self._clock = clock or SystemClock()
        self._window = RateWindow()
        self._metrics = PipelineMetrics(pipeline=pipeline, generation=generation)

    def read(self) -> PipelineMetrics:
        """Return the current metrics, with the rates of this moment."""
        with self._lock:
            return replace(self._metrics, rates=self._window.rates(self._clock.monotonic_s()))

    def set_phase(self, name: str) -> None:
        """Set what the loop does now."""
        self._set(phase=name)

    def idle(self) -> None:
        """Record that there is nothing to read."""
        with self._lock:
            self._window.idle(self._clock.monotonic_s())
        self._set(phase="idle")

    def begin_batch(self, checkpoint: int) -> None:
        """Record that a batch is being written."""
        self._set(phase="writing", checkpoint=checkpoint)

    def written(self, written: Written) -> None:
        """Count the rows of a batch whose tasks are done; it is not yet committed."""
        now = self.read()
        self._set(
            rows_read=now.rows_read + sum(written.rows_read.values()),
            rows_written=now.rows_written + written.rows_written(),
        )

    def restored(self, state: PipelineState) -> None:
        """Start from the counters of earlier generations."""
        with self._lock:
            self._window.open(state.retained, self._clock.monotonic_s(), self._clock.now_ms())
        self._set(
            rows_read=state.rows_read,
            rows_written=state.rows_written,
            checkpoint=state.latest.checkpoint if state.latest else 0,
        )

    def completed(self, state: PipelineState) -> None:
        """Replace the counters by the committed ones, after a checkpoint."""
        assert state.latest is not None, "a checkpoint was completed"
        with self._lock:
            self._window.completed(state.latest, self._clock.monotonic_s())
        self._set(phase="waiting", rows_read=state.rows_read, rows_written=state.rows_written)

    def set_read(self, done: float, total: float, unit: str) -> None:
        """Set how much of the bounded sources is read."""
        self._set(done=done, total=total, unit=unit)

    def set_log_retention(self, metrics: Sequence[LogRetentionMetric]) -> None:
        """Set how long the sources keep the log that the oldest restore point needs."""
        self._set(log_retention=tuple(metrics))

    def _set(self, **changes: object) -> None:
        with self._lock:
            metrics = replace(self._metrics, **changes)  # type: ignore[arg-type]  # fields by name
            self._metrics = metrics
