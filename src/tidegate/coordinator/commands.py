"""What people ask for, made durable: submit, stop. Called by the API of any server, leader or not.

A command checks, writes a record or a wish in one transaction, and returns. It starts and stops nothing: the leader does, whoever that is by then.
"""

import secrets
from dataclasses import replace

from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.coordinator.registry import Known, last_generation, look, name_key
from tidegate.coordinator.restore import check_compatible, condition_of, numbers_of, place_of, restore_points
from tidegate.coordinator.wish import RestoreWish, Start, decide
from tidegate.failpoint import failpoint
from tidegate.model.document import from_document, to_document
from tidegate.model.engine import EngineSettings
from tidegate.model.errors import TransientError, UserError
from tidegate.model.ids import JOB_ID_MAX
from tidegate.model.plan import Plan
from tidegate.model.records import (
    CLEANUP,
    JOBS,
    MONITOR,
    NAMES,
    PIPELINES,
    STATES,
    CleanupRecord,
    JobIntent,
    JobRecord,
    JobState,
    JobStatus,
    PipelineState,
    Wish,
)
from tidegate.pipeline.clock import Clock
from tidegate.store.base import Check, Delete, Entry, Put, Store
from tidegate.store.errors import Conflict

TRIES_MAX = 8
STRENGTH = {Wish.RUN: 0, Wish.SAVEPOINT: 1, Wish.CANCEL: 2, Wish.FORCE_STOP: 3}


class JobExists(UserError):
    """The id is in use."""

    condition = "job-exists"

    def __init__(self, job_id: int, status: str) -> None:
        super().__init__(f"job {job_id} is {status} already: stop it first, or submit under another id")
        self.job_id = job_id


class CleanupPending(UserError):
    """What an ended incarnation has left is still there."""

    condition = "cleanup-pending"

    def __init__(self, job_id: int, wait_s: float) -> None:
        super().__init__(
            f"job {job_id} has ended, and what it left is cleaned up in {wait_s:.0f} s: submit it again after that, "
            "or at once with restore=latest, or under another id"
        )
        self.job_id, self.wait_s = job_id, wait_s


class UnknownJob(UserError):
    """No such job."""

    condition = "unknown-job"

    def __init__(self, job_id: int) -> None:
        super().__init__(f"there is no job {job_id} here")
        self.job_id = job_id


class Busy(TransientError):
    """Others were quicker, again and again."""

    condition = "busy"


