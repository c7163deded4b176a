"""Values of JSON, Parquet and ORC files that do not fit the schema are named."""

from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from bad_row_kit import ID_NAME, error, read
from pyarrow import orc, parquet


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"id":1,"name":"a"}\n{"id":2}\n',
            (
                "line 2: column name: the key is missing, the object has 'id'; missing_columns ="
                ' "fill_null" reads null for it'
            ),
        ),
        (
            '{"id":1,"name":"a"}\n{"id":2,"nmae":null,"x":{"name":null}}\n',
            "line 2: column name: the key is missing, the object has 'id', 'nmae', 'x'",
        ),
        (
            '{"id":1,"name":"a"}\n{"id":2,"id":3,"name":"b"}\n',
            "line 2: column id: the key 'id' occurs more than once",
        ),
        (
            '{"id":1,"name":"a"}\n{"id":[2],"name":"b"}\n',
            "line 2: column id: '[2]' is not a whole number",
        ),
        (
            '{"id":1,"name":"a"}\n{"id":2.5,"name":"b"}\n',
            "line 2: column id: '2.5' is not a whole number",
        ),
        (
            '{"id":1,"name":"a"}\n{"id":3000000000,"name":"b"}\n',
            "line 2: column id: '3000000000' does not fit into int",
        ),
        ('{"id":1,"name":"a"}\n{"id":2,"name":"b"\n', "line 2: this is not JSON"),
        (
            '{"id":1,"name":"a"}\n{"id":2,"name":"b"} garbage\n',
            "line 2: this is not JSON: Expecting value: 'garbage",
        ),
        ('{"id":1,"name":"a"}\n[7]\n', "line 2: a row is an object, not 7"),
        ('[\n{"id":1,"name":"a"},\n{"id":2}\n]', "line 3: column name: the key is missing"),
        ('[\n{"id":1,"name":"a"}\n', "line 3: this is not JSON: the array is not closed"),
        ('[\n{"id":1,"name":"a"}\n] x', "line 3: this is not JSON"),
        ('[\n{"id":1,"name":"a"},\n]', "line 3: this is not JSON: an element is missing"),
        ('{\n"id":1,\n"name":"a"\n', "line 4: this is not JSON"),
        ('{\n"id":"x",\n"name":"a"\n}', "line 1: column id: 'x' is not a whole number"),
    ],
)
def test_a_json_row_that_does_not_fit_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "f").write_text(text)
    assert error(tmp_path, "json", ID_NAME).startswith(message)


def test_json_nulls_are_distinguished_from_missing_keys(tmp_path: Path) -> None:
    schema = {"a": "int", "r": {"x": "int", "y": "int"}}
    good = (
        '{"a":null,"r":{"x":1,"y":null},"other":{"a":1}}\n{"a":'
        ' null,"r":null}\n{"a":\tnull,"r":{"x":1,"y":2}}\n'
    )
    (tmp_path / "f").write_text(good)
    rows = [
        {"a": None, "r": {"x": 1, "y": None}},
        {"a": None, "r": None},
        {"a": None, "r": {"x": 1, "y": 2}},
    ]
    assert read(tmp_path, "json", schema) == rows
    (tmp_path / "f").write_text(good + '{"a":1,"r":{"x":1}}\n')
    assert error(tmp_path, "json", schema).startswith("line 4: column r: {'x': 1} has no key 'y'")
    (tmp_path / "f").write_text(good + '{"other":{"a":null},"r":null}\n')
    assert error(tmp_path, "json", schema).startswith("line 4: column a: the key is missing")
    assert read(tmp_path, "json", schema, missing_columns="fill_null")[3] == {"a": None, "r": None}


def test_json_numbers_keep_their_digits(tmp_path: Path) -> None:
    (tmp_path / "f").write_text('{"d":12345678901234567.89,"s":1.10}\n')
    assert read(tmp_path, "json", {"d": "decimal(20,2)", "s": "string"}) == [
        {"d": Decimal("12345678901234567.89"), "s": "1.10"}
    ]


def write(path: Path, form: str, table: pa.Table) -> None:
    if form == "parquet":
        parquet.write_table(table, path, row_group_size=2)
    else:
        orc.write_table(table, str(path))


