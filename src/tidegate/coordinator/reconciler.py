"""Reconciles every job: observe, decide, record.

Run by the leader alone, periodically; a cycle that fails is made up for by the next. It keeps only
timers on its own clock and the schedule of checks (recheck.py): another leader that starts with an
empty memory decides the same, only later. A job is checked when it changes and when its check is
due; all jobs when a leadership begins, when a worker comes or goes, and after a failed cycle.
"""

import logging
import socket
from collections.abc import Callable, Sequence

from tidegate.clock import Clock
from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.coordinator.job_executor import Move, run_sequentially
from tidegate.coordinator.job_snapshot import JobSnapshot
from tidegate.coordinator.recheck import (
    ACTIVE_EVERY_S,
    STABLE_EVERY_S_MAX,
    RecheckQueue,
    SlotUsage,
    StateTimers,
)
from tidegate.coordinator.savepoint_requests import request_of
from tidegate.coordinator.transitions import JobChangedMeanwhile, TransitionWriter
from tidegate.election import (
    WORKER_PREFIX,
    Alive,
    Leader,
    LeaseMonitor,
    Silent,
    Vacant,
    expire,
    forget,
    worker_lease,
)
from tidegate.election.lease_monitor import LeaderWrites
from tidegate.failpoint import failpoint
from tidegate.lifecycle import machine
from tidegate.lifecycle.decision import NoTransition, Transition
from tidegate.lifecycle.health import ProgressPolicy, explain, health_of, progress_marker
from tidegate.lifecycle.observation import (
    DriverSupervision,
    JobHealth,
    JobObservation,
    LifecycleLimits,
    Placement,
    Unplaceable,
)
from tidegate.lifecycle.placement import QueuedJob, WorkerOffer, place_jobs
from tidegate.lifecycle.recheck import is_stable, recheck_after_ms
from tidegate.model.engine import EngineSettings, ScheduleStrategy
from tidegate.model.log_retention import log_retention_status
from tidegate.model.records import (
    HEARTBEATS,
    LEASES,
    WORKERS,
    Assignment,
    CheckpointHealth,
    DriverRecord,
    JobRecord,
    JobState,
    JobStatus,
    PipelineMetrics,
    PipelineState,
    ProcessRef,
    WorkerRecord,
)
from tidegate.runner.process import blocked_reason, is_alive
from tidegate.store.base import Check, Delete, OutcomeUnknown
from tidegate.store.errors import Conflict, StoreUnavailable

LOG = logging.getLogger("tidegate.coordinator")
IsAlive = Callable[[ProcessRef], bool | None]
RunJobs = Callable[[Move, Sequence[int]], int]
WAITING = frozenset({JobStatus.CREATED, JobStatus.PENDING})


