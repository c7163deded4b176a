"""The interfaces that connectors implement: sources, sinks and transforms over Arrow batches.

A source implements `initial`, `latest` and `splits` for the driver and `read` for the tasks. A sink
provides a writer for the tasks and a committer for the driver. The engine connects them, through a
DataFrame or fused in one Python worker. Implementations are plain objects that can be pickled,
because they are sent to the tasks; open what cannot be pickled late, in `read` or in the writer.

Offsets are JSON values that only their source understands. `splits(start, end)` and `read` must
return the same rows for the same range at any time: a repeated batch is exact only because of this.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from tidegate.model.errors import Unsupported
from tidegate.model.job import JobMode
from tidegate.model.table_changes import AcceptedChange
from tidegate.model.types import Table
from tidegate.plugin.deprecated import accept_old_methods, old_fields, old_name
from tidegate.plugin.option import Values

if TYPE_CHECKING:
    import pyarrow as pa

Offset = Any
"""The read position of a source: a JSON value."""
Message = Mapping[str, Any]
"""A JSON object that a writer sends from its task to the committer. It contains `rows`."""


MULTIPLE_TABLES = ""
"""`Split.table` of a split with rows of several tables.

Each of its batches names its table in the metadata of its schema, under `table`.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorContext:
    """Identifies an operator. `operator` is its id in plan and state."""

    job_id: int
    job_name: str
    pipeline: int
    operator: str
    mode: JobMode
    parallelism: int
    skip_files: tuple[str, ...] = ()  # --skip-file: files or directories to leave out
    accept_files: tuple[str, ...] = ()  # --accept-file: changed files to read as they are now
    accepted_changes: tuple[AcceptedChange, ...] = ()  # table changes that users have accepted


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """The maximum size of one batch; None means no limit.

    A source takes at least one unit, so that it always makes progress.
    """

    rows: int | None = None
    bytes: int | None = None
    files: int | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """The part of a range that one task reads. Its payload is small, plain JSON.

    `table` is the path of the table whose rows it contains.
    """

    table: str
    payload: Any
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Progress:
    """How much of a bounded source is read, in `unit` (rows, bytes, files)."""

    done: float
    total: float
    unit: str


@dataclass(frozen=True, slots=True)
class LogRetention:
    """Whether the log of a source still contains a position, and for how long.

    The remaining time is given in seconds at the recent rate, or in bytes, if the source knows it.
    `low`: the source itself reports that the position is lost soon; otherwise the engine decides by
    `seconds_left`. `position` and `oldest` (the first position still in the log) are in the
    source's own notation, for messages about a position that is no longer held.
    """

    held: bool
    reason: str = ""
    seconds_left: float | None = None
    bytes_left: int | None = None
    low: bool = False
    position: str = ""
    oldest: str = ""


@old_fields(place="location")
@dataclass(frozen=True, kw_only=True, slots=True)
class Resource:
    """An external resource of a job: a replication slot, a publication, a server id.

    Only one job at a time may use a resource of this kind, name and location. `location` is host,
    port and database, without credentials, and identical for all jobs that use the same server. A
    `lasting` resource exists beyond the driver: it is kept while the job can be resumed, and then
    dropped (Connector.drop). Any other resource is only a name, reserved while the job runs.
    """

    kind: str
    name: str
    location: str
    lasting: bool = True


class ResourceRegistry(Protocol):
    """Records external resources that a source or sink creates in the driver.

    A resource is recorded before it is created, so that it is dropped whatever happens.
    """

    def record(self, resource: Resource) -> None:
        """Record a resource durably. May be repeated.

        Raises ResourceTaken (a UserError) if another job owns it.
        """

    def forget(self, resource: Resource) -> None:
        """Remove the record of a resource that the operator has dropped itself."""


