"""An engine without Spark: the same fused tasks, one after the other, in the driver's own process.
For tests of the protocol that need no JVM.
"""

from tidegate.pipeline.engine import Batch, TaskCount, Written
from tidegate.pipeline.fused import collect, fused_tasks
from tidegate.pipeline.graph import Graph

WIDTH = 2


class PlainEngine:
    """Runs the tasks of a batch in order."""

    def run(self, graph: Graph, batch: Batch) -> Written:
        """All tasks of a batch."""
        assert graph.fusable, "the plain engine has no SQL"
        tasks = fused_tasks(graph, batch, WIDTH)
        return collect(
            graph, [text for index in range(len(tasks.splits)) for text in tasks.run(index)]
        )

    def tasks(self, pipeline: int) -> TaskCount:  # noqa: ARG002  # the engine's signature
        return TaskCount(0, 0)

    def cancel(self, pipeline: int) -> None:
        pass

    def close(self) -> None:
        pass
