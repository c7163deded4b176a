"""Assert: each rule, row counts over batches and restarts, and locations of invalid rules."""

import pickle
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidegate.connectors.assertion.errors import RuleFailed
from tidegate.connectors.assertion.options import OPTIONS, check
from tidegate.connectors.assertion.sink import Assert
from tidegate.model.errors import Domain, TerminalError
from tidegate.model.job import JobMode
from tidegate.model.problem import Location
from tidegate.model.types import Column, Table, parse_type
from tidegate.plugin.arrow import table_schema
from tidegate.plugin.contract import (
    AlreadyCommitted,
    BatchCommitted,
    Commit,
    Committer,
    Message,
    OperatorContext,
    SinkRestore,
    WriteTask,
)
from tidegate.plugin.option import Block


def sink(rules: dict[str, Any]) -> Assert:
    block = Block({"rules": rules}, lambda _: Location("job.conf", 1), "sink[0]")
    values, problems = OPTIONS.read(block)
    assert [*problems, *check(block, values)] == []
    return Assert(
        values,
        OperatorContext(
            job_id=1,
            job_name="j",
            pipeline=1,
            operator="Sink[0]-Assert",
            mode=JobMode.BATCH,
            parallelism=1,
        ),
    )


def table_of(columns: dict[str, Any], path: str = "db.t", **more: Any) -> Table:
    return Table(
        path=path,
        columns=tuple(Column(name=n, type=parse_type(k)) for n, k in columns.items()),
        **more,
    )


def written(made: Assert, table: Table, rows: list[dict[str, Any]]) -> Message:
    writer = pickle.loads(pickle.dumps(made)).writer(
        WriteTask(lineage="l", checkpoint=1, generation=1, subtask=0, token="a")
    )
    writer.write(table, pa.RecordBatch.from_pylist(rows, schema=table_schema(table)))
    message: Message = writer.close()
    return message


def field(kind: Any, values: list[Any], *rules: dict[str, Any], declared: Any = None) -> None:
    """Write these values of a type under these rules of a field."""
    rule = {
        "field_name": "x",
        "field_value": list(rules),
        **({"field_type": declared} if declared is not None else {}),
    }
    written(sink({"field_rules": [rule]}), table_of({"x": kind}), [{"x": v} for v in values])


def rows_committed(
    committer: Committer, checkpoint: int, counts: dict[str, int]
) -> BatchCommitted | AlreadyCommitted:
    message = {"rows": sum(counts.values()), "counts": counts}
    return committer.commit(
        Commit(
            lineage="l",
            pipeline=1,
            checkpoint=checkpoint,
            generation=1,
            offsets={},
            messages=[message],
        )
    )


def opened(made: Assert, state: Any = None) -> Committer:
    committer = made.committer()
    committer.open(SinkRestore(lineage="l", generation=1, checkpoint=0, state=state))
    return committer


def rule(kind: str, value: Any = None) -> dict[str, Any]:
    return {"rule_type": kind} if value is None else {"rule_type": kind, "rule_value": value}


@pytest.mark.parametrize(
    ("kind", "good", "bad", "made"),
    [
        ("string", "a", None, rule("NOT_NULL")),
        ("string", None, "a", rule("NULL")),
        ("int", 5, 4, rule("MIN", 5)),
        ("int", 5, 6, rule("MAX", 5)),
        ("int", 5, None, rule("MAX", 5)),
        ("decimal(10, 2)", Decimal("1.50"), Decimal("1.49"), rule("MIN", 1.5)),
        ("double", 0.5, 0.6, rule("MAX", "0.5")),
        ("string", "abc", "ab", rule("MIN_LENGTH", 3)),
        ("string", "abc", None, rule("MIN_LENGTH", 3)),
        ("string", "äöü", "abcd", rule("MAX_LENGTH", 3)),
        ("int", 100, 10, rule("MIN_LENGTH", 3)),
    ],
)
def test_rule_accepts_and_rejects_values(
    kind: str, good: Any, bad: Any, made: dict[str, Any]
) -> None:
    field(kind, [good, good], made)
    with pytest.raises(RuleFailed, match=f"breaks the rule {made['rule_type']}"):
        field(kind, [good, bad], made)


