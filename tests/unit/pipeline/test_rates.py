"""Rates: committed rows over a sliding window, on a monotonic clock."""

import threading

import pytest

from tidegate.model.records import CheckpointRef, PipelineState
from tidegate.model.throughput import Volume
from tidegate.pipeline.progress import PipelineProgress
from tidegate.pipeline.rates import WINDOW_S


class ManualClock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.wall_ms = 1_700_000_000_000
        self.at_s = 100.0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic_s(self) -> float:
        return self.at_s

    def wait(self, event: threading.Event, seconds: float) -> bool:  # noqa: ARG002  # protocol
        raise AssertionError

    def turn(self, seconds: float) -> None:
        self.at_s += seconds
        self.wall_ms += int(seconds * 1000)


class Pipeline:
    """A driver's progress over a state that outlives it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.state = PipelineState(job_id=7, pipeline=1, lineage="7-1", generation=0)
        self.start()

    def start(self) -> None:
        self.state = _with(self.state, generation=self.state.generation + 1)
        self.progress = PipelineProgress(1, self.state.generation, self.clock)
        self.progress.restored(self.state)

    def batch(self, rows: int, took_s: float, **tables: int) -> None:
        begun_ms = self.clock.now_ms()
        self.clock.turn(took_s)
        volumes = (
            {"source": {table: Volume(count, count * 10) for table, count in tables.items()}}
            if tables
            else {}
        )
        ref = CheckpointRef(
            checkpoint=len(self.state.retained) + 1,
            path="",
            generation=self.state.generation,
            begun_ms=begun_ms,
            completed_ms=self.clock.now_ms(),
            rows_read=rows,
            rows_written=rows,
            volumes=volumes,
        )
        self.state = _with(self.state, retained=(*self.state.retained, ref)[-3:])
        self.progress.completed(self.state)

    def rate(self) -> float | None:
        rates = self.progress.read().rates
        return rates.rows_written if rates else None


def _with(state: PipelineState, **changes: object) -> PipelineState:
    from dataclasses import replace

    return replace(state, **changes)  # type: ignore[arg-type]  # fields of it


def test_there_is_no_rate_before_the_first_checkpoint() -> None:
    pipeline = Pipeline()
    pipeline.clock.turn(20)
    assert pipeline.rate() is None


def test_a_steady_stream_has_a_constant_rate() -> None:
    pipeline = Pipeline()
    for _ in range(12):
        pipeline.batch(20_000, 10)
        assert pipeline.rate() == pytest.approx(2_000)


def test_an_idle_pipeline_has_the_rate_zero_not_an_average() -> None:
    pipeline = Pipeline()
    pipeline.batch(1_000_000, 10)
    for _ in range(4):
        pipeline.clock.turn(10)
        pipeline.progress.idle()
    assert pipeline.rate() == 0


def test_a_pipeline_that_hangs_falls_to_zero() -> None:
    pipeline = Pipeline()
    pipeline.batch(10_000, 5)
    pipeline.batch(10_000, 5)
    pipeline.clock.turn(6)
    assert pipeline.rate() == pytest.approx(2_000), "the next batch is not overdue yet"
    pipeline.clock.turn(WINDOW_S + 10)
    assert pipeline.rate() == 0


def test_rare_checkpoints_do_not_make_the_rate_flicker() -> None:
    pipeline = Pipeline()
    for _ in range(3):
        pipeline.batch(600_000, 600)
    for _ in range(6):
        pipeline.clock.turn(100)
        assert pipeline.rate() == pytest.approx(1_000)


def test_a_killed_driver_leaves_the_rate_as_it_was() -> None:
    pipeline = Pipeline()
    for _ in range(8):
        pipeline.batch(4_000, 2)
    pipeline.start()  # killed; the next one begins at once and repeats the batch
    assert pipeline.rate() is None
    pipeline.batch(4_000, 2)
    assert pipeline.rate() == pytest.approx(2_000)
    pipeline.clock.turn(3)
    pipeline.start()  # once more, with a pause in which nothing was read
    pipeline.batch(10_000, 2)
    assert pipeline.rate() == pytest.approx(2_000, rel=0.15)


def test_a_very_short_first_batch_does_not_inflate_the_rate() -> None:
    pipeline = Pipeline()
    pipeline.batch(2_000, 0.001)
    assert pipeline.rate() == pytest.approx(2_000)


def test_what_was_committed_before_a_long_stop_does_not_count() -> None:
    pipeline = Pipeline()
    for _ in range(5):
        pipeline.batch(50_000, 1)
    pipeline.clock.turn(3_600)
    pipeline.start()
    pipeline.batch(2_000, 2)
    assert pipeline.rate() == pytest.approx(1_000)


@pytest.mark.parametrize("jump_s", [-86_400, -5, 5, 86_400])
def test_a_step_of_the_wall_clock_changes_no_rate(jump_s: int) -> None:
    pipeline = Pipeline()
    for _ in range(10):
        pipeline.batch(4_000, 2)
    pipeline.clock.wall_ms += jump_s * 1_000
    pipeline.batch(4_000, 2)
    assert pipeline.rate() == pytest.approx(2_000)
    pipeline.clock.wall_ms += jump_s * 1_000
    pipeline.start()
    pipeline.batch(4_000, 2)
    rate = pipeline.rate()
    assert rate is not None
    assert 0 < rate <= 2_000 * 1.01


def test_rates_are_reported_by_operator_and_table() -> None:
    pipeline = Pipeline()
    pipeline.batch(300, 10, a=100, b=200, c=0)
    rates = pipeline.progress.read().rates
    assert rates is not None
    assert {table: rate.rows for table, rate in rates.operators["source"].items()} == {
        "a": 10,
        "b": 20,
    }
    assert rates.operators["source"]["b"].bytes == 200
