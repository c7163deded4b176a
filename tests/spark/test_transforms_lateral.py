"""LATERAL VIEW EXPLODE on Spark: generated rows, with and without OUTER."""

from typing import Any

import pytest
from pyspark.sql import SparkSession
from test_transforms_sql import sql, table_of

from tidegate.connectors.sql.spark import frame
from tidegate.spark.types import struct_of


def test_lateral_view_generates_a_row_per_element(spark: SparkSession) -> None:
    table = table_of({"name": "string", "ages": "array<int>"}, kinds=True)
    df = spark.createDataFrame([("a,b", [1], 3), ("c", None, 0)], struct_of(table))
    transform = sql(
        "select * from dual lateral view explode(split(name, ',')) as name lateral view outer"
        " explode(ages) as age where name <> 'b'"
    )
    made = transform.table(table)
    assert made is not None
    assert {c.name: str(c.type) for c in made.columns} == {
        "name": "string",
        "ages": "array<int>",
        "age": "int",
    }
    assert [tuple(r) for r in frame(transform, table, df).collect()] == [
        ("a", [1], 1, 3),
        ("c", None, None, 0),
    ]


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        ("explode(xs) as x", [(1, 10)]),
        ("outer explode(xs) as x", [(1, 10), (1, None), (2, None), (3, None), (4, None)]),
        ("explode(xs) as x lateral view explode(names) as n", [(1, 10), (1, 10)]),
        (
            "outer explode(xs) as x lateral view explode(names) as n",
            [(1, 10), (1, 10), (1, None), (1, None)],
        ),
        (
            "explode(array(10, id)) as x",
            [(1, 1), (1, 10), (2, 2), (2, 10), (3, 3), (3, 10), (4, 4), (4, 10)],
        ),
    ],
)
def test_a_lateral_view_without_outer_skips_elements_that_are_null(
    spark: SparkSession, view: str, expected: list[tuple[Any, ...]]
) -> None:
    table = table_of({"id": "int", "xs": "array<int>", "names": "array<string>"})
    rows = [(1, [10, None], ["a", None, "b"]), (2, None, None), (3, [], []), (4, [None], [None])]
    df = spark.createDataFrame(rows, struct_of(table))
    found = frame(sql(f"select id, x from t lateral view {view}"), table, df).collect()
    assert sorted(((r.id, r.x) for r in found), key=str) == sorted(expected, key=str)


def test_a_lateral_view_of_split_text_skips_a_text_that_is_null(spark: SparkSession) -> None:
    table = table_of({"name": "string", "deep": "array<array<int>>"})
    df = spark.createDataFrame([("a,b", [[1], None]), (None, None)], struct_of(table))
    found = frame(sql("select x from t lateral view explode(split(name, ',')) as x"), table, df)
    assert [r.x for r in found.collect()] == ["a", "b"]
    nested = "select x from t lateral view explode(deep) as xs lateral view explode(xs) as x"
    assert [r.x for r in frame(sql(nested), table, df).collect()] == [1]
