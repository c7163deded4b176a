"""Results of a check of the catalogue. Used by check.py."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tidegate.connectors.postgrescdc.definition import (
    CatalogTable,
    Definition,
)
from tidegate.connectors.postgrescdc.definition_changes import (
    DefinitionChange,
)
from tidegate.databases.cdc.errors import ChangeChoice


@dataclass(frozen=True, kw_only=True, slots=True)
class CatalogCheck:
    """Up to where the log can be read, and what is recorded with that position.

    `rows` says whether the range has rows of our tables, None if that was not checked.
    """

    end: int
    columns: dict[str, list[Any]] = field(default_factory=dict)
    definitions: dict[str, Definition] = field(default_factory=dict)
    reread: frozenset[str] = frozenset()
    rows: bool | None = None
    stopped: bool = False
    """Whether a change ended the range early."""
    verified: bool = False
    """Whether all tables match what is recorded at the end."""


@dataclass(frozen=True, slots=True)
class CatalogView:
    """What was read from the catalogue for one range.

    `changes` has the differences by table, `unread` the check of tables of which nothing is read
    yet.
    """

    value: str
    locked: bool
    tables: dict[str, CatalogTable]
    changes: dict[str, list[DefinitionChange]]
    written: int
    bound: Callable[[int], int]
    unread: CatalogCheck


@dataclass(frozen=True, slots=True)
class PendingChange:
    """A change that an operator must decide."""

    path: str
    what: str
    at: int
    choices: tuple[ChangeChoice, ...]
