"""A copy of all maps of the store, kept up to date by its change log.

Every server reads from one.

Any thread may call `refresh`; reads see the last complete refresh. `listen` returns a `ChangedJobs`
that collects the jobs that change; `listen_for_news` ignores mere heartbeats and progress.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, ValuesView
from dataclasses import replace
from typing import Any, Generic, TypeVar

from tidegate.clock import Clock
from tidegate.coordinator.job_snapshot import JobSnapshot, Stored
from tidegate.lifecycle.observation import JobHealth
from tidegate.lifecycle.recheck import metrics_marker, state_marker
from tidegate.model.external_resources import RESOURCES, ResourceRecord
from tidegate.model.records import (
    ASSIGNMENTS,
    CHECKPOINT_HISTORY,
    DRIVERS,
    HEARTBEATS,
    JOB_OUTCOMES,
    JOB_STATES,
    LEASES,
    METRICS,
    PENDING_CLEANUPS,
    PIPELINES,
    RUNNING_JOBS,
    SAVEPOINTS,
    SERVERS,
    TOKENS,
    WORKERS,
    AccessToken,
    Assignment,
    CheckpointHistory,
    CleanupRecord,
    DriverRecord,
    Heartbeat,
    JobOutcome,
    JobRecord,
    JobState,
    Lease,
    PipelineMetrics,
    PipelineState,
    SavepointRequest,
    ServerRecord,
    WorkerRecord,
)
from tidegate.store.base import Check, Store
from tidegate.store.follow import CachedEntry, Follower

T = TypeVar("T")
COORDINATOR = "coordinator"  # the lease of the leader
KINDS: dict[str, type] = {
    LEASES: Lease,
    HEARTBEATS: Heartbeat,
    WORKERS: WorkerRecord,
    SERVERS: ServerRecord,
    RUNNING_JOBS: JobRecord,
    JOB_STATES: JobState,
    ASSIGNMENTS: Assignment,
    DRIVERS: DriverRecord,
    PIPELINES: PipelineState,
    METRICS: PipelineMetrics,
    CHECKPOINT_HISTORY: CheckpointHistory,
    PENDING_CLEANUPS: CleanupRecord,
    JOB_OUTCOMES: JobOutcome,
    TOKENS: AccessToken,
    SAVEPOINTS: SavepointRequest,
    RESOURCES: ResourceRecord,
}
OF_PIPELINES = (PIPELINES, METRICS, CHECKPOINT_HISTORY)  # their keys are <job>/<pipeline>
OF_JOBS = (
    RUNNING_JOBS,
    JOB_STATES,
    ASSIGNMENTS,
    DRIVERS,
    PENDING_CLEANUPS,
    JOB_OUTCOMES,
    SAVEPOINTS,
)
DISPLAYED = (METRICS, CHECKPOINT_HISTORY)  # nothing depends on them, and drivers write them again
# Records that are written again and again while all is well, with what is news of them. Of
# histories nothing is; of all others everything.
NEWS_MARKERS: dict[str, Callable[[Any], object]] = {
    PIPELINES: state_marker,
    METRICS: metrics_marker,
}


class ByJob(Mapping[int, CachedEntry[T]], Generic[T]):
    """A map by job id."""

    def __init__(self, records: Mapping[str, CachedEntry[T]]) -> None:
        self._records = records

    def __getitem__(self, job_id: int) -> CachedEntry[T]:
        return self._records[str(job_id)]

    def __iter__(self) -> Iterator[int]:
        return (int(key) for key in self._records if key.isdigit())

    def __len__(self) -> int:
        return sum(key.isdigit() for key in self._records)

    def values(self) -> ValuesView[CachedEntry[T]]:
        """Return all values without parsing each key: there may be thousands."""
        return {key: record for key, record in self._records.items() if key.isdigit()}.values()


class ChangedJobs:
    """The ids of jobs that have changed since the last `take`."""

    def __init__(self) -> None:
        self._ids: set[int] = set()
        self._lock = threading.Lock()

    def add(self, ids: set[int]) -> None:
        with self._lock:
            self._ids |= ids

    def take(self) -> set[int]:
        """Return the ids, and clear them."""
        with self._lock:
            taken, self._ids = self._ids, set()
        return taken


class ClusterCache:
    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self._maps = Follower(
            store, KINDS, clock.monotonic_s, lazy=(JOB_OUTCOMES, CHECKPOINT_HISTORY, RESOURCES)
        )
        # All maps as of the last complete turn: during a turn some are newer than others, and a job
        # that has just ended would be in none of them.
        self._view: dict[str, Mapping[str, CachedEntry[Any]]] = {
            map: self._maps.all(map) for map in KINDS
        }
        self._parts: dict[str, dict[int, tuple[CachedEntry[Any], ...]]] = {
            map: {} for map in OF_PIPELINES
        }
        self._listeners: list[ChangedJobs] = []
        self._listeners_for_news: list[ChangedJobs] = []
        self._refreshing = threading.Lock()
        self._fresh_s: float | None = None
        self._displayed: Mapping[int, JobHealth] = {}

    def listen(self) -> ChangedJobs:
        """Collect every job that changes from now on."""
        changed = ChangedJobs()
        self._listeners.append(changed)
        return changed

    def listen_for_news(self) -> ChangedJobs:
        """Collect every job that changes from now on, except for heartbeats and progress."""
        changed = ChangedJobs()
        self._listeners_for_news.append(changed)
        return changed

    def refresh(self, not_before_s: float = float("inf")) -> set[int]:
        """Read the changes of the store; return the jobs that have changed.

        Returns at once if another refresh began after `not_before_s` on the monotonic clock, so
        that callers who wait for an earlier write share it. StoreUnavailable leaves the copy
        unchanged.
        """
        with self._refreshing:
            if self.begun_after(not_before_s):
                return set()
            began_s = self.clock.monotonic_s()
            changed, before = self._maps.refresh(), self._view
            if changed:
                self._view = {map: self._maps.all(map) for map in KINDS}
            ids, news = self._classify(changed, before)
            self._fresh_s = began_s
            # Inside the lock: the next caller must not return before all listeners are notified.
            for listener in self._listeners:
                listener.add(ids)
            for listener in self._listeners_for_news:
                listener.add(news)
        return ids

    def begun_after(self, at_s: float) -> bool:
        """Whether the last refresh began after this monotonic time: it has all earlier writes."""
        return self._fresh_s is not None and self._fresh_s > at_s

    def age_s(self) -> float:
        """Return the maximum age of the copy."""
        return float("inf") if self._fresh_s is None else self.clock.monotonic_s() - self._fresh_s

    def snapshot(self, job_id: int) -> JobSnapshot:
        """Return all records of one job with their versions, which are the conditions of writes."""
        view, key = self._view, str(job_id)
        pipelines, metrics = self._of(PIPELINES, job_id), view[METRICS]
        outcome = view[JOB_OUTCOMES].get(key)
        return JobSnapshot(
            job_id=job_id,
            record=_stored(view[RUNNING_JOBS].get(key)),
            state=_stored(view[JOB_STATES].get(key)),
            pipelines=tuple(Stored(p.value, p.version) for p in pipelines),
            outcome=outcome.value if outcome else None,
            driver=_stored(view[DRIVERS].get(key)),
            assignment=_stored(view[ASSIGNMENTS].get(key)),
            cleanup=_stored(view[PENDING_CLEANUPS].get(key)),
            histories=tuple(each.key for each in self._of(CHECKPOINT_HISTORY, job_id)),
            savepoint=_stored(view[SAVEPOINTS].get(key)),
            heartbeats=tuple(
                Check(METRICS, p.key, seen.version if (seen := metrics.get(p.key)) else 0)
                for p in pipelines
            ),
        )

    def jobs(self) -> ByJob[JobRecord]:
        """Return all jobs that have not ended."""
        return ByJob(self._view[RUNNING_JOBS])

    def state(self, job_id: int) -> CachedEntry[JobState] | None:
        """Return the state of a job, or its tombstone."""
        return self._view[JOB_STATES].get(str(job_id))

    def displayed_state(self, job_id: int) -> JobState | None:
        """Return the state for display, with the health that applies while it cannot be written.

        Code that writes uses `state` or `snapshot`.
        """
        seen, shown = self.state(job_id), self._displayed.get(job_id)
        if seen is None or shown is None:
            return seen.value if seen else None
        return replace(seen.value, health=shown.level, health_reason=shown.reason)

    def displayed_health(self, job_id: int) -> JobHealth | None:
        """Return what is displayed instead of the stored health, if anything."""
        return self._displayed.get(job_id)

    def set_displayed_health(self, shown: Mapping[int, JobHealth]) -> None:
        """Display these values instead of the stored health; all other jobs show what is stored."""
        before, self._displayed = self._displayed, shown
        changed = {
            job_id
            for job_id in before.keys() | shown.keys()
            if before.get(job_id) != shown.get(job_id)
        }
        if changed:
            for listener in self._listeners:
                listener.add(changed)

    def damaged_jobs(self) -> set[int]:
        """Return the jobs of which a required document cannot be read.

        No decision is made about them; their drivers are left running.
        """
        if not self._maps.unreadable:
            return set()
        return {
            job
            for map, key in list(self._maps.unreadable)
            if map not in DISPLAYED and (job := _job(map, key)) is not None
        }

    def damage(self, job_id: int) -> str:
        """Describe the unreadable document of a job; empty if all required ones can be read."""
        if not self._maps.unreadable:
            return ""
        unreadable = dict(self._maps.unreadable)
        return next(
            (
                why
                for (map, key), why in sorted(unreadable.items())
                if map not in DISPLAYED and _job(map, key) == job_id
            ),
            "",
        )

    def damaged(self) -> int:
        """Return the number of unreadable documents."""
        return len(self._maps.unreadable)

    def states(self) -> ByJob[JobState]:
        """Return the states of all jobs, including tombstones."""
        return ByJob(self._view[JOB_STATES])

    def pipelines(self, job_id: int) -> tuple[CachedEntry[PipelineState], ...]:
        """The pipelines of a job, by id."""
        return self._of(PIPELINES, job_id)

    def metrics(self, job_id: int) -> tuple[CachedEntry[PipelineMetrics], ...]:
        """Return the metrics of a running job."""
        return self._of(METRICS, job_id)

    def history(self, job_id: int) -> tuple[CachedEntry[CheckpointHistory], ...]:
        """Return the checkpoint history of a job, by pipeline."""
        return self._of(CHECKPOINT_HISTORY, job_id)

    def assignment(self, job_id: int) -> CachedEntry[Assignment] | None:
        """Return the assignment of a job to a worker."""
        return self._view[ASSIGNMENTS].get(str(job_id))

    def assignments(self) -> ByJob[Assignment]:
        return ByJob(self._view[ASSIGNMENTS])

    def driver(self, job_id: int) -> CachedEntry[DriverRecord] | None:
        """The newest driver of a job."""
        return self._view[DRIVERS].get(str(job_id))

    def outcome(self, job_id: int) -> CachedEntry[JobOutcome] | None:
        """How the last incarnation of a job ended."""
        return self._view[JOB_OUTCOMES].get(str(job_id))

    def savepoint(self, job_id: int) -> CachedEntry[SavepointRequest] | None:
        """Return the last savepoint request of a job."""
        return self._view[SAVEPOINTS].get(str(job_id))

    def outcomes(self) -> ByJob[JobOutcome]:
        return ByJob(self._view[JOB_OUTCOMES])

    def cleanups(self) -> ByJob[CleanupRecord]:
        """Return the cleanup records that are not yet carried out."""
        return ByJob(self._view[PENDING_CLEANUPS])

    def resources(self) -> Mapping[str, CachedEntry[ResourceRecord]]:
        return self._view[RESOURCES]

    def workers(self) -> Mapping[str, CachedEntry[WorkerRecord]]:
        """All workers that are registered."""
        return self._view[WORKERS]

    def servers(self) -> Mapping[str, CachedEntry[ServerRecord]]:
        """Return all servers that have a record."""
        return self._view[SERVERS]

    def tokens(self) -> Mapping[str, CachedEntry[AccessToken]]:
        """Return the access tokens by their id."""
        return self._view[TOKENS]

    def lease(self, lease_name: str = COORDINATOR) -> CachedEntry[Lease] | None:
        return self._view[LEASES].get(lease_name)

    def heartbeat(self, lease_name: str) -> CachedEntry[Heartbeat] | None:
        """Return the last heartbeat of the lease's holder."""
        return self._view[HEARTBEATS].get(lease_name)

    def of_jobs(self, map: str) -> set[int]:
        """Return the jobs that have a document in a map."""
        return set(self._parts[map]) if map in OF_PIPELINES else set(ByJob(self._view[map]))

    def _classify(
        self, changed: set[tuple[str, str]], before: Mapping[str, Mapping[str, CachedEntry[Any]]]
    ) -> tuple[set[int], set[int]]:
        """Return the jobs that have changed, and those whose change is news."""
        ids: set[int] = set()
        news: set[int] = set()
        for map, key in changed:
            job = _job(map, key)
            if job is None:
                continue
            ids.add(job)
            if job not in news and _is_news(map, before[map].get(key), self._view[map].get(key)):
                news.add(job)
            if map in OF_PIPELINES:
                self._regroup(map, job, key)
        return ids, news

    def _of(self, map: str, job_id: int) -> tuple[CachedEntry[Any], ...]:
        return self._parts[map].get(job_id, ())

    def _regroup(self, map: str, job: int, key: str) -> None:
        """Update the documents of a job after one was added, changed or removed."""
        seen = self._view[map].get(key)
        parts = [part for part in self._of(map, job) if part.key != key]
        if seen is not None:
            parts.append(seen)
        if parts:
            self._parts[map][job] = tuple(
                sorted(parts, key=lambda part: (len(part.key), part.key))
                if len(parts) > 1
                else parts
            )
        else:
            self._parts[map].pop(job, None)


def _is_news(map: str, before: CachedEntry[Any] | None, after: CachedEntry[Any] | None) -> bool:
    """Whether a change is more than a heartbeat or progress."""
    if map == CHECKPOINT_HISTORY:
        return False
    mark = NEWS_MARKERS.get(map)
    return (
        mark is None or before is None or after is None or mark(before.value) != mark(after.value)
    )


def _stored(seen: CachedEntry[T] | None) -> Stored[T] | None:
    return Stored(seen.value, seen.version) if seen else None


def _job(map: str, key: str) -> int | None:
    if map not in OF_PIPELINES and map not in OF_JOBS:
        return None
    head = key.partition("/")[0]
    return int(head) if head.isdigit() else None
