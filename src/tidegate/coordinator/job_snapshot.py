"""All records of a job, read at one moment.

Called by the other modules here and by the CLI; it never writes.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from tidegate.model.document import from_document
from tidegate.model.records import (
    ASSIGNMENTS,
    CHECKPOINT_HISTORY,
    DRIVERS,
    JOB_NAMES,
    JOB_OUTCOMES,
    JOB_STATES,
    PENDING_CLEANUPS,
    PIPELINES,
    RUNNING_JOBS,
    SAVEPOINTS,
    Assignment,
    CleanupRecord,
    DriverRecord,
    JobOutcome,
    JobRecord,
    JobState,
    JobStatus,
    PipelineState,
    PipelineStatus,
    SavepointRequest,
)
from tidegate.store.base import Check, Entry, Get, Listing, Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stored(Generic[T]):
    """A record with the version of its document."""

    value: T
    version: int


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSnapshot:
    """All records of one job id.

    A job that ended has no `record` any more, but keeps its state. `cleanup` is what is still to be
    deleted of it, `histories` are the keys of its checkpoint histories.
    """

    job_id: int
    record: Stored[JobRecord] | None
    state: Stored[JobState] | None
    pipelines: tuple[Stored[PipelineState], ...]
    outcome: JobOutcome | None
    driver: Stored[DriverRecord] | None = None
    assignment: Stored[Assignment] | None = None
    cleanup: Stored[CleanupRecord] | None = None
    histories: tuple[str, ...] = ()
    savepoint: Stored[SavepointRequest] | None = (
        None  # the last one that was asked for, of any incarnation
    )
    heartbeats: tuple[
        Check, ...
    ] = ()  # that nothing has been heard of its driver since; of who follows the store only
    # the id was made for this very submission, so that nothing of it can be left anywhere
    unused: bool = False

    @property
    def driven(self) -> bool:
        """Whether the current generation has a driver on record."""
        return (
            self.state is not None
            and self.driver is not None
            and self.driver.value.generation == self.state.value.generation
        )

    @property
    def restore_points(self) -> dict[int, int]:
        """The newest checkpoint of each pipeline from which a next run can begin.

        Empty for a job that has finished, or whose state is not kept.
        """
        finished = self.state is not None and self.state.value.status is JobStatus.FINISHED
        discarded = (
            self.record is None and self.cleanup is not None and not self.cleanup.value.resumable
        )
        if finished or discarded:
            return {}
        return {
            p.value.pipeline: p.value.latest.checkpoint for p in self.pipelines if p.value.latest
        }

    @property
    def work_done(self) -> bool:
        """Whether every pipeline has finished, even if the job's status does not say so yet."""
        return bool(self.pipelines) and all(
            p.value.status is PipelineStatus.FINISHED for p in self.pipelines
        )


def next_checkpoint(snapshot: JobSnapshot) -> int:
    """Return an id above all checkpoint ids of this job, in any incarnation."""
    ended = snapshot.outcome.next_checkpoint if snapshot.outcome else 1
    return max(
        [
            ended,
            snapshot.state.value.next_checkpoint if snapshot.state else 1,
            *(p.value.next_checkpoint for p in snapshot.pipelines),
        ]
    )


def last_generation(snapshot: JobSnapshot) -> int:
    """Return the highest generation of this job, in any incarnation."""
    return max(
        snapshot.state.value.generation if snapshot.state else 0,
        snapshot.outcome.generation if snapshot.outcome else 0,
    )


def job_of_name(store: Store, name: str) -> int | None:
    """Return the id of the job that last ran under this name."""
    entry = store.get(JOB_NAMES, name_key(name))
    return int(entry.value["job_id"]) if entry else None


def name_key(name: str) -> str:
    """Return a job's name as a key: without control characters and of limited length."""
    return "".join(c if c.isprintable() else "?" for c in name)[:200]


def read_job(store: Store, job_id: int) -> JobSnapshot:
    """Read all records of a job, as of one moment and in one request to the store."""
    key, parts = str(job_id), f"{job_id}/"
    singles = [
        Get(map, key)
        for map in (
            JOB_STATES,
            RUNNING_JOBS,
            JOB_OUTCOMES,
            DRIVERS,
            ASSIGNMENTS,
            PENDING_CLEANUPS,
            SAVEPOINTS,
        )
    ]
    found = store.query([*singles, Listing(PIPELINES, parts), Listing(CHECKPOINT_HISTORY, parts)])
    state, record, outcome, driver, assignment, cleanup, savepoint, pipelines, histories = found
    return JobSnapshot(
        job_id=job_id,
        record=_read(JobRecord, RUNNING_JOBS, record),
        state=_read(JobState, JOB_STATES, state),
        pipelines=tuple(
            Stored(from_document(PipelineState, e.value, f"pipeline {e.key}"), e.version)
            for e in pipelines
        ),
        outcome=(
            from_document(JobOutcome, outcome[0].value, f"outcome of job {job_id}")
            if outcome
            else None
        ),
        driver=_read(DriverRecord, DRIVERS, driver),
        assignment=_read(Assignment, ASSIGNMENTS, assignment),
        cleanup=_read(CleanupRecord, PENDING_CLEANUPS, cleanup),
        histories=tuple(e.key for e in histories),
        savepoint=_read(SavepointRequest, SAVEPOINTS, savepoint),
    )


def unused(job_id: int) -> JobSnapshot:
    """Return the snapshot of an id that was generated for this submission.

    Neither the store nor the checkpoint storage, which may be far away, is read. The transaction
    that writes it still requires that nothing exists.
    """
    return JobSnapshot(
        job_id=job_id, record=None, state=None, pipelines=(), outcome=None, unused=True
    )


def _read(kind: type[T], map: str, found: list[Entry]) -> Stored[T] | None:
    return (
        Stored(
            from_document(kind, found[0].value, f"{map} of job {found[0].key}"), found[0].version
        )
        if found
        else None
    )
