"""Checkpoints on a real S3 server: the whole contract of the files, killed jobs that resume,
an outage, and keys that nobody sees.
"""

import copy
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.dataset
import pytest
from click.testing import CliRunner

from tidegate.checkpoints.files import s3 as s3_files
from tidegate.checkpoints.files.base import Files
from tidegate.checkpoints.files.errors import StorageRefused, StorageUnavailable
from tidegate.checkpoints.files.s3 import S3Files
from tidegate.checkpoints.open import open_files
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.cli.checkpoints import checkpoints
from tidegate.coordinator.job_snapshot import JobSnapshot, read_job
from tidegate.home import Home
from tidegate.runner.process import PROC, session_members
from tidegate.store.open import open_store
from tidegate.testing.files_contract import STATES, FencedFilesContract, manifest
from tidegate.testing.servers.seaweedfs import SECRET_KEY, SeaweedServer

TIMEOUT_S = 180
PROGRAM = "from tidegate.cli import main; main()"
PLAIN_PROGRAM = """
import sys
from tidegate.cli import run
original = run.RunOptions
run.RunOptions = lambda **options: original(
    **options, driver_module="tidegate.testing.plain_driver"
)
sys.argv[1:] = sys.argv[2:]
run.run()
"""


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedServer]:
    with SeaweedServer(tmp_path_factory.mktemp("weed")) as server:
        yield server


@pytest.fixture(scope="module")
def bucket(s3: SeaweedServer) -> str:
    return s3.bucket()


@pytest.fixture
def address(bucket: str, request: pytest.FixtureRequest) -> str:
    return f"s3://{bucket}/{abs(hash(request.node.nodeid)):x}"


@pytest.fixture(scope="module")
def client(s3: SeaweedServer, bucket: str) -> S3Files:
    """One for all tests: to make one takes its time."""
    files = open_files(f"s3://{bucket}", s3.options)
    assert isinstance(files, S3Files)
    return files


@pytest.fixture
def files(client: S3Files, address: str) -> Files:
    files = copy.copy(client)
    files.url, files.prefix = address, address.rpartition("/")[2]
    return files


class TestFilesOnS3(FencedFilesContract):
    pass


def test_more_than_one_page_is_listed_copied_and_removed(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_files, "PAGE", 10)
    files.write_tree("many", {f"{n:04d}/state": b"1" for n in range(35)})
    assert len(files.entries("many")) == 35
    assert sum(1 for _ in files.walk("many")) == 35
    files.copy_tree("many", "more")
    assert sum(1 for _ in files.walk("more")) == 35
    files.remove_tree("many")
    files.remove_tree("more")
    assert [*files.walk("")] == []


def test_a_writer_that_was_overtaken_between_its_files_and_its_manifest_changes_nothing(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, rival = CheckpointStorage(files), CheckpointStorage(files)
    real = files.read_versioned

    def late(path: str) -> object:
        """Publish as the successor between this read and the swap after it."""
        seen = real(path)
        monkeypatch.setattr(files, "read_versioned", real)
        rival.publish(manifest(generation=2), STATES)
        return seen

    monkeypatch.setattr(files, "read_versioned", late)
    with pytest.raises(Exception, match="generation 2 has taken over"):
        storage.publish(manifest(generation=1), {"a": {"offset": "other"}})
    assert storage.read("5/1/1").states == STATES


def test_wrong_keys_are_refused_without_showing_them(s3: SeaweedServer, address: str) -> None:
    for options in (
        {**s3.options, "fs.s3a.secret.key": "hunter2"},
        {**s3.options, "fs.s3a.access.key": "hunter2"},
    ):
        with pytest.raises(StorageRefused, match="check the keys") as caught:
            open_files(address, options).read("5/1/1/_manifest.json")
        assert "hunter2" not in str(caught.value)
        assert caught.value.__cause__ is None


def test_a_server_that_is_not_there_is_out_of_reach(address: str) -> None:
    nobody = {
        "fs.s3a.endpoint": "http://127.0.0.1:9",
        "fs.s3a.access.key": "a",
        "fs.s3a.secret.key": "hunter2",
    }
    with pytest.raises(StorageUnavailable, match="is unavailable") as caught:
        open_files(address, nobody).write("a", b"")
    assert "hunter2" not in str(caught.value)


class Scenario:
    """A home whose checkpoints are on S3, a job, and its runs."""

    def __init__(self, root: Path, s3: SeaweedServer, files: Files) -> None:
        self.root = root
        self.home = Home(root / "home")
        self.out = root / "out"
        self.engine = root / "engine.yaml"
        options = "".join(f"        {key}: '{value}'\n" for key, value in s3.options.items())
        bucket, _, folder = files.describe().removeprefix("s3://").partition("/")
        self.engine.write_text(
            "tidegate:\n  checkpoint:\n    storage:\n      type: hdfs\n      plugin-config:\n     "
            f"   storage.type: s3\n        s3.bucket: s3a://{bucket}\n        namespace:"
            f" /{folder}/\n{options}"
        )
        self.storage = CheckpointStorage(files)
        self.started: list[subprocess.Popen[str]] = []

    def start(self, file: Path, program: str = PLAIN_PROGRAM) -> "subprocess.Popen[str]":
        command = [
            sys.executable,
            "-c",
            program,
            "run",
            str(file),
            "--job-id",
            "7",
            "--restore",
            "auto",
            "--config",
            str(self.engine),
            "--home",
            str(self.home.root),
        ]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            cwd=self.root,
        )
        self.started.append(process)
        return process

    def job(self, rows: int, rate: int) -> Path:
        file = self.root / "job.conf"
        file.write_text(
            f"""env {{ job.mode = "BATCH", job.name = "s3", checkpoint.interval = 50
  read_limit.rows_per_second = {rate} }}
source {{ FakeSource {{ row.num = {rows}, plugin_output = "t", bigint.fake.mode = "SEQUENCE",
  schema {{ fields {{ id = bigint }} }} }} }}
sink {{ LocalFile {{ plugin_input = "t", path = "{self.out}", file_format_type = "parquet" }} }}"""
        )
        return file

    def known(self) -> JobSnapshot | None:
        if not (self.home.root / "store" / "tidegate.db").exists():
            return None
        store = open_store(self.home.store_url)
        try:
            return read_job(store, 7)
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
            time.sleep(0.05)  # poll interval for another process

    def ids(self) -> list[int]:
        return sorted(
            pyarrow.dataset.dataset(str(self.out), format="parquet").to_table()["id"].to_pylist()
        )


