"""The Spark sink in the driver.

Spark's writers make the rows visible during the write (spark.py), so there is nothing to commit.
"""

from tidegate.model.errors import Unsupported
from tidegate.plugin.contract import (
    BatchCommitted,
    Commit,
    Committer,
    Sink,
    SinkRestore,
    Writer,
    WriteTask,
)


class SparkSink(Sink):
    def writer(self, task: WriteTask) -> Writer:  # noqa: ARG002  # never called: see spark.py
        raise Unsupported("the Spark sink is written by Spark")

    def committer(self) -> Committer:
        return NoOpCommitter()


class NoOpCommitter(Committer):
    def open(self, resume: SinkRestore) -> None:
        """Do nothing: Spark's data sources keep no record of batches."""

    def commit(
        self,
        commit: Commit,  # noqa: ARG002  # the rows are visible already
    ) -> BatchCommitted:
        return BatchCommitted()
