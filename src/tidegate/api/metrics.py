"""Metrics for scrapers, in the text formats of Prometheus and OpenMetrics. Runs on the event loop.

While the store cannot be reached, the metrics of jobs are left out rather than outdated: alert on
`tidegate_store_reachable == 0`.
"""

import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool

from tidegate import __version__
from tidegate.api.context import ApiContext
from tidegate.api.job_metrics import JobMetricsCache, Labels, label_text, number_text
from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.coordinator.collector import last_report
from tidegate.model.errors import TidegateError
from tidegate.model.maintenance import CollectorReport
from tidegate.store.base import MapSize

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPEN_CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
SAMPLE_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One metric family: samples with their labels."""

    name: str
    kind: str
    help: str
    samples: Iterable[tuple[Labels, float]]

    def lines(self) -> Iterator[str]:
        """Format the family; no lines if it has no samples."""
        first = True
        for labels, value in self.samples:
            if first:
                yield f"# HELP {self.name} {self.help}"
                yield f"# TYPE {self.name} {self.kind}"
                first = False
            inside = label_text(labels)
            yield (
                f"{self.name}{{{inside}}} {number_text(value)}"
                if inside
                else f"{self.name} {number_text(value)}"
            )


def gauge(name: str, help: str, value: float) -> MetricFamily:
    return MetricFamily(name, "gauge", help, [((), value)])


@dataclass(frozen=True, slots=True)
class StoreSample:
    """What was read from the store, and when."""

    at_s: float = float("-inf")
    sizes: Mapping[str, MapSize] | None = None
    report: CollectorReport | None = None


class MetricsRenderer:
    """Render all metrics of a server.

    The sizes of the store's maps are kept for a while: counting them reads the whole store.
    """

    def __init__(self, context: ApiContext) -> None:
        self.context = context
        self.jobs = JobMetricsCache(context.cache)
        self._sample = StoreSample()
        self._sample_lock = threading.Lock()

    async def catch_up(self) -> None:
        """Refresh outdated data in small steps, so that rendering takes little time."""
        if self._stale():
            await run_in_threadpool(self._refresh)
        await self.jobs.refresh_queue.refresh_in_slices()

    def _stale(self) -> bool:
        """Return whether the store must be read again."""
        return (
            self.context.out_of_date() is None
            and self.context.clock.monotonic_s() - self._sample.at_s > SAMPLE_EVERY_S
        )

    def _refresh(self) -> None:
        """Read the sizes of the store's maps and the last collector report.

        Concurrent callers share one read. If it fails, these metrics are left out.
        """
        with self._sample_lock:
            if not self._stale():
                return
            now_s = self.context.clock.monotonic_s()
            try:
                self._sample = StoreSample(
                    now_s, self.context.store.size_by_map(), last_report(self.context.store)
                )
            except TidegateError:
                self._sample = StoreSample()

    def text(self) -> str:
        cache = self.context.cache if self.context.out_of_date() is None else None
        families = [*self._server_families(cache), *(self._store_families() if cache else ())]
        jobs = self.jobs.text(self.context.clock.now_ms()) if cache else ""
        return "".join(f"{line}\n" for family in families for line in family.lines()) + jobs

    def open_text(self) -> str:
        """Return the metrics in the text format of OpenMetrics.

        There, a counter's family is named without `_total`, and the end is marked.
        """
        return re.sub(r"(?m)^(# (?:HELP|TYPE) \S+?)_total ", r"\1 ", self.text()) + "# EOF\n"

    def _server_families(self, cache: ClusterCache | None) -> Iterator[MetricFamily]:
        yield MetricFamily(
            "tidegate_info",
            "gauge",
            "The version of this server.",
            [((("version", __version__),), 1)],
        )
        yield gauge(
            "tidegate_store_reachable",
            "1 if this server can read and write the store.",
            not self.context.store_problem(),
        )
        yield gauge(
            "tidegate_store_damaged_documents",
            "Damaged documents of the store, which are ignored.",
            self.context.cache.damaged(),
        )
        if cache is None:
            return
        lease = cache.lease()
        yield gauge(
            "tidegate_leader",
            "1 on the server that leads.",
            lease is not None and lease.value.holder == self.context.me.id,
        )
        yield MetricFamily(
            "tidegate_leader_term",
            "gauge",
            "How often the leader has changed.",
            [((), lease.value.term)] if lease else [],
        )
        yield gauge("node_count", "Workers.", len(cache.workers()))
        yield MetricFamily(
            "tidegate_worker_slots",
            "gauge",
            "Slots of each worker.",
            [((("worker", key),), w.value.slots) for key, w in cache.workers().items()],
        )
        yield self._job_counts()
        yield from self._cleanup_families(cache)

    def _cleanup_families(self, cache: ClusterCache) -> Iterator[MetricFamily]:
        """The queue of ended jobs whose state is to be deleted."""
        records, now_ms = (
            [seen.value for seen in cache.cleanups().values()],
            self.context.clock.now_ms(),
        )
        late_ms = [now_ms - record.due_ms for record in records if record.due_ms <= now_ms]
        yield gauge(
            "tidegate_cleanup_pending", "Ended jobs whose state waits to be deleted.", len(records)
        )
        yield gauge("tidegate_cleanup_due", "Those of them that are due.", len(late_ms))
        yield gauge(
            "tidegate_cleanup_late_seconds",
            "How long the oldest of these has been due.",
            max(late_ms, default=0) / 1000,
        )
        yield gauge(
            "tidegate_cleanup_failing",
            "Those of them that could not be deleted yet.",
            sum(record.attempts > 0 for record in records),
        )

    def _job_counts(self) -> MetricFamily:
        """`job_count` with SeaTunnel's types, and `pending`."""
        names = {"canceling": "cancelling", "recovering": "pending", "initializing": "created"}
        counts = dict.fromkeys(
            (
                "canceled",
                "cancelling",
                "created",
                "pending",
                "failed",
                "failing",
                "finished",
                "running",
                "scheduled",
            ),
            0,
        )
        index = self.context.job_index
        for status, count in [
            *((row.status, 1) for row in index.rows(ended=False)),
            *index.ended_counts().items(),
        ]:
            name = names.get(status.lower(), status.lower())
            counts[name] = counts.get(name, 0) + count
        return MetricFamily(
            "job_count",
            "gauge",
            "Jobs by state.",
            [((("type", name),), count) for name, count in counts.items()],
        )

    def _store_families(self) -> Iterator[MetricFamily]:
        sizes = self._sample.sizes or {}
        yield MetricFamily(
            "tidegate_store_entries",
            "gauge",
            "Documents of each map of the store.",
            [((("map", m),), s.entries) for m, s in sizes.items()],
        )
        yield MetricFamily(
            "tidegate_store_bytes",
            "gauge",
            "Bytes of each map of the store.",
            [((("map", m),), s.bytes) for m, s in sizes.items()],
        )
        if self._sample.report is not None:
            yield from _collector_families(self._sample.report, self.context.clock.now_ms())


