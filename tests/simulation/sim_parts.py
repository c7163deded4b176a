"""A source and a sink in memory, as connectors, whose data outlives every simulated process.

The source is as awkward as the contract allows: its initial offset and the size of a batch are
drawn anew on every call. The sink is exactly-once as a database is: rows and record in one step,
the record keyed by checkpoint, older generations refused.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegate.model.errors import Fenced, TransientError
from tidegate.model.job import BlockKind
from tidegate.model.plan import Delivery
from tidegate.model.types import Column, DataType, Table, TypeName
from tidegate.plugin.connector import Capabilities, Connector, GoBack
from tidegate.plugin.contract import (
    AlreadyCommitted,
    BatchCommitted,
    Commit,
    CommitRange,
    Committer,
    Limit,
    Message,
    Offset,
    Sink,
    SinkRestore,
    Source,
    Split,
    Writer,
    WriteTask,
)
from tidegate.plugin.option import OptionSet


@dataclass(eq=False)
class SinkData:
    """The rows and commit records of one sink of one lineage."""

    generation: int = 0
    rows: dict[int, list[int]] = field(default_factory=dict)
    records: dict[int, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(eq=False)
class Scene:
    """The external systems of a simulated job.

    `at` is called at every point where a fault may be injected, `broken` with every violation.
    """

    rng: random.Random
    at: Callable[[str], None]
    broken: Callable[[str], None]
    losing: float = 0.0  # how often the answer to a commit is lost
    available: int = 0  # rows that a stream has by now
    sink_data: dict[tuple[str, int, str], SinkData] = field(default_factory=dict)


scene: Scene


def open_scene(new: Scene) -> None:
    """Make this the data of all sources and sinks."""
    global scene
    scene = new


@dataclass(frozen=True, slots=True)
class Rows:
    """A stand-in for a record batch: the fused path only counts its rows and bytes, removes the
    metadata of its schema and passes it on.
    """

    ids: tuple[int, ...]

    @property
    def num_rows(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        return 8 * len(self.ids)

    def replace_schema_metadata(self, notes: None) -> "Rows":
        assert notes is None
        return self


class SimSource(Source):
    """Numbers from `first` on, `rows` of them where it is bounded.

    The offset is {"first", "at"}.
    """

    def tables(self) -> tuple[Table, ...]:
        return (Table(path="t", columns=(Column(name="id", type=DataType(TypeName.BIGINT)),)),)

    def initial(self) -> Offset:
        return {"first": self.values["base"] + scene.rng.randrange(1000), "at": 0}

    def latest(self, start: Offset, limit: Limit) -> Offset:
        scene.at("source.latest")
        total = self.values["rows"] if self.bounded else scene.available
        left = min(total - start["at"], limit.rows if limit.rows is not None else total)
        return {**start, "at": start["at"] + (scene.rng.randint(1, left) if left > 0 else 0)}

    def behind(self, offset: Offset) -> bool:
        return bool(offset["at"] < (self.values["rows"] if self.bounded else scene.available))

    def splits(self, start: Offset, end: Offset, count: int) -> Sequence[Split]:
        middle = (start["at"] + end["at"]) // 2
        edges = (
            [(start["at"], middle), (middle, end["at"])]
            if count > 1
            else [(start["at"], end["at"])]
        )
        return [Split("t", [start["first"] + a, start["first"] + b]) for a, b in edges if a < b]

    def read(self, split: Split) -> Iterator[Any]:
        scene.at("source.read")
        yield Rows(tuple(range(*split.payload)))

    def is_exhausted(self, offset: Offset) -> bool:
        return self.bounded and bool(offset["at"] >= self.values["rows"])


class SimWriter(Writer):
    def __init__(self) -> None:
        self.ids: list[int] = []

    def write(self, table: Table, batch: Any) -> None:  # noqa: ARG002  # there is one table
        self.ids += batch.ids

    def close(self) -> Message:
        scene.at("sink.stage")
        return {"rows": len(self.ids), "ids": self.ids}

    def abort(self) -> None:
        self.ids = []


class SimCommitter(Committer):
    """Rows and record in one step.

    `newest_only`: keeps one record, as a database does with a row for each sink; otherwise one for
    each batch, as files do.
    """

    def __init__(self, pipeline: int, sink: str, newest_only: bool) -> None:
        self.pipeline = pipeline
        self.sink = sink
        self.newest_only = newest_only
        self.data = SinkData()
        self.generation = 0

    def _fence(self) -> None:
        if self.data.generation > self.generation:
            raise Fenced(f"the sink {self.sink}", self.generation, self.data.generation)

    def ahead(self, resume: SinkRestore) -> Sequence[CommitRange]:
        self.data, self.generation = (
            scene.sink_data.setdefault((resume.lineage, self.pipeline, self.sink), SinkData()),
            resume.generation,
        )
        scene.at("sink.ahead.before")
        self._fence()
        self.data.generation = self.generation
        scene.at("sink.ahead.after")
        return [
            CommitRange(checkpoint=c, offsets=offsets)
            for c, offsets in sorted(self.data.records.items())
            if c > resume.checkpoint
        ]

    def open(self, resume: SinkRestore) -> None:
        scene.at("sink.open.before")
        self._fence()
        for newer in [c for c in self.data.rows if not resume.keeps(c)]:
            del self.data.rows[newer]
            self.data.records.pop(newer, None)
        scene.at("sink.open.after")

    def commit(self, commit: Commit) -> BatchCommitted | AlreadyCommitted:
        scene.at("sink.commit.before")
        self._fence()
        ids = sorted(i for message in commit.messages for i in message["ids"])
        outcome = self._once(commit, ids)
        scene.at("sink.commit.after")
        if scene.rng.random() < scene.losing:
            raise TransientError("the answer to the commit was lost")
        return outcome

    def _once(self, commit: Commit, ids: list[int]) -> BatchCommitted | AlreadyCommitted:
        n, what = (
            commit.checkpoint,
            (
                f"{self.sink} of pipeline {self.pipeline}, checkpoint {commit.checkpoint} of"
                f" generation {commit.generation}"
            ),
        )
        if self.newest_only and any(record > n for record in self.data.records):
            return AlreadyCommitted()
        if n not in self.data.rows:
            if self.data.rows and n < max(self.data.rows):
                scene.broken(f"a batch came after a later one: {what}")
            self.data.rows[n] = ids
            self.data.records = {
                **({} if self.newest_only else self.data.records),
                n: commit.offsets,
            }
            return BatchCommitted()
        if n not in self.data.records:
            scene.broken(f"a batch was repeated after it was sure that it never would be: {what}")
        elif self.data.records[n] != commit.offsets:
            scene.broken(f"a batch was repeated with other offsets: {what}")
        elif self.data.rows[n] != ids:
            scene.broken(f"a batch was repeated with other rows: {what}")
        return AlreadyCommitted()

    def retain(self, oldest: int) -> None:
        scene.at("sink.retain")
        if self.data.generation == self.generation:
            self.data.records = {
                c: offsets for c, offsets in self.data.records.items() if c >= oldest
            }


class SimSink(Sink):
    def writer(self, task: WriteTask) -> Writer:  # noqa: ARG002  # staged names never collide here
        return SimWriter()

    def committer(self) -> Committer:
        return SimCommitter(
            self.context.pipeline, self.context.operator, self.values["newest_only"]
        )


CONNECTORS = (
    Connector(
        name="SimSource",
        kind=BlockKind.SOURCE,
        summary="Numbers.",
        options=OptionSet(options=()),
        capabilities=Capabilities(fusable=True),
        implementation="sim_parts:SimSource",
    ),
    Connector(
        name="SimSink",
        kind=BlockKind.SINK,
        summary="Memory.",
        options=OptionSet(options=()),
        capabilities=Capabilities(
            fusable=True, delivery=Delivery.EXACTLY_ONCE, go_back=GoBack.REWIND
        ),
        implementation="sim_parts:SimSink",
    ),
)
