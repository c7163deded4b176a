"""What the leader keeps in mind of the jobs: how long things have been as they are, when each job
is looked at again, whose slots are taken, what is due when.

Called by the reconciler and the housekeeper, in their thread. A job that gets on by itself is
looked at now and then; one that does not, once a second; news of any of them at once. So a turn
costs what has happened since the last one, however many jobs there are. All of it is lost with the
leader, and nothing else.
"""

import heapq
import math
import threading
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

GAP_S_MAX = 1.0  # what the time between two looks counts at most
# a job that is on its way, or in trouble, is looked at so often: deadlines pass by themselves
ACTIVE_EVERY_S = 1.0
STABLE_EVERY_S_MAX = 5.0
SHARES = 64  # calm jobs are looked at in so many shares of their time, and not all of them at once


@dataclass(slots=True)
class Timer:
    """Since when something is as it is, in time that was watched."""

    what: object
    since_s: float


class StateTimers:
    """How long things have been as they are, in time that this leader has watched. A new leader
    begins to count anew, and hours in which the store was out of reach or this process was paused
    hardly count: a deadline may only be later than it should.
    """

    def __init__(self) -> None:
        self._ages: dict[int, dict[tuple[object, ...], Timer]] = {}
        self._watched_s = 0.0
        self._last_s: float | None = None

    def tick(self, now_s: float) -> None:
        """One more turn, at this time."""
        if self._last_s is not None:
            self._watched_s += min(max(0.0, now_s - self._last_s), GAP_S_MAX)
        self._last_s = now_s

    def ms(self, job_id: int, what: object, *name: object) -> int:
        """How long the thing of this name has been `what`."""
        ages = self._ages.setdefault(job_id, {})
        age = ages.get(name)
        if age is None or (age.what is not what and age.what != what):
            ages[name] = Timer(what, self._watched_s)
            return 0
        return round((self._watched_s - age.since_s) * 1000)

    def forget(self, job_id: int) -> None:
        """The job is not there any more."""
        self._ages.pop(job_id, None)

    def clear(self) -> None:
        self._ages.clear()


class RecheckQueue:
    """When each job is looked at again, where nothing happens to it."""

    def __init__(self) -> None:
        self._next: dict[int, float] = {}
        self._queue: list[tuple[float, int]] = []
        self._stable: set[int] = set()
        self._lock = threading.Lock()  # several jobs may be looked at at the same time

    def schedule(self, job_id: int, now_s: float, stable_for_s: float | None) -> None:
        """It was looked at; it needs no look for so long, where it gets on by itself. Restless ones
        meet in one turn, as they may wait for the same slots; calm ones are spread over their time
        by their ids.
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
        """Whose time has come.

        They are told once: who does not get to look at them begins anew with all.
        """
        found: set[int] = set()
        while self._queue and self._queue[0][0] <= now_s:
            due_s, job_id = heapq.heappop(self._queue)
            if self._next.get(job_id) == due_s:
                found.add(job_id)
        return found

    def active(self, jobs: set[int]) -> set[int]:
        """Those among these jobs that do not get on by themselves, as far as is known."""
        return jobs - self._stable

    def missing(self, jobs: Iterable[int]) -> set[int]:
        """Those among these jobs that nobody would look at."""
        return {job_id for job_id in jobs if job_id not in self._next}

    def forget(self, job_id: int) -> None:
        """The job is not there any more."""
        self._next.pop(job_id, None)
        self._stable.discard(job_id)

    def clear(self) -> None:
        self._next.clear()
        self._queue.clear()
        self._stable.clear()


class DueQueue:
    """Jobs by a time of theirs: those whose time has come are found without a look at the others."""

    def __init__(self) -> None:
        self._times: dict[int, int] = {}
        self._order: list[tuple[int, int]] = []

    def put(self, job_id: int, at_ms: int | None) -> None:
        """The time of a job; None: it has none."""
        before_ms = self._times.pop(job_id, None)
        if before_ms is not None:
            del self._order[bisect_left(self._order, (before_ms, job_id))]
        if at_ms is not None:
            self._times[job_id] = at_ms
            insort(self._order, (at_ms, job_id))

    def until(self, at_ms: int) -> list[int]:
        """The jobs whose time is this one or an earlier one, the earliest first."""
        return [job_id for _, job_id in self._order[: bisect_left(self._order, (at_ms + 1, 0))]]


class SlotUsage:
    """How many slots of every worker are taken, counted as assignments come and go."""

    def __init__(self) -> None:
        self._holders: dict[int, str] = {}
        self.slots: Counter[str] = Counter()

    def put(self, job_id: int, holder: str | None) -> None:
        """Whose slot a job takes; None: nobody's."""
        before = self._holders.pop(job_id, None)
        if before is not None:
            self.slots[before] -= 1
        if holder is not None:
            self._holders[job_id] = holder
            self.slots[holder] += 1

    def clear(self) -> None:
        self._holders.clear()
        self.slots.clear()
