"""Which checkpoints are kept and which one is restored, for any history."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.checkpoints.resolve import (
    AllDamaged,
    Candidate,
    Chosen,
    NoCheckpoint,
    NotRetained,
    WantedDamaged,
    resolve,
)
from tidegate.checkpoints.retention import retain
from tidegate.model.records import CheckpointRef

ids = st.lists(st.integers(1, 10_000), unique=True, max_size=30)


def ref(checkpoint: int) -> CheckpointRef:
    # Clocks go wrong: the time is unrelated to the id.
    return CheckpointRef(
        checkpoint=checkpoint,
        path=f"1/1/{checkpoint}",
        generation=1,
        begun_ms=0,
        completed_ms=checkpoint * 7919 % 1009,
    )


@given(ids, st.integers(-1, 12))
def test_exactly_the_newest_are_kept_by_id(numbers: list[int], retained_max: int) -> None:
    kept, deleted = retain([ref(n) for n in numbers], retained_max)
    assert [k.checkpoint for k in kept] == sorted(numbers)[-max(1, retained_max) :]
    assert sorted([*kept, *deleted], key=lambda r: r.checkpoint) == [
        ref(n) for n in sorted(numbers)
    ]


@given(ids, st.sets(st.integers(1, 10_000)))
def test_the_newest_sound_one_is_chosen_and_every_newer_one_is_named(
    numbers: list[int], damaged: set[int]
) -> None:
    resolution = resolve([Candidate(ref(n), "broken" if n in damaged else "") for n in numbers])
    sound = [n for n in sorted(numbers) if n not in damaged]
    if not numbers:
        assert resolution == NoCheckpoint()
    elif not sound:
        assert isinstance(resolution, AllDamaged)
        assert {c.ref.checkpoint for c in resolution.skipped} == set(numbers)
    else:
        assert isinstance(resolution, Chosen)
        assert resolution.ref.checkpoint == sound[-1]
        assert [r.checkpoint for r in resolution.newer] == [
            n for n in sorted(numbers) if n > sound[-1]
        ]
        assert {c.ref.checkpoint for c in resolution.skipped} == {
            n for n in numbers if n > sound[-1]
        }


@given(ids, st.sets(st.integers(1, 10_000)), st.integers(1, 10_000))
def test_a_wanted_one_is_taken_exactly_or_refused(
    numbers: list[int], damaged: set[int], wanted: int
) -> None:
    resolution = resolve(
        [Candidate(ref(n), "broken" if n in damaged else "") for n in numbers], wanted
    )
    if wanted not in numbers:
        assert isinstance(resolution, NotRetained)
    elif wanted in damaged:
        assert isinstance(resolution, WantedDamaged)
    else:
        assert isinstance(resolution, Chosen)
        assert resolution.ref.checkpoint == wanted
        assert [r.checkpoint for r in resolution.newer] == [
            n for n in sorted(numbers) if n > wanted
        ]
