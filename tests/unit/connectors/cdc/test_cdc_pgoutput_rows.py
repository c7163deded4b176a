"""Decoding of messages to batches, in Python and compiled: the same rows and errors."""

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.databases.cdc.errors import TableChanged
from tidegate.databases.postgres import pgoutput_messages as messages
from tidegate.databases.postgres import pgoutput_reader as reader
from tidegate.databases.postgres import pgoutput_rows as rows
from tidegate.databases.postgres.pgoutput_errors import IdentityMissing, SlotDamaged
from tidegate.databases.postgres.pgoutput_reader import MessageReader, SlotTable
from tidegate.databases.postgres.pgoutput_row_layout import layout_of
from tidegate.databases.postgres.pgoutput_rows import compiled_module
from tidegate.databases.postgres.pgoutput_stream import SlotRange
from tidegate.model.errors import TidegateError
from tidegate.model.types import Column, Table, parse_type

DECODERS = [None, *([compiled_module()] if compiled_module() is not None else [])]
"""The Python decoder, and the compiled one if it was built."""
TYPES = {"id": "bigint", "note": "string", "amount": "decimal(12,2)", "at": "timestamp_tz"}
ORDERS, OTHER = 7, 8
UNTOLD = "u"
PATH = "shop.public.orders"


def layout(
    number: int = ORDERS, table: str = "orders", names: tuple[str, ...] = tuple(TYPES)
) -> bytes:
    columns = b"".join(b"\0" + name.encode() + b"\0" + struct.pack(">Ii", 25, -1) for name in names)
    return (
        b"R"
        + struct.pack(">I", number)
        + b"public\0"
        + table.encode()
        + b"\0f"
        + struct.pack(">H", len(names))
        + columns
    )


def image(values: tuple[Any, ...]) -> bytes:
    parts = (
        (
            b"n"
            if v is None
            else b"u"
            if v == UNTOLD
            else b"t" + struct.pack(">I", len(v.encode())) + v.encode()
        )
        for v in values
    )
    return struct.pack(">H", len(values)) + b"".join(parts)


def begin(position: int) -> bytes:
    return b"B" + struct.pack(">QqI", position, 0, 3)


def row(kind: bytes, *images: tuple[bytes, tuple[Any, ...]], number: int = ORDERS) -> bytes:
    return (
        kind
        + struct.pack(">I", number)
        + b"".join(letter + image(values) for letter, values in images)
    )


def reading(fast: Any, start: int = 100, end: int = 200) -> MessageReader:
    columns = tuple(Column(name=name, type=parse_type(kind)) for name, kind in TYPES.items())
    table = Table(path=PATH, columns=columns, primary_key=("id",), kinds=True)
    wanted = SlotTable(
        layout=layout_of([[name, kind] for name, kind in TYPES.items()]), table=table
    )
    return MessageReader(
        SlotRange(slot="s", publication="p", start=start, end=end), {PATH: wanted}, "shop", fast
    )


def outcome(
    fast: Any, data: list[bytes], size: int = 1000
) -> tuple[list[list[dict[str, Any]]], str]:
    """Return all batches, and the error at the end."""
    found: list[list[dict[str, Any]]] = []
    one = reading(fast)
    try:
        for at in range(0, len(data), size):
            found += [batch.to_pylist() for _, batch in one.take(data[at : at + size])]
        found += [batch.to_pylist() for _, batch in one.remaining()]
    except TidegateError as error:
        return found, f"{type(error).__name__}: {error}"
    return found, ""


A, B = ("1", "a", "1.50", "2024-05-06 07:08:09.5+00"), ("2", None, "-3.00", None)


