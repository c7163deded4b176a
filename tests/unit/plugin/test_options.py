"""Options: SeaTunnel's rules for lookup and conversion, and all problems at once."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model.problem import Location, Severity
from tidegate.plugin.option import Block, Option, OptionKind, OptionSet, When, coerce
from tidegate.plugin.schema import read_schema

OPTIONS = OptionSet(
    (
        Option("row.num", OptionKind.INT, "rows", default=5, minimum=0, fallbacks=("rows",)),
        Option("path", OptionKind.TEXT, "where", required=True),
        Option("mode", OptionKind.ENUM, "how", default="fast", choices=("fast", "slow")),
        Option("names", OptionKind.LIST, "which"),
        Option("flag", OptionKind.BOOL, "whether", default=False),
        Option("ratio", OptionKind.DOUBLE, "how much"),
        Option("schema", OptionKind.MAP, "columns"),
        Option("a", OptionKind.TEXT, "a"),
        Option("b", OptionKind.TEXT, "b"),
        Option("slow.by", OptionKind.LONG, "ms"),
    ),
    at_most_one=(("a", "names"),),
    bundled=(("a", "b"),),
    conditions=(When("mode", ("slow",), ("slow.by",)),),
)


def block(**data: Any) -> Block:
    return Block(data, lambda path: Location("f.conf", len(path)), "source[0]")


def values(**data: Any) -> dict[str, Any]:
    read, problems = OPTIONS.read(block(path="p", **data))
    assert problems == []
    return read


def messages(**data: Any) -> list[str]:
    return [str(p) for p in OPTIONS.read(block(**data))[1]]


@pytest.mark.parametrize(
    "data", [{"row.num": 7}, {"row": {"num": 7}}, {"row": {"num": "7"}}, {"rows": 7}]
)
def test_value_is_found_flat_nested_and_by_fallback_key(data: dict[str, Any]) -> None:
    assert values(**data)["row.num"] == 7


def test_a_block_may_be_written_with_flat_keys() -> None:
    assert values(**{"schema.fields": {"a": "int"}})["schema"] == {"fields": {"a": "int"}}


def test_values_are_converted_to_their_type() -> None:
    read = values(mode="SLOW", **{"slow.by": "10"}, names="x, y", flag="TRUE", ratio="0.5", b=None)
    assert (read["mode"], read["slow.by"], read["names"], read["flag"], read["ratio"]) == (
        "slow",
        10,
        ["x", "y"],
        True,
        0.5,
    )
    assert read["row.num"] == 5


def test_all_problems_are_reported_together() -> None:
    said = messages(
        **{
            "row.num": "many",
            "mode": "quick",
            "flag": "yes",
            "ratio": True,
            "pth": "x",
            "a": "1",
            "schema": 3,
        }
    )
    assert len(said) == 8
    text = "\n".join(said)
    for words in (
        "row.num",
        '"many" is not a whole number',
        "one of fast, slow",
        "path is missing",
        "neither true nor false",
        "pth",
        "needs b too",
        "not a block",
    ):
        assert words in text


def test_unknown_key_is_a_warning_or_strict_error_with_a_suggestion() -> None:
    for strict, severity in ((False, Severity.WARNING), (True, Severity.ERROR)):
        (problem,) = OPTIONS.read(block(path="p", rwo={"num": 3}), strict=strict)[1]
        assert (problem.severity, problem.path) == (severity, "source[0].rwo")
    (problem,) = OPTIONS.read(block(path="p", row={"nun": 3}))[1]
    assert (problem.path, problem.suggestion) == ("source[0].row.nun", "row.num")


def test_rules_between_options_are_checked() -> None:
    assert "only one of a, names" in messages(path="p", a="1", b="2", names=["x"])[0]
    assert (
        "slow.by is missing: it is needed where mode = slow" in messages(path="p", mode="slow")[0]
    )
    assert "too small" in messages(path="p", **{"row.num": -1})[0]
    assert "32 bits" in messages(path="p", **{"row.num": 2**40})[0]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda v: st.lists(v) | st.dictionaries(st.text(max_size=5), v),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*OPTIONS.keys(), "row", "other"]), json_values))
def test_reading_never_raises_for_any_data(data: dict[str, Any]) -> None:
    OPTIONS.read(block(**data))


@given(json_values)
def test_reading_never_raises_for_any_schema(raw: Any) -> None:
    for schema in (
        raw,
        {"fields": raw},
        {"columns": raw, "primaryKey": raw, "constraintKeys": raw, "partition_keys": raw},
        {"primaryKey": {"columnNames": raw}},
    ):
        read_schema(block(), schema)


@pytest.mark.parametrize(
    ("written", "ms"),
    [
        (1500, 1500),
        ("1500", 1500),
        ("1S", 1000),
        ("10s", 10_000),
        ("500ms", 500),
        ("2 seconds", 2000),
        ("PT1M30S", 90_000),
        ("1m30s", 90_000),
        ("P1DT1H", 90_000_000),
        ("0.5h", 1_800_000),
    ],
)
def test_time_span_is_milliseconds_units_or_iso_8601(written: int | str, ms: int) -> None:
    assert coerce(Option("every", OptionKind.DURATION, "x"), written) == ms


@pytest.mark.parametrize("written", ["", "soon", "10 apples", "1S and more", "PT", True, "-", "s"])
def test_invalid_time_span_is_rejected(written: object) -> None:
    with pytest.raises(ValueError, match="is not a"):
        coerce(Option("every", OptionKind.DURATION, "x"), written)
