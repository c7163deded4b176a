"""Problems of queries before a job runs, with line and suggestion; needs and results of queries."""

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.connectors.sql.options import CONNECTORS, OPTIONS
from tidegate.connectors.sql.query import translate_query
from tidegate.connectors.sql.transform import BadQuery, Sql, needed_columns
from tidegate.connectors.sql.types import text
from tidegate.model.errors import UserError
from tidegate.model.job import JobMode
from tidegate.model.problem import Location, Problem
from tidegate.model.types import Column, Table, parse_type
from tidegate.plugin.contract import OperatorContext
from tidegate.plugin.option import Block, Values

CONTEXT = OperatorContext(
    job_id=1, job_name="j", pipeline=1, operator="t", mode=JobMode.BATCH, parallelism=1
)
TABLE = Table(
    path="db.t",
    columns=tuple(
        Column(name=n, type=parse_type(k), comment=f"about {n}")
        for n, k in {
            "id": "bigint",
            "name": "string",
            "age": "int",
            "m": "map<string, int>",
            "xs": "array<string>",
            "dec": "decimal(10,2)",
        }.items()
    ),
    primary_key=("id",),
)


def read(**options: Any) -> tuple[Values, list[Problem]]:
    block = Block(options, lambda path: Location("job.conf", 10 if path else 9), "transform[0]")
    values, problems = OPTIONS.read(block)
    check = CONNECTORS[0].check
    assert check is not None
    return values, [*problems, *check(block, values)]


def sql(query: str) -> Sql:
    values, problems = read(query=query)
    assert problems == []
    return Sql(values, CONTEXT)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("update t set x = 1", "not a plain SELECT"),
        ("select", "not a plain SELECT"),
        ("", "contains 0 statements"),
        ("select id form t", "the query is not SQL: unexpected token, at 't'"),
        ("select id from", "the query is not SQL: Expected table name"),
        ("select (id from t", "the query is not SQL: Expecting )"),
        ("select 'open from t", "a quotation or a comment has no end"),
        ("select 1 from t; select 2 from t", "contains 2 statements"),
        ("insert into t values (1)", "not a plain SELECT"),
        ("select a from t union select a from u", "not a plain SELECT"),
        ("select a from t join u on t.id = u.id", "a join: the Sql transform reads one table"),
        ("select a from t, u", "a join: the Sql transform reads one table"),
        ("select a from (select b from t)", "reads from an inner query"),
        ("select sum(a) from t", "SUM aggregates several rows"),
        ("select count(*) from t", "COUNT aggregates several rows"),
        ("select row_number() over (order by a) from t", "without windows and inner queries"),
        ("select a from t group by a", "GROUP BY"),
        ("select a from t order by a", "ORDER BY"),
        ("select a from t limit 5", "LIMIT"),
        ("select distinct a from t", "DISTINCT"),
        ("with x as (select 1) select a from x", "WITH"),
        ("select a from t where b in (select c from u)", "IN takes a list of values"),
        ("select (select 1) from t", "without windows and inner queries"),
        ("select explode(xs) from t", "LATERAL VIEW"),
        (
            "select murmur64(a) from t",
            "MURMUR64 is not available: Spark has no 128-bit murmur hash",
        ),
        ("select left(a) from t", "LEFT takes 2 arguments, not 1"),
        ("select concat() from t", "CONCAT takes at least 1 argument"),
        ("select cast(a as decimal(50,2)) from t", "precision is 1 to 38"),
        ("select regexp_like(a, 'x', 'q') from t", "'q' is no flag"),
        ("select dateadd(a, 1, b) from t", "argument 3 must be a text constant"),
        ("select to_date(a, 'dd') from t", "neither a year (yy) nor minutes (mm)"),
        ("select round(a, b) from t", "the number of digits must be a constant"),
        (
            "select vector_reduce(a, 2, 'RANDOM_PROJEKTION') from t",
            "VECTOR_REDUCE has no method RANDOM_PROJEKTION",
        ),
        ("select vector_reduce(a, 0, 'RANDOM_PROJECTION') from t", "the target dimension is 0"),
        ("select a as x, b as X from t", "two columns are called X"),
        ("select regexp_like(a, 'a**') from t", "REGEXP_LIKE: 'a**' is no regular expression"),
        (
            "select regexp_replace(a, '(a)', '$2') from t",
            "REGEXP_REPLACE: the replacement refers to $2",
        ),
        ("select split(a, '[') from t", "SPLIT: '[' is no regular expression"),
        ("select a from t where a rlike '('", "RLIKE: '(' is no regular expression"),
        ("select regexp_extract(a, ')', 1) from t", "REGEXP_EXTRACT: ')' is no regular expression"),
        ("select 99999999999999999999 from t", "does not fit into a BIGINT"),
        ("select a from t lateral view posexplode(b) as c", "write LATERAL VIEW"),
    ],
)
def test_unsupported_query_is_rejected_with_the_reason(query: str, message: str) -> None:
    _, problems = read(query=query)
    assert [message in p.message for p in problems] == [True], problems
    assert problems[0].path == "transform[0].query"


