"""The Spark sink in the driver: Spark's own writers make the rows visible in the `write` step
(spark.py), so there is nothing left to commit.
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
    def writer(self, task: WriteTask) -> Writer:  # noqa: ARG002  # never asked: see spark.py
        raise Unsupported("the Spark sink is written by Spark")

    def committer(self) -> Committer:
        return _Written()


class _Written(Committer):
    def open(self, resume: SinkRestore) -> None:
        """Nothing: Spark's data sources keep no record of ours."""

    def commit(self, commit: Commit) -> BatchCommitted:  # noqa: ARG002  # the rows are visible already
        """Nothing: the rows are there."""
        return BatchCommitted()
