"""Loading rows into PostgreSQL: few as text, many by the Arrow driver, with equal values.

Plain inserts while no key can exist, upserts from then on.
"""

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from database_kit import Driven, Place, sink, table

from tidegate.connectors.jdbc import staging_postgres
from tidegate.connectors.jdbc.staging import staging_table_name
from tidegate.connectors.jdbc.staging_postgres import PostgresLoader
from tidegate.databases.errors import StatementRefused
from tidegate.model.types import parse_type
from tidegate.plugin.contract import WriteTask

COLUMNS: dict[str, tuple[Any, list[Any]]] = {
    "bigint": (pa.int64(), [2**63 - 1, None, -(2**63)]),
    "double": (pa.float64(), [0.1 + 0.2, float("nan"), float("-inf")]),
    "float": (pa.float32(), [0.1, 1e-7, 3e38]),
    "boolean": (pa.bool_(), [True, None, False]),
    "decimal(12,2)": (pa.decimal128(12, 2), [Decimal("1.20"), None, Decimal("-0.01")]),
    "decimal(38,0)": (pa.decimal128(38, 0), [Decimal(10**37), None, Decimal(-7)]),
    "date": (pa.date32(), [datetime.date(2024, 2, 29), None, datetime.date(1, 1, 1)]),
    "timestamp": (
        pa.timestamp("us"),
        [datetime.datetime(2024, 1, 1, 23, 59, 59, 5), None, datetime.datetime(9999, 12, 31)],
    ),
    "timestamp_tz": (
        pa.timestamp("us", "UTC"),
        [
            datetime.datetime(2024, 7, 1, tzinfo=datetime.UTC),
            None,
            datetime.datetime(1900, 1, 1, tzinfo=datetime.UTC),
        ],
    ),
    "time": (pa.time64("us"), [datetime.time(1, 2, 3, 4), None, datetime.time(23, 59, 59)]),
    "string": (pa.string(), ["", None, 'quoted "so", with\nlines, \t and ☂ \\N']),
}


def staged_rows(*arrays: Any) -> pa.RecordBatch:
    count = len(arrays[0])
    return pa.RecordBatch.from_arrays(
        [pa.array(range(count), pa.int64()), pa.array([0] * count, pa.int16()), *arrays],
        names=["seq", "kind", *(f"c{n}" for n in range(len(arrays)))],
    )


def loaded(
    place: Place, name: str, kinds: list[str], batch: pa.RecordBatch
) -> list[tuple[Any, ...]]:
    """As the server shows them, to the last digit."""
    loader = PostgresLoader(place.address, place.dialect)
    try:
        where = staging_table_name(place.address, name)
        loader.create(where, [parse_type(kind) for kind in kinds])
        loader.load(where, batch)
    finally:
        loader.close()
    return place.execute(f"select t::text from {name} t order by seq")


def test_few_rows_and_many_are_staged_with_the_same_values(
    pg: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections: list[object] = []
    really = staging_postgres.connect
    monkeypatch.setattr(
        staging_postgres,
        "connect",
        lambda *given, **named: connections.append(1) or really(*given, **named),
    )
    batch = staged_rows(*(pa.array(values, kind) for kind, values in COLUMNS.values()))
    few = loaded(pg, "few", list(COLUMNS), batch)
    assert connections == []
    monkeypatch.setattr(staging_postgres, "FEW_ROWS", 2)
    assert loaded(pg, "many", list(COLUMNS), batch) == few
    assert connections == [1]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("string", pa.array(["before\n\\.\nafter", None, "\\."], pa.string())),  # would end a COPY
        ("bytes", pa.array([b"\x00\xff", None, b""], pa.binary())),
        ("array<int>", pa.array([[1, None], None, []], pa.list_(pa.int32()))),
    ],
    ids=["end-of-copy", "bytes", "lists"],
)
def test_values_without_a_text_use_the_arrow_driver(
    pg: Place, kind: str, values: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = loaded(pg, "few", [kind], staged_rows(values))
    assert len(few) == 3
    monkeypatch.setattr(staging_postgres, "FEW_ROWS", 0)
    assert loaded(pg, "many", [kind], staged_rows(values)) == few


@pytest.mark.parametrize(
    "micros",
    [
        2**63 - 1,
        -(2**63) + 1,
        -(2**62),
        -62_167_219_200_000_000,
        -62_200_000_000_000_000,
        253_402_300_800_000_000,
    ],
)
def test_timestamps_beyond_python_are_preserved(
    pg: Place, micros: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ends of time, and years before the first and after the 9999th; one that the server does
    not take is refused in both ways.
    """
    batch = staged_rows(pa.array([micros, None], pa.int64()).view(pa.timestamp("us")))

    def rows(name: str) -> list[tuple[Any, ...]] | type[Exception]:
        try:
            return loaded(pg, name, ["timestamp"], batch)
        except StatementRefused as error:
            return type(error)

    few = rows("few")
    monkeypatch.setattr(staging_postgres, "FEW_ROWS", 0)
    assert rows("many") == few


@pytest.mark.parametrize("few_rows", [2000, 0], ids=["staged", "shaped"])
@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (
            "timestamp",
            pa.array([0, -(2**63)], pa.int64()).view(pa.timestamp("us")),
            "-9223372036854775808 microseconds after 1970 is before 4714-11-24 BC",
        ),
        (
            "timestamp",
            pa.array([0, -(2**62)], pa.int64()).view(pa.timestamp("us")),
            "timestamp out of range",
        ),
        ("string", pa.array(["", "a\0b"]), "invalid byte sequence"),
    ],
    ids=["driver", "server", "text"],
)
def test_value_that_cannot_be_staged_is_named_and_leaves_nothing(
    pg: Place, few_rows: int, kind: str, values: Any, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed COPY holds its table for as long as its connection lives."""
    monkeypatch.setattr(staging_postgres, "FEW_ROWS", few_rows)
    orders = table("shop.orders", id="bigint", seen=kind)
    writer = sink(pg, table="orders").writer(
        WriteTask(lineage="L", checkpoint=1, generation=1, subtask=0, token="t")
    )
    writer.write(
        orders,
        pa.RecordBatch.from_arrays([pa.array([1, 2], pa.int64()), values], names=orders.names()),
    )
    with pytest.raises(
        StatementRefused, match=f"rows of table 'shop.orders'.*{expected}"
    ) as refused:
        writer.close()
    assert ("column 'seen'" if few_rows else "column seen") in str(refused.value)
    writer.abort()
    assert pg.our_tables() == []


def test_repeated_keys_are_replaced_after_plain_inserts(pg: Place) -> None:
    orders = table("shop.orders", ["id"], id="bigint", name="string")
    driven = Driven(sink(pg, table="orders"))
    driven.batch(1, (orders, [(1, "a"), (2, "b")]))
    driven.batch(2, (orders, [(3, "c")]))
    driven.batch(3, (orders, [(3, "d"), (4, "e"), (4, "f")]))
    driven.batch(4, (orders, [(5, "g"), (1, "h")]))
    assert pg.execute("select id, name from orders order by id") == [
        (1, "h"),
        (2, "b"),
        (3, "d"),
        (4, "f"),
        (5, "g"),
    ]


def test_later_row_of_a_key_in_the_first_batch_wins(pg: Place) -> None:
    orders = table("shop.orders", ["id"], id="bigint", name="string")
    Driven(sink(pg, table="orders")).batch(1, (orders, [(1, "a"), (1, "b")]))
    assert pg.execute("select id, name from orders") == [(1, "b")]