@pytest.mark.parametrize("form", ["parquet", "orc"])
@pytest.mark.parametrize(
    ("values", "given", "kind", "message"),
    [
        (
            [1, 2, 2**40],
            pa.int64(),
            "int",
            "row 3: column v: '1099511627776' (int64) does not fit into int",
        ),
        (
            [1.0, 2.5, 3.0],
            pa.float64(),
            "int",
            "row 2: column v: '2.5' (double) does not fit into int",
        ),
        (
            [1.5, 1.23456],
            pa.float64(),
            "decimal(10,2)",
            "row 2: column v: '1.23456' (double) does not fit into decimal(10,2); excess_digits",
        ),
        (
            [1.0, 1e300],
            pa.float64(),
            "float",
            "row 2: column v: '1e+300' (double) does not fit into float",
        ),
        (
            [0, 1, 5],
            pa.int32(),
            "boolean",
            "row 3: column v: '5' (int32) does not fit into boolean",
        ),
        (["1", "x"], pa.string(), "int", "row 2: column v: 'x' (string) does not fit into int"),
        (
            [Decimal("1.10"), Decimal("1.123")],
            pa.decimal128(10, 3),
            "decimal(10,2)",
            "row 2: column v: '1.123'",
        ),
        (
            [Decimal("1.1"), Decimal("12345.1")],
            pa.decimal128(10, 1),
            "decimal(4,1)",
            "row 2: column v: '12345.1'",
        ),
        (
            [datetime(2024, 1, 1), datetime(2024, 1, 1, 12)],
            pa.timestamp("us"),
            "date",
            "row 2: column v: '2024-01-01 12:00:00'",
        ),
        ([1, 2], pa.int32(), "date", "row 1: column v: '1' (int32) does not fit into date"),
        ([2**60, 2**60 + 1], pa.int64(), "double", "row 1: column v: "),
    ],
)
def test_a_column_that_does_not_fit_its_type_is_named_with_its_row(
    tmp_path: Path, form: str, values: Any, given: Any, kind: str, message: str
) -> None:
    write(tmp_path / "f", form, pa.table({"k": ["a"] * len(values), "v": pa.array(values, given)}))
    text = error(tmp_path, form, {"k": "string", "v": kind})
    if form == "orc":
        text = text.replace("timestamp[ns]", "timestamp[us]")
    assert text.startswith(message)


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_columns_that_a_file_lacks_or_has_no_values_for_are_named(
    tmp_path: Path, form: str
) -> None:
    write(tmp_path / "f", form, pa.table({"id": [1, None, 3], "label": ["a", "b", "c"]}))
    assert error(tmp_path, form, ID_NAME).startswith(
        "has no column 'name'; it has 'id', 'label'. Correct the schema"
    )
    assert error(tmp_path, form, {"x": "int"}, missing_columns="fill_null").startswith(
        "has no column 'x'"
    )
    assert [row["name"] for row in read(tmp_path, form, ID_NAME, missing_columns="fill_null")] == [
        None
    ] * 3
    strict = [{"name": "id", "type": "bigint", "nullable": False}]
    assert (
        error(tmp_path, form, strict)
        == "row 2: column id: the value is null, and the column is not nullable"
    )
    write(tmp_path / "g", form, pa.table({"id": [1], "label": ["a"], "more": [1]}))
    assert "has 'more', which the first file of the table lacks: add a schema" in error(
        tmp_path, form, None
    )
    assert len(read(tmp_path, form, {"id": "bigint", "label": "string"})) == 4


def test_rows_of_parquet_are_counted_over_row_groups(tmp_path: Path) -> None:
    write(tmp_path / "f", "parquet", pa.table({"v": pa.array([*range(99), 2**40], pa.int64())}))
    assert error(tmp_path, "parquet", {"v": "int"}, 7).startswith("row 100: column v: ")


def test_nanoseconds_of_parquet_are_cut_only_by_option(tmp_path: Path) -> None:
    write(tmp_path / "f", "parquet", pa.table({"t": pa.array([1000, 1001], pa.timestamp("ns"))}))
    assert error(tmp_path, "parquet", {"t": "timestamp"}).startswith("row 2: column t: ")
    assert [
        r["t"] for r in read(tmp_path, "parquet", {"t": "timestamp"}, excess_digits="round")
    ] == [datetime(1970, 1, 1, 0, 0, 0, 1)] * 2


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_a_damaged_file_is_named_wherever_the_damage_is(tmp_path: Path, form: str) -> None:
    write(tmp_path / "f", form, pa.table({"v": [f"value {i}" for i in range(5000)]}))
    whole = (tmp_path / "f").read_bytes()
    for damaged in (
        whole[:-10],
        whole[: len(whole) // 2],
        b"x" * 20 + whole[20:],
        whole[:-4] + b"none",
    ):
        (tmp_path / "f").write_bytes(damaged)
        if damaged == b"x" * 20 + whole[20:] and form == "orc":
            continue  # the first bytes of an orc file may hold nothing that is read
        assert f"cannot be read as {form}" in error(tmp_path, form, {"v": "string"})
