"""A job that was stopped by a table change: its choices and the decision, in API and web UI."""

from dataclasses import replace
from typing import Any

import pytest

from tidegate.api.app import make_app
from tidegate.checkpoints.manifest import Manifest
from tidegate.coordinator.job_snapshot import read_job
from tidegate.coordinator.terminal_transaction import terminal_transaction
from tidegate.model.records import (
    PIPELINES,
    RUNNING_JOBS,
    CheckpointRef,
    Failure,
    JobStatus,
    PipelineState,
    PipelineStatus,
)
from tidegate.model.table_changes import ChangeChoice, ChangeStop
from tidegate.ui.app import routes as pages

STOP = ChangeStop(
    table="shop.orders",
    at="bin.4:120",
    statement="ALTER TABLE orders DROP COLUMN v",
    choices=(ChangeChoice.ADOPT, ChangeChoice.REREAD),
)
SOURCE = "Source[0]-FakeSource"
DECISION = {"at": "bin.4:120", "choice": "reread", "table": "shop.orders"}


def stopped(site, stop: ChangeStop | None = STOP) -> None:
    """Add a job with a checkpoint that has failed with this change."""
    site.running(5, JobStatus.RUNNING)
    manifest = Manifest(
        job_id=5, pipeline=1, checkpoint=1, lineage="l", generation=1, begun_ms=0, files={}
    )
    published = site.context.commands.storage.publish(manifest, {SOURCE: {"offset": 1}})
    failure = Failure(
        at_ms=1,
        generation=1,
        pipeline=1,
        condition="table-changed",
        domain="user",
        message="it was changed",
        change=stop,
    )
    state = PipelineState(
        job_id=5,
        pipeline=1,
        lineage="l",
        generation=1,
        status=PipelineStatus.FAILED,
        initial={SOURCE: 0},
        retained=(
            CheckpointRef(
                checkpoint=1, path=published.path, generation=1, begun_ms=0, completed_ms=1
            ),
        ),
        next_checkpoint=2,
        error=failure,
    )
    site.put(PIPELINES, "5/1", state)
    ending = terminal_transaction(read_job(site.solid, 5), JobStatus.FAILED, site.clock.now_ms())
    site.solid.transact(ending.checks, ending.writes)


def shown(site) -> dict[str, Any]:
    return dict(site.get("/api/v1/jobs/5").json())


def test_a_stopped_job_shows_the_change_that_stopped_it(site) -> None:
    stopped(site)
    stop = {
        "table": "shop.orders",
        "at": "bin.4:120",
        "statement": STOP.statement,
        "choices": ["adopt", "reread"],
    }
    job = shown(site)
    assert (job["stopped_at"], job["failures"][0]["change"], job["failures"][0]["condition"]) == (
        [stop],
        stop,
        "table-changed",
    )
    assert site.get("/job-info/5/failures").json()[0]["change"] == stop


def test_a_decision_resumes_the_job_and_lists_manual_steps(site) -> None:
    stopped(site)
    answer = site.http.post("/api/v1/jobs/5/accept-change", json=DECISION)
    assert answer.status_code == 202, answer.text
    assert any(
        "rows that the table no longer has stay in the target" in note
        for note in answer.json()["notes"]
    )
    record = site.solid.get(RUNNING_JOBS, "5").value
    assert record["accepted_changes"] == [
        {"at": "bin.4:120", "choice": "reread", "table": "shop.orders"}
    ]
    assert record["restored"] is True
    assert (
        site.http.post("/api/v1/jobs/5/accept-change", json=DECISION).status_code == 202
    )  # an answer that was lost is asked for again
    assert shown(site)["stopped_at"] == []


