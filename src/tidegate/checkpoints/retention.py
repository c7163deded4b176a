"""How many checkpoints are kept. Pure."""

from collections.abc import Sequence

from tidegate.model.records import CheckpointRef


def retain(
    refs: Sequence[CheckpointRef], retained_max: int
) -> tuple[tuple[CheckpointRef, ...], tuple[CheckpointRef, ...]]:
    """(kept, doomed): exactly the newest `retained_max`, by id and never by a clock; at least one."""
    ordered = sorted(refs, key=lambda ref: ref.checkpoint)
    keep = max(1, retained_max)
    return tuple(ordered[-keep:]), tuple(ordered[:-keep])
