"""Records that the store keeps of a running job: driver, pipeline state, checkpoints.

| record | map | written by | fenced with |
|---|---|---|---|
| JobRecord, with its JobIntent | running-job-info | commands (any server) | version of the row |
| JobState | running-job-state | the job's leader: reconciler or `tidegate run` | version, term |
| Assignment | assignments | reconciler | version, term |
| DriverRecord | drivers | the driver at its start; who proved its death | version, generation |
| PipelineState | running-pipeline-state | driver; the leader increments `generation` | generation |
| PipelineMetrics | running-job-metrics | driver, written behind; also its heartbeat | generation |
| SavepointRequest | job-savepoints | commands; the driver its outcome | version, generation |
| CheckpointHistory | checkpoint-monitor | driver, with PipelineState | generation |
| CleanupRecord | pending-job-cleanup | the process that ends the job | version, term |
| JobOutcome | finished-job-state | the process that ends the job | version, term |
| Lease | leases | elector (`coordinator`), worker (`worker/<id>`) | version |
| Heartbeat | lease-beats | the holder of the lease of the same key | version of the lease |
| AccessToken | access-tokens | commands of an admin | version |
| WorkerRecord | workers | worker | version of its lease |
| ServerRecord | servers | the server, as heartbeat; the leader removes it | version, term |
| RestoreClaim | restore-claims | the submit of a restore | version of the job's rows |
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tidegate.model.cluster_members import Heartbeat as Heartbeat
from tidegate.model.cluster_members import Lease as Lease
from tidegate.model.cluster_members import ProcessRef as ProcessRef
from tidegate.model.cluster_members import ServerRecord as ServerRecord
from tidegate.model.cluster_members import WorkerRecord as WorkerRecord
from tidegate.model.job_events import JobEvent as JobEvent
from tidegate.model.job_events import JobEventKind as JobEventKind
from tidegate.model.log_retention import LogRetentionMetric, RetentionLevel
from tidegate.model.plan import Plan
from tidegate.model.restore import Replan, RestoreReport
from tidegate.model.table_changes import AcceptedChange, ChangeStop
from tidegate.model.throughput import PipelineRates, Volumes

RUNNING_JOBS = "running-job-info"
JOB_STATES = "running-job-state"
PIPELINES = "running-pipeline-state"
METRICS = "running-job-metrics"
CHECKPOINT_HISTORY = "checkpoint-monitor"
PENDING_CLEANUPS = "pending-job-cleanup"
JOB_OUTCOMES = "finished-job-state"
JOB_NAMES = "job-names"
ASSIGNMENTS = "assignments"
DRIVERS = "drivers"
LEASES = "leases"
HEARTBEATS = "lease-beats"
WORKERS = "workers"
SERVERS = "servers"
TOKENS = "access-tokens"
SAVEPOINTS = "job-savepoints"
RESTORE_CLAIMS = "restore-claims"


class JobStatus(StrEnum):
    """The status names of SeaTunnel, and RECOVERING."""

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
        """Whether the status is final."""
        return self in TERMINAL


TERMINAL = frozenset(
    {
        JobStatus.FAILED,
        JobStatus.SAVEPOINT_DONE,
        JobStatus.CANCELED,
        JobStatus.FINISHED,
        JobStatus.UNKNOWABLE,
    }
)


class CheckpointHealth(StrEnum):
    OK = "OK"
    LATE = "LATE"
    STALLED = "STALLED"


class PipelineStatus(StrEnum):
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    FAILED = "FAILED"


class CheckpointKind(StrEnum):
    """The reason for a checkpoint."""

    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"
    COMPLETED_POINT = "completed-point"


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """One failure, for the failure history."""

    at_ms: int
    generation: int
    pipeline: int = 0
    condition: str = "error"
    domain: str = "internal"
    message: str = ""
    change: ChangeStop | None = None  # a change of a table, which a user can accept


class DesiredState(StrEnum):
    """The state that users requested for a job."""

    RUN = "run"
    CANCEL = "cancel"  # stop at the next checkpoint
    FORCE_STOP = "force-stop"  # kill it immediately


@dataclass(frozen=True, kw_only=True, slots=True)
class JobIntent:
    """The desired state of a job: durable once accepted, carried out by the current leader."""

    desired: DesiredState = field(default=DesiredState.RUN, metadata={"key": "wish"})
    at_ms: int = 0
    by: str = ""


class SavepointStatus(StrEnum):
    """The progress of a requested savepoint."""

    WANTED = "wanted"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class SavepointRequest:
    """The last requested savepoint and its result.

    Its id is chosen here, so that every attempt makes it under the same path. A request joins one
    that is still wanted. With `stop` the job ends when the savepoint is complete; if the savepoint
    fails, the job continues.
    """

    version: int = 1
    job_id: int
    initialization_ms: int  # of the incarnation that it is about
    id: str
    stop: bool = False
    asked_ms: int
    by: str = ""
    status: SavepointStatus = SavepointStatus.WANTED
    path: str = ""  # relative to the root of the checkpoint storage
    reason: str = ""  # why it failed
    ended_ms: int = 0
    earlier: tuple[JobEvent, ...] = ()  # requests before this one, oldest first; bounded


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineSavepoint:
    """One pipeline's part of a savepoint.

    The checkpoint is recorded before it is copied, so that every attempt copies the same one.
    """

    id: str
    checkpoint: int
    path: str  # of the checkpoint
    copied: bool = False
    manifest: str = ""  # with `copied`: the checksum of the copy's manifest
    bytes: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRecord:
    """One incarnation of a job: what was submitted, and its desired state."""

    version: int = 1
    job_id: int
    name: str
    initialization_ms: int
    lineage: str
    plan: Plan
    file: str = ""
    intent: JobIntent = JobIntent()
    commands: tuple[JobEvent, ...] = ()  # to this incarnation, oldest first; bounded
    restored: bool = False  # continues an earlier incarnation
    checkpoint: int = 0  # the requested checkpoint to begin from; 0 = the latest sound one
    # The digest of the submit request, if it had an idempotency key: the same request is not
    # accepted twice.
    key: str = ""
    source_job: int = 0  # the other job whose state it continues
    fork: bool = False  # that job continues: this one has a lineage of its own
    on_damaged: str = "older"  # or fail
    # or initial, latest
    on_position_lost: str = field(default="fail", metadata={"key": "on_not_held"})
    on_sink_lost: str = "fail"  # or continue: for the checkpoint that the restore begins from
    restore: RestoreReport | None = None  # the plan at submission
    skip_files: tuple[str, ...] = ()  # absolute paths that a user excluded
    accept_files: tuple[str, ...] = ()  # absolute paths that are read although they have changed
    # Decisions about changes of tables, also those for earlier incarnations of this lineage.
    accepted_changes: tuple[AcceptedChange, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class JobState:
    """The status of an incarnation, and the process that leads it."""

    version: int = 1
    job_id: int
    status: JobStatus
    initialization_ms: int = 0  # of the incarnation; older records are not about this one
    generation: int = 0
    leader: ProcessRef | None = None  # the process of `tidegate run`; None if servers run the job
    restarts: int = 0  # of the driver, without a checkpoint between them
    checkpoints: int = 0  # completed at the last restart
    failures: tuple[Failure, ...] = ()  # the newest ones, oldest first
    reason: str = ""  # why it has this status: why it waits, why it is being stopped
    not_before_ms: int = 0  # a retry waits until then
    health: CheckpointHealth = CheckpointHealth.OK
    health_reason: str = ""
    log_retention: RetentionLevel = field(default=RetentionLevel.OK, metadata={"key": "runway"})
    log_retention_reason: str = field(default="", metadata={"key": "runway_reason"})
    # The first id of the next incarnation, once this one's pipelines are deleted.
    next_checkpoint: int = 1
    changed_ms: int = 0
    entered: Mapping[str, int] = field(default_factory=dict)  # when each status was entered last
    continued_by: int = 0  # of an ended job: the other job that continues its lineage
    # When this incarnation was first assigned to a worker, or started by `tidegate run`.
    started_ms: int = 0
    restarts_total: int = 0  # of the driver, in this incarnation
    events: tuple[JobEvent, ...] = ()  # of all incarnations of this id, oldest first; bounded


class DriverCommand(StrEnum):
    """What a worker should do with a driver, each stronger than the one before."""

    RUN = "run"  # keep it running
    STOP = "stop"  # end at the next checkpoint
    INTERRUPT = "interrupt"  # abandon the running batch, and end
    TERMINATE = "terminate"  # SIGTERM to the whole session
    KILL = "kill"  # SIGKILL to the whole session


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    """One generation of a job, assigned to a worker.

    The driver reads its command too, so that a stop needs no worker.
    """

    version: int = 1
    job_id: int
    initialization_ms: int
    generation: int
    worker: str
    command: DriverCommand = field(default=DriverCommand.RUN, metadata={"key": "order"})
    ordered_ms: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverEnd:
    """How a driver ended, and the proof of it."""

    at_ms: int
    code: int | None = None  # None if no process observed it
    proof: str = ""  # "exit", "session empty", "host restarted", "lease expired"
    stderr_tail: str = field(default="", metadata={"key": "last_words"})


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverRecord:
    """The driver of a generation. At most one process can ever register for a generation."""

    version: int = 1
    job_id: int
    generation: int
    process: ProcessRef
    worker: str = ""
    started_ms: int = 0
    end: DriverEnd | None = None


class Role(StrEnum):
    """Permissions of a caller, each role with more than the one before."""

    VIEWER = "viewer"  # read
    OPERATOR = "operator"  # submit, stop, restore, save
    ADMIN = "admin"  # everything: tokens, tags, log levels, deleting state

    def may(self, needed: "Role") -> bool:
        """Whether this role includes the needed one."""
        return list(Role).index(self) >= list(Role).index(needed)


@dataclass(frozen=True, kw_only=True, slots=True)
class AccessToken:
    """An access token; only the digest of its secret is stored.

    The secret is long and random, so guessing it from the digest is not feasible.
    """

    version: int = 1
    id: str
    name: str
    role: Role
    sha256: str
    created_ms: int
    expires_ms: int = 0  # 0 = never


@dataclass(frozen=True, slots=True)
class SourceRange:
    """The exact part of a source that a batch reads: (start, end].

    Offsets are JSON values that only the source understands.
    """

    start: Any
    end: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingBatch:
    """A batch that has begun and is not complete: a successor repeats exactly this one."""

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
    volumes: Volumes = field(default_factory=dict, hash=False)  # of this batch


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineState:
    """The durable state of one pipeline.

    Every change is conditioned on the version of the document, and so on its generation.
    """

    version: int = 1
    job_id: int
    pipeline: int
    lineage: str
    generation: int
    status: PipelineStatus = PipelineStatus.CREATED
    # Where every source began; read once in the life of a lineage.
    initial: Mapping[str, Any] | None = None
    next_checkpoint: int = 1
    pending: PendingBatch | None = None
    retained: tuple[CheckpointRef, ...] = ()  # oldest first; the last one is the latest
    # No longer retained, not yet deleted.
    pending_deletion: tuple[CheckpointRef, ...] = field(default=(), metadata={"key": "doomed"})
    ready_to_close: tuple[str, ...] = ()
    rows_read: int = 0
    rows_written: int = 0
    volumes: Volumes = field(default_factory=dict)
    checkpoints: int = 0
    confirmed_ms: int = 0
    restarts: int = 0
    error: Failure | None = None
    # An older checkpoint than the newest was requested: sinks undo what is newer. Until the first
    # checkpoint after it.
    rewind: bool = field(default=False, metadata={"key": "back"})
    # Operators whose state in the latest checkpoint is not used, until the checkpoint after it.
    dropped_operators: tuple[str, ...] = field(default=(), metadata={"key": "dropped"})
    savepoint: PipelineSavepoint | None = None  # its part in the last savepoint
    replan: Replan = Replan.NEVER
    warnings: tuple[str, ...] = ()  # found by its driver when it started, for users
    driver: str = ""  # "<generation>-<token>" of the driver that has claimed this state

    @property
    def latest(self) -> CheckpointRef | None:
        return self.retained[-1] if self.retained else None


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineMetrics:
    """The current progress of a pipeline: for display, never for decisions.

    Counts attempted rows, not committed ones.
    """

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
    log_retention: tuple[LogRetentionMetric, ...] = field(default=(), metadata={"key": "runway"})
    waits_for: str = ""  # description of what is out of reach, if the driver knows it
    at_ms: int = 0
    # Of committed rows; None until this driver has completed a checkpoint.
    rates: PipelineRates | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointHistory:
    """The last checkpoints of a pipeline, for timelines; bounded."""

    version: int = 1
    entries: tuple[CheckpointRef, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class CleanupRecord:
    """What has to be deleted after a job has ended or was replaced.

    Any leader may carry it out, repeatedly. Checkpoint ids of a job only grow, over all its
    incarnations. So a late cleanup deletes only ids below its limit, and never those of a newer
    incarnation.
    """

    version: int = 1
    job_id: int
    initialization_ms: int
    # The checkpoints and the state that names them stay until history expires.
    resumable: bool = False
    checkpoints_below: int = 0
    # Checkpoints of a newer generation stay, whatever their id: it repeats batches under their old
    # ids. 0 = written by a version without this field.
    generation: int = 0
    due_ms: int = 0
    attempts: int = 0
    error: str = ""  # why the last attempt failed


@dataclass(frozen=True, kw_only=True, slots=True)
class JobOutcome:
    version: int = 1
    job_id: int
    name: str
    initialization_ms: int
    lineage: str
    status: JobStatus
    finished_ms: int
    entered: Mapping[str, int] = field(default_factory=dict)
    generation: int = 0
    next_checkpoint: int = 1
    plan: Plan | None = None
    restored: bool = False
    restarts: int = 0
    rows_read: int = 0
    rows_written: int = 0
    volumes: Volumes = field(default_factory=dict)
    checkpoints: int = 0
    failures: tuple[Failure, ...] = ()
    restore: RestoreReport | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    started_ms: int = 0  # 0 = by a release that did not record it, as in the next fields
    restarts_total: int = 0
    events: tuple[JobEvent, ...] = ()
    restorable: bool | None = None  # whether it left a checkpoint to resume from; None = unknown
    last_checkpoint: int = 0
    last_checkpoint_ms: int = 0
    accepted_changes: tuple[AcceptedChange, ...] = ()
    file: str = ""  # the job file of `tidegate run`; empty if servers ran it


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoreClaim:
    """Checkpoint paths of another job that a restore will copy; they must not be deleted."""

    version: int = 1
    job_id: int
    paths: tuple[str, ...]
    source_job: int = 0
    at_ms: int = 0
