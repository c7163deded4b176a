"""Derives the batches to repeat when sinks have committed more than the restore point. Pure.

Called by recovery. If the store is lost or the newest checkpoints are damaged, the records of the
sinks prove what was committed. A batch begins only after every sink has the one before it, so the
records of all sinks form one chain that begins where the restore point ends. Each batch is repeated
under its old id and within its old bounds: sinks that have it skip it, and one that lacks it gets
exactly its rows. If a sink keeps only its newest record, the gap before it becomes one more batch,
which every sink that keeps records skips.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.model.errors import TerminalError
from tidegate.model.records import SourceRange
from tidegate.plugin.contract import CommitRange, Offset


class SinksDisagree(TerminalError):
    """The records of the sinks and the restore point do not form one chain."""

    condition = "sinks-disagree"


def batches_to_repeat(
    checkpoint: int, offsets: Mapping[str, Offset], found: Mapping[str, Sequence[CommitRange]]
) -> list[CommitRange]:
    """Return the batches after this checkpoint by id; `found` has the records of each sink."""
    chain: list[CommitRange] = []
    offset, last = dict(offsets), checkpoint
    for record in _merged(found):
        bridge = {
            name: {"start": offset[name], "end": bounds["start"]}
            for name, bounds in record.offsets.items()
            if name in offset and not _same(offset[name], bounds["start"])
        }
        if bridge:
            if record.checkpoint - 1 <= last:
                raise SinksDisagree(
                    f"the sinks hold checkpoint {record.checkpoint}, which begins elsewhere than"
                    f" checkpoint {last} ends ({', '.join(sorted(bridge))}): they were written by"
                    " another run. Restore from an older checkpoint, or start fresh"
                )
            chain.append(CommitRange(checkpoint=record.checkpoint - 1, offsets=bridge))
        chain.append(record)
        offset |= {name: bounds["end"] for name, bounds in record.offsets.items() if name in offset}
        last = record.checkpoint
    return chain


def initial_offsets(found: Mapping[str, Sequence[CommitRange]]) -> dict[str, Offset]:
    """Return where the sources began, according to the first record of all sinks.

    For a pipeline without a checkpoint, of which the store has no initial offsets.
    """
    records = _merged(found)
    return {name: bounds["start"] for name, bounds in records[0].offsets.items()} if records else {}


def _merged(found: Mapping[str, Sequence[CommitRange]]) -> list[CommitRange]:
    """Return the records of all sinks by id; two sinks with the same id must agree."""
    owners: dict[int, tuple[str, CommitRange]] = {}
    for sink, records in found.items():
        for record in records:
            first, present = owners.setdefault(record.checkpoint, (sink, record))
            if not _same(present.offsets, record.offsets):
                raise SinksDisagree(
                    f"{first} and {sink} hold checkpoint {record.checkpoint} with different ranges"
                    f" of the sources. Restore from a checkpoint before {record.checkpoint} with"
                    " --restore checkpoint:<id>, or start fresh"
                )
    return [owners[checkpoint][1] for checkpoint in sorted(owners)]


def ranges_of(record: CommitRange) -> dict[str, SourceRange]:
    """Convert the offsets of a record into the ranges of a batch."""
    return {
        name: SourceRange(bounds["start"], bounds["end"]) for name, bounds in record.offsets.items()
    }


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
