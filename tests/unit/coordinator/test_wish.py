"""From where a job goes on: never a silent fresh start."""

import pytest

from tidegate.coordinator.wish import Condition, From, NeedsChoice, NothingToRestore, RestoreWish, Start, decide
from tidegate.model.errors import UserError


def decided(wish: str | None, condition: Condition) -> Start:
    return decide(RestoreWish.parse(wish), condition, job="job 'x' (7)", status="killed", place="last completed checkpoint 3")


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
def test_restoring_nothing_is_an_error_and_not_a_fresh_start(wish: str, condition: Condition) -> None:
    with pytest.raises(NothingToRestore):
        decided(wish, condition)


@pytest.mark.parametrize("text", ["", "lastest", "checkpoint", "checkpoint:", "checkpoint:x", "checkpoint:-1", "latest:3", "checkpoint:٣"])
def test_other_words_are_refused_with_the_choices(text: str) -> None:
    with pytest.raises(UserError, match="latest, checkpoint:<id>, fresh or auto"):
        RestoreWish.parse(text)


def test_a_checkpoint_is_a_number() -> None:
    assert RestoreWish.parse("checkpoint:12") == RestoreWish(From.CHECKPOINT, 12)
