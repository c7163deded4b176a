"""The decisions of a worker, one turn at a time (see the package). Called by WorkerThread, and by
simulations.

It must not sleep, start threads or touch processes: those are behind `Launcher`. The copy of the
store that it looks at may be old by a turn; so whatever it writes is checked against the versions
that it read, and a second driver for one generation is refused by the store.
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
LAST_WORDS_MAX = 500
TRANSIENT_ERRORS = (Conflict, StoreUnavailable, OutcomeUnknown)


@dataclass(slots=True)
class RunningDriver:
    """A driver that this worker started or adopted."""

    job_id: int
    generation: int
    grip: DriverHandle
    started_ms: int
    terminated: bool = False  # SIGTERM is sent once


class ReportResult(Enum):
    """What became of the report of a death."""

    NOW = "now"  # it is on record
    LATE = "late"  # it is known already, or the job has moved on
    # another process is the driver of this generation: this death says nothing about it
    OF_ANOTHER = "of-another"


class Worker:
    """One worker of a host, for the life of its process.

    `me` is its record: `me.id` is unique, also among its predecessors.
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
        self.held: dict[ProcessRef, RunningDriver] = {}
        self._begun: dict[int, int] = {}  # the newest generation of each job that was started here
        self._announced = 0  # the version of the lease under which the record was written
        self._strange: set[tuple[int, int]] = set()
        self._trouble = ""

    def step(self) -> None:
        """One turn. A store that is out of reach ends it early: drivers go on without us."""
        looks = {
            ref: held.grip.poll() for ref, held in self.held.items()
        }  # also reaps the children, whatever the store says
        self.launcher.tend()
        standing = self.elector.claim()
        if not isinstance(standing, Leader):
            return
        try:
            self._announce(standing)
            self.follower.refresh()
        except TRANSIENT_ERRORS:
            return
        mine = [
            seen.value
            for seen in self.follower.all(ASSIGNMENTS).values()
            if seen.value.worker == self.me.id
        ]
        for assignment in mine:
            self._guarded(self._take_up, assignment)
        for (
            ref,
            look,
        ) in (
            looks.items()
        ):  # last: what is reported now, our copy of the store will know only at the next turn
            self._guarded(self._look_after, standing, self.held[ref], look)
        self._forget(self.follower.all(ASSIGNMENTS))

    def retag(self, tags: Mapping[str, str]) -> None:
        """Other tags from the next turn on.

        Any thread may call it; jobs that run stay where they are.
        """
        self.me = replace(self.me, tags=dict(tags))
        self._announced = 0

    def leave(self) -> None:
        """An orderly end: the drivers stay, and whoever looks sees at once that this worker is
        gone.
        """
        standing = self.elector.leadership()
        if isinstance(standing, Leader):
            failpoint("worker.leave.before")
            try:
                self.store.transact([standing.check()], [Delete(WORKERS, self.me.id)])
            except TRANSIENT_ERRORS:
                LOG.warning("left without a word", extra={"why": "the store cannot be written"})
            failpoint("worker.leave.after")
        self.elector.resign()

    def _announce(self, standing: Leader) -> None:
        """Our record, once for each holding of the lease."""
        if self._announced == standing.version:
            return
        failpoint("worker.announce.before")
        self.store.transact([standing.check()], [Put(WORKERS, self.me.id, to_document(self.me))])
        failpoint("worker.announce.after")
        self._announced = standing.version

    def _guarded(self, act: Callable[..., None], *arguments: object) -> None:
        """One job's trouble is not the others'."""
        try:
            act(*arguments)
        except TRANSIENT_ERRORS:
            return  # next turn, with fresh eyes
        except Exception as error:
            if str(error) != self._trouble:  # one line, not one for each turn
                self._trouble = str(error)
                LOG.exception("a job cannot be looked after")

    def _take_up(self, assignment: Assignment) -> None:
        """Start the driver of an assignment, or adopt the one that is there."""
        seen = self.follower.get(DRIVERS, str(assignment.job_id))
        record: DriverRecord | None = (
            seen.value
            if seen is not None and seen.value.generation >= assignment.generation
            else None
        )
        if record is None:
            if (
                assignment.order is DriverCommand.RUN
                and self._begun.get(assignment.job_id, 0) < assignment.generation
            ):
                self._start(assignment)
        elif (
            record.generation == assignment.generation
            and record.end is None
            and record.process not in self.held
        ):
            self._adopt(record)

    def _start(self, assignment: Assignment) -> None:
        plain = self._is_plain(assignment.job_id)
        self._begun[assignment.job_id] = assignment.generation
        order = driver_spec(
            self.settings,
            self.home,
            job_id=assignment.job_id,
            generation=assignment.generation,
            worker=self.me.id,
            detached=True,
        )
        grip = self.launcher.start(order, plain=plain)
        self._hold(assignment.job_id, assignment.generation, grip)
        self._log(
            "driver started", assignment.job_id, assignment.generation, f"process {grip.ref.pid}"
        )

    def _is_plain(self, job_id: int) -> bool:
        """Whether a driver that waits with a started JVM can run this job: it asks for nothing of
        Spark that the engine does not give to all.
        """
        entry = self.store.get(RUNNING_JOBS, str(job_id)) if self.settings.worker.warm else None
        if entry is None:
            return False
        plan = from_document(JobRecord, entry.value, f"job {job_id}").plan
        return not (plan.env.spark or plan.env.jars or plan.jars)

    def _adopt(self, record: DriverRecord) -> None:
        if record.process.host != self.me.host:
            if (record.job_id, record.generation) not in self._strange:
                self._strange.add((record.job_id, record.generation))
                self._log(
                    "driver out of sight",
                    record.job_id,
                    record.generation,
                    f"it runs on {record.process.host}",
                )
            return
        self._hold(
            record.job_id, record.generation, self.launcher.adopt(record.process, record.job_id)
        )
        self._log(
            "driver adopted", record.job_id, record.generation, f"process {record.process.pid}"
        )

    def _hold(self, job_id: int, generation: int, grip: DriverHandle) -> None:
        self.held[grip.ref] = RunningDriver(
            job_id=job_id, generation=generation, grip=grip, started_ms=self.clock.now_ms()
        )

    def _look_after(self, standing: Leader, held: RunningDriver, look: Alive | Exited) -> None:
        if isinstance(look, Exited):
            if self._report(standing, held, look) is not ReportResult.OF_ANOTHER:
                self.launcher.clear(held.job_id, held.generation, held.grip.ref)
            del self.held[held.grip.ref]
        else:
            self._apply(held)

    def _apply(self, held: RunningDriver) -> None:
        """Carry out the order.

        A driver whose assignment is gone is one that nobody wants any more; one that is another
        worker's now is that one's business.
        """
        seen = self.follower.get(ASSIGNMENTS, str(held.job_id))
        if (ASSIGNMENTS, str(held.job_id)) in self.follower.unreadable:
            return  # it is there, in words of a newer version
        if seen is None or seen.value.generation != held.generation:
            held.grip.kill()
        elif seen.value.worker != self.me.id:
            return
        elif seen.value.order is DriverCommand.KILL:
            held.grip.kill()
        elif seen.value.order is DriverCommand.TERMINATE and not held.terminated:
            held.terminated = True
            held.grip.terminate()

    def _report(self, standing: Leader, held: RunningDriver, dead: Exited) -> ReportResult:
        """Put the death of a driver on record."""
        key = str(held.job_id)
        entry = self.store.get(DRIVERS, key)
        record = from_document(DriverRecord, entry.value, f"driver of job {key}") if entry else None
        checks = [standing.check(), Check(DRIVERS, key, entry.version if entry else 0)]
        if record is not None and record.generation >= held.generation:
            if record.process != held.grip.ref:
                self._log(
                    "late report", held.job_id, held.generation, "another driver is on record"
                )
                return (
                    ReportResult.LATE
                    if record.generation > held.generation
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
                or current.generation != held.generation
                or current.status.terminal
            ):
                self._log(
                    "late report", held.job_id, held.generation, "the job has moved on, or is gone"
                )
                return ReportResult.LATE
            checks.append(Check(JOB_STATES, key, state.version))
            record = DriverRecord(
                job_id=held.job_id,
                generation=held.generation,
                process=held.grip.ref,
                worker=self.me.id,
                started_ms=held.started_ms,
            )
        end = DriverEnd(
            at_ms=self.clock.now_ms(),
            code=dead.code,
            proof=dead.proof,
            stderr_tail=dead.stderr_tail[-LAST_WORDS_MAX:],
        )
        failpoint("worker.report.before")
        self.store.transact(checks, [Put(DRIVERS, key, to_document(replace(record, end=end)))])
        failpoint("worker.report.after")
        self._log("driver ended", held.job_id, held.generation, f"{dead.proof}, code {dead.code}")
        return ReportResult.NOW

    def _forget(self, assignments: Mapping[str, object]) -> None:
        """Of jobs that are assigned to nobody nothing need be remembered: generations only grow."""
        for job_id in [job_id for job_id in self._begun if str(job_id) not in assignments]:
            del self._begun[job_id]
        self._strange = {
            (job_id, generation)
            for job_id, generation in self._strange
            if str(job_id) in assignments
        }

    def _log(self, event: str, job_id: int, generation: int, why: str) -> None:
        LOG.info(event, extra={"job_id": job_id, "generation": generation, "why": why})
