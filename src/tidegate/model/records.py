"""What the store keeps of a job while it lives: who runs it, where its pipelines are, which
checkpoints it has.

| record | map | written by | fenced with |
|---|---|---|---|
| JobRecord, with its JobIntent | running-job-info | commands (any server) | version of the row |
| JobState | running-job-state | the job's leader (`tidegate run`, or the reconciler) | version, term |
| Assignment | assignments | reconciler | version, term |
| DriverRecord | drivers | the driver when it starts; its worker, or who buried it, when it has ended | version, generation |
| PipelineState | running-pipeline-state | driver; the leader moves `generation` | generation |
| PipelineMetrics | running-job-metrics | driver, written behind; also its sign of life | generation |
| SavepointRequest | job-savepoints | commands ask; the driver says that it is done, or why not; the leader gives up | version; the driver: generation |
| CheckpointHistory | checkpoint-monitor | driver, with PipelineState | generation |
| CleanupRecord | pending-job-cleanup | whoever ends the job | version, term |
| JobOutcome | finished-job-state | whoever ends the job | version, term |
| Lease | leases | elector (`coordinator`), worker (`worker/<id>`) | version |
| Beat | lease-beats | the holder of the lease of the same key | version of the lease |
| AccessToken | access-tokens | commands of an admin | version |
| WorkerRecord | workers | worker | version of its lease |
| ServerRecord | servers | the server itself, as its sign of life; the leader takes a silent one away | version, term |
| RestoreClaim | restore-claims | whoever submits a restore; removed when the state is the job's own | version of the job's rows |
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
from tidegate.model.log_retention import LogRetentionMetric, RunwayLevel
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
    """Why a checkpoint was made."""

    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"
    COMPLETED_POINT = "completed-point"


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """One thing that went wrong, for the failure history."""

    at_ms: int
    generation: int
    pipeline: int = 0
    condition: str = "error"
    domain: str = "internal"
    message: str = ""
    change: ChangeStop | None = None  # a change of a table, which a person can accept


class DesiredState(StrEnum):
    """What people want of a job."""

    RUN = "run"
    CANCEL = "cancel"  # stop at a checkpoint, soon
    FORCE_STOP = "force-stop"  # kill it now


@dataclass(frozen=True, kw_only=True, slots=True)
class JobIntent:
    """The standing wish about a job: durable from the moment it is accepted, and granted by whoever
    leads then.
    """

    desired: DesiredState = field(default=DesiredState.RUN, metadata={"key": "wish"})
    at_ms: int = 0
    by: str = ""


class SavepointStatus(StrEnum):
    """What became of a savepoint that was asked for."""

    WANTED = "wanted"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class SavepointRequest:
    """The last savepoint that was asked for, and what became of it. Its id is chosen here, so that
    whoever makes it, and however often, makes it in one place.

    A request while one is still wanted joins it. With `stop` the job ends when it is done; when it
    fails the job goes on.
    """

    version: int = 1
    job_id: int
    initialization_ms: int  # of the incarnation that it is about
    id: str
    stop: bool = False
    asked_ms: int
    by: str = ""
    status: SavepointStatus = SavepointStatus.WANTED
    path: str = ""  # where it is, from the root of the checkpoint storage
    reason: str = ""  # why there is none
    ended_ms: int = 0
    earlier: tuple[JobEvent, ...] = ()  # requests before this one, oldest first; bounded


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineSavepoint:
    """A pipeline's part in a savepoint.

    Which checkpoint it is, is recorded before it is copied: so whoever copies, copies the same.
    """

    id: str
    checkpoint: int
    path: str  # of the checkpoint
    copied: bool = False
    manifest: str = ""  # with `copied`: the checksum of the copy's manifest
    bytes: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRecord:
    """One incarnation of a job: what was submitted, and what is wanted of it now."""

    version: int = 1
    job_id: int
    name: str
    initialization_ms: int
    lineage: str
    plan: Plan
    file: str = ""
    intent: JobIntent = JobIntent()
    commands: tuple[JobEvent, ...] = ()  # what was asked of this incarnation, oldest first; bounded
    restored: bool = False  # continues an earlier incarnation
    checkpoint: int = (
        0  # the checkpoint to begin from, where one was asked for; 0 = the latest sound one
    )
    # the digest of the request that brought it, where it had a key: the same request is not taken
    # in twice
    key: str = ""
    source_job: int = 0  # whose state it continues, where that is another job's
    fork: bool = False  # that job goes on: this one has a lineage of its own
    on_damaged: str = "older"  # or fail
    on_not_held: str = "fail"  # or initial, latest
    on_sink_lost: str = "fail"  # or continue: for the checkpoint that the restore begins from
    restore: RestoreReport | None = None  # what was planned when it was submitted
    skip_files: tuple[str, ...] = ()  # absolute paths that a person has left out
    accept_files: tuple[str, ...] = ()  # and those that are read although they have changed
    accepted_changes: tuple[
        AcceptedChange,
        ...,
        # what was decided about changes of tables, also for earlier incarnations of this lineage
    ] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class JobState:
    """Where an incarnation is, and who runs it."""

    version: int = 1
    job_id: int
    status: JobStatus
    initialization_ms: int = 0  # of the incarnation; what is older is not about this job
    generation: int = 0
    leader: ProcessRef | None = None  # who runs it with `tidegate run`; None where servers do
    restarts: int = 0  # of the driver, without a checkpoint between them
    checkpoints: int = 0  # how many there were at the last restart
    failures: tuple[Failure, ...] = ()  # the newest ones, oldest first
    reason: str = ""  # why it is where it is: why it waits, why it is being stopped
    not_before_ms: int = 0  # a retry waits until then
    health: CheckpointHealth = CheckpointHealth.OK
    health_reason: str = ""
    log_retention: RunwayLevel = field(default=RunwayLevel.OK, metadata={"key": "runway"})
    runway_reason: str = ""
    next_checkpoint: int = (
        1  # where the ids of the next incarnation begin, when this one's pipelines are forgotten
    )
    changed_ms: int = 0
    entered: Mapping[str, int] = field(default_factory=dict)  # when each status was entered last
    continued_by: int = 0  # of an ended job: the other job that has taken up its lineage
    started_ms: int = (
        0  # when this incarnation was first given to a worker, or taken up by `tidegate run`
    )
    restarts_total: int = 0  # of the driver, all of this incarnation
    events: tuple[JobEvent, ...] = ()  # of all incarnations of this id, oldest first; bounded


class DriverCommand(StrEnum):
    """What a worker shall do with a driver, each stronger than the one before."""

    RUN = "run"  # have it running
    STOP = "stop"  # ask it: it ends at the next checkpoint
    INTERRUPT = "interrupt"  # give the running batch up, and end
    TERMINATE = "terminate"  # SIGTERM to the whole session
    KILL = "kill"  # SIGKILL to the whole session


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    """One generation of a job in the hands of a worker.

    The driver reads its order too, so that a stop needs no worker.
    """

    version: int = 1
    job_id: int
    initialization_ms: int
    generation: int
    worker: str
    order: DriverCommand = DriverCommand.RUN
    ordered_ms: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverEnd:
    """How a driver ended, and how that is known."""

    at_ms: int
    code: int | None = None  # None where nobody was there to see it
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
    """What a caller may do, each more than the one before."""

    VIEWER = "viewer"  # look
    OPERATOR = "operator"  # submit, stop, restore, save
    ADMIN = "admin"  # everything: tokens, tags, log levels, deleting state

    def may(self, needed: "Role") -> bool:
        """Whether this role is enough."""
        return list(Role).index(self) >= list(Role).index(needed)


@dataclass(frozen=True, kw_only=True, slots=True)
class AccessToken:
    """Who may come in with a secret, of which only the digest is kept: it is long and random, so
    nothing is gained by guessing.
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
    """The exact part of a source that a batch reads: (start, end]. Offsets are JSON values that
    only the source understands.
    """

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
    volumes: Volumes = field(default_factory=dict, hash=False)  # of this batch


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineState:
    """The durable place of one pipeline.

    Every change is conditioned on the version of the document, and so on its generation.
    """

    version: int = 1
    job_id: int
    pipeline: int
    lineage: str
    generation: int
    status: PipelineStatus = PipelineStatus.CREATED
    initial: Mapping[str, Any] | None = (
        None  # where every source began; asked once in the life of a lineage
    )
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
    # an older point than the newest was wanted: sinks undo what is newer. Until the first
    # checkpoint after it
    rewind: bool = field(default=False, metadata={"key": "back"})
    # Operators whose state in the latest checkpoint is not used, until the first checkpoint after it.
    dropped_operators: tuple[str, ...] = field(default=(), metadata={"key": "dropped"})
    savepoint: PipelineSavepoint | None = None  # its part in the last savepoint
    replan: Replan = Replan.NEVER
    warnings: tuple[str, ...] = ()  # what its driver found when it started, for people
    driver: str = ""  # "<generation>-<token>" of the driver that has claimed this state

    @property
    def latest(self) -> CheckpointRef | None:
        return self.retained[-1] if self.retained else None


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineMetrics:
    """How far a pipeline is right now: for displays, never for decisions.

    Attempted rows, not committed ones.
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
    waits_for: str = ""  # what is out of reach, in words, where the driver knows it
    at_ms: int = 0
    rates: PipelineRates | None = (
        None  # of committed rows; None until this driver has completed a checkpoint
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointHistory:
    """The last checkpoints of a pipeline, for timelines; bounded."""

    version: int = 1
    entries: tuple[CheckpointRef, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class CleanupRecord:
    """What has to be deleted, by whoever comes first; idempotent. Checkpoint ids of a job only
    grow, over all its incarnations: so whoever carries this out, however late, deletes only what is
    below, and never what a newer incarnation has made.
    """

    version: int = 1
    job_id: int
    initialization_ms: int
    resumable: bool = (
        False  # the checkpoints and the state that names them stay, until history expires
    )
    checkpoints_below: int = 0
    # what a newer generation has made stays, whatever its id: it repeats batches under their old
    # ids. 0 = of a version that knew none
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
    restorable: bool | None = (
        None  # whether it left a checkpoint to continue from; None = not recorded
    )
    last_checkpoint: int = 0
    last_checkpoint_ms: int = 0
    accepted_changes: tuple[AcceptedChange, ...] = ()
    file: str = ""  # the job file of `tidegate run`; empty where servers have run it


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoreClaim:
    """State of elsewhere that a job is going to continue: nobody may delete these paths until it
    has a copy of its own.
    """

    version: int = 1
    job_id: int
    paths: tuple[str, ...]
    source_job: int = 0
    at_ms: int = 0
