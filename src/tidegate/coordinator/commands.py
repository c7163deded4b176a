"""Commands of users, made durable: submit, stop, savepoint.

Called by the API of any server.

A command checks, records the desired state in one transaction, and returns. It starts and stops
nothing: the current leader does.
"""

import secrets
from dataclasses import replace

from tidegate.checkpoints.savepoints import Savepoints
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.clock import Clock
from tidegate.coordinator.accepted_changes import stopped_job
from tidegate.coordinator.external_resources import with_resources
from tidegate.coordinator.job_history import commands_with, submitted_events
from tidegate.coordinator.job_snapshot import JobSnapshot, name_key, read_job, unused
from tidegate.coordinator.restore.options import RestoreOptions, RestoreSource, StartMode
from tidegate.coordinator.restore.planning import (
    PreparedRestore,
    RestoreRequest,
    prepare_restore,
    restore_fields,
    source_changes,
)
from tidegate.coordinator.restore.sink_checks import ask_from_here
from tidegate.coordinator.savepoint_requests import request_savepoint
from tidegate.failpoint import failpoint
from tidegate.model.document import from_document, to_document
from tidegate.model.engine import EngineSettings
from tidegate.model.errors import TransientError, UserError
from tidegate.model.ids import JOB_ID_MAX
from tidegate.model.plan import Plan
from tidegate.model.records import (
    CHECKPOINT_HISTORY,
    JOB_NAMES,
    JOB_STATES,
    PENDING_CLEANUPS,
    PIPELINES,
    RUNNING_JOBS,
    CleanupRecord,
    DesiredState,
    JobIntent,
    JobRecord,
    JobState,
    JobStatus,
    PipelineState,
    PipelineStatus,
    ProcessRef,
    SavepointRequest,
)
from tidegate.model.table_changes import AcceptedChange
from tidegate.plugin.secret import plan_texts
from tidegate.redact import register_secrets
from tidegate.store.base import Check, Delete, Put, Store
from tidegate.store.errors import Conflict

TRIES_MAX = 8
STRENGTH = {DesiredState.RUN: 0, DesiredState.CANCEL: 1, DesiredState.FORCE_STOP: 2}


class JobExists(UserError):
    """The id is in use."""

    condition = "job-exists"

    def __init__(self, job_id: int, status: str) -> None:
        super().__init__(
            f"job {job_id} is {status} already: stop it first, or submit under another id"
        )
        self.job_id = job_id


class LedByRun(UserError):
    """The id is in use by `tidegate run`, which servers cannot take over from."""

    condition = "job-exists"

    def __init__(self, job_id: int, leader: ProcessRef) -> None:
        super().__init__(
            f"job {job_id} is run by `tidegate run` (process {leader.pid} on {leader.host}), which"
            " a server cannot take over from: stop it first, or use `tidegate run --takeover` on"
            " that host"
        )
        self.job_id = job_id


class CleanupPending(UserError):
    """An ended incarnation is not cleaned up yet."""

    condition = "cleanup-pending"

    def __init__(self, job_id: int, wait_s: float) -> None:
        super().__init__(
            f"job {job_id} has ended, and what it left is cleaned up in {wait_s:.0f} s: submit it"
            " again after that, or at once with restore=latest, or under another id"
        )
        self.job_id = job_id
        self.wait_s = wait_s


class UnknownJob(UserError):
    condition = "unknown-job"

    def __init__(self, job_id: int) -> None:
        super().__init__(f"there is no job {job_id} here")
        self.job_id = job_id


class Busy(TransientError):
    """Concurrent changes by others won on every attempt."""

    condition = "busy"


