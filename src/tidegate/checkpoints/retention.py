"""Retention: decide which checkpoints of a pipeline are kept. Pure."""

from collections.abc import Sequence

from tidegate.model.records import CheckpointRef


def retain(
    refs: Sequence[CheckpointRef], retained_max: int
) -> tuple[tuple[CheckpointRef, ...], tuple[CheckpointRef, ...]]:
    """Return (kept, deleted): the newest `retained_max` by id are kept, at least one.

    Never by time, because clocks differ between hosts.
    """
    ordered = sorted(refs, key=lambda ref: ref.checkpoint)
    keep = max(1, retained_max)
    return tuple(ordered[-keep:]), tuple(ordered[:-keep])
