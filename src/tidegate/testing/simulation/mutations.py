"""Deliberate breakages of the product, one mistake each, as a person might make them. The
simulation must catch every one: tests/simulation/test_mutations.py.

Applied in a process of their own, after everything is imported; nothing undoes them.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidegate.checkpoints.savepoints import SavedPoint
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.coordinator import cleanup, commands, housekeeping, savepoint_requests
from tidegate.coordinator import job_snapshot as registry
from tidegate.coordinator.job_snapshot import JobSnapshot
from tidegate.coordinator.reconciler import Reconciler
from tidegate.coordinator.restore import planning as prepare
from tidegate.coordinator.restore.options import PreviousRun
from tidegate.coordinator.restore.origin import RestoreOrigin
from tidegate.coordinator.restore.points import IdFloor, previous_run
from tidegate.coordinator.terminal_transaction import TerminalTransaction, terminal_transaction
from tidegate.coordinator.transitions import StateUpdate, TransitionWriter
from tidegate.driver import registration
from tidegate.driver.metrics import MetricsWriter
from tidegate.election import lease as lease_arithmetic
from tidegate.election import lease_monitor
from tidegate.election.lease import Observed, Take, Timing
from tidegate.lifecycle import retry
from tidegate.lifecycle.decision import NoTransition, Transition
from tidegate.lifecycle.observation import JobObservation
from tidegate.model.document import to_document
from tidegate.model.records import (
    CHECKPOINT_HISTORY,
    DRIVERS,
    JOB_NAMES,
    JOB_OUTCOMES,
    JOB_STATES,
    LEASES,
    METRICS,
    PENDING_CLEANUPS,
    PIPELINES,
    RUNNING_JOBS,
    CleanupRecord,
    DriverRecord,
    JobIntent,
    JobState,
    JobStatus,
    PipelineState,
    PipelineStatus,
    SavepointRequest,
)
from tidegate.pipeline import ledger
from tidegate.pipeline.ledger import pipeline_key
from tidegate.pipeline.savepoints import SavepointCoordinator
from tidegate.store.base import Check, Delete, Entry, Put, Store
from tidegate.store.errors import StoreUnavailable
from tidegate.store.follow import Follower
from tidegate.testing.simulation import processes

HOLDS_ALWAYS = Check(LEASES, "nobody", 0)


def leader_writes_without_its_lease() -> None:
    """Transitions do not carry the leader's lease."""
    real = TransitionWriter._transact
    _put(
        TransitionWriter,
        "_transact",
        lambda self, _, known, changes: real(self, HOLDS_ALWAYS, known, changes),
    )


def worker_is_expired_at_once() -> None:
    """A worker loses its lease after a fifth of it."""
    _put(
        lease_monitor,
        "silent",
        lambda seen, timing: seen.lease_version > 0 and seen.unchanged_s >= timing.lease_s / 5,
    )


def leader_is_overthrown_early() -> None:
    """A candidate does not wait for a whole lease."""
    real = lease_arithmetic.silent
    _put(lease_arithmetic, "silent", lambda seen, timing: real(seen, Timing(timing.lease_s / 2)))


def term_is_used_twice() -> None:
    """A new holder takes the term of the last one."""

    def next_term(observed: Observed, term_min: int = 0) -> Take:
        return Take(max(observed.term, term_min, 1))

    _put(lease_arithmetic, "next_term", next_term)


def driver_registers_for_any_generation() -> None:
    """The registration ignores the state of the job."""

    def register(store: Store, order: Any, now_ms: int) -> None:
        key = str(order.job_id)
        me = getattr(registration, "process_ref")(0)  # noqa: B009  # not exported
        driver = store.get(DRIVERS, key)
        mine = DriverRecord(
            job_id=order.job_id,
            generation=order.generation,
            process=me,
            worker=order.worker,
            started_ms=now_ms,
        )
        store.transact(
            [Check(DRIVERS, key, driver.version if driver else 0)],
            [Put(DRIVERS, key, to_document(mine))],
        )

    _put(processes, "register", register)


