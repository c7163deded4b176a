"""The store is away for a while: drivers wait and continue, servers report the cause and
recover by themselves, and no row is lost or doubled.
"""

import time
from collections.abc import Iterator

import pytest
from cluster_jobs import bounded, flow
from cluster_kit import Cluster
from cluster_members import Refused, Server, until
from cluster_stores import quick_disk

from tidegate.model.records import JobStatus
from tidegate.testing.servers.etcd import EtcdServer
from tidegate.testing.servers.postgres import PostgresServer

OUTAGE_S = 20.0
Backing = PostgresServer | EtcdServer


STORIES = [
    pytest.param("postgres", "plain", False, id="postgres-stopped"),
    *(
        pytest.param(
            store,
            engine,
            hard,
            id=f"{store}-{'killed' if hard else 'stopped'}{'-spark' if engine == 'spark' else ''}",
            marks=pytest.mark.soak,
        )
        for store, engine, hard in (
            ("postgres", "plain", True),
            ("etcd", "plain", False),
            ("etcd", "plain", True),
            ("postgres", "spark", False),
        )
    ),
]


@pytest.fixture
def backing(request: pytest.FixtureRequest) -> Iterator[Backing]:
    """A server that the test may end."""
    with (
        quick_disk() as place,
        PostgresServer() if request.param == "postgres" else EtcdServer(place / "etcd") as server,
    ):
        yield server


@pytest.fixture
def cluster_on_it(backing: Backing, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with quick_disk() as root:
        made = Cluster(root, state_url=backing.url, spark=request.param == "spark")
        try:
            yield made
            assert made.observer.violations == []
        finally:
            if isinstance(backing, EtcdServer) and backing.process is None:
                backing.start()
            made.close()


def refusal(server: Server) -> Refused | None:
    """Return the error with which the server refuses, or None."""
    try:
        server.get("/running-jobs")
    except Refused as refused:
        return refused
    return None


@pytest.mark.parametrize(
    ("backing", "cluster_on_it", "hard"), STORIES, indirect=["backing", "cluster_on_it"]
)
def test_the_store_is_away_for_twenty_seconds(
    cluster_on_it: Cluster, backing: Backing, hard: bool
) -> None:
    cluster_on_it.complete(servers=2, workers=2)
    stream, stopped = cluster_on_it.submit(flow()), cluster_on_it.submit(flow())
    for job in (stream, stopped):
        job.makes_progress()
    stopped.stop()
    batch = cluster_on_it.submit(
        bounded(400, 100)
    )  # last, so that it is on its way when the store goes
    batch.makes_progress()
    driver, rows = stream.driver().process, len(stream.rows())
    (backing.kill if hard else backing.stop)()
    away_s = time.monotonic()
    for server in cluster_on_it.servers:
        refused = until("a refusal", lambda server=server: refusal(server))
        assert refused.status == 503
        assert "store" in refused.message
        with pytest.raises(Refused) as no:
            server.post("/stop-job", {"jobId": stream.id})
        assert no.value.status == 503
    until("the end of the outage", lambda: time.monotonic() - away_s >= OUTAGE_S)
    backing.start()
    for server in cluster_on_it.servers:
        until("an answer", server.running)
        assert stopped.id not in server.running()
    stream.makes_progress()
    assert stream.driver().process == driver
    assert len(stream.rows()) > rows
    batch.ends(JobStatus.FINISHED)
    batch.is_exactly_once(400)
    stopped.ends(JobStatus.CANCELED)
    stream.stop()
    stream.is_exactly_once()
    assert stream.generation() == 2, (
        "its first generation was never interrupted; the end has one of its own"
    )
