"""What can be wrong with change data capture, each as one fact with its way out."""

from tidegate.model.errors import Domain, TerminalError, TransientError, UserError


class PositionGone(TerminalError):
    """The source does not hold the log any more that a restore point needs."""

    condition = "position-gone"
    domain = Domain.EXTERNAL

    def __init__(self, wanted: str, oldest: str, why: str) -> None:
        super().__init__(
            f"the source no longer has its log from {wanted} on, where this job goes on: {why}; the oldest position that it has is {oldest}. Nothing was "
            "read and nothing is skipped. Choose: restore from a checkpoint or savepoint at or after the oldest position; or start with --restore fresh, which "
            "reads the tables anew (startup.mode = initial) or from where the log begins (startup.mode = earliest). Keep the log longer next time"
        )
        self.wanted, self.oldest, self.why = wanted, oldest, why


class NotSetUp(UserError):
    """The source does not write the log that is needed."""

    condition = "source-not-set-up"


class NoKey(UserError):
    """A table without a key."""

    condition = "table-without-key"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"the table {path} has no primary key and no unique one without nulls, so that its rows cannot be told apart: give it one, name the columns that "
            f'tell its rows apart in table-names-config = [{{ table = "{path}", primaryKeys = [...] }}], or leave the table out'
        )
        self.path = path


class NoTables(UserError):
    """No table is chosen."""

    condition = "no-tables"


class TableChanged(UserError):
    """A statement in the log changes a table in a way that is not carried on."""

    condition = "table-changed"

    def __init__(self, path: str, statement: str, at: str) -> None:
        super().__init__(
            f"{path} was changed at {at} of the log, in a way that is not carried on: {statement[:300]}. Everything before it is delivered, and the last "
            "checkpoint stands right before it. Change the target in the same way and start with --restore fresh, or restore that checkpoint once the "
            "table has its former columns again"
        )
        self.path, self.statement, self.at = path, statement, at


class OrderChanged(UserError):
    """A table that is being read for the first time has got another order of its keys."""

    condition = "table-order-changed"

    def __init__(self, path: str, column: str, before: str, now: str) -> None:
        super().__init__(
            f"the keys of {path} are ordered by the collation {now} of its column {column} now, and were by {before} when its first read began: what was read "
            "and what is left can no longer be told apart. Nothing is lost. Give the column its former collation until the table is read, or start "
            "with --restore fresh"
        )
        self.path, self.column = path, column


class ColumnsAdded(TransientError):
    """A table has got columns: the pipeline is built anew with them."""

    condition = "columns-added"
    domain = Domain.EXTERNAL

    def __init__(self, path: str, columns: str) -> None:
        super().__init__(f"{path} has got {columns}: the pipeline starts again with the new columns, from its last checkpoint")
