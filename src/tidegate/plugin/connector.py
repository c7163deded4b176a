"""Declares a connector as data: name, options, capabilities, and where its code is.

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
    """What a sink can do when a job restores an older restore point."""

    REWIND = "rewind"  # drop what is newer
    REPLAY = "replay"  # keyed upserts converge
    DUPLICATE = "duplicate"  # plain appends: rows may come twice


@dataclass(frozen=True, kw_only=True, slots=True)
class Capabilities:
    """What a connector can do; read by the planner.

    `state` describes what a checkpoint contains of it.
    """

    batch: bool = True
    streaming: bool = True
    delivery: Delivery | None = None  # sinks
    go_back: GoBack | None = None  # sinks
    # A sink that understands row kinds; a source that may emit more than inserts.
    row_kinds: bool = False
    # A sink without row_kinds: rows of these kinds fail the job; all others are inserted.
    refuses: tuple[RowKind, ...] = ()
    multi_table: bool = False
    fusable: bool = False  # works over Arrow in the task, without a DataFrame
    state: str = "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class Connector:
    """Declares a source, transform or sink.

    `implementation` is `module:Class`, imported only by drivers.
    """

    name: str
    kind: BlockKind
    summary: str
    options: OptionSet
    capabilities: Capabilities
    implementation: str
    # `module:function` that works on a DataFrame, see spark/build.py; empty: only over Arrow.
    spark: str = ""
    # Further checks of the read values. May read the disk, but must not use the network.
    check: Callable[[Block, Values], Iterable[Problem]] | None = None
    # Capabilities that depend on options.
    refine: Callable[[Values, Capabilities], Capabilities] | None = None
    # A transform: the row kinds of its output that no column shows; None: any.
    kinds: Callable[[Values], frozenset[RowKind]] | None = None
    aliases: tuple[str, ...] = ()
    # External resources that a job will use, from the options alone: no I/O.
    resources: "Callable[[Values, OperatorContext], Iterable[Resource]] | None" = None
    # Another implementation for some options, declared with the same name and options.
    choose: "Callable[[Values], Connector | None] | None" = None
    # `module:function(resource, values)`: drops a lasting resource, without Spark. It must accept a
    # resource that does not exist; it is called again after an error.
    drop: str = ""

    def of(self, values: Values) -> "Connector":
        """The connector that serves these options: itself, unless `choose` returns another."""
        return (self.choose(values) if self.choose else None) or self

    def capabilities_of(self, values: Values) -> Capabilities:
        """The capabilities with these options."""
        chosen = self.of(values)
        return chosen.refine(values, chosen.capabilities) if chosen.refine else chosen.capabilities

    def load(self) -> Any:
        return self._named(self.implementation)

    def dropper(self) -> "Callable[[Resource, Values], None] | None":
        """The function that drops a resource; None if there is nothing to drop."""
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

    def __init__(self, connector: Connector, reference: str, error: Exception) -> None:
        super().__init__(
            f"the code of the {connector.kind.value} {connector.name} cannot be loaded:"
            f" {reference}: {type(error).__name__}: {error}. Repair or reinstall its package"
        )
