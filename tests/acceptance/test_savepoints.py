"""Savepoints of real jobs: leaders and drivers are killed while one is taken, the storage
refuses it, users request it twice; the rows are always exact.
"""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset
import pytest
from click.testing import CliRunner, Result
from cluster_jobs import bounded, fake, flow
from cluster_kit import Cluster, Job
from cluster_members import until
from cluster_stores import on

from tidegate.checkpoints.savepoints import Savepoint, Savepoints
from tidegate.cli import main
from tidegate.coordinator.job_snapshot import read_job
from tidegate.coordinator.savepoint_requests import request_of
from tidegate.home import Home
from tidegate.model.records import JobStatus, SavepointRequest, SavepointStatus
from tidegate.store.open import open_store

STOP = {"isStopWithSavePoint": True}
ROWS = 10_000
PAGE = Path(__file__).parents[2] / "docs" / "operations" / "savepoints.md"
PLACES = [
    pytest.param("savepoint.copy.middle"),
    *(
        pytest.param(place, marks=pytest.mark.soak)
        for place in (
            "ledger.save.before",
            "ledger.save.after",
            "savepoint.copy.after",
            "savepoint.seal.before",
            "savepoint.answer.before",
            "savepoint.answer.after",
        )
    ),
]
RUN = """
import sys
from tidegate.cli import run
original = run.RunOptions
run.RunOptions = lambda **options: original(
    **options, driver_module="tidegate.testing.plain_driver"
)
sys.argv[0] = "tidegate run"
run.run()
"""


def tidegate(cluster: Cluster, *words: str) -> Result:
    """Run a command of an operator outside of the cluster."""
    return CliRunner().invoke(
        main, [*words, "--home", str(cluster.home.root), "--config", str(cluster.config)]
    )


def savepoints_of(cluster: Cluster, job: Job) -> tuple[Savepoint, ...]:
    """All of them, each verified."""
    there = Savepoints(cluster.home.checkpoints)
    return tuple(there.read(found.path) for found in there.list(job.id))


def request(job: Job) -> SavepointRequest:
    found = request_of(job.known())
    assert found is not None
    return found.value


def resumes_from(cluster: Cluster, job: Job, text: str, savepoint: str) -> None:
    """Restore it, and let it run for a while."""
    generation, checkpoint = job.generation(), job.checkpoint()
    cluster.submit(text, job_id=job.id, query=f"&restore=savepoint:{savepoint}")
    job.until("the next generation", lambda: job.generation() > generation)
    job.until("more checkpoints", lambda: job.checkpoint() > checkpoint + 2)


@on("sqlite-plain")
def test_a_stop_with_a_savepoint_survives_two_leaders_and_the_job_resumes_from_it(
    cluster: Cluster,
) -> None:
    job = cluster.submit(flow())
    job.makes_progress()
    asked, first = cluster.follower(), cluster.leader()
    first.kill()
    asked.post("/stop-job", {"jobId": job.id, **STOP})
    cluster.leader().kill()
    cluster.complete()
    for server in cluster.servers:  # a repeated request joins the first one
        server.post("/stop-job", {"jobId": job.id, **STOP})
    job.ends(JobStatus.SAVEPOINT_DONE)
    (made,) = savepoints_of(cluster, job)
    assert (request(job).status, request(job).id, request(job).path) == (
        SavepointStatus.DONE,
        made.id,
        made.path,
    )
    assert made.pipelines[1].checkpoint == job.checkpoint()
    job.has_no_process()
    job.is_exactly_once()
    rows = len(job.rows())
    resumes_from(cluster, job, flow(), made.id)
    job.stop()
    assert len(job.rows()) > rows
    job.is_exactly_once()


@on("sqlite-plain")
def test_a_savepoint_that_cannot_be_written_reports_why_and_the_job_continues(
    cluster: Cluster,
) -> None:
    job = cluster.submit(flow())
    job.makes_progress()
    obstacle = cluster.home.checkpoints / "savepoint" / str(job.id)
    obstacle.parent.mkdir(exist_ok=True)
    obstacle.write_text("in the way")
    cluster.servers[0].post("/stop-job", {"jobId": job.id, **STOP})
    job.until(
        "the failure",
        lambda: (
            (found := request_of(job.known())) is not None
            and found.value.status is SavepointStatus.FAILED
        ),
    )
    assert str(job.id) in request(job).reason
    job.until("RUNNING", lambda: job.status() is JobStatus.RUNNING)
    job.makes_progress()
    obstacle.unlink()
    cluster.servers[0].post("/stop-job", {"jobId": job.id, **STOP})
    job.ends(JobStatus.SAVEPOINT_DONE)
    assert [made.id for made in savepoints_of(cluster, job)] == [request(job).id]
    job.is_exactly_once()


