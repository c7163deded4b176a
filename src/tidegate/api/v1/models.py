"""Request and response models of the typed API.

Times are ISO 8601 in UTC. Job ids are text, as 64 bits do not fit into the numbers of every
language. A class has the suffix `Model` where the bare name is taken by another class; the OpenAPI
document names it without the suffix (`v1/openapi.py`).
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tidegate.model.problem import Strictness
from tidegate.model.records import CheckpointHealth, CheckpointKind, JobStatus, PipelineStatus
from tidegate.model.table_changes import POSITION_CHARS_MAX, TABLE_CHARS_MAX, ChangeChoice

JobId = str


def old_name(new: str) -> Any:
    """Declare a field that has the value of the field `new`, for clients of older releases.

    `deprecated` is only in the schema: pydantic's own flag would warn at every serialization.
    """
    return Field(
        default=None,
        description=f"deprecated, use `{new}`",
        json_schema_extra={"deprecated": True},
    )


class Model(BaseModel):
    """Base of all models: unknown fields are rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    old_names: ClassVar[Mapping[str, str]] = {}
    """Deprecated fields, and those that replace them: accepted in requests, sent in responses."""

    @model_validator(mode="before")
    @classmethod
    def _copy_old_names(cls, values: Any) -> Any:
        if not cls.old_names or not isinstance(values, dict):
            return values
        values = dict(values)
        for old, new in cls.old_names.items():
            if old in values and new in values and values[old] != values[new]:
                raise ValueError(f"{old} is the deprecated name of {new}: send only {new}")
            if old in values:
                values.setdefault(new, values[old])
            elif new in values:
                values[old] = values[new]
        return values


