"""Stops that nobody announced, and restores by name, as processes: force stops of the whole process
group, a store that is gone, a run that is taken over.

The plain engine drives; the processes, the kills and the rows are real.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.dataset
import pytest
from click.testing import CliRunner, Result

from tidegate.checkpoints.savepoints import Savepoint, Savepoints
from tidegate.cli import main
from tidegate.coordinator.job_snapshot import JobSnapshot, read_job
from tidegate.home import Home
from tidegate.model.records import JobStatus
from tidegate.runner.process import session_members
from tidegate.store.open import open_store

TIMEOUT_S = 120
PROGRAM = """
import sys
from tidegate.cli import run
original = run.RunOptions
run.RunOptions = lambda **options: original(
    **options, driver_module="tidegate.testing.plain_driver"
)
sys.argv[0] = "tidegate run"
run.run()
"""


class Orchestrator:
    """Starts runs of one job under a fixed id, and ends them with force."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.out = root / "out"
        self.checkpoints = root / "checkpoints"
        self.started: list[subprocess.Popen[str]] = []
        self.counted = True  # the store has known all rows since the beginning
        self.engine = root / "tidegate.yaml"
        self.engine.write_text(f"""seatunnel:
  engine:
    checkpoint:
      storage:
        type: hdfs
        max-retained: 3
        plugin-config:
          {{ namespace: "{self.checkpoints}", storage.type: local, fs.defaultFS: "file:///" }}
""")

    def job(self, *, out: str = "out") -> Path:
        """A stream that outlasts every test."""
        file = self.root / "job.conf"
        file.write_text(
            f"""env {{ job.mode = "STREAMING", job.name = "forced", checkpoint.interval = 50
  read_limit.rows_per_second = 100 }}
source {{ FakeSource {{ name = "rows", row.num = 1000000, plugin_output = "t"
  bigint.fake.mode = "SEQUENCE", schema {{ fields {{ id = bigint }} }} }} }}
sink {{ LocalFile {{ name = "lake", plugin_input = "t", path = "{self.root / out}"
  file_format_type = "parquet" }} }}"""
        )
        return file

    def start(self, file: Path, *arguments: str, job_id: int = 77) -> "subprocess.Popen[str]":
        environ = {
            **os.environ,
            "TIDEGATE_HOME": str(self.home),
            "TIDEGATE_TEST_METRICS_DELAY_S": "0.1",
        }
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                PROGRAM,
                str(file),
                "--config",
                str(self.engine),
                "--job-id",
                str(job_id),
                *arguments,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environ,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def finish(self, process: "subprocess.Popen[str]") -> tuple[int, str]:
        output = process.communicate(timeout=TIMEOUT_S)[0]
        return process.returncode, output

    def force_stop(self, process: "subprocess.Popen[str]") -> None:
        """-9 to the whole group of the run and to all of its driver's session, as the end of a
        container would.
        """
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        known = self.known()
        for pid in session_members(known.driver.value.process) if known.driver else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()

    def known(self, job_id: int = 77) -> JobSnapshot:
        if not (self.home / "store" / "tidegate.db").exists():
            return JobSnapshot(job_id=job_id, record=None, state=None, pipelines=(), outcome=None)
        with contextlib.closing(open_store(Home(self.home).store_url)) as store:
            return read_job(store, job_id)

    def newest(self, job_id: int = 77) -> int:
        return max(
            (ref.checkpoint for p in self.known(job_id).pipelines for ref in p.value.retained),
            default=0,
        )

    def leads(self, process: "subprocess.Popen[str]", job_id: int) -> bool:
        state = self.known(job_id).state
        return (
            state is not None
            and state.value.leader is not None
            and state.value.leader.pid == process.pid
        )

    def left(self) -> int:
        """The highest checkpoint id that any job has in the storage."""
        return max((int(p.name) for p in self.checkpoints.glob("[0-9]*/1/[0-9]*")), default=0)

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < end, (
                f"not within {TIMEOUT_S} s:"
                f" {[p.communicate()[0] for p in self.started if p.poll() is not None]}"
            )
            time.sleep(0.02)  # poll interval for another process

    def makes_progress(
        self, process: "subprocess.Popen[str]", *, job_id: int = 77, checkpoints: int = 2
    ) -> None:
        """Until this run leads, and then so many more checkpoints are complete than there are in
        the storage.
        """
        self.until(lambda: self.leads(process, job_id) or process.poll() is not None)
        before = self.left()
        self.until(
            lambda: self.newest(job_id) >= before + checkpoints or process.poll() is not None
        )
        assert process.poll() is None, process.communicate()[0]

    def killed(self, file: Path, *arguments: str) -> None:
        """Start a run, let it make progress, and kill it."""
        process = self.start(file, *(arguments or ("--restore", "auto")))
        self.makes_progress(process)
        self.force_stop(process)

    def stopped(self, process: "subprocess.Popen[str]", *, job_id: int = 77) -> str:
        """Let the run make progress and stop it gracefully; return its output.

        The sink has every row that was read, once.
        """
        self.makes_progress(process, job_id=job_id)
        process.send_signal(signal.SIGINT)
        code, output = self.finish(process)
        assert code == 130, output
        ids = self.ids()
        assert ids == list(range(len(ids)))
        assert (
            len(ids) == sum(p.value.rows_written for p in self.known(job_id).pipelines)
            or not self.counted
        )
        return output

    def ids(self, out: str = "out") -> list[int]:
        place = self.root / out
        return (
            sorted(
                pyarrow.dataset.dataset(str(place), format="parquet").to_table()["id"].to_pylist()
            )
            if place.exists()
            else []
        )

    def invoke(self, *arguments: str) -> Result:
        return CliRunner().invoke(
            main, [*arguments, "--config", str(self.engine)], env={"TIDEGATE_HOME": str(self.home)}
        )