class Commands:
    """The commands of one installation."""

    def __init__(self, store: Store, storage: CheckpointStorage, settings: EngineSettings, clock: Clock) -> None:
        self.store, self.storage, self.settings, self.clock = store, storage, settings, clock

    def submit(self, plan: Plan, *, file: str, job_id: int | None, name: str | None, restore: RestoreWish, by: str = "", key: str = "") -> JobRecord:
        """A new incarnation, durable when this returns. UserError: refused, and nothing was written."""
        for _ in range(TRIES_MAX):
            try:
                return self._submit(plan, file, job_id or self._new_id(), name or plan.job_name, restore, by, key)
            except Conflict:
                continue
        raise Busy(f"job {job_id} is being changed by others at this moment; try again")

    def stop(self, job_id: int, wish: Wish, by: str = "") -> None:
        """Record what is wanted of a job. A job that has ended stays as it is; a weaker wish than the standing one changes nothing."""
        for _ in range(TRIES_MAX):
            entry = self.store.get(JOBS, str(job_id))
            if entry is None:
                if look(self.store, job_id).state is None and look(self.store, job_id).outcome is None:
                    raise UnknownJob(job_id)
                return
            record = from_document(JobRecord, entry.value, f"job {job_id}")
            if STRENGTH[record.intent.wish] >= STRENGTH[wish]:
                return
            wanted = replace(record, intent=JobIntent(wish=wish, at_ms=self.clock.now_ms(), by=by))
            failpoint("command.stop.before")
            try:
                self.store.transact([Check(JOBS, entry.key, entry.version)], [Put(JOBS, entry.key, to_document(wanted))])
            except Conflict:
                continue
            failpoint("command.stop.after")
            return
        raise Busy(f"job {job_id} is being changed by others at this moment; try again")

    def _submit(self, plan: Plan, file: str, job_id: int, name: str, wish: RestoreWish, by: str, key: str) -> JobRecord:
        known, cleanup = look(self.store, job_id), self.store.get(CLEANUP, str(job_id))
        if known.record is not None:
            if key and known.record.value.key == key:
                return known.record.value
            raise JobExists(job_id, known.state.value.status.value if known.state else "there")
        left = from_document(CleanupRecord, cleanup.value, f"cleanup of job {job_id}") if cleanup else None
        start = self._decide(known, left, name, wish)
        if start is Start.FRESH and left is not None:
            raise CleanupPending(job_id, max(1.0, (left.due_ms - self.clock.now_ms()) / 1000))
        if start is Start.RESUME:
            check_compatible(plan, known, self.storage)
            restore_points(self.storage, (p.value for p in known.pipelines), wish.checkpoint or None)
        record = replace(self._record(plan, file, known, name, wish, start, by), key=key)
        checks, writes = self._writes(known, cleanup, record, fresh=start is Start.FRESH)
        failpoint("command.submit.before")
        self.store.transact(checks, writes)
        failpoint("command.submit.after")
        return record

    def _decide(self, known: Known, left: CleanupRecord | None, name: str, wish: RestoreWish) -> Start:
        status = known.state.value.status.value if known.state else known.outcome.status.value if known.outcome else ""
        start = decide(wish, condition_of(known, left), job=f"job {name!r} ({known.job_id})", status=status, place=place_of(known))
        return Start.RESUME if start is Start.NOTHING else start

    def _record(self, plan: Plan, file: str, known: Known, name: str, wish: RestoreWish, start: Start, by: str) -> JobRecord:
        earlier = [known.outcome.initialization_ms if known.outcome else 0, known.state.value.initialization_ms if known.state else 0]
        now_ms = max(self.clock.now_ms(), max(earlier) + 1)  # clocks may step back; incarnations never share their mark
        fresh = start is Start.FRESH
        lineage = f"{known.job_id}-{now_ms:x}{last_generation(known):04x}" if fresh else known.pipelines[0].value.lineage
        return JobRecord(
            job_id=known.job_id,
            name=name,
            initialization_ms=now_ms,
            lineage=lineage,
            plan=plan,
            file=file,
            intent=JobIntent(at_ms=now_ms, by=by),
            restored=not fresh,
            checkpoint=wish.checkpoint,
        )

    def _writes(self, known: Known, cleanup: Entry | None, job: JobRecord, *, fresh: bool) -> tuple[list[Check], list[Put | Delete]]:
        key, numbers = str(job.job_id), numbers_of(known, self.storage)
        first = numbers.next_checkpoint
        state = JobState(
            job_id=job.job_id,
            status=JobStatus.CREATED,
            initialization_ms=job.initialization_ms,
            generation=numbers.last_generation,
            next_checkpoint=first,
            changed_ms=job.initialization_ms,
            entered={JobStatus.CREATED.value: job.initialization_ms},
        )
        old = {} if fresh else {p.value.pipeline: p.value for p in known.pipelines}
        new = {
            p.id: PipelineState(job_id=job.job_id, pipeline=p.id, lineage=job.lineage, generation=state.generation, next_checkpoint=first)
            for p in job.plan.pipelines
            if p.id not in old
        }
        checks = [
            Check(STATES, key, known.state.version if known.state else 0),
            Check(JOBS, key, 0),
            Check(CLEANUP, key, cleanup.version if cleanup else 0),
            *(Check(PIPELINES, f"{key}/{p.value.pipeline}", p.version) for p in known.pipelines),
        ]
        writes: list[Put | Delete] = [
            Put(STATES, key, to_document(state)),
            Put(JOBS, key, to_document(job)),
            Put(NAMES, name_key(job.name), {"version": 1, "job_id": job.job_id}),
            *(Put(PIPELINES, f"{key}/{p.pipeline}", to_document(p)) for p in new.values()),
        ]
        if fresh:
            writes += [Delete(PIPELINES, f"{key}/{p.value.pipeline}") for p in known.pipelines if p.value.pipeline not in new]
            writes += [Delete(MONITOR, entry.key) for entry in self.store.list(MONITOR, f"{key}/")]
        if known.pipelines and fresh:
            left = CleanupRecord(job_id=job.job_id, initialization_ms=known.state.value.initialization_ms if known.state else 0, checkpoints_below=first)
            writes.append(Put(CLEANUP, key, to_document(left)))
        return checks, writes

    def _new_id(self) -> int:
        """An id that nobody has: the time, and some chance."""
        return ((self.clock.now_ms() << 20) | secrets.randbits(20)) & JOB_ID_MAX
