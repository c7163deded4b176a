"""Values as written in job files, for every type."""

import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidegate.model.types import parse_type
from tidegate.plugin.arrow import arrow_type
from tidegate.plugin.literal import literal


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        ("string", 12, "12"),
        ("string", True, "true"),
        ("string", {"a": 1}, '{"a": 1}'),
        ("boolean", "TRUE", True),
        ("tinyint", " 7 ", 7),
        ("bigint", 5.0, 5),
        ("double", "1.5", 1.5),
        ("decimal(10, 2)", 1.005, Decimal("1.01")),
        ("decimal(30, 8)", 99999.99999999, Decimal("99999.99999999")),
        ("null", "anything", None),
        ("bytes", "bWlJWmo=", b"miIZj"),
        ("date", "2012-12-21", date(2012, 12, 21)),
        ("date", "2012/1/2", date(2012, 1, 2)),
        ("date", "20121221", date(2012, 12, 21)),
        ("time", "12:34:56.123456789", time(12, 34, 56, 123456)),
        ("timestamp", "2012-12-21T12:34:56", datetime(2012, 12, 21, 12, 34, 56)),
        ("timestamp", "2012-12-21 12:34:56.5", datetime(2012, 12, 21, 12, 34, 56, 500000)),
        ("timestamp", "20121221123456", datetime(2012, 12, 21, 12, 34, 56)),
        (
            "timestamp_tz",
            "2012-12-21T12:34:56+02:00",
            datetime(2012, 12, 21, 10, 34, 56, tzinfo=UTC),
        ),
        ("array<int>", [1, "2"], [1, 2]),
        ("map<time, string>", "{ 12:01:26 = v0 }", [(time(12, 1, 26), "v0")]),
        ("map<string, int>", '{"a": 1}', [("a", 1)]),
        ("row<a int, b string>", [1, "x"], {"a": 1, "b": "x"}),
        ("row<a int, b string>", {"b": "x"}, {"a": None, "b": "x"}),
        ("float_vector", [1, 2], [1.0, 2.0]),
        ("sparse_float_vector", {"3": 0.5}, [(3, 0.5)]),
        ("binary_vector", [1, 255], b"\x01\xff"),
    ],
)
def test_value_is_converted_to_its_type_and_accepted_by_arrow(
    kind: str, raw: Any, value: Any
) -> None:
    assert literal(parse_type(kind), raw) == value
    assert literal(parse_type(kind), None) is None
    pa.array([value], type=arrow_type(parse_type(kind))).validate(full=True)


@pytest.mark.parametrize(
    ("kind", "raw", "said"),
    [
        ("tinyint", 128, "128 is no tinyint"),
        ("int", 1.5, "1.5 is no int"),
        ("int", True, "true is no int"),
        ("boolean", "yes", "neither true nor false"),
        ("decimal(4, 2)", "100.00", "does not fit"),
        ("decimal(4, 2)", "x", "is no decimal"),
        ("bytes", "not base64!", "base64"),
        ("date", "yesterday", "is no date"),
        ("time", "25:00:00", "is no time"),
        ("timestamp", "soon", "is no timestamp"),
        ("array<int>", 5, "is no array<int>"),
        ("map<string, int>", [1], "is no map<string,int>"),
        ("row<a int, b array<int>>", [1, ["x"]], 'b: "x" is no int'),
    ],
)
def test_invalid_value_is_an_error(kind: str, raw: Any, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        literal(parse_type(kind), raw)
