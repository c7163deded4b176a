"""Server-sent events: which jobs have changed, as soon as this server knows, and a sign of life between them.

An event carries the ids that have changed, not what they are: whoever listens asks for what it shows. So a listener that was away asks once for all and has
lost nothing, and one that is slow is sent one event for many changes. One task looks at the picture for all listeners.
"""

import asyncio
import json
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tidegate.api.access import who_of
from tidegate.api.answers import fail
from tidegate.api.desk import Desk
from tidegate.coordinator.observe import Changed

LOOK_EVERY_S = 0.2
ALIVE_EVERY_S = 10.0
LISTENERS_MAX = 1_000
IDS_MAX = 500  # more than that at once: everything may have changed


class Live:
    """The stream of one server."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._changed: Changed | None = None
        self._news: set[asyncio.Event] = set()
        self._waiting: dict[asyncio.Event, set[int]] = {}
        self._watch: asyncio.Task[None] | None = None

    async def events(self, request: Request) -> Response:
        """A stream that ends with its listener, or with the server."""
        who_of(request)
        if len(self._waiting) >= LISTENERS_MAX:
            return fail(503, f"{LISTENERS_MAX} listeners are as many as this server takes: ask another one")
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(self._stream(), media_type="text/event-stream", headers=headers)

    async def _stream(self) -> AsyncIterator[str]:
        news = asyncio.Event()
        self._waiting[news] = set()
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._look())
        try:
            yield f"retry: 1000\nevent: hello\ndata: {json.dumps({'server': self.desk.me.id})}\n\n"
            while True:
                try:
                    await asyncio.wait_for(news.wait(), ALIVE_EVERY_S)
                except TimeoutError:
                    yield f"event: alive\ndata: {json.dumps({'reason': str(self.desk.out_of_date() or '')})}\n\n"
                    continue
                news.clear()
                ids, self._waiting[news] = self._waiting[news], set()
                told = {"jobs": [str(job_id) for job_id in sorted(ids)]} if len(ids) <= IDS_MAX else {"all": True}
                yield f"event: jobs\ndata: {json.dumps(told)}\n\n"
        finally:
            del self._waiting[news]

    async def _look(self) -> None:
        """While anybody listens."""
        if self._changed is None:
            self._changed = self.desk.picture.listen()
        self._changed.take()
        while self._waiting:
            ids = self._changed.take()
            if ids:
                for news, waiting in self._waiting.items():
                    waiting |= ids
                    news.set()
            await asyncio.sleep(LOOK_EVERY_S)
