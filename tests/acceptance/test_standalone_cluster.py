"""A real Spark cluster of several processes (a master, two workers, their executors) under
`tidegate run`: the same job files as on one machine, and exactly their rows when parts of the
cluster are killed with -9, hang, or are not what they should be.

Where a test has to meet a task in the middle, another sink (Chaos) is slow to close, and the file
sink has its file open meanwhile: so it can be seen which executor writes, and be lost.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

from tidegate.runner.process import session_members
from tidegate.spark import gateway
from tidegate.testing.servers.spark_cluster import LOOPBACK, SparkCluster, quick_java_options, until

pytestmark = pytest.mark.timeout(300)

TIMEOUT_S = 120


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def cluster(standing: SparkCluster) -> SparkCluster:
    """A cluster with two workers again, whatever the previous test did to it."""
    standing.add_workers(2 - len(standing.workers))
    return standing


class Run:
    """A `tidegate run` on the cluster."""

    def __init__(
        self,
        root: Path,
        cluster: SparkCluster,
        *,
        env: str,
        body: str,
        by_engine_file: bool = False,
    ) -> None:
        self.root = root
        self.cluster = cluster
        self.file = root / "job.conf"
        self.process: subprocess.Popen[str] | None = None
        settings = {
            "spark.master": cluster.url,
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.tidegate.noExecutorTimeout": "120s",  # on a busy machine JVMs start slowly
            "spark.executor.extraJavaOptions": quick_java_options(),
        }
        self.options = ["--home", str(root / "home")]
        if by_engine_file:
            (root / "engine.yaml").write_text(
                json.dumps({"tidegate": {"spark": settings}})
            )  # JSON is YAML
            self.options += ["--config", str(root / "engine.yaml")]
            settings = {}
        lines = "\n".join(
            [*(f'  {key} = "{value}"' for key, value in settings.items()), f"  {env}"]
        )
        self.file.write_text(
            f'env {{\n  job.name = "cluster", checkpoint.timeout = 120000\n{lines}\n}}\n{body}'
        )

    def start(self) -> None:
        command = [
            sys.executable,
            "-c",
            "from tidegate.cli import main; main()",
            "run",
            str(self.file),
            *self.options,
        ]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    @property
    def running(self) -> "subprocess.Popen[str]":
        assert self.process is not None, "start first"
        return self.process

    def result(self) -> tuple[int, str]:
        """Exit code and complete output."""
        output = self.running.communicate(timeout=TIMEOUT_S)[0]
        return self.running.returncode, output

    def wait_for(self, what: object) -> None:
        """Until `what()` is true; fails as soon as the run has ended without."""
        assert callable(what)

        def seen() -> bool:
            if what():
                return True
            assert self.running.poll() is None, self.running.communicate()[0]
            return False

        until(seen, lambda: "it runs", TIMEOUT_S)

    def staged(self, sink: str = "out") -> set[str]:
        """What tasks have begun to write, and nobody has committed."""
        place = self.root / sink / ".tidegate"
        return (
            {
                p.name
                for p in place.rglob("staging/*/*")
                if p.is_file() and not p.name.endswith(".record")
            }
            if place.exists()
            else set()
        )

    def rows(self, sink: str = "out") -> pa.Table:
        return (
            pyarrow.dataset.dataset(str(self.root / sink), format="parquet")
            .to_table()
            .sort_by("id")
        )

    def ids(self, sink: str = "out") -> list[int]:
        files = [p for p in (self.root / sink).rglob("*.parquet") if ".tidegate" not in p.parts]
        return sorted(
            number
            for file in files
            for number in pyarrow.parquet.read_table(file)["id"].to_pylist()
        )

    def writing_executor(self) -> int:
        """The executor of a task that has a staged file open right now."""
        found: list[int] = []

        def seen() -> bool:
            found[:] = [
                pid
                for pid in self.cluster.executors()
                if any(str(self.root) in path and "/staging/" in path for path in open_files(pid))
            ]
            return bool(found)

        self.wait_for(seen)
        return found[0]

    def end(self) -> None:
        if self.process is not None:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()


def open_files(executor: int) -> Iterator[str]:
    """What the Python workers of an executor have open."""
    for daemon in gateway.children(executor):
        for worker in gateway.children(daemon):
            try:
                yield from (os.readlink(entry) for entry in Path(f"/proc/{worker}/fd").iterdir())
            except OSError:  # closed or ended meanwhile
                continue


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    """What a test started and must not leave behind: the driver ends with its `tidegate run`."""
    started: list[Run] = []
    yield started
    for run in started:
        run.end()


def fake(name: str, rows: int) -> str:
    return (
        f'FakeSource {{ plugin_output = "{name}", row.num = {rows // 2}, parallelism = 2, seed = 3,'
        ' bigint.fake.mode = "SEQUENCE"\n  schema { fields { id = bigint, name = string } } }'
    )


def bounded(root: Path, rows: int, slow_ms: int) -> str:
    """Two pipelines: one that runs fused in the Python workers, one that runs through SQL."""
    return f"""source {{ {fake("a", rows)}
{fake("b", rows)} }}
transform {{ Sql {{ plugin_input = "b", plugin_output = "c",
  query = "select id, id * 2 as double, upper(name) as name from b where id % 2 = 0" }} }}
