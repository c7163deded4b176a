"""Where directories cannot be renamed: a publication that is killed before its manifest is none,
and a repeat makes it one.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.checkpoints.open import open_files
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.testing.files_contract import STATES, manifest

PUBLISH = """
import sys
from tidegate.checkpoints.open import open_files
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.testing.files_contract import STATES, manifest
CheckpointStorage(open_files(sys.argv[1])).publish(manifest(), STATES)
"""


@pytest.mark.parametrize(("place", "sound"), [("before", False), ("after", True)])
def test_a_kill_around_the_manifest_leaves_a_checkpoint_or_none(
    tmp_path: Path, place: str, sound: bool
) -> None:
    address = f"file://{tmp_path}/root"
    environ = {**os.environ, "TIDEGATE_FAILPOINT": f"checkpoint.manifest.{place}"}
    died = subprocess.run(
        [sys.executable, "-c", PUBLISH, address],
        env=environ,
        start_new_session=True,
        timeout=120,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL
    storage = CheckpointStorage(open_files(address))
    assert (storage.damage("5/1/1") == "") == sound
    storage.publish(manifest(generation=2), STATES)
    assert storage.read("5/1/1").manifest.generation == 2
    assert storage.read("5/1/1").states == STATES


def test_states_of_two_writers_never_meet_in_one_file(tmp_path: Path) -> None:
    storage = CheckpointStorage(open_files(f"file://{tmp_path}/root"))
    storage.publish(manifest(generation=1), {"a": {"offset": 1}})
    storage.publish(manifest(generation=2), {"a": {"offset": 2}})
    names = [path for path, entry in storage.files.walk("5/1/1") if entry.name != "_manifest.json"]
    assert len(names) == 2
    assert storage.read("5/1/1").states == {"a": {"offset": 2}}
