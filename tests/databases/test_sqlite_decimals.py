"""Decimals in SQLite: numbers if SQLite represents them exactly, otherwise exact texts."""

from decimal import Decimal

import pytest
from database_kit import Driven, Place, everything, sink, source, table

VALUES = {
    "decimal(12,2)": ["9.50", "100.00", "-3.05", "9999999999.99", "0.01", "12.30"],
    "decimal(15,15)": ["0.123456789012345", "0.999999999999999", "0.000000000000001"],
    "decimal(15,0)": ["999999999999999", "-1", "0"],
    "decimal(18,0)": ["999999999999999999", "-999999999999999999", "7"],
    "decimal(20,2)": ["123456789012345678.91", "9.50", "100.00"],
    "decimal(38,18)": ["12345678901234567890.123456789012345678", "0.000000000000000001"],
}
NUMBERS = ("decimal(12,2)", "decimal(15,15)", "decimal(15,0)", "decimal(18,0)")


@pytest.mark.parametrize("kind", VALUES)
def test_decimals_survive_a_round_trip(lite: Place, kind: str) -> None:
    orders = table("orders", ["id"], id="bigint", amount=kind)
    given = [(number, Decimal(text)) for number, text in enumerate(VALUES[kind])]
    Driven(sink(lite, table="orders")).batch(1, (orders, given))
    found = everything(source(lite, table_path="orders")).sort_by("id")
    assert found.column("amount").to_pylist() == [value for _, value in given]


@pytest.mark.parametrize("kind", NUMBERS)
def test_decimals_that_are_exact_numbers_compare_and_sort_as_numbers(
    lite: Place, kind: str
) -> None:
    orders = table("orders", ["id"], id="bigint", amount=kind)
    values = [Decimal(text) for text in VALUES[kind]]
    Driven(sink(lite, table="orders")).batch(1, (orders, list(enumerate(values))))
    ordered = [number for (number,) in lite.execute("select id from orders order by amount")]
    assert [values[number] for number in ordered] == sorted(values)
    (above,) = lite.execute("select count(*) from orders where amount > 100")[0]
    assert above == sum(value > 100 for value in values)


@pytest.mark.parametrize("kind", ["decimal(12,2)", "decimal(20,2)"])
def test_decimal_key_matches_its_row(lite: Place, kind: str) -> None:
    prices = table("prices", ["amount"], amount=kind, name="string")
    driven = Driven(sink(lite, table="prices"))
    driven.batch(1, (prices, [(Decimal("12.30"), "old"), (Decimal("100.00"), "old")]))
    driven.batch(2, (prices, [(Decimal("12.30"), "new")]))
    found = everything(source(lite, table_path="prices")).to_pylist()
    assert sorted((row["amount"], row["name"]) for row in found) == [
        (Decimal("12.30"), "new"),
        (Decimal("100.00"), "old"),
    ]


def test_existing_text_columns_keep_their_texts(lite: Place) -> None:
    lite.execute("create table orders (id bigint primary key, amount decimal_text(12,2))")
    orders = table("orders", ["id"], id="bigint", amount="decimal(12,2)")
    Driven(sink(lite, table="orders")).batch(1, (orders, [(1, Decimal("12.30"))]))
    assert lite.execute("select amount from orders") == [("12.30",)]
