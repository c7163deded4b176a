"""Responses and pages agree: rates, ended pipelines, edges, restarts, histories."""

import json
from dataclasses import replace

import pytest

from tidegate.api.app import make_app
from tidegate.api.login_return import local_page, login_path
from tidegate.api.v1.models import StorageSurvey
from tidegate.coordinator.tokens import Tokens
from tidegate.model.engine import EngineSettings
from tidegate.model.records import (
    JOB_STATES,
    METRICS,
    PIPELINES,
    CheckpointHealth,
    CheckpointRef,
    JobEvent,
    JobEventKind,
    JobState,
    JobStatus,
    PendingBatch,
    PipelineMetrics,
    PipelineState,
    PipelineStatus,
    Role,
    SourceRange,
)
from tidegate.model.throughput import PipelineRates, Rate, Volume
from tidegate.ui.app import routes as pages
from tidegate.ui.formats import number, size
from tidegate.ui.log_text import readable

NOW_MS = 1_790_000_000_000
SOURCE, SINK = "Source[0]-FakeSource", "Sink[0]-Console"
FLOW = PipelineRates(
    rows_read=2000,
    rows_written=1990,
    operators={SOURCE: {"db.t": Rate(2000, 16000)}, SINK: {"db.t": Rate(1990, 15920)}},
)
LARGE = {SOURCE: {"db.t": Volume(90_000_000, 9)}, SINK: {"db.t": Volume(90_000_000, 9)}}


@pytest.fixture
def site(site):
    site.http.close()
    site.http = type(site.http)(make_app(site.context, pages(site.context)))
    return site


def flowing(site, job_id: int = 7, **state) -> None:
    """Add a job that has run for a long time and was restarted a moment ago."""
    site.running(job_id, entered={"SCHEDULED": NOW_MS - 1, "RUNNING": NOW_MS - 1}, **state)
    site.pipeline(
        job_id,
        checkpoint=2,
        checkpoints=2,
        rows_read=90_000_000,
        rows_written=90_000_000,
        volumes=LARGE,
        confirmed_ms=0,
    )


def rates_everywhere(site, job_id: int = 7) -> list[object]:
    """Return the rate in the list, the details, the edges, v2 and the metrics."""
    listed = next(
        job for job in site.get("/api/v1/jobs").json()["jobs"] if job["id"] == str(job_id)
    )
    details = site.get(f"/api/v1/jobs/{job_id}").json()
    v2 = site.get(f"/job-info/{job_id}").json()["metrics"]
    line = next(
        (
            each
            for each in site.get("/metrics").text.splitlines()
            if each.startswith(f'tidegate_job_rows_written_per_second{{job_id="{job_id}"')
        ),
        None,
    )
    return [
        listed["metrics"]["rows_written_per_second"],
        details["metrics"]["rows_written_per_second"],
        details["graph"][1]["rows_per_second"],
        v2["SinkWriteQPS"],
        v2["SinkCommittedQPS"],
        line.rpartition(" ")[2] if line else None,
    ]


def test_the_rate_is_the_same_in_every_response_and_page(site) -> None:
    flowing(site)
    site.metrics(7, rates=FLOW)
    assert rates_everywhere(site) == [1990, 1990, 1990, "1990", "1990", "1990"]
    assert site.get("/job-info/7").json()["metrics"]["SourceReceivedBytesPerSeconds"] == "16000"
    page = site.get("/ui/jobs/7").text
    assert "1,990/s" in page
    assert "1,990/s" in site.get("/ui/jobs").text


def test_a_driver_that_was_killed_leaves_no_rate_and_no_average(site) -> None:
    flowing(site, generation=2)
    site.metrics(7, rates=FLOW)  # of generation 1
    assert rates_everywhere(site) == [None, None, None, "0", "0", None]
    assert "\u2013/s" in site.get("/ui/jobs/7").text
    site.put(METRICS, "7/1", PipelineMetrics(pipeline=1, generation=2, rates=FLOW))
    assert rates_everywhere(site)[0] == 1990


@pytest.mark.parametrize(
    "status", [JobStatus.RECOVERING, JobStatus.PENDING, JobStatus.FAILING, JobStatus.SCHEDULED]
)
def test_a_job_without_a_driver_has_no_rate(site, status: JobStatus) -> None:
    flowing(site, status=status)
    site.metrics(7, rates=FLOW)
    assert rates_everywhere(site) == [None, None, None, "0", "0", None]


def test_idle_and_stalled_jobs_have_the_rate_zero(site) -> None:
    flowing(site)
    site.metrics(7, rates=PipelineRates())
    assert rates_everywhere(site) == [0, 0, 0, "0", "0", "0"]
    flowing(site, 8, health=CheckpointHealth.STALLED)
    site.metrics(8, rates=FLOW)
    assert rates_everywhere(site, 8) == [0, 0, 0, "0", "0", "0"]


