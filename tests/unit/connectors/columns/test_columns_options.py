"""Problems in the options of column transforms."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from columns_kit import BY_NAME, CONTEXT, TABLE, made, read

from tidegate.connectors.columns.step import ColumnsTransform, MissingField
from tidegate.model.errors import UserError
from tidegate.plugin.arrow import table_schema


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Filter", {}, "one of include_fields and exclude_fields is needed"),
        (
            "Filter",
            {"include_fields": ["a"], "exclude_fields": ["b"]},
            "only one of include_fields, exclude_fields",
        ),
        ("FieldMapper", {}, "field_mapper is missing"),
        ("FieldRename", {"convert_case": "Title"}, "is not possible here"),
        (
            "FieldRename",
            {"replacements_with_regex": [{"replace_from": "a"}]},
            "replace_to is missing",
        ),
        (
            "FieldRename",
            {"replacements_with_regex": [{"replace_from": "(", "replace_to": ""}]},
            "is no regular expression",
        ),
        ("FieldRename", {"specific": [{"field_name": "a"}]}, "target_name is missing"),
        ("Copy", {"fields": "a"}, "fields is a block"),
        ("Copy", {"src_field": "a"}, "dest_field is missing"),
        (
            "Replace",
            {"replace_field": "a", "pattern": "(", "replacement": "", "is_regex": True},
            "is no regular expression",
        ),
        (
            "Split",
            {"separator": "[", "split_field": "a", "output_fields": ["b"]},
            "is no regular expression",
        ),
        (
            "RegexExtract",
            {"source_field": "a", "regex_pattern": "(.)(.)", "output_fields": ["b"]},
            "the pattern has 2 groups, and there are 1 output fields",
        ),
        (
            "RegexExtract",
            {
                "source_field": "a",
                "regex_pattern": "(.)",
                "output_fields": ["b"],
                "default_values": ["x", "y"],
            },
            "2 default values for 1 output",
        ),
        (
            "FilterRowKind",
            {"include_kinds": ["INSERTT"]},
            (
                "is not a row kind; use one of INSERT (+I), UPDATE_BEFORE (-U), UPDATE_AFTER (+U),"
                " DELETE (-D) -> INSERT"
            ),
        ),
        ("TableMerge", {}, "table is missing"),
        ("TableFilter", {"table_pattern": "("}, "is no regular expression"),
        ("DefineSinkType", {"columns": [{"column": "a"}]}, "type is missing"),
        (
            "Metadata",
            {"metadata_fields": {"Tabel": "t"}},
            "there is no metadata field Tabel -> Table",
        ),
        ("Metadata", {"metadata_fields": {"EventTime": "t"}}, "EventTime is not available"),
        ("JsonPath", {"columns": [{"path": "$.a"}]}, "src_field, dest_field is missing"),
        (
            "JsonPath",
            {"columns": [{"src_field": "a", "path": "$..b", "dest_field": "b"}]},
            "the path '$..b' is not available",
        ),
        (
            "JsonPath",
            {
                "columns": [
                    {"src_field": "a", "path": "$.b", "dest_field": "b", "dest_type": "strin"}
                ]
            },
            "unknown type 'strin'; did you mean 'string'?",
        ),
        (
            "JsonPath",
            {"columns": [{"src_field": "a", "path": ["$.b"], "dest_field": ["b", "c"]}]},
            "the same number of items",
        ),
        (
            "JsonPath",
            {"columns": [], "row_error_handle_way": "ROUTE_TO_TABLE"},
            "ROUTE_TO_TABLE is not possible here",
        ),
        (
            "DataValidator",
            {"field_rules": [{"field_name": "a", "rule_type": "NOTNULL"}]},
            "NOTNULL is no rule",
        ),
        ("DataValidator", {"field_rules": [{"rule_type": "NOT_NULL"}]}, "field_name is missing"),
        (
            "DataValidator",
            {"field_rules": [{"field_name": "a", "rules": [{"rule_type": "RANGE"}]}]},
            "RANGE needs min_value or max_value",
        ),
        (
            "DataValidator",
            {"field_rules": [{"field_name": "a", "rule_type": "UDF", "function_name": "PHONE"}]},
            "only EMAIL is",
        ),
        ("FieldEncrypt", {"fields": ["a"], "key": "c2hvcnQ="}, "the key has 5 bytes"),
        ("FieldEncrypt", {"fields": ["a"], "key": "secret!"}, "the key is not base64"),
        ("Filter", {"fields": ["a"], "table_match_regex": "("}, "is no regular expression"),
        (
            "Filter",
            {"fields": ["a"], "table_match_regex": r"\p{IsHan}"},
            "cannot be used for names",
        ),
        ("Filter", {"fields": ["a", "a"]}, "include_fields names the column 'a' twice"),
        ("Filter", {"fields": [["a"]]}, "is not the name of a column"),
        ("Filter", {"fields": []}, "include_fields is empty"),
        ("FieldMapper", {"field_mapper": {"a": "x", "b": "x"}}, "two columns would be called x"),
        ("FieldMapper", {"field_mapper": {"a": ["x"]}}, "is not the name of a column"),
        (
            "Replace",
            {"pattern": "a", "replacement": "b"},
            "one of replace_fields and replace_field is needed",
        ),
        (
            "Replace",
            {"replace_field": "a", "replace_fields": ["b"], "pattern": "a", "replacement": "b"},
            "only one of replace_fields, replace_field",
        ),
        (
            "Replace",
            {"replace_fields": [], "pattern": "a", "replacement": "b"},
            "replace_fields is empty",
        ),
        (
            "Replace",
            {"replace_field": [{"a": 1}], "pattern": "a", "replacement": "b"},
            "is not the name of a column",
        ),
        (
            "Replace",
            {"replace_field": {"a": 1}, "pattern": "a", "replacement": "b"},
            "is neither the name of a column nor a list",
        ),
        (
            "Replace",
            {"replace_field": "a", "pattern": "(a)", "replacement": "$2", "is_regex": True},
            "refers to $2, but there is no such group",
        ),
        (
            "Replace",
            {"replace_field": "a", "pattern": "(?<n>a)", "replacement": "${m}", "is_regex": True},
            "refers to ${m}, but there is no",
        ),
        (
            "Replace",
            {"replace_field": "a", "pattern": "a", "replacement": "x\\", "is_regex": True},
            "ends with a backslash",
        ),
        (
            "Split",
            {"separator": ",", "split_field": ["a"], "output_fields": ["b"]},
            "is not the name of one column",
        ),
        (
            "Split",
            {"separator": ",", "split_field": "a", "output_fields": ["b", "b"]},
            "output_fields names the column 'b' twice",
        ),
        (
            "Split",
            {"separator": ",", "split_field": "a", "output_fields": []},
            "output_fields is empty",
        ),
        (
            "RegexExtract",
            {"source_field": "a", "regex_pattern": "a", "output_fields": ["b"]},
            "the pattern has 0 groups, and there are 1",
        ),
        (
            "RegexExtract",
            {"source_field": "a", "regex_pattern": "(?<n>a)++(b)", "output_fields": ["b"]},
            "the pattern has 2 groups",
        ),
        (
            "Metadata",
            {"metadata_fields": {"Table": "t", "Database": "t"}},
            "two columns would be called t",
        ),
        (
            "DataValidator",
            {"field_rules": [{"field_name": "a", "rule_type": "LENGTH", "exact_length": "1.5"}]},
            "as whole numbers",
        ),
        (
            "DataValidator",
            {
                "field_rules": [
                    {"field_name": "a", "rule_type": "LENGTH", "min_length": 1, "max_length": "x"}
                ]
            },
            "as whole numbers",
        ),
        (
            "DataValidator",
            {
                "field_rules": [
                    {"field_name": "a", "rule_type": "RANGE", "min_value": 1, "max_value": "x"}
                ]
            },
            "as numbers",
        ),
        (
            "DataValidator",
            {"field_rules": [{"field_name": ["a"], "rule_type": "NOT_NULL"}]},
            "field_name is missing",
        ),
        (
            "DataValidator",
            {"field_rules": [{"field_name": "a", "rule_type": "REGEX", "pattern": "a**"}]},
            "'a**' is no regular expression",
        ),
        ("TableFilter", {"table_pattern": r"\G"}, "cannot be used for names"),
        (
            "DataValidator",
            {"field_rules": [], "error_handle_way": "ROUTE_TO_TABLE"},
            "error_table is missing",
        ),
        (
            "DataValidator",
            {"field_rules": [], "error_handle_way": "SKIPP"},
            "is not possible here -> SKIP",
        ),
    ],
)
def test_problem_is_reported_once(name: str, options: dict[str, Any], message: str) -> None:
    _, problems = read(name, options)
    assert [message in p for p in problems] == [True], problems


@pytest.mark.parametrize("name", ["Replace", "Split"])
def test_invalid_entries_of_table_transform_are_reported(
    name: str,
) -> None:
    values, problems = read(name, {"table_transform": [7, {"table_path": "db.t"}, {}]})
    assert len(problems) >= 3
    assert BY_NAME[name].capabilities_of(values).fusable


def test_nested_sets_of_java_are_accepted_without_a_warning() -> None:
    assert (
        read("Split", {"separator": "[[a]&&[a-z]]", "split_field": "a", "output_fields": ["b"]})[1]
        == []
    )
    assert read("Filter", {"fields": ["a"], "table_match_regex": "[[a]]"})[1] == []


@pytest.mark.parametrize(
    "form",
    [
        r"[\w-\.]+",
        "a++b",
        "(?>a)",
        r"\p{Alpha}",
        r"\Q.\E",
        "[a-z&&[^b]]",
        "(?i)x",
        "(?<n>x)",
        r"\h",
        r"\R",
        r"\p{IsHan}",
    ],
)
def test_every_expression_of_java_is_accepted_for_values(form: str) -> None:
    assert (
        read(
            "Replace",
            {"replace_field": "a", "pattern": form, "replacement": "$0", "is_regex": True},
        )[1]
        == []
    )
    assert read("Split", {"separator": form, "split_field": "a", "output_fields": ["b"]})[1] == []
    extract = {
        "source_field": "a",
        "regex_pattern": f"(?:{form}).(.)",
        "output_fields": ["b"] * (1 + form.count("<n>")),
    }
    assert read("RegexExtract", extract)[1] in ([], ["output_fields names the column 'b' twice"])
    assert (
        read(
            "DataValidator",
            {"field_rules": [{"field_name": "a", "rule_type": "REGEX", "pattern": form}]},
        )[1]
        == []
    )


NOT_NULL = [{"field_name": "id", "rule_type": "NOT_NULL"}]


@pytest.mark.parametrize(
    ("way", "error_table"),
    [
        ("row_error_handle_way", "row_error_handle_way.error_table"),
        ("error_handle_way", "error_table"),
        ("row_error_handle_way", "error_table"),
    ],
)
def test_old_names_of_error_handling_are_accepted(way: str, error_table: str) -> None:
    assert (
        read("DataValidator", {"field_rules": NOT_NULL, way: "skip"})[0]["row_error_handle_way"]
        == "SKIP"
    )
    transform = made(
        "DataValidator", **{"field_rules": NOT_NULL, way: "ROUTE_TO_TABLE", error_table: "errors"}
    )
    assert transform.rejects
    assert transform.table(TABLE) == TABLE
    errors = transform.rejected(TABLE)
    assert errors is not None
    assert (errors.path, errors.kinds) == ("db.errors", False)
    assert {c.name: str(c.type) for c in errors.columns} == {
        "source_table_id": "string",
        "source_table_path": "string",
        "original_data": "string",
        "validation_errors": "string",
        "create_time": "timestamp",
    }


@pytest.mark.parametrize(
    ("path", "name", "expected"),
    [("t", "e", "e"), ("db.s.t", "e", "db.s.e"), ("db.t", "other.e", "other.e")],
)
def test_error_table_is_in_the_database_of_its_table(path: str, name: str, expected: str) -> None:
    transform = made(
        "DataValidator",
        field_rules=NOT_NULL,
        row_error_handle_way="ROUTE_TO_TABLE",
        error_table=name,
    )
    errors = transform.rejected(replace(TABLE, path=path))
    assert errors is not None
    assert errors.path == expected


def test_rules_of_a_table_share_one_error_table() -> None:
    assert not made("DataValidator", field_rules=NOT_NULL).rejects
    assert (
        made("DataValidator", field_rules=NOT_NULL, error_handle_way="SKIP").rejected(TABLE) is None
    )
    entries = [
        {
            "table_path": "db.t",
            "field_rules": NOT_NULL,
            "error_handle_way": "ROUTE_TO_TABLE",
            "error_table": name,
        }
        for name in ("e", "f")
    ]
    both = made("DataValidator", table_transform=entries, rule_match_mode="ALL_MATCH")
    assert both.rejected(replace(TABLE, path="db.other")) is None
    with pytest.raises(UserError, match=r"rejected rows of db\.t would go to e and f"):
        both.rejected(TABLE)


def test_names_are_matched_by_regular_expressions_of_java() -> None:
    renames = {"replacements_with_regex": [{"replace_from": r"[\w&&[^n]]++$", "replace_to": "X"}]}
    assert made("FieldRename", **renames).table(
        replace(TABLE, columns=TABLE.columns[:2], primary_key=(), partition_keys=())
    ).names() == ["X", "nX"]
    plain = {
        "replacements_with_regex": [{"replace_from": "d", "replace_to": "D", "is_regex": False}]
    }
    assert made("FieldRename", **plain).table(TABLE).names() == ["id", "name", "D", "row_kind"]
    assert made("Filter", fields=["id"], table_match_regex=r"\Qdb.\E\p{Lower}").table(
        TABLE
    ).names() == ["id"]
    assert made("TableFilter", table_pattern="(?i)T").passes(
        {
            "table_pattern": "(?i)T",
            "database_pattern": None,
            "schema_pattern": None,
            "pattern_mode": "INCLUDE",
        },
        TABLE,
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"replace_field": "name"},
        {"replace_fields": ["name", "row_kind", "name"]},
        {"replace_field": ["name", "row_kind"]},
    ],
)
def test_replace_accepts_one_column_or_a_list(fields: dict[str, Any]) -> None:
    transform = made("Replace", **fields, pattern="b", replacement="x")
    batch = pa.RecordBatch.from_pylist(
        [{"id": 1, "name": "abb", "d": 1.0, "row_kind": "b"}], schema=table_schema(TABLE)
    )
    [row] = transform.arrow(TABLE, batch).to_pylist()
    assert (row["name"], row["row_kind"]) == (
        "axx",
        "b" if fields == {"replace_field": "name"} else "x",
    )
    with pytest.raises(MissingField, match="there is no field nope"):
        made("Replace", replace_fields=["name", "nope"], pattern="b", replacement="x").table(TABLE)


def test_replace_of_an_older_plan_has_one_column() -> None:
    values, _ = read("Replace", {"replace_field": "name", "pattern": "b", "replacement": "x"})
    old = {key: value for key, value in values.items() if key != "replace_fields"}
    transform: ColumnsTransform = BY_NAME["Replace"].load()(old, CONTEXT)
    assert transform.table(TABLE) == TABLE


def test_encryption_key_is_secret_and_never_shown() -> None:
    assert [o.key for o in BY_NAME["FieldEncrypt"].options.options if o.secret] == ["key"]
    assert "secret!" not in str(read("FieldEncrypt", {"fields": ["a"], "key": "secret!"})[1])
