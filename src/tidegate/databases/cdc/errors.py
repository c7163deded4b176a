"""What can be wrong with change data capture, each as one fact with its way out."""

from collections.abc import Sequence

from tidegate.model.change import ChangeChoice, ChangeStop, StoppedByChange
from tidegate.model.errors import Domain, TerminalError, TransientError, UserError

__all__ = [
    "ChangeChoice",
    "ColumnsAdded",
    "NoKey",
    "NoTables",
    "NotSetUp",
    "OrderChanged",
    "PositionGone",
    "TableChanged",
]

STATEMENT_CHARS_MAX = 300


class PositionGone(TerminalError):
    """The source does not hold the log any more that a restore point needs."""

    condition = "position-gone"
    domain = Domain.EXTERNAL

    def __init__(self, wanted: str, oldest: str, why: str) -> None:
        super().__init__(
            f"the source no longer has its log from {wanted} on, where this job goes on: {why}; the"
            f" oldest position that it has is {oldest}. Nothing was read and nothing is skipped."
            " Choose: restore from a checkpoint or savepoint at or after the oldest position; or"
            " start with --restore fresh, which reads the tables anew (startup.mode = initial) or"
            " from where the log begins (startup.mode = earliest). Keep the log longer next time"
        )
        self.wanted = wanted
        self.oldest = oldest
        self.why = why


class NotSetUp(UserError):
    """The source does not write the log that is needed."""

    condition = "source-not-set-up"


class NoKey(UserError):
    """A table without a key."""

    condition = "table-without-key"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"the table {path} has no primary key and no unique one without nulls, so that its rows"
            " cannot be told apart: give it one, name the columns that "
            f'tell its rows apart in table-names-config = [{{ table = "{path}", primaryKeys = [...]'
            " }], or leave the table out"
        )
        self.path = path


class NoTables(UserError):
    condition = "no-tables"


class TableChanged(StoppedByChange):
    """A table was changed in a way that only a person can decide about: raised before the first row
    that differs.

    `at` is the same at every restart from the checkpoint before it: an accepted change is found by
    it.
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
        """What a person can choose from."""
        return self.change.choices

    def sentence(self, job: str) -> str:
        """What happened, and the command for each choice."""
        happened = (
            f"{self.path} was changed at {self.at} of the log, in a way that is not carried on:"
            f" {self.change.statement}. Everything before it is delivered, and the last checkpoint"
            " stands right before it. "
        )
        if not self.choices:
            return (
                happened
                + "Bring the target in line with the source by hand, and start with --restore fresh"
            )
        command = self.change.command(job)
        return (
            happened
            + "Choose how to go on:"
            + "".join(
                f"\n  {command} {choice.value}\n    {choice.meaning}" for choice in self.choices
            )
        )

    def of_job(self, job_id: int) -> "TableChanged":
        """The same, with the commands for this job."""
        self.args = (self.sentence(str(job_id)),)
        return self


class OrderChanged(UserError):
    """A table that is being read for the first time has got another order of its keys."""

    condition = "table-order-changed"

    def __init__(self, path: str, column: str, before: str, now: str) -> None:
        super().__init__(
            f"the keys of {path} are ordered by the collation {now} of its column {column} now, and"
            f" were by {before} when its first read began: what was read and what is left can no"
            " longer be told apart. Nothing is lost. Give the column its former collation until"
            " the table is read, or start with --restore fresh"
        )
        self.path = path
        self.column = column


class ColumnsAdded(TransientError):
    """A table has got columns: the pipeline is built anew with them."""

    condition = "columns-added"
    domain = Domain.EXTERNAL

    def __init__(self, path: str, columns: str) -> None:
        super().__init__(
            f"{path} has got {columns}: the pipeline starts again with the new columns, from its"
            " last checkpoint"
        )
