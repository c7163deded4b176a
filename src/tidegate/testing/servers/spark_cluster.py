"""A real standalone Spark cluster from the pyspark package: a master and its workers, each a
process of its own, on the loopback interface and free ports.

Used by the acceptance tests, which kill parts of it. Every process leads a session of its own and
writes only below the directory that the cluster was given. The JVMs are started directly with the
command line of the start-up cache where there is one: Spark's own scripts would start a second JVM
for each.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from tidegate.runner.java import find_java
from tidegate.runner.process import kill_session, process_ref
from tidegate.spark import gateway, startup_cache

LOOPBACK = "127.0.0.1"
PATIENCE_S = 120.0
LOOK_S = 0.05
MEMORY = "256m"
EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"
MASTER_CLASS = "org.apache.spark.deploy.master.Master"
WORKER_CLASS = "org.apache.spark.deploy.worker.Worker"


def until(
    seen: Callable[[], bool], what: Callable[[], str], patience_s: float = PATIENCE_S
) -> None:
    """Wait for something that another process does; `what` tells how far it came."""
    end = time.monotonic() + patience_s
    while not seen():
        if time.monotonic() > end:
            raise AssertionError(f"not within {patience_s:g} s: {what()}")
        time.sleep(LOOK_S)  # between two polls of another process


class SparkProcess:
    """One JVM of the cluster."""

    def __init__(self, place: Path, name: str, host: str, *arguments: str) -> None:
        self.log, self.work = place / f"{name}.log", place / name
        self.work.mkdir(parents=True)
        java = find_java(os.environ)
        environ = {
            **{key: value for key, value in os.environ.items() if not key.startswith("SPARK_")},
            "JAVA_HOME": str(java.home),
            "SPARK_HOME": str(gateway.spark_home()),
            "SPARK_SCALA_VERSION": gateway.SCALA_VERSION,
            "SPARK_LOCAL_IP": host,
            "SPARK_LOCAL_DIRS": str(self.work / "local"),
            "SPARK_DAEMON_MEMORY": MEMORY,
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*_beginning(), *arguments],
                cwd=self.work,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.reference = process_ref(self.process.pid)

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

    def children(self) -> set[int]:
        """The executors that this worker has started and that live."""
        return {pid for pid in gateway.children(self.process.pid) if EXECUTOR in _command_line(pid)}

    def kill(self) -> None:
        """SIGKILL to this process alone; what it started must notice by itself."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        """The whole session, at once."""
        kill_session(self.reference)
        self.process.wait()


class SparkCluster:
    """A master and workers of one core each.

    As a context manager: up when entered, gone when left.
    """

    def __init__(self, place: Path, workers: int = 2) -> None:
        self.place = place
        self.workers_wanted = workers
        self.workers: list[SparkProcess] = []
        self.url = ""
        self._started: list[SparkProcess] = []

    def __enter__(self) -> "SparkCluster":
        try:
            master = self._start(
                "master",
                LOOPBACK,
                MASTER_CLASS,
                "--host",
                LOOPBACK,
                "--port",
                "0",
                "--webui-port",
                "0",
            )
            self.url = master.says(r"Starting Spark master at (spark://\S+)")
            self.add_workers(self.workers_wanted)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def add_workers(self, count: int) -> Sequence[SparkProcess]:
        """More workers; returns when the master knows them."""
        added = []
        for _ in range(count):
            number = len(self._started)
            name, host = (
                f"worker-{number}",
                f"127.0.0.{number + 1}",
            )  # hosts of their own, as far as Spark can tell
            options = (
                "--host",
                host,
                "--webui-port",
                "0",
                "--cores",
                "1",
                "--memory",
                "1g",
                "--work-dir",
                str(self.place / name),
            )
            added.append(self._start(name, host, WORKER_CLASS, *options, self.url))
        for worker in added:
            worker.says(r"Successfully registered with master (\S+)")
        self.workers += added
        return added

    def kill_worker(self, worker: SparkProcess) -> None:
        """SIGKILL to a worker's process: its executor ends by itself, as it loses its parent."""
        self.workers.remove(worker)
        worker.kill()

    def kill_master(self) -> None:
        """SIGKILL to the master's process; the cluster is of no more use to new applications."""
        self._started[0].kill()

    def executors(self) -> set[int]:
        """The processes that run tasks."""
        return {pid for worker in self.workers for pid in worker.children()}

    def end(self) -> None:
        for process in reversed(self._started):
            process.end()

    def _start(self, name: str, host: str, *arguments: str) -> SparkProcess:
        self._started.append(SparkProcess(self.place, name, host, *arguments))
        return self._started[-1]


def quick_java_options() -> str:
    """For JVMs that live for seconds: the quick compiler, and the classes that the start-up cache
    has kept.
    """
    cached = startup_cache.find(
        startup_cache.installed(), find_java(os.environ), gateway.spark_home()
    )
    return " ".join(
        [
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            *(startup_cache.options(cached) if cached else []),
        ]
    )


def _beginning() -> list[str]:
    """The command line before the class."""
    cached = startup_cache.find(
        startup_cache.installed(), find_java(os.environ), gateway.spark_home()
    )
    if cached is None:
        return [str(gateway.spark_home() / "bin" / "spark-class")]
    filled: list[str] = []
    for part in cached.command[:-1]:  # the last one is the class
        filled += (
            quick_java_options().split()
            if part == startup_cache.OPTIONS_PLACEHOLDER
            else [part.replace(startup_cache.MEMORY_PLACEHOLDER, MEMORY)]
        )
    return filled


def _command_line(pid: int) -> bytes:
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes()
    except OSError:  # it has ended meanwhile
        return b""
