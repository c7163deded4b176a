"""Restore options of a submit: our parameters and SeaTunnel's, messages, and the restore report."""

import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import QueryParams

from tidegate.api.app import make_app
from tidegate.api.seatunnel.restore_params import in_parameters, restore_options
from tidegate.checkpoints.manifest import Manifest
from tidegate.coordinator.restore.options import (
    NeedsChoice,
    PreviousRun,
    RestoreOptions,
    RestoreSource,
    decide,
)
from tidegate.model.document import from_document
from tidegate.model.errors import UserError
from tidegate.model.option_error import OptionError, OptionMention
from tidegate.model.records import (
    JOB_STATES,
    PIPELINES,
    RUNNING_JOBS,
    WORKERS,
    CheckpointRef,
    JobRecord,
    JobState,
    JobStatus,
    PipelineState,
    WorkerRecord,
)
from tidegate.model.restore import OnDamaged, OnIncompatible, OnMissing, OnPositionLost, OnSinkLost
from tidegate.ui.app import routes as pages

JSON: dict[str, Any] = {
    "env": {"job.mode": "STREAMING"},
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
SOURCE = "Source[0]-FakeSource"


def refusal(answer: Any) -> str:
    assert (answer.status_code, answer.json()["status"]) == (400, "fail"), answer.text
    assert "--" not in answer.json()["message"]
    return answer.json()["message"]


def ended(
    site, job_id: int = 5, checkpoints: int = 2, status: JobStatus = JobStatus.CANCELED
) -> None:
    """A job that has ended, with checkpoints on the disk."""
    site.running(job_id, JobStatus.RUNNING)
    refs = []
    for number in range(1, checkpoints + 1):
        manifest = Manifest(
            job_id=job_id,
            pipeline=1,
            checkpoint=number,
            lineage="l",
            generation=1,
            begun_ms=0,
            files={},
        )
        published = site.context.commands.storage.publish(manifest, {SOURCE: {"offset": number}})
        refs.append(
            CheckpointRef(
                checkpoint=number,
                path=published.path,
                generation=1,
                begun_ms=0,
                completed_ms=number,
                rows_read=10,
            )
        )
    state = PipelineState(
        job_id=job_id,
        pipeline=1,
        lineage="l",
        generation=1,
        retained=tuple(refs),
        next_checkpoint=checkpoints + 1,
        initial={SOURCE: 0},
        rows_read=20,
    )
    site.put(PIPELINES, f"{job_id}/1", state)
    if status.terminal:
        site.take(RUNNING_JOBS, job_id)
        site.put(JOB_STATES, job_id, JobState(job_id=job_id, status=status, generation=1))


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ({}, RestoreOptions(RestoreSource.ASK)),
        ({"restore": "auto"}, RestoreOptions(RestoreSource.AUTO)),
        ({"jobId": "5", "isStartWithSavePoint": "true"}, RestoreOptions(RestoreSource.LATEST)),
        (
            {"jobId": "5", "isStartWithSavePoint": "TRUE", "restore": "checkpoint:3"},
            RestoreOptions(RestoreSource.CHECKPOINT, 3),
        ),
        (
            {"restore": "savepoint:1700000000000"},
            RestoreOptions(RestoreSource.SAVEPOINT, location="1700000000000"),
        ),
        (
            {"restoreMode": "CHECKPOINT", "restoreSourceJobId": "5"},
            RestoreOptions(RestoreSource.LATEST, source_job=5),
        ),
        (
            {"restoreFrom": "5", "restore": "checkpoint:2", "jobId": "6"},
            RestoreOptions(RestoreSource.CHECKPOINT, 2, source_job=5),
        ),
        (
            {"restoreFrom": "5", "jobId": "5", "restore": "latest"},
            RestoreOptions(RestoreSource.LATEST),
        ),
        (
            {"takeover": "true", "allowDuplicates": "true"},
            RestoreOptions(RestoreSource.ASK, takeover=True, duplicates=True),
        ),
        (
            {"restore": "latest", "skipFile": "/in/b.csv\nfile:///in/c", "acceptFile": "/d/"},
            RestoreOptions(
                RestoreSource.LATEST, skip_files=("/in/b.csv", "/in/c"), accept_files=("/d",)
            ),
        ),
        (
            QueryParams("restore=latest&skipFile=/a&skipFile=/b"),
            RestoreOptions(RestoreSource.LATEST, skip_files=("/a", "/b")),
        ),
        (
            {
                "restore": "latest",
                "onMissing": "fresh",
                "onDamaged": "fail",
                "onIncompatible": "DROP",
                "onNotHeld": "initial",
                "onSinkLost": "continue",
            },
            RestoreOptions(
                RestoreSource.LATEST,
                on_missing=OnMissing.FRESH,
                on_damaged=OnDamaged.FAIL,
                on_incompatible=OnIncompatible.DROP,
                on_position_lost=OnPositionLost.INITIAL,
                on_sink_lost=OnSinkLost.CONTINUE,
            ),
        ),
    ],
)
def test_request_parameters_are_parsed_as_restore_options(
    query: dict[str, str], options: RestoreOptions
) -> None:
    assert restore_options(query) == options


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("restoreMode=CHECKPOINT", "restoreSourceJobId"),
        ("restoreMode=YESTERDAY&restoreSourceJobId=5", "restoreMode=YESTERDAY is unknown"),
        ("restoreSourceJobId=5", "restoreMode=CHECKPOINT"),
        ("restoreFrom=abc", "not a jobId"),
        ("skipFile=b.csv", "skipFile='b.csv' is not an absolute path"),
        ("acceptFile=b.csv", "acceptFile='b.csv' is not an absolute path"),
        ("onMissing=perhaps", "onMissing='perhaps' is invalid: use fail or fresh"),
        ("takeover=perhaps", "takeover"),
        ("jobId=9&restore=savepoint:1", "there is no savepoint '1' of job 9"),
        ("jobId=9&restore=latest", "use onMissing=fresh"),
        ("jobId=9&restoreFrom=8", "job 8 has never run here"),
    ],
)
def test_invalid_restore_options_are_rejected_with_parameter_names(
    site, query: str, word: str
) -> None:
    assert word in refusal(site.http.post(f"/submit-job?{query}", json=JSON))
    assert site.solid.list(RUNNING_JOBS) == []


