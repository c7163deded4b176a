"""Sums of what has passed: exact when added and taken back, and bounded."""

from tidegate.model.throughput import (
    OTHER_TABLES,
    TABLES_MAX,
    Volume,
    added,
    together,
    total,
    without,
)


def test_what_is_added_and_taken_back_is_what_it_was() -> None:
    before = {"s": {"a": Volume(3, 30)}}
    batch = {"s": {"a": Volume(1, 10), "b": Volume(2, 20)}, "k": {"a": Volume(1, 8)}}
    both = added(before, batch)
    assert both == {"s": {"a": Volume(4, 40), "b": Volume(2, 20)}, "k": {"a": Volume(1, 8)}}
    assert without(both, [batch]) == {
        "s": {"a": Volume(3, 30), "b": Volume()},
        "k": {"a": Volume()},
    }
    assert before == {"s": {"a": Volume(3, 30)}}, "nothing is changed in place"


def test_what_was_never_counted_is_not_taken_back() -> None:
    assert without(
        {"s": {"a": Volume(1, 1)}}, [{"s": {"b": Volume(5, 5)}, "k": {"a": Volume(1, 1)}}]
    ) == {"s": {"a": Volume(1, 1)}}
    assert without({"s": {"a": Volume(1, 1)}}, [{"s": {"a": Volume(5, 5)}}]) == {
        "s": {"a": Volume()}
    }


def test_tables_beyond_the_limit_are_counted_as_one_and_none_is_lost() -> None:
    batch = {"s": {f"t{number}": Volume(1, 2) for number in range(TABLES_MAX + 5)}}
    once = added(batch)
    assert (len(once["s"]), once["s"][OTHER_TABLES]) == (TABLES_MAX + 1, Volume(5, 10))
    twice = added(once, batch)
    assert twice["s"]["t0"] == Volume(2, 4)
    assert total(twice["s"]) == Volume(2 * (TABLES_MAX + 5), 4 * (TABLES_MAX + 5))
    assert without(twice, [batch]) == once


def test_tables_of_several_operators_are_put_together() -> None:
    assert together([{"a": Volume(1, 1)}, {"a": Volume(2, 2), "b": Volume(3, 3)}]) == {
        "a": Volume(3, 3),
        "b": Volume(3, 3),
    }
    assert together([]) == {}
