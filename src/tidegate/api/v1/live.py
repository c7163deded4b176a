"""Server-sent events: the ids of changed jobs, and keep-alive events between them.

An event has only ids; a listener requests what it displays. So a listener that was disconnected
requests everything once and has lost nothing. A new state of a job is published at once; progress
(rows, checkpoints), which changes all the time in a thousand jobs, at most once a second; a
heartbeat without news, never.

One task polls the cluster cache for all listeners, and each event is serialized once: events are a
linked list that every listener follows at its own speed. A slow listener gets one event for
everything that it has missed.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Collection, Hashable

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tidegate.api.auth import principal_of
from tidegate.api.context import ApiContext
from tidegate.api.seatunnel.responses import fail
from tidegate.coordinator.cluster_cache import ChangedJobs, ClusterCache

LOG = logging.getLogger("tidegate.api")
POLL_EVERY_S = 0.1
PROGRESS_EVERY_S = 1.0
ALIVE_EVERY_S = 10.0
LISTENERS_MAX = 1_000
IDS_MAX = 500  # with more ids the event is "everything has changed"
LAG_MAX = 8  # with more pending events a listener gets "everything has changed"


def event(name: str, data: object) -> bytes:
    """Serialize an event in the format of server-sent events."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


EVERYTHING = event("jobs", {"all": True})


class EventLink:
    """An event in the linked list; `arrived` is set when the next one exists."""

    __slots__ = ("arrived", "following", "number", "text")

    def __init__(self, number: int, text: bytes) -> None:
        self.number = number
        self.text = text
        self.arrived = asyncio.Event()
        self.following: EventLink | None = None


class JobUpdates:
    """Find out what is new in changed jobs since they were last published. Not thread-safe."""

    def __init__(self, cache: ClusterCache) -> None:
        self.cache = cache
        self._states: dict[int, Hashable] = {}
        self._progress: dict[int, Hashable] = {}
        self.urgent: set[int] = set()
        self.other: set[int] = set()

    def refresh(self, ids: Collection[int]) -> None:
        """Check these jobs: a new state is urgent, mere progress is not."""
        for job_id in ids:
            if self._differs(self._states, job_id, self._state_key(job_id)):
                self.urgent.add(job_id)
            if self._differs(self._progress, job_id, self._progress_key(job_id)):
                self.other.add(job_id)

    def take(self) -> list[int]:
        """Return all jobs with news, and clear them."""
        ids = sorted(self.urgent | self.other)
        self.urgent = set()
        self.other = set()
        return ids

    def _state_key(self, job_id: int) -> Hashable:
        cache = self.cache
        seen = (
            cache.jobs().get(job_id),
            cache.state(job_id),
            cache.outcome(job_id),
            cache.assignment(job_id),
            cache.savepoint(job_id),
        )
        return (
            *(each.version for each in seen if each is not None),
            *filter(None, [cache.displayed_health(job_id)]),
        ) or None

    def _progress_key(self, job_id: int) -> Hashable:
        pipelines = tuple(entry.version for entry in self.cache.pipelines(job_id))
        return (
            pipelines
            + tuple(
                (
                    m.value.phase,
                    m.value.rows_read,
                    m.value.rows_written,
                    m.value.done,
                    m.value.rates,
                )
                for m in self.cache.metrics(job_id)
            )
            or None
        )

    def _differs(self, known: dict[int, Hashable], job_id: int, now: Hashable) -> bool:
        if known.get(job_id) == now:
            return False
        if now is None:
            del known[job_id]
        else:
            known[job_id] = now
        return True


class EventStream:
    """The stream of one server."""

    def __init__(self, context: ApiContext) -> None:
        self.context = context
        self.listeners = 0
        self._changed: ChangedJobs | None = None
        self._updates = JobUpdates(context.cache)
        self._last = EventLink(0, b"")
        self._reason = ""
        self._published_s = self._alive_s = context.clock.monotonic_s()
        self._task: asyncio.Task[None] | None = None

    async def events(self, request: Request) -> Response:
        """Open an event stream that ends with its listener or with the server."""
        principal_of(request)
        listeners_max = min(LISTENERS_MAX, self.context.listeners_max)
        if self.listeners >= listeners_max:
            return fail(
                503,
                f"this server has {listeners_max} event streams, its maximum: use another server",
            )
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(self.stream(), media_type="text/event-stream", headers=headers)

    async def stream(self) -> AsyncIterator[bytes]:
        """Yield the events of one listener."""
        link = self._last
        self.listeners += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._refresh())
        try:
            yield b"retry: 1000\n" + event("hello", {"server": self.context.me.id})
            while True:
                await link.arrived.wait()
                following = link.following
                assert following is not None, "it has arrived"
                if self._last.number - link.number > LAG_MAX:
                    link = self._last
                    yield EVERYTHING
                else:
                    link = following
                    yield link.text
        finally:
            self.listeners -= 1

    async def _refresh(self) -> None:
        if self._changed is None:
            self._changed = self.context.cache.listen()
            self._updates.refresh(self.context.cache.jobs())
        self._updates.refresh(self._changed.take())
        self._updates.take()  # new listeners request everything anyway
        self._published_s = self._alive_s = self.context.clock.monotonic_s()
        while self.listeners:
            try:
                self.publish_due(self._changed.take())
            except Exception:  # listeners could not notice that events are missing
                LOG.exception("event_publishing_failed")
                self.publish(EVERYTHING)
            await asyncio.sleep(POLL_EVERY_S)

    def publish_due(self, ids: Collection[int]) -> None:
        """Publish what is due of these and of earlier changes."""
        now_s, reason = self.context.clock.monotonic_s(), str(self.context.out_of_date() or "")
        self._updates.refresh(ids)
        if self._updates.urgent or (
            self._updates.other and now_s - self._published_s >= PROGRESS_EVERY_S
        ):
            changed_ids = self._updates.take()
            self.publish(
                event("jobs", {"jobs": [str(job_id) for job_id in changed_ids]})
                if len(changed_ids) <= IDS_MAX
                else EVERYTHING
            )
            self._published_s = self._alive_s = now_s
        if reason != self._reason or now_s - self._alive_s >= ALIVE_EVERY_S:
            self.publish(event("alive", {"reason": reason}))
            self._reason = reason
            self._alive_s = now_s

    def publish(self, text: bytes) -> None:
        """Append an event for all listeners."""
        previous = self._last
        self._last = EventLink(previous.number + 1, text)
        previous.following = self._last
        previous.arrived.set()
