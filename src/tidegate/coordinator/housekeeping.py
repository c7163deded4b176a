"""Housekeeping by the leader, a little in each cycle: cleanups, history, stray keys.

Called by the server. A job that cannot be cleaned up is named in its record and retried later; it
never blocks the others. Due times are kept in memory as records come and go: a cycle in which
nothing is due reads nothing from the store, and checks none of the ended jobs.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.clock import Clock
from tidegate.coordinator.cleanup import carry_out_cleanup
from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.coordinator.external_resources import drop_unneeded
from tidegate.coordinator.history_expiry import expire
from tidegate.coordinator.recheck import DueQueue
from tidegate.coordinator.server_heartbeat import remove_silent_servers
from tidegate.election.elector import Leader
from tidegate.model.document import from_document, to_document
from tidegate.model.engine import EngineSettings
from tidegate.model.records import (
    ASSIGNMENTS,
    CHECKPOINT_HISTORY,
    DRIVERS,
    JOB_OUTCOMES,
    JOB_STATES,
    METRICS,
    PENDING_CLEANUPS,
    PIPELINES,
    RUNNING_JOBS,
    SAVEPOINTS,
    CleanupRecord,
)
from tidegate.store.base import Check, Delete, OutcomeUnknown, Put, Store
from tidegate.store.errors import Conflict, StoreUnavailable

LOG = logging.getLogger("tidegate.coordinator")
EACH_TURN_MAX = 50  # jobs that one turn tidies, so that a leader with a long list still leads
RETRY_MS = 10_000
RETRIES_DOUBLED_MAX = 6
STRAYS_EVERY_S = 30.0
JOB_MAPS = (ASSIGNMENTS, DRIVERS, METRICS, PIPELINES, CHECKPOINT_HISTORY, SAVEPOINTS)


class Housekeeper:
    """Cleans up after the jobs of one installation."""

    def __init__(
        self,
        cache: ClusterCache,
        storage: CheckpointStorage,
        settings: EngineSettings,
        clock: Clock,
    ) -> None:
        self.cache = cache
        self.storage = storage
        self.settings = settings
        self.clock = clock
        self.store: Store = cache.store
        self.changed = cache.listen_for_news()
        self.cleanups = DueQueue()
        self.ends = DueQueue()
        self._note(cache.of_jobs(PENDING_CLEANUPS) | cache.of_jobs(JOB_OUTCOMES))
        self._strays_s = clock.monotonic_s()
        self._suspects: set[tuple[str, int]] = set()

    def step(self, leading: Leader) -> None:
        """Run one cycle; a leader that is not trusted any more does nothing."""
        if not leading.trusted():
            return
        self._note(self.changed.take())
        now_ms = self.clock.now_ms()
        due = self.cleanups.until(now_ms)
        for job_id in due[:EACH_TURN_MAX]:
            self._guarded(job_id, partial(self._clean, job_id, leading.check()))
        self._guarded(
            0,
            lambda: remove_silent_servers(
                self.cache, leading, self.settings.coordinator.lease_ms, self.clock
            ),
        )
        expired_ms = now_ms - self.settings.history_expire_minutes * 60_000
        old = [job for job in self.ends.until(expired_ms) if job not in self.cache.cleanups()]
        for job_id in old[:EACH_TURN_MAX]:
            self._guarded(job_id, partial(self._expire, job_id, expired_ms, leading.check()))
        strays = self.clock.monotonic_s() - self._strays_s >= STRAYS_EVERY_S
        if due or strays:
            self._guarded(0, lambda: self._drop(now_ms, leading.check()))
        if strays:
            self._strays_s = self.clock.monotonic_s()
            self._remove_strays(leading)

    def _note(self, jobs: set[int]) -> None:
        """Update when the cleanup of these jobs is due, and when they ended."""
        cleanups, outcomes = self.cache.cleanups(), self.cache.outcomes()
        for job_id in jobs:
            cleanup, outcome = cleanups.get(job_id), outcomes.get(job_id)
            self.cleanups.put(job_id, cleanup.value.due_ms if cleanup else None)
            self.ends.put(job_id, outcome.peek("finished_ms") if outcome else None)

    def _guarded(self, job_id: int, act: Callable[[], None]) -> None:
        try:
            act()
        except (Conflict, StoreUnavailable, OutcomeUnknown):
            raise
        except Exception as error:  # one job must not block the others
            LOG.exception("housekeeping_failed", extra={"job_id": job_id, "why": str(error)})

    def _clean(self, job_id: int, lease: Check) -> None:
        try:
            carry_out_cleanup(self.store, self.storage, job_id, checks=[lease])
            LOG.info("job_cleaned_up", extra={"job_id": job_id})
        except OSError as error:
            self._postpone(job_id, error, lease)

    def _drop(self, now_ms: int, lease: Check) -> None:
        """Drop external resources that no job needs any more.

        A failure is recorded in the resource's own record, and retried.
        """
        drop_unneeded(self.store, now_ms, [lease], among=self._ownerless(now_ms))

    def _ownerless(self, now_ms: int) -> list[str]:
        """Return the keys of due resources that belong to no running job.

        These are few among thousands of resources of running jobs.
        """
        jobs = self.cache.jobs()
        return [
            thing.key
            for thing in self.cache.resources().values()
            if thing.peek("due_ms") <= now_ms
            and (
                (job := jobs.get(thing.peek("job_id"))) is None
                or job.value.initialization_ms != thing.peek("initialization_ms")
            )
        ]

    def _postpone(self, job_id: int, error: OSError, lease: Check) -> None:
        """Record why the cleanup failed, and when it is retried."""
        entry = self.store.get(PENDING_CLEANUPS, str(job_id))
        if entry is None:
            return
        record = from_document(CleanupRecord, entry.value, f"cleanup of job {job_id}")
        wait_ms = RETRY_MS * 2 ** min(record.attempts, RETRIES_DOUBLED_MAX)
        later = replace(
            record,
            attempts=record.attempts + 1,
            error=str(error),
            due_ms=self.clock.now_ms() + wait_ms,
        )
        self.store.transact(
            [lease, Check(PENDING_CLEANUPS, entry.key, entry.version)],
            [Put(PENDING_CLEANUPS, entry.key, to_document(later))],
        )
        LOG.warning(
            "cleanup_postponed",
            extra={"job_id": job_id, "why": str(error), "attempts": later.attempts},
        )

    def _expire(self, job_id: int, before_ms: int, lease: Check) -> None:
        if expire(self.store, job_id, before_ms, self.clock.now_ms(), [lease]):
            LOG.info("history_expired", extra={"job_id": job_id})

    def _remove_strays(self, leading: Leader) -> None:
        """Remove keys of jobs that do not exist: writes of a driver that was out of reach.

        They are removed when seen a second time.
        """
        known = (
            self.cache.of_jobs(RUNNING_JOBS)
            | self.cache.of_jobs(JOB_STATES)
            | self.cache.of_jobs(PENDING_CLEANUPS)
        )
        found = {(map, job) for map in JOB_MAPS for job in self.cache.of_jobs(map) - known}
        for map, job in sorted(found & self._suspects)[:EACH_TURN_MAX]:
            self._guarded(job, partial(self._remove_stray, map, job, leading.check()))
        self._suspects = found

    def _remove_stray(self, map: str, job_id: int, lease: Check) -> None:
        key = str(job_id)
        entries = [
            e for e in (self.store.get(map, key), *self.store.list(map, f"{key}/")) if e is not None
        ]
        checks = [
            lease,
            Check(RUNNING_JOBS, key, 0),
            Check(JOB_STATES, key, 0),
            Check(PENDING_CLEANUPS, key, 0),
        ]
        self.store.transact(checks, [Delete(map, entry.key) for entry in entries[:90]])
        LOG.warning("stray_keys_removed", extra={"job_id": job_id, "map": map})
