"""Our side: a process with Tidegate's session and engine as a driver has them, and whole runs in
it. Started by sides.py, one JSON request a line.

A run is everything that `tidegate run` does but the processes: file parsed and planned, job
claimed, batches begun, written, committed, published, completed.
"""

import itertools
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tidegate.home import Home
from tidegate.pipeline.engine import Batch, Written
from tidegate.pipeline.graph import Graph
from tidegate.spark import startup_cache
from tidegate.spark.engine import SparkEngine
from tidegate.spark.session import SessionSettings, end_session, open_context
from tidegate.spark.startup_job import identity
from tidegate.testing.in_process import Shared, run_in_process


class Timed(Shared):
    """Notes when the Spark job of each batch begins and ends."""

    def __init__(self, engine: SparkEngine) -> None:
        super().__init__(engine)
        self.jobs: list[tuple[float, float]] = []

    def run(self, graph: Graph, batch: Batch) -> Written:
        began = time.perf_counter()
        written = super().run(graph, batch)
        self.jobs.append((began, time.perf_counter()))
        return written


def run(engine: SparkEngine, request: dict[str, Any]) -> dict[str, Any]:
    """One run of a job file in a home that is new for it."""
    timed = Timed(engine)
    home = Path(request["home"])
    began = time.perf_counter()
    ran = run_in_process(request["file"], Home(home), timed)
    ended = time.perf_counter()
    shutil.rmtree(home)
    starts = [start for start, _ in timed.jobs]
    return {
        "seconds": ended - began,
        "status": ran.outcome.status.value,
        "checkpoints": len(timed.jobs),
        "jobs": [end - start for start, end in timed.jobs],
        "batches": [b - a for a, b in itertools.pairwise(starts)],
        "first": timed.jobs[0][1] - began if timed.jobs else None,
    }


def main() -> None:
    """Open the session, do one dummy job as a warm driver does, answer requests until there are no
    more.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    work, light = Path(sys.argv[1]), sys.argv[2] == "light"
    settings = SessionSettings(
        name="benchmark",
        work=work,
        logs=work / "logs",
        conf={"spark.master": "local[2]"},
        cache=startup_cache.locate(work / "cache"),
        light=light,
    )
    spark = open_context(settings)
    engine = SparkEngine(spark)
    engine.warm_up()
    if not light:
        SparkSession(spark).range(0, 2, 1, 2).mapInArrow(identity, "id bigint").collect()
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(run(engine, json.loads(line))), file=answers, flush=True)
    end_session(spark)


if __name__ == "__main__":
    main()
