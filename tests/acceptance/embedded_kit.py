"""What the tests of `tidegate run` share: a home, a job file, real processes of the command with
the plain engine.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset

from tidegate.coordinator.job_snapshot import JobSnapshot, read_job
from tidegate.home import Home
from tidegate.model.records import JobStatus
from tidegate.store.open import open_store

TIMEOUT_S = 60
PROGRAM = """
import sys
from tidegate.cli import main, run
original = run.RunOptions
run.RunOptions = lambda **options: original(
    **options, driver_module="tidegate.testing.plain_driver"
)
sys.argv[:1] = ["tidegate", "run"]
main()
"""


class Installation:
    """A home, a job file and the processes of a test."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.out = root / "out"
        self.started: list[subprocess.Popen[str]] = []

    def job(
        self, *, mode: str = "BATCH", rows: int = 200, rate: int = 100, retries: int = 3
    ) -> Path:
        file = self.root / "job.conf"
        file.write_text(
            f"""env {{ job.mode = "{mode}", job.name = "orders", checkpoint.interval = 50
  read_limit.rows_per_second = {rate}
  job.retry.times = {retries}, job.retry.interval.seconds = 0 }}
source {{ FakeSource {{ row.num = {rows}, plugin_output = "t", bigint.fake.mode = "SEQUENCE",
  schema {{ fields {{ id = bigint }} }} }} }}
sink {{ LocalFile {{ plugin_input = "t", path = "{self.out}", file_format_type = "parquet" }} }}"""
        )
        return file

    def start(
        self, file: Path, *arguments: str, failpoint: str | None = None
    ) -> "subprocess.Popen[str]":
        environ = {
            **os.environ,
            "TIDEGATE_HOME": str(self.home),
            "TIDEGATE_TEST_METRICS_DELAY_S": "3600" if failpoint else "0.1",
        } | ({"TIDEGATE_FAILPOINT": failpoint} if failpoint else {})
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(file), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environ,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def run_and_kill(self, file: Path, checkpoints: int) -> None:
        """Start a run, and kill it once it has so many checkpoints."""
        process = self.start(file)
        self.until(lambda: self.checkpoints() >= checkpoints)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    def ids(self) -> list[int]:
        return (
            sorted(
                pyarrow.dataset.dataset(str(self.out), format="parquet")
                .to_table()["id"]
                .to_pylist()
            )
            if self.out.exists()
            else []
        )

    def known(self) -> JobSnapshot | None:
        if not (self.home / "store" / "tidegate.db").exists():
            return None
        store = open_store(Home(self.home).store_url)
        try:
            entries = store.list("running-job-state")
            return read_job(store, int(entries[0].key)) if entries else None
        finally:
            store.close()

    def checkpoints(self) -> int:
        known = self.known()
        return sum(p.value.checkpoints for p in known.pipelines) if known else 0

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < end, (
                f"not within {TIMEOUT_S} s:"
                f" {[p.communicate()[0] for p in self.started if p.poll() is not None]}"
            )
            time.sleep(0.02)  # poll interval for another process

    def status(self) -> JobStatus | None:
        known = self.known()
        return known.state.value.status if known and known.state else None


def finish(process: "subprocess.Popen[str]") -> tuple[int, str]:
    output = process.communicate(timeout=TIMEOUT_S)[0]
    return process.returncode, output