class Commands:
    """The commands of one installation."""

    def __init__(
        self, store: Store, storage: CheckpointStorage, settings: EngineSettings, clock: Clock
    ) -> None:
        self.store = store
        self.storage = storage
        self.settings = settings
        self.clock = clock
        self.savepoints = Savepoints(storage.files)

    def submit(
        self,
        plan: Plan,
        *,
        file: str,
        job_id: int | None,
        name: str | None,
        restore: RestoreOptions,
        by: str = "",
        key: str = "",
    ) -> JobRecord:
        """Submit a new incarnation, durable when this returns.

        UserError: rejected, and nothing was written.
        """
        register_secrets(plan_texts(plan))
        for _ in range(TRIES_MAX):
            try:
                return self._submit(plan, file, job_id, name or plan.job_name, restore, by, key)
            except Conflict:
                continue
        raise Busy(f"job {job_id} is being changed by others at this moment; try again")

    def accept_change(self, job_id: int, change: AcceptedChange, by: str = "") -> JobRecord:
        """Resume a job that stopped at a table change, with the decision about it.

        A repeated decision finds the job resumed.
        """
        snapshot = read_job(self.store, job_id)
        if snapshot.record is not None and change in snapshot.record.value.accepted_changes:
            return snapshot.record.value
        if snapshot.record is None and snapshot.outcome is None:
            raise UnknownJob(job_id)
        outcome = stopped_job(snapshot, change)
        assert outcome.plan is not None, "who has failed has run"
        options = RestoreOptions(RestoreSource.LATEST, accept_changes=(change,))
        return self.submit(
            outcome.plan, file="", job_id=job_id, name=outcome.name, restore=options, by=by
        )

    def savepoint(self, job_id: int, *, stop: bool, by: str = "") -> SavepointRequest:
        """Request a savepoint, and with `stop` the end of the job with it.

        Durable when this returns; a repeated request joins the first.
        """
        return request_savepoint(self.store, self.savepoints, self.clock, job_id, stop=stop, by=by)

    def stop(self, job_id: int, desired: DesiredState, by: str = "") -> None:
        """Record the desired state of a job.

        A job that has ended is unchanged; so is a job with a stronger desired state.
        """
        for _ in range(TRIES_MAX):
            entry = self.store.get(RUNNING_JOBS, str(job_id))
            if entry is None:
                snapshot = read_job(self.store, job_id)
                if snapshot.state is None and snapshot.outcome is None:
                    raise UnknownJob(job_id)
                return
            record = from_document(JobRecord, entry.value, f"job {job_id}")
            if STRENGTH[record.intent.desired] >= STRENGTH[desired]:
                return
            now_ms = self.clock.now_ms()
            wanted = replace(
                record,
                intent=JobIntent(desired=desired, at_ms=now_ms, by=by),
                commands=commands_with(record, desired.value, by, now_ms),
            )
            failpoint("command.stop.before")
            try:
                self.store.transact(
                    [Check(RUNNING_JOBS, entry.key, entry.version)],
                    [Put(RUNNING_JOBS, entry.key, to_document(wanted))],
                )
            except Conflict:
                continue
            failpoint("command.stop.after")
            return
        raise Busy(f"job {job_id} is being changed by others at this moment; try again")

    def _submit(
        self,
        plan: Plan,
        file: str,
        wanted_id: int | None,
        name: str,
        options: RestoreOptions,
        by: str,
        key: str,
    ) -> JobRecord:
        snapshot = read_job(self.store, wanted_id) if wanted_id else unused(self._new_id())
        job_id = snapshot.job_id
        if key and snapshot.record is not None and snapshot.record.value.key == key:
            return snapshot.record.value
        self._check_free(snapshot, options)
        status = (
            snapshot.state.value.status.value
            if snapshot.state
            else snapshot.outcome.status.value
            if snapshot.outcome
            else ""
        )
        prepared = prepare_restore(
            self.store,
            self.storage,
            RestoreRequest(
                snapshot=snapshot,
                name=name,
                plan=plan,
                options=options,
                status=status,
                ask_sink=ask_from_here(self.store),
            ),
        )
        if prepared.start is StartMode.FRESH and snapshot.cleanup is not None:
            raise CleanupPending(
                job_id, max(1.0, (snapshot.cleanup.value.due_ms - self.clock.now_ms()) / 1000)
            )
        record = self._record(plan, file, snapshot, name, options, prepared, by, key)
        checks, writes = self._writes(snapshot, record, prepared)
        failpoint("command.submit.before")
        self.store.transact(checks, writes)
        failpoint("command.submit.after")
        return record

    def _check_free(self, snapshot: JobSnapshot, options: RestoreOptions) -> None:
        """Raise if this id is in use, unless it may be taken over from servers.

        The submit fences their driver, which is ended before the next one starts.
        """
        if snapshot.record is None:
            return
        state = snapshot.state.value if snapshot.state else None
        if not options.takeover or state is None or state.status.terminal:
            raise JobExists(snapshot.job_id, state.status.value if state else "there")
        if state.leader is not None:
            raise LedByRun(snapshot.job_id, state.leader)

    def _record(
        self,
        plan: Plan,
        file: str,
        snapshot: JobSnapshot,
        name: str,
        options: RestoreOptions,
        prepared: PreparedRestore,
        by: str,
        key: str,
    ) -> JobRecord:
        earlier = [
            snapshot.outcome.initialization_ms if snapshot.outcome else 0,
            snapshot.state.value.initialization_ms if snapshot.state else 0,
        ]
        now_ms = max(
            self.clock.now_ms(), max(earlier) + 1
        )  # clocks may step back; incarnations never share their mark
        return JobRecord(
            job_id=snapshot.job_id,
            name=name,
            initialization_ms=now_ms,
            lineage=prepared.lineage
            or f"{snapshot.job_id}-{now_ms:x}{prepared.id_floor.last_generation:04x}",
            plan=plan,
            file=file,
            intent=JobIntent(at_ms=now_ms, by=by),
            key=key,
            **restore_fields(prepared, options),
        )

    def _writes(
        self, snapshot: JobSnapshot, job: JobRecord, prepared: PreparedRestore
    ) -> tuple[list[Check], list[Put | Delete]]:
        key, fresh, first = (
            str(job.job_id),
            prepared.start is StartMode.FRESH,
            prepared.id_floor.next_checkpoint,
        )
        generation = prepared.id_floor.last_generation + (
            snapshot.record is not None
        )  # one more fences the driver that is taken over
        state = JobState(
            job_id=job.job_id,
            status=JobStatus.CREATED,
            initialization_ms=job.initialization_ms,
            generation=generation,
            next_checkpoint=first,
            changed_ms=job.initialization_ms,
            entered={JobStatus.CREATED.value: job.initialization_ms},
            events=submitted_events(snapshot, job),
        )
        empty = {
            p.id: PipelineState(
                job_id=job.job_id,
                pipeline=p.id,
                lineage=job.lineage,
                generation=generation,
                next_checkpoint=first,
            )
            for p in job.plan.pipelines
        }
        places = {
            **empty,
            **{n: _waiting(p, job.lineage, generation) for n, p in prepared.states.items()},
        }
        extra = with_resources(
            source_changes(prepared, job.job_id, job.initialization_ms), self.store, job
        )
        checks = [
            *extra.checks,
            Check(JOB_STATES, key, snapshot.state.version if snapshot.state else 0),
            Check(RUNNING_JOBS, key, snapshot.record.version if snapshot.record else 0),
            Check(PENDING_CLEANUPS, key, snapshot.cleanup.version if snapshot.cleanup else 0),
            *(Check(PIPELINES, f"{key}/{p.value.pipeline}", p.version) for p in snapshot.pipelines),
        ]
        writes: list[Put | Delete] = [
            *extra.writes,
            Put(JOB_STATES, key, to_document(state)),
            Put(RUNNING_JOBS, key, to_document(job)),
            Put(JOB_NAMES, name_key(job.name), {"version": 1, "job_id": job.job_id}),
            *(Put(PIPELINES, f"{key}/{p.pipeline}", to_document(p)) for p in places.values()),
            *(
                Delete(PIPELINES, f"{key}/{p.value.pipeline}")
                for p in snapshot.pipelines
                if p.value.pipeline not in places
            ),
        ]
        if fresh:
            writes += [Delete(CHECKPOINT_HISTORY, history) for history in snapshot.histories]
        if fresh and (snapshot.pipelines or prepared.left):
            left = CleanupRecord(
                job_id=job.job_id,
                initialization_ms=snapshot.state.value.initialization_ms if snapshot.state else 0,
                checkpoints_below=first,
                generation=generation,
            )
            writes.append(Put(PENDING_CLEANUPS, key, to_document(left)))
        return checks, writes

    def _new_id(self) -> int:
        """Return an unused id: the time and random bits."""
        return ((self.clock.now_ms() << 20) | secrets.randbits(20)) & JOB_ID_MAX


def _waiting(state: PipelineState, lineage: str, generation: int) -> PipelineState:
    """Return a pipeline that will continue: its last status is reset, unless it has finished."""
    status = state.status if state.status is PipelineStatus.FINISHED else PipelineStatus.CREATED
    return replace(state, lineage=lineage, generation=generation, status=status)
