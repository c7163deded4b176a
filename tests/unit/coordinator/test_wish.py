"""From where a job goes on: never a silent fresh start."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.coordinator.wish import (
    Condition,
    From,
    NeedsChoice,
    NothingToRestore,
    RestoreWish,
    Start,
    decide,
)
from tidegate.model.errors import UserError
from tidegate.model.restore import OnDamaged, OnIncompatible, OnMissing, OnNotHeld


def decided(wish: str | None, condition: Condition) -> Start:
    return decide(
        RestoreWish.parse(wish),
        condition,
        job="job 'x' (7)",
        status="killed",
        place="last completed checkpoint 3",
    )


@pytest.mark.parametrize(
    ("wish", "condition", "start"),
    [
        (None, Condition.NONE, Start.FRESH),
        (None, Condition.FINISHED, Start.FRESH),
        ("auto", Condition.NONE, Start.FRESH),
        ("auto", Condition.FINISHED, Start.FRESH),
        ("auto", Condition.UNFINISHED, Start.RESUME),
        ("latest", Condition.UNFINISHED, Start.RESUME),
        ("checkpoint:3", Condition.UNFINISHED, Start.RESUME),
        ("fresh", Condition.UNFINISHED, Start.FRESH),
        ("fresh", Condition.WORK_DONE, Start.FRESH),
        ("fresh", Condition.NONE, Start.FRESH),
        ("auto", Condition.WORK_DONE, Start.NOTHING),
        (None, Condition.WORK_DONE, Start.NOTHING),
        ("latest", Condition.WORK_DONE, Start.NOTHING),
    ],
)
def test_a_wish_means(wish: str | None, condition: Condition, start: Start) -> None:
    assert decided(wish, condition) is start


def test_an_unfinished_run_is_never_started_over_without_being_told() -> None:
    with pytest.raises(NeedsChoice) as caught:
        decided(None, Condition.UNFINISHED)
    for word in ("latest", "checkpoint:", "fresh", "auto", "killed", "checkpoint 3"):
        assert word in str(caught.value)


@pytest.mark.parametrize("condition", [Condition.NONE, Condition.FINISHED])
@pytest.mark.parametrize("wish", ["latest", "checkpoint:1"])
def test_restoring_nothing_is_an_error_and_not_a_fresh_start(
    wish: str, condition: Condition
) -> None:
    with pytest.raises(NothingToRestore):
        decided(wish, condition)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "lastest",
        "checkpoint",
        "checkpoint:",
        "checkpoint:x",
        "checkpoint:-1",
        "latest:3",
        "checkpoint:٣",
    ],
)
def test_other_words_are_refused_with_the_choices(text: str) -> None:
    with pytest.raises(
        UserError,
        match=(
            "say latest, checkpoint:<id>, savepoint:<id or path>, path:<directory>, fresh or auto"
        ),
    ):
        RestoreWish.parse(text)


def test_a_checkpoint_is_a_number() -> None:
    assert RestoreWish.parse("checkpoint:12") == RestoreWish(From.CHECKPOINT, 12)


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("savepoint:1700000000000", RestoreWish(From.SAVEPOINT, where="1700000000000")),
        (
            "savepoint:savepoint/7/1700000000000",
            RestoreWish(From.SAVEPOINT, where="savepoint/7/1700000000000"),
        ),
        ("path:s3://bucket/a/7/1/3", RestoreWish(From.PATH, where="s3://bucket/a/7/1/3")),
    ],
)
def test_a_place_is_what_comes_after_the_colon(text: str, wish: RestoreWish) -> None:
    assert RestoreWish.parse(text) == wish


ANSWERS = st.builds(
    RestoreWish,
    st.sampled_from(From),
    source_job=st.none() | st.just(8),
    takeover=st.booleans(),
    on_missing=st.sampled_from(OnMissing),
    on_damaged=st.sampled_from(OnDamaged),
    on_incompatible=st.sampled_from(OnIncompatible),
    on_not_held=st.sampled_from(OnNotHeld),
    duplicates=st.booleans(),
)


@given(ANSWERS, st.sampled_from(Condition))
def test_nothing_that_could_be_resumed_is_started_over_unless_fresh_was_said(
    wish: RestoreWish, condition: Condition
) -> None:
    try:
        start = decide(wish, condition, job="job", status="killed", place="somewhere")
    except (NeedsChoice, NothingToRestore):
        assert wish.start is not From.FRESH
        return
    if start is Start.FRESH and condition in (Condition.UNFINISHED, Condition.WORK_DONE):
        assert wish.start is From.FRESH
    if start is Start.FRESH and wish.start in (From.LATEST, From.CHECKPOINT):
        assert wish.on_missing is OnMissing.FRESH
    if start is Start.RESUME and not wish.elsewhere:
        assert condition is Condition.UNFINISHED
    if wish.elsewhere:
        assert start is Start.RESUME


@given(st.text(max_size=30))
def test_any_text_is_a_wish_or_is_refused(text: str) -> None:
    try:
        wish = RestoreWish.parse(text)
    except UserError:
        return
    assert wish.start is not From.ASK
    assert wish.checkpoint == 0 or wish.start is From.CHECKPOINT
    assert bool(wish.where) == wish.elsewhere
