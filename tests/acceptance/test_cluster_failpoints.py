"""A process dies at every point where state becomes durable: the leader, the driver and the worker
at each of their own.

The scenario is always the same: a bounded job whose driver is killed once. Whatever else dies,
the job is finished with every row once, and nothing of it is left.
"""

import pytest
from cluster_jobs import bounded
from cluster_kit import Cluster
from cluster_members import Member, until

from tidegate.model.records import JobStatus
from tidegate.runner.process import kill_session
from tidegate.testing.failpoints import failpoint_names

ROWS = 300
QUICK = {
    "lease.take.after",
    "transition.record.before@6",
    "driver.launch.after",
    "driver.register.after",
}
OF_SERVERS = (
    "lease.take",
    "lease.renew",
    "transition.record",
    "worker.expire",
    "cleanup.delete",
    "cleanup.keys",
    "checkpoint.delete_job",
)
OF_WORKERS = (
    "driver.launch",
    "driver.register",
    "worker.announce",
    "worker.report",
    "ledger",
    "batch",
    "checkpoint.publish",
    "filesink",
)
TRANSITIONS = 7  # SCHEDULED, RUNNING, RECOVERING, PENDING, SCHEDULED, RUNNING, FINISHED
NOT_IN_THE_STORY = (
    *(
        f"filesink.{step}"
        for step in ("append", "fence", "lineages", "prepare", "retain", "rewind", "takeback")
    ),
    "ledger.repeat",  # no store is lost: see test_crash_matrix.py
    "ledger.save",  # no savepoint is made: see test_savepoints.py
    "filesink.publish.middle",  # between two files of a batch: here they have one
)


def places(areas: tuple[str, ...]) -> list[str]:
    """The failpoints of the product that belong to these areas."""
    return [
        name
        for name in failpoint_names()
        if name.startswith(areas) and not name.startswith(NOT_IN_THE_STORY)
    ]


def params(names: list[str]) -> list[object]:
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.soak) for name in names]


def of_servers() -> list[object]:
    names = places(OF_SERVERS)
    several = [
        f"{name}@{hit}"
        for name in names
        if name.startswith("transition.record")
        for hit in range(2, TRANSITIONS + 1)
    ]
    return params(names + several)


def check_scenario(cluster: Cluster, victim: Member) -> None:
    """From the submission to the cleanup; the victim dies on the way."""
    job = cluster.submit(bounded(ROWS, 100, ", job.retry.times = 100"), at=cluster.servers[-1])
    job.until("a checkpoint, or a death", lambda: job.checkpoint() or not victim.alive)
    if job.checkpoint() and not job.ended():
        kill_session(job.driver().process)
    job.ends(JobStatus.FINISHED)
    job.is_exactly_once(ROWS)
    job.is_cleaned_up()
    until("the death", lambda: not victim.alive, describe=cluster.describe)


@pytest.mark.parametrize("place", of_servers())
def test_a_leader_dies_at_a_place_of_its_own(own_cluster: Cluster, place: str) -> None:
    victim = own_cluster.start_server(failpoint=place)
    until("a leader, or its death", lambda: own_cluster.term() or not victim.alive)
    lost = own_cluster.worker()
    own_cluster.server()
    own_cluster.worker()
    if place.startswith("worker.expire"):
        lost.kill()
    check_scenario(own_cluster, victim)


@pytest.mark.parametrize("place", params(places(OF_WORKERS)))
def test_a_driver_or_its_worker_dies_at_a_place_of_its_own(
    own_cluster: Cluster, place: str
) -> None:
    own_cluster.server()
    victim = own_cluster.start_worker(failpoint=place)
    job = None
    until("a worker, or its death", lambda: own_cluster.worker_id(victim) or not victim.alive)
    if victim.alive:
        job = own_cluster.submit(bounded(ROWS, 100, ", job.retry.times = 100"))
        if place.startswith("worker.report"):
            job.makes_progress(1)
            kill_session(job.driver().process)
        job.until(
            "a death",
            lambda: (
                not victim.alive
                or (job is not None and death_of_a_driver(own_cluster, job.id, place))
            ),
        )
    victim.kill()
    own_cluster.worker()
    job = job or own_cluster.submit(bounded(ROWS, 100, ", job.retry.times = 100"))
    job.ends(JobStatus.FINISHED)
    job.is_exactly_once(ROWS)
    job.is_cleaned_up()
    job.has_no_process()


def death_of_a_driver(cluster: Cluster, job_id: int, place: str) -> bool:
    """Whether a driver has logged that it dies at this failpoint."""
    error_log = cluster.home.logs(job_id) / "driver.err"
    return error_log.exists() and f"failpoint {place}" in error_log.read_text(errors="replace")
