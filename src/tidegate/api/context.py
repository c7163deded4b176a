"""What request handlers share: the cluster cache, its age, and the commands. One per server.

A thread of the server refreshes the cache. It is refreshed once more before the first request after
a write on this server, so that callers see their own writes. A cache that could not be refreshed
for a while is not used: no response is better than one that may be wrong.
"""

import contextlib
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidegate.api.job_index import JobIndex
from tidegate.clock import Clock
from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.coordinator.commands import Commands
from tidegate.coordinator.outage_health import OutageHealth, describe_jobs
from tidegate.model.engine import EngineSettings
from tidegate.model.errors import TidegateError, TransientError
from tidegate.store.base import Store
from tidegate.store.errors import StoreUnavailable

CACHE_AGE_S_MAX = 5.0
OWN_WRITE_VISIBLE_WITHIN_S = 1.0  # several refreshes of the cache


class OutOfDate(StoreUnavailable):
    """This server's cache is too old to answer from."""

    condition = "out-of-date"

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the store cannot be reached at the moment, so current data is not available: {why}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiServer:
    """This server, as other servers and clients see it."""

    id: str
    address: str
    since_ms: int = 0


class ApiContext:
    """What the request handlers of one server share. Thread-safe."""

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
        self.job_index = JobIndex(cache)
        self._refresh_error = "this server has just started"
        self._written_s = float("-inf")  # last write through this server
        self._write_lock = threading.Lock()
        self._outage = OutageHealth(cache, settings, clock)
        # Set by the composition root:
        self.logs: Path | None = None  # directory of the log files that this server serves
        # None: the server has no worker
        self.set_worker_tags: Callable[[Mapping[str, str]], None] | None = None
        # why the store has not accepted a write for that many seconds; empty: it has
        self.write_problem: Callable[[float], str] = lambda _after_s: ""
        self.listeners_max = sys.maxsize  # event streams; limited by the connections
        self.on_write: Callable[[], None] = lambda: None  # called after every write

    def refresh(self, behind_s: float = float("inf")) -> None:
        """Refresh the cache, unless a refresh has begun after `behind_s`.

        An error is raised, and kept as the reason that callers get.
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
        """Return why the store could not be read or written for a while; empty if it can."""
        return self._read_problem() or self.write_problem(CACHE_AGE_S_MAX)

    def record_write(self) -> None:
        """Note that a write was made: the next read on this server must include it.

        Callers that only write do not wait for a refresh.
        """
        with self._write_lock:  # keep the latest time
            self._written_s = self.clock.monotonic_s()
        self.on_write()

    def may_miss_own_write(self) -> bool:
        """Return whether the cache may lack a write made on this server moments ago.

        After OWN_WRITE_VISIBLE_WITHIN_S the store does not answer, and readers do not wait for it.
        """
        return (
            not self.cache.begun_after(self._written_s)
            and self.clock.monotonic_s() - self._written_s <= OWN_WRITE_VISIBLE_WITHIN_S
        )

    def catch_up(self) -> None:
        """Note a write that the same response must reflect, and refresh the cache."""
        self.record_write()
        self.wait_until_current()

    def wait_until_current(self) -> None:
        """Refresh the cache, unless a refresh has begun after the last write. Callers share it.

        A failure is not raised: the write was made all the same.
        """
        with contextlib.suppress(TransientError):
            self.refresh(self._written_s)

    def out_of_date(self) -> OutOfDate | None:
        """Return why the cache must not be used; None if it may."""
        why = self._read_problem()
        if not why:
            return None
        jobs = describe_jobs(self.cache)
        return OutOfDate(f"{why}. {jobs}" if jobs else why)

    def _read_problem(self) -> str:
        """Return why the cache is too old; empty if it is not."""
        if self.cache.age_s() <= CACHE_AGE_S_MAX:
            return ""
        return self._refresh_error or "it was not read in time"

    def current(self) -> ClusterCache:
        """Return the cache if it is fresh enough; OutOfDate otherwise."""
        if (reason := self.out_of_date()) is not None:
            raise reason
        return self.cache
