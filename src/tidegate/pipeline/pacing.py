"""How much the next batch may take, and when it may begin. Pure.

Without an interval a bounded job is one batch. With one, a batch should take about one interval:
its size follows the duration of the last. But every batch has a cost that no size changes: where
the interval is shorter than that, ever smaller batches would never catch up, so that one of a
second is small enough. A rate (`read_limit.*`, for each parallel reader) or `batch.*_max` caps it.

A stream begins a batch each interval. Where a source is behind, because the limit ended the last
batch and not what there was to read, the next one begins at once, though not more often than every
BACKLOG_EVERY_S: until it has caught up, batches follow one another and grow. Only such batches say
anything about the size: how long a batch took that found little to read is no reason to take more
the next time.
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
# between the beginnings of two batches of a stream that is behind; the interval where that is
# shorter
BACKLOG_EVERY_S = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPacing:
    """What the env block says about batches."""

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
        """The pace of a job."""
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
        """Whether reading is slowed down on purpose."""
        return self.rows_per_second is not None or self.bytes_per_second is not None

    def limit(self, scale: float, readers: int) -> Limit:
        """The limit of one source in the next batch; `scale` is what `rescaled` returned."""
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

    def rescaled(self, scale: float, took_s: float, behind: bool | None = None) -> float:
        """The scale after a batch that took so long: towards one interval a batch.

        It does not grow where there was not more to take.
        """
        if self.interval_s is None:
            return scale
        grow, shrink = (
            self.interval_s / max(took_s, 1e-3),
            max(self.interval_s, SHORT_S) / max(took_s, 1e-3),
        )
        growing = 1.0 if behind is False else min(GROW_MAX, grow)
        factor = growing if grow > 1 else max(SHRINK_MAX, min(1.0, shrink))
        return min(SCALE_MAX, max(SCALE_MIN, scale * factor))

    def pause_s(self, began_ago_s: float, behind: bool | None = None) -> float:
        """How long to wait before the next batch begins.

        A bounded read without a rate goes on at once, a stream that is behind nearly so.
        """
        if self.interval_s is None:
            return 1.0 if self.rated and began_ago_s < 1.0 else 0.0
        every_s = self.interval_s if self.streaming or self.rated else 0.0
        if behind and not self.rated:
            every_s = min(every_s, BACKLOG_EVERY_S)
        return max(self.pause_s_min, every_s - began_ago_s)
