"""The JSON text of each job, kept until its records change: listing thousands of jobs must not make
thousands of documents.

Called by reads, on the event loop only. The board is told by the picture which jobs have changed
and looks at those alone. A running job is three pieces of text: what never changes (by the version
of its record), what changes with its state, pipelines and row counts, and the age of its last
checkpoint, which is made for every answer. A sign of life that counts no new rows makes nothing
again.
"""

import json
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from tidegate.api.refresh_queue import RefreshQueue
from tidegate.api.seatunnel import serializers as shapes
from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.model.errors import TidegateError
from tidegate.model.records import JobOutcome, JobRecord, JobState
from tidegate.store.follow import CachedEntry

# the list of all jobs is made once in so long, and sooner where a job has changed: ages in it are
# late by so much at most
LIST_REUSED_MS = 200
STALE_TEXTS_MAX = 256  # texts of forgotten jobs that may lie around before they are thrown away
dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job among the running ones, and its state with its version."""

    record: CachedEntry[JobRecord]
    state: JobState
    version: Hashable  # of what is shown of the state


@dataclass(frozen=True, kw_only=True, slots=True)
class CachedFragment:
    """The text of a running job up to the age of its last checkpoint, and what it was made from."""

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
    """The jobs that have not ended, the newest first. Not for threads."""

    def __init__(self, cache: ClusterCache) -> None:
        self.cache, self.refresh_queue = cache, RefreshQueue(cache, self._refresh)
        self._entries: dict[int, CachedFragment] = {}
        self._order: list[CachedFragment] | None = []
        self._all: tuple[list[CachedFragment], int, bytes] | None = None

    def entries(self) -> list[CachedFragment]:
        """All of them, as the picture has them now."""
        self.refresh_queue.refresh_all()
        if self._order is None:
            self._order = sorted(
                self._entries.values(), key=lambda entry: entry.order, reverse=True
            )
        return self._order

    def all_json(self, now_ms: int) -> bytes:
        """All of them as one JSON list: many who ask at the same time are given the same bytes."""
        entries, slot = self.entries(), now_ms // LIST_REUSED_MS
        if self._all is None or self._all[0] is not entries or self._all[1] != slot:
            self._all = (
                entries,
                slot,
                f"[{','.join([entry.json(now_ms) for entry in entries])}]".encode(),
            )
        return self._all[2]

    def entry(self, job_id: int) -> CachedFragment | None:
        """One job with a record among the running ones, even if that is a leftover."""
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
    """The entry of a job: the known one where nothing that it shows has changed."""
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
        else dumps(shapes.identity(job.record.value))[:-1]
    )
    places = [p.value for p in pipelines]
    last = shapes.lagging(places)
    progress = dumps(
        shapes.progress(job.state, job.record.value.plan, places, [m.value for m in metrics])
    )[1:-1]
    text = f'{identity},{progress},"secondsSinceLastCheckpoint":'
    return CachedFragment(
        job=job,
        identity=identity,
        key=key,
        text=text,
        confirmed_ms=shapes.confirmed_ms(last) if last else 0,
    )


class FinishedJobsCache:
    """The texts of jobs that have ended. Not for threads."""

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
        """Throw away what belongs to jobs that are gone, now and then."""
        if len(self._texts) <= self._prune_above:
            return
        outcomes = cache.outcomes()
        self._texts = {job_id: known for job_id, known in self._texts.items() if job_id in outcomes}
        self._prune_above = len(self._texts) + STALE_TEXTS_MAX


def running_jobs(cache: ClusterCache) -> list[RunningJob]:
    """Jobs that have not ended.

    A record whose state is terminal or missing is a leftover, and no running job.
    """
    return [
        job
        for record in cache.jobs().values()
        if (job := running_job_of(cache, record)) and not job.state.status.terminal
    ]


def running_job_of(cache: ClusterCache, record: CachedEntry[JobRecord]) -> RunningJob | None:
    """A job with its state; None where it has none."""
    job_id = record.value.job_id
    seen, state, instead = (
        cache.state(job_id),
        cache.shown_state(job_id),
        cache.shown_health(job_id),
    )
    return (
        RunningJob(record, state, (seen.version, instead) if instead else seen.version)
        if seen is not None and state is not None
        else None
    )


def _finished(outcome: CachedEntry[JobOutcome], job_id: int) -> dict[str, Any]:
    """Whatever is wrong with one record, the others must be shown."""
    try:
        return shapes.finished(outcome.value)
    except Exception as error:
        why = str(error) if isinstance(error, TidegateError) else type(error).__name__
        shown = {
            "jobId": str(job_id),
            "jobName": str(outcome.peek("name")),
            "jobStatus": str(outcome.peek("status")),
        }
        return shown | {"errorMsg": f"its record cannot be read: {why}"}