@pytest.mark.parametrize(
    ("kind", "written_as", "good", "bad"),
    [
        ("string", "a", "a", "b"),
        ("boolean", False, False, True),
        ("tinyint", 1, 1, 2),
        ("bigint", 323232, 323232, 1),
        ("float", 3.1, 3.1, 3.2),
        ("double", 9.33333, 9.33333, 9.3),
        ("decimal(30, 8)", 99999.99999999, Decimal("99999.99999999"), Decimal("1")),
        ("date", "2012-12-21", date(2012, 12, 21), date(2012, 12, 22)),
        ("time", "12:34:56", time(12, 34, 56), time(12, 34, 57)),
        (
            "timestamp",
            "2012-12-21T12:34:56",
            datetime(2012, 12, 21, 12, 34, 56),
            datetime(2012, 12, 21),
        ),
        ("bytes", "bWlJWmo=", b"miIZj", b"x"),
        ("array<int>", [0, 1], [0, 1], [1, 0]),
        ("array<float>", [0.1], [0.1], [0.2]),
        (
            "map<string, decimal(30, 2)>",
            {"a": 1.5, "b": 2},
            [("b", Decimal(2)), ("a", Decimal("1.5"))],
            [("a", Decimal("1.5"))],
        ),
        ("map<time, string>", "{ 12:01:26 = v0 }", [(time(12, 1, 26), "v0")], []),
        (
            "row<a array<string>, b row<c int>>",
            [["x"], [1]],
            {"a": ["x"], "b": {"c": 1}},
            {"a": ["x"], "b": {"c": 2}},
        ),
        ("row<a string, b int>", [None, 1], {"a": None, "b": 1}, {"a": "", "b": 1}),
        ("float_vector", [1, 2], [1.0, 2.0], [1.0]),
    ],
)
def test_equals_to_compares_values_of_every_type(
    kind: str, written_as: Any, good: Any, bad: Any
) -> None:
    field(kind, [good], {"equals_to": written_as}, declared=kind)
    with pytest.raises(RuleFailed, match="equals_to"):
        field(kind, [good, bad], {"equals_to": written_as})
    with pytest.raises(RuleFailed, match="x = null breaks the rule equals_to"):
        field(kind, [None], {"equals_to": written_as})


def test_a_rule_may_have_a_type_and_a_value() -> None:
    both = {"rule_type": "MIN", "rule_value": 5, "equals_to": 7}
    field("int", [7], both)
    for value in (6, 4):
        with pytest.raises(RuleFailed, match="MIN 5 and equals_to 7"):
            field("int", [value], both)


def test_error_names_rule_field_value_and_row() -> None:
    made = sink({"field_rules": [{"field_name": "age", "field_value": [rule("MAX", 90)]}]})
    with pytest.raises(RuleFailed) as caught:
        written(
            made,
            table_of({"name": "string", "age": "int"}),
            [{"name": "Ann", "age": 30}, {"name": "Bob", "age": 99}],
        )
    assert (
        str(caught.value)
        == 'Assert: age = 99 breaks the rule MAX 90 in table db.t; the row: name="Bob", age=99'
    )
    assert isinstance(caught.value, TerminalError)
    assert caught.value.domain is Domain.USER
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize("declared", ["bigint", "array<int>", "decimal(10, 3)"])
def test_a_field_of_another_type_fails(declared: str) -> None:
    with pytest.raises(RuleFailed, match="field_type"):
        field("int", [1], declared=declared)


def test_a_decimal_may_be_declared_with_fewer_digits_if_its_values_fit() -> None:
    field("decimal(20, 2)", [Decimal("99.99"), None], declared="decimal(4, 2)")
    with pytest.raises(RuleFailed, match="field_type"):
        field("decimal(20, 2)", [Decimal("100.00")], declared="decimal(4, 2)")


def test_names_within_a_declared_row_are_ignored() -> None:
    field("row<a int, b string>", [{"a": 1, "b": "x"}], declared={"p": "int", "q": "string"})


def test_type_null_requires_nulls_of_any_type() -> None:
    field("int", [None], rule("NULL"), declared="null")
    with pytest.raises(RuleFailed, match="field_type null"):
        field("int", [1], declared="null")


def test_equals_to_null_requires_a_null() -> None:
    field("int", [None, None], {"equals_to": None})
    with pytest.raises(RuleFailed, match="x = 1 breaks the rule NULL"):
        field("int", [None, 1], {"equals_to": None})
    field("int", [1], {"rule_type": "NOT_NULL", "equals_to": None})