@pytest.fixture
def orchestrator(tmp_path: Path) -> Iterator[Orchestrator]:
    it = Orchestrator(tmp_path)
    yield it
    for process in it.started:
        if process.poll() is None:
            it.force_stop(process)


def save(orchestrator: Orchestrator, checkpoint: int) -> Savepoint:
    """A savepoint of the job, made of one of its checkpoints."""
    savepoints = Savepoints(orchestrator.checkpoints)
    id = str(1_700_000_000_000 + checkpoint)
    point = savepoints.copy(f"77/1/{checkpoint}", 77, id, 1)
    lineage = savepoints.storage.manifest(point.path).lineage
    return savepoints.read(
        savepoints.seal(
            Savepoint(
                id=id,
                path="",
                job_id=77,
                lineage=lineage,
                name="forced",
                made_ms=1,
                pipelines={1: point},
            )
        )
    )


def refuses_another_table(orchestrator: Orchestrator) -> None:
    """The message names the sink and the plan gives the reason; nothing is written."""
    before = orchestrator.ids()
    file = orchestrator.job(out="elsewhere")
    code, output = orchestrator.finish(orchestrator.start(file, "--restore", "latest"))
    assert code == 2, output
    assert "lake: path is" in output
    plan = orchestrator.invoke("restore-plan", str(file), "--job-id", "77", "--restore", "latest")
    assert plan.exit_code == 3
    assert "verdict: impossible" in plan.output
    assert (orchestrator.ids(), orchestrator.ids("elsewhere")) == (before, [])


def test_a_repeatedly_force_stopped_job_resumes_from_its_latest_checkpoint(
    orchestrator: Orchestrator,
) -> None:
    file = orchestrator.job()
    orchestrator.killed(file)
    orchestrator.killed(file)
    assert "resumes: pipeline 1 after checkpoint" in orchestrator.stopped(
        orchestrator.start(file, "--restore", "latest")
    )
    refuses_another_table(orchestrator)


def test_without_the_store_the_checkpoints_suffice_even_when_the_newest_is_damaged(
    orchestrator: Orchestrator,
) -> None:
    file = orchestrator.job()
    orchestrator.counted = False
    orchestrator.killed(file)
    shutil.rmtree(orchestrator.home)
    code, output = orchestrator.finish(orchestrator.start(file))
    assert (code, "the store knows nothing of it" in output) == (3, True), output
    orchestrator.killed(file)
    newest = orchestrator.left()
    manifest = orchestrator.checkpoints / "77" / "1" / str(newest) / "_manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:20])
    shutil.rmtree(orchestrator.home)
    assert f"77/1/{newest} is damaged" in orchestrator.stopped(
        orchestrator.start(file, "--restore", "auto")
    )


def test_a_run_that_is_alive_is_taken_over_and_no_row_is_lost_or_doubled(
    orchestrator: Orchestrator,
) -> None:
    file = orchestrator.job()
    first = orchestrator.start(file)
    orchestrator.makes_progress(first)
    orchestrator.stopped(orchestrator.start(file, "--takeover"))
    code, output = orchestrator.finish(first)
    assert code == 1, output
    assert "led by another process now" in output, output


def test_the_state_of_a_killed_job_is_continued_under_another_id(
    orchestrator: Orchestrator,
) -> None:
    file = orchestrator.job()
    orchestrator.killed(file)
    orchestrator.stopped(orchestrator.start(file, "--restore-from", "77", job_id=78), job_id=78)
    known = orchestrator.known(77)
    assert known.outcome is not None
    assert known.outcome.status is JobStatus.FAILED
    assert "continued by job 78" in known.outcome.failures[-1].message
    outcome = orchestrator.known(78).outcome
    assert outcome is not None
    assert outcome.restore is not None
    assert outcome.restore.source_job == 77
    code, output = orchestrator.finish(orchestrator.start(file, "--restore", "latest"))
    assert (code, "continued by job 78" in output) == (2, True), output


def test_going_back_to_a_savepoint_takes_rows_back_and_overtakes_the_newer_one(
    orchestrator: Orchestrator,
) -> None:
    file = orchestrator.job()
    orchestrator.killed(file)
    older = save(orchestrator, orchestrator.newest())
    orchestrator.killed(file)
    newer = save(orchestrator, orchestrator.newest())

    plan = orchestrator.invoke(
        "restore-plan", str(file), "--job-id", "77", "--restore", f"savepoint:{older.id}", "--json"
    )
    assert plan.exit_code == 0, plan.output
    report = json.loads(plan.stdout)
    assert report["verdict"] == "ok with replay"
    assert {o["operator"]: o["resumes"] for o in report["operators"]}[
        "rows"
    ] == f"checkpoint {older.pipelines[1].checkpoint}"

    process = orchestrator.start(file, "--restore", f"savepoint:{older.id}")
    orchestrator.until(
        lambda: orchestrator.newest() > newer.pipelines[1].checkpoint or process.poll() is not None
    )
    orchestrator.force_stop(process)
    code, output = orchestrator.finish(
        orchestrator.start(file, "--restore", f"savepoint:{newer.id}")
    )
    assert (code, "cannot be restored any more" in output) == (2, True), output
    orchestrator.counted = False
    orchestrator.stopped(orchestrator.start(file, "--restore", "latest"))