class ProblemModel(Model):
    """An error in the format of RFC 9457. `condition` is stable: programs may depend on it."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    condition: str
    problems: list[str] = Field(
        default_factory=list, description="all problems of a job file, each with its position"
    )


class ChangeStopModel(Model):
    """A change of a table that has stopped a job until a user decides about it."""

    table: str
    at: str = Field(
        description="the position of the change in the source's log: the same at every restart"
    )
    statement: str = Field(description="the statement, or what differs")
    choices: list[ChangeChoice] = Field(
        description="possible decisions; empty: only a fresh start is possible"
    )


class FailureModel(Model):
    """One failure of a job."""

    at: datetime
    generation: int
    pipeline: int | None
    condition: str
    domain: str
    message: str
    change: ChangeStopModel | None = Field(
        default=None, description="with the condition table-changed: the change, and the choices"
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
    """Rows and bytes of a job, and their rates."""

    rows_read: int
    rows_written: int
    rows_committed: int
    bytes_read: int = Field(
        description=(
            "of the committed batches; the size of the rows in Arrow, 0 for sources that Spark"
            " reads"
        )
    )
    bytes_written: int = Field(description="as bytes_read, for the sinks")
    rows_read_per_second: float | None = Field(
        description=(
            "committed rows over the last 30 s; null while the job starts or has no driver. If the"
            " job has ended: the average of its run"
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
    pending: int | None = Field(description="the checkpoint in progress")
    phase: str
    rows_read: int
    rows_written: int
    done: float | None = Field(description="how much of a bounded source is read, in `unit`")
    total: float | None
    unit: str
    ready_to_close: list[str]


class TableVolume(Model):
    """Rows and bytes of one table that have passed an operator."""

    table: str = Field(description="* = the sum of all tables beyond the first 128")
    rows: int
    bytes: int


class Vertex(Model):
    """One operator of the graph, with its committed output (source, transform) or input (sink)."""

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
            "null if unknown: before the first checkpoint, and for operators whose rows only"
            " Spark's SQL knows"
        ),
    )
    bytes: int | None = None
    rows_per_second: float | None = None
    tables: list[TableVolume] = Field(default_factory=list)


class Job(Model):
    """A job that runs, waits, or has ended."""

    old_names: ClassVar[Mapping[str, str]] = {"wish": "desired", "figures": "metrics"}

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
    restorable: bool = Field(description="whether there is a checkpoint to resume from")
    desired: str | None = Field(
        description="the desired state: run, cancel, savepoint, force-stop; null if it has ended"
    )
    reason: str = Field(description="why it has its status")
    health: CheckpointHealth | None
    health_reason: str
    last_checkpoint: int | None
    last_checkpoint_at: datetime | None
    seconds_since_checkpoint: float | None
    restarts: int = Field(description="all restarts of this run")
    restarts_without_progress: int = Field(
        description="restarts since the last checkpoint: what `job.retry.times` limits"
    )
    worker: str | None
    metrics: JobMetricsModel
    last_failure: FailureModel | None
    wish: str | None = old_name("desired")
    figures: JobMetricsModel | None = old_name("metrics")


class JobDetails(Job):
    """A job with its pipelines, graph, failures and history."""

    pipelines: list[Pipeline]
    graph: list[Vertex]
    env: dict[str, str] = Field(description="options of the env block; secrets are masked")
    failures: list[FailureModel]
    stopped_at: list[ChangeStopModel] = Field(
        default_factory=list,
        description="changes of tables that have ended it, and that a user can decide about",
    )
    events: list["JobEventModel"] = Field(
        description=(
            "the history of this id over all its runs, newest first; the oldest are dropped"
        )
    )
    restore: "RestorePlan | None" = Field(
        default=None,
        description="the restore plan of its submission; null for a fresh start without notes",
    )


class JobEventModel(Model):
    """One line in the history of a job."""

    at: datetime
    kind: str = Field(description="submitted, status, restart or command")
    what: str = Field(description="the status that was entered, or the command")
    by: str
    generation: int
    reason: str


class JobPage(Model):
    jobs: list[Job]
    next: str | None = Field(description="the cursor of the next page; null at the end")
    total: int = Field(description="number of all jobs that match the filters")


class CheckpointPage(Model):
    """A page of the checkpoints of a job, newest first."""

    checkpoints: list[CheckpointModel]
    next: str | None


class SubmissionModel(Model):
    """A job to submit, with its restore options."""

    text: str = Field(
        description="the whole job file; it cannot include files", max_length=10 * 1024 * 1024
    )
    format: str = Field(default="hocon", pattern="^(hocon|json|sql)$")
    id: JobId | None = Field(
        default=None, pattern="^[1-9][0-9]{0,18}$", description="default: a new id"
    )
    name: str | None = Field(default=None, min_length=1, max_length=500)
    restore: str | None = Field(
        default=None, max_length=1000, description="latest, checkpoint:N, fresh, auto ..."
    )
    on_sink_lost: str | None = Field(
        default=None,
        pattern="^(fail|continue)$",
        description="what to do if a sink's target has lost the record of the checkpoint",
    )
    lenient: bool = Field(default=False, description="unknown options of connectors are warnings")
    skip_files: list[str] = Field(
        default_factory=list,
        max_length=100,
        description="absolute paths of files or directories to leave out",
    )
    accept_files: list[str] = Field(
        default_factory=list,
        max_length=100,
        description="absolute paths of files or directories to read although they have changed",
    )

    accept_changes: list[str] = Field(
        default_factory=list,
        max_length=100,
        description=(
            "decisions about changes of tables that have stopped the job, each as"
            " [TABLE@]POSITION=CHOICE with adopt, reread or skip"
        ),
    )

    @property
    def strictness(self) -> Strictness:
        """How strictly options of connectors are validated."""
        return Strictness.LENIENT if self.lenient else Strictness.NORMAL

    def list_parameters(self) -> dict[str, str]:
        """Return the lists as query parameters: one entry per line."""
        given = {
            "skipFile": self.skip_files,
            "acceptFile": self.accept_files,
            "acceptChange": self.accept_changes,
        }
        return {name: "\n".join(paths) for name, paths in given.items() if paths}


class ChangeDecision(Model):
    """A decision about a change that has stopped a job."""

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
        description="only this table; empty: every table that the change affects",
    )


class ResumedJob(Model):
    """A job that was resumed after a decision."""

    id: JobId
    name: str
    submitted: datetime
    notes: list[str] = Field(description="consequences of the decision, and manual steps")


class SubmissionAccepted(Model):
    """The response to a submission."""

    id: JobId
    name: str
    submitted: datetime
    notes: list[str] = Field(
        default_factory=list,
        description="consequences of the start, such as stale rows that stay in a target",
    )


class StopRequest(Model):
    """How to stop a job."""

    old_names: ClassVar[Mapping[str, str]] = {"how": "mode"}

    mode: str = Field(
        default="cancel",
        pattern="^(cancel|savepoint|force-stop)$",
        description="at its next checkpoint, with a savepoint, or killed at once",
    )
    how: str | None = old_name("mode")


class ValidationResult(Model):
    """The result of validating a job file."""

    old_names: ClassVar[Mapping[str, str]] = {"good": "valid"}

    valid: bool
    problems: list["JobFileProblem"]
    graph: list[Vertex]
    good: bool | None = old_name("valid")


class JobFileProblem(Model):
    """One problem of a job file."""

    severity: str
    message: str
    line: int | None
    path: str
    expected: str
    suggestion: str


class SavepointRequestModel(Model):
    """A request to take a savepoint."""

    stop: bool = Field(default=False, description="stop the job after it")


class SavepointProgress(Model):
    """A requested savepoint and its status."""

    old_names: ClassVar[Mapping[str, str]] = {"asked": "requested"}

    id: str
    job: JobId
    status: str = Field(description="wanted (in progress), done or failed")
    stop: bool
    reason: str
    requested: datetime
    by: str
    asked: datetime | None = old_name("requested")


class SavepointModel(Model):
    """A completed savepoint and its location."""

    old_names: ClassVar[Mapping[str, str]] = {"made": "created"}

    id: str
    job: JobId
    name: str
    path: str
    created: datetime
    checkpoints: dict[str, int] = Field(
        description="the checkpoint that each pipeline's part was copied from"
    )
    bytes: int
    overtaken: bool = Field(
        description=(
            "the job was restored from an earlier point: its own lineage cannot resume from this"
            " savepoint any more"
        )
    )
    made: datetime | None = old_name("created")


class RestorePlan(Model):
    """What a restore would do."""

    verdict: str = Field(description="ok, ok with replay, needs consent, impossible")
    start: str
    origin: str
    problems: list[str]
    consents: list[str]
    notes: list[str]
    document: dict[str, Any] = Field(
        description="the whole report: what each pipeline and operator resumes from and replays"
    )


class QuarantineModel(Model):
    """Collected state that waits to be deleted, and can still be moved back."""

    old_names: ClassVar[Mapping[str, str]] = {"begun": "created"}

    id: str
    created: datetime
    units: int
    bytes: int
    begun: datetime | None = old_name("created")


class StorageModel(Model):
    """The checkpoint storage as the last pass of the collector found it."""

    old_names: ClassVar[Mapping[str, str]] = {"place": "location"}

    location: str
    at: datetime | None
    bytes: dict[str, int]
    units: dict[str, int]
    due: int
    warning: str
    failed: list[str]
    quarantines: list[QuarantineModel]
    place: str | None = old_name("location")


class CollectorFindingModel(Model):
    """An orphaned or unknown unit below the namespace."""

    old_names: ClassVar[Mapping[str, str]] = {"why": "reason"}

    path: str
    kind: str
    reason: str
    due: bool
    bytes: int
    why: str | None = old_name("reason")


class StorageSurvey(Model):
    """The current contents of the namespace."""

    bytes: dict[str, int]
    units: dict[str, int]
    due: int
    due_bytes: int
    findings: list[CollectorFindingModel]


class UndoResult(Model):
    """The result of moving a quarantine back."""

    moved: int
    failed: list[str]


class WorkerModel(Model):
    """A worker, with its slots and jobs."""

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
    """A live server: it has a heartbeat, or is the leader, or answers this request."""

    id: str
    address: str = Field(description="URL of its API; empty if it has none")
    since: datetime | None = Field(description="when it was started")
    version: str = Field(description="its release; empty if unknown")
    leads: bool = Field(description="whether it is the leader")
    term: int | None = Field(description="the term of the leader; null for others")
    answers: bool = Field(description="whether it is the server that answers this request")


class Cleanup(Model):
    """The state of an ended job, and when it is deleted."""

    id: JobId
    due: datetime
    resumable: bool = Field(description="the checkpoints are kept until the history expires")
    attempts: int
    error: str


class Overview(Model):
    version: str
    jobs: dict[str, int] = Field(description="number of jobs by status")
    attention: list[str] = Field(description="ids of jobs that are LATE or STALLED")
    workers: int
    slots: int
    free_slots: int
    coordinators: int = Field(description="number of live servers")
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
