"""Responses and pages while the store is lost, full or partly damaged."""

import os
from dataclasses import replace
from typing import Any

import pytest

from tidegate.coordinator.tokens import Tokens
from tidegate.model.engine import EngineSettings
from tidegate.model.records import (
    JOB_STATES,
    PIPELINES,
    RUNNING_JOBS,
    JobStatus,
    PipelineStatus,
    Role,
)
from tidegate.store.backend import Transaction, TransactionName, Write
from tidegate.testing.faulty_store import Fault

FULL = (
    "the disk of the store /home/store/tidegate.db is full (no space left), and nothing was"
    " written: make room"
)
AUTHENTICATIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "tokens": {"tokens": True},
    "basic": {"basic_auth": True, "username": "ann", "password": "sesame"},
    "both": {"tokens": True, "basic_auth": True, "username": "ann", "password": "sesame"},
}
PROBES = ("/health", "/ready", "/api/v1/health", "/api/v1/ready")


@pytest.fixture(params=AUTHENTICATIONS)
def probed(request: pytest.FixtureRequest, make_site: Any) -> Any:
    settings = EngineSettings()
    return make_site(
        replace(settings, http=replace(settings.http, **AUTHENTICATIONS[request.param]))
    )


def full(site: Any) -> None:
    """Set the write problem as the heartbeat of a server does."""
    site.context.write_problem = lambda _after_s: FULL


def streaming(site: Any, job_id: int) -> None:
    """Add a streaming job (interval 2 s, timeout 30 s): LATE after 32 s, STALLED after 60 s."""
    site.running(job_id)
    site.pipeline(job_id, checkpoint=3, status=PipelineStatus.RUNNING)
    site.metrics(job_id, phase="writing")
    site.context.catch_up()


def damaged(site: Any, map: str, key: str, old: str, new: str) -> None:
    row = site.solid.backend.read(map, key)
    write = Write(map, key, row.text.replace(old, new))
    site.solid.backend.apply(
        Transaction(
            token=TransactionName(id=os.urandom(16), since=site.solid.revision()),
            checks=(),
            writes=(write,),
        )
    )


@pytest.mark.parametrize("path", PROBES)
def test_probes_are_answered_without_a_token(probed, path: str) -> None:
    assert probed.http.get(path).status_code == 503  # the store was not read yet
    answer = probed.get(path)
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")


def test_probes_show_anonymous_callers_neither_names_nor_messages(make_site: Any) -> None:
    settings = EngineSettings()
    site = make_site(replace(settings, http=replace(settings.http, tokens=True)))
    site.leader("server-1")
    _, token = Tokens(site.solid, site.clock).create("x", Role.VIEWER)
    site.context.catch_up()
    full(site)
    anonymous, viewer = (
        site.http.get("/health", headers=headers)
        for headers in ({}, {"Authorization": f"Bearer {token}"})
    )
    assert (anonymous.status_code, viewer.status_code) == (503, 503)
    assert anonymous.json()["store"]["reachable"] is False
    assert "cannot be written" in anonymous.json()["message"]
    for secret in ("server-1", "127.0.0.1", "/home/store", token):
        assert secret not in anonymous.text
    assert viewer.json()["store"]["reason"] == viewer.json()["message"] == FULL
    assert viewer.json()["server"]["id"] == "server-1"


def test_a_store_that_cannot_be_written_makes_health_fail_and_ready_not(site) -> None:
    site.context.catch_up()
    full(site)
    assert (site.http.get("/health").status_code, site.http.get("/ready").status_code) == (503, 200)
    assert "tidegate_store_reachable 0\n" in site.get("/metrics").text
    site.context.write_problem = lambda _after_s: ""
    assert site.get("/health").status_code == 200


