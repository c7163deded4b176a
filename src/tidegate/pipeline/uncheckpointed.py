"""Sinks that are ahead of the restore point: which batches to repeat, within which bounds. Called
by the loop when it opens. Pure.

Where the store is lost or the newest checkpoints are damaged, the records of the sinks are the
proof of what was done. A batch begins only after every sink has the one before it, so the records
of all sinks together are one chain that begins where the restore point ends. Each of them is
repeated under its old id and within its old bounds: the sinks that have it skip it, the one that
lacks it gets exactly its rows. Where a sink keeps only its newest record, what lies between is one
batch more, which everyone who keeps records skips.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.model.errors import TerminalError
from tidegate.model.records import SourceRange
from tidegate.plugin.contract import CommitRange, Offset


class SinksDisagree(TerminalError):
    """The records of the sinks and the restore point do not belong together."""

    condition = "sinks-disagree"


def to_repeat(
    checkpoint: int, offsets: Mapping[str, Offset], found: Mapping[str, Sequence[CommitRange]]
) -> list[CommitRange]:
    """The batches after this checkpoint, in order of their ids. `found` is what each sink said."""
    chain: list[CommitRange] = []
    place, last = dict(offsets), checkpoint
    for record in _united(found):
        bridge = {
            name: {"start": place[name], "end": bounds["start"]}
            for name, bounds in record.offsets.items()
            if name in place and not _same(place[name], bounds["start"])
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
        place |= {name: bounds["end"] for name, bounds in record.offsets.items() if name in place}
        last = record.checkpoint
    return chain


def beginning(found: Mapping[str, Sequence[CommitRange]]) -> dict[str, Offset]:
    """Where the sources began, by the first record of all: for a pipeline that has no checkpoint,
    and of which the store knows nothing.
    """
    records = _united(found)
    return {name: bounds["start"] for name, bounds in records[0].offsets.items()} if records else {}


def _united(found: Mapping[str, Sequence[CommitRange]]) -> list[CommitRange]:
    """The records of all sinks, by id; where two have the same one they must agree."""
    owners: dict[int, tuple[str, CommitRange]] = {}
    for sink, records in found.items():
        for record in records:
            first, known = owners.setdefault(record.checkpoint, (sink, record))
            if not _same(known.offsets, record.offsets):
                raise SinksDisagree(
                    f"{first} and {sink} hold checkpoint {record.checkpoint} with different ranges"
                    f" of the sources. Restore from a checkpoint before {record.checkpoint} with"
                    " --restore checkpoint:<id>, or start fresh"
                )
    return [owners[checkpoint][1] for checkpoint in sorted(owners)]


def ranges_of(record: CommitRange) -> dict[str, SourceRange]:
    """A record's offsets as the ranges of a batch."""
    return {
        name: SourceRange(bounds["start"], bounds["end"]) for name, bounds in record.offsets.items()
    }


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
