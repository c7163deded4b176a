"""The two contracts of the data path, both over Arrow, and the transforms between them.

A source gives `initial`, `latest`, `splits` in the driver and `read` in the tasks. A sink gives a
writer for the tasks and a committer for the driver. How they meet is the engine's: through a
DataFrame, or fused in one Python worker. Implementations are plain objects that can be pickled
(they travel to the tasks); what cannot be pickled is opened late, in `read` or in the writer.

Offsets are JSON values that only their source understands. `splits(start, end)` and `read` must
give the same rows whenever they are asked for the same range: that is what makes a repeated batch
exact.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from tidegate.model.change import AcceptedChange
from tidegate.model.errors import Unsupported
from tidegate.model.job import JobMode
from tidegate.model.types import Table
from tidegate.plugin.option import Values

if TYPE_CHECKING:
    import pyarrow as pa

Offset = Any
"""A JSON value: where a source is."""
Message = Mapping[str, Any]
"""A JSON object that a writer sends from its task to the committer; `rows` (written) is always in
it.
"""


JOINT_TABLE = ""
"""The table of a split that holds rows of several: each of its batches names its own in the
metadata of its schema, under `table`.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorContext:
    """Who an operator is. `operator` is its id in plan and state."""

    job_id: int
    job_name: str
    pipeline: int
    operator: str
    mode: JobMode
    parallelism: int
    skip_files: tuple[str, ...] = ()  # left out by --skip-file: paths of files or directories
    accept_files: tuple[str, ...] = ()  # read as they are now, by --accept-file
    accepted_changes: tuple[
        AcceptedChange, ...
    ] = ()  # what people have decided about changes of tables


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """How much one batch may take; None = no limit. A source takes at least one unit, so that it
    always gets on.
    """

    rows: int | None = None
    bytes: int | None = None
    files: int | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """What one task reads: small, plain JSON.

    `table` is the path of the one table it holds rows of.
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
    """Whether a source still holds a position, and how long it will: in seconds at the pace of
    late, or in bytes, where the source can tell.

    `low` is the source's own word that the end is near; the engine finds so by itself where the
    seconds are few. `position` is the place of the log in the source's own words, `oldest` the
    first one that it still has: for people, where it is not held.
    """

    held: bool
    reason: str = ""
    seconds_left: float | None = None
    bytes_left: int | None = None
    low: bool = False
    position: str = ""
    oldest: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Resource:
    """Something that a job has outside of this system, under a name that only one job may use at a
    time: a replication slot, a publication, a server id.

    `place` says where it is (host, port, database), the same for everyone who means the same
    server, and without credentials. A `lasting` one stays there when the driver is gone: it is kept
    for a job that can be resumed, and dropped (Connector.drop) when none can. Another one is only a
    name, taken while the job lives.
    """

    kind: str
    name: str
    place: str
    lasting: bool = True


class ResourceRegistry(Protocol):
    """Where a source or sink records, in the driver, what it is about to create outside: recorded
    first, so that it is dropped whatever happens.
    """

    def record(self, resource: Resource) -> None:
        """Durable when it returns; may be repeated.

        ResourceTaken (a UserError) where another job has it.
        """

    def forget(self, resource: Resource) -> None:
        """It is gone: the operator has dropped it itself."""


class Source(ABC):
    """Where rows come from.

    Constructed in the driver from validated values; must not do I/O in the constructor.
    """

    def __init__(self, values: Values, context: OperatorContext) -> None:
        self.values = values
        self.context = context

    @abstractmethod
    def tables(self) -> tuple[Table, ...]:
        """The tables of this source with their schemas.

        May read files or databases to find out; asked once per driver.
        """

    @property
    def bounded(self) -> bool:
        """Whether this source comes to an end."""
        return self.context.mode is JobMode.BATCH

    def attach_resources(self, book: ResourceRegistry) -> None:  # noqa: B027  # most sources create nothing
        """In the driver, before everything else: the book for what is created outside. It does not
        travel to tasks: keep it out of what is pickled.

        What is known from the options alone is declared by `Connector.resources` instead: then two
        jobs that want the same are told apart at submit.
        """

    @abstractmethod
    def initial(self) -> Offset:
        """Where the source begins.

        Asked once in the life of a lineage; everything random about the source belongs into it.
        """

    @abstractmethod
    def latest(self, start: Offset, limit: Limit) -> Offset:
        """The end of the next batch; equal to start when there is nothing new."""

    @abstractmethod
    def splits(self, start: Offset, end: Offset, count: int) -> Sequence[Split]:
        """(start, end] in about `count` parts (cores to 4 x cores); order matters only within a
        split.
        """

    def shared_splits(self, start: Offset, end: Offset, count: int) -> Sequence[Split]:
        """The same rows as `splits`, where a split may hold several tables (JOINT_TABLE): for
        engines that look at each batch, so that a log is read once.
        """
        return self.splits(start, end, count)

    @abstractmethod
    def read(self, split: Split) -> Iterator["pa.RecordBatch"]:
        """In a task: the rows of a split, of exactly the table's Arrow schema
        (plugin.arrow.table_schema, ROW_KIND last where table.kinds).
        """

    def inspect(self, rows: int) -> Iterator[str]:  # noqa: ARG002  # most sources cannot tell at once
        """What is wrong with the first rows of what is there, a sentence each: for `tidegate
        validate --sample`. Changes nothing.
        """
        return iter(())

    def is_exhausted(self, offset: Offset) -> bool:  # noqa: ARG002  # for sources that never end
        """Whether a bounded source has nothing more to read after this offset (ready to close)."""
        return False

    def progress(self, offset: Offset) -> Progress | None:  # noqa: ARG002  # unknown by default
        """How much is read, where that is known."""
        return None

    def has_backlog(self, offset: Offset) -> bool | None:
        """Whether it was the limit that ended the range that `latest` gave up to this offset, and
        more is waiting: then the next batch begins at once.

        None where that is not known: batches begin an interval apart. Asked after every batch, so
        from memory, without a look outside.
        """
        return not self.is_exhausted(offset) if self.bounded else None

    def log_retention(self, offset: Offset) -> LogRetention:  # noqa: ARG002  # most sources keep everything
        """Whether this position is still held, and how long it will be.

        Asked now and then, of another instance than the one that reads.
        """
        return LogRetention(True)

    def cannot_repeat(self, start: Offset, end: Offset) -> str:  # noqa: ARG002  # most sources can
        """Why a batch that was begun cannot be read again as it was recorded; empty where it can.

        Asked when a person restores.
        """
        return ""

    def give_up(self, start: Offset, end: Offset) -> None:  # noqa: B027  # most sources need not know
        """This batch is given up: no sink has it, and what follows `start` is planned anew."""

    def latest_position(self) -> Offset:
        """The position after everything that is there now: for a restore whose own position is
        gone, and which shall skip what was lost.
        """
        raise Unsupported(
            f"{self.context.operator} cannot skip to what is new now: say --on-not-held initial, or"
            " start over with --restore fresh"
        )

    def release(self, offset: Offset) -> None:  # noqa: B027  # most sources keep everything
        """Everything before this offset may go: no restore point needs it any more."""


class Transform:
    """One step between source and sink, for every table of its input."""

    fusable: ClassVar[bool] = False
    """Whether `arrow` is there: a move of columns or row kinds, without SQL."""

    def __init__(self, values: Values, context: OperatorContext) -> None:
        self.values = values
        self.context = context

    def table(self, table: Table) -> Table | None:  # noqa: ARG002  # for those that Spark applies
        """The table that comes out, where that is known without Spark; None where only Spark knows
        (Sql).
        """
        return None

    @property
    def rejects(self) -> bool:
        """Whether rows may be put aside: then `rejected` names the table."""
        return False

    def rejected(self, table: Table) -> Table | None:  # noqa: ARG002  # for those that reject rows
        """The table that rejected rows of `table` go to, beside the one that comes out; None where
        they go nowhere.

        Only where Spark applies the transform: its module has a function `rejected` beside the one
        that Connector.spark names.
        """
        return None

    def arrow(self, table: Table, batch: "pa.RecordBatch") -> "pa.RecordBatch":  # noqa: ARG002  # for those that Spark applies
        """In a task: one batch of `table`, changed.

        Its schema is table_schema(self.table(table)).
        """
        raise Unsupported(
            f"{self.context.operator} is applied by Spark, and not to batches of rows"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteTask:
    """One writer's place in the world.

    `token` is unique for every attempt of every task: staged names are made of it.
    """

    lineage: str
    checkpoint: int
    generation: int
    subtask: int
    token: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitRange:
    """The ranges of every source of the pipeline in one batch, as the sink's record keeps them:
    `{source: {"start": ..., "end": ...}}`.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class SinkRestore:
    """Where a sink is to go on: everything after `checkpoint` is to be undone (by sinks that can),
    except the batches that will be repeated.

    These keep their ids: `pending`, and those `ahead`, which some sink of the pipeline holds and
    the registry of checkpoints has lost. `back` says that an older point is wanted on purpose.
    `token` names the driver, `installation` the store that it belongs to: a number alone does not
    tell two copies of one installation apart. A sink's fence holds both.
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
        """Whether nothing of this lineage has been begun."""
        return (
            self.checkpoint == 0
            and self.pending is None
            and self.state is None
            and not self.uncheckpointed_commits
        )

    def keeps(self, checkpoint: int) -> bool:
        """Whether a batch stays as it is: what lies before one that is ahead does too."""
        return (
            checkpoint <= max(self.checkpoint, *self.uncheckpointed_commits, 0)
            or checkpoint == self.pending
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class SinkMemory:
    """What the target itself says about a lineage, without any help of the store.

    `checkpoint` is the newest one that is recorded there; 0 where there is no record. `place` names
    the target for people. `others` says in words which rows of other lineages are in it: only for a
    fresh start that appends, empty where there are none or nobody can tell.
    """

    place: str
    checkpoint: int
    others: str = ""


@dataclass(frozen=True, slots=True)
class BatchCommitted:
    """This batch is visible now, because of this call."""


@dataclass(frozen=True, slots=True)
class AlreadyCommitted:
    """The sink had it before, with the same offsets; nothing was done, or what was half-done was
    carried out.
    """


class Writer(ABC):
    """In a task: takes batches, stages them, says what it staged.

    One writer serves all tables of its sink in its task.
    """

    @abstractmethod
    def write(self, table: Table, batch: "pa.RecordBatch") -> None:
        """Stage one batch of a table; ROW_KIND is its last column where table.kinds."""

    @abstractmethod
    def close(self) -> Message:
        """End of the task: everything is on disk; the message for the committer, with `rows`."""

    @abstractmethod
    def abort(self) -> None:
        """The task failed: drop what was staged."""


class Committer(ABC):
    """In the driver, one for each sink of a pipeline.

    Methods are called in the order memory, ahead, open, (commit)*, finish?, close, forget?.
    """

    def memory(self, resume: SinkRestore) -> SinkMemory | None:  # noqa: ARG002  # many sinks keep no record
        """What the target says of this lineage: read only, nothing is created or fenced. Also asked
        for a restore plan, outside of a driver.

        A sink that keeps a record returns it: a driver that restores checkpoint n and finds an
        older record, or none, stops. None: this sink keeps none.
        """
        return None

    def uncheckpointed_commits(self, resume: SinkRestore) -> Sequence[CommitRange]:  # noqa: ARG002  # many sinks keep no record
        """Fence older generations, then tell the records of the batches after `resume.checkpoint`:
        all of them, or only the newest where one row is kept.

        A record is proof that its batch and everything before it is in the target. Nothing is
        changed here; `open` follows with what is to become of them.
        """
        return ()

    @abstractmethod
    def open(self, resume: SinkRestore) -> None:
        """Fence older generations, carry out a half-done commit, undo what is newer than `resume`,
        collect dead staging.
        """

    @abstractmethod
    def commit(self, commit: Commit) -> BatchCommitted | AlreadyCommitted:
        """Make a batch visible once. The same id with the same offsets is skipped; with others it
        is an error; a newer generation raises Fenced.

        An id before the sink's newest record is skipped too: everything before a record is in the
        target.
        """

    def state(self) -> Any:
        """What belongs into the checkpoint after the last commit (JSON); comes back as
        Resume.state.
        """
        return None

    def retain(self, oldest: int) -> None:  # noqa: B027  # many sinks keep one row
        """No restore point older than this checkpoint is kept: records before it may go."""

    def finish(self) -> None:  # noqa: B027  # most sinks have nothing to say
        """The last batch of a bounded pipeline is committed; raise if the whole is not as it should
        be (Assert).
        """

    def close(self) -> None:  # noqa: B027  # most sinks hold nothing open
        """The driver ends in an orderly way."""

    def forget(self) -> None:  # noqa: B027  # most sinks keep nothing after finish
        """The pipeline is FINISHED in the store, and no savepoint can be restored: the record may
        go. Repeated by nobody: a crash leaves it there.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class SinkContext:
    """Who a sink is, and which tables come to it (known when the graph is built)."""

    operator: OperatorContext
    tables: tuple[Table, ...] = field(default_factory=tuple)


class Sink(ABC):
    def __init__(self, values: Values, context: OperatorContext) -> None:
        self.values = values
        self.context = context

    @property
    def on_engine(self) -> bool:
        """Whether its committer works through the engine, which must be up before it is asked
        anything.
        """
        return False

    def attach_resources(self, book: ResourceRegistry) -> None:  # noqa: B027  # most sinks create nothing but their rows
        """In the driver, before everything else: the book for what is created outside, as for
        sources.
        """

    def reach(self) -> bool:
        """For a dry run: whether the target answers, asked without changing anything; what is wrong
        is raised. False where there is nothing to ask.
        """
        return False

    @abstractmethod
    def writer(self, task: WriteTask) -> Writer: ...

    @abstractmethod
    def committer(self) -> Committer: ...
