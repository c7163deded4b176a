"""Records decisions, each in one transaction.

Conditioned on the leader's lease and on all records that were read. Called by the reconciler.
Nothing is done besides writing: workers and drivers read what is written here and act on it. So a
leader that dies between any two lines has either decided or not, and a leader that was paused past
its lease writes nothing at all.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.clock import Clock
from tidegate.coordinator.events import JobChange, events_between
from tidegate.coordinator.job_history import append_events, history_of, with_status
from tidegate.coordinator.job_snapshot import JobSnapshot, last_generation, read_job
from tidegate.coordinator.restore.planning import points_of
from tidegate.coordinator.restore.points import copy_checkpoints, supersede_savepoints
from tidegate.coordinator.savepoint_requests import abandon_savepoint
from tidegate.coordinator.terminal_transaction import FAILURES_MAX, terminal_transaction
from tidegate.failpoint import failpoint
from tidegate.lifecycle.decision import NoTransition, Transition
from tidegate.lifecycle.final_statuses import final_statuses
from tidegate.lifecycle.observation import JobHealth, JobObservation
from tidegate.model.document import from_document, to_document
from tidegate.model.engine import EngineSettings
from tidegate.model.errors import TidegateError, UserError
from tidegate.model.log_retention import LogRetentionStatus
from tidegate.model.records import (
    ASSIGNMENTS,
    DRIVERS,
    JOB_OUTCOMES,
    JOB_STATES,
    PENDING_CLEANUPS,
    PIPELINES,
    RESTORE_CLAIMS,
    RUNNING_JOBS,
    Assignment,
    CheckpointHealth,
    CleanupRecord,
    DriverCommand,
    DriverEnd,
    Failure,
    JobEvent,
    JobEventKind,
    JobOutcome,
    JobState,
    JobStatus,
    PipelineState,
    PipelineStatus,
)
from tidegate.store.base import Check, Delete, Put, Store
from tidegate.store.errors import Conflict


class JobChangedMeanwhile(TidegateError):
    """The job has changed since the decision: it is checked again."""


class ChangeListener(Protocol):
    """Receives every change after it is durable."""

    def record(self, event: JobChange) -> None:
        """Publish the change; must not raise."""


@dataclass(frozen=True, slots=True)
class StateUpdate:
    """Checks and writes that a transaction adds for a job."""

    checks: Sequence[Check] = ()
    writes: Sequence[Put | Delete] = ()


class TransitionWriter:
    """Writes decisions, for one leadership at a time."""

    def __init__(
        self,
        store: Store,
        storage: CheckpointStorage,
        settings: EngineSettings,
        clock: Clock,
        hook: ChangeListener,
    ) -> None:
        self.store = store
        self.storage = storage
        self.settings = settings
        self.clock = clock
        self.hook = hook

    def write_no_transition(
        self, lease: Check, snapshot: JobSnapshot, view: JobObservation, decision: NoTransition
    ) -> bool:
        """Write command, worker, reason and health without another status.

        Returns whether any of them changed.
        """
        before, now_ms = view.state, self.clock.now_ms()
        health = view.health if before.status is JobStatus.RUNNING else JobHealth()
        retention = (
            view.log_retention
            if before.status is JobStatus.RUNNING
            else LogRetentionStatus(before.log_retention, before.log_retention_reason)
        )
        moved = _changed_assignment(view, decision.command, decision.worker, now_ms)
        answer = abandon_savepoint(snapshot, decision.savepoint, now_ms)
        displayed = (
            decision.reason,
            health.level,
            health.reason,
            retention.level,
            retention.reason,
        )
        if moved is view.assignment and _same_for_users(displayed, before) and not answer.writes:
            return False
        state = replace(
            before,
            reason=decision.reason,
            health=health.level,
            health_reason=health.reason,
            log_retention=retention.level,
            log_retention_reason=retention.reason,
        )
        writes: list[Put | Delete] = [
            Put(JOB_STATES, str(snapshot.job_id), to_document(state)),
            *answer.writes,
        ]
        if moved is not view.assignment and moved is not None:
            writes.append(Put(ASSIGNMENTS, str(snapshot.job_id), to_document(moved)))
        self._transact(lease, snapshot, StateUpdate(checks=answer.checks, writes=writes))
        self._report(snapshot, state)
        return True

    def write_transition(
        self, lease: Check, snapshot: JobSnapshot, view: JobObservation, decision: Transition
    ) -> None:
        """Write another status, and everything that belongs to it.

        The observation was made from `snapshot`: its versions are the conditions of the write.
        """
        if decision.to.terminal:
            self._end(lease, view, snapshot, decision)
        elif decision.to is JobStatus.SCHEDULED:
            self._schedule(lease, view, snapshot, decision)
        else:
            self._move(lease, view, snapshot, decision)

    def remove_stale_entry(self, lease: Check, job_id: int) -> None:
        """Remove an entry from the running jobs whose state is terminal or missing.

        Left by an older version or a manual change.
        """
        snapshot = read_job(self.store, job_id)
        if snapshot.record is None or (
            snapshot.state is not None and not snapshot.state.value.status.terminal
        ):
            return
        if snapshot.state is None:
            return self._unknowable(lease, snapshot)
        cleanup = self.store.get(PENDING_CLEANUPS, str(job_id))
        writes: list[Put | Delete] = [
            Delete(RUNNING_JOBS, str(job_id)),
            Delete(ASSIGNMENTS, str(job_id)),
        ]
        status, now_ms = snapshot.state.value.status, self.clock.now_ms()
        if cleanup is None or snapshot.outcome is None:
            ending = terminal_transaction(
                snapshot,
                status,
                now_ms,
                reason=snapshot.state.value.reason,
                due_ms=now_ms + self.settings.state_cleanup_delay_ms,
            )
            writes = [
                w
                for w in ending.writes
                if w.map not in (JOB_OUTCOMES, PENDING_CLEANUPS)
                or (w.map == PENDING_CLEANUPS and cleanup is None)
                or (w.map == JOB_OUTCOMES and snapshot.outcome is None)
            ]
        failpoint("zombie.bury.before")
        self._transact(
            lease,
            snapshot,
            StateUpdate(
                checks=[Check(PENDING_CLEANUPS, str(job_id), cleanup.version if cleanup else 0)],
                writes=writes,
            ),
        )
        failpoint("zombie.bury.after")

    def _unknowable(self, lease: Check, snapshot: JobSnapshot) -> None:
        """End a job as UNKNOWABLE: its state is missing and is not guessed."""
        assert snapshot.record is not None
        record, now_ms = snapshot.record.value, self.clock.now_ms()
        key, status, places = (
            str(snapshot.job_id),
            JobStatus.UNKNOWABLE,
            [p.value for p in snapshot.pipelines],
        )
        failure = Failure(
            at_ms=now_ms,
            generation=0,
            condition="state-missing",
            message="the job was listed as running, and its state is not in the store",
        )
        state = JobState(
            job_id=snapshot.job_id,
            status=status,
            initialization_ms=record.initialization_ms,
            generation=max([last_generation(snapshot), *(p.generation for p in places)]) + 1,
            failures=(failure,),
            changed_ms=now_ms,
            entered={status.value: now_ms},
            events=append_events(
                history_of(snapshot),
                JobEvent(
                    at_ms=now_ms, kind=JobEventKind.STATUS, to=status.value, reason=failure.message
                ),
            ),
        )
        outcome = JobOutcome(
            job_id=snapshot.job_id,
            name=record.name,
            initialization_ms=record.initialization_ms,
            lineage=record.lineage,
            status=status,
            finished_ms=now_ms,
            entered=state.entered,
            generation=state.generation,
            plan=record.plan,
            failures=(failure,),
            events=state.events,
        )
        cleanup = CleanupRecord(
            job_id=snapshot.job_id,
            initialization_ms=record.initialization_ms,
            resumable=True,
            due_ms=now_ms + self.settings.state_cleanup_delay_ms,
        )
        writes: list[Put | Delete] = [
            Put(JOB_STATES, key, to_document(state)),
            Put(JOB_OUTCOMES, key, to_document(outcome)),
            Put(PENDING_CLEANUPS, key, to_document(cleanup)),
            Delete(RUNNING_JOBS, key),
            *(
                Put(
                    PIPELINES,
                    f"{key}/{p.pipeline}",
                    to_document(replace(p, status=own, generation=state.generation)),
                )
                for p, own in zip(places, final_statuses(places, status), strict=True)
            ),
        ]
        checks = [
            Check(PIPELINES, f"{key}/{p.value.pipeline}", p.version) for p in snapshot.pipelines
        ]
        self._transact(lease, snapshot, StateUpdate(checks=checks, writes=writes))
        self._report(snapshot, state)

    def _transact(self, lease: Check, snapshot: JobSnapshot, changes: StateUpdate) -> None:
        key = str(snapshot.job_id)
        checks = [
            lease,
            Check(JOB_STATES, key, snapshot.state.version if snapshot.state else 0),
            Check(RUNNING_JOBS, key, snapshot.record.version if snapshot.record else 0),
            Check(ASSIGNMENTS, key, snapshot.assignment.version if snapshot.assignment else 0),
            Check(DRIVERS, key, snapshot.driver.version if snapshot.driver else 0),
        ]
        named = {(c.map, c.key) for c in checks}
        failpoint("transition.record.before")
        try:
            self.store.transact(
                [*checks, *(c for c in changes.checks if (c.map, c.key) not in named)],
                changes.writes,
            )
        except Conflict as error:
            raise JobChangedMeanwhile(str(error)) from error
        failpoint("transition.record.after")

    def _move(
        self, lease: Check, view: JobObservation, snapshot: JobSnapshot, decision: Transition
    ) -> None:
        """Write a status that is neither a start nor an end."""
        key, now_ms = str(snapshot.job_id), self.clock.now_ms()
        state = self._next(view, decision, now_ms)
        answer, confirmed = (
            abandon_savepoint(snapshot, decision.savepoint, now_ms),
            self._confirm_death(view, snapshot, decision, now_ms),
        )
        writes: list[Put | Delete] = [
            Put(JOB_STATES, key, to_document(state)),
            *confirmed.writes,
            *answer.writes,
        ]
        if decision.to is JobStatus.PENDING:
            writes.append(Delete(ASSIGNMENTS, key))
        elif (
            moved := _changed_assignment(view, decision.command, decision.worker, now_ms)
        ) is not view.assignment:
            writes.append(Put(ASSIGNMENTS, key, to_document(moved)))
        self._transact(
            lease, snapshot, StateUpdate(checks=[*answer.checks, *confirmed.checks], writes=writes)
        )
        self._report(snapshot, state)

    def _schedule(
        self, lease: Check, view: JobObservation, snapshot: JobSnapshot, decision: Transition
    ) -> None:
        """Assign the next generation to a worker, from its restore point."""
        assert decision.worker is not None, "a job is scheduled on a worker"
        key, now_ms = str(snapshot.job_id), self.clock.now_ms()
        generation = last_generation(snapshot) + 1
        first = JobStatus.SCHEDULED.value not in view.state.entered
        try:
            points = points_of(
                self.store,
                self.storage,
                view.record,
                [p.value for p in snapshot.pipelines],
                first=first,
            )
        except UserError as error:
            failure = Failure(
                at_ms=now_ms,
                generation=view.state.generation,
                condition=error.condition,
                domain=error.domain.value,
                message=str(error),
            )
            return self._end(
                lease,
                view,
                snapshot,
                Transition(to=JobStatus.FAILED, reason=str(error), failure=failure),
            )
        finished = [
            p.value for p in snapshot.pipelines if p.value.status is PipelineStatus.FINISHED
        ]
        states = [copy_checkpoints(self.storage, point.state, generation) for point in points]
        supersede_savepoints(self.storage, states, now_ms)
        pipelines: list[PipelineState] = [*finished, *states]
        notes = "; ".join(note for point in points for note in point.notes)
        state = self._next(
            view,
            decision,
            now_ms,
            generation=generation,
            reason=notes,
            event_reason=_start_description(decision.worker, states, notes),
            started_ms=view.state.started_ms or now_ms,
        )
        assignment = Assignment(
            job_id=snapshot.job_id,
            initialization_ms=view.record.initialization_ms,
            generation=generation,
            worker=decision.worker,
            ordered_ms=now_ms,
        )
        writes: list[Put | Delete] = [
            Put(JOB_STATES, key, to_document(state)),
            Put(ASSIGNMENTS, key, to_document(assignment)),
            *(
                Put(
                    PIPELINES, f"{key}/{p.pipeline}", to_document(replace(p, generation=generation))
                )
                for p in pipelines
            ),
            *([Delete(RESTORE_CLAIMS, key)] if first and view.record.restored else []),
        ]
        checks = [
            Check(PIPELINES, f"{key}/{p.value.pipeline}", p.version) for p in snapshot.pipelines
        ]
        self._transact(lease, snapshot, StateUpdate(checks=checks, writes=writes))
        self._report(snapshot, state)

    def _end(
        self, lease: Check, view: JobObservation, snapshot: JobSnapshot, decision: Transition
    ) -> None:
        now_ms = self.clock.now_ms()
        cleanup = self.store.get(PENDING_CLEANUPS, str(snapshot.job_id))
        ending = terminal_transaction(
            snapshot,
            decision.to,
            now_ms,
            failure=decision.failure,
            reason=decision.reason,
            due_ms=now_ms + self.settings.state_cleanup_delay_ms,
            older=from_document(CleanupRecord, cleanup.value) if cleanup else None,
            retain_after_cancel=self.settings.checkpoint.retain_after_cancel,
        )
        confirmed = self._confirm_death(view, snapshot, decision, now_ms)
        checks = [
            *ending.checks,
            Check(PENDING_CLEANUPS, str(snapshot.job_id), cleanup.version if cleanup else 0),
            *confirmed.checks,
        ]
        self._transact(
            lease, snapshot, StateUpdate(checks=checks, writes=[*ending.writes, *confirmed.writes])
        )
        self._report(snapshot, ending.state)

    def _report(self, snapshot: JobSnapshot, after: JobState) -> None:
        assert snapshot.record is not None
        for event in events_between(
            snapshot.state.value if snapshot.state else None,
            after,
            snapshot.record.value.name,
            self.clock.now_ms(),
        ):
            self.hook.record(event)

    def _next(
        self,
        view: JobObservation,
        decision: Transition,
        now_ms: int,
        *,
        generation: int | None = None,
        reason: str | None = None,
        event_reason: str | None = None,
        started_ms: int | None = None,
    ) -> JobState:
        """Return the state after a decision.

        `event_reason` is the reason in the history, if it says more than the state does.
        """
        before, why = view.state, decision.reason if reason is None else reason
        return with_status(
            before,
            decision.to,
            now_ms,
            generation=generation,
            event_reason=why if event_reason is None else event_reason,
            restarts=(0 if decision.healed else before.restarts) + decision.restart,
            checkpoints=view.checkpoints,
            failures=(*before.failures, *([decision.failure] if decision.failure else []))[
                -FAILURES_MAX:
            ],
            reason=why,
            not_before_ms=decision.not_before_ms,
            health=CheckpointHealth.OK,
            health_reason="",
            started_ms=before.started_ms if started_ms is None else started_ms,
        )

    def _confirm_death(
        self, view: JobObservation, snapshot: JobSnapshot, decision: Transition, now_ms: int
    ) -> StateUpdate:
        """Record the death of a driver that is concluded from its lease.

        Then nobody waits for it again. Conditioned on its heartbeats: it may have sent one while
        this leader was paused.
        """
        if not decision.proof or view.driver is None or view.driver.end is not None:
            return StateUpdate()
        ended = replace(view.driver, end=DriverEnd(at_ms=now_ms, proof=decision.proof))
        return StateUpdate(
            checks=snapshot.heartbeats,
            writes=[Put(DRIVERS, str(view.record.job_id), to_document(ended))],
        )


def _start_description(worker: str, states: Sequence[PipelineState], notes: str) -> str:
    """Describe where a generation begins, for the history."""
    points = ", ".join(
        f"checkpoint {p.latest.checkpoint} of pipeline {p.pipeline}" for p in states if p.latest
    )
    return "; ".join(filter(None, (f"on {worker}", f"from {points}" if points else "", notes)))


def _changed_assignment(
    view: JobObservation, order: DriverCommand | None, worker: str | None, now_ms: int
) -> Assignment | None:
    """Return the assignment with another command or worker; the same object if unchanged.

    Without an assignment, a driver that may be alive is assigned.
    """
    before = view.assignment
    if before is None:
        if order is None or worker is None:
            return None
        generation = view.driver.generation if view.driver else view.state.generation
        return Assignment(
            job_id=view.record.job_id,
            initialization_ms=view.record.initialization_ms,
            generation=generation,
            worker=worker,
            command=order,
            ordered_ms=now_ms,
        )
    if order in (None, before.command) and worker in (None, before.worker):
        return before
    ordered_ms = now_ms if order not in (None, before.command) else before.ordered_ms
    return replace(
        before,
        command=order or before.command,
        worker=worker or before.worker,
        ordered_ms=ordered_ms,
    )


def _same_for_users(displayed: tuple[str, ...], state: JobState) -> bool:
    """Whether a user would read the same: counting numbers in a reason are no news."""
    before = (
        state.reason,
        state.health,
        state.health_reason,
        state.log_retention,
        state.log_retention_reason,
    )
    return displayed == before or [_without_numbers(text) for text in displayed] == [
        _without_numbers(text) for text in before
    ]


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+", "#", text)
