"""Jobs that have changed and were not looked at yet: for those who keep something of each job, and
make it again when the job changes.

A thousand jobs may have changed since somebody last asked. So whoever can wait looks at a few at a
time, and others are answered in between. Used on the event loop only.
"""

import asyncio
from collections.abc import Callable

from tidegate.coordinator.cluster_cache import ClusterCache

SLICE_JOBS = 25  # jobs that are looked at in one go


class RefreshQueue:
    """What `look` has still to be called with. At first that is every job that has not ended."""

    def __init__(self, cache: ClusterCache, refresh: Callable[[int], None]) -> None:
        self.cache = cache
        self.refresh = refresh
        self.changed = cache.listen()
        self._ids: set[int] = set()
        self._begun = False
        self._lock = asyncio.Lock()

    def refresh_all(self) -> None:
        """Look at all of them."""
        self._take()
        while self._ids:
            self.refresh(self._ids.pop())

    async def refresh_in_slices(self) -> None:
        """The same, a few at a time.

        Whoever comes meanwhile waits until those that were due before are done: what a caller has
        written, it finds.
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
