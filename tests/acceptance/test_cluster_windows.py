"""Known dangerous windows, hit exactly: a process is killed or stopped at a failpoint while the
others run.
"""

import os
import signal

import pytest
from cluster_jobs import bounded, failing, five_sources, flow, slow_batch, three_sources
from cluster_kit import Cluster, Job
from cluster_members import Member, stands_still, until
from cluster_stores import own_on_spark_too

from tidegate.model.records import PENDING_CLEANUPS, RUNNING_JOBS, JobStatus
from tidegate.runner.process import kill_session, session_members
from tidegate.store.base import Put

WHOLE_SWEEP = pytest.mark.soak
CLEANUP_PLACES = [
    pytest.param("plain", "cleanup.keys.before"),
    pytest.param("spark", "cleanup.keys.before", marks=WHOLE_SWEEP),
    *(
        pytest.param("plain", name, marks=WHOLE_SWEEP)
        for name in ("cleanup.delete.before", "cleanup.delete.after", "cleanup.keys.after")
    ),
    *(
        pytest.param("plain", f"checkpoint.delete_job.{side}", marks=WHOLE_SWEEP)
        for side in ("before", "middle", "after")
    ),
]


def driver_stands_still(job: Job) -> int:
    """Wait until a failpoint has stopped the driver; its generation."""
    driver = job.driver()
    job.until("a driver that stands still", lambda: stands_still(driver.process.pid))
    return driver.generation


@pytest.mark.parametrize(("own_cluster", "place"), CLEANUP_PLACES, indirect=["own_cluster"])
def test_the_leader_dies_after_the_end_of_a_job_and_the_next_one_inside_its_cleanup(
    own_cluster: Cluster, place: str
) -> None:
    own_cluster.configure(cleanup_delay_ms=6_000)
    first = own_cluster.server()
    own_cluster.worker()
    failed, finished = own_cluster.submit(failing(4)), own_cluster.submit(bounded(50, 500))
    finished.until("FINISHED", finished.ended)
    failed.until("FAILED", failed.ended)
    first.kill()  # within the cleanup delay
    assert own_cluster.store.get(PENDING_CLEANUPS, str(failed.id)) is not None
    second = own_cluster.start_server(failpoint=place)
    until("the death of the second leader", lambda: not second.alive, describe=own_cluster.describe)
    assert f"failpoint {place}" in second.output()
    third = own_cluster.server()
    assert third.running() == {}
    for job, status in ((failed, JobStatus.FAILED), (finished, JobStatus.FINISHED)):
        job.ends(status)
        job.is_cleaned_up()
        job.has_no_process()
    finished.is_exactly_once(50)
    failed.is_exactly_once()
    assert third.get("/finished-jobs/FAILED")[0]["jobId"] == str(failed.id)
    assert list((own_cluster.home.checkpoints / str(failed.id)).rglob("_manifest.json")), (
        "a failed job can be resumed"
    )


def test_an_ended_job_put_back_among_the_running_ones_is_never_shown_or_started(
    own_cluster: Cluster,
) -> None:
    first = own_cluster.server()
    own_cluster.worker()
    job = own_cluster.submit(failing(3))
    entry = job.until("its record", lambda: own_cluster.store.get(RUNNING_JOBS, str(job.id)))
    job.until("FAILED", job.ended)
    first.kill()
    own_cluster.observer.stop()  # it would see what is done by hand here
    own_cluster.store.transact([], [Put(RUNNING_JOBS, entry.key, entry.value)])
    second, generation = own_cluster.server(), job.generation()
    assert second.running() == {}
    job.until("its burial", lambda: own_cluster.store.get(RUNNING_JOBS, entry.key) is None)
    assert second.running() == {}
    job.ends(JobStatus.FAILED)
    job.is_cleaned_up()
    assert job.generation() == generation


