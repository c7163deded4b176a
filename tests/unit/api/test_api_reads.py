"""SeaTunnel's read routes: document formats, states, ages, paging."""

import json
from pathlib import Path
from typing import Any

import pytest

from tidegate.model.log_retention import LogRetentionMetric, RetentionLevel
from tidegate.model.records import (
    JOB_OUTCOMES,
    JOB_STATES,
    RUNNING_JOBS,
    CheckpointHealth,
    Failure,
    JobState,
    JobStatus,
    PipelineStatus,
)
from tidegate.store.base import Put

GOLDEN = Path("/work/shared/seatunnel_rest")
NOW_MS = 1_790_000_000_000
FREE = {
    "envOptions",
    "pipelineEdges",
    "pluginJarsUrls",
    "metrics",
}  # what is in there depends on the job

RUNNING_KEYS = {
    "jobId",
    "jobName",
    "jobStatus",
    "envOptions",
    "createTime",
    "startTime",
    "jobDag",
    "pluginJarsUrls",
    "isStartWithSavePoint",
    "metrics",
}
CHECKPOINT_KEYS = {
    "lastCheckpointId",
    "lastCheckpointTime",
    "secondsSinceLastCheckpoint",
    "checkpointHealth",
    "healthReason",
    "restorable",
    "runway",
}
FINISHED_KEYS = {
    "jobId",
    "jobName",
    "jobStatus",
    "errorMsg",
    "createTime",
    "finishTime",
    "jobDag",
    "pluginJarsUrls",
    "metrics",
}


def shape(value: Any, path: str = "") -> dict[str, str]:
    """Every path of a document with its JSON type; nothing below what depends on the job."""
    if isinstance(value, dict):
        inner = (
            {}
            if path.rpartition(".")[2] in FREE
            else {
                k: t for key, each in value.items() for k, t in shape(each, f"{path}.{key}").items()
            }
        )
        return {path: "object", **inner}
    if isinstance(value, list):
        return {
            path: "array",
            **(
                shape(value[0], f"{path}[]")
                if value and path.rpartition(".")[2] not in FREE
                else {}
            ),
        }
    return {
        path: {bool: "boolean", int: "number", float: "number", str: "string", type(None): "null"}[
            type(value)
        ]
    }


def test_an_empty_server_returns_zeros_as_text(site) -> None:
    answer = site.get("/overview")
    assert answer.status_code == 200
    counts = (
        "totalSlot",
        "unassignedSlot",
        "workers",
        "runningJobs",
        "pendingJobs",
        "finishedJobs",
        "failedJobs",
        "cancelledJobs",
    )
    assert {key: answer.json()[key] for key in counts} == dict.fromkeys(counts, "0")
    assert all(isinstance(value, str) for value in answer.json().values())


def test_the_overview_counts_jobs_by_state_and_slots_of_workers(site) -> None:
    site.running(1)
    site.running(2, JobStatus.PENDING)
    site.running(3, JobStatus.RECOVERING)
    site.running(4, JobStatus.CANCELING)
    site.ended(5)
    site.ended(6, JobStatus.FAILED)
    site.ended(7, JobStatus.CANCELED)
    site.worker("w1", slots=4, holds=(1, 4))
    site.worker("w2", slots=3, tags={"group": "a"})
    seen = site.get("/overview").json()
    assert (
        seen["runningJobs"],
        seen["pendingJobs"],
        seen["finishedJobs"],
        seen["failedJobs"],
        seen["cancelledJobs"],
    ) == ("2", "2", "1", "1", "1")
    assert (seen["workers"], seen["totalSlot"], seen["unassignedSlot"]) == ("2", "7", "5")
    tagged = site.get("/overview?group=a").json()
    assert (
        tagged["workers"],
        tagged["totalSlot"],
        tagged["unassignedSlot"],
        tagged["runningJobs"],
    ) == ("1", "3", "3", "2")
    assert site.get("/overview?group=b").json()["workers"] == "0"


