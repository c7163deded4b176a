"""One JVM for the acceptance tests that run in this process: that of tests/spark where it is open already, else one of their own."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tidegate.spark.engine import SparkEngine
from tidegate.spark.session import SessionSettings, close_session, open_session
from tidegate.testing.in_process import Shared


@pytest.fixture(scope="session")
def shared_engine() -> Iterator[Shared]:
    """A Spark engine that outlives the runs that use it."""
    there = SparkSession.getActiveSession()
    if there is not None:
        yield Shared(SparkEngine(there))
        return
    with tempfile.TemporaryDirectory(prefix="tidegate-accept-", ignore_cleanup_errors=True) as place:
        session = open_session(SessionSettings(name="acceptance", work=Path(place, "work"), logs=Path(place, "logs"), conf={"spark.master": "local[2]"}))
        try:
            yield Shared(SparkEngine(session))
        finally:
            close_session(session)
