"""Whether the sinks still remember the checkpoint that a driver restores. Called by the loop before
it fences a sink, and by restore plans.

A sink that keeps a record has one of every checkpoint that is complete: the sinks commit before a
checkpoint is published. Where the target knows nothing of it, or only of an older one, it is not
the target that was written: its disk is not mounted, it was emptied, or put back from a backup.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from tidegate.clock import Clock
from tidegate.model.errors import Domain, TransientError
from tidegate.model.records import JobRecord, PipelineState
from tidegate.model.restore import OnSinkLost
from tidegate.plugin.contract import SinkMemory

LINEAGE = "lineage"
"""The key in a sink's state of a checkpoint: under which lineage the target keeps the record of
that checkpoint. Checkpoints of older releases lack it.
"""
WAIT_S = 5.0
"""How long one attempt waits for a target that is out of sight: a disk that is mounted again, a
directory that is moved back.
"""
POLL_S = 0.25


class SinkLostRecord(TransientError):
    """The target does not know of a checkpoint that was committed to it.

    A mount may come back: retried within the budget.
    """

    condition = "sink-record-lost"
    domain = Domain.EXTERNAL

    def __init__(self, operator: str, memory: SinkMemory, checkpoint: int) -> None:
        super().__init__(
            lost_words(operator, memory, checkpoint) + f". Nothing was written. {CHOICES}"
        )
        self.operator = operator
        self.place = memory.place
        self.found = memory.checkpoint
        self.checkpoint = checkpoint


CHOICES = (
    "Bring the target back as it was (mount its disk, undo the move, restore a newer backup), and"
    " restore again; or go on with --on-sink-lost continue (what was written before is not written"
    " again), or start over with --restore fresh"
)


def lost_words(operator: str, memory: SinkMemory, checkpoint: int) -> str:
    """What is wrong, in words."""
    what = (
        f"its newest record there is of checkpoint {memory.checkpoint}"
        if memory.checkpoint
        else "nothing there says so"
    )
    why = (
        "an older copy, another disk?" if memory.checkpoint else "emptied, unmounted, another disk?"
    )
    return (
        f"the sink {operator} has lost its record: checkpoint {checkpoint} was committed to"
        f" {memory.place}, and {what} ({why})"
    )


def appends_beside(memory: SinkMemory) -> str:
    """The warning for a fresh start that adds to what others have written."""
    return (
        f"{memory.place} holds {memory.others} of another lineage: this run adds its rows to them"
    )


def recorded_sinks(state: PipelineState, states: Mapping[str, Any]) -> frozenset[str]:
    """The sinks whose targets must know of the latest checkpoint.

    Not those that are new, whose state is given up, or that were another lineage's (a fork).
    """
    return frozenset(
        name
        for name, saved in states.items()
        if name not in state.dropped_operators
        and isinstance(saved, Mapping)
        and "offset" not in saved
        and saved.get(LINEAGE) == state.lineage
    )


def consented_checkpoint(job: JobRecord, pipeline: int) -> int:
    """The checkpoint of which somebody has agreed that the target has lost it; 0 where nobody has.
    A later loss is not covered.
    """
    if job.on_sink_lost != OnSinkLost.CONTINUE or job.restore is None:
        return 0
    return next((each.checkpoint for each in job.restore.pipelines if each.pipeline == pipeline), 0)


def awaited(
    ask: Callable[[], SinkMemory | None], checkpoint: int, clock: Clock, stop: threading.Event
) -> SinkMemory | None:
    """What the target says; asked again for a moment where it does not know of this checkpoint."""
    until_s = clock.monotonic_s() + WAIT_S
    while True:
        memory = ask()
        if (
            memory is None
            or memory.checkpoint >= checkpoint
            or clock.monotonic_s() >= until_s
            or clock.wait(stop, POLL_S)
        ):
            return memory
