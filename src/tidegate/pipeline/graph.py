"""The operator instances of a pipeline, built from its plan.

Built in the driver for each attempt of the batch loop. The same for every engine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tidegate.model.job import BlockKind
from tidegate.model.plan import Action, PipelinePlan
from tidegate.model.records import JobRecord
from tidegate.model.types import Table
from tidegate.plugin import registry
from tidegate.plugin.connector import Connector
from tidegate.plugin.contract import OperatorContext, Sink, Source, Transform
from tidegate.plugin.secret import unpacked


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One operator instance with its plan and its connector."""

    action: Action
    connector: Connector
    operator: Source | Transform | Sink


@dataclass(frozen=True, kw_only=True)
class Graph:
    """The nodes by operator id; inputs come before their readers."""

    pipeline: int
    nodes: Mapping[str, Node] = field(default_factory=dict)

    @cached_property
    def sources(self) -> dict[str, Source]:
        """The sources by operator id."""
        return {
            name: node.operator
            for name, node in self.nodes.items()
            if isinstance(node.operator, Source)
        }

    @cached_property
    def transforms(self) -> dict[str, Transform]:
        """The transforms by operator id."""
        return {
            name: node.operator
            for name, node in self.nodes.items()
            if isinstance(node.operator, Transform)
        }

    @cached_property
    def sinks(self) -> dict[str, Sink]:
        """The sinks by operator id."""
        return {
            name: node.operator
            for name, node in self.nodes.items()
            if isinstance(node.operator, Sink)
        }

    @cached_property
    def readers(self) -> dict[str, tuple[str, ...]]:
        """The operators that read the rows of each operator."""
        return {
            name: tuple(n for n, node in self.nodes.items() if name in node.action.inputs)
            for name in self.nodes
        }

    @cached_property
    def tables(self) -> dict[str, tuple[Table, ...]]:
        """The tables of each source, read once because a source may inspect files."""
        return {name: source.tables() for name, source in self.sources.items()}

    @property
    def fusable(self) -> bool:
        """Whether every operator works on Arrow data, so that rows never enter the JVM."""
        return all(node.action.fusable for node in self.nodes.values())


def build(job: JobRecord, plan: PipelinePlan) -> Graph:
    """Build the operators of one pipeline."""
    nodes = {}
    for action in plan.actions:
        values = unpacked(action.options)
        connector = registry.find(action.kind, action.plugin).of(values)
        context = OperatorContext(
            job_id=job.job_id,
            job_name=job.name,
            pipeline=plan.id,
            operator=action.operator,
            mode=job.plan.env.mode,
            parallelism=action.parallelism,
            skip_files=job.skip_files,
            accept_files=job.accept_files,
            accepted_changes=job.accepted_changes,
        )
        nodes[action.operator] = Node(
            action=action, connector=connector, operator=connector.load()(values, context)
        )
    return Graph(pipeline=plan.id, nodes=nodes)


def inputs_of(graph: Graph, kind: BlockKind) -> Sequence[str]:
    """The operator ids of one kind, in order."""
    return [name for name, node in graph.nodes.items() if node.action.kind is kind]
