"""The decisions of a worker, one cycle at a time (see the package).

Called by WorkerThread and by simulations. It must not sleep, start threads or touch processes:
`Launcher` does that. Its copy of the store may be one cycle old. So every write is conditioned on
the versions that it read, and the store rejects a second driver for one generation.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from tidegate.clock import Clock
from tidegate.election import Elector, Leader, worker_lease
from tidegate.failpoint import failpoint
from tidegate.home import Home
from tidegate.model.document import from_document, to_document
from tidegate.model.engine import EngineSettings
from tidegate.model.records import (
    ASSIGNMENTS,
    DRIVERS,
    JOB_STATES,
    RUNNING_JOBS,
    WORKERS,
    Assignment,
    DriverCommand,
    DriverEnd,
    DriverRecord,
    JobRecord,
    JobState,
    ProcessRef,
    WorkerRecord,
)
from tidegate.runner.driver_spec import driver_spec
from tidegate.store import Check, Conflict, Delete, OutcomeUnknown, Put, Store, StoreUnavailable
from tidegate.store.follow import Follower
from tidegate.worker.driver_handle import Alive, DriverHandle, Exited, Launcher

LOG = logging.getLogger("tidegate.worker")
STDERR_TAIL_CHARS_MAX = 500
TRANSIENT_ERRORS = (Conflict, StoreUnavailable, OutcomeUnknown)


@dataclass(slots=True)
class RunningDriver:
    """A driver that this worker started or adopted."""

    job_id: int
    generation: int
    handle: DriverHandle
    started_ms: int
    terminated: bool = False  # SIGTERM is sent once


class ReportResult(Enum):
    """The result of reporting the exit of a driver."""

    NOW = "now"  # recorded
    LATE = "late"  # recorded before, or the job has a newer generation
    # another process is the driver of this generation, so this exit says nothing about it
    OF_ANOTHER = "of-another"


class Worker:
    """One worker of a host, for the life of its process.

    `me` is its record. `me.id` is unique, also among its predecessors.
    """

    def __init__(
        self,
        store: Store,
        settings: EngineSettings,
        me: WorkerRecord,
        home: Home,
        launcher: Launcher,
        clock: Clock,
    ) -> None:
        self.store = store
        self.settings = settings
        self.me = me
        self.home = home
        self.launcher = launcher
        self.clock = clock
        self.elector = Elector(
            store, worker_lease(me.id), me.id, me.address, settings.worker.lease_ms, clock
        )
        self.follower = Follower(
            store, {ASSIGNMENTS: Assignment, DRIVERS: DriverRecord}, clock.monotonic_s
        )
        self.drivers: dict[ProcessRef, RunningDriver] = {}
        self._started: dict[
            int, int
        ] = {}  # the newest generation of each job that was started here
        self._announced_version = 0  # the version of the lease under which the record was written
        self._foreign: set[tuple[int, int]] = set()
        self._last_error = ""

    def step(self) -> None:
        """Run one cycle; an unreachable store ends it early, and drivers continue without it."""
        # also reaps the children, even if the store is unreachable
        observed = {ref: driver.handle.poll() for ref, driver in self.drivers.items()}
        self.launcher.maintain()
        leadership = self.elector.claim()
        if not isinstance(leadership, Leader):
            return
        try:
            self._announce(leadership)
            self.follower.refresh()
        except TRANSIENT_ERRORS:
            return
        mine = [
            entry.value
            for entry in self.follower.all(ASSIGNMENTS).values()
            if entry.value.worker == self.me.id
        ]
        for assignment in mine:
            self._isolated(self._ensure_driver, assignment)
        # Last: the copy of the store has these reports only in the next cycle.
        for ref, state in observed.items():
            self._isolated(self._supervise, leadership, self.drivers[ref], state)
        self._prune(self.follower.all(ASSIGNMENTS))

    def retag(self, tags: Mapping[str, str]) -> None:
        """Use other tags from the next cycle on.

        Thread-safe. Running jobs stay on this worker.
        """
        self.me = replace(self.me, tags=dict(tags))
        self._announced_version = 0

    def leave(self) -> None:
        """Sign off: drivers keep running, and the store shows at once that this worker is gone."""
        leadership = self.elector.leadership()
        if isinstance(leadership, Leader):
            failpoint("worker.leave.before")
            try:
                self.store.transact([leadership.check()], [Delete(WORKERS, self.me.id)])
            except TRANSIENT_ERRORS:
                LOG.warning("worker_left_unreported", extra={"why": "the store cannot be written"})
            failpoint("worker.leave.after")
        self.elector.resign()

    def _announce(self, leadership: Leader) -> None:
        """Write this worker's record, once each time the lease is acquired."""
        if self._announced_version == leadership.version:
            return
        failpoint("worker.announce.before")
        self.store.transact([leadership.check()], [Put(WORKERS, self.me.id, to_document(self.me))])
        failpoint("worker.announce.after")
        self._announced_version = leadership.version

    def _isolated(self, act: Callable[..., None], *arguments: object) -> None:
        """Call `act` so that an error of one job does not affect the others."""
        try:
            act(*arguments)
        except TRANSIENT_ERRORS:
            return  # the next cycle tries again
        except Exception as error:
            if str(error) != self._last_error:  # once, not in every cycle
                self._last_error = str(error)
                LOG.exception("assignment_failed")

    def _ensure_driver(self, assignment: Assignment) -> None:
        """Start the driver of an assignment, or adopt the existing one."""
        seen = self.follower.get(DRIVERS, str(assignment.job_id))
        record: DriverRecord | None = (
            seen.value
            if seen is not None and seen.value.generation >= assignment.generation
            else None
        )
        if record is None:
            if (
                assignment.command is DriverCommand.RUN
                and self._started.get(assignment.job_id, 0) < assignment.generation
            ):
                self._start(assignment)
        elif (
            record.generation == assignment.generation
            and record.end is None
            and record.process not in self.drivers
        ):
            self._adopt(record)

    def _start(self, assignment: Assignment) -> None:
        plain = self._can_use_warm_driver(assignment.job_id)
        self._started[assignment.job_id] = assignment.generation
        spec = driver_spec(
            self.settings,
            self.home,
            job_id=assignment.job_id,
            generation=assignment.generation,
            worker=self.me.id,
            detached=True,
        )
        handle = self.launcher.start(spec, plain=plain)
        self._track(assignment.job_id, assignment.generation, handle)
        self._log(
            "driver_started", assignment.job_id, assignment.generation, f"process {handle.ref.pid}"
        )

    def _can_use_warm_driver(self, job_id: int) -> bool:
        """Return whether a warm driver can run this job: it has no Spark settings of its own."""
        entry = self.store.get(RUNNING_JOBS, str(job_id)) if self.settings.worker.warm else None
        if entry is None:
            return False
        plan = from_document(JobRecord, entry.value, f"job {job_id}").plan
        return not (plan.env.spark or plan.env.jars or plan.jars)

    def _adopt(self, record: DriverRecord) -> None:
        if record.process.host != self.me.host:
            if (record.job_id, record.generation) not in self._foreign:
                self._foreign.add((record.job_id, record.generation))
                self._log(
                    "driver_on_other_host",
                    record.job_id,
                    record.generation,
                    f"it runs on {record.process.host}",
                )
            return
        self._track(
            record.job_id, record.generation, self.launcher.adopt(record.process, record.job_id)
        )
        self._log(
            "driver_adopted", record.job_id, record.generation, f"process {record.process.pid}"
        )

    def _track(self, job_id: int, generation: int, handle: DriverHandle) -> None:
        self.drivers[handle.ref] = RunningDriver(
            job_id=job_id, generation=generation, handle=handle, started_ms=self.clock.now_ms()
        )

    def _supervise(self, leadership: Leader, driver: RunningDriver, state: Alive | Exited) -> None:
        if isinstance(state, Exited):
            if self._report(leadership, driver, state) is not ReportResult.OF_ANOTHER:
                self.launcher.clear(driver.job_id, driver.generation, driver.handle.ref)
            del self.drivers[driver.handle.ref]
        else:
            self._apply(driver)

    def _apply(self, driver: RunningDriver) -> None:
        """Apply the command of the assignment.

        A driver whose assignment was deleted is killed. One that is now assigned to another worker
        is left to that worker.
        """
        assignment = self.follower.get(ASSIGNMENTS, str(driver.job_id))
        if (ASSIGNMENTS, str(driver.job_id)) in self.follower.unreadable:
            return  # it exists, in the format of a newer version
        if assignment is None or assignment.value.generation != driver.generation:
            driver.handle.kill()
        elif assignment.value.worker != self.me.id:
            return
        elif assignment.value.command is DriverCommand.KILL:
            driver.handle.kill()
        elif assignment.value.command is DriverCommand.TERMINATE and not driver.terminated:
            driver.terminated = True
            driver.handle.terminate()

    def _report(self, leadership: Leader, driver: RunningDriver, exited: Exited) -> ReportResult:
        """Record the exit of a driver in the store."""
        key = str(driver.job_id)
        entry = self.store.get(DRIVERS, key)
        record = from_document(DriverRecord, entry.value, f"driver of job {key}") if entry else None
        checks = [leadership.check(), Check(DRIVERS, key, entry.version if entry else 0)]
        if record is not None and record.generation >= driver.generation:
            if record.process != driver.handle.ref:
                self._log(
                    "driver_report_ignored",
                    driver.job_id,
                    driver.generation,
                    "another driver is on record",
                )
                return (
                    ReportResult.LATE
                    if record.generation > driver.generation
                    else ReportResult.OF_ANOTHER
                )
            if record.end is not None:
                return ReportResult.LATE
        else:
            state = self.store.get(JOB_STATES, key)
            current = from_document(JobState, state.value, f"state of job {key}") if state else None
            if (
                state is None
                or current is None
                or current.generation != driver.generation
                or current.status.terminal
            ):
                self._log(
                    "driver_report_ignored",
                    driver.job_id,
                    driver.generation,
                    "the job has a newer generation, has ended, or was deleted",
                )
                return ReportResult.LATE
            checks.append(Check(JOB_STATES, key, state.version))
            record = DriverRecord(
                job_id=driver.job_id,
                generation=driver.generation,
                process=driver.handle.ref,
                worker=self.me.id,
                started_ms=driver.started_ms,
            )
        end = DriverEnd(
            at_ms=self.clock.now_ms(),
            code=exited.code,
            proof=exited.proof,
            stderr_tail=exited.stderr_tail[-STDERR_TAIL_CHARS_MAX:],
        )
        failpoint("worker.report.before")
        self.store.transact(checks, [Put(DRIVERS, key, to_document(replace(record, end=end)))])
        failpoint("worker.report.after")
        self._log(
            "driver_exited", driver.job_id, driver.generation, f"{exited.proof}, code {exited.code}"
        )
        return ReportResult.NOW

    def _prune(self, assignments: Mapping[str, object]) -> None:
        """Drop what is remembered of unassigned jobs; generations only grow, so this is safe."""
        for job_id in [job_id for job_id in self._started if str(job_id) not in assignments]:
            del self._started[job_id]
        self._foreign = {
            (job_id, generation)
            for job_id, generation in self._foreign
            if str(job_id) in assignments
        }

    def _log(self, event: str, job_id: int, generation: int, why: str) -> None:
        LOG.info(event, extra={"job_id": job_id, "generation": generation, "why": why})
