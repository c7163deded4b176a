"""Metrics for scrapers: complete, documented, and in a format that strict parsers accept."""

import re
from pathlib import Path

import pytest

from tidegate.api.job_metrics import FAMILIES
from tidegate.model.log_retention import LogRetentionMetric, RetentionLevel
from tidegate.model.maintenance import COLLECTOR, LAST_PASS_KEY, CollectorReport
from tidegate.model.records import (
    PENDING_CLEANUPS,
    PIPELINES,
    CheckpointHealth,
    CheckpointRef,
    CleanupRecord,
    JobStatus,
    PipelineState,
)
from tidegate.model.throughput import PipelineRates, Rate
from tidegate.testing.faulty_store import Fault

NOW_MS = 1_790_000_000_000
SAMPLE = re.compile(
    r'([a-z_][a-z0-9_]*)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (-?[0-9.]+)'
)
DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


def families(text: str, *, open_format: bool = False) -> dict[str, dict[str, float]]:
    """By name, what a strict reader finds: head, kind and samples of a family together, no sample
    twice.
    """
    found: dict[str, dict[str, float]] = {}
    kinds: dict[str, str] = {}
    lines = text.removesuffix("# EOF\n").splitlines()
    assert text.endswith("\n")
    family = ""
    for line in lines:
        if line.startswith("# HELP "):
            family, _, words = line.removeprefix("# HELP ").partition(" ")
            assert family not in found, f"{family} comes twice"
            assert words
            found[family] = {}
        elif line.startswith("# TYPE "):
            name, kinds[family] = line.removeprefix("# TYPE ").split(" ")
            assert (name, found[family]) == (family, {})
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            assert match[1] == (
                f"{family}_total" if open_format and kinds[family] == "counter" else family
            ), line
            assert kinds[family] in ("gauge", "counter")
            assert (match[2] or "") not in found[family], line
            found[family][match[2] or ""] = float(match[3])
    assert all(found.values())
    return found


@pytest.fixture
def busy(site):
    """A server with jobs, workers, cleanups and a collector report."""
    site.running(
        7,
        name='a "quoted"\nname \\ here',
        restarts=2,
        restarts_total=5,
        health=CheckpointHealth.LATE,
    )
    refs = tuple(
        CheckpointRef(
            checkpoint=n,
            path="p",
            generation=1,
            begun_ms=NOW_MS - 9_500,
            completed_ms=NOW_MS - 9_000,
            bytes=100 * n,
        )
        for n in (1, 2)
    )
    figures = {"rows_read": 11, "rows_written": 10, "checkpoints": 2}
    site.put(
        PIPELINES,
        "7/1",
        PipelineState(job_id=7, pipeline=1, lineage="l", generation=1, retained=refs, **figures),
    )
    log_retention = (
        LogRetentionMetric(source="a", level=RetentionLevel.LOW, seconds_left=90.5, bytes_left=500),
        LogRetentionMetric(source="b", seconds_left=3600, bytes_left=None),
    )
    rates = PipelineRates(
        rows_read=2.5,
        rows_written=2,
        operators={
            "Source[0]-FakeSource": {"db.t": Rate(2.5, 20)},
            "Sink[0]-Console": {"db.t": Rate(2, 16)},
        },
    )
    site.metrics(
        7, rows_read=15, done=3, total=10, unit="files", log_retention=log_retention, rates=rates
    )
    site.running(8, JobStatus.PENDING)
    site.ended(9, JobStatus.FAILED)
    site.worker("w")
    site.leader()
    for job_id, due_ms, attempts in ((9, NOW_MS - 4_000, 1), (10, NOW_MS + 1_000, 0)):
        site.put(
            PENDING_CLEANUPS,
            job_id,
            CleanupRecord(job_id=job_id, initialization_ms=1, due_ms=due_ms, attempts=attempts),
        )
    report = CollectorReport(
        at_ms=NOW_MS - 30_000,
        took_ms=1_500,
        bytes={"live": 10, "orphan": 5},
        units={"live": 2},
        due=1,
        deleted=3,
        quota_bytes=1_000,
    )
    site.put(COLLECTOR, LAST_PASS_KEY, report)
    return site


