"""Errors of change data capture; each message names the cause and what to do."""

from collections.abc import Sequence

from tidegate.model.errors import Domain, TerminalError, TransientError, UserError
from tidegate.model.table_changes import ChangeChoice, ChangeStop, StoppedByChange

__all__ = [
    "ChangeChoice",
    "ColumnsAdded",
    "KeyNotUnique",
    "NoKey",
    "NoTables",
    "NotSetUp",
    "OrderChanged",
    "PositionGone",
    "TableChanged",
]

STATEMENT_CHARS_MAX = 300


class PositionGone(TerminalError):
    """The source no longer has the log that a restore point needs."""

    condition = "position-gone"
    domain = Domain.EXTERNAL

    def __init__(self, requested: str, oldest: str, why: str) -> None:
        super().__init__(
            f"the source no longer has its log from {requested} on, where this job resumes: "
            f"{why}; its oldest position is {oldest}. Nothing was read and nothing is "
            "skipped. Choose: restore from a checkpoint or savepoint at or after the "
            "oldest position; or start with --restore fresh, which reads the tables "
            "again (startup.mode = initial) or begins at the oldest position "
            "(startup.mode = earliest). Keep the log longer in future"
        )
        self.requested = requested
        self.oldest = oldest
        self.why = why


class NotSetUp(UserError):
    """The source does not write the log that CDC needs."""

    condition = "source-not-set-up"


class NoKey(UserError):
    """A table has neither a primary key nor a unique key without nulls."""

    condition = "table-without-key"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"the table {path} has no primary key and no unique key without nulls, so "
            "that its rows cannot be identified: add a key, name the identifying columns "
            f'in table-names-config = [{{ table = "{path}", primaryKeys = [...] }}], or '
            "leave the table out"
        )
        self.path = path


class KeyNotUnique(UserError):
    """The key that the job file names does not identify the rows of its table."""

    condition = "key-not-unique"

    def __init__(self, path: str, key: Sequence[str]) -> None:
        super().__init__(
            f"rows of {path} have the same {', '.join(key)}, which table-names-config names "
            "as primaryKeys: they would become one row of the target. Name columns that "
            "identify each row"
        )
        self.path = path
        self.key = tuple(key)


class NoTables(UserError):
    condition = "no-tables"


class TableChanged(StoppedByChange):
    """A table was changed in a way that needs a decision by an operator.

    Raised before the first row that differs. `at` is the same at every restart from the checkpoint
    before it: an accepted change is found by it.
    """

    def __init__(
        self, path: str, statement: str, at: str, *, choices: Sequence[ChangeChoice] = ()
    ) -> None:
        self.path = path
        self.statement = statement
        self.at = at
        self.change = ChangeStop(
            table=path, at=at, statement=statement[:STATEMENT_CHARS_MAX], choices=tuple(choices)
        )
        super().__init__(self.sentence("JOB"))

    @property
    def choices(self) -> tuple[ChangeChoice, ...]:
        """What an operator can choose from."""
        return self.change.choices

    def sentence(self, job: str) -> str:
        """Return what happened, and the command for each choice."""
        happened = (
            f"{self.path} was changed at {self.at} of the log, in a way that cannot be "
            f"applied automatically: {self.change.statement}. All changes before it are "
            "delivered, and the last checkpoint is right before it. "
        )
        if not self.choices:
            return happened + (
                "Align the target with the source manually, and start with --restore fresh"
            )
        command = self.change.command(job)
        return (
            happened
            + "Choose how to continue:"
            + "".join(
                f"\n  {command} {choice.value}\n    {choice.meaning}" for choice in self.choices
            )
        )

    def for_job(self, job_id: int) -> "TableChanged":
        """Return the same error with the commands for this job."""
        self.args = (self.sentence(str(job_id)),)
        return self


class OrderChanged(UserError):
    """The collation of the key changed while the table was in its snapshot."""

    condition = "table-order-changed"

    def __init__(self, path: str, column: str, before: str, now: str) -> None:
        super().__init__(
            f"the keys of {path} are now ordered by the collation {now} of the column "
            f"{column}, and were ordered by {before} when its snapshot began: rows that "
            "were read and rows that were not can no longer be separated. No data is "
            "lost. Restore the collation until the snapshot of the table is complete, or "
            "start with --restore fresh"
        )
        self.path = path
        self.column = column


class ColumnsAdded(TransientError):
    """A table has new columns: the pipeline restarts to include them."""

    condition = "columns-added"
    domain = Domain.EXTERNAL

    def __init__(self, path: str, columns: str) -> None:
        super().__init__(
            f"{path} has {columns}: the pipeline restarts with the new columns, from its "
            "last checkpoint"
        )
