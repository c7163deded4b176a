"""The Jdbc sink: created in the driver from validated options, pickled into the tasks.

Creates its writer and its committer; does no I/O itself.
"""

from pathlib import Path

from tidegate.connectors.jdbc.committer import JdbcCommitter
from tidegate.connectors.jdbc.connection import address_of, without_create
from tidegate.connectors.jdbc.writer import JdbcWriter
from tidegate.databases.session import open_session
from tidegate.databases.url import System
from tidegate.model.errors import UserError
from tidegate.plugin.contract import Committer, OperatorContext, Sink, Writer, WriteTask
from tidegate.plugin.option import Values
from tidegate.plugin.placeholders import has_placeholder


class JdbcSink(Sink):
    """Writes tables of a database, exactly once."""

    def __init__(self, values: Values, context: OperatorContext) -> None:
        super().__init__(values, context)
        database = values["database"] or ""
        self.address = address_of(
            values, "" if has_placeholder(database) else database, creates=True
        )
        if self.address.system is not System.SQLITE and not self.address.database:
            raise UserError(
                "the sink's URL names no database, but its record and staging tables need one: add"
                " it to the URL"
            )

    def check_connection(self) -> bool:
        """Log in; a missing SQLite file is not created."""
        if self.address.system is System.SQLITE and not Path(self.address.database).exists():
            return False
        open_session(self.address).close()
        return True

    def writer(self, task: WriteTask) -> Writer:
        return JdbcWriter(without_create(self.address), self.values, self.context, task)

    def committer(self) -> Committer:
        return JdbcCommitter(self.address, self.values, self.context)
