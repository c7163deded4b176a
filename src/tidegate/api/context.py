"""What the handlers share: the picture of the store, how old it is, and the way to write wishes.
Made by the composition root, one for each server.

The picture is refreshed by a thread of the server, and once more before the first request that
comes after a wish was written here, so that the caller finds what it wrote. A picture that could
not be refreshed for a while is not shown: an answer that may be wrong is worse than none.
"""

import contextlib
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidegate.api.job_index import JobIndex
from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.coordinator.commands import Commands
from tidegate.coordinator.outage_health import OutageHealth, jobs_in_words
from tidegate.model.engine import EngineSettings
from tidegate.model.errors import TidegateError, TransientError
from tidegate.clock import Clock
from tidegate.store.base import Store
from tidegate.store.errors import StoreUnavailable

CACHE_AGE_S_MAX = 5.0
OWN_WRITE_VISIBLE_WITHIN_S = 1.0  # several turns of the picture


class OutOfDate(StoreUnavailable):
    """What this server knows is too old to be shown."""

    condition = "out-of-date"

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the store cannot be reached at the moment, so that nothing is known for sure: {why}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiServer:
    id: str
    address: str
    since_ms: int = 0


class ApiContext:
    """One for each server. Threads may share it."""

    def __init__(
        self,
        *,
        cache: ClusterCache,
        commands: Commands,
        store: Store,
        settings: EngineSettings,
        clock: Clock,
        me: ApiServer,
    ) -> None:
        self.cache = cache
        self.commands = commands
        self.store = store
        self.settings = settings
        self.clock = clock
        self.me = me
        self.job_index = JobIndex(cache)  # the jobs in the orders in which they are shown
        self._refresh_error = "this server has only just started"
        # when a wish was last written here
        self._written_s = float("-inf")
        self._write_lock = threading.Lock()
        self.logs: Path | None = None  # the folder of the logs that this server shows
        self.set_worker_tags: Callable[[Mapping[str, str]], None] | None = (
            None  # other tags for this server's worker, where it has one
        )
        self.write_problem: Callable[[float], str] = lambda _after_s: (
            ""
        )  # why the store has not been writable for so long
        self._outage = OutageHealth(cache, settings, clock)
        self.listeners_max = (
            sys.maxsize
        )  # streams of events that this server takes; its connections decide
        self.on_write: Callable[[], None] = lambda: (
            None
        )  # called after every wish that was written here

    def refresh(self, behind_s: float = float("inf")) -> None:
        """One turn of the picture, unless one has begun after that time; what goes wrong is raised,
        and kept as the reason that callers are told.
        """
        try:
            self.cache.refresh(behind_s)
            self._refresh_error = ""
        except Exception as error:
            self._refresh_error = (
                str(error)
                if isinstance(error, TidegateError)
                else f"it cannot be read ({type(error).__name__})"
            )
            raise
        finally:
            self._outage.step(self.store_problem())

    def store_problem(self) -> str:
        """Why the store cannot be used, read or written, where that has been so for a while; empty
        where it can.
        """
        return self._read_problem() or self.write_problem(CACHE_AGE_S_MAX)

    def record_write(self) -> None:
        """After a write: the next read on this server must know of it.

        Those who write one wish after the other, and read nothing, wait for no turn.
        """
        with self._write_lock:  # so that the latest one is kept
            self._written_s = self.clock.monotonic_s()
        self.on_write()

    def may_miss_own_write(self) -> bool:
        """Whether something was written here a moment ago that the picture may not have. After that
        it is the store that does not answer, and no reader waits for it.
        """
        return (
            not self.cache.begun_after(self._written_s)
            and self.clock.monotonic_s() - self._written_s <= OWN_WRITE_VISIBLE_WITHIN_S
        )

    def catch_up(self) -> None:
        """After a write of which the same answer tells."""
        self.record_write()
        self.wait_until_current()

    def wait_until_current(self) -> None:
        """One turn, unless one has begun after the last write; many share it.

        Where it fails the write is done all the same, so nothing is raised.
        """
        with contextlib.suppress(TransientError):
            self.refresh(self._written_s)

    def out_of_date(self) -> OutOfDate | None:
        """Why the picture must not be shown; None where it may."""
        why = self._read_problem()
        if not why:
            return None
        jobs = jobs_in_words(self.cache)
        return OutOfDate(f"{why}. {jobs}" if jobs else why)

    def _read_problem(self) -> str:
        """Why the picture is too old; empty where it is not."""
        return (
            ""
            if self.cache.age_s() <= CACHE_AGE_S_MAX
            else self._refresh_error or "it was not read in time"
        )

    def current(self) -> ClusterCache:
        """The picture, if it is fresh enough to be shown."""
        if (reason := self.out_of_date()) is not None:
            raise reason
        return self.cache