@own_on_spark_too()
def test_one_of_three_sources_is_ready_to_close_when_leader_worker_and_driver_die(
    own_cluster: Cluster,
) -> None:
    leader = own_cluster.server()
    worker = own_cluster.worker(failpoint="ledger.complete.after=stop")
    own_cluster.server()
    job = own_cluster.submit(three_sources(200, 200))
    generation = driver_stands_still(job)
    (pipeline,) = job.pipelines()
    assert len(pipeline.ready_to_close) == 1
    after_a_catastrophe(own_cluster, job, leader, worker)
    own_cluster.worker()
    job.ends(JobStatus.FINISHED)
    job.is_exactly_once(200)
    metrics = own_cluster.servers[0].get(f"/job-info/{job.id}")["metrics"]
    assert metrics["SinkWriteCount"] == "200"
    assert (
        sum(map(int, metrics["TableSinkWriteCount"].values()))
        == sum(map(int, metrics["TableSourceReceivedCount"].values()))
        == 200
    )
    assert metrics["SinkWriteBytes"] == metrics["SourceReceivedBytes"] != "0"
    job.is_cleaned_up()
    assert generation == 1


@own_on_spark_too()
@pytest.mark.parametrize(
    "place",
    [
        "ledger.end.before",
        pytest.param("batch.finish.before", marks=WHOLE_SWEEP),
        pytest.param("batch.finish.after", marks=WHOLE_SWEEP),
    ],
)
def test_crash_of_leader_worker_and_driver_before_the_end_of_all_sources_is_written(
    own_cluster: Cluster, place: str
) -> None:
    leader = own_cluster.server()
    worker = own_cluster.worker(failpoint=f"{place}=stop")
    own_cluster.server()
    job = own_cluster.submit(three_sources(100, 500))
    driver_stands_still(job)
    (pipeline,) = job.pipelines()
    assert (len(pipeline.ready_to_close), pipeline.status) == (3, "RUNNING")
    after_a_catastrophe(own_cluster, job, leader, worker)
    own_cluster.worker()
    job.ends(JobStatus.FINISHED)
    job.is_exactly_once(100)
    job.is_cleaned_up()


def after_a_catastrophe(cluster: Cluster, job: Job, *members: Member) -> None:
    """Leader, worker and driver are dead."""
    driver = job.driver()
    for member in members:
        member.kill()
    kill_session(driver.process)
    assert not session_members(driver.process)
    assert len(cluster.servers) == 1


@own_on_spark_too()
@pytest.mark.parametrize(
    "seen", [True, False], ids=["another-worker-sees-the-host", "nobody-sees-the-host"]
)
def test_a_batch_job_without_checkpoints_and_retries_whose_worker_is_lost_fails_and_leaves_nothing(
    own_cluster: Cluster, seen: bool
) -> None:
    server = own_cluster.server()
    worker = own_cluster.worker()
    job = own_cluster.submit(slow_batch(", job.retry.times = 0"))
    driver = job.driver()
    job.until("RUNNING", lambda: server.running()[job.id]["jobStatus"] == "RUNNING")
    if seen:
        own_cluster.worker()
    worker.kill()
    kill_session(driver.process)
    job.ends(JobStatus.FAILED)
    assert server.get(f"/job-info/{job.id}")["errorMsg"]
    assert job.rows() == []
    job.is_cleaned_up()
    assert server.get("/overview")["runningJobs"] == "0"


def test_driver_on_an_unreachable_host_continues_until_it_is_silent_and_then_is_fenced(
    own_cluster: Cluster,
) -> None:
    own_cluster.server()
    worker = own_cluster.worker(host="first-host")
    job = own_cluster.submit(flow())
    job.makes_progress()
    driver = job.driver()
    assert driver.process.host == "first-host"
    own_cluster.worker(host="second-host")
    worker.kill()
    job.until(
        "a word about it",
        lambda: (
            (state := job.known().state) and "no other worker sees that host" in state.value.reason
        ),
    )
    job.makes_progress()
    assert job.driver().process == driver.process
    own_cluster.pause(driver.process.pid)
    job.until("the next generation", lambda: job.generation() > driver.generation)
    assert job.driver().process.host == "second-host"
    job.makes_progress()
    os.kill(driver.process.pid, signal.SIGCONT)
    until(
        "the end of the old one",
        lambda: not own_cluster.has_process(driver.process.pid),
        describe=own_cluster.describe,
    )
    job.makes_progress()
    job.stop()
    job.is_exactly_once()


@own_on_spark_too()
def test_five_sources_with_five_readers_finish_with_all_rows_when_the_leader_dies_at_a_quarter(
    own_cluster: Cluster,
) -> None:
    own_cluster.server()
    own_cluster.complete()
    job = own_cluster.submit(five_sources())
    job.until(
        "a quarter of the rows", lambda: sum(p.rows_written for p in job.pipelines()) >= 1_250
    )
    assert sum(p.rows_written for p in job.pipelines()) < 4_000
    own_cluster.leader().kill()
    job.ends(JobStatus.FINISHED)
    job.is_exactly_once(5_000)
    assert own_cluster.servers[0].get(f"/job-info/{job.id}")["metrics"]["SinkWriteCount"] == "5000"