sink {{
  Chaos {{ plugin_input = "a", places = ["write"], slow_ms = {slow_ms} }}
  LocalFile {{ plugin_input = "a", path = "{root / "fused"}", file_format_type = "parquet" }}
  LocalFile {{ plugin_input = "c", path = "{root / "sql"}", file_format_type = "parquet" }}
}}"""


def check_bounded(run: Run, rows: int) -> None:
    """Exactly the rows, in whole files, and nothing hidden beside them."""
    assert run.rows("fused")["id"].to_pylist() == list(range(rows))
    sql = run.rows("sql")
    assert sql["id"].to_pylist() == list(range(0, rows, 2))
    assert sql["double"].to_pylist() == [2 * n for n in range(0, rows, 2)]
    assert all(name.isupper() for name in sql["name"].to_pylist())
    assert not list(run.root.glob("*/.tidegate"))


def test_a_worker_killed_inside_a_bounded_job_loses_and_doubles_nothing(
    tmp_path: Path, cluster: SparkCluster, runs: list[Run]
) -> None:
    env = (
        'job.mode = "BATCH", job.retry.times = 0, checkpoint.interval = 1000, batch.max-rows = 400,'
        " spark.sql.shuffle.partitions = 2"
    )
    run = Run(
        tmp_path, cluster, env=env, body=bounded(tmp_path, 2000, slow_ms=500), by_engine_file=True
    )
    runs.append(run)
    run.start()
    run.wait_for(lambda: run.ids("fused"))  # some batches are committed
    writing = run.writing_executor()
    victim = next(worker for worker in cluster.workers if writing in worker.children())
    cluster.kill_worker(victim)
    run.wait_for(lambda: not session_members(victim.reference))
    code, output = run.result()
    assert code == 0, output
    assert "read 4,000 rows" in output
    check_bounded(run, 2000)


def test_an_executor_killed_inside_a_streaming_job_loses_and_doubles_nothing(
    tmp_path: Path, cluster: SparkCluster, runs: list[Run]
) -> None:
    inbox = tmp_path / "in"
    inbox.mkdir()

    def arrive(number: int) -> None:
        text = "".join(f'{{"id": {n}}}\n' for n in range(number * 100, number * 100 + 100))
        (inbox / f".{number}").write_text(text)
        (inbox / f".{number}").rename(inbox / f"{number}.json")

    body = f"""source {{ LocalFile {{ path = "{inbox}", file_format_type = "json"
  discovery_mode = "continuous", scan_interval = 100, plugin_output = "a"
  schema {{ fields {{ id = bigint }} }} }} }}