def test_every_job_has_its_metrics(busy) -> None:
    found = families(busy.get("/metrics").text)
    job = r'job_id="7",job_name="a \"quoted\"\nname \\ here"'
    values = {name: samples[job] for name, samples in found.items() if job in samples}
    assert values == {
        "tidegate_job_checkpoint_age_seconds": 9,
        "tidegate_job_checkpoint_health": 1,
        "tidegate_job_restorable": 1,
        "tidegate_job_last_checkpoint_id": 2,
        "tidegate_job_checkpoint_duration_seconds": 0.5,
        "tidegate_job_checkpoint_bytes": 200,
        "tidegate_job_checkpoints_retained": 2,
        "tidegate_job_checkpoints_retained_bytes": 300,
        "tidegate_job_checkpoints_total": 2,
        "tidegate_job_generation": 1,
        "tidegate_job_restarts": 5,
        "tidegate_job_restarts_without_progress": 2,
        "tidegate_job_rows_uncommitted": 4,
        "tidegate_job_runway_level": 1,
        "tidegate_job_runway_seconds": 90.5,
        "tidegate_job_runway_bytes": 500,
        "tidegate_job_rows_read_total": 11,
        "tidegate_job_rows_written_total": 10,
        "tidegate_job_bytes_read_total": 0,
        "tidegate_job_bytes_written_total": 0,
        "tidegate_job_rows_read_per_second": 2.5,
        "tidegate_job_rows_written_per_second": 2,
        "tidegate_job_bytes_read_per_second": 20,
        "tidegate_job_bytes_written_per_second": 16,
    }
    assert found["tidegate_job_lag"] == {f'{job},unit="files"': 7}
    assert found["tidegate_job_status"] == {
        f'{job},status="RUNNING"': 1,
        'job_id="8",job_name="stream",status="PENDING"': 1,
    }


def test_the_installation_has_its_metrics(busy) -> None:
    found = families(busy.get("/metrics").text)
    assert found["tidegate_store_bytes"]['map="running-job-info"'] > 0
    assert found["tidegate_store_entries"]['map="finished-job-state"'] == 1
    single = {name: samples[""] for name, samples in found.items() if "" in samples}
    assert {
        name: single[name]
        for name in single
        if "cleanup" in name or "collector" in name or "quota" in name
    } == {
        "tidegate_cleanup_pending": 2,
        "tidegate_cleanup_due": 1,
        "tidegate_cleanup_late_seconds": 4,
        "tidegate_cleanup_failing": 1,
        "tidegate_collector_pass_age_seconds": 30,
        "tidegate_collector_pass_duration_seconds": 1.5,
        "tidegate_collector_due": 1,
        "tidegate_collector_moved": 0,
        "tidegate_collector_deleted": 3,
        "tidegate_collector_failures": 0,
        "tidegate_checkpoint_storage_quota_bytes": 1000,
    }
    assert found["tidegate_checkpoint_storage_bytes"] == {'kind="live"': 10, 'kind="orphan"': 5}
    assert (
        found["job_count"]['type="pending"'],
        found["job_count"]['type="failed"'],
        found["job_count"]['type="running"'],
    ) == (1, 1, 1)


def test_both_formats_have_the_same_metrics(busy) -> None:
    plain, opened = busy.get("/metrics").text, busy.get("/openmetrics").text
    assert opened.count("# EOF") == 1
    strict = families(opened, open_format=True)
    assert strict == {
        name.removesuffix("_total"): samples for name, samples in families(plain).items()
    }


def test_metrics_follow_changes_and_drop_ended_jobs(busy) -> None:
    busy.get("/metrics")
    busy.running(8, JobStatus.RUNNING, name="other")
    assert (
        'job_id="8",job_name="other",status="RUNNING"'
        in families(busy.get("/metrics").text)["tidegate_job_status"]
    )
    busy.clock.advance(1)
    assert 10 in families(busy.get("/metrics").text)["tidegate_job_checkpoint_age_seconds"].values()
    busy.running(8, JobStatus.CANCELED)
    assert 'job_id="8"' not in busy.get("/metrics").text


def test_a_store_that_cannot_be_counted_lacks_only_its_own_metrics(busy) -> None:
    busy.context.catch_up()
    busy.fault = Fault.UNAVAILABLE
    found = families(busy.http.get("/metrics").text)
    assert "tidegate_store_bytes" not in found
    assert found["tidegate_job_restarts"]
    busy.fault = Fault.NONE
    assert "tidegate_store_bytes" in families(busy.http.get("/metrics").text)


def test_every_metric_is_documented(busy) -> None:
    named = set(re.findall(r"`([a-z_]+)`", DOCUMENT.read_text()))
    assert not {*FAMILIES, *families(busy.get("/metrics").text)} - named
