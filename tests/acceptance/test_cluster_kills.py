"""Three servers, two workers, killed and paused in sequence while jobs run: no data is lost or
doubled, no ended job runs again, numbers only grow.
"""

import itertools

import pytest
from cluster_jobs import bounded, flow
from cluster_kit import Cluster
from cluster_members import until
from cluster_stores import BUILT_IN, on

from tidegate.model.records import JobStatus
from tidegate.runner.process import session_members


@on("sqlite-plain", "postgres-plain", "etcd-plain", BUILT_IN)
def test_a_dead_leader_and_a_dead_successor_cost_the_data_nothing(cluster: Cluster) -> None:
    job = cluster.submit(flow(), at=cluster.follower())
    job.makes_progress()
    driver = job.driver()
    for _ in range(2):
        term, before = cluster.term(), job.checkpoint()
        cluster.leader().kill()
        job.until(
            "checkpoints without a leader", lambda before=before: job.checkpoint() >= before + 2
        )
        cluster.leader()
        assert cluster.term() > term
        job.makes_progress()
    (last,) = cluster.servers
    listed = job.until(
        "RUNNING and OK",
        lambda: (
            (j := last.running()[job.id])
            and (j["jobStatus"], j["checkpointHealth"]) == ("RUNNING", "OK")
            and j
        ),
    )
    assert int(listed["lastCheckpointId"]) > 0
    assert job.driver().process == driver.process
    other = cluster.submit(bounded(100, 1_000), at=last)
    other.ends(JobStatus.FINISHED)
    other.is_exactly_once(100)
    job.stop(last)
    job.is_exactly_once()


@on("sqlite-plain", "postgres-plain")
def test_a_leader_that_hangs_past_its_lease_changes_nothing_when_it_wakes_up(
    cluster: Cluster,
) -> None:
    stream, stopped = cluster.submit(flow()), cluster.submit(flow())
    stream.makes_progress()
    stopped.makes_progress()
    hung, term = cluster.leader(), cluster.term()
    hung.pause()
    before = stream.checkpoint()
    leader = cluster.leader()
    assert cluster.term() > term
    stream.until("checkpoints meanwhile", lambda: stream.checkpoint() > before + 2)
    fresh = cluster.submit(bounded(100, 1_000), at=leader)
    fresh.ends(JobStatus.FINISHED)
    stopped.stop(leader)
    hung.resume()
    until(
        "the one that hung knows who leads",
        lambda: hung.get("/health")["leader"]["id"] == cluster.leader().id,
    )
    for job, status in ((fresh, JobStatus.FINISHED), (stopped, JobStatus.CANCELED)):
        job.ends(status)
        job.is_exactly_once()
    stream.makes_progress()
    stream.stop(hung)
    stream.is_exactly_once()


@on("sqlite-plain")
def test_a_driver_outlives_its_worker_and_is_adopted_in_the_same_generation(
    cluster: Cluster,
) -> None:
    job = cluster.submit(flow())
    job.makes_progress()
    driver = job.driver()
    cluster.worker_of(driver).kill()
    job.makes_progress()
    assignment = job.until(
        "another worker",
        lambda: (a := job.known().assignment) and a.value.worker != driver.worker and a.value,
    )
    assert assignment.generation == driver.generation
    assert job.driver().process == driver.process
    job.makes_progress()
    job.kill_driver()  # the one that adopted it sees that, and reports it
    job.until("the next generation", lambda: job.generation() > driver.generation)
    job.makes_progress()
    job.stop()
    job.is_exactly_once()


@on("sqlite-plain")
def test_a_bounded_job_whose_driver_is_killed_again_and_again_finishes_with_every_row(
    cluster: Cluster,
) -> None:
    job = cluster.submit(bounded(1_200, 200))
    generations = [job.driver().generation]
    for _ in range(3):
        job.makes_progress(1)
        process = job.driver().process
        job.kill_driver()
        assert not session_members(process)
        job.until("the next generation", lambda: job.ended() or job.generation() > generations[-1])
        generations.append(job.driver().generation)
    assert all(after > before for before, after in itertools.pairwise(generations))
    job.ends(JobStatus.FINISHED)
    job.is_exactly_once(1_200)
    job.is_cleaned_up()


@on("sqlite-plain", "etcd-plain")
def test_everything_is_killed_and_started_again(cluster: Cluster) -> None:
    stream, stopped = cluster.submit(flow()), cluster.submit(flow())
    for job in (stream, stopped):
        job.makes_progress()
    stopped.stop()
    batch = cluster.submit(bounded(400, 100))  # last, so that it is on its way when all die
    batch.makes_progress()
    before = {job.id: (job.generation(), job.checkpoint()) for job in (batch, stream)}
    cluster.kill_everything()
    cluster.complete()
    for job in (batch, stream):
        job.until("the next generation", lambda job=job: job.generation() > before[job.id][0])
    stream.until("more checkpoints", lambda: stream.checkpoint() > before[stream.id][1])
    batch.ends(JobStatus.FINISHED)
    batch.is_exactly_once(400)
    stopped.ends(JobStatus.CANCELED)
    stopped.is_exactly_once()
    stream.stop()
    stream.is_exactly_once()


@on("sqlite-plain")
def test_drivers_continue_without_servers_and_workers_and_are_adopted_by_new_ones(
    cluster: Cluster,
) -> None:
    stream = cluster.submit(flow())
    stream.makes_progress()
    batch = cluster.submit(bounded(300, 100))  # last, so that it is on its way when all die
    batch.makes_progress()
    drivers = {job.id: job.driver().process for job in (batch, stream)}
    for member in cluster.members:
        member.kill()
    stream.makes_progress(10)
    batch.until(
        "its end without a coordinator",
        lambda: {p.status for p in batch.pipelines()} == {"FINISHED"},
    )
    assert batch.status() is JobStatus.RUNNING
    cluster.complete()
    batch.ends(JobStatus.FINISHED)
    batch.is_exactly_once(300)
    until(
        "the adoption",
        lambda: (
            (a := stream.known().assignment)
            and a.value.worker in map(cluster.worker_id, cluster.members)
        ),
    )
    assert stream.driver().process == drivers[stream.id]
    stream.stop()
    stream.is_exactly_once()
    stream.has_no_process()


@pytest.mark.timeout(900)
@on("sqlite-spark", "postgres-spark", "etcd-spark")
def test_on_spark_leaders_and_drivers_die_and_every_row_is_there_once(cluster: Cluster) -> None:
    stream = cluster.submit(flow())
    stream.makes_progress(1)
    batch = cluster.submit(bounded(2_000, 400))
    batch.makes_progress(1)
    driver = stream.driver()
    cluster.leader().kill()
    batch.kill_driver()
    stream.makes_progress()
    batch.until("the next generation", lambda: batch.generation() > 1)
    cluster.leader().kill()
    batch.ends(JobStatus.FINISHED)
    batch.is_exactly_once(2_000)
    assert stream.driver().process == driver.process
    stream.kill_driver()
    stream.until("the next generation", lambda: stream.generation() > driver.generation)
    stream.makes_progress()
    stream.stop()
    stream.is_exactly_once()