sink {{ Chaos {{ plugin_input = "a", places = ["write"], slow_ms = 1000 }}
LocalFile {{ plugin_input = "a", path = "{tmp_path / "out"}", file_format_type = "parquet" }} }}"""
    run = Run(
        tmp_path,
        cluster,
        env='job.mode = "STREAMING", job.retry.times = 0, checkpoint.interval = 300',
        body=body,
    )
    runs.append(run)
    arrive(0)
    run.start()
    run.wait_for(lambda: len(run.ids()) == 100)
    arrive(1)
    before, victim = cluster.executors(), run.writing_executor()
    lost = run.staged()
    os.kill(victim, signal.SIGKILL)
    assert lost
    run.wait_for(lambda: run.ids() == list(range(200)))
    run.wait_for(lambda: not run.staged() & lost)
    run.wait_for(lambda: cluster.executors() - before)  # the cluster gives a new one
    arrive(2)
    run.wait_for(lambda: run.ids() == list(range(300)))
    run.running.send_signal(signal.SIGTERM)
    code, output = run.result()
    assert code == 130, output
    assert run.ids() == list(range(300))
    assert run.staged() == set()


@pytest.mark.soak
def test_a_job_on_a_cluster_writes_exactly_its_rows(
    tmp_path: Path, cluster: SparkCluster, runs: list[Run]
) -> None:
    env = 'job.mode = "BATCH", checkpoint.interval = 1000, batch.max-rows = 5000'
    run = Run(tmp_path, cluster, env=env, body=bounded(tmp_path, 20_000, slow_ms=0))
    runs.append(run)
    run.start()
    code, output = run.result()
    assert code == 0, output
    check_bounded(run, 20_000)
    for worker in cluster.workers:
        assert list(worker.work.glob("app-*/*/stderr")), "a worker had no executor"


def slow_batches(root: Path, rows: int, trouble: str) -> str:
    """Batches of two tasks at least, each with its file open while it is slow."""
    return f"""source {{ Chaos {{ plugin_output = "a", row.num = {rows} }} }}