def test_a_running_job_has_the_fields_of_seatunnel_and_its_checkpoints(site) -> None:
    site.running(77, name="stream")
    site.pipeline(77, checkpoint=12, age_s=30, rows_read=100, rows_written=90, checkpoints=12)
    site.metrics(77, rows_read=120, rows_written=110, at_ms=NOW_MS)
    (job,) = site.get("/running-jobs").json()
    assert job.keys() >= RUNNING_KEYS | CHECKPOINT_KEYS
    assert (job["jobId"], job["jobName"], job["jobStatus"], job["isStartWithSavePoint"]) == (
        "77",
        "stream",
        "RUNNING",
        False,
    )
    assert (
        job["lastCheckpointId"],
        job["secondsSinceLastCheckpoint"],
        job["checkpointHealth"],
    ) == ("12", "30", "OK")
    assert (
        job["metrics"]["SourceReceivedCount"],
        job["metrics"]["SinkWriteCount"],
        job["metrics"]["SinkCommittedCount"],
    ) == ("120", "110", "90")
    assert len(job["lastCheckpointTime"]) == len(job["createTime"]) == len("2026-11-15 09:57:27")
    assert job["envOptions"] == {
        "job.mode": "STREAMING",
        "job.name": "stream",
        "parallelism": "1",
        "checkpoint.interval": "2000",
    }
    assert job["jobDag"]["pipelineEdges"] == {"1": [{"inputVertexId": "1", "targetVertexId": "2"}]}
    assert job["jobDag"]["vertexInfoMap"][0] == {
        "vertexId": 1,
        "type": "source",
        "vertexName": "pipeline-1 [Source[0]-FakeSource]",
        "tablePaths": ["db.t"],
    }


def test_the_age_of_a_checkpoint_grows_while_nothing_is_written(site) -> None:
    site.running(1)
    site.pipeline(1, checkpoint=1, age_s=5)
    ages = []
    for _ in range(3):
        ages.append(site.get("/running-jobs").json()[0]["secondsSinceLastCheckpoint"])
        site.clock.advance(10)
    assert ages == ["5", "15", "25"]


def test_an_idle_job_is_as_young_as_its_last_confirmation(site) -> None:
    site.running(1)
    site.pipeline(1, checkpoint=4, age_s=500, confirmed_ms=NOW_MS - 2000)
    (job,) = site.get("/running-jobs").json()
    assert (job["lastCheckpointId"], job["secondsSinceLastCheckpoint"]) == ("4", "2")


def test_the_oldest_unfinished_pipeline_determines_the_age(site) -> None:
    site.running(1)
    site.pipeline(1, 1, checkpoint=9, age_s=1)
    site.pipeline(1, 2, checkpoint=5, age_s=40)
    site.pipeline(1, 3, checkpoint=2, age_s=900, status=PipelineStatus.FINISHED)
    (job,) = site.get("/running-jobs").json()
    assert (job["lastCheckpointId"], job["secondsSinceLastCheckpoint"]) == ("9", "40")


def test_a_job_without_a_checkpoint_has_empty_text_there(site) -> None:
    site.running(1, JobStatus.PENDING, reason="no worker has a free slot")
    (job,) = site.get("/running-jobs").json()
    assert (
        job["lastCheckpointId"],
        job["lastCheckpointTime"],
        job["secondsSinceLastCheckpoint"],
    ) == ("", "", "")
    assert job["statusReason"] == "no worker has a free slot"


def test_health_and_its_reason_are_shown(site) -> None:
    site.running(1, health=CheckpointHealth.STALLED, health_reason="the sink is blocked")
    (job,) = site.get("/running-jobs").json()
    assert (job["checkpointHealth"], job["healthReason"]) == ("STALLED", "the sink is blocked")


def test_the_log_retention_of_every_source_is_shown_with_the_worst_level(site) -> None:
    site.running(1)
    (job,) = site.get("/running-jobs").json()
    assert job["runway"] == {"level": "OK", "reason": "", "sources": []}
    site.metrics(
        1,
        log_retention=(
            LogRetentionMetric(
                source="orders",
                level=RetentionLevel.LOW,
                checkpoint=3,
                seconds_left=50.0,
                reason="binlog.7",
            ),
        ),
    )
    (job,) = site.get("/running-jobs").json()
    assert (job["runway"]["level"], job["runway"]["reason"]) == (
        "LOW",
        "orders will not hold checkpoint 3 for long: 50 s left, binlog.7",
    )
    told = {
        "source": "orders",
        "level": "LOW",
        "checkpointId": "3",
        "secondsLeft": 50.0,
        "bytesLeft": None,
        "reason": "binlog.7",
    }
    assert job["runway"]["sources"] == [told]