@pytest.mark.parametrize(
    ("change", "status", "condition", "word"),
    [
        (
            {"at": "bin.4:121"},
            409,
            "not-stopped-at-change",
            "it is stopped at bin.4:120 of shop.orders",
        ),
        ({"table": "shop.other"}, 409, "not-stopped-at-change", "Nothing was done"),
        ({"choice": "skip"}, 400, "choice-not-offered", "the choices are adopt, reread"),
        ({"choice": "drop"}, 400, "invalid", "choice"),
        ({"at": ""}, 400, "invalid", "at"),
    ],
)
def test_a_decision_that_does_not_match_is_rejected(
    site, change: dict[str, str], status: int, condition: str, word: str
) -> None:
    stopped(site)
    answer = site.http.post("/api/v1/jobs/5/accept-change", json={**DECISION, **change})
    assert (answer.status_code in (status, 422), word in answer.text) == (True, True), answer.text
    assert condition == "invalid" or answer.json()["condition"] == condition
    assert site.solid.get(RUNNING_JOBS, "5") is None


def test_a_running_or_unknown_job_accepts_no_decision(site) -> None:
    assert site.http.post("/api/v1/jobs/5/accept-change", json=DECISION).status_code == 404
    site.running(5, JobStatus.RUNNING)
    answer = site.http.post("/api/v1/jobs/5/accept-change", json=DECISION)
    assert (answer.status_code, answer.json()["condition"]) == (409, "not-stopped-at-change")


def test_a_submit_can_carry_decisions(site) -> None:
    stopped(site)
    query = "jobId=5&restore=latest&acceptChange=shop.orders@bin.4:120%3Dadopt"
    body = {
        "env": {"job.mode": "STREAMING"},
        "source": [
            {
                "plugin_name": "FakeSource",
                "plugin_output": "t",
                "schema": {"fields": {"id": "bigint"}},
            }
        ],
    }
    sink = {"transform": [], "sink": [{"plugin_name": "Console", "plugin_input": "t"}]}
    assert (
        "acceptChange='x' is invalid"
        in site.http.post("/submit-job?acceptChange=x", json={**body, **sink}).json()["message"]
    )
    answer = site.http.post(f"/submit-job?{query}", json={**body, **sink})
    assert answer.status_code == 200, answer.text
    assert [c["choice"] for c in site.solid.get(RUNNING_JOBS, "5").value["accepted_changes"]] == [
        "adopt"
    ]


@pytest.fixture
def paged(site) -> Any:
    site.http.close()
    site.http = type(site.http)(make_app(site.context, pages(site.context)))
    return site


def test_the_job_page_offers_each_choice_and_the_next_page_applies_it(
    paged: Any,
) -> None:
    site = paged
    stopped(site)
    page = site.get("/ui/jobs/5").text
    assert "ALTER TABLE orders DROP COLUMN v" in page
    link = "/ui/jobs/5/accept-change?at=bin.4%3A120&amp;table=shop.orders&amp;choice=reread"
    assert link in page
    assert "choice=skip" not in page
    asked = site.get(link.replace("&amp;", "&"))
    assert asked.status_code == 200
    assert (
        "tidegate accept-change 5 --at bin.4:120 --table shop.orders --choice reread" in asked.text
    )
    assert "rows that the table no longer has stay in the target" in asked.text
    done = site.http.post("/ui/jobs/5/accept-change", data=DECISION)
    assert (done.status_code, done.headers["location"]) == (303, "/ui/jobs/5")
    assert site.solid.get(RUNNING_JOBS, "5").value["accepted_changes"] == [DECISION]


def test_a_page_for_a_decision_that_does_not_match_shows_the_reason(paged: Any) -> None:
    site = paged
    stopped(site)
    assert (
        "it is stopped at bin.4:120"
        in site.get("/ui/jobs/5/accept-change?at=bin.4%3A9&choice=adopt").text
    )
    assert (
        "the choices are adopt, reread"
        in site.get("/ui/jobs/5/accept-change?at=bin.4%3A120&choice=skip").text
    )
    assert site.solid.get(RUNNING_JOBS, "5") is None


def test_a_change_without_choices_offers_only_a_fresh_start(paged: Any) -> None:
    site = paged
    stopped(site, replace(STOP, choices=()))
    assert "start from the beginning" in site.get("/ui/jobs/5").text
    answer = site.http.post("/api/v1/jobs/5/accept-change", json=DECISION)
    assert (answer.status_code, "none: start with restore=fresh" in answer.text) == (400, True)
