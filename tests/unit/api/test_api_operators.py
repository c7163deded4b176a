"""Routes for operators: checkpoints, queue, logs, threads, tags, options, bulk commands."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from tidegate.model.records import (
    CHECKPOINT_HISTORY,
    RUNNING_JOBS,
    CheckpointHistory,
    CheckpointKind,
    CheckpointRef,
    Failure,
    JobStatus,
    PendingBatch,
    SourceRange,
)

NOW_MS = 1_790_000_000_000
JOB: dict[str, Any] = {
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


def refusal(answer: Any) -> str:
    assert (answer.status_code, answer.json()["status"]) == (400, "fail")
    return answer.json()["message"]


def ref(checkpoint: int, kind: CheckpointKind = CheckpointKind.CHECKPOINT) -> CheckpointRef:
    at_ms = NOW_MS - 100_000 + 1000 * checkpoint
    return CheckpointRef(
        checkpoint=checkpoint,
        path="p",
        kind=kind,
        generation=1,
        begun_ms=at_ms - 40,
        completed_ms=at_ms,
        bytes=300,
    )


def test_checkpoints_of_a_job_by_pipeline(site) -> None:
    site.running(7)
    pending = PendingBatch(
        checkpoint=4, ranges={"s": SourceRange(0, 1)}, generation=1, begun_ms=NOW_MS - 5
    )
    site.pipeline(7, checkpoint=3, checkpoints=3, pending=pending)
    site.put(
        CHECKPOINT_HISTORY,
        "7/1",
        CheckpointHistory(entries=(ref(1), ref(2, CheckpointKind.SAVEPOINT), ref(3))),
    )
    seen = site.get("/jobs/checkpoints/7").json()
    assert (seen["jobId"], len(seen["pipelines"])) == ("7", 1)
    pipeline = seen["pipelines"][0]
    assert pipeline["counts"] == {
        "triggered": 4,
        "completed": 3,
        "failed": 0,
        "inProgress": 1,
        "restored": 0,
    }
    assert [entry["checkpoint"]["checkpointId"] for entry in pipeline["history"]] == [3, 2, 1]
    assert pipeline["latestSavepoint"]["checkpointType"] == "SAVEPOINT_TYPE"
    assert pipeline["inProgress"][0]["checkpointId"] == 4
    assert (
        pipeline["history"][0]["checkpoint"]
        | {
            "durationMillis": 40,
            "stateSize": 300,
            "status": "COMPLETED",
        }
        == pipeline["history"][0]["checkpoint"]
    )
    history = site.get("/jobs/checkpoints/history/7?limit=2&pipelineId=1").json()
    assert [entry["checkpoint"]["checkpointId"] for entry in history] == [3, 2]
    assert site.get("/jobs/checkpoints/history/7?status=failed").json() == []
    assert site.get("/jobs/checkpoints/99").json()["pipelines"] == []


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "pipelineId=-1", "status=GREEN"])
def test_invalid_checkpoint_queries_are_rejected(site, query: str) -> None:
    refusal(site.get(f"/jobs/checkpoints/history/7?{query}"))


def test_waiting_jobs_show_their_reasons(site) -> None:
    site.running(1, JobStatus.PENDING, reason="no slot is free")
    site.running(2)
    site.worker("w1", slots=1, holds=(2,))
    seen = site.get("/pending-jobs").json()
    assert (
        seen["queueSummary"]["size"],
        seen["clusterSnapshot"]["freeSlots"],
        seen["clusterSnapshot"]["assignedSlots"],
    ) == (1, 0, 1)
    (job,) = seen["pendingJobs"]
    assert (job["jobId"], job["failureReason"], job["failureMessage"]) == (
        1,
        "RESOURCE_NOT_ENOUGH",
        "no slot is free",
    )
    assert seen["clusterSnapshot"]["workers"][0]["runningJobIds"] == ["2"]
    assert site.get("/pending-jobs?jobId=2").json()["pendingJobs"] == []
    assert isinstance(
        site.get("/pending-jobs?pretty=true").json()["pendingJobs"][0]["enqueueTimestamp"], str
    )


def test_failures_are_listed_newest_first(site) -> None:
    failures = tuple(
        Failure(at_ms=NOW_MS + i, generation=i, message=f"number {i}") for i in range(3)
    )
    site.running(1, failures=failures)
    assert [each["message"] for each in site.get("/job-info/1/failures?limit=2").json()] == [
        "number 2",
        "number 1",
    ]
    site.ended(2, JobStatus.FAILED, failures=failures[:1])
    assert [each["message"] for each in site.get("/job-info/2/failures").json()] == ["number 0"]


@pytest.fixture
def logs(site, tmp_path: Path) -> Path:
    folder = tmp_path / "home" / "logs"
    (folder / "77").mkdir(parents=True)
    (folder / "server-8080.log").write_text("started\n")
    (folder / "77" / "driver.log").write_text("batch 1\n")
    (folder.parent / "secret.log").write_text("not for you\n")
    (folder / "link.log").symlink_to(folder.parent / "secret.log")
    site.context.logs = folder
    return folder


def test_logs_are_listed_and_read(site, logs: Path) -> None:  # noqa: ARG001  # the files
    listed = site.get("/logs?format=json").json()
    assert [each["logName"] for each in listed] == ["77/driver.log", "server-8080.log"]
    assert listed[0] == {
        "node": "127.0.0.1:8080",
        "logLink": "http://127.0.0.1:8080/logs/77/driver.log",
        "logName": "77/driver.log",
    }
    assert [each["logName"] for each in site.get("/logs/77?format=json").json()] == [
        "77/driver.log"
    ]
    assert site.get("/logs/77/driver.log").text == "batch 1\n"
    assert site.get("/log/server-8080.log").text == "started\n"
    assert site.get("/get-all-log-name").json() == ["77/driver.log", "server-8080.log"]
    for path in ("/log", "/logs"):
        page = site.get(path)
        assert page.headers["content-type"].startswith("text/html")
        assert "server-8080.log" in page.text


@pytest.mark.parametrize(
    "name",
    [
        "../secret.log",
        "%2e%2e/secret.log",
        "..%2fsecret.log",
        "77/../../secret.log",
        "link.log",
        "/etc/passwd.log",
        "none.log",
        "77%5c..%5csecret.log",
    ],
)
def test_no_file_outside_of_the_log_directory_can_be_read(site, logs: Path, name: str) -> None:  # noqa: ARG001  # the files
    for path in (f"/logs/{name}", f"/log/{name}"):
        answer = site.get(path)
        assert answer.status_code in (400, 404)
        assert "not for you" not in answer.text


def test_this_server_returns_its_metrics(site) -> None:
    site.leader()
    site.worker("w1")
    (member,) = site.get("/system-monitoring-information").json()
    assert all(isinstance(value, str) for value in member.values())
    assert (member["isMaster"], member["host"], member["port"]) == ("true", "127.0.0.1", "8080")
    assert member["heap.memory.used"].endswith("M")
    threads = site.get("/thread-dump").json()
    assert {"threadName", "threadId", "threadState", "stackTrace"} == set(threads[0])
    assert any("test_this_server_returns_its_metrics" in thread["stackTrace"] for thread in threads)
    assert set(site.get("/running-threads").json()[0]) == {"threadName", "classLoader"}


def test_tags_of_the_worker_are_replaced(site) -> None:
    given: list[Any] = []
    assert "no worker" in refusal(site.http.post("/update-tags", json={"group": "a"}))
    site.context.set_worker_tags = given.append
    assert (
        site.http.post("/update-tags", json={"group": "a", "rank": 2}).json()["status"] == "success"
    )
    assert site.http.post("/update-tags", json={}).status_code == 200
    assert given == [{"group": "a", "rank": "2"}, {}]
    assert refusal(site.http.post("/update-tags", content=b"")).startswith("Request body is empty.")
    assert refusal(site.http.post("/update-tags", json=[1])).startswith(
        "Invalid JSON format in request body."
    )
    assert "group" in refusal(site.http.post("/update-tags", json={"group": {"a": 1}}))
    assert len(given) == 2


def test_log_levels_can_be_read_set_and_reset(site) -> None:
    name = "tidegate.api"
    before = logging.getLogger(name).level
    try:
        assert name in {each["name"] for each in site.get("/loggers").json()}
        assert site.http.post(f"/loggers/{name}?level=debug").json()["level"] == "DEBUG"
        assert (
            site.http.post(f"/loggers/{name}", json={"level": "ERROR"}).json()["effectiveLevel"]
            == "ERROR"
        )
        assert site.http.delete(f"/loggers/{name}").json()["level"] is None
        assert "LOUD" not in refusal(site.http.post(f"/loggers/{name}?level=LOUD"))
        assert "does not exist" in refusal(site.get("/loggers/psycopg"))
        assert "cluster" in refusal(site.get(f"/loggers/{name}?scope=cluster"))
    finally:
        logging.getLogger(name).setLevel(before)


def test_secrets_of_a_job_are_encrypted(site) -> None:
    source = {"plugin_name": "MySQL-CDC", "username": "seatunnel", "password": "seatunnel_password"}
    job = {"env": {"shade.identifier": "base64"}, "source": [source], "transform": [], "sink": []}
    seen = site.http.post("/encrypt-config", json=job).json()
    assert (seen["source"][0]["username"], seen["source"][0]["password"]) == (
        "c2VhdHVubmVs",
        "c2VhdHVubmVsX3Bhc3N3b3Jk",
    )
    assert "rot13" in refusal(
        site.http.post("/encrypt-config", json=job | {"env": {"shade.identifier": "rot13"}})
    )
    refusal(site.http.post("/encrypt-config", content=b"nonsense"))


def test_the_options_of_a_connector(site) -> None:
    seen = site.get("/option-rules?type=source&plugin=FakeSource").json()
    assert (seen["pluginType"], seen["pluginName"]) == ("source", "FakeSource")
    keys = {option["key"] for option in seen["optionRule"]["optionalOptions"]}
    assert "row.num" in keys
    rules = site.get("/option-rules?type=sink&plugin=LocalFile").json()["optionRule"][
        "requiredOptions"
    ]
    assert "ABSOLUTELY_REQUIRED" in {rule["ruleType"] for rule in rules}
    assert "FakeSource" in refusal(site.get("/option-rules?type=source&plugin=FakeSorce"))
    refusal(site.get("/option-rules?type=engine&plugin=x"))


def test_openmetrics_text_ends_with_its_end_mark(site) -> None:
    site.running(1)
    site.pipeline(1, checkpoint=1, rows_read=5, rows_written=5)
    answer = site.get("/openmetrics")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")
    assert "# TYPE tidegate_job_rows_read counter\n" in answer.text
    assert 'tidegate_job_rows_read_total{job_id="1"' in answer.text


def test_many_jobs_are_submitted_and_stopped_at_once(site) -> None:
    jobs = [
        JOB | {"params": {"jobId": 11, "jobName": "one"}},
        JOB | {"params": {"jobId": "x"}},
        JOB,
    ]
    seen = site.http.post("/submit-jobs", json=jobs).json()
    assert seen[0] == {"jobId": "11", "jobName": "one"}
    assert (seen[1]["status"], seen[1]["message"].split(":")[0]) == ("fail", "job 2")
    assert seen[2]["jobId"].isdigit()
    assert site.http.post(
        "/stop-jobs", json=[{"jobId": 11}, {"jobId": seen[2]["jobId"]}]
    ).json() == [{"jobId": 11}, {"jobId": int(seen[2]["jobId"])}]
    assert site.solid.get(RUNNING_JOBS, "11").value["intent"]["wish"] == "cancel"


@pytest.mark.parametrize("path", ["/submit-jobs", "/stop-jobs"])
@pytest.mark.parametrize(
    "body", [b"", b"nonsense", b"{}", b"[1]", json.dumps([{}] * 1001).encode()]
)
def test_bodies_that_are_not_lists_are_rejected(site, path: str, body: bytes) -> None:
    refusal(site.http.post(path, content=body))


def test_one_bad_id_stops_no_job(site) -> None:
    site.http.post("/submit-job?jobId=11", json=JOB)
    refusal(site.http.post("/stop-jobs", json=[{"jobId": 11}, {"jobId": "eleven"}]))
    assert site.solid.get(RUNNING_JOBS, "11").value["intent"]["wish"] == "run"


def test_a_job_file_is_uploaded(site) -> None:
    hocon = (
        b'source { FakeSource { plugin_output = "t", schema { fields { id = bigint } } } }\nsink {'
        b' Console { plugin_input = "t" } }\nenv { job.mode = "BATCH" }'
    )
    for job_id, (name, content) in enumerate(
        [("job.conf", hocon), ("job.json", json.dumps(JOB).encode())], start=21
    ):
        answer = site.http.post(
            f"/submit-job/upload?jobId={job_id}&jobName=up", files={"config_file": (name, content)}
        )
        assert (answer.status_code, answer.json()) == (200, {"jobId": str(job_id), "jobName": "up"})
    assert ".conf" in refusal(
        site.http.post("/submit-job/upload", files={"config_file": ("job.exe", hocon)})
    )
    assert "config_file" in refusal(
        site.http.post("/submit-job/upload", files={"other": ("job.conf", hocon)})
    )
    assert "form" in refusal(site.http.post("/submit-job/upload", content=hocon))