def test_recovering_is_shown_as_pending(site) -> None:
    site.running(1, JobStatus.RECOVERING)
    assert site.get("/job-info/1").json()["jobStatus"] == "PENDING"


def test_a_change_of_any_record_is_seen_in_the_next_answer(site) -> None:
    site.running(1)
    site.pipeline(1, checkpoint=1)
    assert site.get("/running-jobs").json()[0]["lastCheckpointId"] == "1"
    site.pipeline(1, checkpoint=2, rows_written=5)
    site.metrics(1, rows_written=7)
    job = site.get("/running-jobs").json()[0]
    assert (job["lastCheckpointId"], job["metrics"]["SinkWriteCount"]) == ("2", "7")
    site.metrics(1, rows_written=8)
    assert site.get("/running-jobs").json()[0]["metrics"]["SinkWriteCount"] == "8"
    site.running(1, JobStatus.CANCELING)
    assert site.get("/running-jobs").json()[0]["jobStatus"] == "CANCELING"


def test_metrics_of_an_older_generation_do_not_count(site) -> None:
    site.running(1, generation=2)
    site.pipeline(1, checkpoint=1, rows_read=3, rows_written=3)
    site.metrics(1, rows_read=50, rows_written=50)
    assert site.get("/job-info/1").json()["metrics"]["SourceReceivedCount"] == "3"


@pytest.mark.parametrize("status", [s for s in JobStatus if s.terminal])
def test_a_leftover_entry_of_an_ended_job_is_not_listed_as_running(site, status: JobStatus) -> None:
    site.running(1, status)
    assert site.get("/running-jobs").json() == []
    assert site.get("/overview").json()["runningJobs"] == "0"
    assert site.get("/job-info/1").json()["jobStatus"] == status.value


def test_an_entry_without_a_state_is_not_listed_as_running(site) -> None:
    site.running(1)
    site.take(JOB_STATES, 1)
    assert site.get("/running-jobs").json() == []
    assert site.get("/job-info/1").json() == {"jobId": "1"}


def test_a_job_that_was_submitted_again_is_shown_as_it_is_now(site) -> None:
    site.ended(1, JobStatus.FAILED)
    site.running(1)
    assert site.get("/job-info/1").json()["jobStatus"] == "RUNNING"
    site.take(RUNNING_JOBS, 1)
    site.put(JOB_STATES, 1, JobState(job_id=1, status=JobStatus.FAILED))
    assert site.get("/job-info/1").json()["jobStatus"] == "FAILED"


def test_a_finished_job_has_the_fields_of_seatunnel(site) -> None:
    site.ended(5)
    job = site.get("/job-info/5").json()
    assert job.keys() >= FINISHED_KEYS
    assert (
        job["jobStatus"],
        job["errorMsg"],
        job["pluginJarsUrls"],
        job["metrics"]["SinkWriteCount"],
    ) == ("FINISHED", None, [], "5")
    assert site.get("/finished-jobs").json() == [job]


def test_a_failed_job_shows_its_last_failure(site) -> None:
    failures = (
        Failure(at_ms=1, generation=1, message="first"),
        Failure(at_ms=2, generation=2, message="the disk is full"),
    )
    site.ended(5, JobStatus.FAILED, failures=failures)
    site.ended(6, JobStatus.CANCELED, failures=failures)
    assert site.get("/job-info/5").json()["errorMsg"] == "the disk is full"
    assert site.get("/job-info/6").json()["errorMsg"] is None


def test_finished_jobs_are_filtered_in_any_case_and_come_newest_first(site) -> None:
    site.ended(1, finished_ms=NOW_MS - 3000)
    site.ended(2, JobStatus.CANCELED, finished_ms=NOW_MS - 2000)
    site.ended(3, finished_ms=NOW_MS - 1000)
    assert [job["jobId"] for job in site.get("/finished-jobs").json()] == ["3", "2", "1"]
    assert [job["jobId"] for job in site.get("/finished-jobs/finished").json()] == ["3", "1"]
    assert [job["jobId"] for job in site.get("/finished-jobs/CANCELED").json()] == ["2"]
    assert site.get("/finished-jobs/NONSENSE").json() == []


