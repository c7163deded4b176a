"""Events of jobs: content, log lines, and a failing webhook that affects nothing else."""

import base64
import json
import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tidegate.coordinator.events import (
    EventKind,
    EventLog,
    JobChange,
    WebhookSender,
    event_body,
    events_between,
)
from tidegate.model.engine import EventSettings
from tidegate.model.errors import UserError
from tidegate.model.log_retention import RetentionLevel
from tidegate.model.records import CheckpointHealth, JobState, JobStatus

RUNNING = JobState(job_id=7, status=JobStatus.RUNNING, generation=3)


def ended(number: int, to: JobStatus = JobStatus.FINISHED) -> JobChange:
    return JobChange(
        at_ms=1000 + number,
        job_id=number,
        name=f"job {number}",
        kind=EventKind.STATUS,
        from_value="RUNNING",
        to=to.value,
        generation=3,
        reason="done",
    )


class Hook:
    """A web server that answers as told, and afterwards with 200."""

    def __init__(self) -> None:
        self.answers: list[int] = []  # 0: closes the connection without a word
        self.batches: list[list[dict[str, Any]]] = []
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.heard = threading.Condition()
        self.gate = threading.Event()
        self.gate.set()
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                hook.gate.wait(30)
                data = self.rfile.read(int(self.headers["Content-Length"]))
                with hook.heard:
                    status = hook.answers.pop(0) if hook.answers else 200
                    hook.requests.append((self.path, dict(self.headers)))
                    if status == 200:
                        hook.batches.append(json.loads(data))
                    hook.heard.notify_all()
                if status:
                    self.send_response(status)
                    self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.01}
        )
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/events?x=1"

    @property
    def jobs(self) -> list[str]:
        return [event["jobId"] for batch in self.batches for event in batch]

    def wait_for(self, requests: int = 0, jobs: int = 0) -> None:
        with self.heard:
            assert self.heard.wait_for(
                lambda: len(self.requests) >= requests and len(self.jobs) >= jobs, 30
            )

    def close(self) -> None:
        self.gate.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def hook() -> Iterator[Hook]:
    hook = Hook()
    yield hook
    hook.close()


def sender(
    hook: Hook, *, non_terminal: bool = False, headers: dict[str, str] | None = None, **limits: Any
) -> WebhookSender:
    settings = EventSettings(url=hook.url, headers=headers or {}, non_terminal=non_terminal)
    return WebhookSender(settings, **({"backoff_s": (0.01,)} | limits))


def test_an_event_has_the_fields_of_seatunnel_and_ours() -> None:
    assert event_body(ended(7)) == {
        "eventType": "JOB_STATUS",
        "jobId": "7",
        "jobName": "job 7",
        "jobStatus": "FINISHED",
        "createdTime": 1007,
        "from": "RUNNING",
        "to": "FINISHED",
        "generation": 3,
        "reason": "done",
    }


def test_recovering_is_reported_as_pending_in_seatunnel_states() -> None:
    told = event_body(ended(7, JobStatus.RECOVERING))
    assert (told["jobStatus"], told["to"]) == ("PENDING", "RECOVERING")


def test_a_change_of_status_is_an_event_and_the_same_status_is_none() -> None:
    after = replace(RUNNING, status=JobStatus.FAILING, reason="the sink is gone")
    (event,) = events_between(RUNNING, after, "orders", 5)
    assert event == JobChange(
        at_ms=5,
        job_id=7,
        name="orders",
        kind=EventKind.STATUS,
        from_value="RUNNING",
        to="FAILING",
        generation=3,
        reason="the sink is gone",
    )
    assert events_between(RUNNING, replace(RUNNING, reason="other", restarts=2), "orders", 5) == ()


def test_the_first_state_of_a_job_is_an_event() -> None:
    (event,) = events_between(None, RUNNING, "orders", 5)
    assert (event.from_value, event.to) == ("", "RUNNING")


def test_a_change_of_health_is_an_event_with_its_own_reason() -> None:
    after = replace(RUNNING, health=CheckpointHealth.STALLED, health_reason="sink blocked")
    (event,) = events_between(RUNNING, after, "orders", 5)
    assert (event.kind, event.from_value, event.to, event.reason, event.final) == (
        EventKind.HEALTH,
        "OK",
        "STALLED",
        "sink blocked",
        False,
    )
    assert event_body(event)["checkpointHealth"] == "STALLED"
    assert "jobStatus" not in event_body(event)


def test_low_log_retention_is_an_event_with_its_own_reason() -> None:
    after = replace(RUNNING, log_retention=RetentionLevel.LOW, log_retention_reason="3 s left")
    (event,) = events_between(RUNNING, after, "orders", 5)
    assert (event.kind, event.from_value, event.to, event.reason, event.final) == (
        EventKind.RUNWAY,
        "OK",
        "LOW",
        "3 s left",
        False,
    )
    assert (event_body(event)["eventType"], event_body(event)["runway"]) == ("JOB_RUNWAY", "LOW")
    assert (
        events_between(RUNNING, replace(after, status=JobStatus.FINISHED), "orders", 5)[0].kind
        is EventKind.STATUS
    )


def test_status_and_health_that_change_together_are_two_events_unless_the_job_has_ended() -> None:
    recovering = replace(RUNNING, status=JobStatus.RECOVERING, health=CheckpointHealth.STALLED)
    assert [event.kind for event in events_between(RUNNING, recovering, "orders", 5)] == [
        EventKind.STATUS,
        EventKind.HEALTH,
    ]
    assert [
        event.kind
        for event in events_between(
            recovering, replace(RUNNING, status=JobStatus.FAILED), "orders", 5
        )
    ] == [EventKind.STATUS]


