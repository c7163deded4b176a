"""Takes up a job: read, fence, kill, restore (see the package).

Called by `tidegate run`, and again for each restart of its driver. After `claim` the caller leads
the job under a generation of its own and may start a driver for it.
"""

import contextlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.coordinator.cleanup import StillClaimed, carry_out_cleanup
from tidegate.coordinator.external_resources import drop_unneeded, with_resources
from tidegate.coordinator.job_history import submitted_events, with_status
from tidegate.coordinator.job_snapshot import JobSnapshot, name_key, read_job
from tidegate.coordinator.restore.options import RestoreOptions, StartMode
from tidegate.coordinator.restore.planning import (
    PreparedRestore,
    RestoreRequest,
    SubmitChanges,
    points_of,
    prepare_restore,
    restore_fields,
    source_changes,
)
from tidegate.coordinator.restore.points import copy_checkpoints, supersede_savepoints
from tidegate.coordinator.restore.report import PositionProbe
from tidegate.coordinator.restore.sink_checks import AskSink
from tidegate.coordinator.terminal_transaction import terminal_transaction
from tidegate.failpoint import failpoint
from tidegate.home import Home
from tidegate.model.document import to_document
from tidegate.model.errors import Fenced, TerminalError, UserError
from tidegate.model.plan import Plan
from tidegate.model.records import (
    CHECKPOINT_HISTORY,
    JOB_NAMES,
    JOB_STATES,
    PENDING_CLEANUPS,
    PIPELINES,
    RESTORE_CLAIMS,
    RUNNING_JOBS,
    CleanupRecord,
    Failure,
    JobRecord,
    JobState,
    JobStatus,
    PipelineState,
    ProcessRef,
)
from tidegate.runner.process import ProvenDead, is_alive, kill_session
from tidegate.store.base import Check, Delete, Put, Store
from tidegate.store.errors import Conflict


class JobAlive(UserError):
    """Another `tidegate run` runs this job."""

    condition = "job-alive"

    def __init__(self, job: str, leader: ProcessRef) -> None:
        super().__init__(
            f"{job} is running already, under process {leader.pid} on {leader.host}. Stop that one"
            f" first (Ctrl-C, or `kill {leader.pid}`), or take the job over with --takeover"
        )
        self.leader = leader


