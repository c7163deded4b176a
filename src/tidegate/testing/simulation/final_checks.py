"""What must be true in the end, when the world has been kind for a while. Called by the world; asks
the store and the checker's memory.

Four waits, each bounded: until every job is at rest or healthy; until the jobs that run without an
end have been stopped; until what they left has been cleaned up and the history has expired; then
nothing may be left.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidegate.coordinator.cluster_cache import ClusterCache
from tidegate.model.document import from_document
from tidegate.model.job import BlockKind, JobMode
from tidegate.model.records import (
    ASSIGNMENTS,
    CHECKPOINT_HISTORY,
    DRIVERS,
    HEARTBEATS,
    JOB_NAMES,
    JOB_OUTCOMES,
    JOB_STATES,
    LEASES,
    METRICS,
    PENDING_CLEANUPS,
    PIPELINES,
    RUNNING_JOBS,
    SAVEPOINTS,
    SERVERS,
    TERMINAL,
    WORKERS,
    CheckpointHealth,
    DesiredState,
    JobRecord,
    JobStatus,
    SavepointStatus,
)
from tidegate.testing.simulation.backend import QuickStore
from tidegate.testing.simulation.checkers import Incarnation
from tidegate.testing.simulation.connectors import MemoryTable, expected

if TYPE_CHECKING:
    from tidegate.testing.simulation.cluster import SimulatedCluster

REST_WITHIN_S = 250.0
STOP_WITHIN_S = 150.0
TIDY_WITHIN_S = 330.0
LOOK_S = 1.0
LINGERING = 0.15  # of the worlds
LINGER_S = 70.0
AGAIN = 0.3  # of the worlds
AGAIN_S = 20.0
KIND_LEISURE = 1.4  # turns are as much rarer while nothing goes wrong: worlds are many
MAPS = (
    RUNNING_JOBS,
    JOB_STATES,
    PIPELINES,
    METRICS,
    CHECKPOINT_HISTORY,
    PENDING_CLEANUPS,
    JOB_OUTCOMES,
    JOB_NAMES,
    ASSIGNMENTS,
    DRIVERS,
    SAVEPOINTS,
)


class FinalChecks:
    """The end of one world."""

    def __init__(self, cluster: "SimulatedCluster") -> None:
        self.cluster = cluster
        self.again = False  # the ids have been used once more

    def begin(self) -> None:
        """The world has just become kind."""
        self.cluster.leisure = KIND_LEISURE
        self._until(self._unrested, REST_WITHIN_S, self._rested)

    def _until(
        self, open_questions: Callable[[], list[str]], within_s: float, then: Callable[[], None]
    ) -> None:
        cluster, end_s = self.cluster, self.cluster.scheduler.now_s + within_s

        def look() -> None:
            left = open_questions()
            if not left:
                return then()
            if cluster.scheduler.now_s > end_s:
                cluster.broken(f"not within {within_s:.0f} quiet seconds: {'; '.join(left[:4])}")
            cluster.scheduler.at(cluster.scheduler.now_s + LOOK_S, cluster.event(look))

        cluster.scheduler.at(cluster.scheduler.now_s + LOOK_S, cluster.event(look))

    def _unrested(self) -> list[str]:
        """Jobs that are neither ended, nor healthy, nor waiting for a slot with a reason."""
        left = [
            f"{actor.name} has not been answered"
            for actor in self.cluster.users.waiting
            if actor.owner.alive
        ]
        for key, row in self.cluster.backend.entries.get(RUNNING_JOBS, {}).items():
            state = self.cluster.backend.read(JOB_STATES, key)
            desired = DesiredState(row.value["intent"]["wish"])
            if (
                state is None
                or desired is not DesiredState.RUN
                or not self._settled(key, state.value, row.value)
            ):
                left.append(
                    f"job {key} is {state.value['status'] if state else 'without a state'}"
                    f" ({state.value['reason'] if state else ''}), wanted: {desired}"
                )
        return left

    def _settled(self, key: str, state: dict[str, Any], record: dict[str, Any]) -> bool:
        if state["status"] == JobStatus.PENDING:
            return "slots" in str(state["reason"])
        streaming = record["plan"]["env"]["mode"] == JobMode.STREAMING
        driver = self.cluster.backend.read(DRIVERS, key)
        lives = (
            driver is not None
            and driver.value["generation"] == state["generation"]
            and self.cluster.drivers[driver.value["process"]["pid"]].alive
        )
        hangs = record["plan"]["env"]["custom_parameters"]["fault_plan"] == "hanging"
        return (
            state["status"] == JobStatus.RUNNING
            and streaming
            and state["health"] == CheckpointHealth.OK
            and lives
            and not hangs
        )

    def _rested(self) -> None:
        self.nothing_ended_is_listed()
        self.cluster.note("WORLD", "all jobs are at rest or healthy")
        if self.cluster.rng.random() < LINGERING:
            self.cluster.scheduler.at(
                self.cluster.scheduler.now_s + LINGER_S, self.cluster.event(self._still_rested)
            )
        else:
            self._stop()

    def _still_rested(self) -> None:
        """Nothing happened for longer than the history lasts: nothing may have changed."""
        if left := self._unrested():
            self.cluster.broken(f"was at rest or healthy, and is not any more: {left[0]}")
        self._stop()

    def _stop(self) -> None:
        self._stop_again()
        self._until(self._unstopped, STOP_WITHIN_S, self._stopped)

    def _stop_again(self) -> None:
        """People repeat themselves until it is done: a job may come to its turn only after another
        one has ended.
        """
        if self.cluster.backend.entries.get(RUNNING_JOBS):
            self.cluster.users.stop_all()
            self.cluster.scheduler.at(
                self.cluster.scheduler.now_s + 10.0, self.cluster.event(self._stop_again)
            )

    def _unstopped(self) -> list[str]:
        jobs = [
            f"job {key} is still there"
            for key in self.cluster.backend.entries.get(RUNNING_JOBS, {})
        ]
        return jobs or [f"{d.name} still lives" for d in self.cluster.drivers.values() if d.alive]

    def _stopped(self) -> None:
        self.nothing_ended_is_listed()
        self._every_wish_was_granted()
        self._every_savepoint_was_answered()
        self._nothing_fails_without_a_reason()
        self._rows_are_exact()
        self.cluster.note("WORLD", "all jobs have ended")
        self.cluster.leisure = 4.0
        self.cluster.server_count = self.cluster.worker_count = 1
        for processes in (self.cluster.servers, self.cluster.workers):
            for process in [p for p in processes if p.alive][1:]:
                self.cluster.kill(process, "no longer needed")
        self._until(self._untidy, TIDY_WITHIN_S, self._tidy)

    def _untidy(self) -> list[str]:
        entries = self.cluster.backend.entries
        left = [f"{map}/{key}" for map in MAPS for key in entries.get(map, {})]
        named = {w.name for w in self.cluster.workers if w.alive}
        left += [f"{WORKERS}/{key}" for key in entries.get(WORKERS, {}) if key not in named]
        serving = {s.name for s in self.cluster.servers if s.alive}
        left += [f"{SERVERS}/{key}" for key in entries.get(SERVERS, {}) if key not in serving]
        offices = {"coordinator", *(f"worker/{name}" for name in named)}
        return left + [
            f"{map}/{key}"
            for map in (LEASES, HEARTBEATS)
            for key in entries.get(map, {})
            if key not in offices
        ]

    def _tidy(self) -> None:
        self.cluster.note("WORLD", "nothing is left")
        self._checkpoints_are_owned()
        if self.again or self.cluster.rng.random() >= AGAIN:
            return self.cluster.scheduler.end()
        self.again = True
        self.cluster.leisure = KIND_LEISURE
        self.cluster.users.submit_again()
        self.cluster.scheduler.at(
            self.cluster.scheduler.now_s + AGAIN_S,
            self.cluster.event(lambda: self._until(self._unrested, REST_WITHIN_S, self._stop)),
        )

    # -- the questions

    def nothing_ended_is_listed(self) -> None:
        """Checked with a cluster cache, as every server has one, and the API's rule."""
        from tidegate.api.running_jobs import running_jobs

        cache = ClusterCache(QuickStore(self.cluster.backend), self.cluster.hosts[0].clock)
        cache.refresh()
        for job in running_jobs(cache):
            if job.state.status in TERMINAL:
                self.cluster.broken(f"job {job.state.job_id} has ended and is listed")

    def _every_wish_was_granted(self) -> None:
        checker = self.cluster.checker
        for accepted in self.cluster.users.accepted:
            known = checker.incarnations.get((accepted.job_id, accepted.initialization_ms))
            if known is None or not known.ended:
                self.cluster.broken(f"job {accepted.job_id} was accepted and never came to an end")
        for incarnation in checker.incarnations.values():
            if not incarnation.ended:
                self.cluster.broken(
                    f"an incarnation of job {incarnation.job_id} never came to an end"
                )

    def _every_savepoint_was_answered(self) -> None:
        """Done once, and still there; or given up, with the reason."""
        for known in self.cluster.checker.savepoints.values():
            whole = (known.job_id, known.id) in self.cluster.savepoints.sealed
            if known.status == SavepointStatus.WANTED:
                self.cluster.broken(
                    f"savepoint {known.id} of job {known.job_id} was asked for, and nobody has said"
                    " what became of it"
                )
            if known.status == SavepointStatus.DONE and not whole:
                self.cluster.broken(
                    f"savepoint {known.id} of job {known.job_id} is done, and is not there"
                )

    def _checkpoints_are_owned(self) -> None:
        """What can be resumed keeps its checkpoints; of anything else none is left."""
        last = {i.job_id: i for i in self.cluster.checker.incarnations.values()}
        for path in self.cluster.storage.directories:
            job_id = int(path.partition("/")[0])
            if not last[job_id].resumable:
                self.cluster.broken(
                    f"checkpoint {path} is left, and job {job_id} ended as {last[job_id].ended}"
                )

    def _nothing_fails_without_a_reason(self) -> None:
        """What was begun in a kind world, and behaves, comes to a good end, whatever there was
        under its id before.
        """
        for incarnation in self.cluster.checker.incarnations.values():
            fault_plan = incarnation.document["plan"]["env"]["custom_parameters"]["fault_plan"]
            behaves = fault_plan in ("good", "flaky", "deaf")
            if (
                incarnation.began_s > self.cluster.kind_s
                and behaves
                and incarnation.ended == JobStatus.FAILED
            ):
                self.cluster.broken(f"job {incarnation.job_id} failed in a kind world")

    def _rows_are_exact(self) -> None:
        for (lineage, pipeline), initial in self.cluster.checker.initial.items():
            finished = self.cluster.checker.finished_lineages.get(lineage)
            if finished is not None:
                self._finished(finished, lineage, pipeline, initial)
        for (lineage, pipeline, sink), shelf in self.cluster.target.shelves.items():
            rows = [i for ids in shelf.rows.values() for i in ids]
            if len(rows) != len(set(rows)):
                self.cluster.broken(f"{sink} of {lineage}/{pipeline} holds rows twice")

    def _finished(
        self,
        incarnation: Incarnation,
        lineage: str,
        pipeline: int,
        initial: dict[str, dict[str, int]],
    ) -> None:
        job = from_document(JobRecord, incarnation.document)
        if job.plan.env.mode is JobMode.STREAMING:
            self.cluster.broken(f"job {job.job_id} has no end, and has finished")
        plan = next(p for p in job.plan.pipelines if p.id == pipeline)
        for sink in plan.of_kind(BlockKind.SINK):
            held = sorted(
                i
                for ids in self.cluster.target.shelves.get(
                    (lineage, pipeline, sink.operator), MemoryTable()
                ).rows.values()
                for i in ids
            )
            wanted = expected(job, pipeline, initial)
            if held != wanted:
                lost, strange = sorted(set(wanted) - set(held)), sorted(set(held) - set(wanted))
                self.cluster.broken(
                    f"{sink.operator} of job {job.job_id}/{pipeline}: {len(held)} rows of"
                    f" {len(wanted)}; lost {lost[:5]}, strange {strange[:5]}"
                )