class Reconciler:
    """Moves every job one step towards its desired state."""

    def __init__(
        self,
        cache: ClusterCache,
        writer: TransitionWriter,
        settings: EngineSettings,
        clock: Clock,
        alive: IsAlive | None = None,
        run_jobs: RunJobs = run_sequentially,
    ) -> None:
        self.cache = cache
        self.writer = writer
        self.settings = settings
        self.clock = clock
        self.run_jobs = run_jobs
        self.alive = alive or alive_here
        # In a simulation no process is real.
        self.process_blocked = blocked_reason if alive is None else lambda _: ""
        self.touched = cache.listen()
        self.changed = cache.listen_for_news()
        self.timers = StateTimers()
        self.recheck = RecheckQueue()
        self.slot_usage = SlotUsage()
        self.limits = LifecycleLimits(
            start_ms=settings.coordinator.start_timeout_ms,
            stop_ms=settings.coordinator.stop_timeout_ms,
        )
        self.lease_monitor = LeaseMonitor(cache.store, settings.worker.lease_ms, clock)
        self.workers: dict[str, WorkerRecord] = {}  # those that hold their lease
        self._term = 0
        self._all = True  # the next cycle checks all jobs
        self._counted_s: float | None = None

    def step(self, leading: Leader) -> int:
        """Run one cycle; return how many jobs were changed.

        StoreUnavailable ends it, and the next one continues.
        """
        if leading.term != self._term:
            self._term = leading.term
            self._all = True
            for memory in (self.timers, self.recheck, self.slot_usage):
                memory.clear()
        self.cache.refresh()
        self.timers.tick(self.clock.monotonic_s())
        self._check_workers(leading)
        everything, self._all = self._all, True  # until this cycle is complete
        jobs = self._due(everything=everything)
        places = self._places(jobs)
        # Stable jobs hardly ever change, and are checked here. The others run in parallel, so that
        # their writes wait for the store at the same time.
        restless = self.recheck.active(set(jobs))
        moved = run_sequentially(
            lambda job_id: self._reconcile_if_trusted(leading, job_id, places),
            [job_id for job_id in jobs if job_id not in restless],
        )
        moved += self.run_jobs(
            lambda job_id: self._reconcile_if_trusted(leading, job_id, places), sorted(restless)
        )
        self._all = False
        return moved

    def _due(self, *, everything: bool) -> list[int]:
        """Return the jobs to check now: those that changed, and those that are due; or all."""
        now_s, running = self.clock.monotonic_s(), self.cache.jobs()
        touched, news = self.touched.take(), self.changed.take()
        if everything:
            self.slot_usage.clear()
            news |= set(running) | set(self.cache.assignments())
        elif self._counted_s is None or now_s - self._counted_s >= STABLE_EVERY_S_MAX:
            self._counted_s = now_s
            news |= self.recheck.missing(running)
        due = news | self.recheck.active(touched) | self.recheck.due(now_s)
        for job_id in due:
            assigned = self.cache.assignment(job_id)
            self.slot_usage.put(job_id, self._holder(job_id, assigned.value) if assigned else None)
            if job_id not in running:
                self.timers.forget(job_id)
                self.recheck.forget(job_id)
        for job_id in touched - due:
            self._restart_timers(job_id)
        return sorted(job_id for job_id in due if job_id in running)

    def _restart_timers(self, job_id: int) -> None:
        """Restart the timers of a stable job that has sent a heartbeat or made progress."""
        driver = self.cache.driver(job_id)
        self._silent(job_id, driver.value if driver else None)
        self._ages_of(job_id, tuple(p.value for p in self.cache.pipelines(job_id)))

    def _reconcile_if_trusted(
        self, leading: Leader, job_id: int, places: dict[int, Placement | Unplaceable]
    ) -> bool:
        """Reconcile one job while this leader is trusted; return whether it was changed.

        An untrusted leader changes nothing, and begins with this job when it is trusted again.
        """
        if not leading.trusted():
            self.changed.add({job_id})
            return False
        return self._reconcile(leading, job_id, places)

    def _reconcile(
        self, leading: Leader, job_id: int, places: dict[int, Placement | Unplaceable]
    ) -> bool:
        """Decide and record for one job.

        An error of one job never blocks the others. No decision is made about a job with damaged
        documents.
        """
        self.recheck.schedule(job_id, self.clock.monotonic_s(), None)
        if self.cache.damage(job_id):
            return False
        snapshot = self.cache.snapshot(job_id)
        if snapshot.record is None:
            return False
        try:
            if snapshot.state is None or snapshot.state.value.status.terminal:
                self.writer.remove_stale_entry(leading.check(), job_id)
                LOG.warning("stale_job_entry_removed", extra={"job_id": job_id})
                return True
            return self._decide(leading, snapshot, self.view(snapshot, places))
        except (JobChangedMeanwhile, Conflict, OutcomeUnknown):  # decided again by the new state
            self.changed.add({job_id})
            return False
        except StoreUnavailable:
            raise
        except Exception as error:
            LOG.exception("job_reconcile_failed", extra={"job_id": job_id, "why": str(error)})
            return False

    def _decide(self, leading: Leader, snapshot: JobSnapshot, view: JobObservation) -> bool:
        decision = machine.decide(view)
        if isinstance(decision, NoTransition):
            moved = self.writer.write_no_transition(leading.check(), snapshot, view, decision)
            if not moved and is_stable(view, decision):
                self.recheck.schedule(
                    snapshot.job_id, self.clock.monotonic_s(), self._stable_for_s(view.record)
                )
            return moved
        assert isinstance(decision, Transition)
        self.writer.write_transition(leading.check(), snapshot, view, decision)
        return True

    def view(
        self, snapshot: JobSnapshot, places: dict[int, Placement | Unplaceable]
    ) -> JobObservation:
        """Build the observation of a job, with ages on this leader's clock."""
        assert snapshot.record is not None
        assert snapshot.state is not None
        job_id, state = snapshot.job_id, snapshot.state.value
        driver = snapshot.driver.value if snapshot.driver else None
        assignment = snapshot.assignment.value if snapshot.assignment else None
        savepoint = request_of(snapshot)
        watcher, adopter = self._supervision(assignment, driver)
        if state.leader is not None and driver is not None and not adopter:
            adopter = self._worker_on_host(driver)
        return JobObservation(
            now_ms=self.clock.now_ms(),
            record=snapshot.record.value,
            state=state,
            pipelines=tuple(p.value for p in snapshot.pipelines),
            driver=driver,
            assignment=assignment,
            supervision=watcher,
            adopter=adopter,
            driver_silent=self._silent(job_id, driver),
            state_age_ms=self.timers.ms(job_id, (state.status, state.generation), "state"),
            command_age_ms=self.timers.ms(
                job_id,
                (
                    (assignment.command, assignment.worker, assignment.generation)
                    if assignment
                    else None
                ),
                "order",
            ),
            savepoint=savepoint.value if savepoint else None,
            savepoint_age_ms=self.timers.ms(
                job_id,
                (savepoint.value.id, savepoint.value.status) if savepoint else None,
                "savepoint",
            ),
            health=self._health(
                snapshot.record.value, state, tuple(p.value for p in snapshot.pipelines), watcher
            ),
            log_retention=log_retention_status(
                f
                for m in self.cache.metrics(job_id)
                if m.value.generation == state.generation
                for f in m.value.log_retention
            ),
            placement=places.get(job_id, Unplaceable("no worker was chosen yet")),
            limits=self.limits,
            embedded_alive=self.alive(state.leader) if state.leader else None,
            desired_age_ms=self.timers.ms(job_id, snapshot.record.value.intent, "wish"),
        )

    def _health(
        self,
        job: JobRecord,
        state: JobState,
        pipelines: tuple[PipelineState, ...],
        watcher: DriverSupervision,
    ) -> JobHealth:
        if state.status not in (JobStatus.RUNNING, JobStatus.DOING_SAVEPOINT):
            return JobHealth()
        metrics, ages, silences = self._ages_of(job.job_id, pipelines)
        start_ms = self.settings.coordinator.start_timeout_ms
        seen = watcher is DriverSupervision.ALIVE
        health = health_of(
            job.plan.env,
            self.settings.checkpoint,
            pipelines,
            metrics,
            ages,
            silences,
            observed=seen,
            start_ms=start_ms,
        )
        driver = self.cache.driver(job.job_id)
        if health.level is CheckpointHealth.OK or driver is None or driver.value.end is not None:
            return health
        return explain(health, self.process_blocked(driver.value.process))

    def _ages_of(
        self, job_id: int, pipelines: tuple[PipelineState, ...]
    ) -> tuple[dict[int, PipelineMetrics], dict[int, int], dict[int, int]]:
        """Return by pipeline its metrics, the age of its progress, and the age of its metrics."""
        metrics: dict[int, PipelineMetrics] = {}
        versions: dict[int, int] = {}
        for cached in self.cache.metrics(job_id):
            metrics[cached.value.pipeline] = cached.value
            versions[cached.value.pipeline] = cached.version
        ages: dict[int, int] = {}
        silences: dict[int, int] = {}
        for state in pipelines:
            number = state.pipeline
            ages[number] = self.timers.ms(
                job_id, progress_marker(state, metrics.get(number)), "progress", number
            )
            written = (state.generation, versions.get(number, 0))
            silences[number] = self.timers.ms(job_id, written, "figures", number)
        return metrics, ages, silences

    def _stable_for_s(self, job: JobRecord) -> float:
        """Return how long a stable job may stay unchecked."""
        rhythm = ProgressPolicy.of(
            job.plan.env, self.settings.checkpoint, self.settings.coordinator.start_timeout_ms
        )
        return min(max(recheck_after_ms(rhythm) / 1000, ACTIVE_EVERY_S), STABLE_EVERY_S_MAX)

    def _silent(self, job_id: int, driver: DriverRecord | None) -> bool:
        """Whether the driver has sent no heartbeat for a lease.

        Its registration and each write of its metrics count as one.
        """
        beats = tuple(
            m.version
            for m in self.cache.metrics(job_id)
            if driver is not None and m.value.generation == driver.generation
        )
        return self.timers.ms(job_id, (driver, beats), "life") > self.settings.worker.lease_ms

    def _supervision(
        self, assignment: Assignment | None, driver: DriverRecord | None
    ) -> tuple[DriverSupervision, str]:
        """Return which worker can see the driver.

        Its own worker, else one on the same host since the same boot.
        """
        if assignment is None:
            return DriverSupervision.NONE, ""
        if assignment.worker in self.workers:
            return DriverSupervision.ALIVE, ""
        if driver is None or driver.generation != assignment.generation:
            return DriverSupervision.GONE, ""
        beside = self._worker_on_host(driver)
        return (DriverSupervision.REPLACEABLE, beside) if beside else (DriverSupervision.GONE, "")

    def _worker_on_host(self, driver: DriverRecord) -> str:
        """Return a worker on the host of the driver since the same boot; empty if there is none."""
        here = [
            w.id
            for w in self.workers.values()
            if (w.host, w.boot) == (driver.process.host, driver.process.boot)
        ]
        return min(here, default="")

    def _places(self, jobs: list[int]) -> dict[int, Placement | Unplaceable]:
        """Where those among these jobs that wait could run, in the order in which they came."""
        states = [
            (job, s.value)
            for job in jobs
            if (s := self.cache.state(job)) is not None and s.value.status in WAITING
        ]
        if not states:
            return {}
        offers = [
            WorkerOffer(id=w.id, slots=w.slots, taken=self.slot_usage.slots[w.id], tags=w.tags)
            for w in self.workers.values()
            if self._recently_alive(w.id)
        ]
        now_ms = self.clock.now_ms()
        # Those that still wait for a retry come last: they must not take a slot from one that can
        # start now.
        waiting = sorted(
            states,
            key=lambda pair: (pair[1].not_before_ms > now_ms, pair[1].initialization_ms, pair[0]),
        )
        return place_jobs(
            [self._candidate(job, state) for job, state in waiting if job in self.cache.jobs()],
            offers,
        )

    def _holder(self, job_id: int, assignment: Assignment) -> str:
        """Return whose slot a job uses: its worker's, or that of the worker about to adopt it."""
        driver = self.cache.driver(job_id)
        return (
            self._supervision(assignment, driver.value if driver else None)[1] or assignment.worker
        )

    def _recently_alive(self, worker: str) -> bool:
        """Whether a worker has sent a heartbeat recently.

        One that holds its lease and hangs gets no new jobs.
        """
        beat = self.cache.heartbeat(worker_lease(worker))
        return (
            beat is not None
            and self.clock.monotonic_s() - beat.since_s <= self.settings.worker.lease_ms / 2000
        )

    def _candidate(self, job_id: int, state: JobState) -> QueuedJob:
        """Describe a job in the queue.

        One that has run before waits for a slot whatever the strategy, and tries another worker
        first.
        """
        before = self.cache.driver(job_id)
        return QueuedJob(
            job_id=job_id,
            tags=self.cache.jobs()[job_id].value.plan.env.tags,
            avoid=frozenset({before.value.worker} if before is not None and state.restarts else ()),
            reject_when_full=self.settings.coordinator.schedule is ScheduleStrategy.REJECT
            and JobStatus.SCHEDULED not in state.entered,
        )

    def _check_workers(self, leading: Leader) -> None:
        """Expire the leases of silent workers.

        Whatever such a worker writes afterwards is rejected, and its drivers may be adopted.
        """
        sights = self.lease_monitor.step()
        for sight in sights.values():
            worker = sight.lease_name.removeprefix(WORKER_PREFIX)
            if isinstance(sight, Silent):
                self._expire(leading, worker, expire(sight))
            elif isinstance(sight, Vacant) and (
                worker in self.cache.workers()
                or sight.unchanged_s > self.settings.worker.lease_ms / 1000
            ):
                self._expire(leading, worker, forget(sight))
        before, self.workers = (
            self.workers,
            {
                name: w.value
                for name, w in self.cache.workers().items()
                if isinstance(sights.get(worker_lease(name)), Alive)
            },
        )
        self._all = self._all or before.keys() != self.workers.keys()
        for name in self.cache.workers().keys() - {
            office.removeprefix(WORKER_PREFIX) for office in sights
        }:
            self._expire(
                leading,
                name,
                LeaderWrites(
                    (
                        Check(LEASES, worker_lease(name), 0),
                        Check(HEARTBEATS, worker_lease(name), 0),
                    ),
                    (),
                ),
            )

    def _expire(self, leading: Leader, worker: str, part: LeaderWrites) -> None:
        failpoint("worker.expire.before")
        try:
            self.cache.store.transact(
                [leading.check(), *part.checks], [*part.writes, Delete(WORKERS, worker)]
            )
        except Conflict:
            return
        failpoint("worker.expire.after")
        self._all = True
        if worker in self.cache.workers():
            LOG.warning("worker_lost", extra={"worker": worker})


def alive_here(process: ProcessRef) -> bool | None:
    """Whether a process is alive; None if it cannot be seen from this host."""
    return is_alive(process) if process.host == socket.gethostname() else None
