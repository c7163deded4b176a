"""Every cell of the fault table in docs/operations/faults.md: what fails, where, and when.

A bounded job reads twelve files, one in each batch, and writes JSON files. Store, checkpoints,
source and sink are file systems of their own, so that each can be full, read-only, unmounted,
deleted, or replaced by a copy. The fault strikes inside the fifth batch, or after a kill between
two generations, or after a stop, before a restore that a person asks for. Then it is repaired, and
the job is resumed. Whatever happens, a job that says FINISHED has written every row once, and one
that does not says why.
"""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tidegate.home import Home
from tidegate.model.errors import TidegateError
from tidegate.model.records import JobStatus
from tidegate.pipeline.engine import Batch, Written
from tidegate.pipeline.graph import Graph
from tidegate.testing import PlainEngine, run_in_process
from tidegate.testing.crash_runs import KILLED, CrashRuns, RunRequest

FILES = 12
ROWS = 20
STRIKE_AT = 5
MOMENT_S = 1.0
LONGER_S = 3.0  # than a refusal takes: only what waits for its disk sees the repair
SIZE = "size=6m"
PLACES = ("home", "checkpoints", "source", "sink")
FAULTS = ("full", "read-only", "unmounted", "deleted", "replaced by a copy")
EXPECTED = sorted(file * 1000 + row for file in range(FILES) for row in range(ROWS))
JOB = """
env {{ job.mode = "BATCH", checkpoint.interval = 50, batch.max-files = 1, job.retry.times = 8
  job.retry.interval.seconds = 1 }}
source {{ LocalFile {{ plugin_output = "t", path = "{source}", file_format_type = "csv",
  schema {{ fields {{ id = bigint }} }} }} }}
sink {{ LocalFile {{ plugin_input = "t", path = "{sink}", file_format_type = "json" }} }}
"""


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True)


@dataclass
class Disk:
    """A file system that is bound to a path, and everything that can happen to it."""

    path: Path
    behind: Path
    repairs: list[Callable[[], None]] = field(default_factory=list)
    repairing: threading.Timer | None = None

    def attach(self) -> None:
        for folder in (self.path, self.behind):
            folder.mkdir(parents=True, exist_ok=True)
        mount("-t", "tmpfs", "-o", SIZE, "tmpfs", str(self.behind))
        mount("--bind", str(self.behind), str(self.path))

    def detach(self) -> None:
        self.repaired()
        for folder in (self.path, self.behind):
            while (
                subprocess.run(
                    ["umount", "-l", str(folder)], capture_output=True, check=False
                ).returncode
                == 0
            ):
                continue

    def strike(self, fault: str) -> None:
        getattr(self, "_" + fault.partition(" ")[0].replace("-", "_"))()

    def strike_for(self, fault: str, seconds: float) -> None:
        """Strike, and have the disk repaired after a while by another thread."""
        self.strike(fault)
        self.repairing = threading.Timer(seconds, self.repair)
        self.repairing.start()

    def repaired(self) -> None:
        if self.repairing is not None:
            self.repairing.join()

    def repair(self) -> None:
        while self.repairs:
            self.repairs.pop()()

    def _full(self) -> None:
        filler = self.behind / ".filler"
        descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT)
        with contextlib.suppress(OSError):
            while os.write(descriptor, b"x" * 4096):
                continue
        os.close(descriptor)
        self.repairs.append(filler.unlink)

    def _read_only(self) -> None:
        mount("-o", "remount,bind,ro", str(self.path))
        self.repairs.append(lambda: mount("-o", "remount,bind,rw", str(self.path)))

    def _unmounted(self) -> None:
        subprocess.run(["umount", "-l", str(self.path)], check=True)
        self.repairs.append(lambda: mount("--bind", str(self.behind), str(self.path)))

    def _deleted(self) -> None:
        aside = self.behind.parent / (self.behind.name + "-aside")
        shutil.copytree(self.behind, aside, symlinks=True, copy_function=shutil.copy2)
        names = os.listdir(self.behind)
        for name in names:
            inside = self.behind / name
            shutil.rmtree(inside) if inside.is_dir() else inside.unlink()

        def put_back() -> None:
            for name in os.listdir(self.behind):
                inside = self.behind / name
                shutil.rmtree(inside) if inside.is_dir() else inside.unlink()
            shutil.copytree(
                aside, self.behind, symlinks=True, dirs_exist_ok=True, copy_function=shutil.copy2
            )

        self.repairs.append(put_back)

    def _replaced(self) -> None:
        copy = self.behind.parent / (self.behind.name + "-copy")
        shutil.copytree(self.behind, copy, symlinks=True, copy_function=shutil.copy2)
        subprocess.run(["umount", "-l", str(self.path)], check=True)
        mount("--bind", str(copy), str(self.path))

        def put_back() -> None:
            subprocess.run(["umount", "-l", str(self.path)], check=True)
            mount("--bind", str(self.behind), str(self.path))

        self.repairs.append(put_back)


