"""Checkpoints and savepoints of every version are restored by this one; what a newer version has
written is refused by name.

The golden state is in tests/golden/<version>/ (made by tests/golden/make.py); ten rows a batch, so
checkpoint n has 10 n rows of each source behind it.
"""

import json
import shutil
from pathlib import Path

import pyarrow.dataset
import pytest

from tidegate.checkpoints.savepoints import Savepoint, Savepoints
from tidegate.connectors.chaos.sink import committed_ids
from tidegate.home import Home
from tidegate.model.errors import TidegateError
from tidegate.model.records import JobStatus
from tidegate.testing.in_process import Ran, run_in_process
from tidegate.testing.plain_engine import PlainEngine

GOLDEN = Path(__file__).parents[1] / "golden"
VERSIONS = sorted(path.name for path in GOLDEN.iterdir() if (path / "checkpoints").is_dir())
ROWS = {1: 80, 2: 70}  # of the pipelines: files, chaos
NEWER = 99


class Installation:
    """A new installation, whose store knows nothing, with the checkpoint storage of another
    version.
    """

    def __init__(self, root: Path, version: str) -> None:
        self.root = root
        self.home = Home(root / "home")
        self.file = root / "job.conf"
        shutil.copytree(GOLDEN / version / "checkpoints", self.home.checkpoints)
        shutil.copy(GOLDEN / version / "job.conf", self.file)

    def newest(self) -> dict[int, int]:
        return {
            p: max(int(path.name) for path in (self.home.checkpoints / "7" / str(p)).iterdir())
            for p in ROWS
        }

    def savepoint(self) -> Savepoint:
        (found,) = Savepoints(self.home.checkpoints).list()
        return found

    def run(self, restore: str, job_id: int = 7) -> Ran:
        return run_in_process(
            str(self.file), self.home, PlainEngine(), restore=restore, job_id=job_id
        )

    def check(self, ran: Ran, checkpoints: dict[int, int]) -> None:
        """What comes after these checkpoints was written, and nothing else: what came before is not
        part of the golden state.
        """
        assert ran.outcome.status is JobStatus.FINISHED, ran.outcome.failures
        assert ran.claim.restored == checkpoints
        files = sorted(
            pyarrow.dataset.dataset(str(self.root / "files"), format="parquet")
            .to_table()["id"]
            .to_pylist()
        )
        assert files == list(range(10 * checkpoints[1], ROWS[1]))
        assert sorted(committed_ids(str(self.root / "chaos"))) == list(
            range(10 * checkpoints[2], ROWS[2])
        )


@pytest.fixture(params=VERSIONS)
def installation(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Installation:
    monkeypatch.chdir(tmp_path)  # the paths of the golden job file are relative
    return Installation(tmp_path, request.param)


def test_this_version_has_its_golden_state() -> None:
    assert VERSIONS


def test_the_latest_checkpoints_of_every_version_are_restored(installation: Installation) -> None:
    newest = installation.newest()
    installation.check(installation.run("latest"), newest)


def test_the_savepoint_of_every_version_is_restored_under_its_own_id_and_by_another_job(
    installation: Installation,
) -> None:
    savepoint = installation.savepoint()
    assert Savepoints(installation.home.checkpoints).read(savepoint.path) == savepoint
    installation.check(
        installation.run(f"savepoint:{savepoint.id}"),
        {p: point.checkpoint for p, point in savepoint.pipelines.items()},
    )
    for output in ("files", "chaos"):
        shutil.rmtree(installation.root / output)
    installation.check(
        installation.run(f"path:{savepoint.path}", job_id=8),
        {p: point.checkpoint for p, point in savepoint.pipelines.items()},
    )


def newer(file: Path) -> None:
    """As a later version might write it."""
    document = json.loads(file.read_text())
    document["version"] = NEWER
    file.write_text(json.dumps(document, sort_keys=True, indent=1) + "\n")


def test_a_checkpoint_of_a_newer_version_is_refused_by_name(installation: Installation) -> None:
    newest = installation.newest()[1]
    directory = installation.home.checkpoints / "7" / "1" / str(newest)
    newer(directory / "_manifest.json")
    with pytest.raises(TidegateError) as refused:
        installation.run(f"path:7/1/{newest}")
    assert str(directory) in str(refused.value)
    assert f"version {NEWER}" in str(refused.value)


def test_a_savepoint_of_a_newer_version_is_refused_by_name(installation: Installation) -> None:
    savepoint = installation.savepoint()
    newer(installation.home.checkpoints / savepoint.path / "_savepoint.json")
    with pytest.raises(TidegateError) as refused:
        installation.run(f"savepoint:{savepoint.id}")
    assert savepoint.path in str(refused.value)
    assert f"version {NEWER}" in str(refused.value)
