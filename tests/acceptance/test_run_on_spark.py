"""Whole jobs on real Spark: several pipelines, failing tasks, a JVM that dies under its driver."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.dataset
import pytest

from tidegate.coordinator.job_snapshot import read_job
from tidegate.home import Home
from tidegate.model.records import JobStatus
from tidegate.runner.process import PROC, session_members
from tidegate.store.open import open_store
from tidegate.testing.in_process import Shared, run_in_process

TIMEOUT_S = 120


def ids(directory: Path) -> list[int]:
    return sorted(
        pyarrow.dataset.dataset(str(directory), format="parquet").to_table()["id"].to_pylist()
    )


def fake(output: str, rows: int) -> str:
    return (
        f'FakeSource {{ plugin_output = "{output}", row.num = {rows}, bigint.fake.mode ='
        ' "SEQUENCE", schema { fields { id = bigint, name = string } } }'
    )


def files(root: Path, name: str) -> str:
    return (
        f'LocalFile {{ plugin_input = "{name}", path = "{root / name}", file_format_type ='
        ' "parquet" }'
    )


def test_pipelines_of_one_job_run_side_by_side_fused_and_with_sql(
    tmp_path: Path, shared_engine: Shared
) -> None:
    job = tmp_path / "job.conf"
    job.write_text(
        f"""env {{ job.mode = "BATCH", job.name = "two", checkpoint.interval = 100
  batch.max-rows = 200 }}
source {{ {fake("plain", 1000)}, {fake("t", 1000)} }}
transform {{ Sql {{ plugin_input = "t", plugin_output = "even",
  query = "select id, name from t where id % 2 = 0" }} }}
sink {{ {files(tmp_path, "plain")}, {files(tmp_path, "even")} }}"""
    )
    ran = run_in_process(str(job), Home(tmp_path / "home"), shared_engine)
    assert ran.outcome.status is JobStatus.FINISHED
    assert (ran.outcome.rows_read, ran.outcome.rows_written, ran.outcome.checkpoints) == (
        2000,
        1500,
        10,
    )
    assert ids(tmp_path / "plain") == list(range(1000))
    assert ids(tmp_path / "even") == list(range(0, 1000, 2))


def test_a_pipeline_that_fails_fails_the_job_and_stops_the_other_at_a_checkpoint(
    tmp_path: Path, shared_engine: Shared
) -> None:
    job = tmp_path / "job.conf"
    job.write_text(
        f"""env {{ job.mode = "BATCH", job.name = "one-fails", checkpoint.interval = 100
  read_limit.rows_per_second = 100 }}
source {{ {fake("good", 100_000)}, {fake("bad", 100)} }}
transform {{ Sql {{ plugin_input = "bad", plugin_output = "worse",
  query = "select cast(name as int) as id from bad" }} }}
sink {{ {files(tmp_path, "good")}, {files(tmp_path, "worse")} }}"""
    )
    ran = run_in_process(str(job), Home(tmp_path / "home"), shared_engine)
    assert ran.outcome.status is JobStatus.FAILED
    assert any("CAST_INVALID_INPUT" in f.message for f in ran.outcome.failures), (
        ran.outcome.failures
    )
    written = ids(tmp_path / "good") if (tmp_path / "good").exists() else []
    assert written == list(range(len(written)))
    assert len(written) < 100_000


def test_troubles_in_tasks_and_commits_are_retried_without_a_trace_in_the_rows(
    tmp_path: Path, shared_engine: Shared
) -> None:
    job = tmp_path / "job.conf"
    job.write_text(
        f"""env {{ job.mode = "BATCH", job.name = "trouble", checkpoint.interval = 100
  batch.max-rows = 100
  job.retry.times = 50, job.retry.interval.seconds = 0 }}
source {{ {fake("t", 1000)} }}
sink {{ {files(tmp_path, "t")}, Chaos {{ plugin_input = "t", seed = 3
  path = "{tmp_path / "chaos"}", fail_probability = 0.3 }} }}"""
    )
    ran = run_in_process(str(job), Home(tmp_path / "home"), shared_engine)
    assert ran.outcome.status is JobStatus.FINISHED
    assert ids(tmp_path / "t") == list(range(1000))


def test_a_jvm_that_dies_is_replaced_with_its_driver_and_a_killed_run_leaves_no_process(
    tmp_path: Path,
) -> None:
    job, home = tmp_path / "job.conf", Home(tmp_path / "home")
    job.write_text(
        f"""env {{ job.mode = "BATCH", job.name = "jvm", checkpoint.interval = 300
  read_limit.rows_per_second = 100, job.retry.interval.seconds = 0 }}
source {{ {fake("t", 900)} }}
transform {{ Sql {{ plugin_input = "t", plugin_output = "u", query = "select id from t" }} }}
sink {{ {files(tmp_path, "u")}, Console {{ plugin_input = "u" }} }}"""
    )
    command = [
        sys.executable,
        "-c",
        "from tidegate.cli import main; main()",
        "run",
        str(job),
        "--job-id",
        "7",
        "--restore",
        "auto",
        "--home",
        str(home.root),
    ]

    def start() -> "subprocess.Popen[str]":
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def driver_after(checkpoints: int) -> "list[int]":
        end = time.monotonic() + TIMEOUT_S
        while time.monotonic() < end:
            if (home.root / "store" / "tidegate.db").exists():
                store = open_store(home.store_url)
                snapshot = read_job(store, 7)
                store.close()
                if (
                    snapshot.driver
                    and sum(p.value.checkpoints for p in snapshot.pipelines) >= checkpoints
                ):
                    return session_members(snapshot.driver.value.process)
            time.sleep(0.1)  # poll interval for another process
        pytest.fail(f"no {checkpoints} checkpoints within {TIMEOUT_S} s")

    first = start()
    members = driver_after(2)
    jvm = next(pid for pid in members if (PROC / str(pid) / "comm").read_text().strip() == "java")
    os.kill(jvm, signal.SIGKILL)
    members = driver_after(6)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    end = time.monotonic() + 30
    while any((PROC / str(pid)).exists() for pid in members):
        assert time.monotonic() < end, "processes outlive a killed run"
        time.sleep(0.1)  # poll interval for other processes
    second = start()
    rows, output = second.communicate(timeout=TIMEOUT_S)
    assert second.returncode == 0, output
    assert "resumes: pipeline 1 after checkpoint" in output
    assert ids(tmp_path / "u") == list(range(900))
    assert "SeaTunnelRow#kind=INSERT" in rows
    assert not list((home.root / "work").glob("*"))
