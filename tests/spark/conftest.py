"""One JVM for all tests that need Spark, opened by the product's own code.

What tests send to the workers from modules beside this file is found there too.
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
    """The session of the whole suite: two cores, full settings, no start-up cache."""
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([HERE, *filter(None, [before])])
    with tempfile.TemporaryDirectory(prefix="tidegate-spark-", ignore_cleanup_errors=True) as place:
        session = open_session(
            SessionSettings(
                name="tests",
                work=Path(place, "work"),
                logs=Path(place, "logs"),
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
    """An engine of its own over the session."""
    return SparkEngine(spark)
