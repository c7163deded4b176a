"""Which batches are repeated if sinks have committed more than the restore point."""

import random

import pytest

from tidegate.model.records import SourceRange
from tidegate.pipeline.uncheckpointed import (
    SinksDisagree,
    batches_to_repeat,
    initial_offsets,
    ranges_of,
)
from tidegate.plugin.contract import CommitRange


def record(checkpoint: int, start: int, end: int, source: str = "s") -> CommitRange:
    return CommitRange(
        checkpoint=checkpoint, offsets={source: {"start": {"at": start}, "end": {"at": end}}}
    )


def at(place: int) -> dict[str, dict[str, int]]:
    return {"s": {"at": place}}


def test_without_newer_records_nothing_is_repeated() -> None:
    assert batches_to_repeat(3, at(30), {"a": [], "b": []}) == []


def test_the_records_of_all_sinks_form_one_chain() -> None:
    fourth, fifth, seventh = (
        record(4, 30, 40),
        record(5, 40, 40),
        record(7, 40, 60),
    )  # 6 was begun, and never seen by a sink
    assert batches_to_repeat(3, at(30), {"a": [fourth, fifth, seventh], "b": [fourth]}) == [
        fourth,
        fifth,
        seventh,
    ]
    assert batches_to_repeat(3, at(30), {"a": [fourth], "b": [fifth], "c": [seventh, fourth]}) == [
        fourth,
        fifth,
        seventh,
    ]


def test_a_gap_before_the_only_record_becomes_one_batch() -> None:
    assert batches_to_repeat(3, at(30), {"a": [record(7, 60, 70)]}) == [
        record(6, 30, 60),
        record(7, 60, 70),
    ]


def test_a_gap_batch_has_only_the_sources_that_advanced() -> None:
    newest = CommitRange(
        checkpoint=9,
        offsets={
            "s": {"start": 5, "end": 6},
            "t": {"start": 1, "end": 2},
            "gone": {"start": 0, "end": 1},
        },
    )
    bridge, repeated = batches_to_repeat(3, {"s": 5, "t": 0, "new": 0}, {"a": [newest]})
    assert bridge == CommitRange(checkpoint=8, offsets={"t": {"start": 0, "end": 1}})
    assert repeated is newest


def test_a_record_with_a_gap_to_the_restore_point_is_an_error() -> None:
    with pytest.raises(
        SinksDisagree,
        match=r"the sinks hold checkpoint 4, which begins elsewhere than checkpoint 3 ends \(s\)",
    ):
        batches_to_repeat(3, at(30), {"a": [record(4, 31, 40)]})


def test_different_ranges_of_one_checkpoint_are_an_error() -> None:
    with pytest.raises(SinksDisagree, match="a and b hold checkpoint 4 with different ranges"):
        batches_to_repeat(3, at(30), {"a": [record(4, 30, 40)], "b": [record(4, 30, 41)]})


def test_the_first_record_has_the_initial_offsets() -> None:
    assert initial_offsets({"a": [record(2, 7, 9)], "b": [record(1, 3, 7), record(2, 7, 9)]}) == at(
        3
    )
    assert initial_offsets({"a": []}) == {}


def test_a_record_becomes_the_ranges_of_a_batch() -> None:
    assert ranges_of(record(4, 30, 40)) == {"s": SourceRange({"at": 30}, {"at": 40})}


def test_any_chain_of_any_sinks_ends_where_the_newest_record_ends(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(300):
        ids = sorted(rng.sample(range(4, 20), rng.randint(1, 6)))
        places = sorted(rng.sample(range(31, 200), len(ids)))
        batches = [record(i, a, b) for i, a, b in zip(ids, [30, *places], places, strict=False)]
        newest_only = rng.random() < 0.3
        found = {
            "a": batches[-1:] if newest_only else batches,
            "b": batches[-1:] if newest_only else batches[: rng.randint(0, len(batches))],
        }
        chain = batches_to_repeat(3, at(30), found)
        assert chain[-1] == batches[-1]
        assert [r.checkpoint for r in chain] == sorted({r.checkpoint for r in chain})
        place = at(30)["s"]
        for repeated in chain:
            assert repeated.offsets["s"]["start"] == place
            place = repeated.offsets["s"]["end"]
