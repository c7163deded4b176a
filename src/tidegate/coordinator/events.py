"""Notifications about changes of jobs: one log line for each, and a webhook.

Called by the leader after a change is in the store. Nothing here may delay or fail the leader: a
webhook that does not respond costs a thread of its own and a bounded queue. Nothing here is
durable: the store is, and what a leader had not delivered when it died is not delivered by the next
one.
"""

import base64
import http.client
import json
import logging
import ssl
import threading
import urllib.parse
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from tidegate.model.engine import EventSettings
from tidegate.model.errors import UserError
from tidegate.model.records import TERMINAL, JobState, JobStatus

LOG = logging.getLogger("tidegate.events")

QUEUE_MAX = 2000
BATCH_MAX = 100
ANSWER_BYTES_MAX = 64 * 1024
TIMEOUT_S = 10.0
BACKOFF_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)  # the last one again and again


class EventKind(StrEnum):
    STATUS = "JOB_STATUS"
    HEALTH = "JOB_HEALTH"
    RUNWAY = "JOB_RUNWAY"


@dataclass(frozen=True, kw_only=True, slots=True)
class JobChange:
    """One change of one job. `from_value` is empty if there was no value before."""

    at_ms: int
    job_id: int
    name: str
    kind: EventKind
    from_value: str
    to: str
    generation: int = 0
    reason: str = ""

    @property
    def final(self) -> bool:
        """Whether the change ends an incarnation."""
        return self.kind is EventKind.STATUS and self.to in TERMINAL


def events_between(
    before: JobState | None, after: JobState, name: str, at_ms: int
) -> tuple[JobChange, ...]:
    """Return the events for the difference of two states.

    The health of a job that has ended is not reported.
    """
    events = []
    if before is None or before.status is not after.status:
        old = "" if before is None else before.status.value
        events.append(
            _event(after, name, at_ms, EventKind.STATUS, old, after.status.value, after.reason)
        )
    if before is not None and before.health is not after.health and not after.status.terminal:
        events.append(
            _event(
                after,
                name,
                at_ms,
                EventKind.HEALTH,
                before.health.value,
                after.health.value,
                after.health_reason,
            )
        )
    if (
        before is not None
        and before.log_retention is not after.log_retention
        and not after.status.terminal
    ):
        events.append(
            _event(
                after,
                name,
                at_ms,
                EventKind.RUNWAY,
                before.log_retention.value,
                after.log_retention.value,
                after.log_retention_reason,
            )
        )
    return tuple(events)


def _event(
    state: JobState, name: str, at_ms: int, kind: EventKind, old: str, new: str, reason: str
) -> JobChange:
    return JobChange(
        at_ms=at_ms,
        job_id=state.job_id,
        name=name,
        kind=kind,
        from_value=old,
        to=new,
        generation=state.generation,
        reason=reason,
    )


def event_body(event: JobChange) -> dict[str, Any]:
    """Build the event as the webhook sends it: with SeaTunnel's fields and ours."""
    fields: dict[str, Any] = {
        "eventType": event.kind.value,
        "jobId": str(event.job_id),
        "jobName": event.name,
        "createdTime": event.at_ms,
    }
    if event.kind is EventKind.STATUS:
        fields["jobStatus"] = (
            JobStatus.PENDING.value if event.to == JobStatus.RECOVERING else event.to
        )
    else:
        fields["checkpointHealth" if event.kind is EventKind.HEALTH else "runway"] = event.to
    return fields | {
        "from": event.from_value,
        "to": event.to,
        "generation": event.generation,
        "reason": event.reason,
    }


class Receiver(Protocol):
    """A receiver of events besides the log."""

    def send(self, event: JobChange) -> None:
        """Accept the event and return at once; must not raise."""


class EventLog:
    """Writes each event to the log and passes it to the receivers."""

    def __init__(self, *receivers: Receiver) -> None:
        self.receivers = receivers

    def record(self, event: JobChange) -> None:
        extra = {
            "job_id": event.job_id,
            "job": event.name,
            "generation": event.generation,
            "from": event.from_value,
            "to": event.to,
            "why": event.reason,
        }
        LOG.info(event.kind.value.lower(), extra=extra)
        for receiver in self.receivers:
            try:
                receiver.send(event)
            # The change is already in the store; a failing receiver must not stop the next one.
            except Exception:
                LOG.exception("event_receiver_failed", extra={"job_id": event.job_id})


class NotDelivered(Exception):
    """The reason why a batch was not delivered; never leaves this module."""


