"""Listing many jobs costs what is shown and what has changed, and equals a fresh rendering."""

from typing import Any

import pytest

from tidegate.api.job_index import matching
from tidegate.api.running_jobs import RunningJobsCache
from tidegate.api.v1.jobs import job_of
from tidegate.model.records import JOB_OUTCOMES, RUNNING_JOBS, JobStatus
from tidegate.store.follow import CachedEntry

NOW_MS = 1_790_000_000_000


@pytest.fixture
def peeks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the keys of the outcomes that are read."""
    asked: list[str] = []
    whole = CachedEntry.peek

    def counted(seen: CachedEntry[Any], field: str) -> Any:
        asked.append(seen.key)
        return whole(seen, field)

    monkeypatch.setattr(CachedEntry, "peek", counted)
    return asked


def listed(site, path: str) -> list[int]:
    return [int(job["id"]) for job in site.get(path).json()["jobs"]]


def test_only_the_new_one_of_many_ended_jobs_is_read(site, peeks: list[str]) -> None:
    for job_id in range(1, 101):
        site.ended(job_id, finished_ms=NOW_MS - 1000 + job_id)
    assert len(site.get("/finished-jobs/FINISHED").json()) == 100
    site.get("/api/v1/jobs")
    site.get("/overview")
    site.get("/metrics")
    peeks.clear()
    for path in (
        "/finished-jobs/FINISHED?page=1&rows=5",
        "/api/v1/jobs?limit=5",
        "/overview",
        "/metrics",
        "/api/v1/overview",
    ):
        site.get(path)
    assert not {int(key) for key in peeks} - set(
        range(96, 101)
    )  # the text of a job is made from its own record
    peeks.clear()
    site.ended(500, JobStatus.FAILED, finished_ms=NOW_MS)
    assert [job["jobId"] for job in site.get("/finished-jobs?page=1&rows=2").json()["data"]] == [
        "500",
        "100",
    ]
    assert site.get("/overview").json()["failedJobs"] == "1"
    assert {int(key) for key in peeks} <= {500, 100}


def test_pages_by_cursor_hold_every_job_once_in_the_order_of_submission(site) -> None:
    for job_id in range(1, 8):
        site.running(job_id, at_ms=NOW_MS - 1000 * (job_id % 3))
        site.ended(job_id + 100, initialization_ms=NOW_MS - 1000 * (job_id % 4))
    whole = listed(site, "/api/v1/jobs?limit=1000")
    assert len(whole) == len(set(whole)) == 14
    seen: list[int] = []
    cursor = ""
    while cursor is not None:
        answer = site.get(f"/api/v1/jobs?limit=3&cursor={cursor}").json()
        assert answer["total"] == 14
        seen += [int(job["id"]) for job in answer["jobs"]]
        cursor = answer["next"]
    assert seen == whole


def test_an_ended_and_a_resumed_job_move_between_lists(site) -> None:
    site.running(1)
    site.ended(2)
    assert (listed(site, "/api/v1/jobs?ended=false"), listed(site, "/api/v1/jobs?ended=true")) == (
        [1],
        [2],
    )
    site.take(RUNNING_JOBS, 1)
    site.ended(1, JobStatus.CANCELED)
    site.running(2)
    assert (
        listed(site, "/api/v1/jobs?ended=false"),
        listed(site, "/api/v1/jobs?ended=true&status=CANCELED"),
    ) == ([2], [1])
    assert sorted(listed(site, "/api/v1/jobs")) == [1, 2]
    assert {job["jobId"] for job in site.get("/finished-jobs").json()} == {"1", "2"}
    site.take(JOB_OUTCOMES, 1)
    assert listed(site, "/api/v1/jobs") == [2]


def test_rows_are_found_by_status_health_and_name(site) -> None:
    site.running(1, name="Orders")
    site.running(2, JobStatus.PENDING, name="orders of May")
    site.ended(3, JobStatus.FAILED, name="returns")
    site.context.catch_up()
    rows = site.context.job_index.rows()
    assert {row.job_id for row in matching(rows, name="ORDERS")} == {1, 2}
    assert {row.job_id for row in matching(rows, status=[JobStatus.FAILED, JobStatus.PENDING])} == {
        2,
        3,
    }
    assert matching(rows, name="orders", status=[JobStatus.FAILED]) == []


def test_an_unreadable_outcome_does_not_hide_others(site) -> None:
    site.ended(1)
    site.ended(2, initialization_ms="yesterday")
    assert [job["jobId"] for job in site.get("/finished-jobs").json()] == ["1"]
    assert listed(site, "/api/v1/jobs") == [1]


def test_the_cached_text_of_a_job_equals_its_model(site) -> None:
    site.running(1, name='a "quoted" näme')
    site.pipeline(1, checkpoint=3, age_s=7, rows_read=11, rows_written=10)
    site.running(2, JobStatus.PENDING, reason="no slot is free")
    site.ended(3)
    for turned_s in (0, 0, 2.5):
        site.clock.advance(turned_s)
        shown = site.get("/api/v1/jobs").json()
        rows, now_ms = site.context.job_index.rows(), site.clock.now_ms()
        assert shown == {
            "jobs": [job_of(site.cache, row, now_ms).model_dump(mode="json") for row in rows],
            "next": None,
            "total": 3,
        }
    assert {job["id"]: job["seconds_since_checkpoint"] for job in shown["jobs"]} == {
        "1": 9.5,
        "2": None,
        "3": None,
    }


def test_an_unchanged_page_is_not_sent_again(site) -> None:
    site.running(1)
    site.pipeline(1, checkpoint=1)
    site.metrics(1, rows_read=5)
    first = site.get("/api/v1/jobs")
    known = {"If-None-Match": first.headers["etag"]}
    site.metrics(1, rows_read=5, at_ms=NOW_MS)  # a heartbeat
    again = site.get("/api/v1/jobs", headers=known)
    assert (again.status_code, again.content, again.headers["etag"]) == (
        304,
        b"",
        first.headers["etag"],
    )
    assert (
        site.get("/api/v1/jobs?limit=1&status=RUNNING", headers=known).status_code == 304
    )  # the same jobs
    site.metrics(1, rows_read=6)
    assert site.get("/api/v1/jobs", headers=known).status_code == 200
    one = site.get("/api/v1/jobs/1")
    assert (
        site.get("/api/v1/jobs/1", headers={"If-None-Match": one.headers["etag"]}).status_code
        == 304
    )
    assert site.get("/api/v1/jobs/99", headers=known).status_code == 404


def test_simultaneous_requests_for_all_jobs_get_the_same_bytes(site) -> None:
    site.running(1)
    site.pipeline(1, checkpoint=1, age_s=3)
    site.context.catch_up()
    board = RunningJobsCache(site.cache)
    first = board.all_json(NOW_MS)
    assert board.all_json(NOW_MS) is first
    assert b'"secondsSinceLastCheckpoint":"3"' in first
    assert b'"secondsSinceLastCheckpoint":"4"' in board.all_json(NOW_MS + 1000)
    later = board.all_json(NOW_MS + 1000)
    site.pipeline(1, checkpoint=2, age_s=0)
    site.context.catch_up()
    assert board.all_json(NOW_MS + 1000) is not later


def test_running_jobs_show_whether_they_can_be_restored(site) -> None:
    site.running(1)
    site.pipeline(1)
    assert site.get("/running-jobs").json()[0]["restorable"] is False
    site.pipeline(1, checkpoint=1)
    assert site.get("/running-jobs").json()[0]["restorable"] is True
    assert site.get("/job-info/1").json()["restorable"] is True
