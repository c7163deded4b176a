"""Numbers in text files have SeaTunnel's format."""

import pyarrow as pa

from tidegate.connectors.localfile.write_text import TimeFormats, plain_text

FORMATS = TimeFormats("yyyy-MM-dd", "yyyy-MM-dd HH:mm:ss", "HH:mm:ss")


def test_floating_numbers_are_written_with_a_fraction() -> None:
    column = pa.array([80.0, 1.5, None, -0.0, float("nan"), float("inf"), -float("inf")])
    assert plain_text(column, FORMATS).to_pylist() == [
        "80.0",
        "1.5",
        None,
        "-0.0",
        "NaN",
        "Infinity",
        "-Infinity",
    ]
    assert plain_text(pa.array([80.0, None], pa.float32()), FORMATS).to_pylist() == ["80.0", None]


def test_whole_numbers_and_decimals_are_written_unchanged() -> None:
    assert plain_text(pa.array([80]), FORMATS).to_pylist() == ["80"]
    assert plain_text(pa.array(["1.50"]).cast(pa.decimal128(5, 2)), FORMATS).to_pylist() == ["1.50"]
