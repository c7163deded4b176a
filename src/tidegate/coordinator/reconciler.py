"""observe -> decide -> record, for every job. Run by the leader alone, again and again; a turn that is lost is made up for by the next.

It keeps nothing but the ages of things on its own clock: another leader that starts with an empty memory decides the same, only later.
"""

import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tidegate.coordinator.observe import Picture
from tidegate.coordinator.registry import Known
from tidegate.coordinator.savepoints import request_of
from tidegate.coordinator.transitions import Overtaken, Recorder
from tidegate.election import WORKER_PREFIX, Alive, Leading, Silent, Vacant, Watch, expire, forget, worker_office
from tidegate.election.watch import Part
from tidegate.failpoint import failpoint
from tidegate.lifecycle import machine
from tidegate.lifecycle.decision import Go, Stay
from tidegate.lifecycle.health import health_of, mark
from tidegate.lifecycle.placement import Candidate, Offer, place
from tidegate.lifecycle.view import Health, JobView, Limits, NoPlace, Place, Watcher
from tidegate.model.engine import EngineSettings, ScheduleStrategy
from tidegate.model.records import BEATS, LEASES, WORKERS, Assignment, DriverRecord, JobRecord, JobState, JobStatus, PipelineState, ProcessRef, WorkerRecord
from tidegate.model.runway import outlook
from tidegate.pipeline.clock import Clock
from tidegate.runner.process import is_alive
from tidegate.store.base import Check, Delete
from tidegate.store.errors import Conflict, StoreUnavailable

LOG = logging.getLogger("tidegate.coordinator")
BLIND_S_MAX = 1.0  # what the time between two looks counts at most
ALL_EVERY_S = 1.0  # every job is looked at so often, whether anything changed or not: deadlines pass by themselves


Lives = Callable[[ProcessRef], bool | None]


@dataclass(slots=True)
class Age:
    """Since when something is as it is, in time that was watched."""

    what: object
    since_s: float


class Ages:
    """How long things have been as they are, in time that this leader has watched. A new leader begins to count anew, and hours in which the store was out of
    reach or this process was paused hardly count: a deadline may only be later than it should."""

    def __init__(self) -> None:
        self._ages: dict[tuple[object, ...], Age] = {}
        self._watched_s = 0.0
        self._last_s: float | None = None

    def tick(self, now_s: float) -> None:
        """One more look at everything, at this time."""
        if self._last_s is not None:
            self._watched_s += min(max(0.0, now_s - self._last_s), BLIND_S_MAX)
        self._last_s = now_s

    def ms(self, name: tuple[object, ...], what: object) -> int:
        """How long `name` has been `what`."""
        age = self._ages.get(name)
        if age is None or age.what != what:
            age = self._ages[name] = Age(what, self._watched_s)
        return round((self._watched_s - age.since_s) * 1000)

    def forget(self, jobs: Iterable[int]) -> None:
        """Keep only what is about these jobs."""
        kept = set(jobs)
        self._ages = {name: age for name, age in self._ages.items() if name[1] in kept}

    def clear(self) -> None:
        """Forget everything."""
        self._ages.clear()


