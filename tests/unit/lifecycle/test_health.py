"""OK, LATE, STALLED, and why."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.lifecycle.health import (
    START_MS,
    PipelineSignals,
    ProgressPolicy,
    displayed_age_ms,
    explain,
    health_of,
    is_starting,
    job_health,
    pipeline_health,
    progress_marker,
)
from tidegate.lifecycle.observation import JobHealth
from tidegate.model.engine import CheckpointSettings
from tidegate.model.job import JobEnv, JobMode
from tidegate.model.records import (
    CheckpointHealth,
    CheckpointRef,
    PendingBatch,
    PipelineMetrics,
    PipelineState,
    PipelineStatus,
)

OK, LATE, STALLED = CheckpointHealth.OK, CheckpointHealth.LATE, CheckpointHealth.STALLED
TEN = ProgressPolicy(interval_ms=10_000, timeout_ms=30_000)  # late after 40 s, stalled after 60 s
SINGLE = ProgressPolicy(interval_ms=None, timeout_ms=30_000)


@pytest.fixture
def signs(make):
    """A pipeline in a phase, without progress for so long."""

    def at(
        phase: str = "writing", age_ms: int = 0, *, generation: int = make.generation, **fields
    ) -> PipelineSignals:
        metrics = PipelineMetrics(pipeline=1, generation=generation, phase=phase)
        return PipelineSignals(
            **{"state": make.pipeline(), "metrics": metrics, "age_ms": age_ms, **fields}
        )

    return at


# --- the rhythm


@given(
    interval=st.none() | st.integers(1, 10**7),
    timeout=st.integers(1, 10**7),
    tolerable=st.integers(0, 10),
)
def test_late_never_comes_after_stalled_and_health_only_gets_worse_with_age(
    interval, timeout, tolerable
) -> None:
    rhythm = ProgressPolicy(interval_ms=interval, timeout_ms=timeout, tolerable_failures=tolerable)
    assert rhythm.late_ms <= rhythm.window_ms == max(interval or 0, timeout) * (tolerable + 2)
    levels = [
        rhythm.level(age) for age in (0, rhythm.late_ms, rhythm.window_ms, rhythm.window_ms + 1)
    ]
    assert levels == sorted(levels, key=[OK, LATE, STALLED].index)
    assert (levels[0], levels[1], levels[3]) == (OK, OK, STALLED)


def test_the_progress_policy_uses_the_jobs_values_else_the_engines() -> None:
    engine = CheckpointSettings(interval_ms=7_000, timeout_ms=9_000, tolerable_failures=1)
    streaming, batch = JobEnv(mode=JobMode.STREAMING), JobEnv(mode=JobMode.BATCH)
    assert ProgressPolicy.of(streaming, engine) == ProgressPolicy(
        interval_ms=7_000, timeout_ms=9_000, tolerable_failures=1
    )
    assert ProgressPolicy.of(streaming, CheckpointSettings()).interval_ms == 10_000
    assert (
        ProgressPolicy.of(
            replace(streaming, checkpoint_interval_ms=1_000, checkpoint_timeout_ms=2_000), engine
        ).late_ms
        == 3_000
    )
    assert ProgressPolicy.of(batch, engine).interval_ms is None
    assert (
        ProgressPolicy.of(replace(batch, checkpoint_pause_ms_min=50_000), engine).interval_ms
        is None
    )
    assert ProgressPolicy.of(
        replace(batch, checkpoint_interval_ms=5_000, pipeline_concurrency=2), engine
    ) == ProgressPolicy(interval_ms=5_000, timeout_ms=9_000, tolerable_failures=1, concurrency=2)


def test_a_pause_between_batches_that_is_longer_than_the_interval_counts_as_the_interval() -> None:
    env = JobEnv(
        mode=JobMode.STREAMING, checkpoint_interval_ms=1_000, checkpoint_pause_ms_min=50_000
    )
    assert ProgressPolicy.of(env, CheckpointSettings()).interval_ms == 50_000


# --- one pipeline


@pytest.mark.parametrize(
    ("age_ms", "level"),
    [(0, OK), (40_000, OK), (40_001, LATE), (60_000, LATE), (60_001, STALLED), (10**9, STALLED)],
)
def test_a_pipeline_is_as_healthy_as_its_last_progress_is_young(signs, age_ms, level) -> None:
    assert pipeline_health(TEN, signs("writing", age_ms)).level is level


@pytest.mark.parametrize(
    ("phase", "reason"),
    [
        ("planning", "source unreachable: the source has not reported what to read"),
        ("writing", "batch too long: its rows are being read and staged"),
        ("committing", "sink blocked: the sink has not committed"),
        ("publishing", "store unreachable: the checkpoint storage has not stored it"),
        ("finishing", "sink blocked: the sink has not closed"),
        ("waiting", "no trigger: the loop starts no batch"),
        ("idle", "no trigger: the loop starts no batch"),
        ("retrying", "attempts fail: every attempt has failed"),
    ],
)
def test_the_phase_determines_the_stall_cause(signs, phase, reason) -> None:
    assert pipeline_health(TEN, signs(phase, 50_000)) == JobHealth(LATE, reason)


def test_the_reason_names_the_checkpoint_and_the_last_error(make, signs) -> None:
    pending = PendingBatch(checkpoint=12, ranges={}, generation=make.generation, begun_ms=1)
    state = make.pipeline(pending=pending, error=make.failure("connection refused"))
    assert (
        pipeline_health(TEN, signs("committing", 70_000, state=state)).reason
        == "sink blocked: checkpoint 12: the sink has not committed; last error: connection refused"
    )


def test_a_reason_does_not_change_while_nothing_changes(signs) -> None:
    assert pipeline_health(TEN, signs("writing", 70_000)) == pipeline_health(
        TEN, signs("writing", 7_000_000)
    )


@pytest.mark.parametrize("phase", ["", "restoring", "starting"])
def test_a_pipeline_that_starts_has_the_start_window_too(signs, phase) -> None:
    assert pipeline_health(TEN, signs(phase, START_MS + 40_000)) == JobHealth()
    assert pipeline_health(TEN, signs(phase, START_MS + 40_001)) == JobHealth(
        LATE, "starting: the pipeline has not started yet"
    )
    assert pipeline_health(TEN, signs(phase, START_MS + 60_001)).level is STALLED


def test_a_single_batch_that_does_not_even_start_is_stalled(signs) -> None:
    assert pipeline_health(SINGLE, signs("restoring", START_MS + 60_001)).level is STALLED


def test_metrics_of_an_older_generation_mean_starting(make, signs) -> None:
    assert is_starting(make.pipeline(), signs("writing", generation=make.generation - 1).metrics)
    assert is_starting(make.pipeline(), None)
    assert is_starting(make.pipeline(PipelineStatus.CREATED), signs("idle").metrics)
    assert not is_starting(make.pipeline(), signs("idle").metrics)


@pytest.mark.parametrize("phase", ["", "restoring"])
def test_a_checkpoint_of_this_generation_ends_the_start_before_the_phase_says_so(
    make, signs, phase
) -> None:
    state = make.pipeline()
    ref = CheckpointRef(
        checkpoint=1, path="1", generation=state.generation, begun_ms=1, completed_ms=2
    )
    assert not is_starting(replace(state, retained=(ref,)), signs(phase).metrics)
    assert is_starting(replace(state, retained=(ref,)), signs("starting").metrics)
    earlier = replace(ref, generation=state.generation - 1)
    assert is_starting(replace(state, retained=(earlier,)), signs(phase).metrics)


@pytest.mark.parametrize(
    "status", [PipelineStatus.FINISHED, PipelineStatus.CANCELED, PipelineStatus.FAILED]
)
def test_a_pipeline_that_has_ended_is_not_checked(make, signs, status) -> None:
    assert (
        pipeline_health(TEN, signs("idle", 10**9, silent_ms=10**9, state=make.pipeline(status)))
        == JobHealth()
    )


def test_a_single_batch_may_take_any_time_while_the_driver_sends_heartbeats(signs) -> None:
    assert pipeline_health(SINGLE, signs("writing", 10**9)) == JobHealth()
    assert pipeline_health(SINGLE, signs("writing", 10**9, silent_ms=30_001)).level is LATE
    assert pipeline_health(SINGLE, signs("writing", 10**9, silent_ms=60_001)).level is STALLED


def test_the_reason_for_silence_depends_on_supervision(signs) -> None:
    seen = pipeline_health(TEN, signs("writing", 70_000, silent_ms=70_000))
    assert seen == JobHealth(
        STALLED,
        "store unreachable: the driver's process runs, but none of its writes reaches the store",
    )
    unseen = pipeline_health(TEN, signs("writing", 0, silent_ms=70_000, observed=False))
    assert unseen == JobHealth(
        STALLED, "driver gone: it sends no heartbeat, and no worker can see it"
    )


def test_a_short_silence_does_not_hide_a_worse_reason(signs) -> None:
    assert pipeline_health(TEN, signs("committing", 70_000, silent_ms=50_000)).reason.startswith(
        "sink blocked"
    )


# --- a job


def test_a_job_is_as_healthy_as_its_worst_pipeline_and_names_it(make, signs) -> None:
    second = signs("committing", 70_000, state=make.pipeline(number=2))
    assert job_health(TEN, [signs("idle"), second]) == JobHealth(
        STALLED, "pipeline 2: sink blocked: the sink has not committed"
    )
    assert job_health(TEN, [signs("committing", 70_000)]) == JobHealth(
        STALLED, "sink blocked: the sink has not committed"
    )
    assert job_health(TEN, [signs("idle"), signs("idle")]) == JobHealth()
    assert job_health(TEN, []) == JobHealth()


def test_a_pipeline_that_waits_for_its_turn_is_healthy(make, signs) -> None:
    waits = signs("", 10**9, state=make.pipeline(PipelineStatus.CREATED, 2))
    assert job_health(replace(TEN, concurrency=1), [signs("writing"), waits]) == JobHealth()
    assert job_health(replace(TEN, concurrency=2), [signs("writing"), waits]).level is STALLED
    assert (
        job_health(
            replace(TEN, concurrency=1),
            [signs("writing", state=make.pipeline(PipelineStatus.FINISHED)), waits],
        ).level
        is STALLED
    )


def test_the_health_of_a_job_comes_from_its_records_and_ages(make, signs) -> None:
    env = JobEnv(mode=JobMode.STREAMING)
    metrics = {1: signs("writing").metrics}
    assert health_of(
        env, CheckpointSettings(), [make.pipeline()], metrics, {1: 50_000}
    ) == JobHealth(LATE, "batch too long: its rows are being read and staged")
    gone = health_of(
        env, CheckpointSettings(), [make.pipeline()], metrics, {1: 0}, {1: 61_000}, observed=False
    )
    assert gone.reason.startswith("driver gone")
    assert health_of(
        env, CheckpointSettings(), [make.pipeline()], {}, {1: 50_000}, start_ms=0
    ).reason.startswith("starting")


# --- ages


def test_the_age_begins_anew_with_a_checkpoint_a_confirmation_and_the_end_of_the_start(
    make, signs
) -> None:
    state, writing, restoring = (
        make.pipeline(),
        signs("writing").metrics,
        signs("restoring").metrics,
    )
    before = progress_marker(state, writing)
    assert (
        progress_marker(state, replace(writing, phase="committing", rows_read=5, at_ms=7)) == before
    )
    for other in (
        replace(state, checkpoints=1),
        replace(state, confirmed_ms=1),
        replace(state, generation=9),
        replace(state, status=PipelineStatus.FINISHED),
    ):
        assert progress_marker(other, writing) != before
    assert progress_marker(state, restoring) != before


def test_the_age_that_is_shown_is_of_the_last_checkpoint_or_confirmation(make) -> None:
    assert displayed_age_ms(make.pipeline(), 10**6) is None
    checkpoint = make.checkpoint()
    assert displayed_age_ms(make.pipeline(retained=(checkpoint,)), checkpoint.completed_ms + 5) == 5
    assert (
        displayed_age_ms(
            make.pipeline(retained=(checkpoint,), confirmed_ms=checkpoint.completed_ms + 3),
            checkpoint.completed_ms + 5,
        )
        == 2
    )
    assert displayed_age_ms(make.pipeline(confirmed_ms=10), 5) == 0


def test_the_hosts_report_replaces_the_reason() -> None:
    late = JobHealth(
        CheckpointHealth.LATE, "store unreachable: none of its writes reaches the store"
    )
    assert explain(late, "the driver's process 7 is stopped") == JobHealth(
        CheckpointHealth.LATE, "driver blocked: the driver's process 7 is stopped"
    )
    assert explain(late, "") == late
    assert explain(JobHealth(), "the driver's process 7 is stopped") == JobHealth()


def test_a_start_that_waits_for_a_cluster_names_it() -> None:
    state = PipelineState(
        job_id=7, pipeline=1, lineage="l", generation=2, status=PipelineStatus.RUNNING
    )
    metrics = PipelineMetrics(
        pipeline=1,
        generation=2,
        phase="starting",
        waits_for="YARN: application_1 is ACCEPTED, no container granted",
    )
    rhythm = ProgressPolicy(interval_ms=1000, timeout_ms=1000, start_ms=1000)
    health = pipeline_health(
        rhythm, PipelineSignals(state=state, metrics=metrics, age_ms=2500 + 1000)
    )
    assert health == JobHealth(
        CheckpointHealth.STALLED, "starting: YARN: application_1 is ACCEPTED, no container granted"
    )


def test_what_the_driver_waits_for_is_the_reason(signs, make) -> None:
    full = "the checkpoint storage /checkpoints is full (no space left): make room"
    metrics = PipelineMetrics(
        pipeline=1, generation=make.generation, phase="publishing", waits_for=full
    )
    assert pipeline_health(TEN, signs("publishing", 61_000, metrics=metrics)) == JobHealth(
        STALLED, f"store unreachable: {full}"
    )
    assert (
        full
        not in pipeline_health(
            TEN,
            signs("publishing", 61_000, metrics=replace(metrics, generation=make.generation - 1)),
        ).reason
    )