class Site:
    """An installation, a job, and the four disks that it is on."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root / "home")
        paths = {"home": self.home.root / "store", "checkpoints": self.home.checkpoints}
        self.disks = {
            name: Disk(paths.get(name, root / name), root / "disks" / name) for name in PLACES
        }
        for disk in self.disks.values():
            disk.attach()
        self.sink = self.disks["sink"].path
        for number in range(FILES):
            rows = "".join(f"{number * 1000 + row}\n" for row in range(ROWS))
            (self.disks["source"].path / f"f{number:02}.csv").write_text(rows)
        self.job = root / "job.conf"
        self.job.write_text(JOB.format(source=self.disks["source"].path, sink=self.sink))

    def rows(self) -> list[int]:
        files = [file for file in self.sink.glob("*.json") if not file.name.startswith(".")]
        return sorted(
            json.loads(line)["id"] for file in files for line in file.read_text().splitlines()
        )

    def run(self, engine: PlainEngine, restore: str) -> str:
        """FINISHED with the right rows, or the sentence with which the job stopped."""
        try:
            outcome = run_in_process(str(self.job), self.home, engine, restore=restore).outcome
        except TidegateError as error:
            return str(error)
        if outcome.status is JobStatus.FINISHED:
            assert self.rows() == EXPECTED
            return "FINISHED"
        summary = "; ".join(failure.message for failure in outcome.failures)
        assert summary, f"{outcome.status} without a reason"
        return summary


class StrikesAt(PlainEngine):
    """Strikes once, inside a batch."""

    def __init__(self, disk: Disk, fault: str) -> None:
        self.disk = disk
        self.fault = fault

    def run(self, graph: Graph, batch: Batch) -> Written:
        if batch.checkpoint == STRIKE_AT and self.disk.repairing is None:
            self.disk.strike_for(self.fault, MOMENT_S)
        return super().run(graph, batch)


@pytest.fixture
def site() -> Iterator[Site]:
    """Not below tmp_path: pytest moves its old folders, with the file systems mounted in them."""
    root = Path(tempfile.mkdtemp(prefix="tidegate-faults-"))
    try:
        yield from _sites(root)
    finally:
        shutil.rmtree(root)


def _sites(tmp_path: Path) -> Iterator[Site]:
    probe = Disk(tmp_path / "probe", tmp_path / "probe-behind")
    try:
        probe.attach()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this needs the right to mount file systems")
    finally:
        probe.detach()
    made = Site(tmp_path)
    try:
        yield made
    finally:
        for disk in made.disks.values():
            disk.detach()


@pytest.fixture(scope="module")
def crash_runs() -> Iterator[CrashRuns]:
    with CrashRuns() as runs:
        yield runs


def finished_after_repair(site: Site, place: str) -> None:
    site.disks[place].repair()
    summary = site.run(PlainEngine(), "latest")
    assert summary == "FINISHED", summary


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_while_the_job_runs_loses_and_doubles_nothing(
    site: Site, place: str, fault: str
) -> None:
    summary = site.run(StrikesAt(site.disks[place], fault), "fresh")
    site.disks[place].repaired()
    if summary != "FINISHED":
        finished_after_repair(site, place)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_between_two_generations_loses_and_doubles_nothing(
    site: Site, crash_runs: CrashRuns, place: str, fault: str
) -> None:
    request = RunRequest(
        home=str(site.home.root),
        file=str(site.job),
        failpoints=f"ledger.complete.after@{STRIKE_AT}",
    )
    assert crash_runs.run(request).code == KILLED
    site.disks[place].strike_for(fault, MOMENT_S)
    summary = site.run(PlainEngine(), "auto")
    site.disks[place].repaired()
    if summary != "FINISHED":
        finished_after_repair(site, place)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_before_a_restore_loses_and_doubles_nothing(
    site: Site, crash_runs: CrashRuns, place: str, fault: str
) -> None:
    stopped = crash_runs.run(
        RunRequest(home=str(site.home.root), file=str(site.job), stop_at_rows=STRIKE_AT * ROWS)
    )
    assert stopped.status == "CANCELED"
    site.disks[place].strike_for(fault, LONGER_S)
    summary = site.run(PlainEngine(), "latest")
    site.disks[place].repaired()
    if summary != "FINISHED":
        finished_after_repair(site, place)
