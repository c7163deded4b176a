"""The Sql transform on a DataFrame, by selectExpr and where. Imported in drivers only.

Must not create views in the session's catalog, which pipelines of several threads share.
"""

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame

from tidegate.connectors.sql import des, projection
from tidegate.connectors.sql.query import Translation
from tidegate.connectors.sql.transform import Sql
from tidegate.model.types import Table

_PYTHON: dict[str, tuple[Callable[..., Any], str]] = {
    "tidegate_des_encrypt": (des.encrypt, "string"),
    "tidegate_des_decrypt": (des.decrypt, "string"),
    "tidegate_vector_reduce": (projection.reduced, "array<double>"),
}
"""Python functions that Spark lacks; registering one again has no effect."""


def frame(transform: Sql, table: Table, df: DataFrame) -> DataFrame:
    """Apply the queries for a table in order; keeps the row kinds of the table."""
    for step in transform.translations(table):
        for name in _called(step):
            function, kind = _PYTHON[name]
            df.sparkSession.udf.register(name, function, kind)
        for columns in step.explodes:
            df = df.selectExpr(*columns)
        if step.where is not None:
            df = df.where(step.where)
        df = df.selectExpr(*step.selects)
    return df


def _called(step: Translation) -> list[str]:
    """The names of the Python functions that a query calls."""
    pieces = (*step.selects, step.where or "", *(c for columns in step.explodes for c in columns))
    return [name for name in _PYTHON if any(f"{name}(" in sql for sql in pieces)]
