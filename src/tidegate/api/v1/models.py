"""What is sent and what comes back. Field names are those of the vocabulary; times are ISO 8601 in
UTC; ids of jobs are text, as 64 bits do not fit into the numbers of every language.
"""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tidegate.model.problem import Strictness
from tidegate.model.records import CheckpointHealth, CheckpointKind, JobStatus, PipelineStatus
from tidegate.model.table_changes import POSITION_CHARS_MAX, TABLE_CHARS_MAX, ChangeChoice

JobId = str


class Model(BaseModel):
    """Nothing that is not described comes in or goes out."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ProblemModel(Model):
    """What is wrong, in the form of RFC 9457. `condition` is stable: programs may depend on it."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    condition: str
    problems: list[str] = Field(
        default_factory=list, description="all problems of a job file, each with its place"
    )


class ChangeStopModel(Model):
    """A change of a table that has stopped a job, until a person decides about it."""

    table: str
    at: str = Field(
        description="the position of the change in the source's log: the same at every restart"
    )
    statement: str = Field(description="the statement, or what differs")
    choices: list[ChangeChoice] = Field(
        description="what can be decided; empty: only a fresh start is left"
    )


class FailureModel(Model):
    """One thing that went wrong."""

    at: datetime
    generation: int
    pipeline: int | None
    condition: str
    domain: str
    message: str
    change: ChangeStopModel | None = Field(
        default=None, description="with the condition table-changed: what happened, and the choices"
    )


class CheckpointModel(Model):
    checkpoint: int
    pipeline: int
    kind: CheckpointKind
    generation: int
    begun: datetime
    completed: datetime
    seconds: float
    bytes: int
    rows_read: int
    rows_written: int
    retained: bool = Field(description="whether a job can still be restored from it")


class JobMetricsModel(Model):
    """Rows and bytes, and how fast they come."""

    rows_read: int
    rows_written: int
    rows_committed: int
    bytes_read: int = Field(
        description=(
            "of the committed batches; Arrow's size of the rows, and nothing where Spark itself"
            " reads"
        )
    )
    bytes_written: int = Field(description="as bytes_read, of what the sinks took")
    rows_read_per_second: float | None = Field(
        description=(
            "committed rows over the last 30 s; null while the job starts, or has no driver. Of a"
            " job that has ended: the average of its run"
        )
    )
    rows_written_per_second: float | None = Field(description="as rows_read_per_second")
    bytes_read_per_second: float | None = Field(description="as rows_read_per_second")
    bytes_written_per_second: float | None = Field(description="as rows_read_per_second")


class Pipeline(Model):
    pipeline: int
    status: PipelineStatus
    generation: int
    checkpoints: int
    latest: CheckpointModel | None
    pending: int | None = Field(description="the checkpoint that is being made")
    phase: str
    rows_read: int
    rows_written: int
    done: float | None = Field(description="how much of a bounded source is read, in `unit`")
    total: float | None
    unit: str
    ready_to_close: list[str]


class TableVolume(Model):
    """What has passed an operator of one table."""

    table: str = Field(description="* = all those beyond the first 128")
    rows: int
    bytes: int


class Vertex(Model):
    """One operator of the graph, with what it has given (a source, a transform) or taken (a sink):
    what is committed.
    """

    operator: str
    label: str
    kind: str
    plugin: str
    pipeline: int
    inputs: list[str]
    parallelism: int
    delivery: str | None
    rows: int | None = Field(
        default=None,
        description=(
            "null where it is not known: before the first checkpoint, and where Spark's SQL does"
            " not tell"
        ),
    )
    bytes: int | None = None
    rows_per_second: float | None = None
    tables: list[TableVolume] = Field(default_factory=list)


class Job(Model):
    """A job that runs, waits, or has ended."""

    id: JobId
    name: str
    status: JobStatus
    mode: str
    submitted: datetime
    started: datetime | None
    ended: datetime | None
    submitted_by: str
    lineage: str
    generation: int
    restored: bool
    restorable: bool = Field(description="whether there is a checkpoint to go on from")
    wish: str | None = Field(description="what is wanted of it: run, cancel, savepoint, force-stop")
    reason: str = Field(description="why it is where it is")
    health: CheckpointHealth | None
    health_reason: str
    last_checkpoint: int | None
    last_checkpoint_at: datetime | None
    seconds_since_checkpoint: float | None
    restarts: int = Field(description="all restarts of this run")
    restarts_without_progress: int = Field(
        description="those since the last checkpoint: what `job.retry.times` limits"
    )
    worker: str | None
    figures: JobMetricsModel
    last_failure: FailureModel | None


