"""Garbage collection by the leader or a user: facts, rules and report of a pass.

Called periodically by the server in a thread of its own, as a namespace may be large or far away;
and by `tidegate state`.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tidegate.checkpoints.files.base import Files
from tidegate.checkpoints.files.errors import StorageRefused
from tidegate.checkpoints.gc.classify import MINUTE_MS, Facts, JobFacts, Policy
from tidegate.checkpoints.gc.collector import Collector, CollectorSettings, Report
from tidegate.checkpoints.gc.usage import Quota
from tidegate.clock import Clock
from tidegate.coordinator.namespace_owner import OtherNamespace, claim_namespace
from tidegate.coordinator.restore.claimed_paths import claimed_paths
from tidegate.election.elector import Leader
from tidegate.failpoint import failpoint
from tidegate.model.document import from_document, to_document
from tidegate.model.engine import CheckpointSettings, EngineSettings
from tidegate.model.maintenance import (
    COLLECTOR,
    EXPIRED_JOBS,
    LAST_PASS_KEY,
    CollectorReport,
    ExpiredJob,
)
from tidegate.model.records import (
    JOB_STATES,
    PENDING_CLEANUPS,
    PIPELINES,
    RUNNING_JOBS,
    JobState,
    PipelineState,
)
from tidegate.store.base import Check, Delete, Entry, Put, Store

LOG = logging.getLogger("tidegate.coordinator")
GRACE_MS = 60 * MINUTE_MS
PASS_EVERY_MS = 15 * MINUTE_MS
TRY_EVERY_S = 60.0  # after a pass that could not be made


class StoreFacts:
    """Facts from the store about jobs.

    A job is known from its first record to its last. While it has not ended, or is being cleaned
    up, everything that belongs to it is live.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    def everything(self) -> Facts:
        pipelines, states, jobs, cleanups = (
            self.store.list(map) for map in (PIPELINES, JOB_STATES, RUNNING_JOBS, PENDING_CLEANUPS)
        )
        expired = [
            from_document(ExpiredJob, e.value, f"expired job {e.key}")
            for e in self.store.list(EXPIRED_JOBS)
        ]
        return Facts(
            jobs=job_facts(pipelines, states, [*jobs, *cleanups]),
            claimed=frozenset(claimed_paths(self.store)),
            expired={each.job_id: each.expired_ms for each in expired},
        )

    def of_job(self, job_id: int | None) -> Facts:
        """Return the facts of one job, and of all restores."""
        claimed = frozenset(claimed_paths(self.store))
        if job_id is None:
            return Facts(claimed=claimed)
        key = str(job_id)
        state, job, cleanup = (
            self.store.get(map, key) for map in (JOB_STATES, RUNNING_JOBS, PENDING_CLEANUPS)
        )
        pipelines = self.store.list(PIPELINES, f"{key}/")
        return Facts(
            jobs=job_facts(pipelines, [state] if state else [], [e for e in (job, cleanup) if e]),
            claimed=claimed,
        )


def job_facts(
    pipelines: Iterable[Entry], states: Iterable[Entry], busy: Iterable[Entry]
) -> dict[int, JobFacts]:
    """Return by job whether it is in use, and which checkpoints its records name.

    `busy` are records that exist only while a job is in use.
    """
    named: dict[int, set[str]] = {}
    running: dict[int, bool] = {}
    for entry in pipelines:
        state = from_document(PipelineState, entry.value, f"pipeline {entry.key}")
        named.setdefault(state.job_id, set()).update(ref.path for ref in state.retained)
    for entry in states:
        running[int(entry.key)] = not from_document(
            JobState, entry.value, f"state of job {entry.key}"
        ).status.terminal
    running |= {int(entry.key): True for entry in busy}
    return {
        job: JobFacts(running=running.get(job, False), named=frozenset(named.get(job, ())))
        for job in named.keys() | running.keys()
    }


def rules_of(
    settings: CheckpointSettings, now_ms: int, *, older_than_ms: int | None = None
) -> CollectorSettings:
    """Build the rules of a pass from the settings.

    `older_than_ms` is a user's own limit for the age of an orphan, and overrides the settings.
    """
    ttl_ms = settings.orphan_ttl_minutes * MINUTE_MS or None
    policy = Policy(now_ms=now_ms, grace_ms=GRACE_MS, ttl_ms=ttl_ms)
    if older_than_ms is not None:
        policy = Policy(now_ms=now_ms, grace_ms=older_than_ms, ttl_ms=older_than_ms)
    return CollectorSettings(
        policy=policy,
        delay_ms=settings.quarantine_minutes * MINUTE_MS,
        orphans_ms=ttl_ms or settings.quarantine_minutes * MINUTE_MS,
        quota=Quota(
            bytes=settings.quota_mb * 1_000_000, warning_percent=settings.quota_warning_percent
        ),
    )


