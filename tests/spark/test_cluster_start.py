"""Slow starts of Spark: the status shown to the user, and a stop meanwhile."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.spark.cluster import StartState

TIDEGATE = str(Path(sys.executable).parent / "tidegate")
WITHIN_S = 90
JOB = """
env {{ job.mode = "BATCH", job.name = "silent", spark.master = "spark://127.0.0.1:{port}" }}
source {{ FakeSource {{
  plugin_output = "t", row.num = 100, schema {{ fields {{ id = bigint }} }}
}} }}
sink {{ Console {{ plugin_input = "t" }} }}
"""


def report(application: str, state: str) -> str:
    return (
        f"2026-11-18T10:00:00.000 INFO Client: Application report for {application} (state:"
        f" {state})\n"
    )


def test_status_of_the_current_yarn_application_is_shown(
    tmp_path: Path,
) -> None:
    log = tmp_path / "spark.log"
    log.write_text(report("application_1", "RUNNING"))
    state = StartState("yarn", log)
    assert "has not accepted the application yet" in state.describe()
    with log.open("a") as lines:
        lines.write(report("application_2", "ACCEPTED"))
    assert state.describe().startswith("YARN: application_2 is ACCEPTED, no container granted")
    with log.open("a") as lines:
        lines.write(report("application_2", "RUNNING"))
    assert state.describe().startswith("YARN: application_2 is RUNNING;")


def test_other_masters_are_shown(tmp_path: Path) -> None:
    assert StartState("local[2]", tmp_path / "none").describe() == "Spark's JVM is starting"
    assert (
        "spark://h:7077: the application is not registered"
        in StartState("spark://h:7077", tmp_path / "none").describe()
    )


@pytest.fixture
def silent_master() -> Iterator[int]:
    """A port that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken: list[socket.socket] = []

        def take() -> None:
            try:
                while True:
                    taken.append(listener.accept()[0])
            except OSError:
                return

        thread = threading.Thread(target=take)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    for each in taken:
        each.close()


def test_signal_stops_a_run_whose_master_never_responds(tmp_path: Path, silent_master: int) -> None:
    (tmp_path / "job.conf").write_text(JOB.format(port=silent_master))
    command = [TIDEGATE, "run", "job.conf", "--home", str(tmp_path / "home"), "--json"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    end_s, said = time.monotonic() + WITHIN_S, ""
    while "the application is not registered there yet" not in said:
        assert time.monotonic() < end_s, said
        line = process.stdout.readline()
        assert line, said
        said += line
    os.kill(process.pid, signal.SIGTERM)
    said += process.communicate(timeout=WITHIN_S)[0]
    assert process.returncode == 130, said
    assert '"status": "CANCELED"' in said
