"""Finds connectors: the built-in ones below, and those of installed packages.

A package names a module with CONNECTORS in the entry point group `tidegate.connectors`. Third-party
code may be broken: a package that cannot be loaded, or whose connector names are already taken, is
listed in `broken_packages` with the reason, and everything else works.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from tidegate.model.errors import UserError
from tidegate.model.job import BlockKind
from tidegate.model.problem import closest_match
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


LOG = logging.getLogger("tidegate.plugin")
GROUP = "tidegate.connectors"


class UnknownConnector(UserError):
    """No connector of this kind and name."""

    condition = "unknown-plugin"

    def __init__(self, kind: BlockKind, name: str, suggestion: str) -> None:
        hint = f"; did you mean {suggestion!r}?" if suggestion else ""
        broken = "".join(f". {each}" for each in broken_packages())
        super().__init__(f"there is no {kind.value} {name!r}{hint}{broken}")
        self.kind = kind
        self.name = name
        self.suggestion = suggestion


@dataclass(frozen=True, slots=True)
class BrokenPackage:
    """A package whose connectors, or one of them, cannot be used."""

    package: str
    reason: str

    def __str__(self) -> str:
        return f"The connectors of the package {self.package} cannot be used: {self.reason}"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The connectors that were found, and the packages that cannot be used."""

    connectors: tuple[Connector, ...]
    broken: tuple[BrokenPackage, ...]


def connectors() -> tuple[Connector, ...]:
    """All connectors, by kind and name."""
    return loaded().connectors


def broken_packages() -> tuple[BrokenPackage, ...]:
    """Installed packages that cannot be used, each with its reason."""
    return loaded().broken


@cache
def loaded() -> Loaded:
    found = [c for name in BUILT_IN for c in import_module(name).CONNECTORS]
    broken: list[BrokenPackage] = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        package = _package(point)
        try:
            declared = _declared(point)
        except (Exception, SystemExit) as error:  # third-party code may raise anything
            broken.append(BrokenPackage(package, _reason(error)))
            continue
        for connector in declared:
            taken = next(_clashes(connector, found), "")
            if taken:
                broken.append(BrokenPackage(package, taken))
            else:
                found.append(connector)
    for each in broken:
        LOG.warning("connector_package_broken", extra={"package": each.package, "why": each.reason})
    order = list(BlockKind)
    ordered = sorted(found, key=lambda c: (order.index(c.kind), c.name.lower()))
    return Loaded(tuple(ordered), tuple(broken))


def _declared(point: EntryPoint) -> list[Connector]:
    declared: object = getattr(point.load(), "CONNECTORS", None)
    if not isinstance(declared, Iterable):
        raise UserError(f"{point.value} has no CONNECTORS: a tuple of Connector")
    made = list(declared)
    wrong = next((each for each in made if not isinstance(each, Connector)), None)
    if wrong is not None:
        raise UserError(
            f"CONNECTORS of {point.value} holds a {type(wrong).__name__}, not a Connector"
        )
    return made


def _clashes(connector: Connector, found: Iterable[Connector]) -> Iterator[str]:
    names = {name.lower() for name in (connector.name, *connector.aliases)}
    for other in found:
        taken = names & {name.lower() for name in (other.name, *other.aliases)}
        if other.kind is connector.kind and taken:
            owner = other.implementation.partition(":")[0]
            yield (
                f"the name of its {connector.kind.value} {connector.name} is already taken by"
                f" {other.name} of {owner}; give it another name"
            )


def _package(point: EntryPoint) -> str:
    distribution = point.dist.name if point.dist is not None else ""
    return f"{distribution or point.name} ({point.value})"


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"


def find(kind: BlockKind, name: str) -> Connector:
    """Return the connector of this kind by its name or an alias, ignoring case."""
    wanted = name.lower()
    for each in connectors():
        if each.kind is kind and (
            each.name.lower() == wanted
            or (each.aliases and any(alias.lower() == wanted for alias in each.aliases))
        ):
            return each
    raise UnknownConnector(
        kind, name, closest_match(name, [c.name for c in connectors() if c.kind is kind])
    )
