"""Values of the binary log: JSON numbers, labels, dates, spans, addresses, compression."""

import struct
import zlib
from typing import Any

import pytest

from tidegate.databases.errors import LoggedValueUnfit
from tidegate.databases.mysql.binlog_columns import (
    ColumnTarget,
    decompress_value,
    finisher,
    name_row_in_errors,
    span_text,
)
from tidegate.databases.mysql.binlog_errors import LogDamaged
from tidegate.databases.mysql.binlog_json import double_text, json_text
from tidegate.databases.mysql.binlog_row_layout import LogColumn
from tidegate.databases.mysql.binlog_values import (
    RawColumn,
    compiled_module,
    days_of,
    decoder,
    raw_column,
)
from tidegate.model.types import parse_type

DECODERS = [None, *([compiled_module()] if compiled_module() else [])]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (100.0, "100.0"),
        (1.5, "1.5"),
        (1e14, "100000000000000.0"),
        (1e15, "1e15"),
        (999999999999999.9, "999999999999999.9"),
        (1.5e-07, "0.00000015"),
        (1e-15, "0.000000000000001"),
        (1e-16, "1e-16"),
        (-1.25e-16, "-1.25e-16"),
        (1.7976931348623157e308, "1.7976931348623157e308"),
        (5e-324, "5e-324"),
    ],
)
def test_a_double_is_written_as_the_server_does(value: float, text: str) -> None:
    assert double_text(value) == text
    assert float(text) == value
    assert json_text(b"\x0b" + struct.pack("<d", value)) == text


def test_labels_are_read_as_the_catalogue_escapes_them() -> None:
    column = LogColumn("e", r"enum('a','b\\c','it''s','x,y','\n','\\n','','\0','''')", "utf8mb4")
    assert column.labels == ("a", "b\\c", "it's", "x,y", "\n", "\\n", "", "\0", "'")
    assert LogColumn("v", "varchar(5)", "utf8mb4").labels == ()


@pytest.mark.parametrize("fast", DECODERS)
@pytest.mark.parametrize(
    ("date", "there"),
    [
        ((2024, 2, 29), True),
        ((2023, 2, 29), False),
        ((1900, 2, 29), False),
        ((2000, 2, 29), True),
        ((2023, 4, 31), False),
        ((2023, 12, 31), True),
        ((0, 5, 5), False),
    ],
)
def test_dates_outside_of_the_calendar_are_null(
    date: tuple[int, int, int], there: bool, fast: Any
) -> None:
    year, month, day = date
    found: list[list[Any]] = [[]]
    decoder([raw_column(10, 0, unsigned=False, name="d")], fast)(
        b"\0" + (year << 9 | month << 5 | day).to_bytes(3, "little"), 0, 4, found
    )
    assert (found[0][0] is not None) is there
    assert found[0][0] == days_of(year, month, day)


def test_spans_have_as_many_digits_as_their_column() -> None:
    assert [span_text(-3_600_500_000, digits) for digits in (0, 1, 3, 6)] == [
        "-01:00:00",
        "-01:00:00.5",
        "-01:00:00.500",
        "-01:00:00.500000",
    ]


def finished(raw: RawColumn, values: list[Any], kind: str, **more: Any) -> list[Any]:
    found: list[Any] = finisher(raw, ColumnTarget(name="c", type=parse_type(kind), **more))(
        values
    ).to_pylist()
    return found


def test_compressed_columns_are_unpacked() -> None:
    text = b"a" * 1000
    raw_deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    plain = b"\x8a\x03\xe8" + raw_deflate.compress(text) + raw_deflate.flush()
    wrapped = b"\x82\x03\xe8" + zlib.compress(text)
    column = raw_column(141, 1001, unsigned=False, name="c")
    assert finished(
        column, [plain, wrapped, b"\0short", b"", None], "string", charset="utf8mb4"
    ) == ["a" * 1000, "a" * 1000, "short", "", None]
    for damaged in (b"\x8a\x03\xe9" + plain[3:], b"\x7a\x01a", b"\x81\x01a"):
        with pytest.raises(LogDamaged):
            decompress_value(damaged)


def test_ambiguous_label_of_the_catalogue_is_rejected() -> None:
    column = raw_column(254, 247 << 8 | 1, unsigned=False, name="c")
    labels = ("?", "a")
    assert finished(column, [2, 1], "string", charset="utf8mb4", labels=labels, exact=True) == [
        "a",
        "?",
    ]
    assert finished(column, [2, 1], "string", charset="latin1", labels=labels) == ["a", "?"]
    assert finished(column, [2], "string", charset="utf8mb4", labels=labels) == ["a"]
    with pytest.raises(LoggedValueUnfit, match="binlog_row_metadata = FULL"):
        finished(column, [2, 1], "string", charset="utf8mb4", labels=labels)


def test_unfit_value_is_reported_with_its_row() -> None:
    column = raw_column(19, 0, unsigned=False, name="t")
    with (
        pytest.raises(
            LoggedValueUnfit,
            match=(
                r"a change of shop.t \(id = 8\) has a value of column 'c' that does not fit time:"
                r" 24:00:00.000000 is not"
            ),
        ),
        name_row_in_errors("shop.t", ["id"], ["id", "c"], [[7, 8], [0, 86_400_000_000]]),
    ):
        finished(column, [0, 86_400_000_000], "time")
