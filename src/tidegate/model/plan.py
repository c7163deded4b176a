"""The graph of a job, cut into pipelines.

Made by the planner, kept in the store, read by the driver.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tidegate.model.job import BlockKind, JobEnv


class Delivery(StrEnum):
    """What a sink guarantees about the rows of a batch that is repeated."""

    EXACTLY_ONCE = "exactly-once"  # recognised and skipped
    AT_LEAST_ONCE = "at-least-once"  # may be written twice


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """One operator of the graph.

    `operator` is its id and the key of its state: the block's `name`, else its label
    (`Source[0]-FakeSource`).
    """

    operator: str
    label: str
    kind: BlockKind
    plugin: str
    options: Mapping[str, Any]
    inputs: tuple[str, ...] = ()
    parallelism: int = 1
    delivery: Delivery | None = None
    state: str = ""
    fusable: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelinePlan:
    """A connected component of the graph; every action comes after its inputs."""

    id: int
    actions: tuple[Action, ...]

    def of_kind(self, kind: BlockKind) -> tuple[Action, ...]:
        """Return the actions of one kind, in order."""
        return tuple(a for a in self.actions if a.kind is kind)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The plan of a whole job. `options` of the actions are validated values by option key."""

    version: int = 1
    job_name: str
    env: JobEnv
    pipelines: tuple[PipelinePlan, ...]
    jars: tuple[str, ...] = field(default_factory=tuple)
