"""What the store knows of a job, read in one go. Called by the other modules here and by the CLI; it never writes."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from tidegate.model.document import from_document
from tidegate.model.records import (
    ASSIGNMENTS,
    DRIVERS,
    FINISHED,
    JOBS,
    NAMES,
    PIPELINES,
    STATES,
    Assignment,
    DriverRecord,
    JobOutcome,
    JobRecord,
    JobState,
    PipelineState,
    PipelineStatus,
)
from tidegate.store.base import Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stored(Generic[T]):
    """A record with the version of its document."""

    value: T
    version: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """Everything about one job id. A job that ended has no record any more, but keeps its state."""

    job_id: int
    record: Stored[JobRecord] | None
    state: Stored[JobState] | None
    pipelines: tuple[Stored[PipelineState], ...]
    outcome: JobOutcome | None
    driver: Stored[DriverRecord] | None = None
    assignment: Stored[Assignment] | None = None

    @property
    def driven(self) -> bool:
        """Whether the current generation has a driver."""
        return self.state is not None and self.driver is not None and self.driver.value.generation == self.state.value.generation

    @property
    def work_done(self) -> bool:
        """Whether every pipeline has finished, said or unsaid."""
        return bool(self.pipelines) and all(p.value.status is PipelineStatus.FINISHED for p in self.pipelines)


def next_checkpoint(known: Known) -> int:
    """An id above all that this job has ever given to a checkpoint, in any incarnation."""
    ended = known.outcome.next_checkpoint if known.outcome else 1
    return max([ended, known.state.value.next_checkpoint if known.state else 1, *(p.value.next_checkpoint for p in known.pipelines)])


def last_generation(known: Known) -> int:
    """The highest generation that this job has ever had, in any incarnation."""
    return max(known.state.value.generation if known.state else 0, known.outcome.generation if known.outcome else 0)


def job_of_name(store: Store, name: str) -> int | None:
    """The id of the job that last ran under this name."""
    entry = store.get(NAMES, name_key(name))
    return int(entry.value["job_id"]) if entry else None


def name_key(name: str) -> str:
    """A job's name as a key: keys have no control characters and a limited length."""
    return "".join(c if c.isprintable() else "?" for c in name)[:200]


def look(store: Store, job_id: int) -> Known:
    """All records of a job. The state is read first: whoever changes the rest for good changes it too, so that what was read in the middle of such a change
    fails on the version of the state."""
    state = _read(store, JobState, STATES, job_id)
    record = _read(store, JobRecord, JOBS, job_id)
    outcome = store.get(FINISHED, str(job_id))
    pipelines = store.list(PIPELINES, f"{job_id}/")
    return Known(
        job_id=job_id,
        record=record,
        state=state,
        pipelines=tuple(Stored(from_document(PipelineState, e.value, f"pipeline {e.key}"), e.version) for e in pipelines),
        outcome=from_document(JobOutcome, outcome.value, f"outcome of job {job_id}") if outcome else None,
        driver=_read(store, DriverRecord, DRIVERS, job_id),
        assignment=_read(store, Assignment, ASSIGNMENTS, job_id),
    )


def _read(store: Store, kind: type[T], map: str, job_id: int) -> Stored[T] | None:
    entry = store.get(map, str(job_id))
    return Stored(from_document(kind, entry.value, f"{map} of job {job_id}"), entry.version) if entry else None
