"""Changes of a source that stop a job, and what a person has decided about each. Pure data.

A source raises `StoppedByChange` before the first row that differs; the failure record keeps its
`ChangeStop`, so that API, page and CLI need not parse sentences. What a person answers travels as
`AcceptedChange` with the job's record to the source.
"""

import shlex
from dataclasses import dataclass
from enum import StrEnum

from tidegate.model.errors import UserError

POSITION_CHARS_MAX = 200
TABLE_CHARS_MAX = 500


class ChangeChoice(StrEnum):
    """How to go on at a change of a table."""

    ADOPT = "adopt"  # take the new definition; rows that are in the target stay as they are
    REREAD = "reread"  # take the new definition, and read the whole table again
    SKIP = "skip"  # leave the statement out, as if it were not there

    @property
    def meaning(self) -> str:
        """What it does, for people who are about to choose."""
        return _MEANINGS[self]


_MEANINGS = {
    ChangeChoice.ADOPT: "take the table as it is now; rows that are in the target stay as they are",
    ChangeChoice.REREAD: (
        "take the table as it is now and read all of it again; rows that it no longer has stay in"
        " the target: delete them there"
    ),
    ChangeChoice.SKIP: "go on as if this change were not there; the target is not changed by it",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeStop:
    """What a job has stopped at: the same at every restart from the checkpoint before it."""

    table: str
    at: str
    statement: str = ""
    choices: tuple[ChangeChoice, ...] = ()

    def command(self, job: str) -> str:
        """The command that decides about it, but for the choice."""
        return (
            f"tidegate accept-change {job} --at {shlex.quote(self.at)} --table"
            f" {shlex.quote(self.table)} --choice"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceptedChange:
    """What a person has decided about the change at one position."""

    at: str
    choice: ChangeChoice
    table: str = ""  # empty: of every table that this change stops

    def answers(self, table: str, at: str) -> bool:
        """Whether it is about this stop."""
        return self.at == at and self.table in ("", table)

    def __str__(self) -> str:
        return f"{self.table + '@' if self.table else ''}{self.at}={self.choice.value}"

    @staticmethod
    def parse(text: str) -> "AcceptedChange":
        """`POSITION=CHOICE`, or `TABLE@POSITION=CHOICE` where it is about one table only."""
        where, _, word = text.strip().rpartition("=")
        table, _, at = where.rpartition("@")
        given = word.strip().lower()
        if not at.strip() or given not in list(ChangeChoice):
            choices = ", ".join(choice.value for choice in ChangeChoice)
            raise UserError(
                f"--accept-change {text!r} is not understood: write [TABLE@]POSITION=CHOICE, with"
                f" the position that the job's error names and one of the choices {choices}"
            )
        if len(at) > POSITION_CHARS_MAX or len(table) > TABLE_CHARS_MAX:
            raise UserError(
                f"--accept-change {text[:80]!r}...: a position has at most {POSITION_CHARS_MAX}"
                " characters"
            )
        return AcceptedChange(at=at.strip(), choice=ChangeChoice(given), table=table.strip())


class StoppedByChange(UserError):
    """A change of a source that nobody has decided about yet."""

    condition = "table-changed"
    change: ChangeStop


def merged(
    earlier: tuple[AcceptedChange, ...], newer: tuple[AcceptedChange, ...]
) -> tuple[AcceptedChange, ...]:
    """All decisions of a job; of two about the same position and table the newer one holds."""
    found = {(change.at, change.table): change for change in earlier}
    for change in newer:
        found.pop((change.at, change.table), None)
        found[change.at, change.table] = change
    return tuple(found.values())


def decided(changes: tuple[AcceptedChange, ...], table: str, at: str) -> ChangeChoice | None:
    """The choice for a stop: one that names the table before one that names none."""
    answers = [change for change in changes if change.answers(table, at)]
    answers.sort(key=lambda change: not change.table)
    return answers[0].choice if answers else None
