"""Sums of volumes: exact when added and subtracted, and bounded in tables."""

from tidegate.model.throughput import (
    OTHER_TABLES,
    TABLES_MAX,
    Volume,
    add_volumes,
    merge_tables,
    subtract_volumes,
    total_volume,
)


def test_subtracting_an_added_batch_restores_the_sums() -> None:
    before = {"s": {"a": Volume(3, 30)}}
    batch = {"s": {"a": Volume(1, 10), "b": Volume(2, 20)}, "k": {"a": Volume(1, 8)}}
    both = add_volumes(before, batch)
    assert both == {"s": {"a": Volume(4, 40), "b": Volume(2, 20)}, "k": {"a": Volume(1, 8)}}
    assert subtract_volumes(both, [batch]) == {
        "s": {"a": Volume(3, 30), "b": Volume()},
        "k": {"a": Volume()},
    }
    assert before == {"s": {"a": Volume(3, 30)}}, "nothing is changed in place"


def test_subtraction_never_goes_below_zero() -> None:
    assert subtract_volumes(
        {"s": {"a": Volume(1, 1)}}, [{"s": {"b": Volume(5, 5)}, "k": {"a": Volume(1, 1)}}]
    ) == {"s": {"a": Volume(1, 1)}}
    assert subtract_volumes({"s": {"a": Volume(1, 1)}}, [{"s": {"a": Volume(5, 5)}}]) == {
        "s": {"a": Volume()}
    }


def test_tables_beyond_the_limit_are_counted_as_one() -> None:
    batch = {"s": {f"t{number}": Volume(1, 2) for number in range(TABLES_MAX + 5)}}
    once = add_volumes(batch)
    assert (len(once["s"]), once["s"][OTHER_TABLES]) == (TABLES_MAX + 1, Volume(5, 10))
    twice = add_volumes(once, batch)
    assert twice["s"]["t0"] == Volume(2, 4)
    assert total_volume(twice["s"]) == Volume(2 * (TABLES_MAX + 5), 4 * (TABLES_MAX + 5))
    assert subtract_volumes(twice, [batch]) == once


def test_tables_of_several_operators_are_merged() -> None:
    assert merge_tables([{"a": Volume(1, 1)}, {"a": Volume(2, 2), "b": Volume(3, 3)}]) == {
        "a": Volume(3, 3),
        "b": Volume(3, 3),
    }
    assert merge_tables([]) == {}
