"""Which checkpoint to restore.

Pure: the caller has verified the candidates and passes what it found.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.model.records import CheckpointRef


@dataclass(frozen=True, slots=True)
class Candidate:
    """A retained checkpoint and what is wrong with it, or nothing."""

    ref: CheckpointRef
    damage: str = ""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Go on after this one.

    `skipped` are newer ones that are damaged; `newer` all that lie after it.
    """

    ref: CheckpointRef
    skipped: tuple[Candidate, ...] = ()
    newer: tuple[CheckpointRef, ...] = ()


@dataclass(frozen=True, slots=True)
class NoCheckpoint:
    """There is none at all: the pipeline had not completed a batch."""


@dataclass(frozen=True, slots=True)
class AllDamaged:
    """There are some, and none can be used."""

    skipped: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class NotRetained:
    """The wanted one is not there (any more)."""

    wanted: int
    available: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WantedDamaged:
    """The wanted one is there and cannot be used."""

    candidate: Candidate
    available: tuple[int, ...]


Resolution = Chosen | NoCheckpoint | AllDamaged | NotRetained | WantedDamaged


def resolve(candidates: Sequence[Candidate], wanted: int | None = None) -> Resolution:
    """The newest checkpoint that verifies, by id; or exactly the wanted one."""
    ordered = sorted(candidates, key=lambda c: c.ref.checkpoint)
    sound = tuple(c.ref.checkpoint for c in ordered if not c.damage)
    if wanted is not None:
        return _exactly(ordered, wanted, sound)
    if not ordered:
        return NoCheckpoint()
    skipped: list[Candidate] = []
    for candidate in reversed(ordered):
        if not candidate.damage:
            return Chosen(candidate.ref, tuple(skipped), tuple(c.ref for c in reversed(skipped)))
        skipped.append(candidate)
    return AllDamaged(tuple(skipped))


def _exactly(ordered: Sequence[Candidate], wanted: int, sound: tuple[int, ...]) -> Resolution:
    for index, candidate in enumerate(ordered):
        if candidate.ref.checkpoint == wanted:
            if candidate.damage:
                return WantedDamaged(candidate, sound)
            return Chosen(candidate.ref, (), tuple(c.ref for c in ordered[index + 1 :]))
    return NotRetained(wanted, sound)