def cleanup_without_the_owner_guard() -> None:
    """A cleanup takes away whatever is there under the id."""

    def leftovers(store: Store, record: CleanupRecord, _: bool) -> tuple[list[Check], list[Delete]]:
        key = str(record.job_id)
        entries: list[tuple[str, Entry | None]] = [
            (DRIVERS, store.get(DRIVERS, key)),
            *((METRICS, entry) for entry in store.list(METRICS, f"{key}/")),
        ]
        return [], [Delete(map, entry.key) for map, entry in entries if entry is not None]

    _put(cleanup, "leftovers", leftovers)


def zombie_is_started_again() -> None:
    """A leader takes an entry among the running jobs for a running job, whatever its state says."""

    def one(self: Reconciler, leading: Any, job_id: int, places: Any) -> bool:
        known = self.cache.snapshot(job_id)
        if (
            known.record is not None
            and known.state is not None
            and known.state.value.status.terminal
        ):
            go = Transition(to=JobStatus.SCHEDULED, worker=min(self.workers, default="none"))
            self.writer._schedule(leading.check(), self.view(known, places), known, go)
            return True
        return bool(real(self, leading, job_id, places))

    real = Reconciler._reconcile
    _put(Reconciler, "_reconcile", one)


def zombie_is_left_alone() -> None:
    """An entry of an ended job stays among the running ones."""
    _put(TransitionWriter, "remove_stale_entry", lambda *_: None)


def end_without_a_cleanup_record() -> None:
    """The terminal transaction forgets who cleans up."""

    def ending(
        snapshot: JobSnapshot, status: JobStatus, now_ms: int, **more: Any
    ) -> TerminalTransaction:
        made = terminal_transaction(snapshot, status, now_ms, **more)
        return replace(made, writes=tuple(w for w in made.writes if w.map != PENDING_CLEANUPS))

    _everywhere("terminal_transaction", terminal_transaction, ending)


def submit_over_a_running_job() -> None:
    """A submit does not mind that the job is there."""
    look, writes = registry.read_job, commands.Commands._writes

    def blind(store: Store, job_id: int) -> JobSnapshot:
        return replace(look(store, job_id), record=None)

    def unchecked(
        self: commands.Commands, *arguments: Any, **more: Any
    ) -> tuple[list[Check], list[Put | Delete]]:
        checks, made = writes(self, *arguments, **more)
        return [check for check in checks if check.map != RUNNING_JOBS], made

    _put(commands, "read_job", blind)
    _put(commands.Commands, "_writes", unchecked)


def stay_does_not_repeat_its_order() -> None:
    """What a state orders is written only when the status changes."""
    real = TransitionWriter.write_no_transition
    _put(
        TransitionWriter,
        "write_no_transition",
        lambda self, lease, known, view, decision: real(
            self, lease, known, view, NoTransition(reason=decision.reason)
        ),
    )


def pipelines_keep_their_generation() -> None:
    """A start fences the job, and not its pipelines."""

    def transact(
        self: TransitionWriter, lease: Check, snapshot: JobSnapshot, changes: StateUpdate
    ) -> None:
        started = any(
            isinstance(w, Put) and w.map == JOB_STATES and w.value["status"] == JobStatus.SCHEDULED
            for w in changes.writes
        )
        writes = [w for w in changes.writes if not (started and w.map == PIPELINES)]
        real(self, lease, snapshot, StateUpdate(checks=changes.checks, writes=writes))

    real = TransitionWriter._transact
    _put(TransitionWriter, "_transact", transact)


def restart_without_proof_of_death() -> None:
    """Whoever waits to start a driver does not look for the one before."""
    waiting = (JobStatus.RECOVERING, JobStatus.PENDING)
    real = JobObservation.driver_may_live
    _put(
        JobObservation,
        "driver_may_live",
        property(lambda view: view.state.status not in waiting and real.__get__(view)),
    )  # a property