class Source(ABC):
    """Base class of sources. The driver constructs it from validated values.

    The constructor must not do I/O.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        accept_old_methods(cls, "Source")

    def __init__(self, values: Values, context: OperatorContext) -> None:
        self.values = values
        self.context = context

    @abstractmethod
    def tables(self) -> tuple[Table, ...]:
        """The tables of this source with their schemas.

        May read files or databases. Called once per driver.
        """

    @property
    def bounded(self) -> bool:
        """Whether the source ends, so that its pipeline can finish."""
        return self.context.mode is JobMode.BATCH

    # Most sources create no external resources.
    def attach_resources(self, registry: ResourceRegistry) -> None:  # noqa: B027  # optional hook
        """Receive, in the driver and before all other calls, the registry of external resources.

        It must not be pickled with the source. Declare resources that follow from the options alone
        in `Connector.resources` instead: then a conflict between two jobs is found at submit.
        """

    @abstractmethod
    def initial(self) -> Offset:
        """The first offset. Called once per lineage; everything random belongs into it."""

    @abstractmethod
    def latest(self, start: Offset, limit: Limit) -> Offset:
        """The end of the next batch; equal to `start` if there is nothing new."""

    @abstractmethod
    def splits(self, start: Offset, end: Offset, count: int) -> Sequence[Split]:
        """Divide (start, end] into about `count` splits (cores to 4 x cores).

        Rows are ordered only within a split.
        """

    def shared_splits(self, start: Offset, end: Offset, count: int) -> Sequence[Split]:
        """The same rows as `splits`, in splits that may contain several tables (MULTIPLE_TABLES).

        For engines that inspect each batch: a log is then read once, not once per table.
        """
        return self.splits(start, end, count)

    @abstractmethod
    def read(self, split: Split) -> Iterator["pa.RecordBatch"]:
        """Yield, in a task, the rows of a split in exactly the table's Arrow schema.

        That is plugin.arrow.table_schema, with ROW_KIND last if `table.kinds`.
        """

    def inspect(self, rows: int) -> Iterator[str]:  # noqa: ARG002  # optional
        """Check the first existing rows for `tidegate validate --sample`; a sentence per problem.

        Changes nothing.
        """
        return iter(())

    def is_exhausted(self, offset: Offset) -> bool:  # noqa: ARG002  # for sources that never end
        """Whether a bounded source has nothing more to read after this offset."""
        return False

    def progress(self, offset: Offset) -> Progress | None:  # noqa: ARG002  # unknown by default
        """How much has been read, if known."""
        return None

    def has_backlog(self, offset: Offset) -> bool | None:
        """Whether more data is waiting because the limit ended the range at this offset.

        The next batch then starts at once. None if unknown: batches start an interval apart. Called
        after every batch, so it must answer from memory.
        """
        return not self.is_exhausted(offset) if self.bounded else None

    def log_retention(self, offset: Offset) -> LogRetention:  # noqa: ARG002  # optional
        """Whether the log still contains this position, and for how long.

        Called periodically, on another instance than the one that reads.
        """
        return LogRetention(True)

    def cannot_repeat(self, start: Offset, end: Offset) -> str:  # noqa: ARG002  # optional
        """The reason why a started batch cannot be read again as recorded; empty if it can.

        Called when a user restores a job.
        """
        return ""

    # Most sources plan from `start` alone.
    def abandon_batch(self, start: Offset, end: Offset) -> None:  # noqa: B027  # optional hook
        """Drop a batch that no sink has: what follows `start` is planned anew."""

    def latest_position(self) -> Offset:
        """The position after all existing data, for a restore that skips what was lost."""
        raise Unsupported(
            f"{self.context.operator} cannot skip to new data: use --on-not-held initial, or"
            " start over with --restore fresh"
        )

    def release(self, offset: Offset) -> None:  # noqa: B027  # most sources keep everything
        """Discard data before this offset: no restore point needs it any more."""


class Transform:
    """One step between source and sink, applied to every table of its input."""

    fusable: ClassVar[bool] = False
    """Whether the transform implements `arrow`: it changes columns or row kinds, without SQL."""

    def __init__(self, values: Values, context: OperatorContext) -> None:
        self.values = values
        self.context = context

    def table(self, table: Table) -> Table | None:  # noqa: ARG002  # for those that Spark applies
        """The output table; None if only Spark knows it (Sql)."""
        return None

    @property
    def rejects(self) -> bool:
        """Whether the transform may reject rows; `rejected` returns their table."""
        return False

    def rejected(self, table: Table) -> Table | None:  # noqa: ARG002  # for those that reject rows
        """The table for rejected rows of `table`, beside its output; None if there is none.

        Only for transforms that Spark applies: the module that Connector.spark names has a function
        `rejected` too.
        """
        return None

    # Transforms that only Spark applies do not implement it.
    def arrow(
        self,
        table: Table,  # noqa: ARG002  # by default none
        batch: "pa.RecordBatch",  # noqa: ARG002  # by default none
    ) -> "pa.RecordBatch":
        """Transform, in a task, one batch of `table`.

        The result has the schema table_schema(self.table(table)).
        """
        raise Unsupported(f"{self.context.operator} needs Spark and cannot transform Arrow batches")


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteTask:
    """Identifies one attempt of a task that writes.

    `token` is unique for every attempt of every task: it is part of the names of staged data.
    """

    lineage: str
    checkpoint: int
    generation: int
    subtask: int
    token: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitRange:
    """The source ranges of one batch, as recorded by the sink.

    `offsets` is `{source: {"start": ..., "end": ...}}` with every source of the pipeline.
    """

    checkpoint: int
    offsets: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Commit:
    """A batch to make visible: the messages of one attempt of its tasks."""

    lineage: str
    pipeline: int
    checkpoint: int
    generation: int
    offsets: Mapping[str, Any]
    messages: Sequence[Message]


@old_fields(ahead="uncheckpointed_commits", back="rewind")
@dataclass(frozen=True, kw_only=True, slots=True)
class SinkRestore:
    """The restore point of a sink.

    Sinks that can must undo everything after `checkpoint`, except the batches that will be
    repeated. These keep their ids: `pending`, and `uncheckpointed_commits`, which some sink of the
    pipeline has committed and the registry of checkpoints has lost. `rewind`: an older restore
    point was chosen on purpose. `token` identifies the driver and `installation` its store, because
    generation numbers alone do not distinguish two copies of an installation. A sink's fence
    contains both.
    """

    lineage: str
    generation: int
    checkpoint: int
    pending: int | None = None
    state: Any = None
    uncheckpointed_commits: tuple[int, ...] = ()
    rewind: bool = False
    token: str = ""
    installation: str = ""

    @property
    def fresh(self) -> bool:
        """Whether no batch of this lineage has started."""
        return (
            self.checkpoint == 0
            and self.pending is None
            and self.state is None
            and not self.uncheckpointed_commits
        )

    def keeps(self, checkpoint: int) -> bool:
        """Whether a committed batch stays: so does every batch before an uncheckpointed commit."""
        return (
            checkpoint <= max(self.checkpoint, *self.uncheckpointed_commits, 0)
            or checkpoint == self.pending
        )


@old_fields(place="target")
@dataclass(frozen=True, kw_only=True, slots=True)
class TargetRecord:
    """What the target has recorded about a lineage, independent of the store.

    `checkpoint` is the newest one recorded there; 0 if there is no record. `target` is a
    human-readable name of the target. `others` describes its rows of other lineages ("2 files"),
    only for a fresh start that appends; empty if there are none or the sink does not know.
    """

    target: str
    checkpoint: int
    others: str = ""


@dataclass(frozen=True, slots=True)
class BatchCommitted:
    """This call made the batch visible."""


@dataclass(frozen=True, slots=True)
class AlreadyCommitted:
    """The sink already had the batch with the same offsets, or completed a half-done commit."""


class Writer(ABC):
    """Stages batches in a task and reports what it staged.

    One writer serves all tables of its sink in its task.
    """

    @abstractmethod
    def write(self, table: Table, batch: "pa.RecordBatch") -> None:
        """Stage one batch of a table; ROW_KIND is its last column if `table.kinds`."""

    @abstractmethod
    def close(self) -> Message:
        """Persist everything at the end of the task; return the message for the committer.

        The message contains `rows`.
        """

    @abstractmethod
    def abort(self) -> None:
        """Drop the staged data of a task that failed."""


class Committer(ABC):
    """Commits the batches of one sink of a pipeline, in the driver.

    The engine calls target_record, uncheckpointed_commits, open, (commit)*, finish?, close, forget?
    in this order.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        accept_old_methods(cls, "Committer")

    # Both are optional: many sinks keep no record.

    def target_record(
        self,
        resume: SinkRestore,  # noqa: ARG002  # by default none
    ) -> TargetRecord | None:
        """Read the target's record of this lineage; create and fence nothing.

        Also called for a restore plan, outside of a driver. A driver that restores checkpoint n and
        finds an older record, or none, stops. None: this sink keeps no records.
        """
        return None

    def uncheckpointed_commits(
        self,
        resume: SinkRestore,  # noqa: ARG002  # by default none
    ) -> Sequence[CommitRange]:
        """Fence older generations; return the records of the batches after `resume.checkpoint`.

        All of them, or only the newest if the sink keeps one row. A record proves that its batch
        and all batches before it are in the target. Must not change them: `open` follows.
        """
        return ()

    @abstractmethod
    def open(self, resume: SinkRestore) -> None:
        """Fence older generations and restore the target to `resume`.

        Completes a half-done commit, undoes what is newer than `resume`, and removes dead staged
        data.
        """

    @abstractmethod
    def commit(self, commit: Commit) -> BatchCommitted | AlreadyCommitted:
        """Make a batch visible exactly once.

        The same id with the same offsets is skipped; with other offsets it is an error; a newer
        generation in the record raises Fenced. An id before the sink's newest record is skipped
        too: everything before a record is in the target.
        """

    def state(self) -> Any:
        """The sink's state after the last commit, as JSON for the checkpoint.

        A restore passes it as SinkRestore.state.
        """
        return None

    def retain(self, oldest: int) -> None:  # noqa: B027  # many sinks keep one row
        """Discard records before this checkpoint: no older restore point is kept."""

    def finish(self) -> None:  # noqa: B027  # most sinks have nothing to check
        """Validate the result after the last batch of a bounded pipeline; raise if it is wrong."""

    def close(self) -> None:  # noqa: B027  # most sinks hold nothing open
        """Release connections when the driver ends normally."""

    def forget(self) -> None:  # noqa: B027  # most sinks keep nothing after finish
        """Remove the record of a pipeline that is FINISHED and has no savepoint to restore.

        Not repeated: after a crash the record stays.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class SinkContext:
    """Identifies a sink and its input tables, which are known when the graph is built."""

    operator: OperatorContext
    tables: tuple[Table, ...] = field(default_factory=tuple)


class Sink(ABC):
    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        accept_old_methods(cls, "Sink")

    def __init__(self, values: Values, context: OperatorContext) -> None:
        self.values = values
        self.context = context

    @property
    def on_engine(self) -> bool:
        """Whether its committer needs a running engine for all of its calls."""
        return False

    # Most sinks create nothing but their rows.
    def attach_resources(self, registry: ResourceRegistry) -> None:  # noqa: B027  # optional hook
        """Receive the registry of external resources, as sources do."""

    def check_connection(self) -> bool:
        """Check for a dry run that the target answers, without changing anything.

        Raises an error if not. False if there is no target to connect to.
        """
        return False

    @abstractmethod
    def writer(self, task: WriteTask) -> Writer: ...

    @abstractmethod
    def committer(self) -> Committer: ...


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return old_name(__name__, name)
