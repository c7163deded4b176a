"""What the store knows of a job, read in one go. Called by the other modules here and by the CLI; it never writes."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from tidegate.model.document import from_document
from tidegate.model.records import FINISHED, JOBS, NAMES, PIPELINES, STATES, JobOutcome, JobRecord, JobState, PipelineState, PipelineStatus
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

    @property
    def work_done(self) -> bool:
        """Whether every pipeline has finished, said or unsaid."""
        return bool(self.pipelines) and all(p.value.status is PipelineStatus.FINISHED for p in self.pipelines)


def job_of_name(store: Store, name: str) -> int | None:
    """The id of the job that last ran under this name."""
    entry = store.get(NAMES, name_key(name))
    return int(entry.value["job_id"]) if entry else None


def name_key(name: str) -> str:
    """A job's name as a key: keys have no control characters and a limited length."""
    return "".join(c if c.isprintable() else "?" for c in name)[:200]


def look(store: Store, job_id: int) -> Known:
    """All records of a job."""
    record, state, outcome = store.get(JOBS, str(job_id)), store.get(STATES, str(job_id)), store.get(FINISHED, str(job_id))
    pipelines = store.list(PIPELINES, f"{job_id}/")
    return Known(
        job_id=job_id,
        record=Stored(from_document(JobRecord, record.value, f"job {job_id}"), record.version) if record else None,
        state=Stored(from_document(JobState, state.value, f"state of job {job_id}"), state.version) if state else None,
        pipelines=tuple(Stored(from_document(PipelineState, e.value, f"pipeline {e.key}"), e.version) for e in pipelines),
        outcome=from_document(JobOutcome, outcome.value, f"outcome of job {job_id}") if outcome else None,
    )
