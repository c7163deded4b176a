"""The transforms of columns, values and row kinds: Arrow and Spark give the same rows and the
promised schema, on all types, NULLs, kinds, empty batches.
"""

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tidegate.connectors.columns.options import CONNECTORS, RULES
from tidegate.connectors.columns.spark import frame, rejected
from tidegate.connectors.columns.step import ColumnsTransform
from tidegate.model.job import JobMode
from tidegate.model.problem import Location
from tidegate.model.types import Column, RowKind, Table, parse_type
from tidegate.plugin.arrow import conform, table_schema
from tidegate.plugin.contract import OperatorContext
from tidegate.plugin.option import Block
from tidegate.spark.types import struct_of

CONTEXT = OperatorContext(
    job_id=1, job_name="j", pipeline=1, operator="t", mode=JobMode.BATCH, parallelism=1
)
BY_NAME = {c.name: c for c in CONNECTORS}
SPARK_ALONE = ("RegexExtract", "JsonPath", "DataValidator", "FieldEncrypt")

ROWS: dict[str, tuple[Any, list[Any]]] = {
    "id": ("bigint", [1, 2, 3, 4]),
    "name": ("string", ["Joy Ding a-b-c", "", None, "東京 Zürich"]),
    "tiny": ("tinyint", [-1, None, 0, 127]),
    "small": ("smallint", [1, 2, None, -4]),
    "age": ("int", [2010, 111, 5, None]),
    "f": ("float", [1.5, None, float("-inf"), 0.0]),
    "d": ("double", [1.5, None, -0.25, 1e300]),
    "dec": ("decimal(10,2)", [Decimal("1.20"), None, Decimal("-3.00"), Decimal("0.01")]),
    "yes": ("boolean", [True, False, None, True]),
    "raw": ("bytes", [b"\x00\xff", None, b"", b"x"]),
    "day": ("date", [dt.date(2021, 4, 15), None, dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
    "clock": ("time", [dt.time(10, 20, 30), None, dt.time(0), dt.time(23, 59, 59, 999999)]),
    "ts": (
        "timestamp",
        [
            dt.datetime(2021, 4, 15, 1, 2, 3, 456789),
            None,
            dt.datetime(1900, 1, 1),
            dt.datetime(2050, 1, 1),
        ],
    ),
    "tz": (
        "timestamp_tz",
        [
            dt.datetime(2021, 4, 15, tzinfo=dt.UTC),
            None,
            dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
            dt.datetime(2050, 1, 1, tzinfo=dt.UTC),
        ],
    ),
    "xs": ("array<string>", [["a", None], [], None, ["é"]]),
    "m": ("map<string, int>", [[("a", 1)], [], None, [("k", None)]]),
    "r": (
        {"x": "int", "s": "string"},
        [{"x": 1, "s": "a"}, {"x": None, "s": None}, None, {"x": 4, "s": "東"}],
    ),
    "a.b`c": ("string", ["p", "q", None, "s"]),
    "mail": ("string", ["user1@example.com", "nobody", None, "x y@test.org"]),
}
KINDS = [RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE]


def table_and_batch(
    *, kinds: bool, rows: int | None = None, path: str = "db.public.users_1"
) -> tuple[Table, pa.RecordBatch]:
    columns = tuple(Column(name=name, type=parse_type(kind)) for name, (kind, _) in ROWS.items())
    table = Table(
        path=path, columns=columns, primary_key=("id",), partition_keys=("day",), kinds=kinds
    )
    schema = table_schema(table)
    data = [values for _, values in ROWS.values()] + ([[k.code for k in KINDS]] if kinds else [])
    batch = pa.RecordBatch.from_arrays(
        [pa.array(v, f.type) for v, f in zip(data, schema, strict=True)], schema=schema
    )
    return table, batch if rows is None else batch.slice(0, rows)


def transform_of(name: str, options: dict[str, Any]) -> ColumnsTransform:
    connector = BY_NAME[name]
    block = Block(options, lambda _: Location("job.conf", 1), "transform[0]")
    values, problems = connector.options.read(block)
    assert connector.check is not None
    assert [*problems, *connector.check(block, values)] == []
    made: ColumnsTransform = connector.load()(values, CONTEXT)
    assert connector.capabilities_of(values).fusable == (name not in SPARK_ALONE)
    return made


BOTH: list[tuple[str, dict[str, Any]]] = [
    ("Filter", {"fields": ["age", "name", "r", "a.b`c"]}),
    ("Filter", {"include_fields": "clock, ts, tz"}),
    ("Filter", {"exclude_fields": ["id", "xs"]}),
    ("FieldMapper", {"field_mapper": {"name": "new name", "id": "id", "m": "a.b", "r": "row"}}),
    (
        "FieldRename",
        {
            "convert_case": "UPPER",
            "prefix": "F_ ",
            "suffix": "_S",
            "replacements_with_regex": [{"replace_from": "a", "replace_to": "ä"}],
        },
    ),
    (
        "FieldRename",
        {
            "specific": [{"field_name": "id", "target_name": "Key"}],
            "replacements_with_regex": [
                {"replace_from": "name", "replace_to": "n", "is_regex": False}
            ],
        },
    ),
    ("Copy", {"fields": {"name1": "name", "age1": "age", "r1": "r", "id": "age"}}),
    ("Copy", {"fields": [{"x": "xs"}, {"y": "m"}]}),
    ("Copy", {"src_field": "a.b`c", "dest_field": "c"}),
    ("Replace", {"replace_field": "name", "pattern": "i", "replacement": "$1"}),
    (
        "Replace",
        {
            "replace_field": "name",
            "pattern": ".+",
            "replacement": "b",
            "is_regex": True,
            "replace_first": True,
        },
    ),
    (
        "Replace",
        {
            "replace_field": "name",
            "pattern": "(\\w)-(\\w)",
            "replacement": "$2\\$$1",
            "is_regex": True,
        },
    ),
    (
        "Replace",
        {"replace_field": "a.b`c", "pattern": "[p-q]", "replacement": "", "is_regex": True},
    ),
    ("Split", {"split_field": "name", "separator": " ", "output_fields": ["first", "second"]}),
    ("Split", {"split_field": "name", "separator": "-", "output_fields": ["p1", "p2", "p3", "p4"]}),
    ("Split", {"split_field": "name", "separator": "[ -]+", "output_fields": ["p1", "name", "p3"]}),
    ("Split", {"split_field": "age", "separator": "1", "output_fields": ["f1", "f2"]}),
    ("Split", {"split_field": "day", "separator": "-", "output_fields": ["year", "rest"]}),
    ("Split", {"split_field": "yes", "separator": "u", "output_fields": ["one"]}),
    ("FilterRowKind", {"include_kinds": ["INSERT", "+U"]}),
    ("FilterRowKind", {"exclude_kinds": ["insert"]}),
    ("RowKindExtractor", {}),
    ("RowKindExtractor", {"custom_field_name": "op", "transform_type": "full"}),
    (
        "TableRename",
        {
            "convert_case": "UPPER",
            "prefix": "T_",
            "replacements_with_regex": [{"replace_from": "users", "replace_to": "u"}],
        },
    ),
    ("TableMerge", {"database": "all", "table": "users"}),
    ("TableFilter", {"table_pattern": "users_\\d+"}),
    (
        "TableFilter",
        {"database_pattern": "db", "table_pattern": "users_\\d+", "pattern_mode": "EXCLUDE"},
    ),
    ("DefineSinkType", {"columns": [{"column": "name", "type": "nvarchar2(10)"}]}),
    ("Metadata", {"metadata_fields": {"Database": "db", "Table": "tb", "RowKind": "rk"}}),
    ("Copy", {"table_match_regex": "other.*", "src_field": "name", "dest_field": "n"}),
    (
        "Copy",
        {
            "rule_match_mode": "ALL_MATCH",
            "table_transform": [
                {"table_path": "db.public.users_1", "src_field": "name", "dest_field": "n2"},
                {"table_path": "db.public.users_1", "src_field": "n2", "dest_field": "n3"},
            ],
        },
    ),
]


@pytest.fixture(autouse=True)
def times_of_day(spark: SparkSession) -> None:
    """Spark keeps the type TIME behind a setting."""
    spark.conf.set("spark.sql.timeType.enabled", "true")


def by_spark(
    spark: SparkSession, transform: ColumnsTransform, table: Table, batch: pa.RecordBatch
) -> pa.RecordBatch:
    df = spark.createDataFrame(pa.Table.from_batches([batch]), struct_of(table))
    out = frame(transform, table, df)
    after = transform.table(table)
    assert [f.dataType for f in out.schema] == [f.dataType for f in struct_of(after)]
    made = out.toArrow().combine_chunks()
    schema = table_schema(after)
    batches = made.to_batches() or [pa.RecordBatch.from_pylist([], made.schema)]
    return conform(batches[0], schema)


@pytest.mark.parametrize("kinds", [False, True], ids=["inserts", "changes"])
@pytest.mark.parametrize(
    ("name", "options"), BOTH, ids=[f"{n}-{i}" for i, (n, _) in enumerate(BOTH)]
)
def test_arrow_and_spark_give_the_same_rows(
    spark: SparkSession, name: str, options: dict[str, Any], kinds: bool
) -> None:
    transform = transform_of(name, options)
    table, batch = table_and_batch(kinds=kinds)
    after = transform.table(table)
    fused = transform.arrow(table, batch)
    assert fused.schema.equals(table_schema(after))
    fused.validate(full=True)
    assert by_spark(spark, transform, table, batch).to_pylist() == fused.to_pylist()
    empty = transform.arrow(table, batch.slice(0, 0))
    assert (empty.num_rows, empty.schema) == (0, fused.schema)
    part = transform.arrow(table, batch.slice(1, 2))  # an offset within the arrays must not be seen
    assert [row for row in fused.to_pylist() if row in part.to_pylist()] == part.to_pylist()


SPARK_ONLY: list[tuple[str, dict[str, Any], list[dict[str, Any]]]] = [
    (
        "Replace",
        {"replace_field": "name", "pattern": "(?i)d(?=i)", "replacement": "<$0>", "is_regex": True},
        [{"name": "Joy <D>ing a-b-c"}, {"name": ""}, {"name": None}, {"name": "東京 Zürich"}],
    ),
    (
        "Replace",
        {
            "replace_field": "name",
            "pattern": "(.)\\b.(.)",
            "replacement": "$2$1",
            "is_regex": True,
            "replace_first": True,
        },
        [{"name": "JoDying a-b-c"}, {"name": ""}, {"name": None}, {"name": "東Z京ürich"}],
    ),
    (
        "Replace",
        {
            "replace_fields": ["name", "mail"],
            "pattern": r"(?<n>[\w&&[^y]])++\h?+",
            "replacement": "${n}\\$",
            "is_regex": True,
        },
        [
            {"name": "o$y g$a$-b$-c$", "mail": "1$@e$.m$"},
            {"name": "", "mail": "d$y"},
            {"name": None, "mail": None},
            {"name": "東京 Z$üh$", "mail": "x$y@t$.g$"},
        ],
    ),
    (
        "Replace",
        {
            "replace_field": "name",
            "pattern": r"(?x) (a) - (b) # \1",
            "replacement": "$2$1",
            "is_regex": True,
            "replace_first": True,
        },
        [{"name": "Joy Ding ba-c"}, {"name": ""}, {"name": None}, {"name": "東京 Zürich"}],
    ),
    (
        "Replace",
        {"replace_field": "a.b`c", "pattern": "", "replacement": "$"},
        [{"a.b`c": "$p$"}, {"a.b`c": "$q$"}, {"a.b`c": None}, {"a.b`c": "$s$"}],
    ),
    (
        "Split",
        {"split_field": "name", "separator": "(?<=o)", "output_fields": ["x", "y"]},
        [
            {"x": "Jo", "y": "y Ding a-b-c"},
            {"x": "", "y": None},
            {"x": None, "y": None},
            {"x": "東京 Zürich", "y": None},
        ],
    ),
    (
        "RegexExtract",
        {
            "source_field": "mail",
            "regex_pattern": "([^@ ]+)@([^.]+)\\.(.+)",
            "output_fields": ["user", "domain", "tld"],
            "default_values": ["?", "?", "?"],
        },
        [
            {"user": "user1", "domain": "example", "tld": "com"},
            {"user": "?", "domain": "?", "tld": "?"},
            {"user": "?", "domain": "?", "tld": "?"},
            {"user": "y", "domain": "test", "tld": "org"},
        ],
    ),
    (
        "RegexExtract",
        {"source_field": "age", "regex_pattern": "1(.)", "output_fields": ["next"]},
        [{"next": "0"}, {"next": "1"}, {"next": None}, {"next": None}],
    ),
    (
        "DataValidator",
        {
            "row_error_handle_way": "SKIP",
            "field_rules": [
                {"field_name": "name", "rule_type": "NOT_NULL"},
                {"field_name": "mail", "rule_type": "UDF", "function_name": "EMAIL"},
            ],
        },
        [{"id": 1}],
    ),
    (
        "DataValidator",
        {
            "row_error_handle_way": "SKIP",
            "field_rules": [
                {
                    "field_name": "age",
                    "rule_type": "RANGE",
                    "min_value": 5,
                    "max_value": 2010,
                    "max_inclusive": False,
                },
                {
                    "field_name": "name",
                    "rules": [
                        {"rule_type": "LENGTH", "max_length": 0},
                        {"rule_type": "REGEX", "pattern": "x*"},
                    ],
                },
            ],
        },
        [{"id": 2}, {"id": 3}],
    ),
    (
        "DataValidator",
        {"field_rules": [{"field_name": "xs", "rule_type": "LENGTH", "max_length": 2}]},
        [{"id": i} for i in (1, 2, 3, 4)],
    ),
    (
        "DataValidator",
        {
            "error_handle_way": "SKIP",
            "field_rules": [
                {"field_name": "mail", "rule_type": "REGEX", "pattern": r"[\w-\.]++@(?x) .+ # any"}
            ],
        },
        [{"id": 1}, {"id": 3}],
    ),
    (
        "JsonPath",
        {
            "columns": [
                {
                    "src_field": "xs",
                    "path": "$[0]",
                    "dest_field": "x",
                    "column_error_handle_way": "SKIP",
                }
            ]
        },
        [{"x": v} for v in ("a", None, None, "é")],
    ),
    (
        "JsonPath",
        {"columns": [{"src_field": "r", "path": "$[1]", "dest_field": "s"}]},
        [{"s": v} for v in ("a", None, None, "東")],
    ),
    (
        "JsonPath",
        {
            "row_error_handle_way": "SKIP",
            "columns": [{"src_field": "m", "path": "$.a", "dest_field": "a", "dest_type": "int"}],
        },
        [{"a": 1}, {"a": None}],
    ),
]


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    SPARK_ONLY,
    ids=[f"{n}-{i}" for i, (n, _, _) in enumerate(SPARK_ONLY)],
)
def test_what_arrow_cannot_do_spark_does(
    spark: SparkSession, name: str, options: dict[str, Any], expected: list[dict[str, Any]]
) -> None:
    connector = BY_NAME[name]
    values, problems = connector.options.read(
        Block(options, lambda _: Location("job.conf", 1), "transform[0]")
    )
    assert problems == []
    assert not connector.capabilities_of(values).fusable
    transform = connector.load()(values, CONTEXT)
    table, batch = table_and_batch(kinds=True)
    rows = by_spark(spark, transform, table, batch).to_pylist()
    assert [{key: row[key] for key in expected[0]} for row in rows] == expected


JSON = """{"data": {"s": "this is a string", "b": true, "i": 42, "f": 3.14, "dec": 10.55, "day": "2023-10-29", "t": "16:12:43.459",
"xs": ["item1", "item2"], "o": {"k": 1.5}, "n": null, "num": "17", "odd key": 1, "ts": "2023-10-29T10:11:12"}}"""


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


def test_json_path_takes_values_of_every_type(spark: SparkSession) -> None:
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


def test_json_without_quotes_or_with_single_ones_is_taken_as_the_reference_takes_it(
    spark: SparkSession,
) -> None:
    text = """{data: {s: this is a string, 'b': true, i: 42,"n":null, day:'2023-10-29', t:"16:12:43.459", xs: [a b, 'c', 7]}}"""
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
def test_a_fault_in_json_fails_or_skips_as_it_is_told(
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


def test_a_row_that_does_not_pass_ends_the_job_with_the_rule_and_not_the_value(
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
def test_rejected_rows_go_to_the_error_table_and_the_others_keep_theirs(
    spark: SparkSession, kinds: bool
) -> None:
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


def test_of_several_rules_each_puts_aside_what_the_others_let_pass(spark: SparkSession) -> None:
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


def test_every_transform_is_tried() -> None:
    assert {n for n, _ in BOTH} | {n for n, _, _ in SPARK_ONLY} | {"FieldEncrypt"} == set(RULES)
