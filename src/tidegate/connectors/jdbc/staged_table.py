"""A staging table as the committer receives it from a task, and the error if its rows are lost.

Called by committer.py.
"""

from dataclasses import dataclass

from tidegate.connectors.jdbc.target import JdbcTarget
from tidegate.databases.catalog import TableName
from tidegate.databases.errors import TransientDatabaseError


class StagedRowsLost(TransientDatabaseError):
    """The server lost rows of a staging table, or the table; `found` is None without the table."""

    def __init__(self, where: str, stage: str, expected: int, found: int | None) -> None:
        state = "no longer exists" if found is None else f"has {found} rows instead of {expected}"
        super().__init__(
            where,
            f"the staging table {stage} {state}: the server has lost rows; the batch is repeated",
        )
        self.stage = stage
        self.expected = expected
        self.found = found


@dataclass(frozen=True, slots=True)
class StagedTable:
    """One staging table of a batch; `staging_table` is None if a task had no rows."""

    target: JdbcTarget
    staging_table: TableName | None
    rows: int
    subtask: int
    shaped: bool
    """Whether it has the target's columns, so that it can become the target."""
