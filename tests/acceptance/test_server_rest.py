"""Real server and worker processes, used from outside: commands, REST, files, signals.

Jobs run on the plain engine but for one, which runs on Spark.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pyarrow.dataset
import pytest
from cluster_members import until

TIMEOUT_S = 60
TIDEGATE = str(Path(sys.executable).parent / "tidegate")
PLAIN = """
import functools, tidegate.server as server, tidegate.cli.server as verbs
from tidegate.cli import main
verbs.ServerSettings = functools.partial(
    server.ServerSettings, driver_module="tidegate.testing.plain_driver"
)
main()
"""
STREAM = """
env {{ job.mode = "STREAMING", job.name = "stream", checkpoint.interval = 300 }}
source {{ LocalFile {{ path = "{source}", file_format_type = "csv", plugin_output = "t"
  discovery_mode = "continuous", scan_interval = 200,
  schema {{ fields {{ id = bigint, name = string }} }} }} }}
sink {{ LocalFile {{ plugin_input = "t", path = "{out}", file_format_type = "parquet" }} }}
"""
BATCH = """
env {{ job.mode = "BATCH" }}
source {{ FakeSource {{ plugin_output = "t", row.num = 7, bigint.fake.mode = "SEQUENCE",
  schema {{ fields {{ id = bigint }} }} }} }}
sink {{ LocalFile {{ plugin_input = "t", path = "{out}", file_format_type = "parquet" }} }}
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def rest(port: int, path: str, body: str | dict[str, Any] | None = None) -> Any:
    data = (
        body.encode()
        if isinstance(body, str)
        else json.dumps(body).encode()
        if body is not None
        else None
    )
    with urllib.request.urlopen(
        urllib.request.Request(f"http://127.0.0.1:{port}{path}", data), timeout=10
    ) as answer:
        return json.loads(answer.read())


def ids(out: Path) -> list[int]:
    if not list(out.glob("*.parquet")):
        return []
    return sorted(
        pyarrow.dataset.dataset(sorted(map(str, out.glob("*.parquet"))), format="parquet")
        .to_table()
        .column("id")
        .to_pylist()
    )


def feed(source: Path, number: int) -> None:
    draft = source.parent / "draft"
    draft.write_text("".join(f"{number * 100 + i},name\n" for i in range(100)))
    draft.rename(source / f"f{number:04}.csv")