def test_each_event_is_one_line_of_the_log_with_its_fields(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "tidegate.events"):
        EventLog().record(ended(7))
    (line,) = caplog.records
    assert line.getMessage() == "job_status"
    assert {
        name: getattr(line, name) for name in ("job_id", "job", "generation", "from", "to", "why")
    } == {
        "job_id": 7,
        "job": "job 7",
        "generation": 3,
        "from": "RUNNING",
        "to": "FINISHED",
        "why": "done",
    }


def test_a_receiver_that_breaks_does_not_stop_the_next_one(
    hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def send(self, event: JobChange) -> None:
            raise RuntimeError(event.name)

    webhook = sender(hook)
    EventLog(Broken(), webhook).record(ended(7))
    hook.wait_for(jobs=1)
    webhook.close()
    assert "event_receiver_failed" in caplog.text


def test_only_ends_and_changes_of_health_are_sent_unless_more_was_asked_for(hook: Hook) -> None:
    health = JobChange(
        at_ms=1, job_id=2, name="n", kind=EventKind.HEALTH, from_value="OK", to="LATE"
    )
    events = [
        ended(1, JobStatus.RUNNING),
        health,
        ended(3, JobStatus.CANCELING),
        ended(4, JobStatus.CANCELED),
    ]
    for webhook, wanted in [
        (sender(hook), ["2", "4"]),
        (sender(hook, non_terminal=True), ["1", "2", "3", "4"]),
    ]:
        hook.batches.clear()
        for event in events:
            webhook.send(event)
        webhook.close(30)
        assert hook.jobs == wanted


def test_events_are_sent_again_in_order_until_they_are_taken(
    hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    hook.answers = [500, 404, 302, 0]
    webhook = sender(hook)
    with caplog.at_level(logging.INFO, "tidegate.events"):
        for number in range(5):
            webhook.send(ended(number))
        hook.wait_for(jobs=5)
        webhook.close(30)
    assert hook.jobs == ["0", "1", "2", "3", "4"]
    assert (webhook.delivered, webhook.dropped) == (5, 0)
    assert [record.getMessage() for record in caplog.records] == [
        "webhook_unavailable",
        "webhook_recovered",
    ]


def test_a_hanging_webhook_blocks_nothing_and_drops_the_oldest_events(
    hook: Hook,
) -> None:
    hook.gate.clear()
    webhook = sender(hook, queue_max=10, batch_max=4)
    for number in range(100):
        webhook.send(ended(number))
    hook.gate.set()
    hook.wait_for(jobs=10)
    webhook.close(30)
    assert hook.jobs[-10:] == [str(number) for number in range(90, 100)]
    assert webhook.delivered + webhook.dropped == 100
    assert max(len(batch) for batch in hook.batches) <= 4


def test_what_waits_through_an_outage_stays_within_the_limit(hook: Hook) -> None:
    hook.answers = [503] * 3
    webhook = sender(hook, queue_max=3, backoff_s=(0.01, 30.0))
    webhook.send(ended(0))
    hook.wait_for(requests=2)
    for number in range(1, 6):
        webhook.send(ended(number))
    hook.answers = []
    webhook.close(30)  # does not wait for the 30 s
    assert (hook.jobs, webhook.dropped) == (["3", "4", "5"], 3)


def test_closing_gives_up_after_one_more_try(hook: Hook) -> None:
    hook.answers = [503] * 100
    webhook = sender(hook, backoff_s=(30.0,))
    webhook.send(ended(0))
    hook.wait_for(requests=1)
    webhook.close(30)
    webhook.send(ended(1))
    assert (len(hook.requests), hook.jobs) == (2, [])


def test_closing_what_was_never_used_returns_at_once(hook: Hook) -> None:
    sender(hook).close(30)
    assert hook.requests == []


def test_headers_the_query_and_the_user_of_the_address_are_sent(hook: Hook) -> None:
    settings = EventSettings(
        url=hook.url.replace("http://", "http://me:p%40ss@"), headers={"X-Token": "t"}
    )
    webhook = WebhookSender(settings)
    webhook.send(ended(0))
    webhook.close(30)
    ((path, headers),) = hook.requests
    assert path == "/events?x=1"
    assert (headers["Content-Type"], headers["X-Token"]) == ("application/json", "t")
    assert headers["Authorization"] == "Basic " + base64.b64encode(b"me:p@ss").decode()


def test_secrets_of_the_address_and_the_headers_are_in_no_log(
    hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    hook.answers = [500, 0]
    settings = EventSettings(
        url=hook.url.replace("http://", "http://me:hidden@"), headers={"X-Token": "hidden"}
    )
    webhook = WebhookSender(settings, backoff_s=(0.01,))
    with caplog.at_level(logging.DEBUG):
        webhook.send(ended(0))
        hook.wait_for(jobs=1)
        webhook.close(30)
    assert caplog.records
    assert "hidden" not in " ".join(str(record.__dict__) for record in caplog.records)


@pytest.mark.parametrize("url", ["", "ftp://host/x", "http://", "http://user:hidden@host:port/"])
def test_an_address_that_cannot_be_one_is_refused_at_the_start_without_repeating_it(
    url: str,
) -> None:
    with pytest.raises(UserError) as refused:
        WebhookSender(EventSettings(url=url))
    assert "hidden" not in str(refused.value)


def test_odd_characters_in_names_do_not_stop_the_events_behind_them(hook: Hook) -> None:
    webhook = sender(hook)
    webhook.send(replace(ended(0), name="\ud800 ü"))
    webhook.send(ended(1))
    webhook.close(30)
    assert hook.jobs == ["0", "1"]
