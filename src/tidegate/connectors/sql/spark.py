"""The Sql transform on a DataFrame: plain selectExpr and where, no view in the catalogue, so that
pipelines in several threads do not meet. Drivers only.
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
"""What Spark has no function for, as Python functions: registering one again changes nothing."""


def frame(transform: Sql, table: Table, df: DataFrame) -> DataFrame:
    """The rows that the query gives, with the row kinds where the table has them."""
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
    """The Python functions that a query calls."""
    pieces = (*step.selects, step.where or "", *(c for columns in step.explodes for c in columns))
    return [name for name in _PYTHON if any(f"{name}(" in sql for sql in pieces)]
