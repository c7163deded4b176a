"""Which connectors there are. Built-ins are the list below; others come by the entry point group `tidegate.connectors` (a module with CONNECTORS)."""

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points

from tidegate.model.errors import UserError
from tidegate.model.job import BlockKind
from tidegate.model.problem import nearest
from tidegate.plugin.connector import Connector

BUILT_IN = (
    "tidegate.connectors.assertion.options",
    "tidegate.connectors.chaos.options",
    "tidegate.connectors.columns.options",
    "tidegate.connectors.console.options",
    "tidegate.connectors.fake.options",
    "tidegate.connectors.jdbc.options",
    "tidegate.connectors.localfile.options",
    "tidegate.connectors.mysqlcdc.options",
    "tidegate.connectors.postgrescdc.options",
    "tidegate.connectors.sparkformat.options",
    "tidegate.connectors.sql.options",
)


class UnknownConnector(UserError):
    """No connector of this kind and name."""

    condition = "unknown-plugin"

    def __init__(self, kind: BlockKind, name: str, suggestion: str) -> None:
        super().__init__(f"there is no {kind.value} {name!r}" + (f"; did you mean {suggestion!r}?" if suggestion else ""))
        self.kind, self.name, self.suggestion = kind, name, suggestion


@cache
def connectors() -> tuple[Connector, ...]:
    """All connectors, by kind and name."""
    modules = [import_module(name) for name in BUILT_IN] + [point.load() for point in entry_points(group="tidegate.connectors")]
    found = [c for module in modules for c in module.CONNECTORS]
    return tuple(sorted(found, key=lambda c: (list(BlockKind).index(c.kind), c.name.lower())))


def find(kind: BlockKind, name: str) -> Connector:
    """A connector by its name in any case."""
    wanted = name.lower()
    for each in connectors():
        if each.kind is kind and (each.name.lower() == wanted or any(alias.lower() == wanted for alias in each.aliases)):
            return each
    raise UnknownConnector(kind, name, nearest(name, [c.name for c in connectors() if c.kind is kind]))
