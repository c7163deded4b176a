"""A pipeline with its retries: one loop after the other, each from the last checkpoint, within a
budget that is durable. Called by driver.

The budget counts attempts without a checkpoint between them: who gets on may stumble often.
"""

import logging

from tidegate.model.errors import Fenced, OtherCopy, TerminalError
from tidegate.model.plan import PipelinePlan
from tidegate.model.records import PipelineStatus
from tidegate.pipeline.engine import EngineGone
from tidegate.pipeline.failures import failure_of
from tidegate.pipeline.graph import Graph, build
from tidegate.pipeline.ledger import Ledger
from tidegate.pipeline.loop import BatchLoop, PipelineContext
from tidegate.pipeline.progress import PipelineProgress
from tidegate.plugin.contract import Sink, Source

LOG = logging.getLogger("tidegate.pipeline")


def run_pipeline(
    context: PipelineContext, plan: PipelinePlan, ledger: Ledger, progress: PipelineProgress
) -> PipelineStatus:
    """Until the pipeline has ended, one way or the other.

    Only Fenced and EngineGone come out as exceptions: this driver must end.
    """
    env = context.job.plan.env
    while True:
        try:
            return BatchLoop(
                context, equipped(context, build(context.job, plan)), ledger, progress
            ).run()
        except OtherCopy as error:
            # In the store of this copy: here nobody else runs the job. Where it is the store that
            # two drivers share, this raises again.
            ledger.end(
                PipelineStatus.FAILED,
                failure_of(error, context.clock.now_ms(), ledger.generation, plan.id),
            )
            return PipelineStatus.FAILED
        except Fenced:
            raise
        except Exception as error:
            LOG.exception(
                "attempt failed",
                extra={
                    "job_id": ledger.job_id,
                    "pipeline": ledger.pipeline,
                    "generation": ledger.generation,
                },
            )
            failure = failure_of(error, context.clock.now_ms(), ledger.generation, plan.id)
            restarts = (
                ledger.load().restarts
            )  # read anew: the error may have come right after a write
            if context.stop.is_set():
                ledger.end(PipelineStatus.CANCELED, failure)
                return PipelineStatus.CANCELED
            if isinstance(error, EngineGone):
                raise
            if isinstance(error, TerminalError) or restarts >= env.retry_times:
                ledger.end(PipelineStatus.FAILED, failure)
                return PipelineStatus.FAILED
            ledger.retry(failure)
            progress.phase("retrying")
            context.clock.wait(context.stop, env.retry_interval_s)


def equipped(context: PipelineContext, graph: Graph) -> Graph:
    """The operators with the books in which they record what they create outside."""
    for node in graph.nodes.values():
        if context.books is not None and isinstance(node.operator, Source | Sink):
            node.operator.attach_resources(context.books(node.action))
    return graph
