"""Transforms that only Spark executes: JsonPath, DataValidator, FieldEncrypt."""

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from transforms_kit import (
    by_spark,
    table_and_batch,
    transform_of,
)

from tidegate.connectors.columns.spark import rejected
from tidegate.model.types import Column, Table, parse_type
from tidegate.plugin.arrow import table_schema
from tidegate.spark.types import struct_of


@pytest.fixture(autouse=True)
def times_of_day(spark: SparkSession) -> None:
    """Spark keeps the type TIME behind a setting."""
    spark.conf.set("spark.sql.timeType.enabled", "true")


JSON = """{"data": {"s": "this is a string", "b": true, "i": 42, "f": 3.14, "dec": 10.55,
"day": "2023-10-29", "t": "16:12:43.459",
"xs": ["item1", "item2"], "o": {"k": 1.5}, "n": null, "num": "17",
"odd key": 1, "ts": "2023-10-29T10:11:12"}}"""


def json_table(
    spark: SparkSession, columns: list[dict[str, Any]], text: str = JSON, **more: Any
) -> list[dict[str, Any]]:
    transform = transform_of("JsonPath", {"columns": columns, **more})
    table = Table(
        path="t",
        columns=(
            Column(name="data", type=parse_type("string")),
            Column(name="raw", type=parse_type("bytes")),
        ),
    )
    batch = pa.RecordBatch.from_pylist(
        [{"data": text, "raw": text.encode()}, {"data": None, "raw": None}], table_schema(table)
    )
    return by_spark(spark, transform, table, batch).to_pylist()


def test_json_path_extracts_values_of_every_type(spark: SparkSession) -> None:
    wanted: dict[str, tuple[str, str, Any]] = {
        "s": ("$.data.s", "string", "this is a string"),
        "b": ("$.data.b", "boolean", True),
        "i": ("$.data.i", "int", 42),
        "f": ("$.data.f", "double", 3.14),
        "dec": ("$.data.dec", "decimal(4,2)", Decimal("10.55")),
        "day": ("$.data.day", "date", dt.date(2023, 10, 29)),
        "t": ("$.data.t", "time", dt.time(16, 12, 43, 459000)),
        "ts": ("$.data.ts", "timestamp", dt.datetime(2023, 10, 29, 10, 11, 12)),
        "xs": ("$.data.xs", "array<string>", ["item1", "item2"]),
        "x1": ("$.data.xs[1]", "string", "item2"),
        "o": ("$.data.o", "string", '{"k":1.5}'),
        "om": ("$.data.o", "map<string, double>", [("k", 1.5)]),
        "n": ("$.data.n", "string", None),
        "num": ("$.data.num", "bigint", 17),
        "odd": ("$['data']['odd key']", "int", 1),
    }
    columns = [
        {"src_field": "data", "path": p, "dest_field": n, "dest_type": k}
        for n, (p, k, _) in wanted.items()
    ]
    rows = json_table(spark, columns)
    assert {k: rows[0][k] for k in wanted} == {n: v for n, (_, _, v) in wanted.items()}
    assert {rows[1][k] for k in wanted} == {None}
    several = [
        {
            "src_field": "raw",
            "path": ["$.data.i", "$.data.b"],
            "dest_field": ["i", "b"],
            "dest_type": ["int", "string"],
        }
    ]
    assert (json_table(spark, several)[0]["i"], json_table(spark, several)[0]["b"]) == (42, "true")


def test_json_without_or_with_single_quotes_is_parsed_as_by_seatunnel(
    spark: SparkSession,
) -> None:
    text = """{data: {s: this is a string, 'b': true, i: 42,"n":null, day:'2023-10-29',"""
    text += """ t:"16:12:43.459", xs: [a b, 'c', 7]}}"""
    wanted = {
        "s": "string",
        "b": "boolean",
        "i": "int",
        "n": "string",
        "day": "date",
        "t": "time",
        "xs": "array<string>",
    }
    columns = [
        {"src_field": "data", "path": f"$.data.{name}", "dest_field": name, "dest_type": kind}
        for name, kind in wanted.items()
    ]
    row = json_table(spark, columns, text)[0]
    assert [row[name] for name in wanted] == [
        "this is a string",
        True,
        42,
        None,
        dt.date(2023, 10, 29),
        dt.time(16, 12, 43, 459000),
        ["a b", "c", "7"],
    ]