@pytest.mark.parametrize(
    "hit", [4, *(pytest.param(hit, marks=WHOLE_SWEEP) for hit in (1, 2, 3, 5))]
)
def test_a_leader_that_hangs_just_before_a_write_is_refused_when_it_wakes_up(
    own_cluster: Cluster, hit: int
) -> None:
    hung = own_cluster.server(failpoint=f"transition.record.before@{hit}=stop")
    own_cluster.worker()
    other = own_cluster.server()
    until("its leadership", lambda: own_cluster.leader() is hung)
    job = own_cluster.submit(bounded(100, 100), at=other)
    until("a leader that stands still", hung.stands_still, describe=own_cluster.describe)
    hung.paused = True
    until("another leader", lambda: own_cluster.leader() is other)
    job.ends(JobStatus.FINISHED)
    job.is_cleaned_up()
    generation = own_cluster.store.list("finished-job-state")[0].value["generation"]
    hung.resume()
    until("the one that hung follows", lambda: hung.get("/health")["leader"]["id"] == other.id)
    job.ends(JobStatus.FINISHED)
    job.is_exactly_once(100)
    job.is_cleaned_up()
    assert own_cluster.store.list("finished-job-state")[0].value["generation"] == generation


def test_leader_hanging_in_an_embedded_store_transaction_blocks_until_killed_without_data_loss(
    own_cluster: Cluster,
) -> None:
    hung = own_cluster.server(failpoint="store.transact.middle@120=stop")
    own_cluster.worker()
    other = own_cluster.server()
    job = own_cluster.submit(flow())
    until("a leader that stands still", hung.stands_still, describe=own_cluster.describe)
    hung.paused = True
    driver, before, term = job.driver(), job.checkpoint(), own_cluster.term()
    assert other.running()[job.id]["jobStatus"] == "RUNNING"  # what is known can be read
    assert (own_cluster.term(), job.checkpoint()) == (term, before)  # and nobody can write
    hung.kill()
    until("another leader", lambda: own_cluster.leader() is other)
    job.until("more checkpoints", lambda: job.checkpoint() > before + 3)
    assert job.driver().process == driver.process
    job.stop()
    job.is_exactly_once()


@pytest.mark.parametrize("command", ["submit", "stop"])
@pytest.mark.parametrize("side", [pytest.param("before", marks=WHOLE_SWEEP), "after"])
def test_server_crash_around_recording_a_command_leaves_it_whole_or_absent(
    own_cluster: Cluster, command: str, side: str
) -> None:
    own_cluster.complete(servers=1, workers=1)
    (sound,) = own_cluster.servers
    dying = own_cluster.server(failpoint=f"command.{command}.{side}")
    job = Job(own_cluster, 7)
    if command == "stop":
        job = own_cluster.submit(flow(), at=sound)
        job.makes_progress()
    send_command = (
        (lambda: own_cluster.submit(bounded(50, 500), at=dying, job_id=job.id))
        if command == "submit"
        else (lambda: job.stop(dying))
    )
    with pytest.raises(OSError, match=r"(?i)closed|reset|refused"):
        send_command()
    until("its death", lambda: not dying.alive)
    if (command, side) == ("submit", "before"):
        assert job.status() is None
        assert own_cluster.submit(bounded(50, 500), at=sound, job_id=job.id)
    elif (command, side) == ("stop", "before"):
        job.makes_progress()
        job.stop(sound)
    job.ends(JobStatus.FINISHED if command == "submit" else JobStatus.CANCELED)
    job.is_exactly_once(50 if command == "submit" else None)


def test_a_worker_that_dies_before_it_can_report_a_death_is_replaced_by_one_that_proves_it(
    own_cluster: Cluster,
) -> None:
    own_cluster.server()
    worker = own_cluster.worker(failpoint="worker.report.before")
    job = own_cluster.submit(bounded(500, 100))
    job.makes_progress(1)
    os.kill(job.driver().process.pid, signal.SIGKILL)
    until("its death", lambda: not worker.alive)
    own_cluster.worker()
    job.ends(JobStatus.FINISHED)
    job.is_exactly_once(500)
