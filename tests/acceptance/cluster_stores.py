"""Which clusters a scenario is tried on: three stores, with and without Spark. Fixtures for
conftest, and `on` for the tests.

`make test` runs each scenario where it proves most for its time, `make soak` tries all of them
everywhere.
"""

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from cluster_kit import Cluster
from cluster_members import Refused

from tidegate.testing.servers.etcd import EtcdServer
from tidegate.testing.servers.postgres import PostgresServer

KINDS = tuple(
    f"{store}-{engine}" for store in ("sqlite", "postgres", "etcd") for engine in ("plain", "spark")
)
# the servers run the jobs themselves, which is the default
BUILT_IN = "sqlite-plain-built-in"
NUMBERS = itertools.count(1)


def on(*quick: str) -> pytest.MarkDecorator:
    """On these kinds of clusters always, on all others in the soak; with built-in workers only
    where it says so.
    """
    params = [
        pytest.param(kind, marks=() if kind in quick else pytest.mark.soak)
        for kind in dict.fromkeys((*KINDS, *quick))
    ]
    return pytest.mark.parametrize("shared_cluster", params, indirect=True)


def own_on_spark_too() -> pytest.MarkDecorator:
    """For a test with a cluster of its own: without Spark always, on Spark in the soak."""
    return pytest.mark.parametrize(
        "own_cluster", ["plain", pytest.param("spark", marks=pytest.mark.soak)], indirect=True
    )


@pytest.fixture(scope="session")
def cluster_postgres() -> Iterator[PostgresServer]:
    """One server for all clusters that do not end it; each has a schema of its own."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def cluster_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """One server for all clusters that do not end it; each has a prefix of its own."""
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture(scope="module")
def shared_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster shared by the scenarios of a module; each restarts what is missing first."""
    store, engine = str(request.param).split("-")[:2]
    name, url = f"cluster_{next(NUMBERS)}", ""
    if store == "postgres":
        url = f"{request.getfixturevalue('cluster_postgres').url}?schema={name}"
    elif store == "etcd":
        url = request.getfixturevalue("cluster_etcd").url_of(name)
    with quick_disk() as root:
        made = Cluster(
            root, state_url=url, spark=engine == "spark", built_in=request.param == BUILT_IN
        )
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, whole: three servers, two workers.

    Nothing that must not be was seen in it when the test is over.
    """
    shared_cluster.complete()
    polls = shared_cluster.observer.polls
    yield shared_cluster
    left_behind(shared_cluster)
    assert shared_cluster.observer.polls > polls
    assert shared_cluster.observer.violations == []


@pytest.fixture
def own_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster on the embedded store for this test alone, with no process yet; without Spark
    unless the test requests it.
    """
    with quick_disk() as root:
        made = Cluster(root, spark=getattr(request, "param", "plain") == "spark")
        try:
            yield made
            assert made.observer.violations == []
        finally:
            made.close()


def left_behind(cluster: Cluster) -> None:
    """What a test that failed has left must not be in the way of the next one."""
    for member in [member for member in cluster.members if member.alive and member.paused]:
        member.kill()
    for job in [job for job in cluster.jobs if not job.ended()]:
        with suppress(OSError, Refused, AssertionError):
            job.stop(force=True)


@contextmanager
def quick_disk() -> Iterator[Path]:
    """A directory where fsync costs nothing: a kill -9 does not care, and the machine's disk is not
    what is tested.
    """
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if Path("/dev/shm").is_dir() else None,
        prefix="tidegate-",
        ignore_cleanup_errors=True,
    ) as directory:
        yield Path(directory)