@pytest.mark.parametrize(
    ("path", "kind", "text"),
    [("$.data.gone", "string", JSON), ("$.data.s", "int", JSON), ("$", "string", "{no json")],
)
def test_invalid_json_fails_or_skips_as_configured(
    spark: SparkSession, path: str, kind: str, text: str
) -> None:
    column = {"src_field": "data", "path": path, "dest_field": "x", "dest_type": kind}
    with pytest.raises(Exception, match=r"JsonPath: the value at .* is missing or does not fit"):
        json_table(spark, [column], text)
    assert [
        r["x"] for r in json_table(spark, [{**column, "column_error_handle_way": "SKIP"}], text)
    ] == [None, None]
    assert [
        r["data"]
        for r in json_table(spark, [{**column, "column_error_handle_way": "SKIP_ROW"}], text)
    ] == [None]
    assert [r["data"] for r in json_table(spark, [column], text, row_error_handle_way="SKIP")] == [
        None
    ]


def test_invalid_row_fails_the_job_with_the_rule_but_not_the_value(
    spark: SparkSession,
) -> None:
    transform = transform_of(
        "DataValidator",
        {"field_rules": [{"field_name": "mail", "rule_type": "REGEX", "pattern": ".*@.*"}]},
    )
    table, batch = table_and_batch(kinds=False)
    with pytest.raises(
        Exception, match="a row does not pass the rule REGEX of field mail"
    ) as caught:
        by_spark(spark, transform, table, batch)
    assert "nobody" not in str(caught.value)


ROUTED = {
    "error_handle_way": "ROUTE_TO_TABLE",
    "error_table": "errors",
    "field_rules": [
        {
            "field_name": "name",
            "rules": [
                {"rule_type": "NOT_NULL"},
                {"rule_type": "LENGTH", "min_length": 1, "custom_message": "it is short"},
            ],
        },
        {"field_name": "mail", "rule_type": "REGEX", "pattern": "[\\w-\\.]+@.+"},
    ],
}


@pytest.mark.parametrize("kinds", [False, True], ids=["inserts", "changes"])
def test_rejected_rows_are_routed_to_the_error_table(spark: SparkSession, kinds: bool) -> None:
    transform = transform_of("DataValidator", ROUTED)
    table, batch = table_and_batch(kinds=kinds)
    df = spark.createDataFrame(pa.Table.from_batches([batch]), struct_of(table))
    assert [row["id"] for row in by_spark(spark, transform, table, batch).to_pylist()] == [1]
    aside = transform.rejected(table)
    assert aside is not None
    out = rejected(transform, table, df)
    assert [f.dataType for f in out.schema] == [f.dataType for f in struct_of(aside)]
    rows = [row.asDict() for row in out.collect()]
    assert {(row["source_table_id"], row["source_table_path"]) for row in rows} == {
        (table.path, table.path)
    }
    assert [json.loads(row["original_data"])["id"] for row in rows] == [2, 3, 4]
    whole = json.loads(rows[1]["original_data"])
    assert set(whole) == set(table.names())
    assert (whole["name"], whole["clock"]) == (None, "00:00:00")
    assert [[e["field_name"] for e in json.loads(row["validation_errors"])] for row in rows] == [
        ["name", "mail"],
        ["name"],
        ["mail"],
    ]
    assert json.loads(rows[0]["validation_errors"])[0]["error_message"] == "it is short"
    assert all(isinstance(row["create_time"], dt.datetime) for row in rows)


def test_each_rule_rejects_rows_that_passed_the_others(spark: SparkSession) -> None:
    rules = [
        [{"field_name": "name", "rule_type": "NOT_NULL"}],
        [{"field_name": "age", "rule_type": "NOT_NULL"}],
    ]
    path = "db.public.users_1"
    entries = [
        {
            "table_path": path,
            "field_rules": r,
            "error_handle_way": "ROUTE_TO_TABLE",
            "error_table": "errors",
        }
        for r in rules
    ]
    transform = transform_of(
        "DataValidator", {"table_transform": entries, "rule_match_mode": "ALL_MATCH"}
    )
    table, batch = table_and_batch(kinds=False)
    df = spark.createDataFrame(pa.Table.from_batches([batch]), struct_of(table))
    assert [
        json.loads(r.original_data)["id"] for r in rejected(transform, table, df).collect()
    ] == [3, 4]
    assert [r["id"] for r in by_spark(spark, transform, table, batch).to_pylist()] == [1, 2]


def test_encrypted_fields_can_be_decrypted_again(spark: SparkSession) -> None:
    options = {"fields": ["name", "mail"], "key": "base64:AAAAAAAAAAAAAAAAAAAAAA=="}
    table, batch = table_and_batch(kinds=True)
    hidden = by_spark(spark, transform_of("FieldEncrypt", options), table, batch)
    assert hidden.column(1)[0].as_py() not in (None, "Joy Ding a-b-c")
    shown = by_spark(
        spark, transform_of("FieldEncrypt", {**options, "mode": "DECRYPT"}), table, hidden
    )
    assert shown.to_pylist() == batch.to_pylist()