def test_skipped_files_are_in_the_record_and_in_the_report(site) -> None:
    ended(site)
    asked = "jobId=5&restore=latest&skipFile=/in/b&skipFile=/in/c&acceptFile=/in/d"
    assert site.http.post(f"/submit-job?{asked}", json=JSON).status_code == 200
    record = site.solid.get(RUNNING_JOBS, "5").value
    assert (record["skip_files"], record["accept_files"]) == (["/in/b", "/in/c"], ["/in/d"])
    notes = site.get("/job-info/5").json()["restoreReport"]["notes"]
    assert [note.split()[0] for note in notes] == ["/in/b", "/in/c", "/in/d"]


def test_the_typed_api_accepts_skipped_files(site) -> None:
    ended(site)
    body = {
        "text": json.dumps(JSON),
        "format": "json",
        "id": "5",
        "restore": "latest",
        "skip_files": ["/in/b"],
    }
    planned = site.http.post("/api/v1/restore-plan", json=body)
    assert planned.status_code == 200, planned.text
    assert [note for note in planned.json()["notes"] if note.startswith("/in/b is left out")]
    assert site.http.post("/api/v1/jobs", json=body).status_code == 201
    assert site.solid.get(RUNNING_JOBS, "5").value["skip_files"] == ["/in/b"]
    refused = site.http.post("/api/v1/restore-plan", json={**body, "skip_files": ["b"]})
    assert refused.status_code in (400, 422)