@pytest.mark.parametrize(
    ("query", "suggestion"),
    [
        ("select uper(a) from t", "UPPER"),
        ("selec id from t", "SELECT"),
        ("select substrng(a, 1) from t", "SUBSTRING"),
        ("select cast(a as strin) from t", "STRING"),
        ("select extract(YER from a) from t", "YEAR"),
        ("select datediff(a, b, 'MONHT') from t", "MONTH"),
    ],
)
def test_misspelt_name_gets_a_suggestion(query: str, suggestion: str) -> None:
    _, problems = read(query=query)
    assert [p.suggestion for p in problems] == [suggestion]


def test_syntax_error_has_the_line_within_the_query() -> None:
    _, problems = read(query="select id,\n  name\nfrom t\nwhere (")
    assert [str(p.at) for p in problems] == ["job.conf:13"]


def test_missing_query_is_reported_once() -> None:
    _, problems = read()
    assert ["query is missing" in p.message for p in problems] == [True]


def test_every_rule_of_table_transform_is_checked() -> None:
    _, problems = read(
        table_transform=[
            {"table_path": "a", "query": "select 1 from t"},
            {"table_path": "a"},
            {"query": "x"},
        ]
    )
    found = [(p.path, p.message.split(":")[0]) for p in problems]
    assert found == [
        ("transform[0].table_transform[1]", "query is missing"),
        ("transform[0].table_transform[1].table_path", "a has two rules"),
        (
            "transform[0].table_transform[2]",
            (
                "an entry of table_transform is a block { table_path = ..., and the options for"
                " that table }"
            ),
        ),
    ]


def test_unknown_column_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(
        BadQuery, match=r"there is no column nam: there are id, name, .*did you mean 'name'"
    ):
        sql("select nam from t").table(TABLE)


@pytest.mark.parametrize(
    "query",
    ["select name + 1 as x from t", "select id.x from t", "select cast(dec as date) as d from t"],
)
def test_incompatible_types_are_an_error(query: str) -> None:
    with pytest.raises(UserError):
        sql(query).table(TABLE)


def test_renamed_columns_keep_their_attributes() -> None:
    made = sql("select id, name as n, age + 1 as age from t where age > 0").table(TABLE)
    assert made is not None
    assert [(c.name, str(c.type), c.comment) for c in made.columns] == [
        ("id", "bigint", "about id"),
        ("n", "string", "about name"),
        ("age", "int", ""),
    ]
    assert made.primary_key == ("id",)
    other = sql("select name from t").table(TABLE)
    assert other is not None
    assert other.primary_key == ()


@pytest.mark.parametrize(
    ("query", "needed"),
    [
        ("select id from t", {"id"}),
        ("select upper(NAME) as n from t where t.age > 3", {"name", "age"}),
        ("select m.k as k, xs[0] as x from t", {"m", "xs"}),
        ("select 1 as one from t", set()),
        ("select * from t", None),
        ("select t.*, 1 as one from t", None),
        ("select x from t lateral view explode(xs) as x", {"xs"}),
    ],
)
def test_the_columns_that_a_query_needs_are_known(query: str, needed: set[str] | None) -> None:
    assert needed_columns(read(query=query)[0], TABLE) == needed