class JobDetails(Job):
    """A job with all that belongs to it."""

    pipelines: list[Pipeline]
    graph: list[Vertex]
    env: dict[str, str] = Field(description="options of the env block, secrets masked")
    failures: list[FailureModel]
    stopped_at: list[ChangeStopModel] = Field(
        default_factory=list,
        description="changes of tables that have ended it, and that a person can decide about",
    )
    events: list["JobEventModel"] = Field(
        description=(
            "what happened to this id, in all its runs, the newest first; the oldest are dropped"
        )
    )
    restore: "RestorePlan | None" = Field(
        default=None,
        description="what was planned at its submit; null for a start with nothing to say",
    )


class JobEventModel(Model):
    """One line in the history of a job."""

    at: datetime
    kind: str = Field(description="submitted, status, restart or command")
    what: str = Field(description="the status that was entered, or what was asked for")
    by: str
    generation: int
    reason: str


class JobPage(Model):
    jobs: list[Job]
    next: str | None = Field(description="the cursor of the next page; null at the end")
    total: int = Field(description="how many there are in all with these filters")


class CheckpointPage(Model):
    """Some of the checkpoints of a job, the newest first."""

    checkpoints: list[CheckpointModel]
    next: str | None


class SubmissionModel(Model):
    """A job to take in."""

    text: str = Field(
        description="the job file, whole: it can include nothing", max_length=10 * 1024 * 1024
    )
    format: str = Field(default="hocon", pattern="^(hocon|json|sql)$")
    id: JobId | None = Field(
        default=None, pattern="^[1-9][0-9]{0,18}$", description="without it a new one is made"
    )
    name: str | None = Field(default=None, min_length=1, max_length=500)
    restore: str | None = Field(
        default=None, max_length=1000, description="latest, checkpoint:N, fresh, auto ..."
    )
    on_sink_lost: str | None = Field(
        default=None,
        pattern="^(fail|continue)$",
        description="where a sink's target knows nothing of the checkpoint",
    )
    lenient: bool = Field(default=False, description="unknown options of connectors are warnings")
    skip_files: list[str] = Field(
        default_factory=list,
        max_length=100,
        description="absolute paths of files, or directories, that are left out",
    )
    accept_files: list[str] = Field(
        default_factory=list,
        max_length=100,
        description="absolute paths of files, or directories, that are read although they changed",
    )

    accept_changes: list[str] = Field(
        default_factory=list,
        max_length=100,
        description=(
            "decisions about changes of tables that stopped the job, each as"
            " [TABLE@]POSITION=CHOICE with adopt, reread or skip"
        ),
    )

    @property
    def strictness(self) -> Strictness:
        """What an unknown option of a connector is."""
        return Strictness.LENIENT if self.lenient else Strictness.NORMAL

    def list_parameters(self) -> dict[str, str]:
        """The lists as parameters of a submit: an entry in each line."""
        given = {
            "skipFile": self.skip_files,
            "acceptFile": self.accept_files,
            "acceptChange": self.accept_changes,
        }
        return {name: "\n".join(paths) for name, paths in given.items() if paths}


class ChangeDecision(Model):
    """What is decided about a change that has stopped a job."""

    at: str = Field(
        min_length=1,
        max_length=POSITION_CHARS_MAX,
        description="the position that the failure names",
    )
    choice: ChangeChoice = Field(
        description="adopt the new definition, reread the whole table, or skip the statement"
    )
    table: str = Field(
        default="",
        max_length=TABLE_CHARS_MAX,
        description="only this table; empty: every table that this change stops",
    )


class ResumedJob(Model):
    """A job that goes on after a decision."""

    id: JobId
    name: str
    submitted: datetime
    notes: list[str] = Field(description="what the decision means, and what is left to do by hand")


class SubmissionAccepted(Model):
    """A job that was taken in."""

    id: JobId
    name: str
    submitted: datetime
    notes: list[str] = Field(
        default_factory=list,
        description="what its start leaves behind or gives up, such as rows that stay in a target",
    )


