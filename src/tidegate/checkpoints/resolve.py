"""Choose the checkpoint to restore. Pure: the caller has verified the candidates."""

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.model.records import CheckpointRef


@dataclass(frozen=True, slots=True)
class Candidate:
    """A retained checkpoint; `damage` says what is wrong with it, if anything is."""

    ref: CheckpointRef
    damage: str = ""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Resume from this checkpoint.

    `skipped` are newer ones that are damaged; `newer` are all that come after it.
    """

    ref: CheckpointRef
    skipped: tuple[Candidate, ...] = ()
    newer: tuple[CheckpointRef, ...] = ()


@dataclass(frozen=True, slots=True)
class NoCheckpoint:
    """The pipeline has no checkpoint: it has not completed a batch."""


@dataclass(frozen=True, slots=True)
class AllDamaged:
    """All checkpoints of the pipeline are damaged."""

    skipped: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class NotRetained:
    """The requested checkpoint does not exist, or no longer."""

    wanted: int
    available: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WantedDamaged:
    """The requested checkpoint exists and is damaged."""

    candidate: Candidate
    available: tuple[int, ...]


Resolution = Chosen | NoCheckpoint | AllDamaged | NotRetained | WantedDamaged


def resolve(candidates: Sequence[Candidate], wanted: int | None = None) -> Resolution:
    """Return the newest undamaged checkpoint by id, or exactly the requested one."""
    ordered = sorted(candidates, key=lambda c: c.ref.checkpoint)
    sound = tuple(c.ref.checkpoint for c in ordered if not c.damage)
    if wanted is not None:
        return _resolve_wanted(ordered, wanted, sound)
    if not ordered:
        return NoCheckpoint()
    skipped: list[Candidate] = []
    for candidate in reversed(ordered):
        if not candidate.damage:
            return Chosen(candidate.ref, tuple(skipped), tuple(c.ref for c in reversed(skipped)))
        skipped.append(candidate)
    return AllDamaged(tuple(skipped))


def _resolve_wanted(
    ordered: Sequence[Candidate], wanted: int, sound: tuple[int, ...]
) -> Resolution:
    for index, candidate in enumerate(ordered):
        if candidate.ref.checkpoint == wanted:
            if candidate.damage:
                return WantedDamaged(candidate, sound)
            return Chosen(candidate.ref, (), tuple(c.ref for c in ordered[index + 1 :]))
    return NotRetained(wanted, sound)