def test_a_table_without_a_rule_passes_unchanged() -> None:
    values, problems = read(query="select id from t", table_match_regex="other\\..*")
    assert problems == []
    assert Sql(values, CONTEXT).table(TABLE) == TABLE
    assert needed_columns(values, TABLE) is None


def test_a_query_is_translated_once_for_a_table() -> None:
    transform = sql("select id from t")
    assert transform.translations(TABLE) is transform.translations(TABLE)


@given(st.text(max_size=20))
def test_text_constants_reach_spark_as_they_are_written(value: str) -> None:
    made = translate_query("select '" + value.replace("'", "''") + "' as x from t", TABLE)
    assert made.selects == (f"{text(value)} AS `x`",)


def test_options_are_read_without_spark_and_arrow() -> None:
    code = "import sys, tidegate.connectors.sql.options, tidegate.connectors.columns.options; "
    code += "print([m for m in sys.modules if m in ('pyspark', 'pyarrow', 'sqlglot')])"
    assert (
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONPATH": ":".join(sys.path)},
        ).stdout.strip()
        == "[]"
    )


@pytest.mark.parametrize(
    "query",
    [
        "select id from t where " + " or ".join(["id = 1"] * 20_000),
        "select " + "+".join(["id"] * 20_000) + " as x from t",
        "select id from t where " + "(" * 20_000 + "id = 1" + ")" * 20_000,
        "select " + "abs(" * 500 + "id" + ")" * 500 + " as x from t",
        "select " + "case when id = 1 then " * 500 + "1" + " end" * 500 + " as x from t",
        "select id from t where " + "not " * 20_000 + "id = 1",
        "select " + "-" * 1 + " -".join([""] * 5_000) + "id as x from t",
        "select '" + "x" * 1_000_001 + "' as x from t",
    ],
    ids=["or", "plus", "brackets", "calls", "case", "not", "minus", "long"],
)
def test_query_too_deep_or_too_long_is_rejected(query: str) -> None:
    (problem,) = read(query=query)[1]
    assert "too deep" in problem.message or "too long" in problem.message


def test_query_with_many_operators_and_some_brackets_is_accepted() -> None:
    assert read(query="select id from t where " + " or ".join(["id = 1"] * 200))[1] == []
    assert read(query="select " + "(" * 30 + "id" + ")" * 30 + " as x from t")[1] == []


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("select id, xs from t lateral view explode(xs) as x", ["id", "xs", "x"]),
        ("select id, x from t lateral view explode(xs) as x", ["id", "x"]),
        ("select id, upper(x) as up from t lateral view explode(xs) as x", ["id", "up"]),
        ("select id from t lateral view explode(xs) as xs", ["id", "xs"]),
        ("select * from t lateral view explode(xs) as x", [*TABLE.names(), "x"]),
    ],
)
def test_unselected_column_of_a_lateral_view_is_the_last_column(
    query: str, names: list[str]
) -> None:
    made = sql(query).table(TABLE)
    assert made is not None
    assert made.names() == names


def test_explode_accepts_only_arrays() -> None:
    with pytest.raises(BadQuery, match=r"EXPLODE takes an array, and `m` is a map<string, ?int>"):
        sql("select id from t lateral view explode(m) as x").table(TABLE)


@pytest.mark.parametrize(
    "form",
    [
        r"[\w-\.]+",
        "a++",
        "(?>a)",
        r"\p{Alpha}",
        r"\Qa\E",
        "[a-z&&[^b]]",
        "(?i)a",
        "(?<n>a)",
        r"\h",
        r"\R",
        r"\p{IsHan}",
    ],
)
def test_query_accepts_every_regular_expression_of_java(form: str) -> None:
    query = (
        f"select regexp_replace(name, '{form}', '$0') a, regexp_like(name, '{form}', 'i') b,"
        f" split(name, '{form}') c from t where name rlike '{form}'"
    )
    assert read(query=query)[1] == []
