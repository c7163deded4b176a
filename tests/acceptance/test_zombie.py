"""An old driver that was paused (SIGSTOP) while the next generation took over, and then wakes up:
it makes nothing visible and ends as Fenced.

The next generation here cannot kill the old one, as on another host: the fence in the store and in
the sink is all there is.
"""

import os
import signal
import time
from pathlib import Path

import pyarrow.dataset
import pytest

from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.cli.job_file import load_plan
from tidegate.coordinator.claim import Claimant, Submission
from tidegate.coordinator.job_snapshot import JobSnapshot, read_job
from tidegate.coordinator.restore.options import RestoreOptions
from tidegate.coordinator.terminal_transaction import status_of
from tidegate.driver.main import Driver
from tidegate.driver.registration import register
from tidegate.home import Home
from tidegate.model.engine import EngineSettings
from tidegate.model.records import JobStatus
from tidegate.runner.driver_spec import driver_spec
from tidegate.runner.exits import DriverExit
from tidegate.runner.launch import Program, launch
from tidegate.runner.process import PROC, process_ref
from tidegate.store.open import open_store
from tidegate.testing.plain_engine import PlainEngine

TIMEOUT_S = 60
JOB = """env {{ job.mode = "BATCH", job.name = "zombie", checkpoint.interval = 10
  batch.max-rows = 10 }}
source {{ FakeSource {{ row.num = 60, plugin_output = "t", seed = 5
  bigint.fake.mode = "SEQUENCE", schema {{ fields {{ id = bigint, name = string }} }} }} }}
sink {{ LocalFile {{ plugin_input = "t", path = "{out}", file_format_type = "parquet" }} }}"""


class OtherHost(Claimant):
    """A leader that cannot reach the old driver's processes."""

    def _kill_and_confirm(self, snapshot: JobSnapshot) -> None:
        pass


def stopped(pid: int) -> bool:
    return (PROC / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


def visible(out: Path) -> dict[str, int]:
    return {
        str(p): p.stat().st_mtime_ns for p in out.rglob("*.parquet") if ".tidegate" not in p.parts
    }


@pytest.mark.parametrize(
    "place",
    [
        "batch.write.before",
        "filesink.stage.before",
        "filesink.stage.after",
        "batch.write.after",
        "filesink.record.before",
        "filesink.record.middle",
        "filesink.record.after",
        "filesink.publish.after",
        "batch.commit.after",
        "checkpoint.publish.before",
        "checkpoint.publish.middle",
        "checkpoint.publish.after",
        "ledger.complete.before",
        "ledger.begin.before",
    ],
)
def test_a_driver_that_wakes_up_too_late_makes_nothing_visible(tmp_path: Path, place: str) -> None:
    home, out, file = Home(tmp_path / "home"), tmp_path / "out", tmp_path / "job.conf"
    file.write_text(JOB.format(out=out))
    home.create()
    store, storage, plan = (
        open_store(home.store_url),
        CheckpointStorage(home.checkpoints),
        load_plan(str(file), (), strict=False),
    )
    me = process_ref(os.getpid())

    def submission(restore: str) -> Submission:
        return Submission(
            job_id=7,
            name="zombie",
            plan=plan,
            file=str(file),
            options=RestoreOptions.parse(restore),
            me=me,
            now_ms=1,
        )

    first = Claimant(store, storage, home).claim(submission("fresh"))
    environ = {
        **os.environ,
        "TIDEGATE_FAILPOINT": f"{place}@3=stop",
        "TIDEGATE_TEST_METRICS_DELAY_S": "3600",
    }
    order = driver_spec(EngineSettings(), home, job_id=7, generation=first.generation)
    old = launch(order, Program(environ=environ, module="tidegate.testing.plain_driver"))
    try:
        end = time.monotonic() + TIMEOUT_S
        while not stopped(old.process.pid):
            assert old.poll() is None, old.stderr_tail(5)
            assert time.monotonic() < end
            time.sleep(0.01)  # poll interval for another process

        second = OtherHost(store, storage, home).claim(submission("latest"))
        newer = driver_spec(EngineSettings(), home, job_id=7, generation=second.generation)
        register(store, newer, 2)
        Driver(newer, store, second.job, lambda *_: PlainEngine()).run()
        assert status_of(read_job(store, 7)) is JobStatus.FINISHED
        before, state = visible(out), read_job(store, 7)
        checkpoints = sorted(p.name for p in home.checkpoints.glob("7/1/*"))

        os.kill(old.process.pid, signal.SIGCONT)
        assert old.process.wait(TIMEOUT_S) == DriverExit.FENCED, old.stderr_tail(5)
    finally:
        old.kill()
        old.close()
    assert visible(out) == before
    assert read_job(store, 7) == state
    assert sorted(p.name for p in home.checkpoints.glob("7/1/*")) == checkpoints
    assert sorted(
        pyarrow.dataset.dataset(str(out), format="parquet").to_table()["id"].to_pylist()
    ) == list(range(60))
    store.close()
