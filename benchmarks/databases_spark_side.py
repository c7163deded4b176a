"""The other side of a copy between databases: a warm process with plain PySpark and JDBC drivers.
Started by databases.py, one JSON request a line.
"""

import json
import os
import sys
import time
from typing import Any

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

from benchmarks.raw_side import session

PARTITIONS = 2
ROWS_AT_ONCE = 10_000
IN_UTC = {
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
}


def copy(spark: SparkSession, request: dict[str, Any]) -> dict[str, Any]:
    """What a careful person would write: cut by the key, fetched and written by the thousand."""
    began = time.perf_counter()
    cut = {
        "partitionColumn": "id",
        "lowerBound": 1,
        "upperBound": request["rows"],
        "numPartitions": PARTITIONS,
        "fetchsize": ROWS_AT_ONCE,
    }
    frame = (
        spark.read.format("jdbc")
        .options(url=request["source"], dbtable=request["table"], **cut)
        .load()
    )
    frame.write.format("jdbc").options(
        url=request["target"], dbtable=request["into"], batchsize=ROWS_AT_ONCE
    ).mode("overwrite").save()
    return {"seconds": time.perf_counter() - began}


def main() -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spark = session(sys.argv[1], {"spark.driver.extraClassPath": sys.argv[2], **IN_UTC})
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(copy(spark, json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
