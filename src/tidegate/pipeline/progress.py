"""How far a pipeline is, for displays: filled by the loop, read and written behind by the driver.
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
    """The latest figures of one pipeline; safe to read from another thread."""

    def __init__(self, pipeline: int, generation: int, clock: Clock | None = None) -> None:
        self._lock = threading.Lock()
        self._clock = clock or SystemClock()
        self._window = RateWindow()
        self._metrics = PipelineMetrics(pipeline=pipeline, generation=generation)

    def read(self) -> PipelineMetrics:
        """The figures as they are, with the rates of this moment."""
        with self._lock:
            return replace(self._metrics, rates=self._window.rates(self._clock.monotonic_s()))

    def phase(self, name: str) -> None:
        """What the loop does now."""
        self._set(phase=name)

    def idle(self) -> None:
        """There is nothing to read."""
        with self._lock:
            self._window.idle(self._clock.monotonic_s())
        self._set(phase="idle")

    def batch(self, checkpoint: int) -> None:
        """A batch is being written."""
        self._set(phase="writing", checkpoint=checkpoint)

    def written(self, written: Written) -> None:
        """The tasks of a batch are done; not yet committed."""
        now = self.read()
        self._set(
            rows_read=now.rows_read + sum(written.rows_read.values()),
            rows_written=now.rows_written + written.rows_written(),
        )

    def restored(self, state: PipelineState) -> None:
        """Figures of earlier generations count too."""
        with self._lock:
            self._window.open(state.retained, self._clock.monotonic_s(), self._clock.now_ms())
        self._set(
            rows_read=state.rows_read,
            rows_written=state.rows_written,
            checkpoint=state.latest.checkpoint if state.latest else 0,
        )

    def completed(self, state: PipelineState) -> None:
        """A checkpoint: what is committed is the truth."""
        assert state.latest is not None, "a checkpoint was completed"
        with self._lock:
            self._window.completed(state.latest, self._clock.monotonic_s())
        self._set(phase="waiting", rows_read=state.rows_read, rows_written=state.rows_written)

    def progress(self, done: float, total: float, unit: str) -> None:
        """How much of the bounded sources is read."""
        self._set(done=done, total=total, unit=unit)

    def log_retention(self, figures: Sequence[LogRetentionMetric]) -> None:
        """What the sources said about the oldest restore point."""
        self._set(runway=tuple(figures))

    def _set(self, **changes: object) -> None:
        with self._lock:
            self._metrics = replace(self._metrics, **changes)  # type: ignore[arg-type]  # the callers above name fields of it
