"""The observer that is on every cluster sees what it is there for."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_members import until
from cluster_observer import ClusterObserver

from tidegate.model.document import to_document
from tidegate.model.records import (
    JOB_STATES,
    LEASES,
    PIPELINES,
    RUNNING_JOBS,
    CheckpointRef,
    JobState,
    JobStatus,
    Lease,
    PipelineState,
)
from tidegate.store.base import Put, Store
from tidegate.store.open import open_store

RUNNING, FAILED = (
    JobState(job_id=7, status=status, initialization_ms=1, generation=2)
    for status in (JobStatus.RUNNING, JobStatus.FAILED)
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = open_store(url)
    yield opened
    opened.close()


@pytest.fixture
def observer(url: str, store: Store) -> Iterator[ClusterObserver]:
    del store  # it is created before the observer polls
    made = ClusterObserver(url, lambda: [("a server", lambda: {7: {}})])
    made.start()
    yield made
    made.stop()


def show(store: Store, observer: ClusterObserver, *documents: tuple[str, str, object]) -> None:
    """Let the observer poll this state at least once."""
    store.transact(
        [],
        [
            Put(map, key, value if isinstance(value, dict) else to_document(value))
            for map, key, value in documents
        ],
    )
    before = observer.polls
    until("two polls", lambda: observer.polls >= before + 2)


def pipeline(checkpoint: int) -> PipelineState:
    ref = CheckpointRef(
        checkpoint=checkpoint, path=f"7/1/{checkpoint}", generation=1, begun_ms=1, completed_ms=1
    )
    return PipelineState(
        job_id=7, pipeline=1, lineage="7", generation=1, retained=(ref,), next_checkpoint=9
    )


def test_a_healthy_cluster_causes_no_violation(store: Store, observer: ClusterObserver) -> None:
    show(
        store,
        observer,
        (JOB_STATES, "7", RUNNING),
        (RUNNING_JOBS, "7", {"initialization_ms": 1}),
        (PIPELINES, "7/1", pipeline(3)),
    )
    show(store, observer, (JOB_STATES, "7", RUNNING), (PIPELINES, "7/1", pipeline(4)))
    assert observer.violations == []


def test_an_ended_job_that_runs_again_is_noted(store: Store, observer: ClusterObserver) -> None:
    show(store, observer, (JOB_STATES, "7", FAILED))
    show(store, observer, (JOB_STATES, "7", RUNNING))
    assert observer.violations == ["job 7 was FAILED and became RUNNING"]


def test_an_ended_job_among_the_running_ones_is_noted(
    store: Store, observer: ClusterObserver
) -> None:
    show(store, observer, (JOB_STATES, "7", FAILED), (RUNNING_JOBS, "7", {"initialization_ms": 1}))
    assert observer.violations == ["job 7 is FAILED and still among the running jobs"]


def test_numbers_that_go_back_are_noted(store: Store, observer: ClusterObserver) -> None:
    show(
        store,
        observer,
        (PIPELINES, "7/1", pipeline(3)),
        (LEASES, "coordinator", Lease(holder="a", term=3)),
    )
    show(
        store,
        observer,
        (PIPELINES, "7/1", pipeline(2)),
        (LEASES, "coordinator", Lease(holder="b", term=2)),
    )
    assert observer.violations == [
        "checkpoints 7 1 went back from 3 to 2",
        "term went back from 3 to 2",
    ]


def test_a_server_that_lists_an_ended_job_for_long_is_noted(
    store: Store, observer: ClusterObserver
) -> None:
    show(store, observer, (JOB_STATES, "7", FAILED))
    until("the note", lambda: observer.violations, timeout_s=30)
    assert observer.violations == ["job 7 is FAILED and server a server lists it as running"]
