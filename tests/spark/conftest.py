"""One Spark session for all tests, opened by Tidegate's own code.

Workers can import the modules beside this file too.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tidegate.spark.engine import SparkEngine
from tidegate.spark.session import SessionSettings, close_session, open_session

HERE = str(Path(__file__).parent)
sys.path.insert(0, HERE)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session of the whole suite: two cores, full settings, no startup cache."""
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([HERE, *filter(None, [before])])
    with tempfile.TemporaryDirectory(
        prefix="tidegate-spark-", ignore_cleanup_errors=True
    ) as directory:
        session = open_session(
            SessionSettings(
                name="tests",
                work=Path(directory, "work"),
                logs=Path(directory, "logs"),
                conf={"spark.master": "local[2]"},
            )
        )
        try:
            yield session
        finally:
            close_session(session)
            os.environ["PYTHONPATH"] = before


@pytest.fixture(scope="session")
def engine(spark: SparkSession) -> SparkEngine:
    """A new engine on the shared session."""
    return SparkEngine(spark)
