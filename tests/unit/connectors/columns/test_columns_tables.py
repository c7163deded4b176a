"""Output tables of column transforms, rules for single tables, and fusable options."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from columns_kit import BY_NAME, TABLE, made, read

from tidegate.connectors.columns.options import CONNECTORS, UNSUPPORTED
from tidegate.connectors.columns.step import MissingField
from tidegate.connectors.columns.tables import SINK_TYPES, parts
from tidegate.model.errors import Unsupported, UserError
from tidegate.model.types import Table
from tidegate.plugin.arrow import table_schema


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Filter", {"fields": ["nam"]}),
        ("Filter", {"exclude_fields": ["nam"]}),
        ("FieldMapper", {"field_mapper": {"nam": "x"}}),
        ("Copy", {"fields": {"x": "nam"}}),
        ("Replace", {"replace_field": "nam", "pattern": "a", "replacement": "b"}),
        ("Split", {"split_field": "nam", "separator": "a", "output_fields": ["b"]}),
        ("RegexExtract", {"source_field": "nam", "regex_pattern": "(a)", "output_fields": ["b"]}),
        ("DefineSinkType", {"columns": [{"column": "nam", "type": "x"}]}),
        ("JsonPath", {"columns": [{"src_field": "nam", "path": "$.a", "dest_field": "a"}]}),
        ("DataValidator", {"field_rules": [{"field_name": "nam", "rule_type": "NOT_NULL"}]}),
        ("FieldEncrypt", {"fields": ["nam"], "key": "AAAAAAAAAAAAAAAAAAAAAA=="}),
    ],
)
def test_missing_field_is_an_error_with_a_suggestion(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(
        MissingField,
        match=(
            rf"{name}: there is no field nam in table db\.t; its fields are id, name, d, row_kind;"
            r" did you mean 'name'\?"
        ),
    ):
        made(name, **options).table(TABLE)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "Replace",
            {"replace_field": "id", "pattern": "a", "replacement": "b"},
            "field id is a bigint, not a string",
        ),
        (
            "Split",
            {"split_field": "d", "separator": "a", "output_fields": ["b"]},
            r"convert it to text first, with Sql and CAST\(d AS STRING\)",
        ),
        ("RowKindExtractor", {}, "has a field row_kind already"),
        ("Metadata", {"metadata_fields": {"Table": "name"}}, "has a field name already"),
        (
            "FieldRename",
            {"replacements_with_regex": [{"replace_from": ".+", "replace_to": "x"}]},
            "two columns of table db.t would be called x",
        ),
        (
            "JsonPath",
            {"columns": [{"src_field": "d", "path": "$.a", "dest_field": "a"}]},
            "field d is a double",
        ),
        (
            "DataValidator",
            {"field_rules": [{"field_name": "name", "rule_type": "RANGE", "min_value": 1}]},
            "RANGE cannot be applied to field name",
        ),
    ],
)
def test_transform_that_does_not_match_the_table_is_an_error(
    name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        made(name, **options).table(TABLE)


def test_keys_are_kept_and_renamed_with_their_columns() -> None:
    assert made("Filter", fields=["name"]).table(TABLE).primary_key == ()
    assert made("Filter", fields=["id"]).table(TABLE).partition_keys == ()
    renamed = made("FieldRename", convert_case="UPPER", suffix="_x").table(TABLE)
    assert (renamed.primary_key, renamed.partition_keys) == (("ID_x",), ("NAME_x",))


@pytest.mark.parametrize(
    ("options", "path"),
    [
        (
            {
                "convert_case": "UPPER",
                "prefix": "CDC_",
                "replacements_with_regex": [{"replace_from": "user", "replace_to": "U"}],
            },
            "SOURCE.CDC_U_SHOP",
        ),
        ({"suffix": "_table"}, "source.user_shop_table"),
        (
            {
                "replacements_with_regex": [
                    {"replace_from": "user_shop", "replace_to": "s", "is_regex": False}
                ]
            },
            "source.s",
        ),
        (
            {
                "replacements_with_regex": [
                    {"replace_from": "s", "replace_to": "1"},
                    {"replace_from": "o", "replace_to": "0"},
                ]
            },
            "source.user_sh0p",
        ),
    ],
)
def test_tables_are_renamed_by_the_rules(options: dict[str, Any], path: str) -> None:
    assert (
        made("TableRename", **options).table(Table(path="source.user_shop", columns=())).path
        == path
    )


def test_merged_tables_have_one_path_and_others_keep_theirs() -> None:
    merge = made(
        "TableMerge", table_match_regex="source\\.user_.*", database="user_db", table="user_all"
    )
    assert [
        merge.table(Table(path=p, columns=())).path for p in ("source.user_1", "source.shop")
    ] == ["user_db.user_all", "source.shop"]


def test_sink_types_are_in_the_options_of_the_table() -> None:
    assert made("DefineSinkType", columns=[{"column": "name", "type": "text"}]).table(
        TABLE
    ).options == {SINK_TYPES: {"name": "text"}}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("t", (None, None, "t")),
        ("d.t", ("d", None, "t")),
        ("d.s.t", ("d", "s", "t")),
        ("d.s.t.x", ("d", "s", "t.x")),
    ],
)
def test_a_path_has_up_to_three_parts(
    path: str, expected: tuple[str | None, str | None, str]
) -> None:
    assert parts(path) == expected


def test_rule_of_a_table_takes_precedence_over_the_block() -> None:
    copy = made(
        "Copy",
        table_match_regex="test.a.*",
        src_field="name",
        dest_field="name1",
        table_transform=[{"table_path": "test.xyz", "src_field": "name", "dest_field": "name2"}],
    )
    after = {
        p: copy.table(Table(path=p, columns=TABLE.columns)).names()[len(TABLE.columns) :]
        for p in ("test.abc", "test.xyz", "test.www")
    }
    assert after == {"test.abc": ["name1"], "test.xyz": ["name2"], "test.www": []}


@pytest.mark.parametrize(
    ("name", "options", "rows"),
    [
        ("FilterRowKind", {"include_kinds": ["DELETE"]}, 0),
        ("Filter", {"include_fields": ["id"]}, 1),
        ("Copy", {"src_field": "id", "dest_field": "other"}, 1),
    ],
)
def test_table_without_rule_passes_a_block_of_table_rules_unchanged(
    name: str, options: dict[str, Any], rows: int
) -> None:
    transform, other = (
        made(name, table_transform=[{"table_path": "db.t", **options}]),
        replace(TABLE, path="db.other"),
    )
    batch = pa.RecordBatch.from_pylist([{"id": 1}], table_schema(TABLE))
    assert (transform.table(other), transform.arrow(other, batch)) == (other, batch)
    assert transform.arrow(TABLE, batch).num_rows == rows
    assert transform.arrow(TABLE, batch).schema == table_schema(transform.table(TABLE))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("FilterRowKind", {"include_kinds": ["NOPE"]}, "is not a row kind"),
        (
            "Filter",
            {"include_fields": ["id"], "exclude_fields": ["d"]},
            "only one of include_fields, exclude_fields",
        ),
        ("Copy", {"src_field": "id"}, "dest_field is missing"),
        (
            "TableRename",
            {"replacements_with_regex": [{"replace_from": "(", "replace_to": ""}]},
            "is no regular expression",
        ),
    ],
)
def test_options_beside_table_rules_are_checked(
    name: str, options: dict[str, Any], message: str
) -> None:
    whole = {
        "Filter": {"fields": ["id"]},
        "FilterRowKind": {"exclude_kinds": ["DELETE"]},
        "Copy": {"fields": {"x": "id"}},
    }.get(name, {})
    _, problems = read(name, {**options, "table_transform": [{"table_path": "db.t", **whole}]})
    assert [message in p for p in problems] == [True], problems


@pytest.mark.parametrize(
    ("name", "options", "fusable"),
    [
        (
            "Replace",
            {"replace_field": "name", "pattern": "a.c", "replacement": "x", "is_regex": True},
            True,
        ),
        (
            "Replace",
            {"replace_field": "name", "pattern": "\\bx", "replacement": "x", "is_regex": True},
            False,
        ),
        ("Replace", {"replace_field": "name", "pattern": "\\bx", "replacement": "x"}, True),
        ("Split", {"split_field": "name", "separator": "\\|", "output_fields": ["a"]}, True),
        ("Split", {"split_field": "name", "separator": "^a", "output_fields": ["a"]}, False),
        ("JsonPath", {"columns": [{"src_field": "name", "path": "$.a", "dest_field": "a"}]}, False),
        ("Filter", {"fields": ["id"]}, True),
    ],
)
def test_only_options_portable_to_arrow_are_fusable(
    name: str, options: dict[str, Any], fusable: bool
) -> None:
    values, problems = read(name, options)
    assert problems == []
    assert BY_NAME[name].capabilities_of(values).fusable is fusable


def test_arrow_rejects_what_only_spark_supports() -> None:
    import pyarrow as pa

    replace = made("Replace", replace_field="name", pattern="\\bx", replacement="", is_regex=True)
    with pytest.raises(Unsupported, match="works only through Spark"):
        replace.arrow(
            TABLE, pa.RecordBatch.from_pylist([{"id": 1, "name": "x", "d": 1.0, "row_kind": "+I"}])
        )


def test_unsupported_transforms_are_reported_with_a_replacement() -> None:
    assert not {n.lower() for n in UNSUPPORTED} & {c.name.lower() for c in CONNECTORS}
    assert all(sentence.startswith("not available") for sentence in UNSUPPORTED.values())
