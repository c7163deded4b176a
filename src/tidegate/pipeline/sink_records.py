"""Checks that the targets of the sinks still have the record of the checkpoint to restore.

Called by recovery before it fences a sink, and by restore plans. A sink that keeps records has one
of every completed checkpoint, because the sinks commit before a checkpoint is published. If the
target has no record, or only an older one, it is not the target that was written: its disk is not
mounted, it was emptied, or it was restored from a backup.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from tidegate.clock import Clock
from tidegate.model.errors import Domain, TransientError
from tidegate.model.option_error import MessagePart, OptionMention
from tidegate.model.records import JobRecord, PipelineState
from tidegate.model.restore import OnSinkLost
from tidegate.plugin.contract import TargetRecord

LINEAGE = "lineage"
"""Key in a sink's checkpoint state: the lineage under which the target keeps the record of that
checkpoint. Checkpoints of older releases lack it.
"""
RECORD_WAIT_S = 5.0
"""How long one attempt waits for a target to come back: a disk is mounted again, a directory is
moved back.
"""
RECORD_POLL_S = 0.25


class SinkLostRecord(TransientError):
    """The target has no record of a checkpoint that was committed to it.

    Retried within the retry budget, because a mount may come back.
    """

    condition = "sink-record-lost"
    domain = Domain.EXTERNAL

    def __init__(self, operator: str, record: TargetRecord, checkpoint: int) -> None:
        super().__init__(
            f"{describe_loss(operator, record, checkpoint)}. Nothing was written. "
            + "".join(map(str, CHOICES))
        )
        self.operator = operator
        self.target = record.target
        self.found = record.checkpoint
        self.checkpoint = checkpoint


CHOICES: tuple[MessagePart, ...] = (
    "Bring the target back as it was (mount its disk, undo the move, restore a newer backup), and"
    " restore again; or continue with ",
    OptionMention("--on-sink-lost", "continue"),
    " (rows that were written before are not written again), or start over with ",
    OptionMention("--restore", "fresh"),
)


def describe_loss(operator: str, record: TargetRecord, checkpoint: int) -> str:
    """Describe what the target lacks, and the likely causes."""
    known = (
        f"its newest record there is of checkpoint {record.checkpoint}"
        if record.checkpoint
        else "there is no record of it"
    )
    why = (
        "an older copy, another disk?" if record.checkpoint else "emptied, unmounted, another disk?"
    )
    return (
        f"the sink {operator} has lost its record: checkpoint {checkpoint} was committed to"
        f" {record.target}, and {known} ({why})"
    )


def foreign_rows_warning(record: TargetRecord) -> str:
    """The warning for a fresh start into a target that has rows of another lineage."""
    return (
        f"{record.target} holds {record.others} of another lineage: this run adds its rows to them"
    )


def recorded_sinks(state: PipelineState, states: Mapping[str, Any]) -> frozenset[str]:
    """Return the sinks whose targets must have a record of the latest checkpoint.

    New sinks, sinks whose state is dropped, and sinks of another lineage (a fork) are not among
    them.
    """
    return frozenset(
        name
        for name, saved in states.items()
        if name not in state.dropped_operators
        and isinstance(saved, Mapping)
        and "offset" not in saved
        and saved.get(LINEAGE) == state.lineage
    )


def accepted_checkpoint(job: JobRecord, pipeline: int) -> int:
    """Return the checkpoint whose loss in the target the user has accepted, or 0.

    A later loss is not covered.
    """
    if job.on_sink_lost != OnSinkLost.CONTINUE or job.restore is None:
        return 0
    return next((each.checkpoint for each in job.restore.pipelines if each.pipeline == pipeline), 0)


def read_target_record(
    read: Callable[[], TargetRecord | None], checkpoint: int, clock: Clock, stop: threading.Event
) -> TargetRecord | None:
    """Read the target's record; retry for a moment while it lacks this checkpoint."""
    until_s = clock.monotonic_s() + RECORD_WAIT_S
    while True:
        record = read()
        if (
            record is None
            or record.checkpoint >= checkpoint
            or clock.monotonic_s() >= until_s
            or clock.wait(stop, RECORD_POLL_S)
        ):
            return record
