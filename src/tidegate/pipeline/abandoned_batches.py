"""Batches that were begun and are not repeated: when that is right, and what a person is told.

Called by the loop when it opens.

A batch that was begun is repeated exactly, so that the sinks recognise it. Only a person can ask
for something else, with a restore: `checkpoint:N` for what follows N to be planned anew, `latest`
where the source cannot give the same rows any more (a file was repaired, or is left out with
--skip-file). Both need the proof that no sink holds the batch: all sinks are fenced and asked
before. A batch that a sink holds is given up only where that sink can take it back.
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


class BatchHeld(TerminalError):
    """A batch cannot be repeated as it was, and a sink has it already."""

    condition = "batch-held"

    def __init__(
        self, checkpoint: int, sinks: Sequence[str], why: str, *, before: int, rewinds: bool
    ) -> None:
        otherwise = "start over with --restore fresh"
        if before and rewinds:
            otherwise = (
                f"give the batch up with --restore checkpoint:{before}: its rows are taken back,"
                " and the source is read anew from there"
            )
        elif before:
            otherwise = (
                "go back to an older checkpoint with --restore checkpoint:<id> (`tidegate"
                " checkpoints list` has them)"
            )
        super().__init__(
            f"batch {checkpoint} cannot be repeated ({why}), and {' and '.join(sinks)} holds its "
            "rows already: put the source back as it was when the batch was begun and start again "
            f"with --restore latest, or {otherwise}"
        )
        self.checkpoint = checkpoint


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A batch that is planned anew. `back`: sinks that hold it take it back."""

    pending: PendingBatch
    why: str
    rewind: bool = False


def abandoned(
    state: PipelineState, graph: Graph, found: Mapping[str, Sequence[CommitRange]]
) -> Abandoned | None:
    """Whether the pending batch is given up.

    `found` are the records of the sinks, asked after they were fenced. Sources learn what is
    given up.
    """
    pending = state.pending
    if pending is None or state.replan is Replan.NEVER:
        return None
    why = _why(pending, graph, state.replan)
    if not why:
        return None
    holders = sorted(
        name
        for name, records in found.items()
        if any(record.checkpoint >= pending.checkpoint for record in records)
    )
    stuck = [name for name in holders if _go_back(graph, name) is not GoBack.REWIND]
    if stuck and state.replan is Replan.ASKED and not _unrepeatable(pending, graph):
        LOG.warning(
            "batch_not_given_up: a sink holds it; it is repeated",
            extra={"checkpoint": pending.checkpoint, "sinks": stuck},
        )
        return None
    if stuck or (holders and state.replan is not Replan.ASKED):
        before = state.latest.checkpoint if state.latest else 0
        raise BatchHeld(pending.checkpoint, stuck or holders, why, before=before, rewinds=not stuck)
    for name, source in graph.sources.items():
        if name in pending.ranges:
            source.give_up(pending.ranges[name].start, pending.ranges[name].end)
    LOG.warning(
        "batch_given_up: it is planned anew",
        extra={"checkpoint": pending.checkpoint, "why": why, "taken_back": holders},
    )
    return Abandoned(pending, why, rewind=bool(holders))


def _why(pending: PendingBatch, graph: Graph, replan: Replan) -> str:
    return _unrepeatable(pending, graph) or (
        "a restore from an earlier checkpoint was asked for" if replan is Replan.ASKED else ""
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


def in_batch(error: TidegateError, checkpoint: int) -> TidegateError:
    """An error about a file that was raised while a batch was read.

    With the number of the batch.
    """
    if hasattr(error, "path"):
        error.args = (f"batch {checkpoint}: {error}",)
    return error
