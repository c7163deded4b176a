"""A typical small job, run by startup_cache.py to record the classes that a job needs.

python -m tidegate.spark.startup_job <work directory> <archive to write>
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.spark.engine import SparkEngine
from tidegate.spark.session import SessionSettings, close_session, open_session

if TYPE_CHECKING:
    import pyarrow as pa

ARCHIVE_S_MAX = 300  # the JVM writes the archive when it exits


def identity(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Return the rows unchanged: only the path through a Python worker matters."""
    yield from batches


def main(work: Path, archive: Path) -> None:
    """Run a fused batch, a batch of DataFrames, a cached frame and SQL."""
    option = f"-XX:ArchiveClassesAtExit={archive}"
    spark = open_session(
        SessionSettings(
            name="startup",
            work=work,
            logs=work / "logs",
            conf={"spark.driver.extraJavaOptions": option},
        )
    )
    try:
        SparkEngine(spark).warm_up()
        spark.range(0, 2, 1, 2).mapInArrow(identity, "id bigint").collect()
        rows = (
            spark.range(0, 10, 1, 2)
            .selectExpr(
                "id",
                "cast(id as string) name",
                "current_timestamp() at",
                "cast(id as decimal(10,2)) d",
            )
            .persist()
        )
        kept = rows.where("id % 2 = 0 and upper(name) <> 'X'").selectExpr(
            "id", "concat(name, '!') name", "d * 2 d"
        )
        kept.select("id").mapInArrow(identity, "id bigint").union(
            rows.select("id").mapInArrow(identity, "id bigint")
        ).collect()
        rows.groupBy("name").count().collect()
        rows.unpersist()
    finally:
        close_session(spark, wait_s=ARCHIVE_S_MAX)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