def test_unquoted_field_type_null_requires_a_null() -> None:
    rules = {
        "field_rules": [
            {"field_name": "x", "field_type": None, "field_value": [{"equals_to": None}]}
        ]
    }
    written(sink(rules), table_of({"x": "string"}), [{"x": None}])
    with pytest.raises(RuleFailed, match="field_type null"):
        written(sink(rules), table_of({"x": "string"}), [{"x": "a"}])


def test_not_a_number_is_equal_to_itself() -> None:
    field("double", [float("nan")], {"equals_to": "NaN"})
    with pytest.raises(RuleFailed, match="equals_to"):
        field("double", [1.0], {"equals_to": "NaN"})
    with pytest.raises(RuleFailed, match="equals_to"):
        field("float", [float("nan")], {"equals_to": 1.0})


def test_min_and_max_of_a_text_fail() -> None:
    with pytest.raises(RuleFailed, match="MAX 5"):
        field("string", ["4"], rule("MAX", 5))


def test_missing_field_fails() -> None:
    with pytest.raises(RuleFailed, match=r"field y is not in table db\.t, which has x"):
        written(sink({"field_rules": [{"field_name": "y"}]}), table_of({"x": "int"}), [{"x": 1}])


def test_too_many_rows_fail_immediately_and_too_few_at_the_end() -> None:
    committer = opened(sink({"row_rules": [rule("MIN_ROW", 5), rule("MAX_ROW", 10)]}))
    rows_committed(committer, 1, {"db.a": 4})
    with pytest.raises(RuleFailed, match="4 rows break the rule MIN_ROW 5"):
        committer.finish()
    rows_committed(committer, 2, {"db.a": 3, "db.b": 3})
    committer.finish()
    with pytest.raises(RuleFailed, match="11 rows break the rule MAX_ROW 10"):
        rows_committed(committer, 3, {"db.a": 1})


def test_a_repeated_batch_is_counted_once() -> None:
    made = sink({"row_rules": [rule("MAX_ROW", 6), rule("MIN_ROW", 6)]})
    first = opened(made)
    rows_committed(first, 1, {"t": 3})
    completed = first.state()
    rows_committed(first, 2, {"t": 3})
    again = opened(made, completed)  # the driver died before checkpoint 2 was complete
    assert rows_committed(again, 2, {"t": 3}) == BatchCommitted()
    assert rows_committed(again, 2, {"t": 3}) == AlreadyCommitted()
    again.finish()


def test_rules_of_several_tables_are_independent() -> None:
    made = sink(
        {
            "tables_configs": [
                {
                    "table_path": "db.a",
                    "row_rules": [rule("MAX_ROW", 2), rule("MIN_ROW", 2)],
                    "field_rules": [{"field_name": "x", "field_value": [rule("NOT_NULL")]}],
                },
                {"table_path": "db.b", "row_rules": [rule("MIN_ROW", 1)]},
            ]
        }
    )
    with pytest.raises(RuleFailed, match=r"NOT_NULL in table db\.a"):
        written(made, table_of({"x": "int"}, "db.a"), [{"x": None}])
    written(made, table_of({"y": "int"}, "db.b"), [{"y": None}])
    committer = opened(made)
    rows_committed(committer, 1, {"db.a": 2})
    with pytest.raises(RuleFailed, match=r"0 rows of table db\.b break the rule MIN_ROW 1"):
        committer.finish()
    rows_committed(committer, 2, {"db.b": 9})
    committer.finish()


def test_table_names_must_equal_the_received_tables() -> None:
    made = sink({"table-names": ["db.a", "db.b"]})
    committer = opened(made)
    rows_committed(
        committer, 1, written(made, table_of({"x": "int"}, "db.a"), [{"x": 1}])["counts"]
    )
    with pytest.raises(RuleFailed, match=r"the tables are db\.a, not db\.a, db\.b"):
        committer.finish()
    rows_committed(committer, 2, {"db.b": 1})
    committer.finish()


CATALOG: dict[str, Any] = {
    "table_identifier_rule": {"catalog_name": "FakeSource", "table": "db.t"},
    "primary_key_rule": {"primary_key_name": "pk", "primary_key_columns": ["id"]},
    "constraint_key_rule": [
        {
            "constraint_key_name": "u",
            "constraint_key_type": "UNIQUE_KEY",
            "constraint_key_columns": [
                {"constraint_key_column_name": "id", "constraint_key_sort_type": "ASC"}
            ],
        }
    ],
    "column_rule": [{"name": "name", "type": "string"}, {"name": "id", "type": "bigint"}],
}