def test_an_unreadable_outcome_does_not_hide_others(site) -> None:
    site.ended(1)
    document = site.solid.get(JOB_OUTCOMES, "1").value
    site.solid.transact(
        [],
        [Put(JOB_OUTCOMES, "2", {**document, "job_id": 2, "version": 99, "finished_ms": NOW_MS})],
    )
    newer, good = site.get("/finished-jobs").json()
    assert (newer["jobId"], newer["jobStatus"], good["jobId"]) == ("2", "FINISHED", "1")
    assert "upgrade" in newer["errorMsg"]


def test_pages_hold_rows_and_the_total(site) -> None:
    for job_id in range(1, 26):
        site.running(job_id, at_ms=NOW_MS - job_id)
    first, last = (
        site.get("/running-jobs?page=1").json(),
        site.get("/running-jobs?page=3&rows=10").json(),
    )
    assert first["total"] == last["total"] == 25
    assert [job["jobId"] for job in first["data"]] == [str(n) for n in range(1, 11)]
    assert [job["jobId"] for job in last["data"]] == [str(n) for n in range(21, 26)]
    assert site.get("/running-jobs?page=9").json() == {"data": [], "total": 25}
    for bad in ("page=0", "page=-1", "page=x", "page=1&rows=0", "rows=x"):
        answer = site.get(f"/running-jobs?{bad}")
        assert (answer.status_code, answer.json()["status"]) == (400, "fail"), bad


def test_an_unknown_id_is_returned_and_an_invalid_one_is_rejected(site) -> None:
    assert site.get("/job-info/12345").json() == {"jobId": "12345"}
    assert site.get("/running-job/12345").json() == {"jobId": "12345"}
    for bad in (
        "/job-info",
        "/job-info/abc",
        "/job-info/0",
        "/job-info/-1",
        f"/job-info/{2**63}",
        "/job-info/%D9%A1",
    ):
        answer = site.get(bad)
        assert (answer.status_code, answer.json()["status"]) == (400, "fail"), bad


def test_secrets_in_env_are_masked(site) -> None:
    env = """
      spark.hadoop.fs.s3a.secret.key = "s3cr3t", spark.app.url = "jdbc://ann:s3cr3t@db/x", spark.sql.shuffle.partitions = 3
      custom_parameters { owner = "ann", api_token = "s3cr3t", nested { password = "s3cr3t" } }
    """
    site.running(1, env=f", {env}")
    answer = site.get("/job-info/1")
    assert "s3cr3t" not in answer.text
    options = answer.json()["envOptions"]
    assert options["spark.sql.shuffle.partitions"] == "3"
    assert json.loads(options["custom_parameters"])["owner"] == "ann"


def test_health_shows_the_leader_and_the_state_of_the_store(site) -> None:
    site.leader("another")
    seen = site.get("/health")
    assert (
        seen.status_code,
        seen.json()["leading"],
        seen.json()["leader"]["id"],
        seen.json()["leader"]["term"],
    ) == (200, False, "another", 3)
    site.leader("server-1")
    assert site.get("/health").json()["leading"] is True


@pytest.mark.skipif(
    not GOLDEN.is_dir(), reason="the recorded responses of SeaTunnel are not available"
)
@pytest.mark.parametrize(
    ("golden", "path"),
    [
        ("overview", "/overview"),
        ("job_info_running", "/job-info/1"),
        ("running_job_running", "/running-job/1"),
        ("running_jobs", "/running-jobs"),
        ("job_info_finished", "/job-info/2"),
        ("job_info_failed", "/job-info/3"),
        ("job_info_canceled", "/job-info/4"),
        ("finished_jobs_FINISHED", "/finished-jobs/FINISHED"),
        ("finished_jobs_nonsense", "/finished-jobs/NONSENSE"),
        ("job_info_unknown", "/job-info/12345"),
    ],
)
def test_a_response_has_every_key_and_type_of_seatunnel(site, golden: str, path: str) -> None:
    site.running(1)
    site.pipeline(1, checkpoint=1)
    site.ended(2)
    site.ended(3, JobStatus.FAILED, failures=(Failure(at_ms=1, generation=1, message="no"),))
    site.ended(4, JobStatus.CANCELED)
    wanted, found = (
        shape(json.loads((GOLDEN / f"{golden}.json").read_text())),
        shape(site.get(path).json()),
    )
    assert {key: kind for key, kind in wanted.items() if found.get(key) != kind} == {}