class StopRequest(Model):
    """How a job shall end."""

    how: str = Field(default="cancel", pattern="^(cancel|savepoint|force-stop)$")


class ValidationResult(Model):
    """What is to be said about a job file; nothing was started."""

    good: bool
    problems: list["JobFileProblem"]
    graph: list[Vertex]


class JobFileProblem(Model):
    """One problem of a job file."""

    severity: str
    message: str
    line: int | None
    path: str
    expected: str
    suggestion: str


class SavepointRequestModel(Model):
    """A savepoint that is wanted."""

    stop: bool = Field(default=False, description="end the job with it")


class SavepointProgress(Model):
    """A savepoint that was asked for, and what became of it."""

    id: str
    job: JobId
    status: str = Field(description="wanted, done or failed")
    stop: bool
    reason: str
    asked: datetime
    by: str


class SavepointModel(Model):
    """A savepoint that is there."""

    id: str
    job: JobId
    name: str
    path: str
    made: datetime
    checkpoints: dict[str, int] = Field(
        description="of which checkpoint each pipeline's part was made"
    )
    bytes: int
    overtaken: bool = Field(
        description="the job went back behind it: its own lineage cannot go on from it any more"
    )


class RestorePlan(Model):
    """What a restore would do."""

    verdict: str = Field(description="ok, ok with replay, needs consent, impossible")
    start: str
    origin: str
    problems: list[str]
    consents: list[str]
    notes: list[str]
    document: dict[str, Any] = Field(
        description="all of it: pipelines and operators, what each resumes from and replays"
    )


class QuarantineModel(Model):
    """Collected state that waits to be deleted, and can be taken back."""

    id: str
    begun: datetime
    units: int
    bytes: int


class StorageModel(Model):
    """The checkpoint storage as the last pass of the collector saw it."""

    place: str
    at: datetime | None
    bytes: dict[str, int]
    units: dict[str, int]
    due: int
    warning: str
    failed: list[str]
    quarantines: list[QuarantineModel]


class CollectorFindingModel(Model):
    """One thing below the namespace that belongs to nobody, or that nobody understands."""

    path: str
    kind: str
    why: str
    due: bool
    bytes: int


class StorageSurvey(Model):
    """Everything below the namespace, looked at now."""

    bytes: dict[str, int]
    units: dict[str, int]
    due: int
    due_bytes: int
    findings: list[CollectorFindingModel]


class UndoResult(Model):
    moved: int
    failed: list[str]


class WorkerModel(Model):
    """A worker and what it offers."""

    id: str
    host: str
    address: str
    slots: int
    free_slots: int
    tags: dict[str, str]
    warm: int
    started: datetime | None
    jobs: list[JobId]


class Coordinator(Model):
    """A server that lives: it has announced itself within a lease, or holds the leader's, or
    answers this.
    """

    id: str
    address: str = Field(description="where its API is; empty where it has none")
    since: datetime | None = Field(description="when it was started")
    version: str = Field(description="its release; empty where it does not say")
    leads: bool
    term: int | None = Field(description="of the one that leads")
    answers: bool = Field(description="whether it is the one that has answered this")


class Cleanup(Model):
    """What an ended job has left, and when it goes."""

    id: JobId
    due: datetime
    resumable: bool = Field(description="the checkpoints stay until the history expires")
    attempts: int
    error: str


class Overview(Model):
    version: str
    jobs: dict[str, int] = Field(description="how many there are of each status")
    attention: list[str] = Field(description="the ids of jobs that are LATE or STALLED")
    workers: int
    slots: int
    free_slots: int
    coordinators: int = Field(description="servers that live")
    cleanups: int
    leader: str | None


class OptionModel(Model):
    """One option of a connector."""

    key: str
    type: str
    default: Any
    required: bool
    fallbacks: list[str]
    choices: list[str]
    minimum: float | None
    maximum: float | None
    secret: bool
    description: str


class ConnectorSummary(Model):
    """A connector in a list."""

    name: str
    kind: str
    aliases: list[str]
    summary: str
    batch: bool
    streaming: bool
    delivery: str | None
    go_back: str | None
    row_kinds: bool
    multi_table: bool


class ConnectorModel(ConnectorSummary):
    """A connector with its options."""

    options: list[OptionModel]
    rules: list[str]


ValidationResult.model_rebuild()
JobDetails.model_rebuild()
