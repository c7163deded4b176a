"""`tidegate state` and `tidegate capacity` on installations that jobs have made: what they show,
what they change, how they end.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidegate.checkpoints.savepoints import Savepoint, Savepoints
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.cli import main
from tidegate.coordinator.job_snapshot import read_job
from tidegate.home import Home
from tidegate.model.records import JobStatus
from tidegate.store.open import open_store
from tidegate.testing.crash_runs import KILLED, CrashRuns, RunRequest
from tidegate.testing.in_process import run_in_process
from tidegate.testing.plain_engine import PlainEngine

TIMEOUT_S = 120
Tidegate = Callable[..., Result]


def job_text(out: Path, *, mode: str = "STREAMING", env: str = "") -> str:
    return f"""env {{ job.mode = "{mode}", job.name = "orders", checkpoint.interval = 10
  batch.max-rows = 10 {env} }}
source {{ FakeSource {{ plugin_output = "t", row.num = 60, seed = 3, schema {{
  fields {{ id = bigint, name = string }} }} }} }}
sink {{ LocalFile {{ plugin_input = "t", path = "{out}", file_format_type = "json" }} }}"""


class Place:
    """A home, and the jobs that ran in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = Home(root / "home")

    def stopped(self, job_id: int = 7, **more: str) -> None:
        """A job that was stopped after six checkpoints."""
        file = self.root / f"job-{job_id}.conf"
        file.write_text(job_text(self.root / f"out-{job_id}", **more))
        ran = run_in_process(str(file), self.home, PlainEngine(), job_id=job_id, stop_at_rows=60)
        assert ran.outcome.status is JobStatus.CANCELED

    def savepoint(self, job_id: int = 7) -> None:
        """A savepoint of its last checkpoint."""
        storage = CheckpointStorage(self.home.checkpoints)
        savepoints = Savepoints(storage.files)
        point = savepoints.copy(storage.checkpoints(job_id, 1)[-1][1], job_id, "1700000000000", 1)
        savepoints.seal(
            Savepoint(
                id="1700000000000",
                path="",
                job_id=job_id,
                lineage="l",
                name="orders",
                made_ms=1,
                pipelines={1: point},
            )
        )

    def directories(self) -> set[str]:
        root = self.home.checkpoints
        return {path.relative_to(root).as_posix() for path in root.glob("[0-9]*/*/*")}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def tidegate(place: Place) -> Tidegate:
    """Call the command on that home; the default of the expected exit code is 0."""

    def call(*words: str, code: int = 0) -> Result:
        # Not through `main`: click caches the first help text that it renders.
        verb = main.get_command(None, words[0])  # type: ignore[arg-type]  # click allows None
        result = CliRunner().invoke(
            verb, list(words[1:]), env={"TIDEGATE_HOME": str(place.home.root)}
        )
        assert result.exit_code == code, result.output + repr(result.exception)
        return result

    return call


def document(result: Result) -> dict:
    return json.loads(result.stdout)


def test_a_home_where_nothing_has_run_is_named_and_not_made(
    place: Place, tidegate: Tidegate
) -> None:
    for words in (
        ("state", "du"),
        ("state", "gc"),
        ("state", "verify"),
        ("state", "expire"),
        ("capacity",),
    ):
        assert "holds no installation yet" in tidegate(*words, code=2).stderr
    assert not place.home.root.exists()


def test_usage_is_reported_by_kind_job_age_and_map(place: Place, tidegate: Tidegate) -> None:
    place.stopped()
    place.savepoint()
    (place.home.checkpoints / "notes.txt").write_text("mine")
    usage = document(tidegate("state", "du", "--json"))
    assert {kind: usage["kinds"][kind]["units"] for kind in usage["kinds"]} == {
        "retained": 3,
        "savepoint": 1,
        "unknown": 1,
    }
    (job,) = usage["jobs"]
    assert (job["job_id"], job["name"], job["status"], job["kinds"]["retained"]["units"]) == (
        7,
        "orders",
        "CANCELED",
        3,
    )
    assert usage["total"]["bytes"] == sum(
        p.stat().st_size for p in place.home.checkpoints.rglob("*") if p.is_file()
    )
    assert usage["ages"]["< 1 hour"]["units"] == 5
    assert usage["store"]["running-pipeline-state"]["documents"] == 1
    text = tidegate("state", "du").stdout
    assert "3 retained, 1 savepoint" in text
    assert "running-pipeline-state" in text


