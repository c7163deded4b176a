"""The other side: a process with plain PySpark, Spark's own settings but for two cores and no UI.
Started by sides.py, one JSON request a line.

`python -m benchmarks.raw_side --once REQUEST` does one thing and ends: the cold program.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ["PYSPARK_PYTHON"] = sys.executable

import itertools

from pyspark.sql import SparkSession

from benchmarks.jobs import raw_frame, raw_write
from benchmarks.rows import DDL


def session(work: str, more: Mapping[str, str] | None = None) -> SparkSession:
    """What a careful person would write: Spark's own settings but for two cores and no UI, and what
    else the work needs.
    """
    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": work,
        "spark.driver.host": "127.0.0.1",
        **(more or {}),
    }
    builder = SparkSession.builder.master("local[2]").config(
        "spark.driver.bindAddress", "127.0.0.1"
    )
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def copy(spark: SparkSession, request: dict[str, Any]) -> dict[str, Any]:
    """One program's work: read, perhaps filter and project, write."""
    began = time.perf_counter()
    raw_write(raw_frame(spark, request["source"], sql=request["sql"]), request["target"])
    return {"seconds": time.perf_counter() - began}


def loop(spark: SparkSession, request: dict[str, Any]) -> dict[str, Any]:
    """A Spark job for each file of a directory."""
    seconds = []
    for file in sorted(Path(request["source"]).iterdir()):
        began = time.perf_counter()
        raw_write(raw_frame(spark, str(file), sql=request["sql"]), request["target"])
        seconds.append(time.perf_counter() - began)
    return {"batches": seconds}


def stream(spark: SparkSession, request: dict[str, Any]) -> dict[str, Any]:
    """The same files, one a batch, by Structured Streaming with foreachBatch.

    The cost of a batch is the time from its start to the next one's.
    """
    starts: list[float] = []

    def write(batch: Any, _: int) -> None:
        starts.append(time.perf_counter())
        raw_write(batch, request["target"])

    began = time.perf_counter()
    frame = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).csv(request["source"])
    query = (
        frame.writeStream.foreachBatch(write)
        .option("checkpointLocation", request["checkpoints"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return {"batches": [b - a for a, b in itertools.pairwise(starts)], "first": starts[0] - began}


def main() -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    actions = {"copy": copy, "loop": loop, "stream": stream}
    if sys.argv[1] == "--once":
        request = json.loads(sys.argv[2])
        actions[request["do"]](session(request["work"]), request)
        return
    spark = session(sys.argv[1])
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(actions[request["do"]](spark, request)), file=answers, flush=True)


if __name__ == "__main__":
    main()
