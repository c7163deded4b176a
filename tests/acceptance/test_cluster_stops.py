"""Stops and hangs in a cluster: a stop needs neither the leader nor the worker that was there when
the job began, and what hangs is found out and replaced.
"""

import os
import signal

from cluster_jobs import bounded, flow
from cluster_kit import Cluster
from cluster_stores import on

from tidegate.model.records import JobStatus
from tidegate.runner.process import session_members


@on("sqlite-plain")
def test_a_job_is_stopped_although_no_worker_lives(cluster: Cluster) -> None:
    job = cluster.submit(flow())
    job.makes_progress()
    for worker in cluster.workers:
        worker.kill()
    job.makes_progress()
    job.stop()
    job.has_no_process()
    job.is_exactly_once()


@on("sqlite-plain")
def test_a_stopped_job_resumes_from_its_latest_checkpoint_under_another_leader(
    cluster: Cluster,
) -> None:
    job = cluster.submit(flow())
    job.makes_progress()
    job.stop()
    generation, checkpoint, rows = job.generation(), job.checkpoint(), len(job.rows())
    cluster.leader().kill()
    cluster.submit(flow(), at=cluster.leader(), job_id=job.id, query="&restore=latest")
    job.until("the next generation", lambda: job.generation() > generation)
    job.until("more checkpoints", lambda: job.checkpoint() > checkpoint + 2)
    job.kill_driver()
    job.makes_progress()
    job.stop()
    assert len(job.rows()) > rows
    job.is_exactly_once()


@on("sqlite-plain")
def test_a_job_waiting_for_a_worker_reports_it_and_starts_under_the_next_leader(
    cluster: Cluster,
) -> None:
    for worker in cluster.workers:
        worker.kill()
    job = cluster.submit(bounded(50, 500))
    job.until(
        "why it waits",
        lambda: (state := job.known().state) and state.value.reason == "no worker is running",
    )
    cluster.leader().kill()
    # The next leader gives a silent worker its whole lease before it believes that nobody is there.
    job.until(
        "it waits again", lambda: cluster.servers[0].running()[job.id]["jobStatus"] == "PENDING"
    )
    cluster.complete()
    job.ends(JobStatus.FINISHED)
    job.is_exactly_once(50)


@on("sqlite-plain")
def test_a_worker_that_hangs_past_its_lease_and_wakes_up_starts_nothing_twice(
    cluster: Cluster,
) -> None:
    job = cluster.submit(flow())
    job.makes_progress()
    driver = job.driver()
    hung = cluster.worker_of(driver)
    hung.pause()
    job.until(
        "another worker", lambda: (a := job.known().assignment) and a.value.worker != driver.worker
    )
    hung.resume()
    job.until("the one that hung is back", lambda: cluster.worker_id(hung))
    assert job.driver().process == driver.process
    job.makes_progress()
    job.kill_driver()  # a child of the one, in the care of the other
    job.until("the next generation", lambda: job.generation() > driver.generation)
    job.makes_progress()
    assert job.generation() == driver.generation + 1
    job.stop()
    job.is_exactly_once()


@on("sqlite-plain")
def test_a_driver_that_hangs_is_late_then_stalled_then_replaced(cluster: Cluster) -> None:
    job = cluster.submit(flow(env=f", checkpoint.timeout = {20_000 if cluster.spark else 3_000}"))
    job.makes_progress()
    driver = job.driver()
    cluster.pause(driver.process.pid)
    job.until("LATE", lambda: cluster.servers[0].running()[job.id]["checkpointHealth"] == "LATE")
    job.until("the next generation", lambda: job.generation() > driver.generation)
    assert not session_members(driver.process)
    assert "stalled" in [failure.condition for failure in job.known().state.value.failures]
    job.makes_progress()
    job.stop()
    job.is_exactly_once()


@on("sqlite-plain")
def test_a_force_stop_ends_a_driver_that_hangs_and_a_dead_leader_does_not_forget_it(
    cluster: Cluster,
) -> None:
    job = cluster.submit(flow())
    job.makes_progress()
    driver = job.driver()
    cluster.pause(driver.process.pid)
    cluster.leader().kill()
    job.stop(force=True)
    assert not session_members(driver.process)
    job.is_exactly_once()


@on("sqlite-plain")
def test_a_driver_that_gets_a_signal_ends_at_a_checkpoint_and_the_job_continues(
    cluster: Cluster,
) -> None:
    job = cluster.submit(bounded(500, 100))
    job.makes_progress(1)
    driver = job.driver()
    os.kill(driver.process.pid, signal.SIGTERM)
    job.until("the next generation", lambda: job.generation() > driver.generation)
    job.ends(JobStatus.FINISHED)
    job.is_exactly_once(500)
