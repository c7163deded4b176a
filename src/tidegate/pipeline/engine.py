"""What the protocol knows of an engine: run these splits, give me the messages.

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
    """The engine has died under the driver: only a new driver can go on."""

    condition = "engine-gone"
    domain = Domain.EXTERNAL


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """One batch to write.

    `ranges` has every source of the pipeline; a source with nothing new has start == end.
    """

    lineage: str
    pipeline: int
    checkpoint: int
    generation: int
    ranges: Mapping[str, SourceRange]


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """What the tasks did: rows by source operator, messages by sink operator, and what passed each
    of them by table.
    """

    rows_read: Mapping[str, int]
    messages: Mapping[str, Sequence[Message]]
    volumes: Volumes = field(default_factory=dict)

    def rows_written(self) -> int:
        """Rows staged into all sinks together."""
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
        """Read, transform and stage one batch. Errors of tasks arrive as our own error classes."""

    def tasks(self, pipeline: int) -> TaskCount:
        """Progress inside the running batch."""

    def cancel(self, pipeline: int) -> None:
        """Interrupt the running batch: its `run` raises soon."""

    def close(self) -> None:
        """Let go of everything; no batch is running any more."""
