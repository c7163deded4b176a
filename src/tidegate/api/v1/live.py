"""Server-sent events: which jobs have changed, as soon as this server knows, and a sign of life
between them.

An event carries the ids that have changed, not what they are: whoever listens asks for what it
shows. So a listener that was away asks once for all and has lost nothing. Another state of a job is
told at once; what happens all the time in a thousand jobs, rows and checkpoints, at most once a
second; a sign of life in which nothing is new, never.

One task looks at the picture for all listeners, and each event is made once: events are links of a
chain, and every listener walks along it at its own pace. One that is slow is sent one event for all
that it has missed.
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
IDS_MAX = 500  # more than that at once: everything may have changed
LAG_MAX = 8  # events that a slow listener is still sent one by one


def event(name: str, data: object) -> bytes:
    """One event, as it is sent."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


EVERYTHING = event("jobs", {"all": True})


class EventLink:
    """An event in the chain; `arrived` when the next one is there."""

    __slots__ = ("arrived", "following", "number", "text")

    def __init__(self, number: int, text: bytes) -> None:
        self.number = number
        self.text = text
        self.arrived = asyncio.Event()
        self.following: EventLink | None = None


class JobUpdates:
    """What is new, out of what has changed: compares each job with how it was last told.

    Not for threads.
    """

    def __init__(self, cache: ClusterCache) -> None:
        self.cache = cache
        self._states: dict[int, Hashable] = {}
        self._progress: dict[int, Hashable] = {}
        self.urgent: set[int] = set()
        self.other: set[int] = set()

    def refresh(self, ids: Collection[int]) -> None:
        """Take these in: jobs in another state are urgent, those that have only gone on are not."""
        for job_id in ids:
            if self._differs(self._states, job_id, self._state_key(job_id)):
                self.urgent.add(job_id)
            if self._differs(self._progress, job_id, self._progress_key(job_id)):
                self.other.add(job_id)

    def take(self) -> list[int]:
        """All that is new, and forget it."""
        told, self.urgent, self.other = sorted(self.urgent | self.other), set(), set()
        return told

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
            *filter(None, [cache.shown_health(job_id)]),
        ) or None

    def _progress_key(self, job_id: int) -> Hashable:
        places = tuple(place.version for place in self.cache.pipelines(job_id))
        return (
            places
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
        """A stream that ends with its listener, or with the server."""
        principal_of(request)
        listeners_max = min(LISTENERS_MAX, self.context.listeners_max)
        if self.listeners >= listeners_max:
            return fail(
                503, f"{listeners_max} listeners are as many as this server takes: ask another one"
            )
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(self.stream(), media_type="text/event-stream", headers=headers)

    async def stream(self) -> AsyncIterator[bytes]:
        """The events of one listener."""
        link = self._last
        self.listeners += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._refresh())
        try:
            yield b"retry: 1000\n" + event("hello", {"server": self.context.me.id})
            while True:
                await link.arrived.wait()
                assert link.following is not None, "it has arrived"
                behind = self._last.number - link.number > LAG_MAX
                link = self._last if behind else link.following
                yield EVERYTHING if behind else link.text
        finally:
            self.listeners -= 1

    async def _refresh(self) -> None:
        if self._changed is None:
            self._changed = self.context.cache.listen()
            self._updates.refresh(self.context.cache.jobs())
        self._updates.refresh(self._changed.take())
        self._updates.take()  # whoever has just come asks for everything
        self._published_s = self._alive_s = self.context.clock.monotonic_s()
        while self.listeners:
            try:
                self.publish_due(self._changed.take())
            except Exception:  # a listener that hears nothing any more would not know it
                LOG.exception("events could not be told")
                self.publish(EVERYTHING)
            await asyncio.sleep(POLL_EVERY_S)

    def publish_due(self, ids: Collection[int]) -> None:
        """Tell what is due, of these jobs and of those before."""
        now_s, reason = self.context.clock.monotonic_s(), str(self.context.out_of_date() or "")
        self._updates.refresh(ids)
        if self._updates.urgent or (
            self._updates.other and now_s - self._published_s >= PROGRESS_EVERY_S
        ):
            new = self._updates.take()
            self.publish(
                event("jobs", {"jobs": [str(job_id) for job_id in new]})
                if len(new) <= IDS_MAX
                else EVERYTHING
            )
            self._published_s = self._alive_s = now_s
        if reason != self._reason or now_s - self._alive_s >= ALIVE_EVERY_S:
            self.publish(event("alive", {"reason": reason}))
            self._reason = reason
            self._alive_s = now_s

    def publish(self, text: bytes) -> None:
        """One more event, for everybody."""
        before, self._last = self._last, EventLink(self._last.number + 1, text)
        before.following = self._last
        before.arrived.set()