def report_of(report: Report, rules: CollectorSettings, took_ms: int) -> CollectorReport:
    """Convert the report of a pass to the record that is stored."""
    warning = rules.quota.warning(report.usage.total.bytes)
    return CollectorReport(
        at_ms=rules.policy.now_ms,
        took_ms=took_ms,
        whole=report.whole,
        bytes={kind.value: each.bytes for kind, each in report.usage.by_kind.items()},
        units={kind.value: each.units for kind, each in report.usage.by_kind.items()},
        due=report.usage.due.units,
        moved=report.moved,
        moved_bytes=report.moved_bytes,
        put_back=report.put_back,
        deleted=report.deleted,
        failures=report.failures,
        failed=tuple(report.failed),
        quota_bytes=rules.quota.bytes,
        warning=warning,
    )


def last_report(store: Store) -> CollectorReport | None:
    """Return the report of the last pass."""
    entry = store.get(COLLECTOR, LAST_PASS_KEY)
    return from_document(CollectorReport, entry.value, "the collector's report") if entry else None


def record(
    store: Store, report: CollectorReport, jobs: Iterable[int], checks: Sequence[Check] = ()
) -> None:
    """Store the report; after a complete pass, forget expired jobs without remaining files.

    Expired jobs that are known again are forgotten too.
    """
    here = set(jobs)
    gone = [
        e
        for e in store.list(EXPIRED_JOBS)
        if report.whole and (int(e.key) not in here or store.get(JOB_STATES, e.key) is not None)
    ]
    for entry in gone:
        store.transact(
            [*checks, Check(EXPIRED_JOBS, entry.key, entry.version)],
            [Delete(EXPIRED_JOBS, entry.key)],
        )
    failpoint("collector.report.before")
    store.transact(checks, [Put(COLLECTOR, LAST_PASS_KEY, to_document(report))])
    failpoint("collector.report.after")


class LeaderCollector:
    """Passes of the leader, at intervals since the last pass of any leader."""

    def __init__(
        self,
        store: Store,
        files: Files,
        settings: EngineSettings,
        clock: Clock,
        leadership: Callable[[], object],
    ) -> None:
        self.store = store
        self.files = files
        self.settings = settings
        self.clock = clock
        self.leadership = leadership
        self._warned = ""
        self._again_s = float("-inf")

    def step(self) -> None:
        """Run a pass if this server leads and one is due."""
        leading = self.leadership()
        if (
            not isinstance(leading, Leader)
            or not leading.trusted()
            or self.clock.monotonic_s() < self._again_s
        ):
            return
        self._again_s = self.clock.monotonic_s() + TRY_EVERY_S
        last = last_report(self.store)
        if last is not None and 0 <= self.clock.now_ms() - last.at_ms < PASS_EVERY_MS:
            return
        self.run(leading)

    def run(self, leading: Leader) -> CollectorReport:
        """Run one pass, and return its report."""
        rules = rules_of(self.settings.checkpoint, self.clock.now_ms())
        collector = Collector(self.files, StoreFacts(self.store), leading.trusted)
        began_s = self.clock.monotonic_s()
        try:
            claim_namespace(self.files, self.store)
            seen, refused = collector.collect(rules), ""
        except OtherNamespace as error:
            seen, refused = survey(collector, rules), str(error)
        except (OSError, StorageRefused) as error:  # the caller retries one that is out of reach
            seen, refused = (
                Report(),
                f"the namespace {self.files.describe()} cannot be read: {error}",
            )
        report = report_of(seen, rules, round((self.clock.monotonic_s() - began_s) * 1000))
        report = replace(report, warning="; ".join(filter(None, (refused, report.warning))))
        self._log(report)
        record(self.store, report, seen.usage.by_job, [leading.check()])
        return report

    def _log(self, report: CollectorReport) -> None:
        if report.moved or report.deleted or report.put_back:
            LOG.info(
                "state_collected",
                extra={
                    "moved": report.moved,
                    "deleted": report.deleted,
                    "put_back": report.put_back,
                },
            )
        for what in report.failed:
            LOG.warning("state_collection_failed", extra={"why": what})
        if report.warning and report.warning != self._warned:  # once while it is unchanged
            LOG.warning("state_storage_warning", extra={"why": report.warning})
        self._warned = report.warning


def survey(collector: Collector, rules: CollectorSettings) -> Report:
    """Return what a pass would find; nothing is moved."""
    report = Report(whole=True)
    for verdict in collector.survey(collector.apply_quota(rules)):
        report.usage.add(verdict)
    return report
