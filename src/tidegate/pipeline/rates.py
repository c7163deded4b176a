"""Computes the rate of committed rows of a pipeline. No other code computes one.

Called by PipelineProgress; every display shows this rate. The rows of a batch are spread evenly
over the time since the batch before it. The rate covers the last WINDOW_S of the accounted time,
which ends with the last completed batch, or with the last time at which there was nothing to read.
Overdue time counts without rows, so the rate of a pipeline that hangs falls to 0. All times are
monotonic: a step of the wall clock changes no rate.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tidegate.model.records import CheckpointRef
from tidegate.model.throughput import PipelineRates, Rate

WINDOW_S = 30.0
SPAN_S_MIN = 1.0  # a shorter first batch would give a meaningless rate
OVERDUE_S_MIN = 5.0
OVERDUE_GAPS = 1.5  # of the time between the last two batches; a batch that comes later is overdue


@dataclass(frozen=True, slots=True)
class _Span:
    """A completed batch, and the time over which its rows count."""

    since_s: float
    until_s: float
    ref: CheckpointRef

    def share(self, start_s: float, end_s: float) -> float:
        """Return the fraction of the span that is between these two times."""
        overlap_s = min(self.until_s, end_s) - max(self.since_s, start_s)
        return min(1.0, overlap_s / (self.until_s - self.since_s)) if overlap_s > 0 else 0.0


class RateWindow:
    """The last batches of one pipeline. Not for threads."""

    def __init__(self) -> None:
        self._spans: deque[_Span] = deque()
        self._start_s: float | None = None  # since when all batches are known
        self._accounted_s = 0.0  # until when
        self._gap_s = 0.0
        self._has_data = False  # whether this driver has completed anything yet

    def open(self, retained: Sequence[CheckpointRef], now_s: float, now_ms: int) -> None:
        """Start with the batches that earlier drivers completed recently.

        So a restart does not reset the rate. A second call changes nothing.
        """
        if self._start_s is not None:
            return
        self._start_s = self._accounted_s = now_s
        recent = [ref for ref in retained if now_ms - WINDOW_S * 1000 <= ref.completed_ms <= now_ms]
        if recent:
            self._start_s = _monotonic_s(recent[0].completed_ms, now_s, now_ms)
        for before, ref in pairwise(recent):
            since_ms = before.completed_ms if before.generation == ref.generation else ref.begun_ms
            if since_ms < ref.completed_ms:
                self._spans.append(
                    _Span(
                        _monotonic_s(since_ms, now_s, now_ms),
                        _monotonic_s(ref.completed_ms, now_s, now_ms),
                        ref,
                    )
                )

    def completed(self, ref: CheckpointRef, now_s: float) -> None:
        assert self._start_s is not None, "open first"
        self._gap_s = max(now_s - self._accounted_s, 1e-6)
        self._spans.append(_Span(now_s - self._gap_s, now_s, ref))
        self._accounted_s = now_s
        self._has_data = True
        while self._spans and self._spans[0].until_s < now_s - WINDOW_S:
            self._spans.popleft()

    def idle(self, now_s: float) -> None:
        """Record that there is nothing to read: all rows until now have been counted."""
        self._accounted_s, self._has_data = max(self._accounted_s, now_s), True

    def rates(self, now_s: float) -> PipelineRates | None:
        """Return rows and bytes per second.

        None until this driver has completed a batch or found nothing to read.
        """
        if self._start_s is None or not self._has_data:
            return None
        end_s = max(self._accounted_s, now_s - max(OVERDUE_S_MIN, OVERDUE_GAPS * self._gap_s))
        start_s = max(end_s - WINDOW_S, self._start_s)
        seconds = max(end_s - start_s, SPAN_S_MIN)
        read = written = 0.0
        operators: dict[str, dict[str, Rate]] = {}
        for span in self._spans:
            part = span.share(start_s, end_s) / seconds
            if part <= 0:
                continue
            read += span.ref.rows_read * part
            written += span.ref.rows_written * part
            for operator, tables in span.ref.volumes.items():
                into = operators.setdefault(operator, {})
                for table, volume in tables.items():
                    if volume.rows or volume.bytes:
                        into[table] = into.get(table, Rate()) + Rate(
                            volume.rows * part, volume.bytes * part
                        )
        shown = {
            operator: {
                table: Rate(round(rate.rows, 3), round(rate.bytes, 3))
                for table, rate in tables.items()
            }
            for operator, tables in operators.items()
        }
        return PipelineRates(
            rows_read=round(read, 3),
            rows_written=round(written, 3),
            operators={name: tables for name, tables in shown.items() if tables},
        )


def _monotonic_s(at_ms: int, now_s: float, now_ms: int) -> float:
    """Convert a wall-clock time to the monotonic clock."""
    return now_s - (now_ms - at_ms) / 1000
