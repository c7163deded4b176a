"""The display of a run: text, JSON and summary."""

import json

import pytest

from tidegate.cli.display import JsonDisplay, PlainDisplay, duration, rate, summary
from tidegate.cli.job_display import JobDisplay, PipelineView, job_view
from tidegate.coordinator.job_snapshot import JobSnapshot, Stored
from tidegate.model.records import (
    CheckpointRef,
    Failure,
    JobOutcome,
    JobState,
    JobStatus,
    PipelineMetrics,
    PipelineState,
    PipelineStatus,
)
from tidegate.model.throughput import PipelineRates

REF = CheckpointRef(checkpoint=4, path="7/1/4", generation=1, begun_ms=1000, completed_ms=2000)
STATE = PipelineState(
    job_id=7,
    pipeline=1,
    lineage="l",
    generation=2,
    status=PipelineStatus.RUNNING,
    retained=(REF,),
    rows_read=100,
    rows_written=90,
    confirmed_ms=5000,
)
KNOWN = JobSnapshot(
    job_id=7,
    record=None,
    state=Stored(JobState(job_id=7, status=JobStatus.RUNNING, generation=2), 1),
    pipelines=(Stored(STATE, 1),),
    outcome=None,
)


def view(elapsed_s: float = 6.0) -> JobDisplay:
    metrics = {
        1: PipelineMetrics(
            pipeline=1,
            generation=2,
            phase="writing",
            rows_read=150,
            rows_written=140,
            done=150,
            total=600,
            unit="rows",
        )
    }
    return job_view(KNOWN, metrics, name="orders", started_s=0, now_s=elapsed_s, now_ms=35_000)


def outcome(status: JobStatus) -> JobOutcome:
    failures = (
        (Failure(at_ms=1, generation=1, message="disk full", condition="disk"),)
        if status is JobStatus.FAILED
        else ()
    )
    return JobOutcome(
        job_id=7,
        name="orders",
        initialization_ms=1,
        lineage="l",
        status=status,
        finished_ms=9,
        rows_read=1234,
        rows_written=1200,
        checkpoints=1,
        failures=failures,
    )


def test_the_view_shows_progress_and_checkpoint_age() -> None:
    (pipeline,) = view().pipelines
    assert (
        pipeline.rows_read,
        pipeline.rows_written,
        pipeline.checkpoint,
        pipeline.checkpoint_age_s,
        pipeline.phase,
    ) == (150, 140, 4, 30.0, "writing")


def test_there_is_a_view_before_any_metrics() -> None:
    (pipeline,) = job_view(KNOWN, {}, name="orders", started_s=0, now_s=0, now_ms=6000).pipelines
    assert (pipeline.rows_read, pipeline.phase) == (100, "starting")


def test_the_rate_is_the_drivers() -> None:
    measured = PipelineMetrics(
        pipeline=1, generation=2, rates=PipelineRates(rows_read=1234.5, rows_written=1)
    )
    (pipeline,) = job_view(
        KNOWN, {1: measured}, name="orders", started_s=0, now_s=0, now_ms=6000
    ).pipelines
    assert (pipeline.rows_per_second, rate(pipeline)) == (1234.5, "1,234")
    (starting,) = job_view(KNOWN, {}, name="orders", started_s=0, now_s=0, now_ms=6000).pipelines
    assert (starting.rows_per_second, rate(starting)) == (None, "\u2013")


def test_plain_lines_are_printed_periodically(capsys: pytest.CaptureFixture[str]) -> None:
    display = PlainDisplay()
    for tenth in range(0, 120):
        display.update(view(tenth / 10))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "pipeline 1 writing: 150 rows in, 140 out" in lines[0]
    assert "checkpoint 4 30 s ago" in lines[0]
    assert "25% of 600 rows" in lines[0]


def test_json_lines_are_printed_only_on_changes(capsys: pytest.CaptureFixture[str]) -> None:
    display = JsonDisplay()
    for tenth in range(10):
        display.update(view(tenth / 10))
    display.row("1, a")
    display.end(outcome(JobStatus.FAILED), 2.0, "/logs")
    progress, row, end = map(json.loads, capsys.readouterr().out.splitlines())
    assert (progress["event"], progress["pipelines"][0]["checkpoint"]) == ("progress", 4)
    assert row == {"event": "row", "line": "1, a"}
    assert (end["status"], end["failures"][0]["condition"], end["log"]) == (
        "FAILED",
        "disk",
        "/logs",
    )


def test_the_summary_has_result_and_advice() -> None:
    assert (
        summary(outcome(JobStatus.FINISHED), 3.25, "/logs")[1]
        == "  read 1,234 rows, committed 1,200, failed 0, in 3.2 s, 1 checkpoint"
    )
    failed = "\n".join(
        summary(outcome(JobStatus.FAILED), 1, "/logs", "continue with: this command")
    )
    for words in ("FAILED", "disk full", "/logs", "continue with: this command"):
        assert words in failed
    assert "continue" not in "\n".join(summary(outcome(JobStatus.CANCELED), 1, "/logs"))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.96, "10.0 s"), (59.9, "59 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")],
)
def test_durations_are_human_readable(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_pipeline_without_a_total_shows_no_share() -> None:
    pipeline = PipelineView(
        pipeline=1,
        status="",
        phase="idle",
        rows_read=1,
        rows_written=1,
        rows_per_second=0,
        checkpoint=0,
        checkpoint_age_s=None,
        done=0,
        total=0,
        unit="",
        restarts=0,
    )
    from tidegate.cli.display import describe_pipeline

    assert describe_pipeline(pipeline) == "pipeline 1 idle: 1 rows in, 1 out, 0/s"