def test_jobs_are_late_and_then_stalled_with_the_reason_while_nothing_can_be_written(site) -> None:
    streaming(site, 1)
    full(site)
    tags = set()
    for seconds, level in ((31, "OK"), (2, "LATE"), (20, "LATE"), (10, "STALLED")):
        site.clock.advance(seconds)
        tags.add(site.get("/api/v1/jobs/1").headers["etag"])
        shown = site.get("/job-info/1").json()
        listed = site.get("/running-jobs").json()[0]
        typed = site.get("/api/v1/jobs/1").json()
        assert shown["checkpointHealth"] == listed["checkpointHealth"] == typed["health"] == level
        assert shown["jobStatus"] == "RUNNING"
        assert (FULL in shown["healthReason"], FULL in typed["health_reason"]) == (
            level != "OK",
            level != "OK",
        )
    assert len(tags) == 3
    assert (
        'tidegate_job_checkpoint_health{job_id="1",job_name="stream"} 2\n'
        in site.get("/metrics").text
    )
    assert site.get("/api/v1/overview").json()["attention"] == ["1"]
    site.context.write_problem = lambda _after_s: ""
    assert site.get("/job-info/1").json()["checkpointHealth"] == "OK"
    assert site.get("/running-jobs").json()[0]["checkpointHealth"] == "OK"


def test_an_unreadable_store_is_reported_with_the_last_known_jobs(site) -> None:
    streaming(site, 1)
    site.fault = Fault.UNAVAILABLE
    for seconds, words in (
        (6, "job 1 is RUNNING"),
        (40, "job 1 is RUNNING and LATE"),
        (30, "job 1 is RUNNING and STALLED"),
    ):
        site.clock.advance(seconds)
        site.get("/health")
        for path in ("/job-info/1", "/running-jobs", "/health", "/ready"):
            answer = site.get(path)
            assert answer.status_code == 503
            assert answer.json()["message"].endswith(f"As last seen: {words}"), answer.json()[
                "message"
            ]
        typed = site.get("/api/v1/jobs/1")
        assert (typed.status_code, typed.json()["detail"].endswith(words)) == (503, True)
    site.fault = Fault.NONE
    assert site.get("/job-info/1").json()["checkpointHealth"] == "OK"
    assert site.get("/health").status_code == 200


def test_a_starting_job_is_late_too_while_the_store_is_unreachable(site) -> None:
    site.running(1)
    site.pipeline(1, status=PipelineStatus.CREATED)
    site.context.catch_up()
    site.fault = Fault.UNAVAILABLE
    for seconds in (6, 40, 30):
        site.clock.advance(seconds)
        site.get("/health")
    assert site.get("/job-info/1").json()["message"].endswith("job 1 is RUNNING and STALLED")


@pytest.mark.parametrize("map", [RUNNING_JOBS, JOB_STATES])
def test_a_job_with_a_damaged_record_is_named_and_others_are_shown(site, map: str) -> None:
    for job_id in (1, 2):
        streaming(site, job_id)
    damaged(site, map, "1", '"job_id":1', '"job_id":3')
    assert [job["jobId"] for job in site.get("/running-jobs").json()] == ["2"]
    for answer in (site.get("/job-info/1"), site.get("/api/v1/jobs/1")):
        assert answer.status_code == 503
        assert f"the stored document {map}/1 is damaged" in answer.text
    assert site.get("/job-info/2").json()["checkpointHealth"] == "OK"
    health = site.get("/health")
    assert (health.status_code, health.json()["store"]["damagedDocuments"]) == (200, 1)
    assert "tidegate_store_damaged_documents 1\n" in site.get("/metrics").text


def test_a_running_job_with_a_damaged_document_is_stalled_and_names_it(site) -> None:
    streaming(site, 1)
    damaged(site, PIPELINES, "1/1", '"lineage":"l"', '"lineage":"1"')
    site.context.catch_up()
    shown = site.get("/job-info/1").json()
    assert (shown["checkpointHealth"], shown["jobStatus"]) == ("STALLED", JobStatus.RUNNING.value)
    assert "running-pipeline-state/1/1 is damaged" in shown["healthReason"]
    streaming(site, 1)
    assert site.get("/job-info/1").json()["checkpointHealth"] == "OK"


def test_a_write_on_damaged_records_names_them(site) -> None:
    streaming(site, 1)
    damaged(site, RUNNING_JOBS, "1", '"job_id":1', '"job_id":3')
    answer = site.http.post("/stop-job", json={"jobId": 1})
    assert (answer.status_code, "running-job-info/1 is damaged" in answer.text) == (
        503,
        True,
    ), answer.text
