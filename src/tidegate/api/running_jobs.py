"""Cached JSON text of each job, so that listing thousands of jobs serializes only changed ones.

Used on the event loop only. The cluster cache reports which jobs have changed. A running job is
three pieces of text: what never changes (by the version of its record), what changes with its
state, pipelines and row counts, and the age of its last checkpoint, which is formatted for every
response. A heartbeat without new row counts does not rebuild anything.
"""

import json
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from tidegate.api.refresh_queue import RefreshQueue
from tidegate.api.seatunnel import serializers
from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.model.errors import TidegateError
from tidegate.model.records import JobOutcome, JobRecord, JobState
from tidegate.store.follow import CachedEntry

# The list of all jobs is reused for this long unless a job changes: ages in it are late by this
# much at most.
LIST_REUSED_MS = 200
STALE_TEXTS_MAX = 256  # texts of deleted jobs that are kept before the cache is pruned
dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that has a running record, with its displayed state."""

    record: CachedEntry[JobRecord]
    state: JobState
    version: Hashable  # of the displayed state


@dataclass(frozen=True, kw_only=True, slots=True)
class CachedFragment:
    """The text of a running job up to the age of its last checkpoint, and its source versions."""

    job: RunningJob
    identity: str
    key: Hashable
    text: str
    confirmed_ms: int

    @property
    def order(self) -> tuple[int, int]:
        return self.job.record.value.initialization_ms, self.job.record.value.job_id

    def json(self, now_ms: int) -> str:
        return (
            f'{self.text}"{max(0, now_ms - self.confirmed_ms) // 1000}"}}'
            if self.confirmed_ms
            else f'{self.text}""}}'
        )


class RunningJobsCache:
    """Running jobs, newest first. Not thread-safe."""

    def __init__(self, cache: ClusterCache) -> None:
        self.cache = cache
        self.refresh_queue = RefreshQueue(cache, self._refresh)
        self._entries: dict[int, CachedFragment] = {}
        self._order: list[CachedFragment] | None = []
        self._all: tuple[list[CachedFragment], int, bytes] | None = None

    def entries(self) -> list[CachedFragment]:
        """Return all running jobs, up to date with the cluster cache."""
        self.refresh_queue.refresh_all()
        if self._order is None:
            self._order = sorted(
                self._entries.values(), key=lambda entry: entry.order, reverse=True
            )
        return self._order

    def all_json(self, now_ms: int) -> bytes:
        """Return all running jobs as a JSON list. Simultaneous callers get the same bytes."""
        entries, slot = self.entries(), now_ms // LIST_REUSED_MS
        if self._all is None or self._all[0] is not entries or self._all[1] != slot:
            self._all = (
                entries,
                slot,
                f"[{','.join([entry.json(now_ms) for entry in entries])}]".encode(),
            )
        return self._all[2]

    def entry(self, job_id: int) -> CachedFragment | None:
        """Return a job that has a running record, even if the record is a leftover."""
        record = self.cache.jobs().get(job_id)
        job = running_job_of(self.cache, record) if record is not None else None
        return _entry(self.cache, job, self._entries.get(job_id)) if job is not None else None

    def _refresh(self, job_id: int) -> None:
        known, fresh = self._entries.get(job_id), self.entry(job_id)
        if fresh is not None and fresh.job.state.status.terminal:
            fresh = None
        if fresh is known:
            return
        self._order = None
        if fresh is None:
            self._entries.pop(job_id, None)
        else:
            self._entries[job_id] = fresh


def _entry(cache: ClusterCache, job: RunningJob, known: CachedFragment | None) -> CachedFragment:
    """Return the cached text of a job, rebuilt if anything that it shows has changed."""
    job_id = job.state.job_id
    pipelines, metrics = cache.pipelines(job_id), cache.metrics(job_id)
    counts = tuple(
        (
            m.value.generation,
            m.value.rows_read,
            m.value.rows_written,
            m.value.log_retention,
            m.value.rates,
        )
        for m in metrics
    )
    key = (job.record.version, job.version, tuple(p.version for p in pipelines), counts)
    if known is not None and known.key == key:
        return known
    same = known is not None and known.job.record.version == job.record.version
    identity = (
        known.identity
        if known is not None and same
        else dumps(serializers.identity(job.record.value))[:-1]
    )
    states = [p.value for p in pipelines]
    last = serializers.lagging(states)
    progress = dumps(
        serializers.progress(job.state, job.record.value.plan, states, [m.value for m in metrics])
    )[1:-1]
    text = f'{identity},{progress},"secondsSinceLastCheckpoint":'
    return CachedFragment(
        job=job,
        identity=identity,
        key=key,
        text=text,
        confirmed_ms=serializers.confirmed_ms(last) if last else 0,
    )


class FinishedJobsCache:
    """JSON texts of jobs that have ended. Not thread-safe."""

    def __init__(self) -> None:
        self._texts: dict[int, tuple[int, str]] = {}
        self._prune_above = STALE_TEXTS_MAX

    def json(self, outcome: CachedEntry[JobOutcome]) -> str:
        job_id = int(outcome.peek("job_id"))
        version, text = self._texts.get(job_id, (0, ""))
        if version != outcome.version:
            text = dumps(_finished(outcome, job_id))
            self._texts[job_id] = outcome.version, text
        return text

    def prune(self, cache: ClusterCache) -> None:
        """Drop the texts of deleted jobs once there are enough of them."""
        if len(self._texts) <= self._prune_above:
            return
        outcomes = cache.outcomes()
        self._texts = {job_id: known for job_id, known in self._texts.items() if job_id in outcomes}
        self._prune_above = len(self._texts) + STALE_TEXTS_MAX


def running_jobs(cache: ClusterCache) -> list[RunningJob]:
    """Return the jobs that have not ended.

    A record whose state is terminal or missing is a leftover, not a running job.
    """
    return [
        job
        for record in cache.jobs().values()
        if (job := running_job_of(cache, record)) and not job.state.status.terminal
    ]


def running_job_of(cache: ClusterCache, record: CachedEntry[JobRecord]) -> RunningJob | None:
    """Return a job with its state; None if it has no state."""
    job_id = record.value.job_id
    stored, state = cache.state(job_id), cache.displayed_state(job_id)
    if stored is None or state is None:
        return None
    health = cache.displayed_health(job_id)  # differs from the stored one during an outage
    return RunningJob(record, state, (stored.version, health) if health else stored.version)


def _finished(outcome: CachedEntry[JobOutcome], job_id: int) -> dict[str, Any]:
    # One damaged record must not hide the others.
    try:
        return serializers.finished(outcome.value)
    except Exception as error:
        why = str(error) if isinstance(error, TidegateError) else type(error).__name__
        shown = {
            "jobId": str(job_id),
            "jobName": str(outcome.peek("name")),
            "jobStatus": str(outcome.peek("status")),
        }
        return shown | {"errorMsg": f"its record cannot be read: {why}"}
