"""Taking up a job: look, fence, bury, restore (see the package). Called by `tidegate run`, and once more for each restart of its driver.

After `claim` the caller leads the job under a generation of its own and may start a driver for it.
"""

import contextlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.coordinator.cleanup import carry_out_cleanup
from tidegate.coordinator.registry import Known, look, name_key
from tidegate.coordinator.restore import RestorePoint, check_compatible, condition_of, numbers_of, place_of, restore_points
from tidegate.coordinator.wish import RestoreWish, Start, decide
from tidegate.failpoint import failpoint
from tidegate.home import Home
from tidegate.model.document import from_document, to_document
from tidegate.model.errors import Fenced, TerminalError, UserError
from tidegate.model.plan import Plan
from tidegate.model.records import (
    CLEANUP,
    JOBS,
    MONITOR,
    NAMES,
    PIPELINES,
    STATES,
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


class StillAlive(UserError):
    """Somebody runs this job right now."""

    condition = "job-alive"

    def __init__(self, job: str, leader: ProcessRef) -> None:
        super().__init__(f"{job} is running already, under process {leader.pid} on {leader.host}. Stop that one first (Ctrl-C, or `kill {leader.pid}`)")
        self.leader = leader


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A job that is ours to run. `notes` say what was found on the way, for a person."""

    job: JobRecord
    generation: int
    start: Start
    restored: Mapping[int, int]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Submission:
    """What shall run, and as whom."""

    job_id: int
    name: str
    plan: Plan
    file: str
    wish: RestoreWish
    me: ProcessRef
    now_ms: int


class Claimant:
    """The steps of taking up jobs in one installation."""

    def __init__(self, store: Store, storage: CheckpointStorage, home: Home) -> None:
        self.store, self.storage, self.home = store, storage, home

    def claim(self, submission: Submission) -> Claim:
        """All four steps. Raises before anything is written where the job is alive, a choice is needed, or there is nothing to restore from."""
        for _ in range(CLAIMS_MAX):
            try:
                return self._claim(submission)
            except Conflict:
                continue  # someone else was quicker: look again, and find that one alive
        raise TerminalError(f"job {submission.job_id} is being taken up by several processes at once; try again")

    def _claim(self, submission: Submission) -> Claim:
        known = look(self.store, submission.job_id)
        start = self._decide(known, submission)
        wanted = submission.wish.checkpoint or None
        if start is Start.NOTHING:
            assert known.record is not None
            assert known.state is not None
            self._bury(known)
            return Claim(job=known.record.value, generation=known.state.value.generation, start=start, restored={})
        if start is Start.RESUME:
            check_compatible(submission.plan, known, self.storage)
            self._points(known, wanted)
        job, generation = self._fence(known, submission, start)
        self._bury(known)
        carry_out_cleanup(self.store, self.storage, submission.job_id)
        restored, notes = self._restore(job, generation, wanted)
        return Claim(job=job, generation=generation, start=start, restored=restored, notes=notes)

    def again(self, job: JobRecord, me: ProcessRef, failure: Failure, now_ms: int) -> Claim:
        """The driver died: the next generation, from the latest checkpoint, counted durably."""
        known = look(self.store, job.job_id)
        assert known.state is not None
        if known.state.value.leader != me:
            raise TerminalError(f"job {job.job_id} has been taken over by another process")
        before, checkpoints = known.state.value, sum(p.value.checkpoints for p in known.pipelines)
        state = replace(
            before,
            generation=before.generation + 1,
            status=JobStatus.RECOVERING,
            restarts=before.restarts + 1 if checkpoints == before.checkpoints else 1,
            checkpoints=checkpoints,
            failures=(*before.failures, failure)[-FAILURES_MAX:],
            changed_ms=now_ms,
        )
        self._write_fence(known, job, state, [p.value for p in known.pipelines])
        self._bury(known)
        restored, notes = self._restore(job, state.generation, None)
        return Claim(job=job, generation=state.generation, start=Start.RESUME, restored=restored, notes=notes)

    def _decide(self, known: Known, submission: Submission) -> Start:
        job = f"job {submission.name!r} ({submission.job_id})"
        state = known.state.value if known.state else None
        if state and not state.status.terminal and state.leader and state.leader != submission.me and is_alive(state.leader):
            raise StillAlive(job, state.leader)
        status = state.status.value if state and state.status.terminal else "killed"
        entry = self.store.get(CLEANUP, str(known.job_id))
        cleanup = from_document(CleanupRecord, entry.value, f"cleanup of {job}") if entry else None
        return decide(submission.wish, condition_of(known, cleanup), job=job, status=status, place=place_of(known))

    def _fence(self, known: Known, submission: Submission, start: Start) -> tuple[JobRecord, int]:
        """One transaction: I lead, and every older generation is refused from now on."""
        numbers = numbers_of(known, self.storage)
        generation = numbers.last_generation + 1
        fresh = start is Start.FRESH
        # The generation is in it, so that not even a fresh start that is tried again, or another one in the same millisecond, gets an old name.
        lineage = f"{submission.job_id}-{submission.now_ms:x}{generation:04x}" if fresh else known.pipelines[0].value.lineage
        job = JobRecord(
            job_id=submission.job_id,
            name=submission.name,
            initialization_ms=submission.now_ms,
            lineage=lineage,
            plan=submission.plan,
            file=submission.file,
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
        )
        planned = {p.id for p in job.plan.pipelines}
        old = {} if fresh else {p.value.pipeline: p.value for p in known.pipelines if p.value.pipeline in planned}
        empty = {
            p.id: PipelineState(job_id=job.job_id, pipeline=p.id, lineage=lineage, generation=generation, next_checkpoint=first) for p in job.plan.pipelines
        }
        failpoint("claim.fence.before")
        self._write_fence(known, job, state, list({**empty, **old}.values()), fresh=fresh)
        failpoint("claim.fence.after")
        return job, generation

    def _write_fence(self, known: Known, job: JobRecord, state: JobState, pipelines: list[PipelineState], *, fresh: bool = False) -> None:
        key = str(job.job_id)
        checks = [
            Check(STATES, key, known.state.version if known.state else 0),
            Check(JOBS, key, known.record.version if known.record else 0),
            *(Check(PIPELINES, f"{key}/{p.value.pipeline}", p.version) for p in known.pipelines),
        ]
        writes: list[Put | Delete] = [
            Put(STATES, key, to_document(state)),
            Put(JOBS, key, to_document(job)),
            Put(NAMES, name_key(job.name), {"version": 1, "job_id": job.job_id}),
            *(Put(PIPELINES, f"{key}/{p.pipeline}", to_document(replace(p, generation=state.generation))) for p in pipelines),
        ]
        stale = {p.value.pipeline for p in known.pipelines} - {p.pipeline for p in pipelines}
        writes += [Delete(PIPELINES, f"{key}/{p}") for p in stale]
        if fresh:
            cleanup = CleanupRecord(job_id=job.job_id, initialization_ms=job.initialization_ms, checkpoints_below=state.next_checkpoint)
            writes.append(Put(CLEANUP, key, to_document(cleanup)))
            writes += [Delete(MONITOR, entry.key) for entry in self.store.list(MONITOR, f"{key}/")]
        self.store.transact(checks, writes)

    def _bury(self, known: Known) -> None:
        """Kill what is left of older drivers and prove them dead; only then may their scratch files go."""
        if known.driver is not None:
            proof = kill_session(known.driver.value.process)
            if not isinstance(proof, ProvenDead):
                raise TerminalError(f"the driver of an earlier run does not die: processes {', '.join(map(str, proof.pids))}. End them, then start again")
        if known.state is not None:
            self.clear_work(known.job_id, known.state.value.generation)

    def clear_work(self, job_id: int, generation: int) -> None:
        """Remove the scratch files of this generation and of older ones; none of them may be alive."""
        for old in self.home.works(job_id, generation):
            shutil.rmtree(old, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.home.job_work(job_id).rmdir()

    def _restore(self, job: JobRecord, generation: int, wanted: int | None) -> tuple[dict[int, int], tuple[str, ...]]:
        """Move every unfinished pipeline to its restore point, all in one transaction. Whoever was overtaken since the fence touches nothing."""
        known = look(self.store, job.job_id)
        current = max((p.value.generation for p in known.pipelines), default=generation)
        if current != generation:
            raise Fenced(f"job {job.job_id}", generation, current)
        points = self._points(known, wanted)
        versions = {p.value.pipeline: p.version for p in known.pipelines}
        failpoint("claim.restore.before")
        self.store.transact(
            [Check(PIPELINES, f"{job.job_id}/{point.state.pipeline}", versions[point.state.pipeline]) for point in points],
            [Put(PIPELINES, f"{job.job_id}/{point.state.pipeline}", to_document(point.state)) for point in points],
        )
        failpoint("claim.restore.after")
        restored = {point.state.pipeline: point.state.latest.checkpoint if point.state.latest else 0 for point in points}
        return restored, tuple(note for point in points for note in point.notes)

    def _points(self, known: Known, wanted: int | None) -> list[RestorePoint]:
        return restore_points(self.storage, (p.value for p in known.pipelines), wanted)


CLAIMS_MAX = 5
FAILURES_MAX = 20
