"""What happened to jobs, told to people and programs: one log line for each change, and a webhook.
Called by the leader after a change is in the store.

Nothing here may delay or fail the leader: a webhook that does not answer costs a thread of its own
and a bounded queue. Nothing here is durable either: the truth is in the store, and what a leader
had not delivered when it died is not delivered by the next one.
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
    """One change of one job. `frm` is empty where there was nothing before."""

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
        """Whether this is the end of an incarnation."""
        return self.kind is EventKind.STATUS and self.to in TERMINAL


def events_between(
    before: JobState | None, after: JobState, name: str, at_ms: int
) -> tuple[JobChange, ...]:
    """What there is to tell when a job goes from one state to the next.

    The health of a job that has ended is nobody's concern.
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
    """The event as the webhook sends it: the reference's fields, with its names of states, and ours
    beside them.
    """
    told: dict[str, Any] = {
        "eventType": event.kind.value,
        "jobId": str(event.job_id),
        "jobName": event.name,
        "createdTime": event.at_ms,
    }
    if event.kind is EventKind.STATUS:
        told["jobStatus"] = (
            JobStatus.PENDING.value if event.to == JobStatus.RECOVERING else event.to
        )
    else:
        told["checkpointHealth" if event.kind is EventKind.HEALTH else "runway"] = event.to
    return told | {
        "from": event.from_value,
        "to": event.to,
        "generation": event.generation,
        "reason": event.reason,
    }


class Receiver(Protocol):
    """Whoever is told about events besides the log."""

    def send(self, event: JobChange) -> None:
        """Take it and return at once, whatever happens."""


class EventLog:
    """Writes each event as a line of the log and hands it on."""

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
        LOG.info(event.kind.value.lower().replace("_", " "), extra=extra)
        for receiver in self.receivers:
            try:
                receiver.send(event)
            # the change is in the store already; whoever cannot hear of it must not stop the next
            # one
            except Exception:
                LOG.exception("an event could not be handed on", extra={"job_id": event.job_id})


class NotDelivered(Exception):
    """Why a batch did not arrive; never leaves this module."""


class WebhookClient:
    """One POST of one body, over a connection of its own.

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
        """Deliver it, or NotDelivered.

        The address and the headers, which may hold secrets, are in no message.
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
    """Delivers events in order, in batches, again and again until they are taken (2xx). An answer
    that is lost means that a batch comes twice; what does not fit into the queue drops the oldest.
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
        """Put it into the queue, if it is wanted: ends of jobs and changes of health always, other
        changes where they were asked for.
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
        """Try once more to deliver what is left, for so long at most."""
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
        """The oldest events, taken out of the queue; nothing when it is time to end: all is
        delivered, or closing and the last try has failed.
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
        except Exception as error:  # whatever it is, the thread goes on: nobody would start another
            self._failed(batch, type(error).__name__)
            return
        with self._change:
            if self._failures:
                LOG.info(
                    "the webhook takes events again",
                    extra={"why": f"{self.dropped} events were dropped since the start"},
                )
            self._failures = 0
            self.delivered += len(batch)

    def _failed(self, batch: list[JobChange], why: str) -> None:
        """Back to the front of the queue, where the oldest are dropped first.

        One line when it begins, not one for each try.
        """
        with self._change:
            self._queue.extendleft(reversed(batch))
            self._trim()
            self._failures += 1
            if self._failures == 1:
                LOG.warning("the webhook does not take events", extra={"why": why})
