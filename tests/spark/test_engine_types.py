"""Every type keeps its values through a pipeline, fused and as DataFrames."""

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from engine_parts import CONTEXT, Files, Query, Rows, batch, graph, node, table

from tidegate.model.types import Table, parse_type
from tidegate.plugin.arrow import table_schema
from tidegate.spark.engine import SparkEngine
from tidegate.spark.types import data_type, spark_type, struct_of, table_of

UTC = dt.UTC
VALUES: dict[str, list[Any]] = {
    "string": ["x", "", "ü€"],
    "boolean": [True, False, None],
    "tinyint": [-128, 127, None],
    "smallint": [-32768, 32767, 0],
    "int": [-(2**31), 2**31 - 1, 0],
    "bigint": [-(2**63), 2**63 - 1, 0],
    "float": [1.5, None, -0.25],
    "double": [1e300, None, -0.1],
    "decimal(38,18)": [
        Decimal("1.5").quantize(Decimal("1e-18")),
        None,
        Decimal("-12345678901234567890.000000000000000001"),
    ],
    "decimal(10,2)": [Decimal("1.50"), Decimal("-99999999.99"), None],
    "bytes": [b"\x00\xff", b"", None],
    "date": [dt.date(1, 1, 1), dt.date(9999, 12, 31), None],
    "time": [dt.time(0, 0), dt.time(23, 59, 59, 999999), None],
    "timestamp": [dt.datetime(1970, 1, 1), dt.datetime(2024, 3, 31, 2, 30, 0, 123456), None],
    "timestamp_tz": [
        dt.datetime(1970, 1, 1, tzinfo=UTC),
        dt.datetime(2024, 3, 31, 2, 30, 0, 123456, tzinfo=UTC),
        None,
    ],
    "array<string>": [["a", None], [], None],
    "array<array<int>>": [[[1], []], [], None],
    "map<string,int>": [[("a", 1), ("b", None)], [], None],
    "map<string,array<decimal(5,1)>>": [[("a", [Decimal("1.0")])], [], None],
    "float_vector": [[1.5, 2.5], [], None],
    "sparse_float_vector": [[(1, 2.5)], [], None],
    "null": [None, None, None],
}
NESTED = {"a": "int", "b": {"c": "string", "d": "array<bigint>"}}
NESTED_VALUES = [{"a": 1, "b": {"c": "x", "d": [1, None]}}, {"a": None, "b": None}, None]


def everything() -> tuple[Table, pa.RecordBatch]:
    names = {f"c{number}": kind for number, kind in enumerate(VALUES)}
    made = table("t", **names, nested=NESTED)  # type: ignore[arg-type]  # a stand-in for the test
    schema = table_schema(made)
    arrays = [
        pa.array(values, field.type)
        for values, field in zip([*VALUES.values(), NESTED_VALUES], schema, strict=True)
    ]
    return made, pa.RecordBatch.from_arrays(arrays, schema=schema)


@pytest.mark.parametrize("way", ["fused", "frames", "sql"])
def test_every_type_keeps_its_values(engine: SparkEngine, tmp_path: Path, way: str) -> None:
    made, rows = everything()
    nodes = {
        "source": node(
            "source", Rows({"table": made, "batch": rows}, CONTEXT), fusable=way != "frames"
        )
    }
    if way == "sql":
        nodes["query"] = node(
            "query", Query({"select": ["*"], "where": "true"}, CONTEXT), ["source"]
        )
    nodes["sink"] = node(
        "sink", Files({"place": str(tmp_path)}, CONTEXT), ["query" if way == "sql" else "source"]
    )
    written = engine.run(graph(**nodes), batch(1))
    (file,) = [message["files"]["t"] for message in written.messages["sink"]]
    arrived = pa.ipc.open_file(file).read_all()
    assert arrived.schema.equals(rows.schema)
    for name in rows.schema.names:
        assert arrived.column(name).to_pylist() == rows.column(name).to_pylist(), name


@pytest.mark.parametrize(
    "text", [*(kind for kind in VALUES if "vector" not in kind), "map<string,map<int,date>>"]
)
def test_type_survives_conversion_to_spark(text: str) -> None:
    assert data_type(spark_type(parse_type(text))) == parse_type(text)


def test_table_keeps_vectors_keys_and_name_of_existing_columns() -> None:
    made = table("db.t", id="bigint", v="float_vector", gone="int")
    kept = table_of(struct_of(table("x", id="bigint", v="float_vector", new="string")), made)
    assert (kept.path, kept.primary_key) == ("db.t", ("id",))
    assert [str(c.type) for c in kept.columns] == ["bigint", "float_vector", "string"]


def test_table_loses_the_key_of_a_removed_column() -> None:
    assert (
        table_of(
            struct_of(table("x", name="string")), table("t", id="bigint", name="string")
        ).primary_key
        == ()
    )
