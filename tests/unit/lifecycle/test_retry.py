"""Budget and backoff of restarts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.lifecycle.retry import (
    Exhausted,
    Retry,
    backoff_ms,
    backoff_ms_max,
    has_progressed,
    next_retry,
)
from tidegate.model.records import PipelineStatus


@given(times=st.integers(0, 20))
def test_without_progress_there_are_exactly_as_many_restarts_as_allowed(times: int) -> None:
    restarts = 0
    while isinstance(retry := next_retry(restarts=restarts, times=times, progressed=False), Retry):
        assert (retry.number, retry.healed) == (restarts + 1, False)
        restarts = retry.number
    assert retry == Exhausted(times)
    assert restarts == times


@given(restarts=st.integers(0, 100), times=st.integers(1, 20))
def test_a_job_with_progress_may_restart_without_limit(restarts: int, times: int) -> None:
    assert next_retry(restarts=restarts, times=times, progressed=True) == Retry(1, True)


def test_a_job_without_retries_has_none_however_well_it_went() -> None:
    assert next_retry(restarts=0, times=0, progressed=True) == Exhausted(0)


@given(interval_s=st.floats(0, 1e5), number=st.integers(1, 10**6))
def test_the_pause_doubles_up_to_eight_times_the_interval(interval_s: float, number: int) -> None:
    first = int(interval_s * 1000)
    assert backoff_ms(interval_s, 1) == first
    assert (
        first
        <= backoff_ms(interval_s, number)
        <= backoff_ms(interval_s, number + 1)
        <= backoff_ms_max(interval_s)
    )
    assert backoff_ms(interval_s, 4) == backoff_ms_max(interval_s) == int(interval_s * 8000)


def test_the_first_pauses_are_as_written_in_the_docs() -> None:
    assert [backoff_ms(3, number) for number in range(6)] == [
        0,
        3_000,
        6_000,
        12_000,
        24_000,
        24_000,
    ]


def test_a_checkpoint_of_this_generation_is_progress_and_one_of_an_older_is_not(make) -> None:
    assert has_progressed(
        make.driver(), make.generation, [make.pipeline(retained=(make.checkpoint(),))]
    )
    assert not has_progressed(
        make.driver(),
        make.generation,
        [make.pipeline(retained=(make.checkpoint(make.generation - 1),))],
    )


def test_finding_nothing_to_read_is_progress_if_this_driver_found_it(make) -> None:
    driver = make.driver()
    assert has_progressed(
        driver, make.generation, [make.pipeline(confirmed_ms=driver.started_ms - 1)]
    ), "clocks of hosts are not compared"
    assert not has_progressed(driver, make.generation, [make.pipeline(confirmed_ms=0)])


def test_progress_needs_every_pipeline(make) -> None:
    thrives, kills = make.pipeline(retained=(make.checkpoint(),)), make.pipeline(number=2)
    assert not has_progressed(make.driver(), make.generation, [thrives, kills])


@pytest.mark.parametrize("status", [PipelineStatus.CREATED, PipelineStatus.FINISHED])
def test_queued_and_finished_pipelines_do_not_prevent_progress(make, status) -> None:
    assert has_progressed(
        make.driver(),
        make.generation,
        [make.pipeline(retained=(make.checkpoint(),)), make.pipeline(status, 2)],
    )


def test_what_an_earlier_generation_has_finished_is_no_progress_of_this_one(make) -> None:
    earlier = make.pipeline(
        PipelineStatus.FINISHED, retained=(make.checkpoint(make.generation - 1),)
    )
    waits = make.pipeline(PipelineStatus.CREATED, 2)
    assert not has_progressed(make.driver(), make.generation, [earlier, waits])
    assert has_progressed(
        make.driver(),
        make.generation,
        [make.pipeline(PipelineStatus.FINISHED, retained=(make.checkpoint(),)), waits],
    )


def test_a_generation_without_a_driver_or_a_pipeline_has_done_nothing(make) -> None:
    done = [make.pipeline(retained=(make.checkpoint(),))]
    assert not has_progressed(None, make.generation, done)
    assert not has_progressed(make.driver(generation=make.generation - 1), make.generation, done)
    assert not has_progressed(
        make.driver(), make.generation, [make.pipeline(PipelineStatus.CREATED)]
    )
