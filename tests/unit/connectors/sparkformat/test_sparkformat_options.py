"""The options of the Spark source and sink, checked without Spark."""

from typing import Any

from tidegate.connectors.sparkformat.options import CONNECTORS
from tidegate.model.job import BlockKind
from tidegate.model.problem import Location
from tidegate.plugin.option import Block


def problems(kind: BlockKind, **options: Any) -> list[str]:
    connector = next(c for c in CONNECTORS if c.kind is kind)
    block = Block(options, lambda _: Location("job.conf", 3), f"{kind.value}[0]")
    values, found = connector.options.read(block)
    assert connector.check is not None
    return [f"{p.path}: {p.message}" for p in [*found, *connector.check(block, values)]]


def test_only_format_is_required() -> None:
    assert problems(BlockKind.SOURCE, format="parquet") == []
    assert problems(BlockKind.SINK, format="noop") == []


def test_a_missing_format_is_a_problem() -> None:
    assert [p.split(":")[1].strip() for p in problems(BlockKind.SOURCE)] == ["format is missing"]


def test_wrong_type_in_the_schema_is_reported_at_its_location() -> None:
    (problem,) = problems(BlockKind.SOURCE, format="csv", schema={"fields": {"id": "bigintt"}})
    assert problem == "source[0].schema.fields.id: unknown type 'bigintt'; did you mean 'bigint'?"


def test_a_list_is_no_option_of_a_data_source() -> None:
    assert problems(BlockKind.SINK, format="csv", options={"sep": [";"]}) == [
        "sink[0].options.sep: an option of a data source is a single value, not a list"
    ]


def test_mode_unknown_to_spark_is_a_problem() -> None:
    assert problems(BlockKind.SINK, format="csv", mode="ignore") == [
        'sink[0].mode: "ignore" is not possible here'
    ]


def test_summary_describes_a_repeated_batch() -> None:
    source, sink = CONNECTORS
    assert (source.capabilities.streaming, source.capabilities.fusable) == (False, False)
    assert (
        str(sink.capabilities.delivery),
        str(sink.capabilities.go_back),
        sink.capabilities.fusable,
    ) == ("at-least-once", "duplicate", False)
