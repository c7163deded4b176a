"""Table changes at a source that stop a job, and the decision of a user about each.

Pure data. A source raises `StoppedByChange` before the first row that differs. The failure record
keeps its `ChangeStop`, so that API, pages and CLI need not parse messages. The user's decision is
an `AcceptedChange`, which reaches the source with the job's record.
"""

import shlex
from dataclasses import dataclass
from enum import StrEnum

from tidegate.model.errors import UserError
from tidegate.model.option_error import OptionError, OptionMention

POSITION_CHARS_MAX = 200
TABLE_CHARS_MAX = 500


class ChangeChoice(StrEnum):
    """How the job continues at a change of a table."""

    ADOPT = "adopt"  # use the new definition; rows in the target stay as they are
    REREAD = "reread"  # use the new definition, and read the whole table again
    SKIP = "skip"  # ignore the statement

    @property
    def meaning(self) -> str:
        """The effect of the choice, for users who are about to decide."""
        return _MEANINGS[self]


_MEANINGS = {
    ChangeChoice.ADOPT: "use the new definition of the table; rows in the target stay as they are",
    ChangeChoice.REREAD: (
        "use the new definition and read the whole table again; rows that the table no longer has"
        " stay in the target: delete them there"
    ),
    ChangeChoice.SKIP: "ignore this change; it does not affect the target",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeStop:
    """A change at which a job stopped.

    Every restart from the checkpoint before it stops there again.
    """

    table: str
    at: str
    statement: str = ""
    choices: tuple[ChangeChoice, ...] = ()

    def command(self, job: str) -> str:
        """Return the command that decides about the change, without the choice."""
        return (
            f"tidegate accept-change {job} --at {shlex.quote(self.at)} --table"
            f" {shlex.quote(self.table)} --choice"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceptedChange:
    """The decision of a user about the change at one position."""

    at: str
    choice: ChangeChoice
    table: str = ""  # empty: every table that this change stops

    def applies_to(self, table: str, at: str) -> bool:
        """Whether the decision is about the stop at this table and position."""
        return self.at == at and self.table in ("", table)

    def __str__(self) -> str:
        return f"{self.table + '@' if self.table else ''}{self.at}={self.choice.value}"

    @staticmethod
    def parse(text: str) -> "AcceptedChange":
        """Parse `POSITION=CHOICE`, or `TABLE@POSITION=CHOICE` for a single table."""
        where, _, word = text.strip().rpartition("=")
        table, _, at = where.rpartition("@")
        given = word.strip().lower()
        if not at.strip() or given not in list(ChangeChoice):
            choices = ", ".join(choice.value for choice in ChangeChoice)
            raise OptionError(
                OptionMention("--accept-change", repr(text)),
                " is invalid: write [TABLE@]POSITION=CHOICE, with the"
                f" position from the job's error and one of the choices {choices}",
            )
        if len(at) > POSITION_CHARS_MAX or len(table) > TABLE_CHARS_MAX:
            raise OptionError(
                OptionMention("--accept-change", f"{text[:80]!r}..."),
                f": a position has at most {POSITION_CHARS_MAX} characters",
            )
        return AcceptedChange(at=at.strip(), choice=ChangeChoice(given), table=table.strip())


class StoppedByChange(UserError):
    """A change at a source that no user has decided about yet."""

    condition = "table-changed"
    change: ChangeStop


def merge_accepted(
    earlier: tuple[AcceptedChange, ...], newer: tuple[AcceptedChange, ...]
) -> tuple[AcceptedChange, ...]:
    """Merge decisions; the newer one wins for the same position and table."""
    found = {(change.at, change.table): change for change in earlier}
    for change in newer:
        found.pop((change.at, change.table), None)
        found[change.at, change.table] = change
    return tuple(found.values())


def choice_for(changes: tuple[AcceptedChange, ...], table: str, at: str) -> ChangeChoice | None:
    """Return the choice for a stop; a decision that names the table has priority."""
    answers = [change for change in changes if change.applies_to(table, at)]
    answers.sort(key=lambda change: not change.table)
    return answers[0].choice if answers else None