def wish_is_overwritten_by_the_leader() -> None:
    """The leader writes the job's record back as it was submitted, with every change of status."""

    def transact(
        self: TransitionWriter, lease: Check, snapshot: JobSnapshot, changes: StateUpdate
    ) -> None:
        if snapshot.record is None or any(w.map == RUNNING_JOBS for w in changes.writes):
            return real(self, lease, snapshot, changes)
        record = replace(snapshot.record.value, intent=JobIntent())
        real(
            self,
            lease,
            snapshot,
            StateUpdate(
                checks=changes.checks,
                writes=[
                    *changes.writes,
                    Put(RUNNING_JOBS, str(snapshot.job_id), to_document(record)),
                ],
            ),
        )

    real = TransitionWriter._transact
    _put(TransitionWriter, "_transact", transact)


def retries_are_counted_in_memory() -> None:
    """Each leader counts for itself."""
    counted: dict[tuple[int, int], int] = {}

    def following(
        self: TransitionWriter,
        view: JobObservation,
        decision: Transition,
        now_ms: int,
        **given: Any,
    ) -> JobState:
        key = (id(self), view.record.job_id)
        counted[key] = counted.get(key, 0) + 1 if decision.restart else counted.get(key, 0)
        return replace(real(self, view, decision, now_ms, **given), restarts=counted[key])

    real = TransitionWriter._next
    _put(TransitionWriter, "_next", following)


def restore_of_what_is_being_deleted() -> None:
    """A submit restores from checkpoints that a cleanup is about to delete."""

    def condition(
        snapshot: JobSnapshot, _: CleanupRecord | None, *, left: bool = False
    ) -> PreviousRun:
        return previous_run(snapshot, None, left=left)

    _put(prepare, "previous_run", condition)


def numbers_begin_anew_when_the_history_is_forgotten() -> None:
    """A job id that the store has forgotten begins at 1, whatever is left on disk."""

    def numbers(snapshot: JobSnapshot, *_: CheckpointStorage | RestoreOrigin) -> IdFloor:
        return IdFloor(
            next_checkpoint=registry.next_checkpoint(snapshot),
            last_generation=registry.last_generation(snapshot),
        )

    _put(prepare, "id_floor", numbers)


def finished_pipeline_counts_as_progress_for_ever() -> None:
    """What an earlier generation has finished fills the retry budget of every later one."""
    real = retry._completed
    _put(
        retry,
        "_completed",
        lambda pipeline, generation: (
            real(pipeline, generation) or pipeline.status is PipelineStatus.FINISHED
        ),
    )


def unfinished_turn_forgets_what_it_saw() -> None:
    """A follower that loses the store after it has read the log and before it has read the
    entries skips these entries.
    """

    def refresh(self: Follower) -> set[tuple[str, str]]:
        try:
            return real(self)
        except StoreUnavailable:
            self._since = self.store._newest_revision
            raise

    real = Follower.refresh
    _put(Follower, "refresh", refresh)


def figures_of_a_driver_that_nobody_knows() -> None:
    """Figures are written without being the driver on record."""

    def step(self: MetricsWriter) -> None:
        puts = [
            Put(METRICS, pipeline_key(self.spec.job_id, m.pipeline), to_document(m))
            for m in (progress.read() for progress in self.progress)
        ]
        self.store.transact([], puts)

    _put(MetricsWriter, "step", step)


def ledger_without_the_fence() -> None:
    """A driver writes its pipeline whatever has become of it."""
    _put(ledger, "Check", lambda *_: HOLDS_ALWAYS)


