"""In-memory data of the leader about jobs: timers, next checks, slot usage, due times.

Used by the reconciler and the housekeeper, in their thread. A stable job is checked now and then,
an active one once a second, and every job at once when it changes. So a cycle costs what has
happened since the last one, however many jobs there are. All of it is lost with the leader, and
nothing else.
"""

import heapq
import math
import threading
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

GAP_S_MAX = 1.0  # the most that the time between two cycles counts
# The interval of checks of an active job: deadlines pass without a change.
ACTIVE_EVERY_S = 1.0
STABLE_EVERY_S_MAX = 5.0
SHARES = 64  # checks of stable jobs are spread over this many shares of their interval


@dataclass(slots=True)
class Timer:
    """Since when a value is unchanged, in observed time."""

    what: object
    since_s: float


class StateTimers:
    """How long values have been unchanged, in time that this leader has observed.

    A new leader starts at zero, and hours in which the store was out of reach or this process was
    paused hardly count: a deadline may only be later than it should.
    """

    def __init__(self) -> None:
        self._ages: dict[int, dict[tuple[object, ...], Timer]] = {}
        self._watched_s = 0.0
        self._last_s: float | None = None

    def tick(self, now_s: float) -> None:
        """Advance the observed time at the start of a cycle."""
        if self._last_s is not None:
            self._watched_s += min(max(0.0, now_s - self._last_s), GAP_S_MAX)
        self._last_s = now_s

    def ms(self, job_id: int, what: object, *name: object) -> int:
        """Return how long the timer of this name has had the value `what`."""
        ages = self._ages.setdefault(job_id, {})
        age = ages.get(name)
        if age is None or (age.what is not what and age.what != what):
            ages[name] = Timer(what, self._watched_s)
            return 0
        return round((self._watched_s - age.since_s) * 1000)

    def forget(self, job_id: int) -> None:
        """Remove the timers of a job that has ended."""
        self._ages.pop(job_id, None)

    def clear(self) -> None:
        self._ages.clear()


class RecheckQueue:
    """When each job is checked again if nothing changes."""

    def __init__(self) -> None:
        self._next: dict[int, float] = {}
        self._queue: list[tuple[float, int]] = []
        self._stable: set[int] = set()
        self._lock = threading.Lock()  # several jobs may be checked in parallel

    def schedule(self, job_id: int, now_s: float, stable_for_s: float | None) -> None:
        """Schedule the next check of a job; a stable one needs none for `stable_for_s`.

        Active jobs are checked in the same cycle, as they may wait for the same slots; stable ones
        are spread over their interval by their ids.
        """
        with self._lock:
            if stable_for_s is None:
                self._stable.discard(job_id)
                due_s = (math.floor(now_s / ACTIVE_EVERY_S) + 1) * ACTIVE_EVERY_S
            else:
                self._stable.add(job_id)
                share_s = stable_for_s / SHARES
                due_s = now_s + share_s * (1 + (job_id - math.floor(now_s / share_s)) % SHARES)
            self._next[job_id] = due_s
            heapq.heappush(self._queue, (due_s, job_id))
            if len(self._queue) > 2 * len(self._next) + SHARES:
                self._queue = [(due_s, job_id) for job_id, due_s in self._next.items()]
                heapq.heapify(self._queue)

    def due(self, now_s: float) -> set[int]:
        """Return the jobs whose check is due, once.

        A caller that cannot check them must recheck all jobs.
        """
        found: set[int] = set()
        while self._queue and self._queue[0][0] <= now_s:
            due_s, job_id = heapq.heappop(self._queue)
            if self._next.get(job_id) == due_s:
                found.add(job_id)
        return found

    def active(self, jobs: set[int]) -> set[int]:
        """Return those among these jobs that are not stable."""
        return jobs - self._stable

    def missing(self, jobs: Iterable[int]) -> set[int]:
        """Return those among these jobs that have no check scheduled."""
        return {job_id for job_id in jobs if job_id not in self._next}

    def forget(self, job_id: int) -> None:
        """Remove a job that has ended."""
        self._next.pop(job_id, None)
        self._stable.discard(job_id)

    def clear(self) -> None:
        self._next.clear()
        self._queue.clear()
        self._stable.clear()


class DueQueue:
    """Jobs by a due time; finding the due ones does not read the others."""

    def __init__(self) -> None:
        self._times: dict[int, int] = {}
        self._order: list[tuple[int, int]] = []

    def put(self, job_id: int, at_ms: int | None) -> None:
        """Set the due time of a job; None removes it."""
        before_ms = self._times.pop(job_id, None)
        if before_ms is not None:
            del self._order[bisect_left(self._order, (before_ms, job_id))]
        if at_ms is not None:
            self._times[job_id] = at_ms
            insort(self._order, (at_ms, job_id))

    def until(self, at_ms: int) -> list[int]:
        """Return the jobs that are due at this time, the earliest first."""
        return [job_id for _, job_id in self._order[: bisect_left(self._order, (at_ms + 1, 0))]]


class SlotUsage:
    """How many slots of every worker are in use, counted as assignments come and go."""

    def __init__(self) -> None:
        self._holders: dict[int, str] = {}
        self.slots: Counter[str] = Counter()

    def put(self, job_id: int, holder: str | None) -> None:
        """Set the worker whose slot a job uses; None releases it."""
        before = self._holders.pop(job_id, None)
        if before is not None:
            self.slots[before] -= 1
        if holder is not None:
            self._holders[job_id] = holder
            self.slots[holder] += 1

    def clear(self) -> None:
        self._holders.clear()
        self.slots.clear()
