"""Keep jobs sorted for listing, so that a page costs its length and not the number of jobs.

Created by the API context, one per server; thread-safe. The cluster cache reports which jobs have
changed, and only those are read again. A returned list never changes.
"""

import logging
import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from tidegate.api.running_jobs import RunningJob, running_job_of
from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.model.records import CheckpointHealth, JobOutcome
from tidegate.store.follow import CachedEntry

LOG = logging.getLogger("tidegate.api")


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRow:
    """A running job or an outcome, with its sort keys and filter values."""

    job_id: int
    submitted: tuple[int, int]  # sort key: time of submission, id
    ended: tuple[int, int]  # sort key: end time, id
    status: str
    health: CheckpointHealth | None
    name: str  # lowercase
    job: RunningJob | CachedEntry[JobOutcome]

    @property
    def outcome(self) -> CachedEntry[JobOutcome]:
        assert isinstance(self.job, CachedEntry), "only a job that has ended has an outcome"
        return self.job


class JobIndex:
    """Running and ended jobs, newest first."""

    def __init__(self, cache: ClusterCache) -> None:
        self.cache = cache
        self.changed = cache.listen()
        self._lock = threading.Lock()
        self._running: dict[int, JobRow] = {}
        self._ended: dict[int, JobRow] = {}
        self._initialized = False
        self._lists: dict[str, Sequence[JobRow]] = {}  # sorted lists that are still valid
        self._counts: Mapping[str, int] | None = None

    def rows(self, *, ended: bool | None = None) -> Sequence[JobRow]:
        """Return jobs by time of submission: all, or only ended ones, or only the others.

        A job that was resumed is not listed as ended.
        """
        with self._lock:
            self._refresh()
            if ended is not None:
                return self._list("ended" if ended else "running")
            if "all" not in self._lists:
                ended_rows = [row for row in self._list("ended") if row.job_id not in self._running]
                self._lists["all"] = _sorted([*ended_rows, *self._list("running")], "submitted")
            return self._lists["all"]

    def finished(self, status: str) -> Sequence[JobRow]:
        """Return outcomes by end time; with a status, only those that have it."""
        with self._lock:
            self._refresh()
            name = f"finished {status}"
            if name not in self._lists:
                self._lists[name] = _sorted(
                    [row for row in self._ended.values() if status in ("", row.status)], "ended"
                )
            return self._lists[name]

    def ended_counts(self) -> Mapping[str, int]:
        """Count the outcomes of each status."""
        with self._lock:
            self._refresh()
            if self._counts is None:
                self._counts = Counter(row.status for row in self._ended.values())
            return self._counts

    def _list(self, name: str) -> Sequence[JobRow]:
        if name not in self._lists:
            self._lists[name] = _sorted(
                (self._ended if name == "ended" else self._running).values(), "submitted"
            )
        return self._lists[name]

    def _refresh(self) -> None:
        """Apply the changes that the cluster cache has reported since the last call."""
        ids = self.changed.take()
        if not self._initialized:
            self._initialized, ids = True, {*self.cache.jobs(), *self.cache.outcomes()}
        jobs = self.cache.jobs()
        for job_id in ids:
            record = jobs.get(job_id)
            job = running_job_of(self.cache, record) if record is not None else None
            if _put(
                self._running,
                job_id,
                _running_row(job) if job is not None and not job.state.status.terminal else None,
            ):
                self._lists.pop("running", None)
                self._lists.pop("all", None)
            if _put(self._ended, job_id, self._outcome(job_id)):
                self._lists = {}
                self._counts = None

    def _outcome(self, job_id: int) -> JobRow | None:
        """Return the row of an outcome; None if there is none, or if it cannot be read."""
        outcome, known = self.cache.outcome(job_id), self._ended.get(job_id)
        if outcome is None:
            return None
        if known is not None and known.job is outcome:
            return known
        try:
            return _finished_row(job_id, outcome)
        except Exception as error:  # one damaged record must not hide the others
            LOG.error("outcome_unreadable", extra={"job_id": job_id, "why": str(error)})
            return None


def matching(
    rows: Sequence[JobRow],
    *,
    status: Collection[str] | None = None,
    health: Collection[CheckpointHealth] | None = None,
    name: str | None = None,
) -> Sequence[JobRow]:
    """Filter rows by status, by health, and by a part of the name (ignoring case)."""
    if status:
        statuses = frozenset(map(str, status))
        rows = [row for row in rows if row.status in statuses]
    if health:
        rows = [row for row in rows if row.health in health]
    if name:
        part = name.lower()
        rows = [row for row in rows if part in row.name]
    return rows


def _put(rows: dict[int, JobRow], job_id: int, row: JobRow | None) -> bool:
    """Set or, with None, remove a row; return whether anything has changed."""
    known = rows.get(job_id)
    if row == known:
        return False
    if row is None:
        del rows[job_id]
    else:
        rows[job_id] = row
    return True


def _sorted(rows: Collection[JobRow], by: str) -> Sequence[JobRow]:
    return tuple(sorted(rows, key=attrgetter(by), reverse=True))


def _running_row(job: RunningJob) -> JobRow:
    record, state = job.record.value, job.state
    order = (record.initialization_ms, record.job_id)
    return JobRow(
        job_id=record.job_id,
        submitted=order,
        ended=(0, record.job_id),
        status=state.status.value,
        health=state.health,
        name=record.name.lower(),
        job=job,
    )


def _finished_row(job_id: int, outcome: CachedEntry[JobOutcome]) -> JobRow:
    return JobRow(
        job_id=job_id,
        submitted=(int(outcome.peek("initialization_ms")), job_id),
        ended=(int(outcome.peek("finished_ms")), job_id),
        status=str(outcome.peek("status")),
        health=None,
        name=str(outcome.peek("name")).lower(),
        job=outcome,
    )
