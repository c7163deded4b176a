"""Conversion between Tidegate's types and Spark's. Called by build.py and connectors' spark.py.

Spark has fewer types than a schema can name: vectors become arrays and maps. The original type of a
column is taken from the table that it came from, if name and Spark type are unchanged.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import types as spark

from tidegate.model.errors import Unsupported
from tidegate.model.types import ROW_KIND, Column, DataType, Table, TypeName

_SIMPLE: dict[TypeName, spark.DataType] = {
    TypeName.STRING: spark.StringType(),
    TypeName.BOOLEAN: spark.BooleanType(),
    TypeName.TINYINT: spark.ByteType(),
    TypeName.SMALLINT: spark.ShortType(),
    TypeName.INT: spark.IntegerType(),
    TypeName.BIGINT: spark.LongType(),
    TypeName.FLOAT: spark.FloatType(),
    TypeName.DOUBLE: spark.DoubleType(),
    TypeName.NULL: spark.NullType(),
    TypeName.BYTES: spark.BinaryType(),
    TypeName.DATE: spark.DateType(),
    TypeName.TIMESTAMP: spark.TimestampNTZType(),
    TypeName.TIMESTAMP_TZ: spark.TimestampType(),
    TypeName.BINARY_VECTOR: spark.BinaryType(),
    TypeName.FLOAT_VECTOR: spark.ArrayType(spark.FloatType()),
    TypeName.FLOAT16_VECTOR: spark.ArrayType(spark.FloatType()),
    TypeName.BFLOAT16_VECTOR: spark.ArrayType(spark.FloatType()),
    TypeName.SPARSE_FLOAT_VECTOR: spark.MapType(spark.IntegerType(), spark.FloatType()),
}
_BACK: Mapping[type[spark.DataType], TypeName] = {
    type(kind): name
    for name, kind in reversed(_SIMPLE.items())
    if not isinstance(kind, spark.ArrayType | spark.MapType)
}


def spark_type(kind: DataType) -> spark.DataType:
    """Convert one of our types to Spark's."""
    match kind.name:
        case TypeName.DECIMAL:
            return spark.DecimalType(kind.precision, kind.scale)
        case TypeName.ARRAY:
            return spark.ArrayType(spark_type(kind.children[0]))
        case TypeName.MAP:
            return spark.MapType(spark_type(kind.children[0]), spark_type(kind.children[1]))
        case TypeName.ROW:
            return spark.StructType(
                [spark.StructField(c.name, spark_type(c.type)) for c in kind.columns]
            )
        case TypeName.TIME:
            return _time_type()
        case _:
            return _SIMPLE[kind.name]


def _time_type() -> spark.DataType:
    known: Any = getattr(spark, "TimeType", None)
    if known is None:
        raise Unsupported(
            "columns of type time need Spark 4.1 or newer where there is SQL to do; take string, or"
            " leave SQL out of this pipeline"
        )
    made: spark.DataType = known(6)
    return made


def struct_of(table: Table) -> spark.StructType:
    """Return the schema of a table's frames: nullable columns, ROW_KIND last if it has kinds."""
    fields = [spark.StructField(c.name, spark_type(c.type)) for c in table.columns]
    return spark.StructType(
        [*fields, spark.StructField(ROW_KIND, spark.ByteType())] if table.kinds else fields
    )


def data_type(kind: spark.DataType) -> DataType:
    """Convert a Spark type to ours."""
    match kind:
        case spark.DecimalType():
            return DataType(TypeName.DECIMAL, precision=kind.precision, scale=kind.scale)
        case spark.ArrayType():
            return DataType(TypeName.ARRAY, children=(data_type(kind.elementType),))
        case spark.MapType():
            return DataType(
                TypeName.MAP, children=(data_type(kind.keyType), data_type(kind.valueType))
            )
        case spark.StructType():
            return DataType(
                TypeName.ROW,
                columns=tuple(Column(name=f.name, type=data_type(f.dataType)) for f in kind.fields),
            )
        case spark.StringType():  # also of a fixed length or with a collation
            return DataType(TypeName.STRING)
    if type(kind).__name__ == "TimeType":
        return DataType(TypeName.TIME)
    if type(kind) in _BACK:
        return DataType(_BACK[type(kind)])
    raise Unsupported(
        f"a column of Spark's type {kind.simpleString()} cannot pass through a pipeline; cast it"
        " to a type of SeaTunnel, such as string"
    )


def table_of(schema: spark.StructType, like: Table) -> Table:
    """Return the table of a frame: its columns, and the keys of the table `like`."""
    before = {c.name: c for c in like.columns}
    columns = tuple(
        _column(field, before.get(field.name)) for field in schema.fields if field.name != ROW_KIND
    )
    names = {c.name for c in columns}

    def kept(keys: tuple[str, ...]) -> tuple[str, ...]:
        return keys if set(keys) <= names else ()

    return replace(
        like,
        columns=columns,
        primary_key=kept(like.primary_key),
        unique_key=kept(like.unique_key),
        partition_keys=kept(like.partition_keys),
        kinds=ROW_KIND in schema.names,
    )


def _column(field: spark.StructField, before: Column | None) -> Column:
    if before is not None and _same(spark_type(before.type), field.dataType):
        return before
    return Column(name=field.name, type=data_type(field.dataType))


def _same(one: spark.DataType, other: spark.DataType) -> bool:
    """Whether two types are equal, except for nullability."""
    return one.simpleString() == other.simpleString()
