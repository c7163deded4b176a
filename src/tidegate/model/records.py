"""What the store keeps of a job while it lives: who runs it, where its pipelines are, which checkpoints it has.

| record | map | written by | fenced with |
|---|---|---|---|
| JobRecord | running-job-info | commands | version of the row |
| JobState | running-job-state | the job's leader (`tidegate run`, later the reconciler) | version, term |
| PipelineState | running-pipeline-state | driver; the leader moves `generation` | generation |
| PipelineMetrics | running-job-metrics | driver, written behind | generation |
| CheckpointEvent | checkpoint-monitor | driver, with PipelineState | generation |
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tidegate.model.plan import Plan

JOBS = "running-job-info"
STATES = "running-job-state"
PIPELINES = "running-pipeline-state"
METRICS = "running-job-metrics"
MONITOR = "checkpoint-monitor"
CLEANUP = "pending-job-cleanup"
FINISHED = "finished-job-state"
NAMES = "job-names"


class JobStatus(StrEnum):
    """The reference's names, and RECOVERING."""

    INITIALIZING = "INITIALIZING"
    CREATED = "CREATED"
    PENDING = "PENDING"
    SCHEDULED = "SCHEDULED"
    RUNNING = "RUNNING"
    RECOVERING = "RECOVERING"
    FAILING = "FAILING"
    FAILED = "FAILED"
    DOING_SAVEPOINT = "DOING_SAVEPOINT"
    SAVEPOINT_DONE = "SAVEPOINT_DONE"
    CANCELING = "CANCELING"
    CANCELED = "CANCELED"
    FINISHED = "FINISHED"
    UNKNOWABLE = "UNKNOWABLE"

    @property
    def terminal(self) -> bool:
        """Whether nothing may change any more."""
        return self in TERMINAL


TERMINAL = frozenset({JobStatus.FAILED, JobStatus.SAVEPOINT_DONE, JobStatus.CANCELED, JobStatus.FINISHED, JobStatus.UNKNOWABLE})


class PipelineStatus(StrEnum):
    """Where one pipeline is."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    FAILED = "FAILED"


class CheckpointKind(StrEnum):
    """Why a checkpoint was made."""

    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"
    COMPLETED_POINT = "completed-point"


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessRef:
    """A process that cannot be mistaken for a later one with the same pid: its start time and boot are part of its name. It leads its session."""

    pid: int
    started: int
    boot: str
    host: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """One thing that went wrong, for the failure history."""

    at_ms: int
    generation: int
    pipeline: int = 0
    condition: str = "error"
    domain: str = "internal"
    message: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRecord:
    """One incarnation of a job: what was submitted."""

    version: int = 1
    job_id: int
    name: str
    initialization_ms: int
    lineage: str
    plan: Plan
    file: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobState:
    """Where an incarnation is, and who runs it."""

    version: int = 1
    job_id: int
    status: JobStatus
    generation: int = 0
    leader: ProcessRef | None = None
    driver: ProcessRef | None = None
    restarts: int = 0  # of the driver, without a checkpoint between them
    checkpoints: int = 0  # how many there were at the last restart
    failures: tuple[Failure, ...] = ()
    changed_ms: int = 0


@dataclass(frozen=True, slots=True)
class SourceRange:
    """The exact part of a source that a batch reads: (start, end]. Offsets are JSON values that only the source understands."""

    start: Any
    end: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingBatch:
    """A batch that has begun and is not complete: a successor repeats exactly this."""

    checkpoint: int
    ranges: Mapping[str, SourceRange]
    generation: int
    begun_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointRef:
    """A completed checkpoint; `path` is relative to the checkpoint storage's root."""

    checkpoint: int
    path: str
    kind: CheckpointKind = CheckpointKind.CHECKPOINT
    generation: int
    begun_ms: int
    completed_ms: int
    bytes: int = 0
    rows_read: int = 0
    rows_written: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineState:
    """The durable place of one pipeline. Every change is conditioned on the version of the document, and so on its generation."""

    version: int = 1
    job_id: int
    pipeline: int
    lineage: str
    generation: int
    status: PipelineStatus = PipelineStatus.CREATED
    initial: Mapping[str, Any] | None = None  # where every source began; asked once in the life of a lineage
    next_checkpoint: int = 1
    pending: PendingBatch | None = None
    retained: tuple[CheckpointRef, ...] = ()  # oldest first; the last one is the latest
    doomed: tuple[CheckpointRef, ...] = ()  # no longer retained, not yet deleted
    ready_to_close: tuple[str, ...] = ()
    rows_read: int = 0
    rows_written: int = 0
    checkpoints: int = 0
    confirmed_ms: int = 0
    restarts: int = 0
    error: Failure | None = None

    @property
    def latest(self) -> CheckpointRef | None:
        """The newest completed checkpoint."""
        return self.retained[-1] if self.retained else None


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineMetrics:
    """How far a pipeline is right now: for displays, never for decisions. Attempted rows, not committed ones."""

    version: int = 1
    pipeline: int
    generation: int
    phase: str = ""
    checkpoint: int = 0
    rows_read: int = 0
    rows_written: int = 0
    done: float = 0
    total: float = 0
    unit: str = ""
    at_ms: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointHistory:
    """The last checkpoints of a pipeline, for timelines; bounded."""

    version: int = 1
    entries: tuple[CheckpointRef, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class CleanupRecord:
    """What has to be deleted, by whoever comes first; idempotent. Paths are relative to the storage's root."""

    version: int = 1
    job_id: int
    initialization_ms: int
    directories: tuple[str, ...] = ()
    due_ms: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class JobOutcome:
    """How an incarnation ended."""

    version: int = 1
    job_id: int
    name: str
    initialization_ms: int
    lineage: str
    status: JobStatus
    finished_ms: int
    rows_read: int = 0
    rows_written: int = 0
    checkpoints: int = 0
    failures: tuple[Failure, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
