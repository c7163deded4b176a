"""The other side of a copy between databases: a warm process with plain PySpark and JDBC drivers. Started by databases.py, one JSON request a line."""

import json
import os
import sys
import time
from typing import Any

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

PARTITIONS = 2
ROWS_AT_ONCE = 10_000


def session(work: str, jars: str) -> SparkSession:
    """Spark's own settings but for two cores, no UI, and the drivers."""
    builder = SparkSession.builder.master("local[2]").config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    conf = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.local.dir": work, "spark.driver.extraClassPath": jars}
    conf |= {"spark.sql.session.timeZone": "UTC", "spark.driver.extraJavaOptions": "-Duser.timezone=UTC"}
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def copy(spark: SparkSession, request: dict[str, Any]) -> dict[str, Any]:
    """What a careful person would write: cut by the key, fetched and written by the thousand."""
    began = time.perf_counter()
    cut = {"partitionColumn": "id", "lowerBound": 1, "upperBound": request["rows"], "numPartitions": PARTITIONS, "fetchsize": ROWS_AT_ONCE}
    frame = spark.read.format("jdbc").options(url=request["source"], dbtable=request["table"], **cut).load()
    frame.write.format("jdbc").options(url=request["target"], dbtable=request["into"], batchsize=ROWS_AT_ONCE).mode("overwrite").save()
    return {"seconds": time.perf_counter() - began}


def main() -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spark = session(sys.argv[1], sys.argv[2])
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(copy(spark, json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
