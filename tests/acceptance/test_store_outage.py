"""The home of an installation disappears, is replaced or is full under a server and a driver: it is
detected, reported everywhere, waited for, and no row is lost.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_jobs import flow
from cluster_kit import Cluster, Job
from cluster_members import Refused, Server, until
from cluster_stores import quick_disk

from tidegate.runner.process import is_alive

STREAM = flow(env=", checkpoint.timeout = 1000")  # LATE after 1.1 s, STALLED after 2 s
TMPFS_BYTES = 3 * 1024 * 1024


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with quick_disk() as root:
        made = Cluster(root, built_in=True)
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
def small_disk() -> Iterator[Cluster]:
    """An installation whose store is on a disk of a few megabytes."""
    with quick_disk() as root:
        store = root / "home" / "store"
        store.mkdir(parents=True)
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={TMPFS_BYTES}", "tmpfs", str(store)],
            capture_output=True,
            text=True,
            check=False,
        )
        if mounted.returncode:
            pytest.skip(f"this test needs to mount a small disk: {mounted.stderr.strip()}")
        made = Cluster(root, built_in=True)
        try:
            yield made
        finally:
            made.close()
            subprocess.run(["umount", str(store)], check=True)


def refused(act: Callable[[], Any]) -> Refused | None:
    try:
        act()
    except Refused as refusal:
        return refusal
    return None


def says_why(server: Server, job: Job, words: str) -> None:
    """Health, submit and stop are refused with the reason, not with an internal error."""
    health = until("a failing health", lambda: refused(lambda: server.get("/health")))
    assert health is not None
    assert (health.status, words in health.message) == (503, True), health
    for act in (
        lambda: server.post("/stop-job", {"jobId": job.id}),
        lambda: server.post("/stop-job", {"jobId": job.id, "force": True}),
        lambda: server.post(
            "/submit-job?format=hocon&jobId=990", STREAM.replace("{out}", "/nowhere")
        ),
    ):
        refusal = refused(act)
        assert refusal is not None
        assert (refusal.status, words in refusal.message) == (503, True), refusal


def stalled(server: Server, job: Job) -> Refused:
    """Wait until the error answer for a job reports it as STALLED."""
    last: list[Refused | None] = [None]

    def says_stalled() -> Refused | None:
        last[0] = refused(lambda: server.get(f"/job-info/{job.id}"))
        return last[0] if last[0] is not None and "STALLED" in last[0].message else None

    return until(
        "a job that is stalled", says_stalled, describe=lambda: f"last answer: {last[0]!r}"
    )


def makes_progress_with(job: Job, driver: Any) -> None:
    """With the same driver, and every row once."""
    job.makes_progress()
    assert job.driver().process == driver
    assert refused(lambda: job.cluster.servers[0].get("/health")) is None
    job.stop()
    job.is_exactly_once()


@pytest.mark.parametrize("what", ["home", "home/store"])
@pytest.mark.parametrize("empty", [False, True], ids=["moved", "covered"])
def test_a_home_that_is_away_is_noticed_and_waited_for(
    cluster: Cluster, what: str, empty: bool
) -> None:
    server = cluster.server(worker=True)
    job = cluster.submit(STREAM)
    job.makes_progress(1)
    driver = job.driver().process
    away = cluster.root / what
    away.rename(cluster.root / "away")
    if empty:
        (cluster.root / what).mkdir()
    says_why(server, job, "is gone")
    shown = stalled(server, job)
    assert (shown.status, f"job {job.id} is RUNNING and STALLED" in shown.message) == (
        503,
        True,
    ), shown
    assert is_alive(driver)
    assert not (cluster.root / what / ("store" if what == "home" else "tidegate.db")).exists(), (
        "nothing is made in its place"
    )
    if empty:
        for left in (
            cluster.root / what
        ).iterdir():  # nothing but what a log or a display may have made
            assert left.name not in ("store", "checkpoints", "tidegate.db"), left
        subprocess.run(["rm", "-r", str(cluster.root / what)], check=True)
    (cluster.root / "away").rename(away)
    makes_progress_with(job, driver)


def test_another_store_in_its_place_is_refused_by_name_and_left_alone(cluster: Cluster) -> None:
    server = cluster.server(worker=True)
    job = cluster.submit(STREAM)
    job.makes_progress()
    driver, store = job.driver().process, cluster.home.root / "store"
    store.rename(cluster.root / "away")
    store.mkdir()
    other = store / "tidegate.db"
    script = (
        "from tidegate.store import Put, open_store;"
        f" open_store('sqlite:///{other}').transact(writes=[Put('jobs', 'a', {{}})])"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    before = other.read_bytes()
    says_why(server, job, "another store is at")
    assert is_alive(driver)
    assert other.read_bytes() == before
    subprocess.run(["rm", "-r", str(store)], check=True)
    (cluster.root / "away").rename(store)
    makes_progress_with(job, driver)


def fill(directory: Path) -> Path:
    """All that is left of a disk."""
    filler = directory / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return filler


def test_a_full_disk_of_the_store_makes_jobs_late_and_stalled_although_that_cannot_be_written(
    small_disk: Cluster,
) -> None:
    server = small_disk.server(worker=True)
    job = small_disk.submit(STREAM)
    job.makes_progress()
    driver, filler = job.driver().process, fill(small_disk.home.root / "store")
    says_why(server, job, "no space left")
    shown = until(
        "a job that is stalled",
        lambda: (now := server.get(f"/job-info/{job.id}"))["checkpointHealth"] == "STALLED" and now,
    )
    assert "no space left" in shown["healthReason"]
    assert shown["jobStatus"] == "RUNNING"
    assert server.get("/running-jobs")[0]["checkpointHealth"] == "STALLED"
    assert is_alive(driver)
    filler.unlink()
    until(
        "a job that is well",
        lambda: server.get(f"/job-info/{job.id}").get("checkpointHealth") == "OK",
    )
    job.makes_progress()
    job.stop()
    job.is_exactly_once()