class Reconciler:
    """Moves every job one step towards what is wanted of it."""

    def __init__(self, picture: Picture, recorder: Recorder, settings: EngineSettings, clock: Clock, alive: Lives | None = None) -> None:
        self.picture, self.recorder, self.settings, self.clock = picture, recorder, settings, clock
        self.alive = alive or alive_here
        self.changed = picture.listen()
        self.ages = Ages()
        self.limits = Limits(start_ms=settings.coordinator.start_timeout_ms, ask_ms=settings.coordinator.stop_timeout_ms)
        self.watch = Watch(picture.store, settings.worker.lease_ms, clock)
        self.workers: dict[str, WorkerRecord] = {}  # those that hold their lease
        self._term = 0
        self._all_s: float | None = None

    def step(self, leading: Leading) -> int:
        """One turn; how many jobs were changed. StoreUnavailable ends it, and the next one goes on."""
        if leading.term != self._term:
            self._term, self._all_s = leading.term, None
            self.ages.clear()
        self.picture.refresh()
        self.ages.tick(self.clock.monotonic_s())
        self._look_at_workers(leading)
        jobs = self._due()
        places = self._places(jobs)
        return sum(self._one(leading, job_id, places) for job_id in jobs if leading.trusted())

    def _due(self) -> list[int]:
        """The jobs to look at now: those that changed; all of them once a second."""
        now_s, running = self.clock.monotonic_s(), self.picture.jobs()
        changed = self.changed.take()
        if self._all_s is None or now_s - self._all_s >= ALL_EVERY_S:
            self._all_s = now_s
            jobs = sorted(running)
            self.ages.forget(jobs)
            return jobs
        return sorted(job_id for job_id in changed if job_id in running)

    def _one(self, leading: Leading, job_id: int, places: dict[int, Place | NoPlace]) -> bool:
        """Decide and record for one job. What is wrong with one never keeps the others."""
        known = self.picture.known(job_id)
        if known.record is None:
            return False
        try:
            if known.state is None or known.state.value.status.terminal:
                self.recorder.bury_zombie(leading.check(), job_id)
                LOG.warning("an entry of an ended job among the running ones", extra={"job_id": job_id})
                return True
            return self._decide(leading, known, self.view(known, places))
        except (Overtaken, Conflict):
            self.changed.add({job_id})
            return False
        except StoreUnavailable:
            raise
        except Exception as error:
            LOG.exception("a job could not be reconciled", extra={"job_id": job_id, "why": str(error)})
            return False

    def _decide(self, leading: Leading, known: Known, view: JobView) -> bool:
        decision = machine.decide(view)
        if isinstance(decision, Stay):
            return self.recorder.stay(leading.check(), known, view, decision)
        assert isinstance(decision, Go)
        self.recorder.go(leading.check(), known, view, decision)
        return True

    def view(self, known: Known, places: dict[int, Place | NoPlace]) -> JobView:
        """Everything that is known of a job, with ages on this leader's clock."""
        assert known.record is not None
        assert known.state is not None
        job_id, state = known.job_id, known.state.value
        driver = known.driver.value if known.driver else None
        assignment = known.assignment.value if known.assignment else None
        savepoint = request_of(known)
        watcher, adopter = self._watcher(assignment, driver)
        return JobView(
            now_ms=self.clock.now_ms(),
            record=known.record.value,
            state=state,
            pipelines=tuple(p.value for p in known.pipelines),
            driver=driver,
            assignment=assignment,
            watcher=watcher,
            adopter=adopter,
            driver_silent=self._silent(job_id, driver),
            state_age_ms=self.ages.ms(("state", job_id), (state.status, state.generation)),
            order_age_ms=self.ages.ms(("order", job_id), (assignment.order, assignment.worker, assignment.generation) if assignment else None),
            savepoint=savepoint.value if savepoint else None,
            savepoint_age_ms=self.ages.ms(("savepoint", job_id), (savepoint.value.id, savepoint.value.status) if savepoint else None),
            health=self._health(known.record.value, state, tuple(p.value for p in known.pipelines), watcher),
            runway=outlook(f for m in self.picture.metrics(job_id) if m.value.generation == state.generation for f in m.value.runway),
            place=places.get(job_id, NoPlace("not looked for yet")),
            limits=self.limits,
            embedded_alive=self.alive(state.leader) if state.leader else None,
        )

    def _health(self, job: JobRecord, state: JobState, pipelines: tuple[PipelineState, ...], watcher: Watcher) -> Health:
        """Of the worst pipeline."""
        if state.status not in (JobStatus.RUNNING, JobStatus.DOING_SAVEPOINT):
            return Health()
        figures = {m.value.pipeline: m for m in self.picture.metrics(job.job_id)}
        metrics = {number: m.value for number, m in figures.items()}
        ages = {p.pipeline: self.ages.ms(("progress", job.job_id, p.pipeline), mark(p, metrics.get(p.pipeline))) for p in pipelines}
        silences = {
            p.pipeline: self.ages.ms(("figures", job.job_id, p.pipeline), (p.generation, figures[p.pipeline].version if p.pipeline in figures else 0))
            for p in pipelines
        }
        start_ms = self.settings.coordinator.start_timeout_ms
        return health_of(job.plan.env, self.settings.checkpoint, pipelines, metrics, ages, silences, seen=watcher is Watcher.ALIVE, start_ms=start_ms)

    def _silent(self, job_id: int, driver: DriverRecord | None) -> bool:
        """Whether the driver has not been heard of for a lease: its registration and its figures are its signs of life."""
        beats = tuple(m.version for m in self.picture.metrics(job_id) if driver is not None and m.value.generation == driver.generation)
        return self.ages.ms(("life", job_id), (driver, beats)) > self.settings.worker.lease_ms

    def _watcher(self, assignment: Assignment | None, driver: DriverRecord | None) -> tuple[Watcher, str]:
        """Who can see the driver: its worker, else one that lives on the same host since the same boot."""
        if assignment is None:
            return Watcher.NONE, ""
        if assignment.worker in self.workers:
            return Watcher.ALIVE, ""
        if driver is None or driver.generation != assignment.generation:
            return Watcher.GONE, ""
        here = [w for w in self.workers.values() if (w.host, w.boot) == (driver.process.host, driver.process.boot)]
        return (Watcher.REPLACEABLE, min(w.id for w in here)) if here else (Watcher.GONE, "")

    def _places(self, jobs: list[int]) -> dict[int, Place | NoPlace]:
        """Where the pending ones among these jobs could run, in the order in which they came."""
        states = [(job, s.value) for job in jobs if (s := self.picture.state(job)) is not None and s.value.status is JobStatus.PENDING]
        if not states:
            return {}
        taken = Counter(self._holder(job, assigned.value) for job, assigned in self.picture.assignments().items())
        offers = [Offer(id=w.id, slots=w.slots, taken=taken[w.id], tags=w.tags) for w in self.workers.values() if self._lively(w.id)]
        now_ms = self.clock.now_ms()
        # Those that still wait for a retry come last: they must not take a slot from one that can start now.
        waiting = sorted(states, key=lambda pair: (pair[1].not_before_ms > now_ms, pair[1].initialization_ms, pair[0]))
        return place([self._candidate(job, state) for job, state in waiting if job in self.picture.jobs()], offers)

    def _holder(self, job_id: int, assignment: Assignment) -> str:
        """Whose slot a job takes: its worker's, or that of the one that is about to adopt its driver."""
        driver = self.picture.driver(job_id)
        return self._watcher(assignment, driver.value if driver else None)[1] or assignment.worker

    def _lively(self, worker: str) -> bool:
        """Whether a worker has given a sign of life lately: one that holds its lease and hangs gets no new work."""
        beat = self.picture.beat(worker_office(worker))
        return beat is not None and self.clock.monotonic_s() - beat.since_s <= self.settings.worker.lease_ms / 2000

    def _candidate(self, job_id: int, state: JobState) -> Candidate:
        """A job in the queue. One that has run before waits for a slot whatever the strategy, and tries another worker first."""
        before = self.picture.driver(job_id)
        return Candidate(
            job_id=job_id,
            tags=self.picture.jobs()[job_id].value.plan.env.tags,
            avoid=frozenset({before.value.worker} if before is not None and state.restarts else ()),
            rejects=self.settings.coordinator.schedule is ScheduleStrategy.REJECT and JobStatus.SCHEDULED not in state.entered,
        )

    def _look_at_workers(self, leading: Leading) -> None:
        """A worker that has been silent for its lease loses it: whatever it writes after that is refused, and its drivers may be adopted."""
        sights = self.watch.step()
        for sight in sights.values():
            worker = sight.office.removeprefix(WORKER_PREFIX)
            if isinstance(sight, Silent):
                self._expire(leading, worker, expire(sight))
            elif isinstance(sight, Vacant) and (worker in self.picture.workers() or sight.unchanged_s > self.settings.worker.lease_ms / 1000):
                self._expire(leading, worker, forget(sight))
        self.workers = {name: w.value for name, w in self.picture.workers().items() if isinstance(sights.get(worker_office(name)), Alive)}
        for name in self.picture.workers().keys() - {office.removeprefix(WORKER_PREFIX) for office in sights}:
            self._expire(leading, name, Part((Check(LEASES, worker_office(name), 0), Check(BEATS, worker_office(name), 0)), ()))

    def _expire(self, leading: Leading, worker: str, part: Part) -> None:
        failpoint("worker.expire.before")
        try:
            self.picture.store.transact([leading.check(), *part.checks], [*part.writes, Delete(WORKERS, worker)])
        except Conflict:
            return
        failpoint("worker.expire.after")
        self._all_s = None
        if worker in self.picture.workers():
            LOG.warning("a worker is gone", extra={"worker": worker})


def alive_here(process: ProcessRef) -> bool | None:
    """Whether a process lives; None where it cannot be seen from this host."""
    return is_alive(process) if process.host == socket.gethostname() else None
