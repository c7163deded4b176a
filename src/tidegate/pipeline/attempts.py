"""Runs a pipeline with retries, each attempt from the last checkpoint. Called by driver.

The retry budget is durable and counts attempts without a checkpoint between them, so a pipeline
that makes progress is never out of retries.
"""

import logging

from tidegate.model.errors import Fenced, OtherCopy, TerminalError
from tidegate.model.plan import PipelinePlan
from tidegate.model.records import PipelineStatus
from tidegate.pipeline.context import PipelineContext
from tidegate.pipeline.engine import EngineGone
from tidegate.pipeline.failures import failure_of
from tidegate.pipeline.graph import Graph, build
from tidegate.pipeline.ledger import Ledger
from tidegate.pipeline.loop import BatchLoop
from tidegate.pipeline.progress import PipelineProgress
from tidegate.plugin.contract import Sink, Source

LOG = logging.getLogger("tidegate.pipeline")


def run_pipeline(
    context: PipelineContext, plan: PipelinePlan, ledger: Ledger, progress: PipelineProgress
) -> PipelineStatus:
    """Run the pipeline until it has ended, and return how.

    Raises only Fenced and EngineGone, after which this driver must exit.
    """
    env = context.job.plan.env
    while True:
        try:
            return BatchLoop(
                context, attach_resources(context, build(context.job, plan)), ledger, progress
            ).run()
        except OtherCopy as error:
            # If this is a copy of the store, no other driver runs the job in it, and the failure is
            # recorded. If two drivers share the store, this raises again.
            ledger.end(
                PipelineStatus.FAILED,
                failure_of(error, context.clock.now_ms(), ledger.generation, plan.id),
            )
            return PipelineStatus.FAILED
        except Fenced:
            raise
        except Exception as error:
            LOG.exception(
                "attempt_failed",
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
            progress.set_phase("retrying")
            context.clock.wait(context.stop, env.retry_interval_s)


def attach_resources(context: PipelineContext, graph: Graph) -> Graph:
    """Give the operators the registries in which they record external resources."""
    for node in graph.nodes.values():
        if context.resource_registry is not None and isinstance(node.operator, Source | Sink):
            node.operator.attach_resources(context.resource_registry(node.action))
    return graph