class Installation:
    """Servers and workers on one home."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.home = place / "home"
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str, spark: bool = False) -> "subprocess.Popen[bytes]":
        command = [TIDEGATE] if spark else [sys.executable, "-c", PLAIN]
        log = (self.place / f"out-{len(self.processes)}.log").open("wb")
        environ = {**os.environ, "TIDEGATE_HOME": str(self.home)}
        with log:
            process = subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environ,
            )
        self.processes.append(process)
        return process

    def serve(self, *arguments: str, spark: bool = False) -> tuple[int, "subprocess.Popen[bytes]"]:
        port = free_port()
        process = self.start("server", "--http-port", str(port), *arguments, spark=spark)
        until(f"the server on {port}", lambda: process.poll() is not None or rest(port, "/health"))
        assert process.poll() is None, self.output(process)
        return port, process

    def output(self, process: "subprocess.Popen[bytes]") -> str:
        return (self.place / f"out-{self.processes.index(process)}.log").read_text()

    def end(self) -> None:
        """Servers first; then the drivers, which nobody else would end."""
        for process in self.processes:
            process.kill()
            process.wait()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if (
                    str(self.home).encode() in Path("/proc", pid, "environ").read_bytes()
                    and int(pid) != os.getpid()
                ):
                    os.kill(int(pid), signal.SIGKILL)
            except OSError:
                continue


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    made = Installation(tmp_path)
    yield made
    made.end()


def ended(process: "subprocess.Popen[bytes]", number: signal.Signals = signal.SIGTERM) -> int:
    process.send_signal(number)
    return process.wait(TIMEOUT_S)


def checkpoint(port: int, job_id: int) -> int:
    return int(rest(port, f"/job-info/{job_id}").get("lastCheckpointId") or 0)


def test_a_job_on_spark_is_submitted_runs_and_is_counted(
    installation: Installation, tmp_path: Path
) -> None:
    port, process = installation.serve(spark=True)
    assert rest(
        port, "/submit-job?format=hocon&jobId=12&jobName=seven", BATCH.format(out=tmp_path / "out")
    ) == {"jobId": "12", "jobName": "seven"}
    until("the end of the job", lambda: rest(port, "/job-info/12")["jobStatus"] == "FINISHED")
    (job,) = rest(port, "/finished-jobs/FINISHED")
    assert (
        job["jobId"],
        job["metrics"]["SourceReceivedCount"],
        job["metrics"]["SinkWriteCount"],
    ) == ("12", "7", "7")
    assert ids(tmp_path / "out") == list(range(7))
    assert rest(port, "/running-jobs") == []
    assert ended(process) == 0
    assert "Traceback" not in installation.output(process)


def test_a_streaming_job_continues_without_a_server_and_is_found_again(
    installation: Installation, tmp_path: Path
) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    feed(source, 0)
    port, process = installation.serve()
    rest(port, "/submit-job?format=hocon&jobId=42", STREAM.format(source=source, out=out))
    before = until("a checkpoint", lambda: checkpoint(port, 42))
    assert ended(process) == 0
    feed(source, 1)
    until("rows while no server lives", lambda: len(ids(out)) == 200)
    port, _ = installation.serve()
    until(
        "the job is found again",
        lambda: (
            rest(port, "/job-info/42")["jobStatus"] == "RUNNING" and checkpoint(port, 42) > before
        ),
    )
    assert rest(port, "/job-info/42")["generation"] == "1"
    feed(source, 2)
    until("rows with the new server", lambda: len(ids(out)) == 300)
    assert rest(port, "/stop-job", {"jobId": 42}) == {"jobId": "42"}
    until("the end of the job", lambda: rest(port, "/job-info/42")["jobStatus"] == "CANCELED")
    assert rest(port, "/running-jobs") == []
    assert ids(out) == list(range(300))


def test_when_the_leader_resigns_another_server_leads_and_all_of_them_answer(
    installation: Installation, tmp_path: Path
) -> None:
    first, process = installation.serve()
    second, _ = installation.serve()
    assert until("a leader", lambda: rest(first, "/health")["leading"])
    assert rest(second, "/health")["leader"]["address"] == f"http://127.0.0.1:{first}"
    rest(second, "/submit-job?format=hocon&jobId=7", BATCH.format(out=tmp_path / "out"))
    until(
        "the job on both",
        lambda: (
            {rest(port, "/job-info/7").get("jobStatus") for port in (first, second)} == {"FINISHED"}
        ),
    )
    assert ended(process, signal.SIGINT) == 0
    until("another leader", lambda: rest(second, "/health")["leading"])
    assert rest(second, "/health")["leader"]["term"] == 2


def test_a_worker_of_its_own_serves_a_server_without_one(
    installation: Installation, tmp_path: Path
) -> None:
    port, _ = installation.serve("--no-worker")
    rest(port, "/submit-job?format=hocon&jobId=3", BATCH.format(out=tmp_path / "out"))
    until(
        "the job waits",
        lambda: (
            rest(port, "/job-info/3")["jobStatus"] == "PENDING"
            and rest(port, "/job-info/3")["statusReason"]
        ),
    )
    assert rest(port, "/overview")["workers"] == "0"
    worker = installation.start("worker")
    until("the end of the job", lambda: rest(port, "/job-info/3")["jobStatus"] == "FINISHED")
    assert rest(port, "/overview")["workers"] == "1"
    assert ended(worker) == 0
    until("the worker is gone", lambda: rest(port, "/overview")["workers"] == "0")


def test_a_port_that_is_taken_is_named_and_nothing_is_started(installation: Installation) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = installation.start("server", "--http-port", str(port))
        assert process.wait(TIMEOUT_S) == 2
    assert f"127.0.0.1:{port}" in installation.output(process)
    assert "Traceback" not in installation.output(process)
    assert not installation.home.exists()


def test_the_next_free_port_is_taken_where_that_is_allowed(
    installation: Installation, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = tmp_path / "tidegate.yaml"
        config.write_text(
            f"seatunnel:\n  engine:\n    backup-count: 1\n    http:\n      port: {port}\n     "
            " enable-dynamic-port: true\n      port-range: 50\n"
        )
        process = installation.start("server", "--config", str(config), "--no-worker")
        until(
            "the server is ready",
            lambda: "ready at" in installation.output(process) or process.poll() is not None,
        )
        output = installation.output(process)
    assert "backup-count" in output, "keys without a meaning here are named at the start"
    other = int(output.partition("127.0.0.1:")[2].partition(",")[0])
    assert port < other <= port + 50
    assert rest(other, "/overview")["workers"] == "0"
    assert ended(process) == 0


def test_an_engine_file_with_errors_starts_nothing(
    installation: Installation, tmp_path: Path
) -> None:
    config = tmp_path / "tidegate.yaml"
    config.write_text("engine:\n  http:\n    port: eighty\n")
    for verb in ("server", "worker"):
        process = installation.start(verb, "--config", str(config))
        assert process.wait(TIMEOUT_S) == 2
        assert "tidegate.yaml:3" in installation.output(process)
    assert not installation.home.exists()


def test_the_log_of_a_server_is_a_json_object_a_line(installation: Installation) -> None:
    port, process = installation.serve("--no-worker")
    assert ended(process) == 0
    lines = [
        json.loads(line)
        for line in (installation.home / "logs" / f"server-{port}.log").read_text().splitlines()
    ]
    assert {"server_started", "server_stopped"} <= {line["event"] for line in lines}


def test_a_server_needs_no_pyspark_in_its_process() -> None:
    code = (
        "import tidegate.server, tidegate.cli.server, sys; print([m for m in sys.modules if"
        " m.startswith(('pyspark', 'py4j', 'pyarrow', 'pandas'))])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


def test_large_job_files_at_once_are_refused_and_do_not_delay_the_leader(
    installation: Installation,
) -> None:
    """Three files of nine megabytes, with a lease that is half as long as the default."""
    config = installation.place / "engine.yaml"
    config.write_text("seatunnel:\n  engine:\n    coordinator:\n      lease-ms: 1500\n")
    port, _ = installation.serve("--config", str(config))
    text = "".join(f"key{i} = 1\n" for i in range(700_000)).encode()

    def submit(_: int) -> int:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=TIMEOUT_S) as client:
            return client.post("/submit-job?format=hocon", content=text).status_code

    terms: set[int | None] = set()
    with ThreadPoolExecutor(3) as pool:
        answers = [pool.submit(submit, number) for number in range(3)]
        while not all(answer.done() for answer in answers):
            terms |= {each["term"] for each in rest(port, "/api/v1/coordinators")}
    assert [answer.result() for answer in answers] == [400, 400, 400]
    assert terms == {1}