@pytest.mark.parametrize("fast", DECODERS)
def test_changes_are_rows_with_their_kinds_and_only_those_of_the_range(fast: Any) -> None:
    data = [
        layout(),
        layout(OTHER, "other"),
        begin(99),
        row(b"I", (b"N", A)),
        begin(100),
        row(b"I", (b"N", A)),
        row(b"I", (b"N", ("x",)), number=OTHER),
        row(b"U", (b"O", A), (b"N", B)),
        row(b"U", (b"N", B)),
        row(b"U", (b"K", ("2", None, None, None)), (b"N", A)),
        row(b"D", (b"K", ("1", None, None, None))),
        b"C" + bytes(25),
        begin(200),
        row(b"D", (b"K", ("1", None, None, None))),
    ]
    (batch,), wrong = outcome(fast, data)
    assert wrong == ""
    assert [(r["__row_kind"], r["id"], r["note"]) for r in batch] == [
        (0, 1, "a"), (1, 1, "a"), (2, 2, None), (2, 2, None), (3, 2, None), (0, 1, "a"), (3, 1, None)
    ]  # fmt: skip


@pytest.mark.parametrize("fast", DECODERS)
def test_unchanged_values_come_from_the_before_image(fast: Any) -> None:
    whole = row(b"U", (b"O", A), (b"N", ("1", UNTOLD, "2.00", None)))
    (batch,), _ = outcome(fast, [layout(), begin(100), whole])
    assert [r["note"] for r in batch] == ["a", "a"]
    _, wrong = outcome(fast, [layout(), begin(100), row(b"U", (b"N", ("1", UNTOLD, UNTOLD, None)))])
    assert "IdentityMissing" in wrong
    assert "left note, amount unchanged" in wrong


@pytest.mark.parametrize("fast", DECODERS)
def test_a_batch_ends_where_it_is_full_and_where_the_layout_changes(
    fast: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "BATCH_ROWS_MAX", 3)
    moved = layout(names=("at", "amount", "note", "id"))
    data = [
        layout(),
        begin(100),
        *[row(b"I", (b"N", A))] * 4,
        row(b"U", (b"O", A), (b"N", A)),
        moved,
        row(b"I", (b"N", tuple(reversed(B)))),
    ]
    found, wrong = outcome(fast, data)
    assert ([len(batch) for batch in found], wrong) == ([3, 3, 1], "")
    assert found[-1][0]["id"] == 2
    monkeypatch.setattr(reader, "BUFFERED_BYTES_MAX", 10)
    assert [len(batch) for batch in outcome(fast, data)[0]] == [1, 1, 1, 1, 2, 1]


@pytest.mark.parametrize("fast", DECODERS)
def test_truncated_or_altered_table_stops_reading(fast: Any) -> None:
    empty = b"T" + struct.pack(">IB", 2, 0) + struct.pack(">II", OTHER, ORDERS)
    one = reading(fast)
    assert (
        list(one.take([layout(), layout(OTHER, "other"), begin(10), empty])) == []
    )  # not of the range
    with pytest.raises(TableChanged, match="TRUNCATE"):
        list(one.take([begin(100), empty]))
    altered = layout(names=("id", "note", "amount", "extra"))
    one = reading(fast)
    assert list(one.take([altered, begin(100)])) == []  # no row of it in the range
    with pytest.raises(TableChanged, match="it got extra and it lost at"):
        list(one.take([row(b"I", (b"N", A))]))


HOSTILE = [
    b"",
    b"B\0\0",
    b"I",
    b"I" + struct.pack(">I", ORDERS),
    b"I" + struct.pack(">I", 99) + b"N\0\0",
    row(b"I", (b"N", ("1",))),
    row(b"I", (b"O", A)),
    row(b"I", (b"O", A), (b"N", A)),
    row(b"D", (b"N", A)),
    row(b"U", (b"O", A)),
    row(b"I", (b"N", A)) + b"!",
    row(b"I", (b"N", A))[:-1],
    b"I" + struct.pack(">I", ORDERS) + b"N\0\4t\xff\xff\xff\xff1",
    b"I" + struct.pack(">I", ORDERS) + b"N\xff\xff" + b"n" * 40,
    b"T" + struct.pack(">IB", 0xFFFFFFFF, 0),
    b"R" + struct.pack(">I", ORDERS) + b"public\0orders\0f\xff\xff",
]


@pytest.mark.parametrize("fast", DECODERS)
@pytest.mark.parametrize("message", HOSTILE)
def test_invalid_messages_raise_damage_without_allocating(fast: Any, message: bytes) -> None:
    one = reading(fast)
    with pytest.raises(SlotDamaged):
        list(one.take([layout(), begin(100), row(b"I", (b"N", A)), message]))


