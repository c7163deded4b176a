"""A real Spark cluster of several processes (a master, two workers, their executors) under `tidegate run`: the same rows as on one process, also when an
executor is killed with -9 inside a batch.

The cluster is the one that comes with the pyspark package, on the loopback interface, on free ports, in directories of its own.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.dataset
import pyspark
import pytest

from tidegate.runner.java import find_java
from tidegate.runner.process import kill_session, reference

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

PATIENCE_S = 180
SPARK = Path(pyspark.__file__).parent
LOOPBACK = "127.0.0.1"
EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"


def until(seen: Callable[[], bool], what: Callable[[], str]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not seen():
        assert time.monotonic() < end, f"not within {PATIENCE_S} s: {what()}"
        time.sleep(0.05)  # between two looks at other processes


class Process:
    """One JVM of the cluster, the leader of a session of its own."""

    def __init__(self, place: Path, name: str, *arguments: str) -> None:
        self.log, self.work = place / f"{name}.log", place / name
        self.work.mkdir()
        environ = {
            **{key: value for key, value in os.environ.items() if not key.startswith("SPARK_")},
            "JAVA_HOME": str(find_java(os.environ).home),
            "SPARK_HOME": str(SPARK),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_LOCAL_DIRS": str(self.work / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(SPARK / "bin" / "spark-class"), *arguments],
                cwd=self.work,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.reference = reference(self.process.pid)

    def says(self, pattern: str) -> str:
        """Wait until this is in the log; the group of the pattern."""
        found: list[str] = []

        def seen() -> bool:
            assert self.process.poll() is None, self.text()
            found[:] = re.findall(pattern, self.text())
            return bool(found)

        until(seen, self.text)
        return found[0]

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def end(self) -> None:
        kill_session(self.reference)
        self.process.wait()


@dataclass(frozen=True, slots=True)
class Cluster:
    """A master that is up, with its workers."""

    url: str
    workers: tuple[Process, ...]

    def executors(self) -> set[int]:
        """The processes that run tasks: children of the workers."""
        parents = {worker.process.pid for worker in self.workers}
        found = set()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                    if parent in parents and EXECUTOR in (entry / "cmdline").read_bytes():
                        found.add(int(entry.name))
                except OSError:  # it has ended meanwhile
                    continue
        return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    place = tmp_path_factory.mktemp("cluster")
    started: list[Process] = []

    def start(name: str, *arguments: str) -> Process:
        started.append(Process(place, name, *arguments))
        return started[-1]

    try:
        master = start("master", "org.apache.spark.deploy.master.Master", "--host", LOOPBACK, "--port", "0", "--webui-port", "0")
        url = master.says(r"Starting Spark master at (spark://\S+)")
        options = ("--host", LOOPBACK, "--webui-port", "0", "--cores", "1", "--memory", "1g")
        workers = tuple(start(f"worker-{n}", "org.apache.spark.deploy.worker.Worker", *options, "--work-dir", str(place / f"worker-{n}"), url) for n in (1, 2))
        for worker in workers:
            worker.says(r"Successfully registered with master (\S+)")
        yield Cluster(url, workers)
    finally:
        for process in reversed(started):
            process.end()


class Job:
    """Two pipelines: one that runs fused in the Python workers, one that goes through SQL."""

    def __init__(self, root: Path, cluster: Cluster, *, rows: int, env: str, source: str = "") -> None:
        self.root, self.rows = root, rows
        self.file = root / "job.conf"

        def fake(name: str) -> str:
            return (
                f'FakeSource {{ plugin_output = "{name}", row.num = {rows // 2}, parallelism = 2, seed = 3, bigint.fake.mode = "SEQUENCE" {source}\n'
                "  schema { fields { id = bigint, name = string } } }"
            )

        self.file.write_text(
            f"""env {{
  job.mode = "BATCH", job.name = "cluster", {env}
  spark.master = "{cluster.url}", spark.driver.host = "{LOOPBACK}", spark.driver.bindAddress = "{LOOPBACK}"
  spark.executor.memory = "512m", spark.executor.cores = 1, spark.sql.shuffle.partitions = 2
}}
source {{ {fake("a")}
{fake("b")} }}
transform {{ Sql {{ plugin_input = "b", plugin_output = "c", query = "select id, id * 2 as double, upper(name) as name from b where id % 2 = 0" }} }}
sink {{ LocalFile {{ plugin_input = "a", path = "{root / "fused"}", file_format_type = "parquet" }}
LocalFile {{ plugin_input = "c", path = "{root / "sql"}", file_format_type = "parquet" }} }}"""
        )

    def start(self) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", "from tidegate.cli import main; main()", "run", str(self.file), "--home", str(self.root / "home")]
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ}, start_new_session=True
        )

    def check(self) -> None:
        """Exactly the rows, in whole files, and nothing hidden beside them."""
        fused = pyarrow.dataset.dataset(str(self.root / "fused"), format="parquet").to_table().sort_by("id")
        assert fused["id"].to_pylist() == list(range(self.rows))
        sql = pyarrow.dataset.dataset(str(self.root / "sql"), format="parquet").to_table().sort_by("id")
        assert sql["id"].to_pylist() == list(range(0, self.rows, 2))
        assert sql["double"].to_pylist() == [2 * n for n in range(0, self.rows, 2)]
        assert all(name.isupper() and len(name) == 5 for name in sql["name"].to_pylist())
        assert not list(self.root.glob("*/.tidegate"))

    def staged(self, sink: str) -> list[Path]:
        """What tasks have begun to write, and nobody has committed."""
        return [p for p in (self.root / sink / ".tidegate").rglob("staging/*/*") if p.is_file()] if (self.root / sink).exists() else []


@pytest.fixture
def running() -> "Iterator[list[subprocess.Popen[str]]]":
    """What a test started and must not leave behind: `tidegate run`, whose driver ends with it."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_a_job_on_a_cluster_writes_exactly_its_rows(tmp_path: Path, cluster: Cluster, running: "list[subprocess.Popen[str]]") -> None:
    job = Job(tmp_path, cluster, rows=20_000, env="checkpoint.interval = 1000, batch.max-rows = 5000")
    process = job.start()
    running.append(process)
    said = process.communicate(timeout=PATIENCE_S)[0]
    assert process.returncode == 0, said
    assert f"read {2 * job.rows:,} rows" in said
    job.check()
    for worker in cluster.workers:
        assert list(worker.work.glob("app-*/*/stderr")), "a worker had no executor"


def test_an_executor_killed_inside_a_batch_loses_and_doubles_nothing(tmp_path: Path, cluster: Cluster, running: "list[subprocess.Popen[str]]") -> None:
    slow = ", split.num = 25, split.read-interval = 400"  # every reader gives 25 pieces with a pause after each
    job = Job(tmp_path, cluster, rows=100, env="job.retry.times = 0", source=slow)
    process = job.start()
    running.append(process)

    def alive() -> str:
        assert process.stdout is not None
        return process.stdout.read() if process.poll() is not None else "it runs"

    until(lambda: process.poll() is not None or bool(job.staged("fused") or job.staged("sql")), alive)
    before = cluster.executors()
    assert len(before) == 2, alive()
    os.kill(min(before), signal.SIGKILL)
    until(lambda: process.poll() is not None or len(cluster.executors() - before) == 1, alive)
    said = process.communicate(timeout=PATIENCE_S)[0]
    assert process.returncode == 0, said
    job.check()
