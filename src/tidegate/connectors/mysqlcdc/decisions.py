"""What becomes of a table at a statement that changes it: it is carried on, a person has decided,
or the job stops. Called by source.py.
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
"""What can be chosen where the table is there; for all others its new definition must be taken."""
_WHY = {
    Effect.ROWS: (
        "it is in the log instead of rows: binlog_format of its session was STATEMENT or MIXED; let"
        " all sessions write ROW"
    ),
    Effect.UNKNOWN: "it is not understood, and may change this table",
}


@dataclass(slots=True)
class Decisions:
    """What a look carries on: new columns by path, and tables that are read again."""

    columns: dict[str, list[Any]] = field(default_factory=dict)
    reread: set[str] = field(default_factory=set)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangedTable:
    """A table at a change: as it is recorded, and as the catalogue has it now (None where it is
    gone).

    `is_settled` tells whether the catalogue's definition is the one right after the change: nothing
    in the log alters the table again.
    """

    path: str
    recorded: Recorded
    now: Recorded | None
    change: TableStatement
    at: str
    accepted: ChangeChoice | None
    is_settled: Callable[[Recorded], bool]

    def passes(self) -> bool:
        """Whether the statement certainly leaves the table as it is recorded."""
        if self.now is None:
            return False
        match self.change.effect:
            case Effect.HARMLESS:
                return self.change.altered is None or self.change.altered.engine is None
            case Effect.INDEX:
                return key_of(self.now) == key_of(self.recorded)
            case Effect.MODIFY:
                return self.now == self.recorded and self._same_definitions()
            case _:
                return False

    def _same_definitions(self) -> bool:
        known = {c.log.name.lower(): c for c in self.recorded}
        modified = self.change.altered.modified if self.change.altered is not None else ()
        found = [(known.get(m.name.lower()), m.definition) for m in modified]
        return all(
            c is not None and same_definition(c.log.type, c.nullable, definition)
            for c, definition in found
        )

    def choices(self) -> tuple[ChangeChoice, ...]:
        """What a person can choose from, all of it true."""
        if self.now is None:
            return (_SKIP,) if self.change.effect is not Effect.DIFFERS else ()
        offered = _CHOICES.get(self.change.effect, (_ADOPT, _REREAD))
        return (
            offered
            if _ADOPT not in offered or self.is_settled(self.now)
            else tuple(c for c in offered if c is not _ADOPT)
        )

    def decide(self, into: Decisions, why: str = "") -> None:
        """Carry out what a person has decided; TableChanged where nobody has."""
        choices, why = self.choices(), why or _WHY.get(self.change.effect, "")
        if self.accepted is None or self.accepted not in choices:
            raise TableChanged(
                self.path, self.change.text + (f" ({why})" if why else ""), self.at, choices=choices
            )
        if self.accepted is _SKIP:
            return
        assert self.now is not None, "a table that is gone can only be skipped"
        into.columns[self.path] = [c.json() for c in self.now]
        if self.accepted is _REREAD:
            into.reread.add(self.path)