def test_both_decoders_raise_the_same_errors() -> None:
    assert issubclass(IdentityMissing, TidegateError)
    for message in HOSTILE:
        data = [layout(), begin(100), row(b"I", (b"N", A)), message]
        assert len({str(outcome(fast, data)) for fast in DECODERS}) == 1


values = st.none() | st.sampled_from(
    ["1", "-25.5", "", "é😀", UNTOLD, "2024-05-06 07:08:09+00", "infinity"]
)
rows_of_text = st.tuples(
    st.integers(-5, 2**40).map(str),
    values,
    st.sampled_from(["1", "2.25"]) | st.none(),
    st.just("2024-05-06 07:08:09+00") | st.none(),
)
images = st.sampled_from([b"N", b"O", b"K"]).flatmap(
    lambda letter: st.tuples(st.just(letter), rows_of_text)
)
changes = st.builds(
    lambda kind, found, number: row(kind, *found, number=number),
    st.sampled_from([b"I", b"U", b"D"]),
    st.lists(images, min_size=1, max_size=2),
    st.sampled_from([ORDERS, ORDERS, OTHER]),
)
sound = st.one_of(
    rows_of_text.map(lambda v: row(b"I", (b"N", tuple(None if x == UNTOLD else x for x in v)))),
    st.tuples(rows_of_text, rows_of_text).map(
        lambda p: row(b"U", (b"O", tuple(None if x == UNTOLD else x for x in p[0])), (b"N", p[1]))
    ),
    rows_of_text.map(lambda v: row(b"D", (b"K", v))),
    st.integers(95, 205).map(begin),
    st.sampled_from(
        [
            layout(),
            layout(OTHER, "other"),
            layout(names=("note", "id", "at", "amount")),
            b"C" + bytes(25),
            b"Y",
            b"M\0",
        ]
    ),
)


@settings(derandomize=True, max_examples=100)
@given(st.lists(sound | changes, max_size=30), st.integers(1, 7))
def test_both_decoders_return_the_same_batches(data: list[bytes], size: int) -> None:
    data = [layout(), layout(OTHER, "other"), begin(150), *data]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "BATCH_ROWS_MAX", 4)
        patch.setattr(reader, "BUFFERED_BYTES_MAX", 400)
        assert outcome(None, data, size) == outcome(DECODERS[-1], data, size)


@settings(derandomize=True, max_examples=100)
@given(st.lists(sound, min_size=1, max_size=8), st.data())
def test_corrupt_messages_have_the_same_result_in_both_decoders(
    data: list[bytes], draw: st.DataObject
) -> None:
    whole = [layout(), begin(150), *data]
    broken = bytearray(whole[which := draw.draw(st.integers(0, len(whole) - 1))])
    for _ in range(draw.draw(st.integers(0, 3))):
        broken[draw.draw(st.integers(0, len(broken) - 1))] = draw.draw(st.integers(0, 255))
    whole[which] = bytes(broken[: draw.draw(st.integers(0, len(broken)))])
    assert outcome(None, whole) == outcome(DECODERS[-1], whole)


@settings(derandomize=True, max_examples=100)
@given(
    st.lists(
        st.tuples(st.sampled_from(b"BCRIUDTX"), st.binary(max_size=40)).map(
            lambda t: bytes([t[0]]) + t[1]
        ),
        max_size=6,
    )
)
def test_random_messages_have_the_same_result_in_both_decoders(data: list[bytes]) -> None:
    assert outcome(None, [layout(), begin(150), *data]) == outcome(
        DECODERS[-1], [layout(), begin(150), *data]
    )


def test_environment_disables_the_compiled_decoder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TIDEGATE_PURE_PYTHON", "1")
    assert rows.compiled_module() is None


def test_the_tables_of_a_truncate_are_counted() -> None:
    assert messages.truncated_tables(b"T" + struct.pack(">IBII", 2, 0, 5, 6)) == [5, 6]
