"""Two servers behind one client that many threads use, and the leader is killed: no request
is lost, no job exists twice.
"""

import threading
from concurrent.futures import ThreadPoolExecutor

from cluster_jobs import flow
from cluster_kit import Cluster
from cluster_members import until

from tidegate.client import Client
from tidegate.model.document import from_document
from tidegate.model.records import (
    JOB_OUTCOMES,
    RUNNING_JOBS,
    DesiredState,
    JobOutcome,
    JobRecord,
    JobStatus,
)

THREADS = 8
JOBS_EACH = 6
KILLED_AFTER = 12  # submits: the others continue with the same client


class Caller:
    """One client, and the answers that its threads received."""

    def __init__(self, cluster: Cluster) -> None:
        self.client = Client(
            [f"http://127.0.0.1:{server.port}" for server in cluster.servers], retry_for_s=90
        )
        self.text = flow().replace("{out}", str(cluster.root / "out")).encode()
        self.accepted: set[int] = set()
        self.stopped: set[int] = set()
        self.lock = threading.Lock()
        self.enough = threading.Event()

    def work(self, thread: int) -> None:
        """Submit, with ids of one's own and without; stop every second job; list the jobs."""
        for number in range(JOBS_EACH):
            given = {"jobId": str(1000 + thread * JOBS_EACH + number)} if number % 3 else {}
            job_id = int(
                self.client.submit(
                    self.text, {"format": "hocon", "jobName": f"job-{thread}-{number}", **given}
                )["jobId"]
            )
            assert str(job_id) == given.get("jobId", str(job_id))
            with self.lock:
                assert job_id not in self.accepted
                self.accepted.add(job_id)
                if len(self.accepted) >= KILLED_AFTER:
                    self.enough.set()
            if number % 2:
                self.client.post("/stop-job", {"jobId": job_id})
                with self.lock:
                    self.stopped.add(job_id)
            assert isinstance(self.client.get("/running-jobs"), list)


def test_a_leader_that_dies_under_a_busy_client_loses_no_request_and_doubles_no_job(
    own_cluster: Cluster,
) -> None:
    own_cluster.server()
    own_cluster.server()
    leader, caller = own_cluster.leader(), Caller(own_cluster)
    with ThreadPoolExecutor(THREADS) as pool:
        working = [pool.submit(caller.work, thread) for thread in range(THREADS)]
        assert caller.enough.wait(90)
        leader.kill()
        for each in working:
            each.result()
    assert len(caller.accepted) == THREADS * JOBS_EACH

    def ended() -> dict[int, JobStatus]:
        outcomes = [
            from_document(JobOutcome, entry.value) for entry in own_cluster.store.list(JOB_OUTCOMES)
        ]
        assert len({outcome.name for outcome in outcomes}) == len(outcomes)
        return {outcome.job_id: outcome.status for outcome in outcomes}

    until(
        "the end of what was stopped",
        lambda: set(ended()) == caller.stopped,
        describe=own_cluster.describe,
    )
    assert set(ended().values()) == {JobStatus.CANCELED}
    records = {
        record.job_id: record
        for record in (
            from_document(JobRecord, entry.value) for entry in own_cluster.store.list(RUNNING_JOBS)
        )
    }
    waiting = caller.accepted - caller.stopped
    assert waiting <= set(records) <= caller.accepted
    assert {records[job_id].intent.desired for job_id in waiting} == {DesiredState.RUN}
    assert len({records[job_id].name for job_id in waiting}) == len(waiting)
    (left,) = own_cluster.servers
    until(
        "a list of those that wait",
        lambda: set(left.running()) == waiting,
        describe=own_cluster.describe,
    )
