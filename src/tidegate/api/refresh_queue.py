"""Queue of changed jobs whose cached data must be rebuilt. Used on the event loop only.

A thousand jobs may have changed since the last request. A request handler therefore rebuilds a few
at a time, so that the event loop answers other requests in between.
"""

import asyncio
from collections.abc import Callable

from tidegate.coordinator.cluster_cache import ClusterCache

SLICE_JOBS = 25  # rebuilt before the event loop gets its turn


class RefreshQueue:
    """Ids of jobs for which `refresh` must be called. Initially, all jobs that have not ended."""

    def __init__(self, cache: ClusterCache, refresh: Callable[[int], None]) -> None:
        self.cache = cache
        self.refresh = refresh
        self.changed = cache.listen()
        self._ids: set[int] = set()
        self._begun = False
        self._lock = asyncio.Lock()

    def refresh_all(self) -> None:
        """Refresh every queued job now."""
        self._take()
        while self._ids:
            self.refresh(self._ids.pop())

    async def refresh_in_slices(self) -> None:
        """Refresh every queued job, a few at a time.

        A concurrent caller waits until the jobs queued before it are done, so it sees its own
        writes.
        """
        async with self._lock:
            self._take()
            while self._ids:
                for _ in range(min(SLICE_JOBS, len(self._ids))):
                    self.refresh(self._ids.pop())
                await asyncio.sleep(0)

    def _take(self) -> None:
        self._ids |= self.changed.take()
        if not self._begun:
            self._ids |= set(self.cache.jobs())
            self._begun = True
