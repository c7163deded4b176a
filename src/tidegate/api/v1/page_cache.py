"""The JSON text of each job in a list, kept until something of it changes: most pages show what the
page before has shown.

Called by jobs, on the event loop only. A job is its text up to the seconds since its last
checkpoint, which are put in for every answer. A sign of life that counts no new rows makes nothing
again.
"""

import hashlib
import json
import logging
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from tidegate.api.job_index import JobRow
from tidegate.api.running_jobs import RunningJob
from tidegate.api.seatunnel import serializers as v2
from tidegate.api.v1 import serializers as shapes
from tidegate.coordinator.cluster_cache import ClusterCache

LOG = logging.getLogger("tidegate.api")
AGE = "seconds_since_checkpoint"
JOBS_MAX = 4_096  # more than that: begin anew


@dataclass(frozen=True, slots=True)
class CachedJob:
    """A job as text without its end, and what it was made from."""

    key: Hashable
    text: str
    confirmed_ms: int

    def json(self, now_ms: int) -> str:
        age = max(0, now_ms - self.confirmed_ms) / 1000 if self.confirmed_ms else "null"
        return f'{self.text},"{AGE}":{age}}}'


class PageCache:
    """The texts. Not for threads."""

    def __init__(self, cache: ClusterCache) -> None:
        self.cache = cache
        self._jobs: dict[int, CachedJob] = {}

    def keys(self, rows: Sequence[JobRow]) -> list[Hashable]:
        """What the jobs of a page are made from."""
        return [_key(self.cache, row) for row in rows]

    def page(
        self,
        rows: Sequence[JobRow],
        keys: Sequence[Hashable],
        following: str | None,
        total: int,
        now_ms: int,
    ) -> str:
        """A page of jobs, as its model has it."""
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
        """None where the record cannot be read: the others must be shown."""
        known = self._jobs.get(row.job_id)
        if known is not None and known.key == key:
            return known
        try:
            made = _render(self.cache, row, key)
        except Exception as error:
            LOG.error("a job cannot be shown", extra={"job_id": row.job_id, "why": str(error)})
            return None
        self._jobs[row.job_id] = made
        return made


def tag_of(keys: Sequence[Hashable], following: str | None, total: int) -> str:
    """The mark of a page: the same on every server as long as nothing of its jobs has changed."""
    return f'W/"{hashlib.blake2b(repr((keys, following, total)).encode(), digest_size=12).hexdigest()}"'


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
    places = tuple(p.version for p in cache.pipelines(row.job_id))
    return (
        row.job_id,
        row.job.record.version,
        row.job.version,
        assignment.version if assignment else 0,
        places,
        counts,
    )


def _render(cache: ClusterCache, row: JobRow, key: Hashable) -> CachedJob:
    if not isinstance(row.job, RunningJob):
        return CachedJob(key, shapes.ended(row.job.value).model_dump_json(exclude={AGE})[:-1], 0)
    last = v2.lagging([p.value for p in cache.pipelines(row.job_id)])
    text = shapes.running(cache, row.job, 0).model_dump_json(exclude={AGE})[:-1]
    return CachedJob(key, text, v2.confirmed_ms(last) if last else 0)
