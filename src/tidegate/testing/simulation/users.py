"""The people of a simulated world: they submit, stop, repeat themselves at other servers, and write
by hand into the store. What they were told is kept.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate.coordinator.commands import STRENGTH
from tidegate.coordinator.restore.options import RestoreOptions, RestoreSource
from tidegate.model.document import to_document
from tidegate.model.errors import TransientError, UserError
from tidegate.model.plan import Plan
from tidegate.model.records import (
    JOB_OUTCOMES,
    JOB_STATES,
    PIPELINES,
    RUNNING_JOBS,
    TERMINAL,
    DesiredState,
    JobIntent,
    JobRecord,
)
from tidegate.store.base import Put
from tidegate.testing.simulation.plans import drawn_plan
from tidegate.testing.simulation.processes import ServerProcess, WorkerProcess
from tidegate.testing.simulation.scheduler import Actor

if TYPE_CHECKING:
    from tidegate.testing.simulation.cluster import SimulatedCluster

STARTS = (
    RestoreSource.ASK,
    RestoreSource.AUTO,
    RestoreSource.AUTO,
    RestoreSource.AUTO,
    RestoreSource.LATEST,
    RestoreSource.LATEST,
    RestoreSource.CHECKPOINT,
    RestoreSource.FRESH,
)
STOPS = (DesiredState.CANCEL, DesiredState.CANCEL, DesiredState.FORCE_STOP)
SAVING = 0.3  # of the stops are with a savepoint
UNNAMED_MAX = 2  # jobs without an id of the user's


@dataclass(eq=False)
class Accepted:
    """A submit that was answered with yes."""

    job_id: int
    initialization_ms: int


class Users:
    """What they want, and what they were told."""

    def __init__(self, cluster: "SimulatedCluster") -> None:
        self.cluster = cluster
        self.rng = random.Random(cluster.rng.random())
        self.plans: dict[int, Plan] = {
            n: drawn_plan(self.rng, f"job-{n}") for n in range(1, self.rng.choice([1, 2, 3]) + 1)
        }
        self.accepted: list[Accepted] = []
        self.refused: list[Actor] = []
        self.unnamed = 0
        self.told: set[str] = set()  # processes that were told to leave
        self.waiting: list[Actor] = []  # those that have not been answered yet

    def begin(self) -> None:
        """The first request comes at once."""
        self.cluster.scheduler.at(0.5, self.cluster.event(self._wish))

    def _wish(self) -> None:
        if self.cluster.quiet:
            return
        self.cluster.scheduler.at(
            self.cluster.scheduler.now_s + self.rng.choice([0.3, 1.0, 4.0]),
            self.cluster.event(self._wish),
        )
        luck = self.rng.random()
        if luck < 0.64:
            self._submit()
        elif luck < 0.72:
            self._save(self._any_job(), stop=False)
        elif luck < 0.93:
            self._stop_and_perhaps_go_on()
        elif luck < 0.96:
            self._by_hand()
        else:
            self._leave()

    def stop_all(self) -> None:
        """Stop all jobs that still run."""
        for key in self.cluster.backend.entries.get(RUNNING_JOBS, {}):
            self._stop(int(key), DesiredState.CANCEL)

    def submit_again(self) -> None:
        """The same ids once more, long after everything about them has been forgotten."""
        for job_id, plan in self.plans.items():
            self._submit_as(plan, job_id, RestoreOptions(RestoreSource.AUTO))

    def _any_job(self) -> int:
        there = [int(key) for key in self.cluster.backend.entries.get(RUNNING_JOBS, {})]
        return (
            self.rng.choice(sorted(there))
            if there and self.rng.random() < 0.8
            else self.rng.choice(list(self.plans))
        )

    def _at_a_server(self, name: str, command: Callable[[ServerProcess], None]) -> None:
        servers = [s for s in self.cluster.servers if s.alive]
        if not servers:
            return
        server = self.rng.choice(servers)
        self.cluster.note("users", f"{name} at {server.name}")
        act = self.cluster.contained(server, lambda: command(server))

        def work() -> None:
            act()
            self.waiting.remove(actor)

        actor = self.cluster.scheduler.spawn(server, f"{server.name}.command", work)
        self.waiting.append(actor)

    def _stop_and_perhaps_go_on(self) -> None:
        """People stop a job to start it again."""
        job_id = self._any_job()
        if self.rng.random() < SAVING:
            for _ in range(
                self.rng.choice([1, 1, 2])
            ):  # people repeat themselves, at other servers too
                self._save(job_id, stop=True)
        else:
            self._stop(job_id, self.rng.choice(STOPS))
        plan = self.plans.get(job_id)
        if plan is not None and self.rng.random() < 0.5:
            desired = RestoreOptions(self.rng.choice([RestoreSource.AUTO, RestoreSource.LATEST]))
            again = self.cluster.event(
                lambda: None if self.cluster.quiet else self._submit_as(plan, job_id, desired)
            )
            self.cluster.scheduler.at(
                self.cluster.scheduler.now_s + self.rng.choice([2.0, 4.0, 8.0]), again
            )

    def _submit(self) -> None:
        job_id: int | None = self.rng.choice(list(self.plans))
        assert job_id is not None
        plan = self.plans[job_id]
        if self.rng.random() < 0.15 and self.unnamed < UNNAMED_MAX:
            self.unnamed += 1
            job_id = None
        self._submit_as(plan, job_id, self._restore(job_id))

    def _restore(self, job_id: int | None) -> RestoreOptions:
        start = self.rng.choice(STARTS)
        if start is not RestoreSource.CHECKPOINT:
            return RestoreOptions(start)
        place = self.cluster.backend.read(PIPELINES, f"{job_id}/1")
        retained = [int(ref["checkpoint"]) for ref in place.value["retained"]] if place else []
        return RestoreOptions(start, self.rng.choice(retained or [1]))

    def _submit_as(self, plan: Plan, job_id: int | None, desired: RestoreOptions) -> None:
        self._at_a_server(
            f"submit {job_id} {desired.start} {desired.checkpoint}",
            lambda server: self._submitted(server, plan, job_id, desired),
        )

    def _submitted(
        self, server: ServerProcess, plan: Plan, job_id: int | None, desired: RestoreOptions
    ) -> None:
        me = self.cluster.scheduler.current
        assert me is not None
        try:
            record = server.commands.submit(
                plan, file="", job_id=job_id, name=None, restore=desired
            )
        except UserError as error:
            self.cluster.note("users", f"refused: {str(error)[:100]}")
            self.refused.append(me)
            if me in self.cluster.checker.submitted:
                self.cluster.broken(f"a submit was refused ({error}), and is there")
            return
        except TransientError:
            return  # who knows
        self.accepted.append(Accepted(record.job_id, record.initialization_ms))
        if self.cluster.checker.submitted.get(me) != (record.job_id, record.initialization_ms):
            self.cluster.broken(
                f"the submit of job {record.job_id} was accepted, and is not in the store"
            )

    def _save(self, job_id: int, *, stop: bool) -> None:
        self._at_a_server(
            f"savepoint of {job_id}, stop: {stop}",
            lambda server: self._asked(server, job_id, stop=stop),
        )

    def _asked(self, server: ServerProcess, job_id: int, *, stop: bool) -> None:
        try:
            request = server.commands.savepoint(job_id, stop=stop)
        except (UserError, TransientError):
            return
        known = self.cluster.checker.savepoints.get((job_id, request.id))
        if known is None or (stop and not known.stop):
            self.cluster.broken(
                f"savepoint {request.id} of job {job_id} was accepted and is not in the store"
            )

    def _stop(self, job_id: int, desired: DesiredState) -> None:
        self._at_a_server(
            f"{desired} {job_id}", lambda server: self._stopped(server, job_id, desired)
        )

    def _stopped(self, server: ServerProcess, job_id: int, desired: DesiredState) -> None:
        before = self._standing(job_id)
        try:
            server.commands.stop(job_id, desired)
        except (UserError, TransientError):
            return
        after = self._standing(job_id)
        if job_id in self.cluster.checker.by_hand:
            return  # what stands there may be the hand's
        if before is not None and before == after and STRENGTH[before[1]] < STRENGTH[desired]:
            self.cluster.broken(
                f"the accepted request {desired} of job {job_id} is not in the store"
            )

    def _standing(self, job_id: int) -> tuple[int, DesiredState] | None:
        """Which incarnation there is, and what is wanted of it."""
        row = self.cluster.backend.read(RUNNING_JOBS, str(job_id))
        return (
            (int(row.value["initialization_ms"]), DesiredState(row.value["intent"]["wish"]))
            if row
            else None
        )

    def _leave(self) -> None:
        """Somebody ends a server or a worker in good order."""
        alive: list[ServerProcess | WorkerProcess] = [
            *(server for server in self.cluster.servers if server.alive),
            *(worker for worker in self.cluster.workers if worker.alive),
        ]
        if not alive:
            return
        process = self.rng.choice(alive)
        if (
            process.name in self.told
            # once is enough: a second order would wait for the first in earnest, and no clock here
            # moves for that
        ):
            return
        self.told.add(process.name)

        def leave() -> None:
            process.leave()
            self.cluster.kill(process, "it leaves in order")

        self.cluster.scheduler.spawn(
            process, f"{process.name}.leave", self.cluster.contained(process, leave)
        )

    def _by_hand(self) -> None:
        """Entries among the running jobs that belong to none."""
        ended: dict[str, Any] = {
            key: row.value
            for key, row in self.cluster.backend.entries.get(JOB_STATES, {}).items()
            if row.value["status"] in TERMINAL and self._free(key)
        }
        record: JobRecord | None = None
        job_id = 0
        if ended and self.rng.random() < 0.7:
            job_id = int(self.rng.choice(sorted(ended)))
            record = self._record(job_id, ended[str(job_id)]["initialization_ms"])
        elif (
            self._free(str(job_id := 900 + self.rng.randrange(3)))
            and self.cluster.backend.read(JOB_STATES, str(job_id)) is None
        ):
            record = self._record(job_id, self.cluster.hosts[0].clock.now_ms())
        if record is not None:
            self.cluster.note("users", f"a hand puts job {job_id} among the running ones")
            self.cluster.checker.by_hand.add(job_id)
            self.cluster.by_hand([Put(RUNNING_JOBS, str(job_id), to_document(record))])

    def _free(self, key: str) -> bool:
        return self.cluster.backend.read(RUNNING_JOBS, key) is None

    def _record(self, job_id: int, initialization_ms: int) -> JobRecord:
        outcome = self.cluster.backend.read(JOB_OUTCOMES, str(job_id))
        plan = self.plans.get(job_id, next(iter(self.plans.values())))
        lineage = str(outcome.value["lineage"]) if outcome else f"{job_id}-hand"
        intent = JobIntent(at_ms=initialization_ms)
        return JobRecord(
            job_id=job_id,
            name=plan.job_name,
            initialization_ms=initialization_ms,
            lineage=lineage,
            plan=plan,
            intent=intent,
        )