def test_a_restored_job_shows_its_report(site) -> None:
    ended(site)
    assert (
        site.http.post("/submit-job?jobId=5&isStartWithSavePoint=true", json=JSON).status_code
        == 200
    )
    seen = site.get("/job-info/5").json()
    assert seen["isStartWithSavePoint"] is True
    report = seen["restoreReport"]
    assert (report["verdict"], report["pipelines"][0]["checkpoint"]) == ("ok", 2)
    assert [o["operator"] for o in report["operators"]] == [SOURCE, "Sink[0]-Console"]
    assert report["operators"][0]["held"] == "asked when the driver starts"


def test_a_fresh_job_has_no_report(site) -> None:
    assert site.http.post("/submit-job?jobId=5", json=JSON).status_code == 200
    assert site.get("/job-info/5").json()["restoreReport"] is None


CDC = """
env { job.mode = "STREAMING", job.name = "orders" }
source { MySQL-CDC { url = "jdbc:mysql://127.0.0.1:1/shop", username = "u", password = "p", table-names = ["shop.orders"] } }
sink { Jdbc {
  url = "jdbc:postgresql://127.0.0.1:1/t", driver = "org.postgresql.Driver", database = "t", table = "orders", generate_sink_sql = true, primary_keys = ["id"]
} }
"""


def test_a_fresh_start_shows_the_rows_that_it_leaves_in_the_target(site) -> None:
    site.http.close()
    site.http = type(site.http)(make_app(site.context, pages(site.context)))
    first = site.http.post("/api/v1/jobs", json={"text": CDC, "id": "6"})
    assert (first.status_code, first.json()["notes"]) == (201, [])
    assert site.get("/api/v1/jobs/6").json()["restore"] is None
    ended(site)
    answer = site.http.post("/api/v1/jobs", json={"text": CDC, "id": "5", "restore": "fresh"})
    assert answer.status_code == 201, answer.text
    (note,) = answer.json()["notes"]
    assert (
        "rows that Source[0]-MySQL-CDC has lost since it was last read stay in the target" in note
    )
    shown = site.get("/api/v1/jobs/5").json()
    assert (shown["restored"], shown["restore"]["start"], shown["restore"]["notes"]) == (
        False,
        "fresh",
        [note],
    )
    assert site.get("/job-info/5").json()["restoreReport"]["notes"] == [note]
    page = site.get("/ui/jobs/5").text
    assert "<details open><summary>Restore report: fresh, ok</summary>" in page
    assert "stay in the target" in page
    record = from_document(JobRecord, site.solid.get(RUNNING_JOBS, "5").value)
    site.take(RUNNING_JOBS, 5)
    site.ended(5, plan=record.plan, restore=record.restore)
    assert site.get("/api/v1/jobs/5").json()["restore"]["notes"] == [note]


def test_the_last_checkpoint_of_another_job_starts_a_new_one(site) -> None:
    ended(site)
    answer = site.http.post("/submit-job?restoreMode=CHECKPOINT&restoreSourceJobId=5", json=JSON)
    assert answer.status_code == 200
    assert answer.json()["jobId"] != "5"
    assert (
        site.get(f"/job-info/{answer.json()['jobId']}").json()["restoreReport"]["source_job"] == 5
    )


def test_a_restore_that_would_duplicate_rows_needs_consent(site) -> None:
    ended(site, checkpoints=3)
    assert "allowDuplicates=true" in refusal(
        site.http.post("/submit-job?jobId=5&restore=checkpoint:1", json=JSON)
    )
    assert (
        site.http.post(
            "/submit-job?jobId=5&restore=checkpoint:1&allowDuplicates=true", json=JSON
        ).status_code
        == 200
    )