def _collector_families(report: CollectorReport, now_ms: int) -> Iterator[MetricFamily]:
    """The last pass of the collector over the checkpoint storage."""
    kinds = [((("kind", kind),), float(size)) for kind, size in report.bytes.items()]
    units = [((("kind", kind),), float(count)) for kind, count in report.units.items()]
    yield gauge(
        "tidegate_collector_pass_age_seconds",
        "Since the last pass over the checkpoint storage.",
        max(0, now_ms - report.at_ms) / 1000,
    )
    yield gauge(
        "tidegate_collector_pass_duration_seconds", "How long it took.", report.took_ms / 1000
    )
    yield MetricFamily(
        "tidegate_checkpoint_storage_bytes", "gauge", "Bytes it has found there, by kind.", kinds
    )
    yield MetricFamily(
        "tidegate_checkpoint_storage_units",
        "gauge",
        "Units it has found there (directories or files that belong together), by kind.",
        units,
    )
    yield gauge("tidegate_collector_due", "Units that were due to be moved or deleted.", report.due)
    yield gauge("tidegate_collector_moved", "Units moved into quarantine.", report.moved)
    yield gauge("tidegate_collector_deleted", "Units deleted.", report.deleted)
    yield gauge(
        "tidegate_collector_failures", "Units that could not be moved or deleted.", report.failures
    )
    if report.quota_bytes:
        yield gauge(
            "tidegate_checkpoint_storage_quota_bytes", "The configured quota.", report.quota_bytes
        )
