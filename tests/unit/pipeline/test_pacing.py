"""The size of batches, and when they begin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model.job import JobEnv, JobMode
from tidegate.pipeline.pacing import BACKLOG_EVERY_S, FIRST_BYTES, FIRST_ROWS, BatchPacing
from tidegate.plugin.contract import Limit

BATCH = JobEnv(mode=JobMode.BATCH)


def test_a_batch_job_without_an_interval_is_one_batch() -> None:
    pace = BatchPacing.of(BATCH)
    assert pace.limit(1.0, 2) == Limit()
    assert pace.pause_s(0.0) == 0


def test_a_streaming_job_has_an_interval_even_if_none_is_given() -> None:
    assert BatchPacing.of(JobEnv(mode=JobMode.STREAMING)).interval_s == 10


def test_a_rate_limit_applies_per_reader_and_second() -> None:
    pace = BatchPacing.of(JobEnv(checkpoint_interval_ms=500, rows_per_second=1000))
    assert pace.limit(100.0, 2).rows == 1000
    assert pace.pause_s(0.1) == 0.4


def test_fixed_limits_win_over_the_adaptive_size() -> None:
    assert (
        BatchPacing.of(JobEnv(checkpoint_interval_ms=500, batch_rows_max=10)).limit(1e6, 1).rows
        == 10
    )
    assert BatchPacing.of(JobEnv(batch_bytes_max=10, batch_files_max=3)).limit(1.0, 1) == Limit(
        bytes=10, files=3
    )


def test_a_bounded_read_without_a_rate_does_not_wait() -> None:
    assert BatchPacing.of(JobEnv(checkpoint_interval_ms=500)).pause_s(0.0) == 0
    assert (
        BatchPacing.of(JobEnv(checkpoint_interval_ms=500, mode=JobMode.STREAMING)).pause_s(0.2)
        == 0.3
    )


def test_a_minimum_pause_is_kept_between_batches() -> None:
    assert (
        BatchPacing.of(JobEnv(checkpoint_interval_ms=500, checkpoint_pause_ms_min=200)).pause_s(9.0)
        == 0.2
    )
    assert (
        BatchPacing.of(JobEnv(checkpoint_interval_ms=500, checkpoint_pause_ms_min=0)).pause_s(9.0)
        == 0
    )


@given(st.lists(st.floats(0.0, 1000.0), max_size=50))
def test_the_size_stays_sane_whatever_the_durations(durations: list[float]) -> None:
    pace, scale = BatchPacing.of(JobEnv(checkpoint_interval_ms=1000)), 1.0
    for took_s in durations:
        scale = pace.rescaled(scale, took_s)
        limit = pace.limit(scale, 1)
        assert limit.rows is not None
        assert limit.rows >= 1


def test_the_size_settles_where_a_batch_takes_an_interval() -> None:
    pace, scale = BatchPacing.of(JobEnv(checkpoint_interval_ms=2000)), 1.0
    for _ in range(20):
        limit = pace.limit(scale, 1)
        assert limit.rows is not None
        scale = pace.rescaled(scale, limit.rows / 1_000_000)
    assert 0.95 < scale * FIRST_ROWS / 2_000_000 < 1.05
    assert FIRST_BYTES > 0


def test_batches_whose_fixed_cost_is_longer_than_the_interval_do_not_shrink_to_nothing() -> None:
    pace, scale, backlog = (
        BatchPacing.of(JobEnv(mode=JobMode.STREAMING, checkpoint_interval_ms=100)),
        1.0,
        1_000_000,
    )
    for _ in range(20):
        limit = pace.limit(scale, 1)
        assert limit.rows is not None
        backlog -= limit.rows
        scale = pace.rescaled(scale, 0.3 + limit.rows / 1_000_000)
    assert backlog < 0


def streaming(rows_per_second: float | None = None, pause_ms_min: int | None = None) -> BatchPacing:
    return BatchPacing.of(
        JobEnv(
            mode=JobMode.STREAMING,
            checkpoint_interval_ms=10_000,
            rows_per_second=rows_per_second,
            checkpoint_pause_ms_min=pause_ms_min,
        )
    )


def test_a_stream_with_a_backlog_continues_at_most_twice_a_second() -> None:
    assert streaming().pause_s(2.0, has_backlog=True) == 0
    assert streaming().pause_s(0.1, has_backlog=True) == BACKLOG_EVERY_S - 0.1
    assert streaming().pause_s(2.0, has_backlog=False) == 8
    assert streaming().pause_s(2.0, has_backlog=None) == 8


def test_an_interval_below_the_backlog_pause_is_kept() -> None:
    assert BatchPacing.of(JobEnv(mode=JobMode.STREAMING, checkpoint_interval_ms=300)).pause_s(
        0.1, has_backlog=True
    ) == pytest.approx(0.2)


def test_rate_limit_and_minimum_pause_apply_to_a_backlog() -> None:
    assert streaming(rows_per_second=1000).pause_s(2.0, has_backlog=True) == 8
    assert streaming(pause_ms_min=3000).pause_s(2.0, has_backlog=True) == 3


def test_only_a_backlog_makes_the_next_batch_larger() -> None:
    pace = streaming()
    assert pace.rescaled(1.0, 0.1, has_backlog=False) == 1
    assert (
        pace.rescaled(1.0, 0.1, has_backlog=True) == pace.rescaled(1.0, 0.1, has_backlog=None) == 4
    )
    assert (
        pace.rescaled(1.0, 20.0, has_backlog=False)
        == pace.rescaled(1.0, 20.0, has_backlog=True)
        == 0.5
    )