def lost(site, tmp_path: Path, host: str) -> dict[str, Any]:
    """Add an ended job whose file sink has lost its files, and a worker on `host`."""
    sink = "Sink[0]-LocalFile"
    ended(site)
    state = {
        SOURCE: {"offset": 2},
        sink: {"state": {"version": 1, "checkpoint": 2, "filled": 2}, "lineage": "l"},
    }
    site.context.commands.storage.publish(
        Manifest(
            job_id=5, pipeline=1, checkpoint=2, lineage="l", generation=1, begun_ms=0, files={}
        ),
        state,
    )
    site.worker("w")
    site.put(
        WORKERS,
        "w",
        replace(from_document(WorkerRecord, site.solid.get(WORKERS, "w").value), host=host),
    )
    return {
        **JSON,
        "sink": [
            {
                "plugin_name": "LocalFile",
                "plugin_input": "t",
                "path": str(tmp_path / "gone"),
                "file_format_type": "json",
            }
        ],
    }


def test_a_restore_into_a_target_without_its_record_needs_consent(site, tmp_path: Path) -> None:
    job = lost(site, tmp_path, socket.gethostname())
    said = refusal(site.http.post("/submit-job?jobId=5&restore=latest", json=job))
    assert "has lost its record: checkpoint 2" in said
    assert "onSinkLost=continue" in said
    body = {"text": json.dumps(job), "format": "json", "id": "5", "restore": "latest"}
    plan = site.http.post("/api/v1/restore-plan", json=body).json()
    assert plan["verdict"] == "needs consent"
    assert "has lost its record" in plan["consents"][0]
    assert (
        site.http.post("/api/v1/restore-plan", json={**body, "on_sink_lost": "continue"}).json()[
            "verdict"
        ]
        == "ok"
    )
    assert (
        site.http.post(
            "/submit-job?jobId=5&restore=latest&onSinkLost=continue", json=job
        ).status_code
        == 200
    )


def test_a_server_without_local_workers_leaves_the_check_to_the_driver(
    site, tmp_path: Path
) -> None:
    job = lost(site, tmp_path, "another-host")
    assert site.http.post("/submit-job?jobId=5&restore=latest", json=job).status_code == 200


def test_a_running_job_is_taken_over(site) -> None:
    ended(site, status=JobStatus.RUNNING)
    assert "RUNNING already" in refusal(
        site.http.post("/submit-job?jobId=5&restore=latest", json=JSON)
    )
    assert site.http.post("/submit-job?jobId=5&takeover=true", json=JSON).status_code == 200
    assert site.get("/job-info/5").json()["jobStatus"] == "CREATED"


def test_options_in_an_error_are_reworded_and_its_condition_is_kept() -> None:
    error = OptionError(
        "use ",
        OptionMention("--restore", "latest"),
        ", or ",
        OptionMention("--on-damaged", "older"),
        ", without ",
        OptionMention("--takeover"),
        " or ",
        OptionMention("--restore"),
    )
    error.condition = "x"
    assert (
        str(error) == "use --restore latest, or --on-damaged older, without --takeover or --restore"
    )
    reworded = in_parameters(error)
    assert (str(reworded), reworded.condition) == (
        "use restore=latest, or onDamaged=older, without takeover=true or restore",
        "x",
    )


def test_other_errors_are_not_reworded() -> None:
    error = UserError("use --restore latest")
    assert in_parameters(error) is error


@pytest.mark.parametrize(
    "condition", [PreviousRun.NONE, PreviousRun.FINISHED, PreviousRun.DISCARDED]
)
def test_every_missing_restore_point_is_reworded(condition: PreviousRun) -> None:
    with pytest.raises(OptionError) as caught:
        decide(RestoreOptions(RestoreSource.LATEST), condition, job="job 7", status="", position="")
    assert "--" not in str(in_parameters(caught.value))
    assert "restore=fresh" in str(in_parameters(caught.value))


def test_a_choice_of_restore_points_is_reworded() -> None:
    text = str(in_parameters(NeedsChoice("job 7", "FAILED", "checkpoint 3")))
    assert "\n  restore=latest           from its last completed checkpoint\n" in text
    assert "\n  restore=checkpoint:<id>  from an older one" in text
    assert "--" not in text