def history_takes_the_newer_incarnation_along() -> None:
    """The expiry of an outcome deletes the state that is there, whoever it belongs to."""

    def expire(self: housekeeping.Housekeeper, job_id: int, _: int, lease: Check) -> None:
        key = str(job_id)
        outcome = self.store.get(JOB_OUTCOMES, key)
        if outcome is not None and self.store.get(PENDING_CLEANUPS, key) is None:
            names = [Delete(JOB_NAMES, registry.name_key(outcome.value["name"]))]
            parts = [
                Delete(map, entry.key)
                for map in (PIPELINES, CHECKPOINT_HISTORY)
                for entry in self.store.list(map, f"{key}/")
            ]
            self.store.transact(
                [lease, Check(JOB_OUTCOMES, key, outcome.version)],
                [Delete(JOB_OUTCOMES, key), Delete(JOB_STATES, key), *parts, *names],
            )

    _put(housekeeping.Housekeeper, "_expire", expire)


def cleanup_forgets_the_checkpoints() -> None:
    """A cleanup takes the keys away, and leaves the directories."""

    def carry_out(
        store: Store, storage: CheckpointStorage, job_id: int, *, checks: Sequence[Check] = ()
    ) -> None:
        real(store, _Keeps(storage.files), job_id, checks=checks)

    real = cleanup.carry_out_cleanup
    _put(housekeeping, "carry_out_cleanup", carry_out)


def savepoint_is_sealed_without_the_others() -> None:
    """Whoever has given its part writes the head, whether the other pipelines have or not."""

    def point(
        self: SavepointCoordinator, wanted: SavepointRequest, state: PipelineState
    ) -> SavedPoint | None:
        there = real(self, wanted, state)
        return there or SavedPoint(
            checkpoint=state.latest.checkpoint if state.latest else 0, path=""
        )

    real = SavepointCoordinator._point
    _put(SavepointCoordinator, "_point", point)


def savepoint_is_forgotten_when_the_job_ends() -> None:
    """The end of a job does not answer what is still wanted of it."""
    _everywhere(
        "savepoint_at_end",
        savepoint_requests.savepoint_at_end,
        lambda *_: savepoint_requests.SavepointReply(),
    )


class _Keeps(CheckpointStorage):
    def delete_job(self, job_id: int, below: int, generation: int | None = None) -> None:
        pass


MUTATIONS: Mapping[str, Callable[[], None]] = {
    mutation.__name__.replace("_", "-"): mutation
    for mutation in (
        leader_writes_without_its_lease,
        worker_is_expired_at_once,
        leader_is_overthrown_early,
        term_is_used_twice,
        driver_registers_for_any_generation,
        cleanup_without_the_owner_guard,
        zombie_is_started_again,
        zombie_is_left_alone,
        end_without_a_cleanup_record,
        submit_over_a_running_job,
        stay_does_not_repeat_its_order,
        pipelines_keep_their_generation,
        restart_without_proof_of_death,
        wish_is_overwritten_by_the_leader,
        retries_are_counted_in_memory,
        restore_of_what_is_being_deleted,
        numbers_begin_anew_when_the_history_is_forgotten,
        finished_pipeline_counts_as_progress_for_ever,
        unfinished_turn_forgets_what_it_saw,
        figures_of_a_driver_that_nobody_knows,
        ledger_without_the_fence,
        history_takes_the_newer_incarnation_along,
        cleanup_forgets_the_checkpoints,
        savepoint_is_sealed_without_the_others,
        savepoint_is_forgotten_when_the_job_ends,
    )
}


def apply(name: str) -> None:
    MUTATIONS[name]()


def _put(owner: Any, name: str, value: Any) -> None:
    assert hasattr(owner, name), (
        f"{owner} has no {name} any more: the mutation must follow the code"
    )
    setattr(owner, name, value)


def _everywhere(name: str, real: object, value: object) -> None:
    """In every module that has imported it."""
    modules = [
        module
        for key, module in list(sys.modules.items())
        if key.startswith("tidegate.") and key != __name__
    ]
    found = [module for module in modules if getattr(module, name, None) is real]
    assert found, f"nobody uses {name} any more"
    for module in found:
        setattr(module, name, value)