def test_owned_state_is_never_collected(place: Place, tidegate: Tidegate) -> None:
    place.stopped()
    place.savepoint()
    before = place.directories()
    assert "0 units" in tidegate("state", "gc", "--older-than", "0").stdout
    assert "0 units" in tidegate("state", "gc", "--older-than", "0", "--collect").stdout
    assert place.directories() == before
    assert "4 of 4 are sound" in tidegate("state", "verify").stdout


def test_a_forgotten_job_is_collected_taken_back_resumed_and_deleted(
    place: Place, tidegate: Tidegate
) -> None:
    place.stopped()
    before = place.directories()
    assert (
        "1 jobs would be deleted"
        in tidegate("state", "expire", "--older-than", "0", "--dry-run").stdout
    )
    assert "0 jobs deleted" in tidegate("state", "expire").stdout
    assert [
        job["job_id"]
        for job in document(tidegate("state", "expire", "--older-than", "0", "--json"))["expired"]
    ] == [7]
    assert place.directories() == before, "expiry leaves the directories"
    assert document(tidegate("state", "gc", "--json"))["due"]["units"] == 0, (
        "their time has not come"
    )
    assert "would be collected" in tidegate("state", "gc", "--older-than", "0").stdout
    assert place.directories() == before, "a dry run changes nothing"
    assert (
        document(tidegate("state", "gc", "--older-than", "0", "--collect", "--json"))["moved"] == 3
    )
    assert place.directories() == set()
    assert (
        "3 units restored to their original paths"
        in tidegate("state", "gc", "--undo", "latest").stdout
    )
    assert place.directories() == before
    assert "0 units" in tidegate("state", "gc", "--older-than", "0", "--collect").stdout, (
        "what was taken back is left alone"
    )


def test_a_quarantine_can_be_deleted_before_its_time(place: Place, tidegate: Tidegate) -> None:
    place.stopped()
    tidegate("state", "expire", "--older-than", "0")
    tidegate("state", "gc", "--older-than", "0", "--collect")
    assert (
        "0 units (0 B) moved into quarantine, 3 deleted for good"
        in tidegate("state", "gc", "--purge").stdout
    )
    assert list(place.home.checkpoints.rglob("state-data")) == []


def test_a_quarantine_that_is_not_there_is_an_error_in_one_sentence(
    place: Place, tidegate: Tidegate
) -> None:
    place.stopped()
    assert (
        "there is no quarantine 'x'; there are: none"
        in tidegate("state", "gc", "--undo", "x", code=3).stderr
    )
    assert "--dry-run shows" in tidegate("state", "gc", "--dry-run", "--collect", code=2).stderr


def test_a_lost_store_collects_nothing_until_a_user_agrees(
    place: Place, tidegate: Tidegate
) -> None:
    place.stopped()
    tidegate("state", "gc", "--collect")
    shutil.rmtree(place.home.root / "store")
    before = place.directories()
    open_store_anew(place)
    assert (
        "belongs to the store"
        in tidegate("state", "gc", "--collect", "--older-than", "0", code=2).stderr
    )
    assert place.directories() == before
    assert (
        "3 units"
        in tidegate("state", "gc", "--collect", "--older-than", "0", "--take-namespace").stdout
    )
    assert place.directories() == set()


def open_store_anew(place: Place) -> None:
    place.home.create()
    open_store(place.home.store_url).close()


