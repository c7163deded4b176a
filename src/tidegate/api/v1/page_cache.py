"""Cached JSON text of each listed job, rebuilt only when the job changes.

Used on the event loop only. The text of a job ends before the seconds since its last checkpoint,
which are added for every response. A heartbeat without new row counts does not rebuild anything.
"""

import hashlib
import json
import logging
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from tidegate.api.job_index import JobRow
from tidegate.api.running_jobs import RunningJob
from tidegate.api.seatunnel import serializers as v2
from tidegate.api.v1 import serializers
from tidegate.coordinator.cluster_cache import ClusterCache

LOG = logging.getLogger("tidegate.api")
AGE = "seconds_since_checkpoint"
JOBS_MAX = 4_096  # with more, the cache is emptied


@dataclass(frozen=True, slots=True)
class CachedJob:
    """The text of a job without its end, and the versions it was rendered from."""

    key: Hashable
    text: str
    confirmed_ms: int

    def json(self, now_ms: int) -> str:
        age = max(0, now_ms - self.confirmed_ms) / 1000 if self.confirmed_ms else "null"
        return f'{self.text},"{AGE}":{age}}}'


class PageCache:
    """Cached texts of listed jobs. Not thread-safe."""

    def __init__(self, cache: ClusterCache) -> None:
        self.cache = cache
        self._jobs: dict[int, CachedJob] = {}

    def keys(self, rows: Sequence[JobRow]) -> list[Hashable]:
        """Return the versions of everything that the jobs of a page show."""
        return [_key(self.cache, row) for row in rows]

    def page(
        self,
        rows: Sequence[JobRow],
        keys: Sequence[Hashable],
        following: str | None,
        total: int,
        now_ms: int,
    ) -> str:
        """Return the JSON of a models.JobPage."""
        if len(self._jobs) > JOBS_MAX:
            self._jobs = {}
        shown = ",".join(
            [
                card.json(now_ms)
                for row, key in zip(rows, keys, strict=True)
                if (card := self._cached(row, key)) is not None
            ]
        )
        return f'{{"jobs":[{shown}],"next":{json.dumps(following)},"total":{total}}}'

    def _cached(self, row: JobRow, key: Hashable) -> CachedJob | None:
        # None if the record cannot be read: one damaged record must not hide the others.
        known = self._jobs.get(row.job_id)
        if known is not None and known.key == key:
            return known
        try:
            made = _render(self.cache, row, key)
        except Exception as error:
            LOG.error("job_unreadable", extra={"job_id": row.job_id, "why": str(error)})
            return None
        self._jobs[row.job_id] = made
        return made


def tag_of(keys: Sequence[Hashable], following: str | None, total: int) -> str:
    """Return the ETag of a page: equal on all servers until one of its jobs changes."""
    content = repr((keys, following, total)).encode()
    return f'W/"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'


def _key(cache: ClusterCache, row: JobRow) -> Hashable:
    if not isinstance(row.job, RunningJob):
        return row.job_id, row.job.version
    assignment = cache.assignment(row.job_id)
    counts = tuple(
        (
            m.value.generation,
            m.value.rows_read,
            m.value.rows_written,
            m.value.log_retention,
            m.value.rates,
        )
        for m in cache.metrics(row.job_id)
    )
    pipelines = tuple(p.version for p in cache.pipelines(row.job_id))
    return (
        row.job_id,
        row.job.record.version,
        row.job.version,
        assignment.version if assignment else 0,
        pipelines,
        counts,
    )


def _render(cache: ClusterCache, row: JobRow, key: Hashable) -> CachedJob:
    if not isinstance(row.job, RunningJob):
        return CachedJob(
            key, serializers.ended(row.job.value).model_dump_json(exclude={AGE})[:-1], 0
        )
    last = v2.lagging([p.value for p in cache.pipelines(row.job_id)])
    text = serializers.running(cache, row.job, 0).model_dump_json(exclude={AGE})[:-1]
    return CachedJob(key, text, v2.confirmed_ms(last) if last else 0)
