"""Restore options: never a silent fresh start."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.coordinator.restore.options import (
    NeedsChoice,
    NothingToRestore,
    PreviousRun,
    RestoreOptions,
    RestoreSource,
    StartMode,
    decide,
)
from tidegate.model.errors import UserError
from tidegate.model.restore import OnDamaged, OnIncompatible, OnMissing, OnPositionLost


def decided(options: str | None, condition: PreviousRun) -> StartMode:
    return decide(
        RestoreOptions.parse(options),
        condition,
        job="job 'x' (7)",
        status="killed",
        position="last completed checkpoint 3",
    )


@pytest.mark.parametrize(
    ("options", "condition", "start"),
    [
        (None, PreviousRun.NONE, StartMode.FRESH),
        (None, PreviousRun.FINISHED, StartMode.FRESH),
        ("auto", PreviousRun.NONE, StartMode.FRESH),
        ("auto", PreviousRun.FINISHED, StartMode.FRESH),
        ("auto", PreviousRun.UNFINISHED, StartMode.RESUME),
        ("latest", PreviousRun.UNFINISHED, StartMode.RESUME),
        ("checkpoint:3", PreviousRun.UNFINISHED, StartMode.RESUME),
        ("fresh", PreviousRun.UNFINISHED, StartMode.FRESH),
        ("fresh", PreviousRun.WORK_DONE, StartMode.FRESH),
        ("fresh", PreviousRun.NONE, StartMode.FRESH),
        ("auto", PreviousRun.WORK_DONE, StartMode.NOTHING),
        (None, PreviousRun.WORK_DONE, StartMode.NOTHING),
        ("latest", PreviousRun.WORK_DONE, StartMode.NOTHING),
    ],
)
def test_restore_option_decides_the_start_mode(
    options: str | None, condition: PreviousRun, start: StartMode
) -> None:
    assert decided(options, condition) is start


def test_an_unfinished_run_needs_an_explicit_choice() -> None:
    with pytest.raises(NeedsChoice) as caught:
        decided(None, PreviousRun.UNFINISHED)
    for word in ("latest", "checkpoint:", "fresh", "auto", "killed", "checkpoint 3"):
        assert word in str(caught.value)


@pytest.mark.parametrize("condition", [PreviousRun.NONE, PreviousRun.FINISHED])
@pytest.mark.parametrize("options", ["latest", "checkpoint:1"])
def test_restoring_nothing_is_an_error_and_not_a_fresh_start(
    options: str, condition: PreviousRun
) -> None:
    with pytest.raises(NothingToRestore):
        decided(options, condition)


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
def test_unknown_values_are_rejected_with_the_choices(text: str) -> None:
    with pytest.raises(
        UserError,
        match=(
            "use latest, checkpoint:<id>, savepoint:<id or path>, path:<directory>, fresh or auto"
        ),
    ):
        RestoreOptions.parse(text)


def test_a_checkpoint_is_a_number() -> None:
    assert RestoreOptions.parse("checkpoint:12") == RestoreOptions(RestoreSource.CHECKPOINT, 12)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (
            "savepoint:1700000000000",
            RestoreOptions(RestoreSource.SAVEPOINT, location="1700000000000"),
        ),
        (
            "savepoint:savepoint/7/1700000000000",
            RestoreOptions(RestoreSource.SAVEPOINT, location="savepoint/7/1700000000000"),
        ),
        (
            "path:s3://bucket/a/7/1/3",
            RestoreOptions(RestoreSource.PATH, location="s3://bucket/a/7/1/3"),
        ),
    ],
)
def test_the_location_follows_the_colon(text: str, options: RestoreOptions) -> None:
    assert RestoreOptions.parse(text) == options


ANSWERS = st.builds(
    RestoreOptions,
    st.sampled_from(RestoreSource),
    source_job=st.none() | st.just(8),
    takeover=st.booleans(),
    on_missing=st.sampled_from(OnMissing),
    on_damaged=st.sampled_from(OnDamaged),
    on_incompatible=st.sampled_from(OnIncompatible),
    on_position_lost=st.sampled_from(OnPositionLost),
    duplicates=st.booleans(),
)


@given(ANSWERS, st.sampled_from(PreviousRun))
def test_resumable_state_is_discarded_only_with_fresh(
    options: RestoreOptions, condition: PreviousRun
) -> None:
    try:
        start = decide(options, condition, job="job", status="killed", position="somewhere")
    except (NeedsChoice, NothingToRestore):
        assert options.start is not RestoreSource.FRESH
        return
    if start is StartMode.FRESH and condition in (PreviousRun.UNFINISHED, PreviousRun.WORK_DONE):
        assert options.start is RestoreSource.FRESH
    if start is StartMode.FRESH and options.start in (
        RestoreSource.LATEST,
        RestoreSource.CHECKPOINT,
    ):
        assert options.on_missing is OnMissing.FRESH
    if start is StartMode.RESUME and not options.by_location:
        assert condition is PreviousRun.UNFINISHED
    if options.by_location:
        assert start is StartMode.RESUME


@given(st.text(max_size=30))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    try:
        options = RestoreOptions.parse(text)
    except UserError:
        return
    assert options.start is not RestoreSource.ASK
    assert options.checkpoint == 0 or options.start is RestoreSource.CHECKPOINT
    assert bool(options.location) == options.by_location