def test_a_change_of_the_rate_alone_is_seen_at_once(site) -> None:
    flowing(site)
    for rate in (5.0, 3.0, 0.0):
        site.metrics(7, rates=PipelineRates(rows_written=rate))
        assert rates_everywhere(site)[0] == rate


def test_an_ended_job_has_the_average_of_its_whole_run_or_none(site) -> None:
    site.ended(
        8,
        started_ms=NOW_MS - 11_000,
        entered={"SCHEDULED": NOW_MS - 1_001},
        rows_written=1000,
        restarts_total=4,
    )
    job = site.get("/api/v1/jobs/8").json()
    assert (job["metrics"]["rows_written_per_second"], job["restarts"]) == (100, 4)
    assert site.get("/job-info/8").json()["metrics"]["SinkWriteQPS"] == "100"
    site.ended(9, started_ms=NOW_MS - 11_000, rows_written=1000, restored=True)
    assert site.get("/api/v1/jobs/9").json()["metrics"]["rows_written_per_second"] is None
    site.ended(10, started_ms=NOW_MS + 60_000, rows_written=1000)  # a clock that stepped back
    assert site.get("/api/v1/jobs/10").json()["metrics"]["rows_written_per_second"] is None


def leftover(site, status: JobStatus, **more: object) -> None:
    """Add a job ended by an older release: its pipeline is as the killed driver left it."""
    site.ended(8, status, checkpoints=0)
    pending = PendingBatch(checkpoint=1, ranges={"s": SourceRange(0, 5)}, generation=1, begun_ms=1)
    state = PipelineState(
        job_id=8,
        pipeline=1,
        lineage="l",
        generation=2,
        status=PipelineStatus.RUNNING,
        pending=pending,
        **more,
    )
    site.put(PIPELINES, "8/1", state)


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        (JobStatus.CANCELED, "CANCELED"),
        (JobStatus.FAILED, "FAILED"),
        (JobStatus.UNKNOWABLE, "FAILED"),
        (JobStatus.SAVEPOINT_DONE, "CANCELED"),
    ],
)
def test_pipelines_of_a_job_that_has_ended_are_shown_ended(
    site, status: JobStatus, shown: str
) -> None:
    leftover(site, status)
    (pipeline,) = site.get("/api/v1/jobs/8").json()["pipelines"]
    assert (pipeline["status"], pipeline["pending"]) == (shown, None)
    (old,) = site.get("/jobs/checkpoints/8").json()["pipelines"]
    assert (old["inProgress"], old["counts"]["inProgress"], old["counts"]["triggered"]) == (
        [],
        0,
        0,
    )
    page = site.get("/ui/jobs/8").text
    assert "RUNNING" not in page
    assert "making" not in page


def test_a_tombstone_that_is_gone_does_not_bring_a_pipeline_back(site) -> None:
    leftover(site, JobStatus.CANCELED)
    site.take(JOB_STATES, 8)
    assert site.get("/api/v1/jobs/8").json()["pipelines"][0]["status"] == "CANCELED"


def test_an_idle_sink_shows_zero_and_unknown_values_are_empty(site) -> None:
    site.running(7)
    site.pipeline(
        7,
        checkpoint=1,
        checkpoints=1,
        rows_read=42,
        rows_written=0,
        volumes={SOURCE: {"db.t": Volume(42, 1)}},
    )
    source, sink = site.get("/api/v1/jobs/7").json()["graph"]
    assert (source["rows"], sink["rows"]) == (42, 0)
    assert "42 rows" in site.get("/ui/jobs/7").text
    site.pipeline(
        7, checkpoint=1, checkpoints=1, rows_read=42, rows_written=42, volumes={}
    )  # of a release that did not count by operator
    assert [vertex["rows"] for vertex in site.get("/api/v1/jobs/7").json()["graph"]] == [None, None]
    assert "rows</text>" not in site.get("/ui/jobs/7").text


def test_restarts_are_counted_in_total_and_without_progress(site) -> None:
    site.running(7, restarts=1, restarts_total=3)
    job, old = site.get("/api/v1/jobs/7").json(), site.get("/job-info/7").json()
    assert (job["restarts"], job["restarts_without_progress"]) == (3, 1)
    assert (old["restarts"], old["restartsWithoutProgress"]) == ("3", "1")
    assert "<dt>Restarts</dt><dd>3</dd>" in site.get("/ui/jobs/7").text