class RunByServers(UserError):
    """The servers of this installation run this job."""

    condition = "job-alive"

    def __init__(self, job: str, status: str) -> None:
        super().__init__(
            f"{job} is {status}, and the servers of this installation run it: stop it there first,"
            " or submit it there with takeover=true"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A job that this process leads. `notes` are findings for the user."""

    job: JobRecord
    generation: int
    start: StartMode
    restored: Mapping[int, int]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Submission:
    """The job to run, and the process that runs it."""

    job_id: int
    name: str
    plan: Plan
    file: str
    options: RestoreOptions
    me: ProcessRef
    now_ms: int
    probe: PositionProbe | None = None  # asks a source whether it still has a position
    ask_sink: AskSink | None = None  # asks a sink what its target remembers


class Claimant:
    """The steps of taking up jobs in one installation."""

    def __init__(self, store: Store, storage: CheckpointStorage, home: Home) -> None:
        self.store = store
        self.storage = storage
        self.home = home

    def claim(self, submission: Submission) -> Claim:
        """Carry out all four steps.

        Raises before anything is written if the job is alive, a choice is needed, or there is no
        state to restore from.
        """
        for _ in range(CLAIMS_MAX):
            try:
                return self._claim(submission)
            except Conflict:
                continue  # another process was faster: read again, and find that one alive
        raise TerminalError(
            f"job {submission.job_id} is being taken up by several processes at once; try again"
        )

    def _claim(self, submission: Submission) -> Claim:
        drop_unneeded(self.store, submission.now_ms)  # no leader does it for embedded runs
        snapshot = self._read_job(submission)
        prepared = prepare_restore(self.store, self.storage, self.request(snapshot, submission))
        if prepared.start is StartMode.NOTHING:
            assert snapshot.record is not None
            assert snapshot.state is not None
            self._kill_and_confirm(snapshot)
            return Claim(
                job=snapshot.record.value,
                generation=snapshot.state.value.generation,
                start=prepared.start,
                restored={},
            )
        job, generation = self._fence(snapshot, submission, prepared)
        self._kill_and_confirm(snapshot)
        with contextlib.suppress(StillClaimed):
            carry_out_cleanup(self.store, self.storage, submission.job_id)
        restored, notes = self._restore(job, generation, submission.now_ms, first=True)
        notes = tuple(dict.fromkeys([*prepared.report.notes, *notes]))
        return Claim(
            job=job, generation=generation, start=prepared.start, restored=restored, notes=notes
        )

    def request(self, snapshot: JobSnapshot, submission: Submission) -> RestoreRequest:
        state = snapshot.state.value if snapshot.state else None
        status = (
            ""
            if state is None and snapshot.outcome is None
            else state.status.value
            if state and state.status.terminal
            else "killed"
        )
        return RestoreRequest(
            snapshot=snapshot,
            name=submission.name,
            plan=submission.plan,
            options=submission.options,
            status=status,
            probe=submission.probe,
            ask_sink=submission.ask_sink,
        )

    def _read_job(self, submission: Submission) -> JobSnapshot:
        """What is known of the job; nobody else may run it, unless it is taken over.

        A job whose state is wanted and which was killed is ended first.
        """
        if submission.options.source_job is not None:
            self._end_killed(submission.options.source_job, submission)
        snapshot = read_job(self.store, submission.job_id)
        state, job = (
            snapshot.state.value if snapshot.state else None,
            f"job {submission.name!r} ({submission.job_id})",
        )
        if state is None or state.status.terminal or snapshot.record is None:
            return snapshot
        if state.leader is None:
            raise RunByServers(job, state.status.value)
        if (
            state.leader != submission.me
            and is_alive(state.leader)
            and not submission.options.takeover
        ):
            raise JobAlive(job, state.leader)
        return snapshot

    def _end_killed(self, source: int, submission: Submission) -> None:
        """End the job of a killed or taken-over run, so that its lineage can continue elsewhere."""
        snapshot = read_job(self.store, source)
        state = snapshot.state.value if snapshot.state else None
        if (
            snapshot.record is None
            or state is None
            or state.leader is None
            or state.status.terminal
        ):
            return
        if is_alive(state.leader) and not submission.options.takeover:
            return  # it continues: this one will be a fork
        message = (
            f"its run did not end in order, and its state is continued by job {submission.job_id}"
        )
        failure = Failure(
            at_ms=submission.now_ms,
            generation=state.generation,
            condition="continued-elsewhere",
            domain="user",
            message=message,
        )
        ending = terminal_transaction(
            snapshot, JobStatus.FAILED, submission.now_ms, failure=failure, reason=message
        )
        failpoint("claim.source.before")
        self.store.transact(ending.checks, ending.writes)
        failpoint("claim.source.after")
        self._kill_and_confirm(snapshot)

    def restart(self, job: JobRecord, me: ProcessRef, failure: Failure, now_ms: int) -> Claim:
        """Start the next generation after a driver died, from the latest checkpoint.

        The restart is counted durably.
        """
        snapshot = read_job(self.store, job.job_id)
        if snapshot.record is None or snapshot.state is None or snapshot.state.value.leader != me:
            raise TerminalError(f"job {job.job_id} has been taken over by another process")
        # with what is wanted of it by now: a stop that comes while its driver dies is not forgotten
        job = snapshot.record.value
        before, checkpoints = (
            snapshot.state.value,
            sum(p.value.checkpoints for p in snapshot.pipelines),
        )
        state = replace(
            with_status(
                before,
                JobStatus.RECOVERING,
                now_ms,
                generation=before.generation + 1,
                event_reason=failure.message,
            ),
            restarts=before.restarts + 1 if checkpoints == before.checkpoints else 1,
            checkpoints=checkpoints,
            failures=(*before.failures, failure)[-FAILURES_MAX:],
        )
        self._write_fence(snapshot, job, state, [p.value for p in snapshot.pipelines])
        self._kill_and_confirm(snapshot)
        restored, notes = self._restore(job, state.generation, now_ms)
        return Claim(
            job=job,
            generation=state.generation,
            start=StartMode.RESUME,
            restored=restored,
            notes=notes,
        )

    def _fence(
        self, snapshot: JobSnapshot, submission: Submission, prepared: PreparedRestore
    ) -> tuple[JobRecord, int]:
        """Take the lead in one transaction; every older generation is rejected from now on."""
        numbers = prepared.id_floor
        generation = numbers.last_generation + 1
        fresh = prepared.start is StartMode.FRESH
        # The generation is in it, so that not even a fresh start that is tried again, or another
        # one in the same millisecond, gets an old name.
        lineage = prepared.lineage or f"{submission.job_id}-{submission.now_ms:x}{generation:04x}"
        job = JobRecord(
            job_id=submission.job_id,
            name=submission.name,
            initialization_ms=submission.now_ms,
            lineage=lineage,
            plan=submission.plan,
            file=submission.file,
            **restore_fields(prepared, submission.options),
        )
        first = numbers.next_checkpoint
        state = JobState(
            job_id=job.job_id,
            status=JobStatus.SCHEDULED,
            initialization_ms=submission.now_ms,
            generation=generation,
            leader=submission.me,
            next_checkpoint=first,
            changed_ms=submission.now_ms,
            entered={JobStatus.SCHEDULED.value: submission.now_ms},
            started_ms=submission.now_ms,
            events=submitted_events(snapshot, job),
        )
        empty = {
            p.id: PipelineState(
                job_id=job.job_id,
                pipeline=p.id,
                lineage=lineage,
                generation=generation,
                next_checkpoint=first,
            )
            for p in job.plan.pipelines
        }
        old = {number: replace(place, lineage=lineage) for number, place in prepared.states.items()}
        extra = with_resources(
            source_changes(prepared, job.job_id, submission.now_ms), self.store, job
        )
        failpoint("claim.fence.before")
        self._write_fence(
            snapshot, job, state, list({**empty, **old}.values()), fresh=fresh, extra=extra
        )
        failpoint("claim.fence.after")
        return job, generation

    def _write_fence(
        self,
        snapshot: JobSnapshot,
        job: JobRecord,
        state: JobState,
        pipelines: list[PipelineState],
        *,
        fresh: bool = False,
        extra: SubmitChanges | None = None,
    ) -> None:
        key, extra = str(job.job_id), extra or SubmitChanges()
        checks = [
            *extra.checks,
            Check(JOB_STATES, key, snapshot.state.version if snapshot.state else 0),
            Check(RUNNING_JOBS, key, snapshot.record.version if snapshot.record else 0),
            *(Check(PIPELINES, f"{key}/{p.value.pipeline}", p.version) for p in snapshot.pipelines),
        ]
        writes: list[Put | Delete] = [
            *extra.writes,
            Put(JOB_STATES, key, to_document(state)),
            Put(RUNNING_JOBS, key, to_document(job)),
            Put(JOB_NAMES, name_key(job.name), {"version": 1, "job_id": job.job_id}),
            *(
                Put(
                    PIPELINES,
                    f"{key}/{p.pipeline}",
                    to_document(replace(p, generation=state.generation)),
                )
                for p in pipelines
            ),
        ]
        stale = {p.value.pipeline for p in snapshot.pipelines} - {p.pipeline for p in pipelines}
        writes += [Delete(PIPELINES, f"{key}/{p}") for p in stale]
        if fresh:
            cleanup = CleanupRecord(
                job_id=job.job_id,
                initialization_ms=job.initialization_ms,
                checkpoints_below=state.next_checkpoint,
                generation=state.generation - 1,
            )
            writes.append(Put(PENDING_CLEANUPS, key, to_document(cleanup)))
            writes += [Delete(CHECKPOINT_HISTORY, history) for history in snapshot.histories]
        self.store.transact(checks, writes)

    def _kill_and_confirm(self, snapshot: JobSnapshot) -> None:
        """Kill remaining processes of older drivers and prove them dead.

        Only then may their scratch files be removed.
        """
        if snapshot.driver is not None:
            proof = kill_session(snapshot.driver.value.process)
            if not isinstance(proof, ProvenDead):
                raise TerminalError(
                    "the driver of an earlier run does not die: processes"
                    f" {', '.join(map(str, proof.pids))}. End them, then start again"
                )
        if snapshot.state is not None:
            self.clear_work(snapshot.job_id, snapshot.state.value.generation)

    def clear_work(self, job_id: int, generation: int) -> None:
        """Remove the scratch files of this and older generations; none of them may be alive."""
        for old in self.home.existing_work(job_id, generation):
            shutil.rmtree(old, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.home.job_work(job_id).rmdir()

    def _restore(
        self, job: JobRecord, generation: int, now_ms: int, *, first: bool = False
    ) -> tuple[dict[int, int], tuple[str, ...]]:
        """Move every unfinished pipeline to its restore point, in one transaction.

        A process that was fenced in the meantime changes nothing.
        """
        snapshot = read_job(self.store, job.job_id)
        current = max((p.value.generation for p in snapshot.pipelines), default=generation)
        if current != generation:
            raise Fenced(f"job {job.job_id}", generation, current)
        points = points_of(
            self.store, self.storage, job, [p.value for p in snapshot.pipelines], first=first
        )
        states = [copy_checkpoints(self.storage, point.state, generation) for point in points]
        supersede_savepoints(self.storage, states, now_ms)
        versions = {p.value.pipeline: p.version for p in snapshot.pipelines}
        failpoint("claim.restore.before")
        self.store.transact(
            [
                Check(PIPELINES, f"{job.job_id}/{state.pipeline}", versions[state.pipeline])
                for state in states
            ],
            [
                *(
                    Put(PIPELINES, f"{job.job_id}/{state.pipeline}", to_document(state))
                    for state in states
                ),
                Delete(RESTORE_CLAIMS, str(job.job_id)),
            ],
        )
        failpoint("claim.restore.after")
        restored = {
            state.pipeline: state.latest.checkpoint if state.latest else 0 for state in states
        }
        return restored, tuple(note for point in points for note in point.notes)


CLAIMS_MAX = 5
FAILURES_MAX = 20
