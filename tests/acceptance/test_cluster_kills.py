"""Three servers, two workers, killed and paused one after the other while jobs run: no data is lost or doubled, nothing ended comes back, numbers only grow."""

from cluster_jobs import bounded, flow
from cluster_kit import Cluster, until
from cluster_stores import BUILT_IN, on

from tidegate.model.records import JobStatus


@on("sqlite-plain", "postgres-plain", "etcd-plain")
def test_a_dead_leader_and_a_dead_successor_cost_the_data_nothing(cluster: Cluster) -> None:
    job = cluster.submit(flow(), at=cluster.follower())
    job.gets_on()
    driver = job.driver()
    for _ in range(2):
        term, before = cluster.term(), job.checkpoint()
        cluster.leader().kill()
        job.until("checkpoints without a leader", lambda before=before: job.checkpoint() >= before + 2)
        cluster.leader()
        assert cluster.term() > term
        job.gets_on()
    (last,) = cluster.servers
    assert last.running()[job.id]["jobStatus"] == "RUNNING"
    assert int(last.running()[job.id]["lastCheckpointId"]) > 0
    assert job.driver() == driver
    other = cluster.submit(bounded(100, 1_000), at=last)
    other.ends(JobStatus.FINISHED)
    other.is_exactly_once(100)
    job.stop(last)
    job.is_exactly_once()
