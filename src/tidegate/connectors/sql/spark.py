"""The Sql transform on a DataFrame: plain selectExpr and where, no view in the catalogue, so that pipelines in several threads do not meet. Drivers only."""

from pyspark.sql import DataFrame, SparkSession

from tidegate.connectors.sql import des
from tidegate.connectors.sql.query import Translation
from tidegate.connectors.sql.transform import Sql
from tidegate.model.types import Table


def frame(transform: Sql, table: Table, df: DataFrame) -> DataFrame:
    """The rows that the query gives, with the row kinds where the table has them."""
    for step in transform.translations(table):
        if _needs_des(step):
            _register_des(df.sparkSession)
        for columns in step.explodes:
            df = df.selectExpr(*columns)
        if step.where is not None:
            df = df.where(step.where)
        df = df.selectExpr(*step.selects)
    return df


def _needs_des(step: Translation) -> bool:
    return any("tidegate_des_" in sql for sql in (*step.selects, step.where or "", *(c for columns in step.explodes for c in columns)))


def _register_des(spark: SparkSession) -> None:
    """Spark has AES and no DES, so these two are Python functions; registering them again changes nothing."""
    spark.udf.register("tidegate_des_encrypt", des.encrypt, "string")
    spark.udf.register("tidegate_des_decrypt", des.decrypt, "string")
