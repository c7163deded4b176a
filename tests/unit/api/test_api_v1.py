"""The typed API: models, cursors, roles, conditions, idempotency, generated requests."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tidegate.model.engine import EngineSettings
from tidegate.model.records import (
    CHECKPOINT_HISTORY,
    RUNNING_JOBS,
    CheckpointHealth,
    CheckpointHistory,
    CheckpointRef,
    CleanupRecord,
    Failure,
    JobStatus,
)

NOW_MS = 1_790_000_000_000
HOCON = """
env { job.mode = "BATCH", job.name = "hello" }
source { FakeSource { plugin_output = "t", row.num = 5, schema { fields { id = bigint } } } }
sink { Console { plugin_input = "t" } }
"""


def problem(answer: Any, status: int, condition: str) -> dict[str, Any]:
    assert (answer.status_code, answer.headers["content-type"]) == (
        status,
        "application/problem+json",
    )
    document: dict[str, Any] = answer.json()
    assert (document["status"], document["condition"]) == (status, condition)
    assert "Traceback" not in answer.text
    return document


def test_jobs_are_listed_with_numbers_and_times(site) -> None:
    site.running(7, name="stream", health=CheckpointHealth.LATE, health_reason="slow")
    site.pipeline(7, checkpoint=12, age_s=30, rows_read=100, rows_written=90, checkpoints=12)
    site.ended(8)
    seen = site.get("/api/v1/jobs").json()
    assert (seen["total"], seen["next"]) == (2, None)
    by_id = {job["id"]: job for job in seen["jobs"]}
    job = by_id["7"]
    assert (
        job["status"],
        job["health"],
        job["last_checkpoint"],
        job["seconds_since_checkpoint"],
    ) == ("RUNNING", "LATE", 12, 30.0)
    assert job["submitted"].endswith("Z")
    assert job["metrics"]["rows_committed"] == 90
    assert by_id["8"]["ended"] is not None


def test_pages_continue_after_the_last_row_despite_new_jobs(site) -> None:
    for number in range(1, 8):
        site.running(number, at_ms=NOW_MS + number, name=f"job {number}")
    first = site.get("/api/v1/jobs?limit=3").json()
    site.running(50, at_ms=NOW_MS + 50)
    second = site.get("/api/v1/jobs", params={"limit": 3, "cursor": first["next"]}).json()
    third = site.get("/api/v1/jobs", params={"limit": 3, "cursor": second["next"]}).json()
    assert [job["id"] for page in (first, second, third) for job in page["jobs"]] == [
        "7",
        "6",
        "5",
        "4",
        "3",
        "2",
        "1",
    ]
    assert third["next"] is None


def test_jobs_are_filtered(site) -> None:
    site.running(1, name="Orders")
    site.running(2, JobStatus.PENDING, name="people")
    site.ended(3, JobStatus.FAILED, name="orders of old")
    ask = lambda query: [job["id"] for job in site.get(f"/api/v1/jobs?{query}").json()["jobs"]]  # noqa: E731  # one line is enough
    assert ask("status=PENDING") == ["2"]
    assert sorted(ask("name=orders")) == ["1", "3"]
    assert ask("ended=true") == ["3"]
    assert ask("ended=false&name=ORD") == ["1"]
    assert sorted(ask("health=OK")) == ["1", "2"]


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1001",
        "status=GREEN",
        "cursor=nonsense",
        "cursor=W10",
        "cursor=Ww",
        "cursor=WyJhIiwgMV0",
    ],
)
def test_invalid_list_parameters_are_rejected(site, query: str) -> None:
    site.running(1)
    answer = site.get(f"/api/v1/jobs?{query}")
    if query != "cursor=W10":  # an empty key is before everything
        assert answer.status_code in (400, 422)
        assert answer.headers["content-type"] == "application/problem+json"


def test_a_path_with_a_line_break_is_a_problem_like_any_other(site) -> None:
    answer = site.get("/api/v1/connectors/transform/a%0Ab")
    assert (answer.status_code, answer.headers["content-type"], answer.json()["condition"]) == (
        404,
        "application/problem+json",
        "unknown-path",
    )


def test_a_job_with_its_details(site) -> None:
    site.running(
        7,
        failures=(
            Failure(at_ms=NOW_MS, generation=1, message="first"),
            Failure(at_ms=NOW_MS + 1, generation=1, message="second"),
        ),
    )
    site.pipeline(7, checkpoint=3, checkpoints=3)
    site.metrics(7, rows_read=9, phase="writing", done=5, total=10, unit="rows")
    site.worker("w1", holds=(7,))
    answer = site.get("/api/v1/jobs/7")
    job = answer.json()
    assert (job["worker"], job["pipelines"][0]["phase"], job["pipelines"][0]["total"]) == (
        "w1",
        "writing",
        10.0,
    )
    assert [vertex["kind"] for vertex in job["graph"]] == ["source", "sink"]
    assert [failure["message"] for failure in job["failures"]] == ["second", "first"]
    tag = answer.headers["etag"]
    assert site.get("/api/v1/jobs/7", headers={"If-None-Match": tag}).status_code == 304
    site.metrics(7, rows_read=10)
    assert site.get("/api/v1/jobs/7", headers={"If-None-Match": tag}).status_code == 200
    problem(site.get("/api/v1/jobs/99"), 404, "unknown-job")
    problem(site.get("/api/v1/jobs/abc"), 422, "invalid-request")


def test_checkpoints_of_a_job(site) -> None:
    site.running(7)
    site.pipeline(7, checkpoint=3, checkpoints=3)
    refs = tuple(
        CheckpointRef(
            checkpoint=n,
            path="p",
            generation=1,
            begun_ms=NOW_MS + 1000 * n,
            completed_ms=NOW_MS + 1000 * n + 40,
            bytes=10,
        )
        for n in (1, 2, 3)
    )
    site.put(CHECKPOINT_HISTORY, "7/1", CheckpointHistory(entries=refs))
    first = site.get("/api/v1/jobs/7/checkpoints?limit=2").json()
    assert [
        (each["checkpoint"], each["retained"], each["seconds"]) for each in first["checkpoints"]
    ] == [(3, True, 0.04), (2, False, 0.04)]
    rest = site.get("/api/v1/jobs/7/checkpoints", params={"cursor": first["next"]}).json()
    assert [each["checkpoint"] for each in rest["checkpoints"]] == [1]
    assert site.get("/api/v1/jobs/7/failures").json() == []


def test_a_job_is_submitted_once_for_each_key(site) -> None:
    body = {"text": HOCON, "name": "mine"}
    made = site.http.post("/api/v1/jobs", json=body, headers={"Idempotency-Key": "order 1"})
    again = site.http.post("/api/v1/jobs", json=body, headers={"Idempotency-Key": "order 1"})
    other = site.http.post("/api/v1/jobs", json=body, headers={"Idempotency-Key": "order 2"})
    assert (made.status_code, made.json()) == (201, again.json())
    assert other.json()["id"] != made.json()["id"]
    named = {"text": HOCON, "id": "5"}
    assert (
        site.http.post("/api/v1/jobs", json=named, headers={"Idempotency-Key": "five"}).status_code
        == 201
    )
    assert (
        site.http.post("/api/v1/jobs", json=named, headers={"Idempotency-Key": "five"}).status_code
        == 201
    )
    problem(
        site.http.post("/api/v1/jobs", json=named, headers={"Idempotency-Key": "six"}),
        409,
        "job-exists",
    )
    problem(site.http.post("/api/v1/jobs", json=named), 409, "job-exists")
    assert site.solid.get(RUNNING_JOBS, "5").value["intent"]["by"] == "local"


def test_all_problems_of_a_bad_job_file_are_returned(site) -> None:
    document = problem(
        site.http.post(
            "/api/v1/jobs",
            json={
                "text": 'env { job.mode = "BATCH" }\nsource { Nothing { } }\nsink { Consle { } }'
            },
        ),
        422,
        "bad-job",
    )
    assert len(document["problems"]) >= 2
    problem(
        site.http.post("/api/v1/jobs", json={"text": HOCON, "restore": "latest"}),
        409,
        "nothing-to-restore",
    )
    problem(
        site.http.post("/api/v1/jobs", json={"text": HOCON, "surprise": 1}), 422, "invalid-request"
    )
    problem(site.http.post("/api/v1/jobs", content=b"nonsense"), 422, "invalid-request")


def test_a_job_is_stopped(site) -> None:
    site.http.post("/api/v1/jobs", json={"text": HOCON, "id": "5"})
    answer = site.http.post("/api/v1/jobs/5/stop", json={"mode": "cancel"})
    assert (answer.status_code, answer.json()["desired"]) == (202, "cancel")
    problem(site.http.post("/api/v1/jobs/6/stop", json={}), 404, "unknown-job")
    problem(site.http.post("/api/v1/jobs/5/stop", json={"mode": "gently"}), 422, "invalid-request")


def test_a_job_file_is_validated_without_starting_it(site) -> None:
    seen = site.http.post("/api/v1/validate", json={"text": HOCON}).json()
    assert (seen["valid"], [vertex["plugin"] for vertex in seen["graph"]]) == (
        True,
        ["FakeSource", "Console"],
    )
    bad = site.http.post(
        "/api/v1/validate", json={"text": HOCON.replace("Console", "Consle")}
    ).json()
    assert (bad["valid"], bad["graph"]) == (False, [])
    assert [(each["line"], each["suggestion"]) for each in bad["problems"]] == [(4, "Console")]
    assert site.get("/api/v1/jobs").json()["total"] == 0


def test_overview_workers_and_servers(site) -> None:
    site.leader()
    site.running(1, health=CheckpointHealth.STALLED)
    site.worker("w1", slots=3, tags={"group": "a"}, holds=(1,))
    site.put(
        "pending-job-cleanup",
        9,
        CleanupRecord(job_id=9, initialization_ms=1, due_ms=NOW_MS, attempts=2, error="disk"),
    )
    seen = site.get("/api/v1/overview").json()
    assert (seen["jobs"], seen["attention"], seen["free_slots"], seen["cleanups"]) == (
        {"RUNNING": 1},
        ["1"],
        2,
        1,
    )
    assert (
        site.get("/api/v1/workers").json()[0] | {"jobs": ["1"], "tags": {"group": "a"}}
        == site.get("/api/v1/workers").json()[0]
    )
    assert [
        (each["leads"], each["answers"]) for each in site.get("/api/v1/coordinators").json()
    ] == [(True, True)]
    assert site.get("/api/v1/cleanups").json()[0]["error"] == "disk"


def test_connectors_and_their_options(site) -> None:
    assert {each["kind"] for each in site.get("/api/v1/connectors").json()} == {
        "source",
        "transform",
        "sink",
    }
    assert {each["kind"] for each in site.get("/api/v1/connectors?kind=sink").json()} == {"sink"}
    fake = site.get("/api/v1/connectors/source/fakesource").json()
    assert "row.num" in {option["key"] for option in fake["options"]}
    problem(site.get("/api/v1/connectors/source/nothing"), 404, "unknown-plugin")


def test_roles_apply_to_the_typed_api(make_site: Any) -> None:
    from tidegate.coordinator.tokens import Tokens
    from tidegate.model.records import Role

    settings = EngineSettings()
    site = make_site(replace(settings, http=replace(settings.http, tokens=True)))
    _, text = Tokens(site.solid, site.clock).create("looker", Role.VIEWER)
    site.context.catch_up()
    viewer = {"Authorization": f"Bearer {text}"}
    assert site.http.get("/api/v1/jobs").status_code == 401
    assert site.http.get("/api/v1/jobs", headers=viewer).status_code == 200
    problem(
        site.http.post("/api/v1/jobs", json={"text": HOCON}, headers=viewer), 403, "not-allowed"
    )
    problem(site.http.post("/api/v1/jobs/1/stop", json={}, headers=viewer), 403, "not-allowed")
    described = site.http.get("/api/v1/openapi.json", headers=viewer).json()
    for path, operations in described["paths"].items():
        for method in operations:
            asked = (
                path.replace("{job_id}", "1").replace("{kind}", "sink").replace("{name}", "Console")
            )
            call = getattr(site.http, method)
            assert call(f"/api/v1{asked}").status_code == 401


def test_unknown_paths_and_methods(site) -> None:
    problem(site.get("/api/v1/nothing"), 404, "unknown-path")
    problem(site.http.delete("/api/v1/jobs"), 405, "wrong-method")


def test_the_description_has_every_route_with_a_name_and_its_errors(site) -> None:
    described = site.get("/api/v1/openapi.json").json()
    names = [
        operation["operationId"]
        for path in described["paths"].values()
        for operation in path.values()
    ]
    assert len(names) == len(set(names)) >= 12
    for path in described["paths"].values():
        for operation in path.values():
            assert {"401", "403"} <= set(operation["responses"])
    assert "password" not in json.dumps(described["components"]["schemas"]["Job"])


def test_an_unreachable_store_is_a_503(site) -> None:
    site.get("/api/v1/jobs")
    site.clock.advance(60)
    problem(site.http.get("/api/v1/jobs"), 503, "out-of-date")


def test_savepoints_are_requested_listed_and_deleted(site) -> None:
    site.running(7)
    made = site.http.post("/api/v1/jobs/7/savepoints", json={})
    assert (made.status_code, made.json()["status"], made.json()["stop"]) == (202, "wanted", False)
    joined = site.http.post("/api/v1/jobs/7/savepoints", json={"stop": True}).json()
    assert (joined["id"], joined["stop"]) == (made.json()["id"], True)
    assert site.get("/api/v1/jobs/7/savepoints/last").json()["id"] == joined["id"]
    assert site.get("/api/v1/savepoints").json() == []
    problem(site.http.delete("/api/v1/savepoints/7/1"), 404, "no-savepoint")
    problem(site.http.post("/api/v1/jobs/99/savepoints", json={}), 404, "unknown-job")
    site.ended(8)
    site.context.catch_up()
    problem(site.http.post("/api/v1/jobs/8/savepoints", json={}), 409, "job-ended")


def test_a_restore_is_planned_before_it_is_done(site) -> None:
    fresh = site.http.post("/api/v1/restore-plan", json={"text": HOCON, "id": "5"}).json()
    assert (fresh["verdict"], fresh["start"]) == ("ok", "fresh")
    problem(
        site.http.post(
            "/api/v1/restore-plan", json={"text": HOCON, "id": "5", "restore": "latest"}
        ),
        409,
        "nothing-to-restore",
    )


def test_the_storage_is_inspected_collected_and_restored(site, tmp_path: Any) -> None:
    assert site.get("/api/v1/storage").json()["at"] is None
    (tmp_path / "checkpoints").mkdir(exist_ok=True)
    (tmp_path / "checkpoints" / "foreign.txt").write_text("not ours")
    seen = site.http.post("/api/v1/storage/survey").json()
    assert [(each["path"], each["kind"], each["due"]) for each in seen["findings"]] == [
        ("foreign.txt", "unknown", False)
    ]
    after = site.http.post("/api/v1/storage/collect").json()
    assert after["at"] is not None
    assert (tmp_path / "checkpoints" / "foreign.txt").exists()
    problem(site.http.post("/api/v1/storage/quarantines/none/undo"), 404, "quarantine-missing")


def test_an_ended_job_is_shown_with_details(site) -> None:
    site.ended(
        8, JobStatus.FAILED, failures=(Failure(at_ms=NOW_MS, generation=1, message="broke"),)
    )
    job = site.get("/api/v1/jobs/8").json()
    assert (job["status"], job["failures"][0]["message"], len(job["graph"])) == (
        "FAILED",
        "broke",
        2,
    )
