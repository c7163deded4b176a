"""Checkpoint directories: whole or not there, and every kind of damage is named."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.checkpoints.files.base import FileEntry
from tidegate.checkpoints.files.local import LocalFiles
from tidegate.checkpoints.manifest import Damaged, Manifest
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.model.document import NewerDocument
from tidegate.model.errors import Fenced, OtherCopy

STATES = {"Source[0]-FakeSource": {"offset": {"at": 7}}, "my sink/../x": {"state": None}}


def manifest(checkpoint: int = 1, generation: int = 1, token: str = "") -> Manifest:
    return Manifest(
        job_id=5,
        pipeline=1,
        checkpoint=checkpoint,
        lineage="5-a",
        generation=generation,
        begun_ms=1,
        files={},
        token=token,
    )


@pytest.fixture
def storage(tmp_path: Path) -> CheckpointStorage:
    return CheckpointStorage(tmp_path)


def files_of(root: Path, path: str) -> list[Path]:
    return sorted(p for p in (root / path).rglob("*") if p.is_file())


def test_what_is_published_is_read_back_whole(storage: CheckpointStorage, tmp_path: Path) -> None:
    published = storage.publish(manifest(), STATES)
    assert published.path == "5/1/1"
    assert published.bytes == sum(f.stat().st_size for f in files_of(tmp_path, published.path))
    assert storage.read(published.path).states == STATES
    assert storage.operators(published.path) == set(STATES)


def test_an_operator_name_cannot_leave_the_checkpoint(
    storage: CheckpointStorage, tmp_path: Path
) -> None:
    storage.publish(manifest(), STATES)
    assert {p.relative_to(tmp_path).parts[:3] for p in tmp_path.rglob("state-data")} == {
        ("5", "1", "1")
    }


def test_no_draft_is_left_after_publishing(storage: CheckpointStorage, tmp_path: Path) -> None:
    storage.publish(manifest(), STATES)
    assert os.listdir(tmp_path / "5/1") == ["1"]


@pytest.mark.parametrize("harm", ["truncate", "empty", "missing", "flip"])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_every_damage_to_every_file_is_detected_and_named(
    storage: CheckpointStorage, tmp_path: Path, harm: str, which: int
) -> None:
    path = storage.publish(manifest(), STATES).path
    victim = files_of(tmp_path, path)[which]
    data = victim.read_bytes()
    if harm == "missing":
        victim.unlink()
    else:
        victim.write_bytes(
            {"truncate": data[:-3], "empty": b"", "flip": bytes([data[0] ^ 1]) + data[1:]}[harm]
        )
    with pytest.raises(Damaged) as caught:
        storage.read(path)
    assert caught.value.file == victim.relative_to(tmp_path / path).as_posix()
    assert storage.damage(path)


def test_every_single_flipped_bit_of_a_manifest_is_detected(
    storage: CheckpointStorage, tmp_path: Path
) -> None:
    path = storage.publish(manifest(), {"a": {"offset": 1}}).path
    victim = tmp_path / path / "_manifest.json"
    data = victim.read_bytes()
    for position in range(len(data)):
        for bit in (1, 8, 64):
            victim.write_bytes(
                data[:position] + bytes([data[position] ^ bit]) + data[position + 1 :]
            )
            assert storage.damage(path), f"byte {position} bit {bit}"


def test_a_whole_missing_directory_is_damage_too(storage: CheckpointStorage) -> None:
    assert "whole directory" in storage.damage("5/1/9")


def test_a_manifest_of_a_newer_version_is_refused_by_name(
    storage: CheckpointStorage, tmp_path: Path
) -> None:
    path = storage.publish(manifest(), STATES).path
    victim = tmp_path / path / "_manifest.json"
    victim.write_text(json.dumps({**json.loads(victim.read_text()), "version": 2}))
    with pytest.raises(NewerDocument, match="version 2"):
        storage.read(path)


def test_publishing_the_same_again_changes_only_the_owner(
    storage: CheckpointStorage, tmp_path: Path
) -> None:
    path = storage.publish(manifest(generation=1), STATES).path
    states = [file.stat().st_ino for file in files_of(tmp_path, path) if file.name == "state-data"]
    storage.publish(manifest(generation=2), STATES)
    assert [
        file.stat().st_ino for file in files_of(tmp_path, path) if file.name == "state-data"
    ] == states
    assert storage.read(path).manifest.generation == 2
    assert os.listdir(tmp_path / "5/1") == ["1"]


def test_a_damaged_leftover_of_the_same_id_is_replaced(
    storage: CheckpointStorage, tmp_path: Path
) -> None:
    path = storage.publish(manifest(generation=1), STATES).path
    files_of(tmp_path, path)[0].write_bytes(b"")
    storage.publish(manifest(generation=2), STATES)
    assert storage.read(path).manifest.generation == 2


def test_an_older_generation_cannot_replace_a_newer_checkpoint(storage: CheckpointStorage) -> None:
    path = storage.publish(manifest(generation=2), STATES).path
    with pytest.raises(Fenced):
        storage.publish(manifest(generation=1), {"Source[0]-FakeSource": {"offset": "other"}})
    assert storage.read(path).states == STATES


def test_sweep_removes_drafts_and_unrecorded_checkpoints_and_nothing_else(
    storage: CheckpointStorage, tmp_path: Path
) -> None:
    for n in (1, 2, 3):
        storage.publish(manifest(n), STATES)
    (tmp_path / "5/1/.4-g1-abc").mkdir()
    storage.publish(replace(manifest(1), pipeline=2), STATES)
    assert storage.sweep(5, 1, {"5/1/1", "5/1/2"}, 1) == ["5/1/.4-g1-abc", "5/1/3"]
    assert sorted(os.listdir(tmp_path / "5/1")) == ["1", "2"]
    assert storage.damage("5/2/1") == ""


def test_deleting_what_is_not_there_is_fine(storage: CheckpointStorage) -> None:
    storage.delete("5/1/1", 1)
    storage.delete_job(5, below=100)
    assert storage.sweep(5, 1, set(), 1) == []


def test_deleting_a_jobs_checkpoints_leaves_those_of_a_newer_incarnation_alone(
    storage: CheckpointStorage, tmp_path: Path
) -> None:
    for n in (1, 2, 3):
        storage.publish(manifest(n), STATES)
    (tmp_path / "5/1/.2-g1-abc").mkdir()
    (tmp_path / "5/1/.3-g2-abc").mkdir()
    storage.delete_job(5, below=3)
    assert sorted(os.listdir(tmp_path / "5/1")) == [".3-g2-abc", "3"]
    assert storage.damage("5/1/3") == ""
    storage.delete_job(5, below=4)
    assert not (tmp_path / "5").exists()


class Listed(LocalFiles):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.listed: list[str] = []

    def entries(self, path: str) -> list[FileEntry]:
        self.listed.append(path)
        return super().entries(path)


def test_a_restore_and_a_cleanup_list_only_what_belongs_to_their_job(tmp_path: Path) -> None:
    files = Listed(tmp_path)
    storage = CheckpointStorage(files)
    for job_id in (4, 5, 6):
        storage.publish(replace(manifest(), job_id=job_id), STATES)
    storage.highest_ids(5)
    storage.checkpoints(5, 1)
    storage.read("5/1/1")
    storage.sweep(5, 1, set(), 1)
    storage.delete_job(5, below=9)
    assert {path.split("/")[0] for path in files.listed} == {"5"}


def test_the_checkpoint_of_another_driver_of_the_same_generation_is_neither_replaced_nor_deleted(
    storage: CheckpointStorage,
) -> None:
    path = storage.publish(manifest(token="aa"), STATES).path
    for states in (STATES, {"Source[0]-FakeSource": {"offset": {"at": 8}}}):
        with pytest.raises(OtherCopy, match="another copy of this installation"):
            storage.publish(manifest(token="bb"), states)
    storage.delete(path, 1, "bb")
    storage.sweep(5, 1, set(), 1, "bb")
    assert storage.manifest(path).token == "aa"
    storage.publish(manifest(generation=2, token="bb"), STATES)
    assert storage.manifest(path).token == "bb"
    storage.sweep(5, 1, set(), 2, "bb")
    assert storage.damage(path)


def test_a_driver_that_was_quicker_since_the_look_is_not_overwritten(
    storage: CheckpointStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = storage.delete

    def other_one_publishes(path: str, generation: int, token: str = "") -> None:
        delete(path, generation, token)
        monkeypatch.undo()
        storage.publish(manifest(token="aa"), STATES)

    monkeypatch.setattr(storage, "delete", other_one_publishes)
    with pytest.raises(OtherCopy):
        storage.publish(manifest(token="bb"), {"Source[0]-FakeSource": {"offset": {"at": 8}}})
    assert storage.read("5/1/1").states == STATES


def test_a_manifest_without_a_token_is_written_as_older_releases_wrote_it(
    storage: CheckpointStorage, tmp_path: Path
) -> None:
    path = storage.publish(manifest(), STATES).path
    assert "token" not in json.loads((tmp_path / path / "_manifest.json").read_text())
    assert storage.damage(path) == ""
