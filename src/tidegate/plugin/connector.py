"""A connector as data: name, options, capabilities, and where its code is.

Importable without Spark and without Arrow.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidegate.model.errors import TerminalError
from tidegate.model.job import BlockKind
from tidegate.model.plan import Delivery
from tidegate.model.problem import Problem
from tidegate.model.types import RowKind
from tidegate.plugin.option import Block, OptionSet, Values

if TYPE_CHECKING:
    from tidegate.plugin.contract import OperatorContext, Resource


class GoBack(StrEnum):
    """What a sink can do when an older restore point is wanted."""

    REWIND = "rewind"  # drop what is newer
    REPLAY = "replay"  # keyed upserts converge
    DUPLICATE = "duplicate"  # plain appends: rows may come twice


@dataclass(frozen=True, kw_only=True, slots=True)
class Capabilities:
    """What the planner asks. `state` says in words what a checkpoint keeps of it."""

    batch: bool = True
    streaming: bool = True
    delivery: Delivery | None = None  # sinks
    go_back: GoBack | None = None  # sinks
    row_kinds: bool = (
        False  # a sink that understands them; a source that may emit more than inserts
    )
    refuses: tuple[
        RowKind,
        ...,
        # a sink that does not understand them: rows of these kinds fail the job; others are added
    ] = ()
    multi_table: bool = False
    fusable: bool = False  # works over Arrow in the task, without a DataFrame
    state: str = "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class Connector:
    """One source, transform or sink.

    `implementation` is `module:Class`, imported only by drivers.
    """

    name: str
    kind: BlockKind
    summary: str
    options: OptionSet
    capabilities: Capabilities
    implementation: str
    # `module:function`: the way through a DataFrame, see spark/build.py; empty where Arrow is the
    # only way
    spark: str = ""
    check: Callable[[Block, Values], Iterable[Problem]] | None = (
        None  # deeper checks of read values; may look at the disk, never at the network
    )
    refine: Callable[[Values, Capabilities], Capabilities] | None = (
        None  # capabilities that depend on options
    )
    kinds: Callable[[Values], frozenset[RowKind]] | None = (
        # a transform: the kinds that its rows may have and that no column of them tells; None: any
        None
    )
    aliases: tuple[str, ...] = ()
    resources: "Callable[[Values, OperatorContext], Iterable[Resource]] | None" = (
        None  # what a job will have outside, from the options alone: no I/O
    )
    # another way for some options: of the same name and options, with its own implementation
    choose: "Callable[[Values], Connector | None] | None" = None
    # `module:function(resource, values)`: takes a lasting resource away, without Spark; what is not
    # there is fine, what fails is tried again
    drop: str = ""

    def of(self, values: Values) -> "Connector":
        """The connector that serves these options: itself, unless another way is chosen."""
        return (self.choose(values) if self.choose else None) or self

    def capabilities_of(self, values: Values) -> Capabilities:
        """The capabilities with these options."""
        chosen = self.of(values)
        return chosen.refine(values, chosen.capabilities) if chosen.refine else chosen.capabilities

    def load(self) -> Any:
        return self._named(self.implementation)

    def dropper(self) -> "Callable[[Resource, Values], None] | None":
        """What drops a resource; None where there is nothing to do outside."""
        return self._named(self.drop) if self.drop else None

    def _named(self, text: str) -> Any:
        module, _, name = text.partition(":")
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise BrokenConnector(self, text, error) from error


class BrokenConnector(TerminalError):
    """A connector whose code cannot be imported."""

    condition = "broken-connector"

    def __init__(self, connector: Connector, place: str, error: Exception) -> None:
        super().__init__(
            f"the code of the {connector.kind.value} {connector.name} cannot be loaded: {place}: "
            f"{type(error).__name__}: {error}. Repair or reinstall its package"
        )
