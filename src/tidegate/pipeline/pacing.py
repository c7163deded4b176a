"""Decides how much the next batch may read, and when it may begin. Pure.

Without an interval a bounded job is one batch. With an interval, a batch should take about one
interval, so its size follows the duration of the last one. But every batch has a fixed cost. If the
interval is shorter than that cost, ever smaller batches would never catch up, so a batch of one
second (SHORT_S) is not made smaller. A rate (`read_limit.*`, for each parallel reader) or
`batch.*_max` caps the size.

A stream begins a batch each interval. While a source has a backlog (the limit ended the last batch,
not the end of the data) the next batch begins at once, but at most every BACKLOG_EVERY_S. Until the
source has caught up, batches follow one another and grow. Only batches with a backlog make the size
grow: the duration of a batch that found little to read says nothing about a larger one.
"""

from dataclasses import dataclass

from tidegate.model.job import JobEnv, JobMode
from tidegate.plugin.contract import Limit

STREAMING_INTERVAL_S = 10.0
FIRST_ROWS = 250_000
FIRST_BYTES = 32 * 1024 * 1024
GROW_MAX = 4.0
SHRINK_MAX = 0.25
SCALE_MIN = 1e-4
SHORT_S = 1.0  # a batch that takes no longer is not made smaller
SCALE_MAX = 1e6
# between the starts of two batches of a stream with a backlog; a shorter interval wins
BACKLOG_EVERY_S = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPacing:
    """The settings of the env block that determine size and timing of batches."""

    interval_s: float | None
    streaming: bool
    rows_per_second: float | None = None
    bytes_per_second: float | None = None
    rows_max: int | None = None
    bytes_max: int | None = None
    files_max: int | None = None
    pause_s_min: float = 0.0

    @staticmethod
    def of(env: JobEnv, streaming_interval_s: float = STREAMING_INTERVAL_S) -> "BatchPacing":
        """Read the settings from a job's env block."""
        streaming = env.mode is JobMode.STREAMING
        given = env.checkpoint_interval_ms / 1000 if env.checkpoint_interval_ms else None
        return BatchPacing(
            interval_s=given or (streaming_interval_s if streaming else None),
            streaming=streaming,
            rows_per_second=env.rows_per_second,
            bytes_per_second=env.bytes_per_second,
            rows_max=env.batch_rows_max,
            bytes_max=env.batch_bytes_max,
            files_max=env.batch_files_max,
            pause_s_min=max(0, env.checkpoint_pause_ms_min or 0) / 1000,
        )

    @property
    def rated(self) -> bool:
        """Whether a rate limit slows down reading."""
        return self.rows_per_second is not None or self.bytes_per_second is not None

    def limit(self, scale: float, readers: int) -> Limit:
        """Return the limit of one source in the next batch; `scale` comes from `rescaled`."""
        interval = self.interval_s if self.interval_s is not None else 1.0
        adaptive = self.interval_s is not None
        rows = [FIRST_ROWS * scale] if adaptive else []
        size = [FIRST_BYTES * scale] if adaptive else []
        if self.rows_per_second is not None:
            rows.append(self.rows_per_second * readers * interval)
        if self.bytes_per_second is not None:
            size.append(self.bytes_per_second * readers * interval)
        if self.rows_max is not None:
            rows = [self.rows_max]
        if self.bytes_max is not None:
            size = [self.bytes_max]
            rows = [self.rows_max] if self.rows_max is not None else []
        return Limit(
            rows=max(1, int(min(rows))) if rows else None,
            bytes=max(1, int(min(size))) if size else None,
            files=self.files_max,
        )

    def rescaled(self, scale: float, took_s: float, has_backlog: bool | None = None) -> float:
        """Return the scale after a batch of this duration, which approaches one interval per batch.

        It does not grow if there was no more to read.
        """
        if self.interval_s is None:
            return scale
        grow, shrink = (
            self.interval_s / max(took_s, 1e-3),
            max(self.interval_s, SHORT_S) / max(took_s, 1e-3),
        )
        growing = 1.0 if has_backlog is False else min(GROW_MAX, grow)
        factor = growing if grow > 1 else max(SHRINK_MAX, min(1.0, shrink))
        return min(SCALE_MAX, max(SCALE_MIN, scale * factor))

    def pause_s(self, began_ago_s: float, has_backlog: bool | None = None) -> float:
        """Return how long to wait before the next batch begins.

        A bounded read without a rate continues at once, a stream with a backlog almost at once.
        """
        if self.interval_s is None:
            return 1.0 if self.rated and began_ago_s < 1.0 else 0.0
        every_s = self.interval_s if self.streaming or self.rated else 0.0
        if has_backlog and not self.rated:
            every_s = min(every_s, BACKLOG_EVERY_S)
        return max(self.pause_s_min, every_s - began_ago_s)
