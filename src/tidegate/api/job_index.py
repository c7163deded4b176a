"""Which jobs there are, in the orders in which they are shown: kept from one request to the next,
so that a page of ten thousand jobs costs a page.

Made by the desk, one for each server; threads may share it. The picture tells which jobs have
changed, and those alone are looked at again. What is given out is never changed afterwards.
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
    """A job, with what it is found and ordered by: one that has not ended, or an outcome."""

    job_id: int
    submitted: tuple[int, int]  # by time of submission
    ended: tuple[int, int]  # by time of its end
    status: str
    health: CheckpointHealth | None
    name: str  # in small letters
    job: RunningJob | CachedEntry[JobOutcome]

    @property
    def outcome(self) -> CachedEntry[JobOutcome]:
        """Of a job that has ended."""
        assert isinstance(self.job, CachedEntry), "only a job that has ended has one"
        return self.job


class JobIndex:
    """The jobs that have not ended, and those that have, each the newest first."""

    def __init__(self, cache: ClusterCache) -> None:
        self.cache = cache
        self.changed = cache.listen()
        self._lock = threading.Lock()
        self._running: dict[int, JobRow] = {}
        self._ended: dict[int, JobRow] = {}
        self._initialized = False
        self._lists: dict[str, Sequence[JobRow]] = {}  # those that are still true, by their names
        self._counts: Mapping[str, int] | None = None

    def rows(self, *, ended: bool | None = None) -> Sequence[JobRow]:
        """By time of submission: all jobs, or only those that have ended, or only those that have
        not. A job that runs again is not shown as ended.
        """
        with self._lock:
            self._refresh()
            if ended is not None:
                return self._list("ended" if ended else "going")
            if "all" not in self._lists:
                over = [row for row in self._list("ended") if row.job_id not in self._running]
                self._lists["all"] = _sorted([*over, *self._list("going")], "submitted")
            return self._lists["all"]

    def finished(self, status: str) -> Sequence[JobRow]:
        """Outcomes by time of their end; with a status, only those."""
        with self._lock:
            self._refresh()
            name = f"finished {status}"
            if name not in self._lists:
                self._lists[name] = _sorted(
                    [row for row in self._ended.values() if status in ("", row.status)], "ended"
                )
            return self._lists[name]

    def ended_counts(self) -> Mapping[str, int]:
        """How many outcomes there are of each status."""
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
        """Catch up with the picture."""
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
                self._lists.pop("going", None)
                self._lists.pop("all", None)
            if _put(self._ended, job_id, self._outcome(job_id)):
                self._lists = {}
                self._counts = None

    def _outcome(self, job_id: int) -> JobRow | None:
        """The row of an outcome: the known one where it is the same; None where there is none, or
        where nothing of it can be read.
        """
        seen, known = self.cache.outcome(job_id), self._ended.get(job_id)
        if seen is None or (known is not None and known.job is seen):
            return known if seen is not None else None
        try:
            return _finished_row(job_id, seen)
        except Exception as error:  # whatever is wrong with one record, the others must be shown
            LOG.error("an outcome cannot be read", extra={"job_id": job_id, "why": str(error)})
            return None


def matching(
    rows: Sequence[JobRow],
    *,
    status: Collection[str] | None = None,
    health: Collection[CheckpointHealth] | None = None,
    name: str | None = None,
) -> Sequence[JobRow]:
    """Those that have one of these statuses, are as healthy as this, and have this in their name,
    in any case.
    """
    if status:
        wanted = frozenset(map(str, status))
        rows = [row for row in rows if row.status in wanted]
    if health:
        rows = [row for row in rows if row.health in health]
    if name:
        part = name.lower()
        rows = [row for row in rows if part in row.name]
    return rows


def _put(rows: dict[int, JobRow], job_id: int, row: JobRow | None) -> bool:
    """Whether anything is different now."""
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


def _finished_row(job_id: int, seen: CachedEntry[JobOutcome]) -> JobRow:
    return JobRow(
        job_id=job_id,
        submitted=(int(seen.peek("initialization_ms")), job_id),
        ended=(int(seen.peek("finished_ms")), job_id),
        status=str(seen.peek("status")),
        health=None,
        name=str(seen.peek("name")).lower(),
        job=seen,
    )
