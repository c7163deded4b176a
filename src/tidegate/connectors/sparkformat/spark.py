"""The Spark source and sink, by Spark's readers and writers.

Called by spark/build.py, in the driver.
"""

from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tidegate.connectors.sparkformat.source import SparkSource
from tidegate.model.errors import UserError
from tidegate.model.types import ROW_KIND, DataType, RowKind, Table, TypeName
from tidegate.plugin.arrow import table_of
from tidegate.plugin.contract import Offset, Sink, WriteTask
from tidegate.plugin.option import as_text
from tidegate.plugin.schema import DEFAULT_TABLE

LINE_MAX = 1000
_DDL = {
    TypeName.NULL: "void",
    TypeName.BYTES: "binary",
    TypeName.TIME: "time(6)",
    TypeName.TIMESTAMP: "timestamp_ntz",
    TypeName.TIMESTAMP_TZ: "timestamp",
    TypeName.BINARY_VECTOR: "binary",
    TypeName.FLOAT_VECTOR: "array<float>",
    TypeName.FLOAT16_VECTOR: "array<float>",
    TypeName.BFLOAT16_VECTOR: "array<float>",
    TypeName.SPARSE_FLOAT_VECTOR: "map<int,float>",
}


def frame(
    source: SparkSource,
    spark: SparkSession,
    table: Table,
    start: Offset,  # noqa: ARG001  # all or nothing
    end: Offset,  # noqa: ARG001  # as above
) -> DataFrame:
    """Read all rows, with the columns of the table."""
    return _reader(source, spark).select(*[f.col(_quoted(name)) for name in table.names()])


def found_table(source: SparkSource) -> Table:
    """Return the table with the schema that Spark infers."""
    try:
        rows = _reader(source, SparkSession.builder.getOrCreate())
        return table_of(rows.limit(0).toArrow().schema, DEFAULT_TABLE)
    except (PySparkException, Py4JJavaError) as error:
        line = str(
            error.java_exception.toString() if isinstance(error, Py4JJavaError) else error
        ).partition("\n")[0]
        raise UserError(
            f"Spark cannot read format {source.values['format']!r}: {line[:LINE_MAX]}"
        ) from error
    except TypeError as error:
        raise UserError(
            f"format {source.values['format']!r} has a column of an unsupported type: {error}"
        ) from error


def _reader(source: SparkSource, spark: SparkSession) -> DataFrame:
    values = source.values
    reader = spark.read.format(values["format"]).options(**_texts(values["options"]))
    if (declared := source.declared()) is not None:
        reader = reader.schema(
            ", ".join(f"{_quoted(c.name)} {ddl(c.type)}" for c in declared.columns)
        )
    return reader.load(values["path"]) if values["path"] else reader.load()


def save(sink: Sink, df: DataFrame, table: Table, task: WriteTask) -> None:
    """Write the rows of one batch.

    The mode applies to the first write; all later ones append.
    """
    values = sink.values
    mode = values["mode"] if task.checkpoint == 1 and task.subtask == 0 else "append"
    rows = _only_inserts(df) if table.kinds else df
    writer = rows.write.format(values["format"]).options(**_texts(values["options"])).mode(mode)
    if values["partition_by"]:
        writer = writer.partitionBy(*values["partition_by"])
    if values["path"]:
        writer.save(values["path"])
    else:
        writer.save()


def _only_inserts(df: DataFrame) -> DataFrame:
    """Reject retractions: Spark's writers only append, so a deleted row would become a new one."""
    adds = f.col(ROW_KIND).isin(RowKind.INSERT.code, RowKind.UPDATE_AFTER.code)
    refused = f.raise_error(
        f.lit(
            "a row that updates or deletes cannot be written by the Spark sink: add FilterRowKind"
            " before it"
        )
    )
    return df.where(f.when(adds, f.lit(True)).otherwise(refused.cast("boolean"))).drop(ROW_KIND)


def ddl(kind: DataType) -> str:
    """Write a type in Spark's DDL."""
    match kind.name:
        case TypeName.ARRAY:
            return f"array<{ddl(kind.children[0])}>"
        case TypeName.MAP:
            return f"map<{ddl(kind.children[0])},{ddl(kind.children[1])}>"
        case TypeName.ROW:
            return (
                "struct<"
                + ",".join(f"{_quoted(c.name)}: {ddl(c.type)}" for c in kind.columns)
                + ">"
            )
        case _:
            return _DDL.get(kind.name, str(kind))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Flatten nested options to text: HOCON does not distinguish `a.b = 1` from `a { b = 1 }`."""
    texts: dict[str, str] = {}
    for key, value in options.items():
        if isinstance(value, Mapping):
            texts |= {f"{key}.{below}": text for below, text in _texts(value).items()}
        elif value is not None:
            texts[key] = as_text(value)
    return texts
