"""The event stream: what is published, when, and that it is serialized once for all listeners."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from tidegate.api.v1.live import (
    ALIVE_EVERY_S,
    EVERYTHING,
    IDS_MAX,
    LAG_MAX,
    PROGRESS_EVERY_S,
    EventStream,
    JobUpdates,
)
from tidegate.model.records import RUNNING_JOBS, JobStatus
from tidegate.testing.faulty_store import Fault

PATIENCE_S = 60


def said(live: EventStream) -> Any:
    """Return the data of the last event."""
    return json.loads(live._last.text.partition(b"data: ")[2])


def turn(site, live: EventStream, changed: Any) -> int:
    """Publish what is due; return the number of the last event."""
    site.context.catch_up()
    live.publish_due(changed.take())
    return live._last.number


def test_a_new_state_is_published_at_once_and_progress_after_a_second(site) -> None:
    live, changed = EventStream(site.context), site.cache.listen()
    site.running(7)
    assert turn(site, live, changed) == 1
    assert said(live) == {"jobs": ["7"]}
    site.pipeline(7, checkpoint=1)
    assert turn(site, live, changed) == 1
    site.pipeline(7, checkpoint=2)
    site.clock.advance(PROGRESS_EVERY_S)
    assert turn(site, live, changed) == 2
    site.running(7, JobStatus.FAILING)
    assert turn(site, live, changed) == 3
    site.take(RUNNING_JOBS, 7)
    assert turn(site, live, changed) == 4
    assert said(live) == {"jobs": ["7"]}


def test_a_heartbeat_without_news_is_not_published(site) -> None:
    news, changed = JobUpdates(site.cache), site.cache.listen()
    site.running(1)
    site.metrics(1, rows_read=5, at_ms=1)
    site.context.catch_up()
    news.refresh(changed.take())
    assert news.take() == [1]
    site.metrics(1, rows_read=5, at_ms=2)
    site.context.catch_up()
    news.refresh(changed.take())
    assert (news.urgent, news.other) == (set(), set())
    site.metrics(1, rows_read=6, at_ms=3)
    site.context.catch_up()
    news.refresh(changed.take())
    assert (news.urgent, news.other) == (set(), {1})


def test_changes_of_many_jobs_are_published_as_one_event_for_all(site) -> None:
    live, changed = EventStream(site.context), site.cache.listen()
    for job_id in range(1, IDS_MAX + 2):
        site.running(job_id)
    turn(site, live, changed)
    assert live._last.text is EVERYTHING


def test_an_idle_stream_sends_keep_alives_and_reports_a_lost_store(
    site,
) -> None:
    live, changed = EventStream(site.context), site.cache.listen()
    site.context.catch_up()
    live.publish_due(changed.take())
    site.clock.advance(ALIVE_EVERY_S)
    assert turn(site, live, changed) == 1
    assert said(live) == {"reason": ""}
    site.fault = Fault.UNAVAILABLE
    site.clock.advance(6)
    assert turn(site, live, changed) == 2
    assert "cannot be reached" in said(live)["reason"]
    site.fault = Fault.NONE
    assert turn(site, live, changed) == 3
    assert said(live) == {"reason": ""}


async def heard(stream: AsyncIterator[bytes]) -> bytes:
    return await asyncio.wait_for(anext(stream), PATIENCE_S)


async def gone(live: EventStream, *streams: Any) -> None:
    for stream in streams:
        await stream.aclose()
    assert live.listeners == 0
    assert live._task is not None
    await asyncio.wait_for(live._task, PATIENCE_S)


def test_all_listeners_are_sent_the_same_bytes(site) -> None:
    async def story() -> None:
        live = EventStream(site.context)
        site.context.catch_up()
        streams = [live.stream() for _ in range(20)]
        for stream in streams:
            assert b"event: hello" in await heard(stream)
        site.running(5)
        site.context.catch_up()
        first, *others = [await heard(stream) for stream in streams]
        assert json.loads(first.partition(b"data: ")[2]) == {"jobs": ["5"]}
        assert all(other is first for other in others)
        await gone(live, *streams)

    asyncio.run(story())


def test_a_slow_listener_gets_one_event_for_all_that_it_has_missed(site) -> None:
    async def story() -> None:
        live = EventStream(site.context)
        site.context.catch_up()
        slow, quick = live.stream(), live.stream()
        for stream in (slow, quick):
            await heard(stream)
        texts = [b"event %d" % number for number in range(LAG_MAX + 1)]
        for text in texts:
            live.publish(text)
            assert await heard(quick) is text
        assert await heard(slow) is EVERYTHING
        live.publish(b"last")
        assert [await heard(slow), await heard(quick)] == [b"last", b"last"]
        await gone(live, slow, quick)

    asyncio.run(story())
