"""Parsing of pgoutput: messages, values in text format, and corrupt messages."""

import struct
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.databases.errors import ValueUnreadable
from tidegate.databases.postgres import lsn
from tidegate.databases.postgres import pgoutput_messages as messages
from tidegate.databases.postgres.pgoutput_columns import array_of, elements
from tidegate.databases.postgres.pgoutput_errors import SlotDamaged
from tidegate.databases.postgres.pgoutput_reader import with_mask
from tidegate.databases.postgres.pgoutput_rows import compiled_module
from tidegate.databases.postgres.pgoutput_stream import rows_of_copy
from tidegate.model.errors import TidegateError
from tidegate.model.types import parse_type


def test_positions_are_numbers_in_two_halves() -> None:
    assert lsn.number("16/B374D848") == 0x16B374D848
    assert lsn.text(0x16B374D848) == "16/B374D848"


def test_a_layout_and_its_rows_are_read() -> None:
    columns = b"\1id\0" + struct.pack(">Ii", 20, -1) + b"\0note\0" + struct.pack(">Ii", 25, -1)
    relation = messages.relation(
        b"R" + struct.pack(">I", 7) + b"public\0orders\0f" + struct.pack(">H", 2) + columns
    )
    assert (relation.id, relation.schema, relation.table) == (7, "public", "orders")
    assert [c[0] for c in relation.columns] == ["id", "note"]
    row = b"\0\2t\0\0\0\1" + b"5" + b"u"
    update = messages.row_change(
        b"U" + struct.pack(">I", 7) + b"O\0\2t\0\0\0\1" + b"5" + b"n" + b"N" + row
    )
    assert (update.before, update.after, update.has_full_before) == (
        [b"5", None],
        [b"5", messages.UNCHANGED],
        True,
    )
    assert messages.begin(b"B" + struct.pack(">QqI", 99, 0, 3)) == (99, 3)


@pytest.mark.parametrize(
    "data",
    [
        b"I\0\0\0\7N\0\1t\0\0\0\5ab",
        b"D\0\0\0\7",
        b"I\0\0\0\7N\0\1x",
        b"U\0\0\0\7N\0\1n!",
        b"D\0\0\0\7N\0\0",
    ],
)
def test_invalid_rows_raise_damage(data: bytes) -> None:
    with pytest.raises(SlotDamaged):
        messages.row_change(data)


@settings(derandomize=True, max_examples=300)
@given(st.sampled_from(b"BCRIUDT"), st.binary(max_size=60))
def test_random_messages_are_parsed_or_rejected(kind: int, rest: bytes) -> None:
    data = bytes([kind]) + rest
    try:
        {messages.BEGIN: messages.begin, messages.RELATION: messages.relation}.get(
            kind, messages.row_change
        )(data)
    except TidegateError:
        return


@pytest.mark.parametrize("fast", [None, compiled_module()])
def test_copy_is_parsed_in_any_chunks(fast: Any) -> None:
    whole = (
        b"PGCOPY\n\xff\r\n\0"
        + b"\0" * 8
        + b"".join(b"\0\1" + struct.pack(">I", len(v)) + v for v in (b"one", b"", b"three"))
        + b"\xff\xff"
    )
    for size in (1, 3, 19, 200):
        for many in (1, 2, 50):
            chunks = [whole[n : n + size] for n in range(0, len(whole), size)]
            lists = [chunks[n : n + many] for n in range(0, len(chunks), many)]
            assert [row for found in rows_of_copy(lists, fast) for row in found] == [
                b"one",
                b"",
                b"three",
            ]
    usual = [[whole[:28]], [b"\0\1\0\0\0\0"], [b"\0\1\0\0\0\5three", b"\xff\xff"]]
    assert [row for found in rows_of_copy(usual, fast) for row in found] == [b"one", b"", b"three"]
    with pytest.raises(SlotDamaged, match="ends within a row"):
        list(rows_of_copy([[whole[:-4]]], fast))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("boolean", "t", True),
        ("bigint", "-9223372036854775808", -(2**63)),
        ("decimal(12,2)", "-1234567890.12", Decimal("-1234567890.12")),
        ("double", "-Infinity", float("-inf")),
        ("double", "0.1", 0.1),
        ("bytes", "\\x00ff", b"\0\xff"),
        ("date", "2020-02-29", date(2020, 2, 29)),
        ("date", "infinity", None),
        ("time", "23:59:59.5", time(23, 59, 59, 500_000)),
        ("timestamp", "1999-12-31 23:59:59.999999", datetime(1999, 12, 31, 23, 59, 59, 999_999)),
        ("timestamp", "-infinity", None),
        (
            "timestamp_tz",
            "2024-05-06 07:08:09.01+00",
            datetime(2024, 5, 6, 7, 8, 9, 10_000, tzinfo=UTC),
        ),
        ("array<int>", "{1,NULL,-3}", [1, None, -3]),
        ("array<string>", '{"a b",NULL,"NULL","q\\"\\\\",""}', ["a b", None, "NULL", 'q"\\', ""]),
        ("string", "plain", "plain"),
    ],
)
def test_values_are_parsed_from_text(kind: str, text: str, value: Any) -> None:
    found = array_of([None, text.encode(), None], parse_type(kind), "c")
    assert found.to_pylist() == [None, value, None]


def test_years_beyond_four_digits_and_before_the_first_keep_their_days() -> None:
    days = (
        array_of([b"0044-03-15 BC", b"0001-01-01", b"12024-01-01"], parse_type("date"), "c")
        .cast(pa.int32())
        .to_pylist()
    )
    assert days == [-735160, -719162, 3672148]
    (micros,) = (
        array_of([b"0001-12-31 00:00:01 BC"], parse_type("timestamp"), "c")
        .cast(pa.int64())
        .to_pylist()
    )
    assert micros == -719_163 * 86_400_000_000 + 1_000_000


def test_a_value_that_does_not_fit_names_its_column() -> None:
    for kind, text in (
        ("decimal(5,2)", b"NaN"),
        ("decimal(38,18)", b"1" + 30 * b"0"),
        ("time", b"24:00:00"),
        ("int", b"x"),
        ("array<int>", b"{{1},{2}}"),
        ("array<int>", b"[0:1]={5,6}"),
    ):
        with pytest.raises(ValueUnreadable, match="column 'amount'"):
            array_of([text], parse_type(kind), "amount")


@settings(derandomize=True, max_examples=200)
@given(
    st.lists(
        st.none()
        | st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=8),
        max_size=6,
    )
)
def test_arrays_of_random_texts_round_trip(values: list[str | None]) -> None:
    quoted = [
        "NULL" if v is None else '"' + v.replace("\\", "\\\\").replace('"', '\\"') + '"'
        for v in values
    ]
    assert elements("{" + ",".join(quoted) + "}") == values


def test_addresses_have_their_mask_as_a_snapshot_reads_them() -> None:
    assert [with_mask(a) for a in (b"10.0.0.1", b"::1", b"10.0.0.0/8", None)] == [
        b"10.0.0.1/32",
        b"::1/128",
        b"10.0.0.0/8",
        None,
    ]
