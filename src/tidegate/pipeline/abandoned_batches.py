"""Decides whether a batch that was begun is abandoned instead of repeated. Called by recovery.

A batch that was begun is repeated exactly, so that the sinks recognise it. Only a user can request
something else, with a restore: `checkpoint:N` to plan anew what follows N, or `latest` if the
source can no longer return the same rows (a file was repaired, or is skipped with --skip-file).
Both require the proof that no sink has the batch, so all sinks are fenced and queried first. A
batch that a sink has is abandoned only if that sink can roll it back.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.model.errors import TerminalError, TidegateError
from tidegate.model.records import PendingBatch, PipelineState
from tidegate.model.restore import Replan
from tidegate.pipeline.graph import Graph
from tidegate.plugin.connector import GoBack
from tidegate.plugin.contract import CommitRange
from tidegate.plugin.secret import unpacked

LOG = logging.getLogger("tidegate.pipeline")


class BatchCommitted(TerminalError):
    """A batch cannot be repeated as it was, and a sink has already committed it."""

    condition = "batch-held"

    def __init__(
        self, checkpoint: int, sinks: Sequence[str], why: str, *, before: int, rewinds: bool
    ) -> None:
        otherwise = "start over with --restore fresh"
        if before and rewinds:
            otherwise = (
                f"abandon the batch with --restore checkpoint:{before}: its rows are rolled back,"
                " and the source is read again from there"
            )
        elif before:
            otherwise = (
                "go back to an older checkpoint with --restore checkpoint:<id> (`tidegate"
                " checkpoints list` shows them)"
            )
        super().__init__(
            f"batch {checkpoint} cannot be repeated ({why}), and {' and '.join(sinks)} already has"
            " its rows: put the source back as it was when the batch began and start again"
            f" with --restore latest, or {otherwise}"
        )
        self.checkpoint = checkpoint


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A batch that is planned anew. With `rewind`, the sinks that have it roll it back."""

    pending: PendingBatch
    why: str
    rewind: bool = False


def find_abandoned(
    state: PipelineState, graph: Graph, found: Mapping[str, Sequence[CommitRange]]
) -> Abandoned | None:
    """Return the pending batch if it is abandoned, and notify the sources; else None.

    `found` has the records of the sinks, read after they were fenced.
    """
    pending = state.pending
    if pending is None or state.replan is Replan.NEVER:
        return None
    why = _reason(pending, graph, state.replan)
    if not why:
        return None
    holders = sorted(
        name
        for name, records in found.items()
        if any(record.checkpoint >= pending.checkpoint for record in records)
    )
    blocking = [name for name in holders if _go_back(graph, name) is not GoBack.REWIND]
    if blocking and state.replan is Replan.ASKED and not _unrepeatable(pending, graph):
        LOG.warning(
            "batch_not_abandoned",
            extra={
                "checkpoint": pending.checkpoint,
                "sinks": blocking,
                "why": "it cannot be abandoned, because these sinks have it",
            },
        )
        return None
    if blocking or (holders and state.replan is not Replan.ASKED):
        before = state.latest.checkpoint if state.latest else 0
        raise BatchCommitted(
            pending.checkpoint, blocking or holders, why, before=before, rewinds=not blocking
        )
    for name, source in graph.sources.items():
        if name in pending.ranges:
            source.abandon_batch(pending.ranges[name].start, pending.ranges[name].end)
    LOG.warning(
        "batch_abandoned",
        extra={"checkpoint": pending.checkpoint, "why": why, "rolled_back": holders},
    )
    return Abandoned(pending, why, rewind=bool(holders))


def _reason(pending: PendingBatch, graph: Graph, replan: Replan) -> str:
    return _unrepeatable(pending, graph) or (
        "a restore from an earlier checkpoint was requested" if replan is Replan.ASKED else ""
    )


def _unrepeatable(pending: PendingBatch, graph: Graph) -> str:
    ranges = pending.ranges
    reasons = (
        source.cannot_repeat(ranges[name].start, ranges[name].end)
        for name, source in graph.sources.items()
        if name in ranges
    )
    return next((reason for reason in reasons if reason), "")


def _go_back(graph: Graph, sink: str) -> GoBack:
    node = graph.nodes[sink]
    return node.connector.capabilities_of(unpacked(node.action.options)).go_back or GoBack.DUPLICATE


def with_batch_number(error: TidegateError, checkpoint: int) -> TidegateError:
    """Add the batch number to an error about a file that was raised while a batch was read."""
    if hasattr(error, "path"):
        error.args = (f"batch {checkpoint}: {error}",)
    return error
