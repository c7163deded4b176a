"""Rows of every type, and running column transforms on Spark; for the tests beside this file."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tidegate.connectors.columns.options import CONNECTORS
from tidegate.connectors.columns.spark import frame
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