def test_the_page_and_the_api_show_the_whole_history(site) -> None:
    events = (
        JobEvent(at_ms=NOW_MS - 90_000, kind=JobEventKind.SUBMITTED, to="fresh", by="ann"),
        JobEvent(
            at_ms=NOW_MS - 80_000,
            kind=JobEventKind.RESTART,
            to="RECOVERING",
            generation=1,
            reason="stalled: the sink hangs",
        ),
        JobEvent(
            at_ms=NOW_MS - 70_000,
            kind=JobEventKind.COMMAND,
            to="force-stop",
            by="bob",
            reason="accepted",
        ),
        JobEvent(at_ms=NOW_MS - 60_000, kind=JobEventKind.STATUS, to="CANCELED", generation=2),
    )
    site.ended(8, JobStatus.CANCELED, events=events)
    site.put(JOB_STATES, 8, JobState(job_id=8, status=JobStatus.CANCELED, events=events))
    assert [each["kind"] for each in site.get("/api/v1/jobs/8").json()["events"]] == [
        "status",
        "command",
        "restart",
        "submitted",
    ]
    page = site.get("/ui/jobs/8").text
    for text in ("submitted by ann", "stalled: the sink hangs", "stop at once requested by bob"):
        assert text in page
    assert (
        page.index("CANCELED</strong>")
        < page.index("stop at once")
        < page.index("stalled:")
        < page.index("submitted by")
    )


def test_the_last_checkpoint_is_a_checkpoint_and_the_end_has_a_column_of_its_own(site) -> None:
    site.ended(
        8,
        JobStatus.CANCELED,
        finished_ms=NOW_MS - 3_000,
        last_checkpoint=4,
        last_checkpoint_ms=NOW_MS - 7_000,
        checkpoints=4,
    )
    site.ended(9, JobStatus.FAILED, finished_ms=NOW_MS - 3_000)
    jobs = {job["id"]: job for job in site.get("/api/v1/jobs").json()["jobs"]}
    assert (jobs["8"]["last_checkpoint"], jobs["9"]["last_checkpoint_at"]) == (4, None)
    page = site.get("/ui/jobs").text
    assert page.index("<th>Last checkpoint</th>") < page.index("<th>Ended</th>")
    rows = {
        job_id: next(row for row in page.split("<tr>") if f"/ui/jobs/{job_id}" in row)
        for job_id in ("8", "9")
    }
    assert rows["8"].index("7 s ago") < rows["8"].index("3 s ago")
    assert rows["9"].index(">never<") < rows["9"].index("3 s ago")


@pytest.mark.parametrize(
    ("status", "checkpoints", "restorable", "offered"),
    [
        (JobStatus.FAILED, 3, True, True),
        (JobStatus.FAILED, 0, False, False),
        (JobStatus.CANCELED, 3, False, False),  # the job file had its checkpoints deleted
        (JobStatus.CANCELED, 3, None, True),  # of an older release
        (JobStatus.FINISHED, 3, False, False),
    ],
)
def test_a_resume_is_offered_only_where_there_is_something_to_resume(
    site, status, checkpoints, restorable, offered
) -> None:
    site.ended(8, status, checkpoints=checkpoints, restorable=restorable)
    page = site.get("/ui/jobs/8").text
    assert ("Resume …" in page, "nothing to restore" in page) == (offered, not offered)
    assert ("Run again from the beginning …" in page) == (not offered)


def test_the_overview_counts_failed_jobs_and_jobs_that_wait(site) -> None:
    site.running(1)
    site.running(2)
    site.leader()
    site.worker("w")
    assert "All 2 jobs that run are well." in site.get("/ui/").text
    site.ended(8, JobStatus.FAILED)
    site.ended(9, JobStatus.UNKNOWABLE)
    assert "All 2 jobs that run are well; 2 jobs have failed." in " ".join(
        site.get("/ui/").text.split()
    )
    site.running(3, JobStatus.PENDING, reason="no worker is running")
    assert "1 of 3 jobs needs attention; 2 jobs have failed." in " ".join(
        site.get("/ui/").text.split()
    )


def test_a_job_that_waits_is_not_green(site) -> None:
    site.running(3, JobStatus.PENDING, reason="no worker is running")
    page = site.get("/ui/jobs").text
    assert 'class="status warn"' in page
    assert "● </span>" not in page
    assert 'class="status good"' not in page


def test_an_unknown_page_is_a_not_found_page(site) -> None:
    for path in ("/ui/nope", "/ui/jobs/7/nope", "/ui/a/b/c"):
        answer = site.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (
            404,
            "text/html; charset=utf-8",
        )
        assert f"Not found: {path}" in answer.text


