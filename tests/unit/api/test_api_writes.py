"""SeaTunnel's write routes: jobs in three formats, stop requests, and rejected requests."""

import json
from typing import Any

import pytest

from tidegate.api.seatunnel.responses import BODY_BYTES_MAX
from tidegate.model.records import (
    JOB_STATES,
    RUNNING_JOBS,
    SAVEPOINTS,
    DesiredState,
    JobState,
    JobStatus,
)

HOCON = """
env { job.mode = "BATCH" }
source { FakeSource { plugin_output = "t", row.num = 5, schema { fields { id = bigint } } } }
sink { Console { plugin_input = "t" } }
"""
JSON: dict[str, Any] = {
    "env": {"job.mode": "BATCH"},
    "source": [
        {
            "plugin_name": "FakeSource",
            "plugin_output": "t",
            "row.num": 5,
            "schema": {"fields": {"id": "bigint"}},
        }
    ],
    "transform": [],
    "sink": [{"plugin_name": "Console", "plugin_input": "t"}],
}
SQL = """
/* config
env { job.mode = "BATCH" }
*/
CREATE TABLE t (id BIGINT) WITH ('connector' = 'FakeSource', 'schema' = '{ fields { id = bigint } }', 'type' = 'source');
CREATE TABLE o (id BIGINT) WITH ('connector' = 'Console', 'type' = 'sink');
INSERT INTO o SELECT id FROM t;
"""


def refusal(answer: Any) -> str:
    assert (answer.status_code, answer.json()["status"]) == (400, "fail")
    assert "Traceback" not in answer.text
    return answer.json()["message"]


def intent(site, job_id: int) -> str:
    return site.solid.get(RUNNING_JOBS, str(job_id)).value["intent"]["wish"]


@pytest.mark.parametrize(
    ("body", "form"),
    [
        (json.dumps(JSON), ""),
        (json.dumps(JSON), "&format=json"),
        (HOCON, "&format=hocon"),
        (SQL, "&format=sql"),
    ],
)
def test_a_job_in_any_format_is_accepted_and_visible_at_once(site, body: str, form: str) -> None:
    answer = site.http.post(
        f"/submit-job?jobId=733584788375666689&jobName=mine{form}", content=body
    )
    assert (answer.status_code, answer.json()) == (
        200,
        {"jobId": "733584788375666689", "jobName": "mine"},
    )
    seen = site.http.get("/job-info/733584788375666689").json()
    assert (seen["jobName"], seen["jobStatus"]) == ("mine", "CREATED")
    assert [job["jobId"] for job in site.http.get("/running-jobs").json()] == ["733584788375666689"]


def test_a_job_without_an_id_gets_one_of_its_own_each_time(site) -> None:
    first, second = (site.http.post("/submit-job", json=JSON).json()["jobId"] for _ in range(2))
    assert first != second
    assert int(first) > 0