@on("sqlite-plain")
def test_users_manage_savepoints_of_a_job_that_continues(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.submit(flow())
    job.makes_progress()
    result = tidegate(cluster, "savepoint", str(job.id), "--json")
    assert result.exit_code == 0, result.output
    first = json.loads(result.stdout)
    assert (first["status"], first["stop"], first["place"]) == (
        "done",
        False,
        str(cluster.home.checkpoints / first["path"]),
    )
    job.makes_progress()
    again = tidegate(cluster, "savepoint", f"job-{job.id}")
    assert (again.exit_code, "is done" in again.output) == (0, True)
    assert (job.status(), job.known().state.value.restarts) == (JobStatus.RUNNING, 0)
    listed = json.loads(tidegate(cluster, "savepoints", "list", str(job.id), "--json").stdout)
    assert len(listed) == 2
    assert listed[0]["pipelines"]["1"] < listed[1]["pipelines"]["1"]
    assert tidegate(cluster, "savepoints", "verify", str(job.id)).exit_code == 0
    shown = json.loads(tidegate(cluster, "savepoints", "show", first["id"]).stdout)
    assert (shown["job_id"], shown["states"].keys()) == (job.id, {"1"})
    assert (
        tidegate(cluster, "savepoints", "export", first["id"], str(tmp_path / "kept")).exit_code
        == 0
    )
    assert (
        tidegate(cluster, "savepoints", "delete", first["id"], "--job", str(job.id)).exit_code == 0
    )
    assert tidegate(cluster, "savepoints", "show", first["id"]).exit_code == 3
    assert tidegate(cluster, "savepoints", "import", str(tmp_path / "kept")).exit_code == 0
    (tmp_path / "kept" / "_savepoint.json").write_text("{}")
    assert tidegate(cluster, "savepoints", "import", str(tmp_path / "kept")).exit_code == 1
    assert [made.id for made in savepoints_of(cluster, job)] == [
        first["id"],
        listed[1]["savepoint"],
    ]
    job.stop()
    job.is_exactly_once()
    assert tidegate(cluster, "savepoint", str(job.id)).exit_code == 3
    assert tidegate(cluster, "savepoint", "nobody").exit_code == 3


@on("sqlite-plain")
def test_the_commands_of_the_savepoint_page_do_what_it_describes(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = cluster.submit(flow(), job_id=7)
    job.makes_progress(1)
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    for line in "".join(blocks).splitlines():
        made = savepoints_of(cluster, job)
        program, *words = line.replace("1700000000000", made[0].id if made else "").split()
        done = tidegate(cluster, *words)
        assert (program, done.exit_code) == ("tidegate", 0), f"{line}: {done.output}"
    job.ends(JobStatus.SAVEPOINT_DONE)
    job.is_exactly_once()


@on("sqlite-plain")
def test_a_stream_that_has_never_had_a_row_can_be_stopped_with_a_savepoint(
    cluster: Cluster,
) -> None:
    text = flow().replace(fake(1_000_000), fake(0))
    job = cluster.submit(text)
    job.until("its first checkpoint", lambda: job.checkpoint() == 1)
    assert tidegate(cluster, "savepoint", str(job.id), "--stop").exit_code == 0
    job.ends(JobStatus.SAVEPOINT_DONE)
    (made,) = savepoints_of(cluster, job)
    assert made.pipelines[1].checkpoint == 1
    assert job.rows() == []


@pytest.mark.parametrize("place", PLACES)
def test_a_driver_that_dies_while_it_makes_a_savepoint_is_followed_by_one_that_makes_it(
    own_cluster: Cluster, place: str
) -> None:
    own_cluster.server()
    victim = own_cluster.worker(failpoint=place)
    job = own_cluster.submit(bounded(50_000, 100, ", job.retry.times = 100"))
    job.makes_progress(1)
    own_cluster.servers[0].post("/stop-job", {"jobId": job.id, **STOP})
    error_log = own_cluster.home.logs(job.id) / "driver.err"
    until(
        "the death of the driver",
        lambda: (
            error_log.exists() and f"failpoint {place}" in error_log.read_text(errors="replace")
        ),
        describe=own_cluster.describe,
    )
    victim.kill()
    own_cluster.worker()
    job.ends(JobStatus.SAVEPOINT_DONE)
    (made,) = savepoints_of(own_cluster, job)
    assert made.id == request(job).id
    rows = job.rows()
    assert rows == list(range(len(rows)))
    assert len(rows) < 50_000
    job.has_no_process()


def test_a_run_without_servers_ends_with_a_savepoint_and_finishes_from_it(tmp_path: Path) -> None:
    home, out, file = tmp_path / "home", tmp_path / "out", tmp_path / "job.conf"

    def write(rate: int) -> None:
        file.write_text(
            bounded(ROWS, rate)
            .replace("{out}", str(out))
            .replace('job.mode = "BATCH"', 'job.mode = "BATCH", job.name = "saved"')
        )

    def run(*words: str) -> "subprocess.Popen[bytes]":
        environ = {**os.environ, "TIDEGATE_HOME": str(home)}
        return subprocess.Popen(
            [sys.executable, "-c", RUN, str(file), *words],
            stdin=subprocess.DEVNULL,
            env=environ,
            start_new_session=True,
        )

    write(rate=50)  # it would take minutes: nobody has to be quick here
    process = run()
    try:
        until("a checkpoint", lambda: checkpoints(home) >= 2)
        result = CliRunner().invoke(
            main, ["savepoint", "saved", "--stop", "--home", str(home), "--json"]
        )
        assert result.exit_code == 0, result.output
        assert process.wait(120) == 130
        made = Savepoints(Home(home).checkpoints).find(None, json.loads(result.stdout)["place"])
        write(rate=100_000)
        process = run("--restore", f"savepoint:{made.id}")
        assert process.wait(120) == 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    files = sorted(map(str, out.glob("[!._]*.parquet")))
    assert sorted(
        pyarrow.dataset.dataset(files, format="parquet").to_table()["id"].to_pylist()
    ) == list(range(ROWS))
    assert [found.id for found in Savepoints(Home(home).checkpoints).list()] == [made.id]


def checkpoints(home: Path) -> int:
    if not (home / "store" / "tidegate.db").exists():
        return 0
    store = open_store(Home(home).store_url)
    try:
        jobs = [read_job(store, int(entry.key)) for entry in store.list("running-job-state")]
        return sum(p.value.checkpoints for job in jobs for p in job.pipelines)
    finally:
        store.close()