def test_nothing_is_collected_before_it_is_confirmed(site, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    monkeypatch.setattr("tidegate.ui.actions.collect", lambda _context: ran.append("collected"))
    monkeypatch.setattr(
        "tidegate.ui.actions.survey",
        lambda _context: StorageSurvey(bytes={}, units={}, due=2, due_bytes=9, findings=[]),
    )
    assert (site.http.post("/ui/storage/collect").status_code, ran) == (400, [])
    asked = site.http.post("/ui/storage/collect", data={"confirmed": "perhaps"})
    assert (asked.status_code, ran) == (200, [])
    assert 'name="confirmed" value="yes"' in asked.text
    assert site.http.post("/ui/storage/collect", data={"confirmed": "yes"}).status_code == 303
    assert ran == ["collected"]


@pytest.fixture
def locked(make_site):
    settings = EngineSettings()
    site = make_site(
        replace(settings, http=replace(settings.http, tokens=True, context_path="/flow"))
    )
    site.http.close()
    site.http = type(site.http)(make_app(site.context, pages(site.context)))
    site.token = Tokens(site.store, site.clock).create("ann", Role.ADMIN)[1]
    site.context.catch_up()
    return site


def test_login_returns_to_the_requested_page(locked) -> None:
    asked = locked.get("/flow/ui/jobs/7/logs?file=7%2Fdriver.log")
    assert asked.status_code == 303
    page = locked.get(asked.headers["location"])
    assert 'value="/ui/jobs/7/logs?file=7%2Fdriver.log"' in page.text
    refused = locked.http.post("/flow/ui/login", data={"token": "x", "next": "/ui/jobs/7"})
    assert (refused.status_code, 'value="/ui/jobs/7"' in refused.text) == (401, True)
    done = locked.http.post(
        "/flow/ui/login",
        data={"token": locked.token, "next": "/ui/jobs/7/logs?file=7%2Fdriver.log"},
    )
    assert (done.status_code, done.headers["location"]) == (
        303,
        "/flow/ui/jobs/7/logs?file=7%2Fdriver.log",
    )


@pytest.mark.parametrize(
    "given",
    [
        "",
        "https://evil.example/",
        "//evil.example/ui/",
        "/\\evil.example",
        "/ui//evil.example",
        "/ui/../../evil",
        "/ui/%2e%2e/x",
        "/ui/\r\nSet-Cookie: a=b",
        "/uix",
        "/submit-job",
        "javascript:alert(1)",
        "/ui/login",
        "/ui/logout",
        "/ui/" + "x" * 2000,
        "/ui/\u2028",
    ],
)
def test_login_never_redirects_to_another_server(locked, given: str) -> None:
    done = locked.http.post("/flow/ui/login", data={"token": locked.token, "next": given})
    assert (done.status_code, done.headers["location"]) == (303, "/flow/ui/")
    assert local_page(given) == "/ui/"


def test_the_login_url_of_the_overview_has_no_parameter() -> None:
    assert (login_path("/ui/", ""), login_path("/", "")) == ("/ui/login", "/ui/login")


def test_a_stack_trace_in_a_log_has_lines() -> None:
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: x'
    line = json.dumps(
        {
            "at": "2026-11-18T10:00:00+0000",
            "level": "error",
            "event": "it failed",
            "job_id": 7,
            "why": "one\ntwo",
            "trace": trace,
        }
    )
    text = readable(f"plain {{}}\n{line}\n{{not json\n[1]\n")
    assert text.splitlines() == [
        "plain {}",
        "2026-11-18T10:00:00+0000 error it failed job_id=7 why=one",
        "    two",
        "    Traceback (most recent call last):",
        '      File "a.py", line 1, in f',
        "    ValueError: x",
        "{not json",
        "[1]",
    ]


def test_numbers_sizes_and_times_have_one_form(site) -> None:
    assert (number(90_000), number(90_000.4), number(12.34), number(None), number(0.0)) == (
        "90,000",
        "90,000",
        "12.3",
        "\u2013",
        "0",
    )
    assert (size(999), size(4_200_000), size(7_000_000_000_000), size(None)) == (
        "999 B",
        "4.2 MB",
        "7.0 TB",
        "\u2013",
    )
    site.running(7)
    site.pipeline(7, checkpoint=1, checkpoints=1)
    assert 'title="2026-09-21 ' in site.get("/ui/jobs").text
    assert 'Z" data-ago' in site.get("/ui/jobs").text


def test_an_outcome_and_a_state_of_an_older_release_are_shown(site) -> None:
    site.ended(
        8, JobStatus.FAILED, entered={"SCHEDULED": NOW_MS - 4_000}, checkpoints=2, restarts=2
    )
    ref = CheckpointRef(
        checkpoint=2, path="p", generation=1, begun_ms=1, completed_ms=NOW_MS - 9_000
    )
    site.put(
        PIPELINES,
        "8/1",
        PipelineState(job_id=8, pipeline=1, lineage="l", generation=1, retained=(ref,)),
    )
    job = site.get("/api/v1/jobs/8").json()
    assert (job["restarts"], job["events"], job["restorable"]) == (2, [], True)
    assert "FAILED</strong>" in site.get("/ui/jobs/8").text