def test_a_file_that_cannot_be_moved_is_reported_and_the_rest_is_moved(
    place: Place, tidegate: Tidegate, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.stopped()
    tidegate("state", "expire", "--older-than", "0")
    rename = os.rename

    def refuse(source: Path, target: Path) -> None:
        if str(source).endswith("/7/1/5"):
            raise PermissionError(1, "Operation not permitted", str(source))
        rename(source, target)

    monkeypatch.setattr(os, "rename", refuse)
    result = tidegate("state", "gc", "--older-than", "0", "--collect", code=1)
    assert "2 units" in result.stdout
    assert "7/1/5" in result.stdout
    assert place.directories() == {"7/1/5"}


def test_damage_is_found_and_named(place: Place, tidegate: Tidegate) -> None:
    place.stopped()
    place.savepoint()
    (file,) = (place.home.checkpoints / "savepoint" / "7" / "1700000000000" / "1").glob(
        "Source*/state-data"
    )
    file.write_text("{}")
    shutil.rmtree(place.home.checkpoints / "7" / "1" / "5")
    result = tidegate("state", "verify", code=1)
    assert "2 of 4 are sound" in result.stdout
    assert "checkpoint 7/1/5" in result.stdout
    assert "savepoint savepoint/7/1700000000000" in result.stdout
    rows = json.loads(tidegate("state", "verify", "--json", code=1).stdout)
    assert sorted(row["path"] for row in rows if row["damage"]) == [
        "7/1/5",
        "savepoint/7/1700000000000",
    ]


def test_capacity_is_measured_from_the_jobs_and_estimated_for_a_file(
    place: Place, tidegate: Tidegate
) -> None:
    place.stopped(env=", checkpoint.max-retained = 2")
    usage = document(tidegate("capacity", "--json"))
    (job,) = usage["jobs"]
    largest = max(
        sum(f.stat().st_size for f in (place.home.checkpoints / path).rglob("*") if f.is_file())
        for path in place.directories()
    )
    assert job["checkpoint_bytes"] >= largest
    assert job["storage_bytes"] == round(job["checkpoint_bytes"] * 3 * 1.5)
    assert usage["storage_bytes"] == job["storage_bytes"]
    assert "each savepoint" in tidegate("capacity").stdout
    estimate = document(tidegate("capacity", str(place.root / "job-7.conf"), "--json"))
    assert [row["source"] for row in estimate["operators"]] == [
        "1 measured here",
        "1 measured here",
    ]
    assert estimate["retained_max"] == 2
    assert 0 < estimate["low_bytes"] <= estimate["checkpoint_bytes"] < 10_000
    assert (
        "it is measured once the job has run"
        in tidegate("capacity", str(place.root / "job-7.conf")).stdout
    )


def test_an_estimate_needs_no_job_that_has_run(place: Place, tidegate: Tidegate) -> None:
    open_store_anew(place)
    file = place.root / "job.conf"
    file.write_text(job_text(place.root / "out"))
    estimate = document(tidegate("capacity", str(file), "--json"))
    assert {row["source"] for row in estimate["operators"]} == {"typical of such a block"}
    assert estimate["storage_bytes"] == round(estimate["checkpoint_bytes"] * 4 * 1.5)
    assert "no job here has a checkpoint yet" in tidegate("capacity").stdout


@pytest.mark.parametrize(
    "step", ["checkpoint.delete.before", "checkpoint.delete.middle", "checkpoint.delete.after"]
)
def test_exactly_so_many_checkpoints_stay_whatever_is_killed_while_one_is_deleted(
    step: str, place: Place, runs: CrashRuns
) -> None:
    file = place.root / "job.conf"
    file.write_text(job_text(place.root / "out", env=", checkpoint.max-retained = 2"))
    request = RunRequest(home=str(place.home.root), file=str(file), failpoints=f"{step}@2")
    assert runs.run(request).code == KILLED
    again = runs.run(RunRequest(home=str(place.home.root), file=str(file), stop_at_rows=60))
    assert (again.code, again.status) == (0, "CANCELED")
    store = open_store(place.home.store_url)
    try:
        (pipeline,) = read_job(store, 7).pipelines
    finally:
        store.close()
    assert len(pipeline.value.retained) == 2
    assert place.directories() == {ref.path for ref in pipeline.value.retained}


def test_a_job_that_ends_with_a_pending_deletion_leaves_only_retained_checkpoints(
    place: Place, runs: CrashRuns
) -> None:
    """The last driver is killed between the record of a deletion and the deletion, and nobody runs
    the job again but to find that it has ended.
    """
    file = place.root / "job.conf"
    file.write_text(job_text(place.root / "out", env=", checkpoint.max-retained = 2"))
    assert (
        runs.run(
            RunRequest(
                home=str(place.home.root), file=str(file), failpoints="checkpoint.delete.before@4"
            )
        ).code
        == KILLED
    )
    last = runs.run(RunRequest(home=str(place.home.root), file=str(file), stop_at_rows=1))
    assert last.status == "CANCELED"
    assert len(place.directories()) == 2


def test_a_cancelled_job_is_dropped_where_the_job_file_requests_it(place: Place) -> None:
    place.stopped(env=", checkpoint.retain-after-job-cancelled = false")
    assert place.directories() == set()


def test_the_leader_scans_the_namespace_periodically(place: Place, tidegate: Tidegate) -> None:
    place.stopped()
    command = [
        sys.executable,
        "-c",
        "from tidegate.cli import main; main()",
        "server",
        "--home",
        str(place.home.root),
        "--http-port",
        "0",
        "--no-worker",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as server:
        try:
            until_s = time.monotonic() + TIMEOUT_S
            while (usage := document(tidegate("state", "du", "--json"))["collector"]) is None:
                assert server.poll() is None
                assert time.monotonic() < until_s
                time.sleep(0.2)  # poll interval for another process
        finally:
            server.terminate()
            server.wait(TIMEOUT_S)
    assert (usage["whole"], usage["moved"], usage["failures"], usage["units"]["retained"]) == (
        True,
        0,
        0,
        3,
    )
    assert server.returncode == 0
