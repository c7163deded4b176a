"""The LocalFile sink: made in the driver from validated options, pickled into the tasks.

Connects its writer and its committer; does no I/O itself.
"""

import os
import socket

from tidegate.connectors.localfile.committer import FileCommitter
from tidegate.connectors.localfile.save_mode import SaveMode
from tidegate.connectors.localfile.sink_layout import SinkDirectory
from tidegate.connectors.localfile.write_names import depends_on_table, fixed_directory
from tidegate.connectors.localfile.writer import FileWriter
from tidegate.model.errors import UserError
from tidegate.plugin.contract import Committer, OperatorContext, Sink, Writer, WriteTask
from tidegate.plugin.option import Values


class LocalFileSink(Sink):
    """Files on a local or shared disk, exactly once."""

    def __init__(self, values: Values, context: OperatorContext) -> None:
        path = os.path.abspath(
            values["path"].removeprefix("file://")
        )  # tasks may have another working directory
        super().__init__({**values, "path": path}, context)
        root = fixed_directory(path)
        if root == "/":
            raise UserError(
                f"the path {values['path']} begins with a placeholder: it must begin with a"
                " directory that is the same for all tables"
            )
        self._directory = SinkDirectory(root, context.pipeline, context.operator)
        self._host = socket.gethostname()  # the driver's

    def writer(self, task: WriteTask) -> Writer:
        return FileWriter(self._directory, self.values, self.context.job_id, task, self._host)

    def committer(self) -> Committer:
        return FileCommitter(
            self._directory,
            job_id=self.context.job_id,
            transactional=bool(self.values["is_enable_transaction"]),
            save_mode=SaveMode(
                schema=self.values.get("schema_save_mode") or "CREATE_SCHEMA_WHEN_NOT_EXIST",
                data=self.values.get("data_save_mode") or "APPEND_DATA",
            ),
            directory=None if depends_on_table(self.values["path"]) else self._directory.root,
        )
