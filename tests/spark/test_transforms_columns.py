"""Column transforms: Arrow and Spark return the same rows and schema, for all types and kinds."""

from typing import Any

import pytest
from pyspark.sql import SparkSession
from transforms_kit import (
    BY_NAME,
    CONTEXT,
    by_spark,
    table_and_batch,
    transform_of,
)

from tidegate.connectors.columns.options import RULES
from tidegate.model.problem import Location
from tidegate.plugin.arrow import table_schema
from tidegate.plugin.option import Block

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


@pytest.mark.parametrize("kinds", [False, True], ids=["inserts", "changes"])
@pytest.mark.parametrize(
    ("name", "options"), BOTH, ids=[f"{n}-{i}" for i, (n, _) in enumerate(BOTH)]
)
def test_arrow_and_spark_return_the_same_rows(
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
def test_spark_executes_what_arrow_cannot(
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


def test_every_transform_is_tested() -> None:
    assert {n for n, _ in BOTH} | {n for n, _, _ in SPARK_ONLY} | {"FieldEncrypt"} == set(RULES)
