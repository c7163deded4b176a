"""Kill or pause random processes for a while, again and again; then the cluster
is left alone, and every invariant must hold.
"""

import os
import random
import signal
import time

import pytest
from cluster_jobs import bounded, flow
from cluster_kit import Cluster, Job
from cluster_stores import KINDS

from tidegate.model.records import JobStatus
from tidegate.runner.process import kill_session

ACTS = 25
ROWS = 3_000
PATIENT = ", job.retry.times = 1000"  # what we do is not the job's fault


class FaultInjector:
    """Injects random faults into a cluster."""

    def __init__(self, cluster: Cluster, jobs: list[Job], chance: random.Random) -> None:
        self.cluster = cluster
        self.jobs = jobs
        self.chance = chance
        self.log: list[str] = []

    def act(self) -> None:
        """Inject one fault; sometimes the next one comes before any process has reacted."""
        act = self.chance.choice(
            [
                self.kill_server,
                self.kill_worker,
                self.kill_driver,
                self.hang_server,
                self.hang_driver,
                self.kill_all,
            ]
        )
        self.log.append(act.__name__)
        act()
        # How long the cluster may react is part of the seed.
        time.sleep(self.chance.choice([0, 0.1, 0.5, 2.0]))  # see above
        if self.chance.random() < 0.6:
            self.cluster.complete()

    def kill_server(self) -> None:
        if servers := self.cluster.servers:
            self.chance.choice(servers).kill()

    def kill_worker(self) -> None:
        if workers := self.cluster.workers:
            self.chance.choice(workers).kill()

    def kill_driver(self) -> None:
        driver = self.chance.choice(self.jobs).known().driver
        if driver is not None and driver.value.end is None:
            kill_session(driver.value.process)

    def hang_server(self) -> None:
        if servers := self.cluster.servers:
            hung = self.chance.choice(servers)
            hung.pause()
            time.sleep(self.chance.uniform(0, 2.5))  # shorter or longer than its lease
            hung.resume()

    def hang_driver(self) -> None:
        driver = self.chance.choice(self.jobs).known().driver
        if (
            driver is None
            or driver.value.end is not None
            or not self.cluster.has_process(driver.value.process.pid)
        ):
            return
        try:
            self.cluster.pause(driver.value.process.pid)
            time.sleep(self.chance.uniform(0, 3.0))  # long enough to be missed, or not
            os.kill(driver.value.process.pid, signal.SIGCONT)
        except ProcessLookupError:  # it was killed meanwhile, by those who noticed
            return

    def kill_all(self) -> None:
        if self.chance.random() < 0.3:
            self.cluster.kill_everything()


@pytest.mark.soak
@pytest.mark.parametrize("round", range(3))
@pytest.mark.parametrize(
    "shared_cluster", [kind for kind in KINDS if kind.endswith("plain")], indirect=True
)
def test_random_faults_lose_and_double_no_row(cluster: Cluster, seed: int, round: int) -> None:
    chance = random.Random(f"{seed}-{round}")
    batch, stream = cluster.submit(bounded(ROWS, 200, PATIENT)), cluster.submit(flow(env=PATIENT))
    injector = FaultInjector(cluster, [batch, stream], chance)
    for _ in range(ACTS):
        injector.act()
    cluster.complete()
    print("acts:", *injector.log)  # shown where the test fails
    stream.makes_progress()
    batch.ends(JobStatus.FINISHED)
    batch.is_exactly_once(ROWS)
    batch.is_cleaned_up()
    stream.stop()
    stream.is_exactly_once()
    stream.has_no_process()
