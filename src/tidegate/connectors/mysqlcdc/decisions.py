"""Decide what to do about a statement that changes a table.

Called by source.py. The change is applied, an operator has decided, or the job stops.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tidegate.databases.cdc.errors import TableChanged
from tidegate.databases.mysql.binlog_alter import same_definition
from tidegate.databases.mysql.binlog_ddl import Effect, TableStatement
from tidegate.databases.mysql.binlog_definition import Recorded, key_of
from tidegate.model.table_changes import ChangeChoice

_ADOPT, _REREAD, _SKIP = ChangeChoice.ADOPT, ChangeChoice.REREAD, ChangeChoice.SKIP
_CHOICES: dict[Effect, tuple[ChangeChoice, ...]] = {
    Effect.TRUNCATE: (_REREAD, _SKIP),
    Effect.DROP: (_REREAD, _SKIP),
    Effect.ROWS: (_REREAD, _SKIP),
    Effect.UNKNOWN: (_ADOPT, _REREAD, _SKIP),
}
"""The choices for a table that exists; for other effects its new definition must be taken."""
_WHY = {
    Effect.ROWS: (
        "the log has it instead of rows: binlog_format of its session was STATEMENT or "
        "MIXED; all sessions must use ROW"
    ),
    Effect.UNKNOWN: "it cannot be parsed, and may change this table",
}


@dataclass(slots=True)
class Decisions:
    """The decisions of a range: new columns by path, and tables that are read again."""

    columns: dict[str, list[Any]] = field(default_factory=dict)
    reread: set[str] = field(default_factory=set)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangedTable:
    """A table at a change: as it is recorded, and as in the catalogue (None if it is gone).

    `is_current` returns whether the definition of the catalogue is the one right after the change:
    nothing in the log alters the table again.
    """

    path: str
    recorded: Recorded
    now: Recorded | None
    change: TableStatement
    at: str
    accepted: ChangeChoice | None
    is_current: Callable[[Recorded], bool]

    def is_unchanged(self) -> bool:
        """Return whether the statement certainly leaves the table as it is recorded."""
        if self.now is None:
            return False
        match self.change.effect:
            case Effect.HARMLESS:
                return self.change.alteration is None or self.change.alteration.engine is None
            case Effect.INDEX:
                return key_of(self.now) == key_of(self.recorded)
            case Effect.MODIFY:
                return self.now == self.recorded and self._same_definitions()
            case _:
                return False

    def _same_definitions(self) -> bool:
        recorded = {c.log.name.lower(): c for c in self.recorded}
        modified = self.change.alteration.modified if self.change.alteration is not None else ()
        found = [(recorded.get(m.name.lower()), m.definition) for m in modified]
        return all(
            c is not None and same_definition(c.log.type, c.nullable, definition)
            for c, definition in found
        )

    def choices(self) -> tuple[ChangeChoice, ...]:
        """Return what an operator can choose from; every choice gives correct data."""
        if self.now is None:
            return (_SKIP,) if self.change.effect is not Effect.DIFFERS else ()
        offered = _CHOICES.get(self.change.effect, (_ADOPT, _REREAD))
        return (
            offered
            if _ADOPT not in offered or self.is_current(self.now)
            else tuple(c for c in offered if c is not _ADOPT)
        )

    def apply_choice(self, decisions: Decisions, why: str = "") -> None:
        """Apply what an operator has decided; raise TableChanged if nobody has."""
        choices, why = self.choices(), why or _WHY.get(self.change.effect, "")
        if self.accepted is None or self.accepted not in choices:
            raise TableChanged(
                self.path, self.change.text + (f" ({why})" if why else ""), self.at, choices=choices
            )
        if self.accepted is _SKIP:
            return
        assert self.now is not None, "a table that is gone can only be skipped"
        decisions.columns[self.path] = [c.json() for c in self.now]
        if self.accepted is _REREAD:
            decisions.reread.add(self.path)