sink {{ Chaos {{ plugin_input = "a", places = ["write"], {trouble} }}
LocalFile {{ plugin_input = "a", path = "{root / "out"}", file_format_type = "parquet" }} }}"""


BATCHES = (
    'job.mode = "BATCH", job.retry.times = 0, checkpoint.interval = 3000, batch.max-rows = 2000'
)


@pytest.mark.soak
def test_a_host_that_is_cut_off_and_comes_back_adds_nothing(
    tmp_path: Path, cluster: SparkCluster, runs: list[Run]
) -> None:
    quick = (
        "spark.network.timeout = 8s, spark.network.timeoutInterval = 1s,"
        " spark.executor.heartbeatInterval = 1s"
    )
    run = Run(
        tmp_path,
        cluster,
        env=f"{BATCHES}, {quick}",
        body=slow_batches(tmp_path, 40_000, "slow_ms = 700"),
    )
    runs.append(run)
    run.start()
    run.wait_for(run.ids)
    writing = run.writing_executor()
    zombie = next(worker for worker in cluster.workers if writing in worker.children())
    frozen = session_members(zombie.reference)
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        committed = len(run.ids())
        run.wait_for(
            lambda: len(run.ids()) >= committed + 6000
        )  # its tasks were done elsewhere, and more
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    code, output = run.result()
    assert code == 0, output
    assert run.ids() == list(range(40_000))
    assert not (tmp_path / "out" / ".tidegate").exists()


@pytest.mark.soak
def test_tasks_that_run_twice_at_once_write_once(
    tmp_path: Path, cluster: SparkCluster, runs: list[Run]
) -> None:
    eager = (
        "spark.speculation = true, spark.speculation.interval = 100ms, spark.speculation.multiplier"
        " = 1.1, spark.speculation.quantile = 0.1"
    )
    trouble = "seed = 5, hang_probability = 0.4, hang_ms = 5000"
    run = Run(
        tmp_path,
        cluster,
        env=f"{BATCHES}, {eager}, spark.speculation.minTaskRuntime = 100ms",
        body=slow_batches(tmp_path, 16_000, trouble),
    )
    runs.append(run)
    run.start()
    code, output = run.result()
    assert code == 0, output
    assert run.ids() == list(range(16_000))
    said_by_executors = "".join(
        path.read_text() for path in cluster.place.glob("worker-*/app-*/*/stderr")
    )
    assert "another attempt succeeded" in said_by_executors, "no task ran twice"


@pytest.mark.soak
def test_the_death_of_the_drivers_jvm_ends_its_executors_and_the_next_generation_resumes(
    tmp_path: Path, cluster: SparkCluster, runs: list[Run]
) -> None:
    run = Run(
        tmp_path,
        cluster,
        env=BATCHES.replace("retry.times = 0", "retry.times = 3"),
        body=slow_batches(tmp_path, 20_000, "slow_ms = 300"),
    )
    runs.append(run)
    run.start()
    run.wait_for(run.ids)
    before = cluster.executors()
    drivers = gateway.children(run.running.pid)
    jvms = [
        pid
        for driver in drivers
        for pid in gateway.children(driver)
        if b"SparkSubmit" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    assert jvms
    os.kill(jvms[0], signal.SIGKILL)
    run.wait_for(lambda: not cluster.executors() & before)
    code, output = run.result()
    assert code == 0, output
    assert run.ids() == list(range(20_000))


@pytest.mark.soak
def test_a_batch_without_executors_fails_in_bounded_time_and_is_tried_again_when_there_are_some(
    tmp_path: Path, cluster: SparkCluster, runs: list[Run]
) -> None:
    for worker in list(cluster.workers):
        cluster.kill_worker(worker)
    env = (
        f"{BATCHES.replace('retry.times = 0', 'retry.times = 9')}, job.retry.interval.seconds = 1,"
        " spark.tidegate.noExecutorTimeout = 3s"
    )
    run = Run(tmp_path, cluster, env=env, body=slow_batches(tmp_path, 300, "slow_ms = 0"))
    runs.append(run)
    run.start()
    logs = tmp_path / "home" / "logs"
    run.wait_for(
        lambda: any(
            "no executor for 3 seconds" in path.read_text() for path in logs.rglob("driver.log")
        )
    )
    cluster.add_workers(2)
    code, output = run.result()
    assert code == 0, output
    assert run.ids() == list(range(300))


@pytest.mark.soak
def test_executors_without_the_right_python_are_named(
    tmp_path: Path, cluster: SparkCluster, runs: list[Run]
) -> None:
    run = Run(
        tmp_path,
        cluster,
        env=f'{BATCHES}, spark.pyspark.python = "/no/such/python"',
        body=slow_batches(tmp_path, 100, "slow_ms = 0"),
    )
    runs.append(run)
    run.start()
    code, output = run.result()
    assert code == 1, output
    assert "the executors have no program /no/such/python" in output


def test_a_master_that_is_not_there_is_named_at_once(
    tmp_path: Path, standing: SparkCluster, runs: list[Run]
) -> None:
    run = Run(
        tmp_path,
        standing,
        env=f'{BATCHES}, spark.master = "spark://{LOOPBACK}:1"',
        body=slow_batches(tmp_path, 100, "slow_ms = 0"),
    )
    runs.append(run)
    run.start()
    code, output = run.result()
    assert code == 1, output
    assert (
        f"no Spark master answers at spark://{LOOPBACK}:1 ({LOOPBACK}:1: Connection refused)"
        in output
    )


@pytest.mark.soak
def test_a_job_continues_with_its_executors_when_the_master_is_killed(
    tmp_path: Path, runs: list[Run]
) -> None:
    with SparkCluster(tmp_path / "cluster") as own:
        run = Run(tmp_path, own, env=BATCHES, body=slow_batches(tmp_path, 20_000, "slow_ms = 300"))
        runs.append(run)
        run.start()
        run.wait_for(run.ids)
        own.kill_master()
        code, output = run.result()
    assert code == 0, output
    assert run.ids() == list(range(20_000))


@pytest.mark.soak
def test_executors_that_cannot_start_fail_the_batch_in_bounded_time(
    tmp_path: Path, cluster: SparkCluster, runs: list[Run]
) -> None:
    impossible = (
        'spark.executor.extraJavaOptions = "-XX:ActiveProcessorCount=none",'
        " spark.tidegate.noExecutorTimeout = 3s"
    )
    run = Run(
        tmp_path,
        cluster,
        env=f"{BATCHES}, {impossible}",
        body=slow_batches(tmp_path, 100, "slow_ms = 0"),
    )
    runs.append(run)
    run.start()
    code, output = run.result()
    assert code == 1, output
    assert f"no executor for 3 seconds at {cluster.url}" in output