class WebhookClient:
    """Sends one POST per body, over a connection of its own.

    Redirects are not followed: they would drop the body.
    """

    def __init__(self, url: str, headers: Mapping[str, str], timeout_s: float) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(
                "the url of the event report is not one of http:// or https:// with a host"
            )
        self.host = parts.hostname
        self.timeout_s = timeout_s
        try:
            self.port = parts.port
        except ValueError as error:
            raise UserError(
                "the url of the event report has a port that is no number below 65536"
            ) from error
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._target = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
        self._headers = {"Content-Type": "application/json", **_authorization(parts), **headers}

    def post(self, data: bytes) -> None:
        """Deliver the body, or raise NotDelivered.

        The address and the headers, which may hold secrets, appear in no message.
        """
        connection = self._connection()
        try:
            connection.request("POST", self._target, data, self._headers)
            answer = connection.getresponse()
            answer.read(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NotDelivered(f"{self.host} did not take it: {type(error).__name__}") from error
        finally:
            connection.close()
        if not 200 <= answer.status < 300:
            raise NotDelivered(f"{self.host} answered with {answer.status}")

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=self.timeout_s)
        return http.client.HTTPSConnection(
            self.host, self.port, timeout=self.timeout_s, context=self._tls
        )


def _authorization(parts: urllib.parse.SplitResult) -> dict[str, str]:
    if parts.username is None:
        return {}
    pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
    return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


class WebhookSender:
    """Delivers events in order, in batches, until they are accepted (2xx).

    If a response is lost, a batch is sent twice. If the queue is full, the oldest events are
    dropped.
    """

    def __init__(
        self,
        settings: EventSettings,
        *,
        queue_max: int = QUEUE_MAX,
        batch_max: int = BATCH_MAX,
        backoff_s: Sequence[float] = BACKOFF_S,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.non_terminal = settings.non_terminal
        self.queue_max = queue_max
        self.batch_max = batch_max
        self.backoff_s = tuple(backoff_s)
        self.dropped = 0
        self.delivered = 0
        self._poster = WebhookClient(settings.url, settings.headers, timeout_s)
        self._queue: deque[JobChange] = deque()
        self._change = threading.Condition()
        self._closing = self._tried_again = False
        self._failures = 0  # in a row
        self._thread: threading.Thread | None = None

    def send(self, event: JobChange) -> None:
        """Queue the event if configured: ends of jobs and health changes always.

        Other changes only if `non_terminal` is set.
        """
        if not (event.final or event.kind is not EventKind.STATUS or self.non_terminal):
            return
        with self._change:
            if self._closing:
                return
            self._queue.append(event)
            self._trim()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="webhook", daemon=True)
                self._thread.start()
            self._change.notify_all()

    def close(self, timeout_s: float = 2.0) -> None:
        """Try once more to deliver the queued events, for at most this long."""
        with self._change:
            self._closing = True
            self._change.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(timeout_s)

    def _trim(self) -> None:
        while len(self._queue) > self.queue_max:
            self._queue.popleft()
            self.dropped += 1

    def _work(self) -> None:
        while batch := self._next():
            self._deliver(batch)

    def _next(self) -> list[JobChange]:
        """Take the oldest events out of the queue.

        Empty when it is time to end: all are delivered, or the last attempt while closing has
        failed.
        """
        with self._change:
            self._change.wait_for(lambda: self._closing or self._queue)
            if self._failures and not self._closing:
                self._change.wait_for(
                    lambda: self._closing,
                    self.backoff_s[min(self._failures, len(self.backoff_s)) - 1],
                )
            if self._failures and self._closing:
                if self._tried_again:
                    return []
                self._tried_again = True
            return [self._queue.popleft() for _ in range(min(self.batch_max, len(self._queue)))]

    def _deliver(self, batch: list[JobChange]) -> None:
        try:
            self._poster.post(json.dumps([event_body(event) for event in batch]).encode())
        except NotDelivered as why:
            self._failed(batch, str(why))
            return
        except Exception as error:  # the thread must continue: no other would be started
            self._failed(batch, type(error).__name__)
            return
        with self._change:
            if self._failures:
                LOG.info(
                    "webhook_recovered",
                    extra={"why": f"{self.dropped} events were dropped since the start"},
                )
            self._failures = 0
            self.delivered += len(batch)

    def _failed(self, batch: list[JobChange], why: str) -> None:
        """Put the batch back at the front of the queue, where the oldest are dropped first.

        Logged once when it begins, not for each attempt.
        """
        with self._change:
            self._queue.extendleft(reversed(batch))
            self._trim()
            self._failures += 1
            if self._failures == 1:
                LOG.warning("webhook_unavailable", extra={"why": why})