def with_column(change: Callable[[Column], Column]) -> Table:
    columns = [
        Column(name="id", type=parse_type("bigint")),
        Column(name="name", type=parse_type("string")),
    ]
    return Table(
        path="db.t",
        columns=(change(columns[0]), columns[1]),
        primary_key=("id",),
        unique_key=("id",),
    )


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            table_of(
                {"id": "bigint", "name": "string"}, "db.u", primary_key=("id",), unique_key=("id",)
            ),
            "its name is not db.t",
        ),
        (table_of({"id": "bigint", "name": "string"}, unique_key=("id",)), "it has no primary key"),
        (
            table_of({"id": "bigint", "name": "string"}, primary_key=("name",), unique_key=("id",)),
            "its primary key is name, not id",
        ),
        (
            table_of({"id": "bigint", "name": "string"}, primary_key=("id",)),
            "its unique key is none, not id",
        ),
        (
            table_of({"id": "bigint"}, primary_key=("id",), unique_key=("id",)),
            "its columns are id, not name, id",
        ),
        (
            table_of({"id": "int", "name": "string"}, primary_key=("id",), unique_key=("id",)),
            "column id is int, not bigint",
        ),
    ],
)
def test_catalog_rule_reports_the_difference(table: Table, said: str) -> None:
    made = sink({"catalog_table_rule": CATALOG})
    written(made, with_column(lambda c: c), [{"id": 1, "name": "a"}])
    with pytest.raises(RuleFailed, match=said):
        written(made, table, [])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"nullable": False}, "is nullable"),
        ({"default_value": 1}, "default"),
        ({"comment": "x"}, "comment"),
    ],
)
def test_column_properties_are_checked_if_the_rule_names_them(
    more: dict[str, Any], said: str
) -> None:
    made = sink(
        {
            "catalog_table_rule": {
                "column_rule": [
                    {"name": "id", "type": "bigint", **more},
                    {"name": "name", "type": "string"},
                ]
            }
        }
    )
    fitting = with_column(
        lambda c: Column(name=c.name, type=c.type, nullable=False, default=1, comment="x")
    )
    written(made, fitting, [])
    with pytest.raises(RuleFailed, match=said):
        written(made, with_column(lambda c: c), [])


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({}, "there is no rule"),
        (
            {"row_rules": [{"rule_type": "MAX_ROWS", "rule_value": 1}]},
            "sink[0].rules.row_rules[0].rule_type",
        ),
        ({"row_rules": [{"rule_type": "MAX_ROWS", "rule_value": 1}]}, "did you mean 'MAX_ROW'"),
        ({"row_rules": [{"rule_type": "MIN_ROW"}]}, "rule_value is missing"),
        ({"row_rules": [{"rule_type": "MIN_ROW", "rule_value": "few"}]}, '"few" is no number'),
        ({"row_rules": [{"rule_type": "NOT_NULL"}]}, "is no rule here"),
        ({"row_rules": {"rule_type": "MIN_ROW"}}, "is not a list of blocks"),
        ({"field_rules": [{"field_type": "int"}]}, "field_name is missing"),
        (
            {"field_rules": [{"field_name": "a", "field_type": "integr"}]},
            "sink[0].rules.field_rules[0].field_type: unknown type 'integr'",
        ),
        (
            {
                "field_rules": [
                    {"field_name": "a", "field_type": "int", "field_value": [{"equals_to": "x"}]}
                ]
            },
            'field_value[0].equals_to: "x" is no int',
        ),
        ({"field_rules": [{"field_name": "a", "field_value": [{}]}]}, "rule_type is missing"),
        (
            {"row_rulez": []},
            "warning: sink[0].rules.row_rulez: unknown option row_rulez; did you mean 'row_rules'",
        ),
        ({"tables_configs": [{"row_rules": []}]}, "table_path is missing"),
        (
            {"catalog_table_rule": {"column_rule": [{"name": "a", "type": "x"}]}},
            "column_rule[0].type",
        ),
    ],
)
def test_invalid_rules_are_reported_with_their_location(rules: dict[str, Any], said: str) -> None:
    block = Block({"rules": rules}, lambda _: Location("job.conf", 1), "sink[0]")
    problems = [str(p) for p in check(block, OPTIONS.read(block)[0])]
    assert any(said in p for p in problems), problems


def test_rules_are_required() -> None:
    block = Block({}, lambda _: Location("job.conf", 1), "sink[0]")
    values, problems = OPTIONS.read(block)
    assert ["rules is missing" in str(p) for p in problems] == [True]
    assert list(check(block, values)) == []
