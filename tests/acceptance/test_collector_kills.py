"""The collector, killed -9 at every failpoint: owned state is never touched, and the next pass
completes what was started.
"""

import shutil
from pathlib import Path

import pytest

from tidegate.coordinator.history_expiry import expire
from tidegate.home import Home
from tidegate.store.open import open_store
from tidegate.testing.crash_runs import KILLED, CrashRuns, RunRequest, RunResult
from tidegate.testing.failpoints import failpoint_names
from tidegate.testing.in_process import run_in_process
from tidegate.testing.plain_engine import PlainEngine

COLLECT = ("gc", "--collect", "--older-than", "0")
UNDO = ("gc", "--undo", "latest")
PURGE = ("gc", "--purge")
# In a pass they are reached only when somebody comes to want what has just been moved: see
# test_collector.py of the unit tests.
WITH_UNDO = ("collector.undo.", "collector.return.")
JOB = """env {{ job.mode = "STREAMING", job.name = "{name}", checkpoint.interval = 10
  batch.max-rows = 10 }}
source {{ FakeSource {{ plugin_output = "t", row.num = 40, seed = 3, schema {{
  fields {{ id = bigint }} }} }} }}
sink {{ LocalFile {{ plugin_input = "t", path = "{out}", file_format_type = "json" }} }}"""


class Installation:
    """An installation with a job that can be resumed, and one that the history has forgotten."""

    def __init__(self, home: Path, runs: CrashRuns) -> None:
        self.home = home
        self.runs = runs

    def state(self, words: tuple[str, ...], failpoint: str = "") -> RunResult:
        verb, *rest = words
        request = RunRequest(
            home=str(self.home),
            file="",
            failpoints=failpoint,
            command=("state", verb, "--home", str(self.home), *rest),
        )
        return self.runs.run(request)

    def files(self, top: str) -> dict[str, bytes]:
        root = Home(self.home).checkpoints / top
        return {
            p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()
        }


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once, copied for every kill."""
    root = tmp_path_factory.mktemp("collector")
    home = Home(root / "home")
    for job_id, name in ((7, "kept"), (9, "left")):
        file = root / f"{name}.conf"
        file.write_text(JOB.format(name=name, out=root / name))
        run_in_process(str(file), home, PlainEngine(), job_id=job_id, stop_at_rows=40)
    store = open_store(home.store_url)
    try:
        assert expire(store, 9, 2**53, 1_000)
    finally:
        store.close()
    return home.root


@pytest.mark.timeout(300)
def test_a_kill_at_any_failpoint_of_the_collector_loses_nothing(
    template: Path, memory_disk: Path, runs: CrashRuns
) -> None:
    names = [name for name in failpoint_names() if name.startswith("collector.")]
    for name in names:
        installation = Installation(memory_disk / name, runs)
        shutil.copytree(template, installation.home)
        kept, left = installation.files("7"), installation.files("9")
        assert kept
        assert left
        steps = [COLLECT, UNDO] if name.startswith(WITH_UNDO) else [COLLECT, PURGE]
        results = [installation.state(words, name) for words in steps]
        assert KILLED in [result.code for result in results], name
        assert installation.files("7") == kept, name
        for words in steps:
            last = installation.state(words)
            assert last.code == 0 or "no quarantine" in last.error, f"{name}: {last.error}"
        assert installation.files("7") == kept, name
        assert installation.files("9") == (left if UNDO in steps else {}), name
        if PURGE in steps:
            assert not (Home(installation.home).checkpoints / "_quarantine").exists(), name
