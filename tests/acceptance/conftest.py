"""What the acceptance tests share: one JVM (that of tests/spark where it is open already), a quick
disk, the zygote of runs that are killed, clusters.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tidegate.spark.engine import SparkEngine
from tidegate.spark.session import SessionSettings, close_session, open_session
from tidegate.testing.crash_runs import CrashRuns
from tidegate.testing.in_process import Shared

sys.path.insert(0, str(Path(__file__).parent))
for name in ("cluster_kit", "cluster_members", "cluster_stores"):
    pytest.register_assert_rewrite(name)
from cluster_stores import (  # noqa: E402  # fixtures
    cluster,  # noqa: F401  # a fixture
    cluster_etcd,  # noqa: F401  # a fixture
    cluster_postgres,  # noqa: F401  # a fixture
    own_cluster,  # noqa: F401  # a fixture
    shared_cluster,  # noqa: F401  # a fixture
)


@pytest.fixture(scope="session")
def shared_engine() -> Iterator[Shared]:
    """A Spark engine that outlives the runs that use it."""
    there = SparkSession.getActiveSession()
    if there is not None:
        yield Shared(SparkEngine(there))
        return
    with tempfile.TemporaryDirectory(
        prefix="tidegate-accept-", ignore_cleanup_errors=True
    ) as place:
        session = open_session(
            SessionSettings(
                name="acceptance",
                work=Path(place, "work"),
                logs=Path(place, "logs"),
                conf={"spark.master": "local[2]"},
            )
        )
        try:
            yield Shared(SparkEngine(session))
        finally:
            close_session(session)


@pytest.fixture
def memory_disk(tmp_path: Path) -> Iterator[Path]:
    """A directory where fsync costs nothing: a kill -9 does not care, and the machine's disk is not
    what is tested.
    """
    if not Path("/dev/shm").is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tidegate-") as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def runs() -> Iterator[CrashRuns]:
    """Runs of a job as processes that can be killed anywhere."""
    with CrashRuns() as zygote:
        yield zygote
