"""What must hold at every transaction that the store takes. Called by the world's store with what
was there before and after; says what was broken.

It knows the truth that nobody in the world knows: which processes live, when they last wrote, and
who holds which office.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidegate.coordinator.cluster_cache import COORDINATOR
from tidegate.coordinator.commands import STRENGTH
from tidegate.lifecycle.machine import STATES as MACHINE
from tidegate.model.records import (
    ASSIGNMENTS,
    CHECKPOINT_HISTORY,
    DRIVERS,
    HEARTBEATS,
    JOB_OUTCOMES,
    JOB_STATES,
    LEASES,
    METRICS,
    PENDING_CLEANUPS,
    PIPELINES,
    RUNNING_JOBS,
    SAVEPOINTS,
    TERMINAL,
    DesiredState,
    JobStatus,
    SavepointStatus,
)
from tidegate.testing.simulation.backend import ReadRow
from tidegate.testing.simulation.processes import (
    Process,
    ServerProcess,
    SimulatedDriver,
    WorkerProcess,
)
from tidegate.testing.simulation.scheduler import Actor

if TYPE_CHECKING:
    from tidegate.testing.simulation.cluster import SimulatedCluster

Row = ReadRow | None
Seen = Mapping[tuple[str, str], tuple[Row, Row]]
STOPS = (DesiredState.CANCEL, DesiredState.FORCE_STOP)
CLOCKS = 1.06  # how much faster than the truth a clock may run


@dataclass(eq=False)
class Incarnation:
    """One submission of a job, as the store has seen it."""

    job_id: int
    initialization_ms: int
    document: dict[str, Any]
    began_s: float
    ended: str = ""
    resumable: bool = False
    desired: str = DesiredState.RUN
    row_failures: int = 0  # deaths of drivers without progress between them
    progress: int = 0
    progress_counted: int = -1


@dataclass(eq=False)
class RequestedSavepoint:
    """A savepoint that somebody has asked for, as the store has seen it."""

    job_id: int
    id: str
    initialization_ms: int
    stop: bool
    status: str = SavepointStatus.WANTED
    forgotten: bool = (
        False  # by the store, with the history of the job, and the storage has nothing of it
    )


@dataclass(eq=False)
class Checker:
    """Judges every transaction of one world."""

    cluster: "SimulatedCluster"
    incarnations: dict[tuple[int, int], Incarnation] = field(default_factory=dict)
    submitted: dict[Actor, tuple[int, int]] = field(default_factory=dict)
    begun: dict[tuple[str, str, int], Any] = field(default_factory=dict)
    completed_by: dict[tuple[str, str, int], int] = field(default_factory=dict)
    initial: dict[tuple[str, int], Any] = field(default_factory=dict)  # by lineage and pipeline
    heard_s: dict[int, float] = field(default_factory=dict)  # last heartbeat of each driver, by pid
    beat_s: dict[str, float] = field(default_factory=dict)  # when a holder last did, by office
    finished_lineages: dict[str, Incarnation] = field(default_factory=dict)
    by_hand: set[int] = field(default_factory=set)  # jobs whose entries somebody wrote by hand
    transactions: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    savepoints: dict[tuple[int, str], RequestedSavepoint] = field(default_factory=dict)

    def see(self, seen: Seen) -> None:
        self.transactions += 1
        actor = self.cluster.writer()
        if actor is None:
            return  # somebody's hand
        for (map, key), (before, after) in seen.items():
            judge = JUDGES.get(map)
            if judge is not None:
                judge(self, actor, key, before, after, seen)

    def broken(self, what: str) -> None:
        self.cluster.broken(what)

    def row(self, map: str, key: str) -> Row:
        """What the store has now."""
        return self.cluster.backend.read(map, key)

    def gone(self, path: str) -> None:
        """A checkpoint is being deleted: nobody may need it any more."""
        job, pipeline, checkpoint = path.split("/")
        place, state, cleanup = (
            self.row(PIPELINES, f"{job}/{pipeline}"),
            self.row(JOB_STATES, job),
            self.row(PENDING_CLEANUPS, job),
        )
        if place is None or path not in {ref["path"] for ref in place.value["retained"]}:
            return
        ended = state is None or state.value["status"] in TERMINAL
        if not (
            ended and cleanup is not None and cleanup.value["checkpoints_below"] > int(checkpoint)
        ):
            self.broken(f"checkpoint {path} is retained, and was deleted")

    def leads(self, actor: Actor, what: str) -> None:
        """Whoever writes this must hold the office of the leader at this moment."""
        lease = self.row(LEASES, COORDINATOR)
        holder = lease.value["holder"] if lease else "nobody"
        name = actor.owner.name if isinstance(actor.owner, Process) else ""
        if holder != name:
            self.broken(f"{actor.name} wrote {what} while {holder} held the office")

    def count(self, what: str) -> None:
        """For the report: a simulation in which nothing happens proves nothing."""
        self.counts[what] = self.counts.get(what, 0) + 1

    # -- running-job-state

    def state(self, actor: Actor, key: str, before: Row, after: Row, seen: Seen) -> None:
        """Terminal stays terminal, generations grow, steps are legal, starts are wanted."""
        if not _by_command(actor):
            self.leads(actor, f"the state of job {key}")
        if after is None:
            assert before is not None
            if before.value["status"] not in TERMINAL or self.row(RUNNING_JOBS, key) is not None:
                self.broken(
                    f"the state of job {key} was deleted while it was {before.value['status']}"
                )
            return
        old, new = before.value if before else None, after.value
        if old is not None and new["generation"] < old["generation"]:
            self.broken(
                f"the generation of job {key} went back from {old['generation']} to"
                f" {new['generation']}"
            )
        if old is None or old["initialization_ms"] != new["initialization_ms"]:
            self._new_state(actor, key, old, new)
        elif old["status"] in TERMINAL:
            if old["status"] != new["status"] or (old != new and int(key) not in self.by_hand):
                self.broken(f"job {key} had ended as {old['status']} and became {new['status']}")
        elif old["status"] != new["status"]:
            self._moved(key, old, new, seen)
        incarnation = self.incarnations.get((int(key), new["initialization_ms"]))
        if (
            incarnation is not None
            and new["restarts"] > incarnation.document["plan"]["env"]["retry_times"]
        ):
            self.broken(f"job {key} has been restarted {new['restarts']} times")

    def _new_state(
        self, actor: Actor, key: str, old: dict[str, Any] | None, new: dict[str, Any]
    ) -> None:
        if new["status"] == JobStatus.UNKNOWABLE and int(key) in self.by_hand:
            return
        if not _by_command(actor) or new["status"] != JobStatus.CREATED:
            self.broken(f"{actor.name} made a state of job {key}: {new['status']}")
        if old is not None and old["status"] not in TERMINAL:
            self.broken(f"job {key} was {old['status']} and got a new incarnation")
        if old is not None and old["initialization_ms"] >= new["initialization_ms"]:
            self.broken(f"the new incarnation of job {key} is older than the last")

    def _moved(self, key: str, old: dict[str, Any], new: dict[str, Any], seen: Seen) -> None:
        status = JobStatus(new["status"])
        self.count(status)
        self.cluster.note(
            f"job {key}",
            f"{old['status']} -> {status}, generation {new['generation']}, restarts"
            f" {new['restarts']}: {new['reason']}",
        )
        if status not in MACHINE[JobStatus(old["status"])].GOES_TO:
            self.broken(f"job {key} went from {old['status']} to {status}")
        incarnation = self.incarnations[int(key), new["initialization_ms"]]
        if status is JobStatus.SCHEDULED:
            self._started(key, old, new, incarnation)
        if status is JobStatus.RECOVERING and old["status"] != JobStatus.PENDING:
            self._counted(key, old, incarnation)
        if status.terminal:
            self._ended(key, new, incarnation, seen)

    def _started(
        self, key: str, old: dict[str, Any], new: dict[str, Any], incarnation: Incarnation
    ) -> None:
        if new["generation"] <= old["generation"]:
            self.broken(f"job {key} was started again under generation {old['generation']}")
        if incarnation.desired in STOPS:
            self.broken(f"job {key} was started although it was to stop")
        if incarnation.ended:
            self.broken(f"job {key} was started after it had ended")
        worker = self._worker_of(key)
        taken = sum(
            isinstance(row, ReadRow) and row.value["worker"] == worker
            for row in self.cluster.backend.scan(ASSIGNMENTS, "")
        )
        if taken > self.cluster.slots:
            self.count("overbooked")  # adopted drivers may be more than there are slots for
        stale = [
            p
            for p in self.cluster.backend.scan(PIPELINES, f"{key}/")
            if isinstance(p, ReadRow) and p.value["generation"] != new["generation"]
        ]
        if stale:
            self.broken(
                f"generation {new['generation']} of job {key} was started, and its pipelines are of"
                f" generation {stale[0].value['generation']}"
            )

    def _worker_of(self, key: str) -> str:
        assignment = self.row(ASSIGNMENTS, key)
        return str(assignment.value["worker"]) if assignment else ""

    def _counted(self, key: str, old: dict[str, Any], incarnation: Incarnation) -> None:
        """Restarts without progress, counted by us: the budget must hold whatever the leaders
        remember.
        """
        driver = self.row(DRIVERS, key)
        statuses = {
            p.value["status"]
            for p in self.cluster.backend.scan(PIPELINES, f"{key}/")
            if isinstance(p, ReadRow)
        }
        if (
            driver is None
            or driver.value["generation"] != old["generation"]
            or (statuses <= {"CANCELED", "FINISHED"} and "CANCELED" in statuses)
        ):
            return
        moved_on = incarnation.progress != incarnation.progress_counted
        incarnation.row_failures = 1 if moved_on else incarnation.row_failures + 1
        incarnation.progress_counted = incarnation.progress
        if incarnation.row_failures > incarnation.document["plan"]["env"]["retry_times"]:
            self.broken(
                f"job {key} was restarted {incarnation.row_failures} times in a row without"
                " getting on"
            )

    def _ended(self, key: str, new: dict[str, Any], incarnation: Incarnation, seen: Seen) -> None:
        outcome, cleanup = (
            seen.get((JOB_OUTCOMES, key), (None, None))[1],
            self.row(PENDING_CLEANUPS, key),
        )
        if outcome is None or (outcome.value["status"], outcome.value["initialization_ms"]) != (
            new["status"],
            new["initialization_ms"],
        ):
            self.broken(f"job {key} ended as {new['status']} without an outcome that says so")
        if cleanup is None or cleanup.value["initialization_ms"] != new["initialization_ms"]:
            self.broken(f"job {key} ended and nobody is to clean up after it")
        if self.row(RUNNING_JOBS, key) is not None or self.row(ASSIGNMENTS, key) is not None:
            self.broken(f"job {key} ended and is still listed or assigned")
        if incarnation.ended:
            self.broken(f"job {key} ended twice: {incarnation.ended}, {new['status']}")
        request = self.row(SAVEPOINTS, key)
        saved = (
            request is not None
            and request.value["initialization_ms"] == new["initialization_ms"]
            and request.value["stop"]
        )
        if new["status"] == JobStatus.SAVEPOINT_DONE and not (
            saved and request is not None and request.value["status"] == SavepointStatus.DONE
        ):
            self.broken(f"job {key} ended with a savepoint that is not there")
        incarnation.ended, incarnation.resumable = (
            new["status"],
            cleanup is not None and cleanup.value["resumable"],
        )
        if outcome is not None and new["status"] == JobStatus.FINISHED:
            wanted = sum(
                a["options"].get("rows", 0)
                for p in incarnation.document["plan"]["pipelines"]
                for a in p["actions"]
            )
            if outcome.value["rows_read"] != wanted:
                self.broken(
                    f"job {key} says that it has read {outcome.value['rows_read']} rows of {wanted}"
                )
            self.finished_lineages[incarnation.document["lineage"]] = incarnation

    # -- running-job-info

    def job(self, actor: Actor, key: str, before: Row, after: Row, _: Seen) -> None:
        """Check that an incarnation is created once, that its desired state only gets stronger, and
        that only the leader removes it.
        """
        if after is None:
            return self.leads(actor, f"the end of job {key}")
        if not _by_command(actor):
            self.broken(f"{actor.name} wrote the record of job {key}, which is for commands only")
        name = (int(key), after.value["initialization_ms"])
        if before is None:
            if name in self.incarnations or actor in self.submitted:
                self.broken(f"one submit made two incarnations of job {key}, or one twice")
            self.submitted[actor] = name
            self.incarnations[name] = Incarnation(*name, after.value, self.cluster.scheduler.now_s)
            self.count("submitted")
        elif before.value["initialization_ms"] != after.value["initialization_ms"]:
            return self.broken(f"job {key} was submitted over the incarnation that runs")
        desired = DesiredState(after.value["intent"]["wish"])
        known = self.incarnations.get(name)
        if known is None or known.ended:
            return  # made by hand
        if STRENGTH[desired] < STRENGTH[DesiredState(known.desired)] or (
            before is None and desired is not DesiredState.RUN
        ):
            self.broken(f"what was wanted of job {key} became {desired} after {known.desired}")
        if desired != known.desired:
            self.count("stop requests")
        known.desired = desired

    # -- running-pipeline-state

    def pipeline(self, actor: Actor, key: str, before: Row, after: Row, seen: Seen) -> None:
        """One generation at a time; ids grow; a batch is begun once, with one range, and completed
        by one generation.
        """
        if after is None:
            return self.left(actor, key, before, after, seen)
        writer, new, old = actor.owner, after.value, before.value if before else None
        if isinstance(writer, SimulatedDriver) and (
            old is None or not writer.order.generation == old["generation"] == new["generation"]
        ):
            self.broken(
                f"{actor.name} wrote pipeline {key}, which is of generation"
                f" {old['generation'] if old else None}"
            )
        if isinstance(writer, ServerProcess) and not _by_command(actor):
            self.leads(actor, f"pipeline {key}")
        if old is None:
            return
        if new["generation"] < old["generation"] or new["next_checkpoint"] < old["next_checkpoint"]:
            self.broken(
                f"pipeline {key} went back: generation {old['generation']}, {new['generation']};"
                f" ids {old['next_checkpoint']}, {new['next_checkpoint']}"
            )
        if isinstance(writer, SimulatedDriver):
            self._progress(key, old, new)
        if old["lineage"] == new["lineage"]:
            self._continued(key, old, new)

    def _continued(self, key: str, old: dict[str, Any], new: dict[str, Any]) -> None:
        if new["initial"] is not None:
            self._began(key, new)
        if new["pending"] is not None:
            self._pending(key, new)
        known = {ref["checkpoint"] for ref in old["retained"]}
        for ref in new["retained"]:
            if ref["checkpoint"] not in known:
                self._completed(key, old, new, ref)

    def _progress(self, key: str, old: dict[str, Any], new: dict[str, Any]) -> None:
        if old["checkpoints"] == new["checkpoints"] and old["confirmed_ms"] == new["confirmed_ms"]:
            return
        state = self.row(JOB_STATES, key.partition("/")[0])
        incarnation = (
            self.incarnations.get((new["job_id"], state.value["initialization_ms"]))
            if state
            else None
        )
        if incarnation is not None:
            incarnation.progress += 1

    def _began(self, key: str, new: dict[str, Any]) -> None:
        name = (new["lineage"], new["pipeline"])
        if self.initial.setdefault(name, new["initial"]) != new["initial"]:
            self.broken(f"the sources of pipeline {key} began twice")

    def _pending(self, key: str, new: dict[str, Any]) -> None:
        pending = new["pending"]
        if (
            self.begun.setdefault((new["lineage"], key, pending["checkpoint"]), pending["ranges"])
            != pending["ranges"]
        ):
            self.broken(f"batch {pending['checkpoint']} of pipeline {key} got other ranges")

    def _completed(
        self, key: str, old: dict[str, Any], new: dict[str, Any], ref: dict[str, Any]
    ) -> None:
        name = (new["lineage"], key, ref["checkpoint"])
        self.count("checkpoints")
        if self.completed_by.setdefault(name, ref["generation"]) != ref["generation"]:
            self.broken(
                f"checkpoint {name} was completed by generations {self.completed_by[name]} and"
                f" {ref['generation']}"
            )
        if old["pending"] is None or old["pending"]["checkpoint"] != ref["checkpoint"]:
            self.broken(f"checkpoint {name} was completed without having begun")
        if ref["path"] not in self.cluster.storage.directories:
            self.broken(f"checkpoint {name} was completed and is not there")

    # -- drivers, assignments, leases, what is left

    def driver(self, actor: Actor, key: str, before: Row, after: Row, seen: Seen) -> None:
        """A driver registers only for the current generation, beside no other; its end is true, or
        there was silence for a lease.
        """
        if after is None:
            return self.left(actor, key, before, after, seen)
        new, old = after.value, before.value if before else None
        if old is not None and old["generation"] > new["generation"]:
            self.broken(
                f"the driver of job {key} went back from generation {old['generation']} to"
                f" {new['generation']}"
            )
        if (
            old is not None
            and old["generation"] == new["generation"]
            and old["process"] != new["process"]
        ):
            self.broken(f"generation {new['generation']} of job {key} got a second driver")
        if isinstance(actor.owner, SimulatedDriver):
            self._registered(actor.owner, key, new)
        elif new["end"] is not None and (
            old is None or old["end"] is None or old["generation"] != new["generation"]
        ):
            self._buried(actor, key, new)

    def _registered(self, driver: SimulatedDriver, key: str, new: dict[str, Any]) -> None:
        state = self.row(JOB_STATES, key)
        self.heard_s[driver.number] = self.cluster.scheduler.now_s
        if (
            state is None
            or state.value["generation"] != new["generation"]
            or state.value["status"] in TERMINAL
        ):
            self.broken(
                f"{driver.name} registered, and the job is"
                f" {state.value['status'] if state else 'gone'}"
            )
        for other in self.cluster.drivers.values():
            if (
                other is not driver
                and other.alive
                and other.registered
                and other.order.job_id == driver.order.job_id
                and not other.excused
            ):
                self.broken(f"{driver.name} registered while {other.name} lives")

    def _buried(self, actor: Actor, key: str, new: dict[str, Any]) -> None:
        driver, proof = self.cluster.drivers[new["process"]["pid"]], new["end"]["proof"]
        self.count(f"ended: {proof}")
        if proof != "lease expired":
            if driver.alive:
                self.broken(
                    f"{actor.name} reports the death of {driver.name} ({proof}), which lives"
                )
            return
        self.leads(actor, f"the end of {driver.name}")
        silent_s = self.cluster.scheduler.now_s - self.heard_s.get(driver.number, 0.0)
        if driver.alive and silent_s < self.cluster.settings.worker.lease_ms / 1000 / CLOCKS:
            self.broken(
                f"{driver.name} of job {key} counts as dead after a silence of {silent_s:.2f} s"
            )
        driver.excused = True

    def metrics(self, actor: Actor, key: str, before: Row, after: Row, seen: Seen) -> None:
        """Figures are signs of life, of registered drivers only."""
        if after is None:
            return self.left(actor, key, before, after, seen)
        assert isinstance(actor.owner, SimulatedDriver)
        driver = self.row(DRIVERS, key.partition("/")[0])
        if (
            driver is None
            or driver.value["process"]["pid"] != actor.owner.number
            or driver.value["end"] is not None
        ):
            self.broken(f"{actor.name} wrote figures without being the driver on record")
        self.heard_s[actor.owner.number] = self.cluster.scheduler.now_s

    def assignment(self, actor: Actor, key: str, _before: Row, after: Row, _seen: Seen) -> None:
        """The leader's, and of a job that is there."""
        self.leads(actor, f"the assignment of job {key}")
        job = self.row(RUNNING_JOBS, key)
        if after is not None and (
            job is None or job.value["initialization_ms"] != after.value["initialization_ms"]
        ):
            self.broken(f"job {key} was assigned and is not there, or is another incarnation")

    def lease(self, actor: Actor, key: str, before: Row, after: Row, _: Seen) -> None:
        """An office is taken from its holder only after a whole lease of silence; terms grow."""
        name = actor.owner.name if isinstance(actor.owner, Process) else ""
        old, new = before.value if before else None, after.value if after else None
        if old is not None and new is not None and new["term"] <= old["term"]:
            self.broken(f"the term of {key} went from {old['term']} to {new['term']}")
        if new is not None:
            self.count("terms" if key == COORDINATOR else "worker terms")
        if old is None or old["holder"] == name:
            return
        settings = self.cluster.settings
        lease_s = (
            settings.coordinator.lease_ms if key == COORDINATOR else settings.worker.lease_ms
        ) / 1000
        silent_s = self.cluster.scheduler.now_s - self.beat_s.get(key, 0.0)
        if silent_s < lease_s / CLOCKS:
            self.broken(
                f"{actor.name} took {key} from {old['holder']} after a silence of {silent_s:.2f} s"
            )

    def beat(self, actor: Actor, key: str, _before: Row, after: Row, _seen: Seen) -> None:
        lease = self.row(LEASES, key)
        if after is None:
            return
        if (
            lease is None
            or not isinstance(actor.owner, Process)
            or lease.value["holder"] != actor.owner.name
        ):
            self.broken(f"{actor.name} renewed {key}, which it does not hold")
        self.beat_s[key] = self.cluster.scheduler.now_s

    def left(self, actor: Actor, key: str, _before: Row, after: Row, seen: Seen) -> None:
        """What belongs to a job is not taken away while an incarnation of it is there."""
        if after is not None:
            return
        job = key.partition("/")[0]
        record, made = self.row(RUNNING_JOBS, job), seen.get((RUNNING_JOBS, job))
        if record is not None and made is None:
            self.broken(f"{actor.name} deleted {key} of a job that is there")
        if isinstance(actor.owner, WorkerProcess | SimulatedDriver):
            self.broken(f"{actor.name} deleted {key}")
        elif not _by_command(actor):
            self.leads(actor, f"the end of {key}")

    def cleanup(self, actor: Actor, key: str, _before: Row, after: Row, _seen: Seen) -> None:
        """Made by whoever ends a job or begins it anew; carried out by the leader."""
        if after is None or not _by_command(actor):
            self.leads(actor, f"the cleanup of job {key}")

    def savepoint(self, actor: Actor, key: str, before: Row, after: Row, seen: Seen) -> None:
        """Asked for by commands, under a new id each; answered once, by the driver of this
        generation or by the leader; never forgotten before.
        """
        if after is None:
            self._forget_savepoints(int(key))
            return self.left(actor, key, before, after, seen)
        new = after.value
        known = self.savepoints.get((int(key), new["id"]))
        if known is None or known.forgotten:
            return self._asked(actor, key, new)
        if known.status != SavepointStatus.WANTED:
            return self.broken(
                f"savepoint {known.id} of job {key} was {known.status}, and was touched again"
            )
        if new["stop"] != known.stop and (known.stop or not _by_command(actor)):
            self.broken(f"{actor.name} changed whether job {key} ends with savepoint {known.id}")
        known.stop, known.status = new["stop"], new["status"]
        if known.status != SavepointStatus.WANTED:
            self._answered(actor, key, new)

    def _forget_savepoints(self, job_id: int) -> None:
        for known in self.savepoints.values():
            if (
                known.job_id == job_id
                and known.status != SavepointStatus.WANTED
                and not self.cluster.savepoints.stands(job_id, known.id)
            ):
                known.forgotten = True

    def _asked(self, actor: Actor, key: str, new: dict[str, Any]) -> None:
        if (
            not _by_command(actor)
            or new["status"] != SavepointStatus.WANTED
            or self.row(RUNNING_JOBS, key) is None
        ):
            self.broken(f"{actor.name} made a request for savepoint {new['id']} of job {key}")
        for other in self.savepoints.values():
            if other.job_id == int(key) and other.status == SavepointStatus.WANTED:
                self.broken(
                    f"savepoint {other.id} of job {key} was wanted, and {new['id']} took its place"
                )
            # Clocks step back: ids grow among those that the store or the storage has, and one that
            # came to nothing is forgotten in the end.
            if other.job_id == int(key) and not other.forgotten and int(other.id) >= int(new["id"]):
                self.broken(f"savepoint {new['id']} of job {key} came after {other.id}")
        self.count("savepoints")
        self.savepoints[int(key), new["id"]] = RequestedSavepoint(
            int(key), new["id"], new["initialization_ms"], new["stop"]
        )

    def _answered(self, actor: Actor, key: str, new: dict[str, Any]) -> None:
        self.count(f"savepoint: {new['status']}")
        if isinstance(actor.owner, SimulatedDriver):
            state = self.row(JOB_STATES, key)
            if state is None or state.value["generation"] != actor.owner.order.generation:
                self.broken(
                    f"{actor.name} answered for savepoint {new['id']} of job {key}, which it does"
                    " not drive any more"
                )
        else:
            self.leads(actor, f"savepoint {new['id']} of job {key}")
            if new["status"] == SavepointStatus.DONE:
                self.broken(
                    f"{actor.name} says that savepoint {new['id']} of job {key} is done, which only"
                    " its driver can know"
                )
        if new["status"] == SavepointStatus.FAILED and not new["reason"]:
            self.broken(f"savepoint {new['id']} of job {key} failed, and nobody says why")
        if new["status"] == SavepointStatus.DONE:
            self._whole(key, new)

    def _whole(self, key: str, new: dict[str, Any]) -> None:
        """Every pipeline is in it, with a checkpoint that was completed."""
        parts = self.cluster.savepoints.sealed.get((int(key), new["id"]))
        pipelines = [
            p.value
            for p in self.cluster.backend.scan(PIPELINES, f"{key}/")
            if isinstance(p, ReadRow)
        ]
        if parts is None or {p["pipeline"] for p in pipelines} - set(parts):
            return self.broken(
                f"savepoint {new['id']} of job {key} is done, and not all of it is there"
            )
        for pipeline in pipelines:
            name = (
                pipeline["lineage"],
                f"{key}/{pipeline['pipeline']}",
                parts[pipeline["pipeline"]],
            )
            if name not in self.completed_by:
                self.broken(
                    f"savepoint {new['id']} of job {key} holds checkpoint {name}, which was never"
                    " completed"
                )

    def outcome(self, actor: Actor, key: str, _before: Row, _after: Row, _seen: Seen) -> None:
        self.leads(actor, f"the outcome of job {key}")


def _by_command(actor: Actor) -> bool:
    return actor.name.endswith(".command")


Judge = Callable[[Checker, Actor, str, Row, Row, Seen], None]
JUDGES: dict[str, Judge] = {
    JOB_STATES: Checker.state,
    RUNNING_JOBS: Checker.job,
    PIPELINES: Checker.pipeline,
    DRIVERS: Checker.driver,
    METRICS: Checker.metrics,
    CHECKPOINT_HISTORY: Checker.left,
    ASSIGNMENTS: Checker.assignment,
    LEASES: Checker.lease,
    HEARTBEATS: Checker.beat,
    JOB_OUTCOMES: Checker.outcome,
    SAVEPOINTS: Checker.savepoint,
    PENDING_CLEANUPS: Checker.cleanup,
}
