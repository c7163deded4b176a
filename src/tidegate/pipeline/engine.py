"""The interface of an engine: run the tasks of a batch, return their messages.

Implemented by spark/engine.py and by testing/plain_engine.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tidegate.model.errors import Domain, TransientError
from tidegate.model.records import SourceRange
from tidegate.model.throughput import Volumes
from tidegate.pipeline.graph import Graph
from tidegate.plugin.contract import Message


class EngineGone(TransientError):
    """The engine has died; only a new driver can continue."""

    condition = "engine-gone"
    domain = Domain.EXTERNAL


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """One batch to write.

    `ranges` has every source of the pipeline; a source without new rows has start == end.
    """

    lineage: str
    pipeline: int
    checkpoint: int
    generation: int
    ranges: Mapping[str, SourceRange]


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """The result of a batch's tasks.

    Rows by source operator, messages by sink operator, and the volumes of all operators by table.
    """

    rows_read: Mapping[str, int]
    messages: Mapping[str, Sequence[Message]]
    volumes: Volumes = field(default_factory=dict)

    def rows_written(self) -> int:
        """Sum of the rows staged into all sinks."""
        return sum(int(m["rows"]) for messages in self.messages.values() for m in messages)


@dataclass(frozen=True, slots=True)
class TaskCount:
    """How many tasks of the running batch are done."""

    done: int
    total: int


class Engine(Protocol):
    """Runs the tasks of batches.

    Called from one thread for each pipeline; `cancel` and `tasks` from any.
    """

    def run(self, graph: Graph, batch: Batch) -> Written:
        """Read, transform and stage one batch; errors of tasks are raised as TidegateErrors."""

    def tasks(self, pipeline: int) -> TaskCount:
        """Progress inside the running batch."""

    def cancel(self, pipeline: int) -> None:
        """Interrupt the running batch; its `run` raises soon afterwards."""

    def close(self) -> None:
        """Release all resources. No batch may be running."""