def test_writes_do_not_wait_for_a_refresh_and_the_next_read_does(
    site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.get("/overview")
    turns: list[float] = []
    real = site.context.cache.refresh
    monkeypatch.setattr(
        site.context.cache,
        "refresh",
        lambda behind_s=float("inf"): (turns.append(behind_s), real(behind_s))[1],
    )
    jobs = [site.http.post("/submit-job", json=JSON).json()["jobId"] for _ in range(3)]
    assert site.http.post("/stop-job", json={"jobId": jobs[0]}).status_code == 200
    assert turns == []
    site.clock.advance(0.01)
    assert site.http.get(f"/job-info/{jobs[2]}").json()["jobStatus"] == "CREATED"
    assert len(turns) == 1
    assert len(site.http.get("/running-jobs").json()) == 3
    assert len(turns) == 1


def test_readers_do_not_wait_for_a_store_that_hangs_after_a_write(
    site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.get("/overview")
    assert site.http.post("/submit-job", json=JSON).status_code == 200
    asked: list[float] = []
    monkeypatch.setattr(site.context.cache, "refresh", asked.append)
    site.clock.advance(1.1)
    assert site.http.get("/running-jobs").json() == []
    assert asked == []


def test_a_second_job_with_a_running_id_is_rejected(site) -> None:
    assert site.http.post("/submit-job?jobId=5", json=JSON).status_code == 200
    assert "5" in refusal(site.http.post("/submit-job?jobId=5", json=JSON))


def test_all_problems_of_a_job_are_in_the_answer_a_line_each(site) -> None:
    body = """
    env { job.mode = "SOMETIMES" }
    source { FakeSorce { schema { fields { id = bigint } } } }
    sink { LocalFile { file_format_type = "parquet" } }
    """
    lines = refusal(site.http.post("/submit-job?format=hocon", content=body)).splitlines()
    assert any("job.mode" in line for line in lines)
    assert any("FakeSource" in line for line in lines)
    assert any("path" in line for line in lines)
    assert site.solid.list(RUNNING_JOBS) == []


@pytest.mark.parametrize(
    "line",
    [
        'include "{path}"',
        'include required("{path}")',
        'include file("{path}")',
        'source {{ include "{path}" }}',
    ],
)
def test_files_of_the_server_cannot_be_included(site, tmp_path, line: str) -> None:
    secret = tmp_path / "secret.conf"
    secret.write_text("env { job.name = s3cr3t }")
    message = refusal(
        site.http.post("/submit-job?format=hocon", content=f"{line.format(path=secret)}\n{HOCON}")
    )
    assert "include" in message
    assert "s3cr3t" not in message


def test_the_environment_of_the_server_is_not_for_jobs(
    site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE_PASSWORD", "s3cr3t")
    answer = site.http.post(
        "/submit-job?format=hocon",
        content=HOCON.replace('"BATCH"', '"BATCH", job.name = ${STORE_PASSWORD}'),
    )
    assert "STORE_PASSWORD" in refusal(answer)
    assert "s3cr3t" not in answer.text


@pytest.mark.parametrize(
    "body",
    [b"", b"this is not json", b"{}", b"[1]", b'"text"', b"\xff\xfe\x00", b"{" * 100_000, b"null"],
)
def test_a_body_that_is_not_a_job_is_rejected_with_a_message(site, body: bytes) -> None:
    assert len(refusal(site.http.post("/submit-job", content=body))) > 10
    assert len(refusal(site.http.post("/stop-job", content=body))) > 10


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("jobId=abc", "jobId"),
        ("jobId=0", "jobId"),
        ("jobId=", "jobId"),
        ("format=xml", "format"),
        ("isStartWithSavePoint=true", "jobId"),
        ("isStartWithSavePoint=perhaps", "isStartWithSavePoint"),
        ("restore=yesterday", "restore=latest"),
        ("restore=latest", "never run"),
        ("jobId=9&isStartWithSavePoint=true", "never run"),
        ("dryRun=true", "validate"),
    ],
)
def test_an_invalid_parameter_is_rejected_by_name(site, query: str, word: str) -> None:
    message = refusal(site.http.post(f"/submit-job?{query}", json=JSON))
    assert word in message or word.removeprefix("restore=") in message
    assert "--restore" not in message
    assert site.solid.list(RUNNING_JOBS) == []


def test_an_unfinished_job_needs_a_restore_choice(site) -> None:
    site.running(5, JobStatus.RUNNING)
    site.pipeline(5, checkpoint=3)
    site.take(RUNNING_JOBS, 5)
    site.put(JOB_STATES, 5, JobState(job_id=5, status=JobStatus.CANCELED, generation=1))
    message = refusal(site.http.post("/submit-job?jobId=5", json=JSON))
    assert "restore=latest" in message
    assert "--restore" not in message
    assert site.http.post("/submit-job?jobId=5&restore=fresh", json=JSON).status_code == 200


def test_a_body_over_the_limit_is_not_read_to_its_end(site) -> None:
    answer = site.http.post("/submit-job", content=b" " * (BODY_BYTES_MAX + 1))
    assert (answer.status_code, answer.json()["status"]) == (413, "fail")


@pytest.mark.parametrize(
    ("body", "desired"),
    [
        ({"jobId": 5}, DesiredState.CANCEL),
        ({"jobId": "5", "isStopWithSavePoint": False}, DesiredState.CANCEL),
        ({"jobId": 5, "isStopWithSavePoint": "false", "force": True}, DesiredState.FORCE_STOP),
        ({"jobId": 5, "force": "true"}, DesiredState.FORCE_STOP),
    ],
)
def test_a_stop_sets_the_desired_state(site, body: dict[str, Any], desired: DesiredState) -> None:
    site.running(5)
    answer = site.http.post("/stop-job", json=body)
    assert (answer.status_code, answer.json()) == (200, {"jobId": "5"})
    assert intent(site, 5) == desired.value


def test_a_stop_of_an_unknown_or_ended_job_has_no_effect(site) -> None:
    site.ended(6)
    assert site.http.post("/stop-job", json={"jobId": 12345}).json() == {"jobId": "12345"}
    assert site.http.post("/stop-job", json={"jobId": 6}).json() == {"jobId": "6"}
    assert site.solid.list(RUNNING_JOBS) == []


def test_repeated_stops_with_a_savepoint_are_one_request(site) -> None:
    site.running(5)
    for flag in (True, "true"):
        assert site.http.post(
            "/stop-job", json={"jobId": 5, "isStopWithSavePoint": flag}
        ).json() == {"jobId": "5"}
    (entry,) = site.solid.list(SAVEPOINTS)
    assert (entry.key, entry.value["stop"], entry.value["status"], entry.value["by"]) == (
        "5",
        True,
        "wanted",
        "local",
    )
    assert intent(site, 5) == DesiredState.RUN.value


def test_a_stop_with_a_savepoint_of_an_unknown_or_ended_job_has_no_effect(site) -> None:
    site.ended(6)
    for job in (6, 12345):
        assert site.http.post(
            "/stop-job", json={"jobId": job, "isStopWithSavePoint": True}
        ).json() == {"jobId": str(job)}
    assert site.solid.list(SAVEPOINTS) == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"jobId": None},
        {"jobId": ""},
        {"jobId": "x"},
        {"jobId": [1]},
        {"jobId": True},
        {"jobId": 1.5},
        {"jobId": 5, "force": 1},
    ],
)
def test_a_stop_without_a_job_id_is_rejected(site, body: dict[str, Any]) -> None:
    refusal(site.http.post("/stop-job", json=body))