@pytest.fixture
def scenario(tmp_path: Path, s3: SeaweedServer, files: Files) -> Iterator[Scenario]:
    it = Scenario(tmp_path, s3, files)
    yield it
    for process in it.started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def words_of_processes(scenario: Scenario) -> str:
    """The command lines and environments of all that a run has started."""
    known = scenario.known()
    assert known is not None
    assert known.driver is not None
    pids = [
        *session_members(known.driver.value.process),
        *(p.pid for p in scenario.started if p.poll() is None),
    ]
    return "".join(
        (PROC / str(pid) / part).read_bytes().decode(errors="replace")
        for pid in pids
        for part in ("cmdline", "environ")
        if (PROC / str(pid)).exists()
    )


@pytest.mark.timeout(600)
def test_a_killed_job_resumes_from_s3_on_spark_and_never_shows_its_keys(
    scenario: Scenario,
) -> None:
    first = scenario.start(scenario.job(1500, rate=50))
    scenario.until(lambda: scenario.checkpoints() >= 3)
    assert SECRET_KEY not in words_of_processes(scenario)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert scenario.storage.checkpoints(7, 1) != []
    verified = CliRunner().invoke(
        checkpoints,
        ["--home", str(scenario.home.root), "--config", str(scenario.engine), "verify", "7"],
    )
    assert (verified.exit_code, ": sound" in verified.output) == (0, True), verified.output
    second = scenario.start(scenario.job(1500, rate=100_000), PROGRAM)
    output = second.communicate(timeout=TIMEOUT_S)[0]
    assert second.returncode == 0, output
    assert "resumes: pipeline 1 after checkpoint" in output
    assert scenario.ids() == list(range(1500))
    assert [*scenario.storage.files.walk("7")] == [], "a job that has finished leaves nothing"
    assert SECRET_KEY not in output
    kept = [
        path
        for path in scenario.home.root.rglob("*")
        if path.is_file() and SECRET_KEY.encode() in path.read_bytes()
    ]
    assert kept == []


@pytest.mark.timeout(600)
def test_an_outage_of_s3_is_waited_for_by_the_same_driver(
    scenario: Scenario, s3: SeaweedServer
) -> None:
    run = scenario.start(scenario.job(100_000, rate=100))
    scenario.until(lambda: scenario.checkpoints() >= 2)
    s3.kill()
    try:
        log = scenario.home.logs(7)
        scenario.until(
            lambda: any(
                "checkpoint_storage_unavailable" in path.read_text() for path in log.glob("*")
            )
        )
        assert run.poll() is None
        during = scenario.checkpoints()
    finally:
        s3.start()
    scenario.until(lambda: scenario.checkpoints() >= during + 3)
    known = scenario.known()
    assert known is not None
    assert known.driver is not None
    assert known.driver.value.generation == 1
    os.kill(run.pid, signal.SIGINT)
    output = run.communicate(timeout=TIMEOUT_S)[0]
    assert "CANCELED" in output, output
    written = scenario.ids()
    assert written == list(range(len(written)))
