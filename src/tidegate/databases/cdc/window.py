"""The range of the log that a source reads next. Called by source.py and its subclasses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class LogWindow:
    """The range of the log after a position.

    `idle_bytes` is the size of the range if it touches no table that is read. `columns` are those
    of altered tables whose change is applied, `reread` the tables to read again from their
    beginning, `definitions` what the database records of tables besides their columns.
    """

    log: dict[str, Any]
    touched: frozenset[str]
    caught_up: bool
    idle_bytes: int = 0
    columns: Mapping[str, list[Any]] | None = None
    reread: frozenset[str] = frozenset()
    definitions: Mapping[str, Any] | None = None
