"""Unreachable store, authentication, unknown paths, and long lists."""

import time

import pytest

from tidegate.api.running_jobs import FinishedJobsCache, RunningJobsCache
from tidegate.testing.faulty_store import Fault

JSON = {
    "env": {"job.mode": "BATCH"},
    "source": [
        {"plugin_name": "FakeSource", "plugin_output": "t", "schema": {"fields": {"id": "bigint"}}}
    ],
    "sink": [{"plugin_name": "Console", "plugin_input": "t"}],
}
READS = ("/overview", "/running-jobs", "/job-info/1", "/finished-jobs", "/health")


@pytest.mark.parametrize("path", READS)
def test_a_server_that_has_not_read_the_store_yet_rejects_reads(site, path: str) -> None:
    answer = site.http.get(path)
    assert (answer.status_code, answer.json()["status"]) == (503, "fail")


@pytest.mark.parametrize("path", READS)
def test_reads_continue_for_five_seconds_without_the_store_and_recover(site, path: str) -> None:
    site.running(1)
    assert site.get(path).status_code == 200
    site.fault = Fault.UNAVAILABLE
    site.clock.advance(4.9)
    assert site.get(path).status_code == 200
    site.clock.advance(0.2)
    answer = site.get(path)
    assert (answer.status_code, answer.json()["status"]) == (503, "fail")
    assert answer.json()["message"]
    site.fault = Fault.NONE
    assert site.get(path).status_code == 200


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.REQUEST_LOST])
def test_commands_fail_with_the_reason_while_the_store_is_unreachable(site, fault: Fault) -> None:
    site.running(5)
    site.context.catch_up()
    site.fault = fault
    for answer in (
        site.http.post("/submit-job", json=JSON),
        site.http.post("/stop-job", json={"jobId": 5}),
    ):
        assert (answer.status_code, answer.json()["status"]) == (503, "fail")
        assert answer.json()["message"]
    site.fault = Fault.NONE
    assert site.http.post("/stop-job", json={"jobId": 5}).status_code == 200
    assert site.http.post("/submit-job", json=JSON).status_code == 200


def test_metrics_show_an_unreachable_store_and_no_outdated_values(site) -> None:
    site.running(1)
    site.pipeline(1, checkpoint=3, age_s=7, rows_read=11, rows_written=10)
    site.leader()
    text = site.get("/metrics").text
    assert 'tidegate_job_checkpoint_age_seconds{job_id="1",job_name="stream"} 7\n' in text
    assert 'tidegate_job_last_checkpoint_id{job_id="1",job_name="stream"} 3\n' in text
    assert 'tidegate_job_checkpoint_health{job_id="1",job_name="stream"} 0\n' in text
    assert 'tidegate_job_rows_read_total{job_id="1",job_name="stream"} 11\n' in text
    assert 'tidegate_job_rows_written_total{job_id="1",job_name="stream"} 10\n' in text
    assert 'job_count{type="running"} 1\n' in text
    assert "tidegate_leader 1\n" in text
    assert "tidegate_store_reachable 1\n" in text
    assert 'tidegate_store_entries{map="running-job-info"} 1\n' in text
    site.fault = Fault.UNAVAILABLE
    site.clock.advance(6)
    text = site.get("/metrics").text
    assert "tidegate_store_reachable 0\n" in text
    assert "tidegate_job" not in text


def test_every_line_of_the_metrics_is_a_comment_or_a_sample(site) -> None:
    site.running(1, name='a "quoted"\nname \\ here')
    site.pipeline(1, checkpoint=1)
    site.worker("w")
    answer = site.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert r'job_name="a \"quoted\"\nname \\ here"' in answer.text
    for line in answer.text.splitlines():
        assert line.startswith("# ") or float(line.rpartition(" ")[2]) >= 0, line


def test_an_unknown_path_and_a_wrong_method_are_answered_in_json(site) -> None:
    for answer, status in (
        (site.http.get("/nowhere"), 404),
        (site.http.get("/submit-job"), 405),
        (site.http.post("/overview"), 405),
    ):
        assert (answer.status_code, answer.json()["status"]) == (status, "fail")
        assert answer.headers["content-type"].startswith("application/json")


def test_an_internal_error_is_logged_with_its_trace_and_returned_without(
    site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    site.context.catch_up()
    monkeypatch.setattr(site.cache, "jobs", lambda: 1 / 0)
    answer = site.http.get("/running-jobs")
    assert (answer.status_code, answer.json()["status"]) == (500, "fail")
    assert "ZeroDivisionError" not in answer.text
    assert any(record.exc_info for record in caplog.records)


def test_a_page_of_another_web_site_cannot_write(site) -> None:
    for origin, status in (
        ("cross-site", 403),
        ("same-site", 403),
        ("same-origin", 200),
        ("none", 200),
    ):
        assert (
            site.http.post("/submit-job", json=JSON, headers={"Sec-Fetch-Site": origin}).status_code
            == status
        ), origin


def test_basic_auth_accepts_only_the_password(guarded_site) -> None:
    guarded_site.context.catch_up()
    for auth in (None, ("ann", "wrong"), ("bob", "sesame")):
        answer = guarded_site.http.get("/flow/overview", auth=auth)
        assert (answer.status_code, answer.json()["status"]) == (401, "fail")
        assert answer.headers["www-authenticate"].startswith("Basic")
    for header in ("Basic !!!", "Bearer x", "Basic", "basic YW5u"):
        assert (
            guarded_site.http.get("/flow/overview", headers={"Authorization": header}).status_code
            == 401
        )
    assert guarded_site.http.get("/flow/overview", auth=("ann", "sesame")).status_code == 200
    assert guarded_site.http.get("/overview", auth=("ann", "sesame")).status_code == 404


def test_two_thousand_jobs_are_listed_from_cached_text(site) -> None:
    """The target is 50 ms; the limit here allows for a busy machine."""
    for job_id in range(1, 2001):
        site.running(job_id)
        site.pipeline(job_id, checkpoint=job_id)
    site.context.refresh()
    assert len(site.http.get("/running-jobs").json()) == 2000
    took_s = []
    for turn in range(10):
        site.metrics(turn + 1, rows_read=turn)
        site.context.refresh()
        began_s = time.perf_counter()
        site.http.get("/running-jobs")
        took_s.append(time.perf_counter() - began_s)
    assert min(took_s) < 0.25, took_s


def test_texts_of_deleted_jobs_are_dropped(site) -> None:
    texts = FinishedJobsCache()
    for job_id in range(1, 400):
        site.ended(job_id)
    site.context.refresh()
    for outcome in site.cache.outcomes().values():
        texts.json(outcome)
    for job_id in range(1, 399):
        site.take("finished-job-state", job_id)
    site.context.refresh()
    texts.prune(site.cache)
    assert list(texts._texts) == [399]


def test_only_changed_jobs_are_read_again(site) -> None:
    for job_id in (1, 2):
        site.running(job_id)
        site.metrics(job_id, rows_read=1, at_ms=1)
    site.context.refresh()
    board = RunningJobsCache(site.cache)
    before = {entry.job.state.job_id: entry for entry in board.entries()}
    site.metrics(1, rows_read=2, at_ms=2)
    site.metrics(2, rows_read=1, at_ms=2)
    site.context.refresh()
    after = {entry.job.state.job_id: entry for entry in board.entries()}
    assert after[1] is not before[1]
    assert after[2] is before[2]
