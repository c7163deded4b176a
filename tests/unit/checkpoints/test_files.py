"""Files on a local disk, and on what fsspec speaks, pass the whole contract."""

import os
import uuid
from pathlib import Path

import pytest

from tidegate.checkpoints.files.base import Files, LocalFiles
from tidegate.checkpoints.files.fsspec import FsspecFiles
from tidegate.checkpoints.files.retry import StorageUnavailable, retry_unavailable
from tidegate.checkpoints.open import open_files, open_storage
from tidegate.home import Home
from tidegate.model.engine import CheckpointSettings
from tidegate.model.errors import UserError
from tidegate.testing.files_contract import FencedFilesContract, FilesContract


class TestLocalFiles(FilesContract):
    @pytest.fixture
    def files(self, tmp_path: Path) -> Files:
        return LocalFiles(tmp_path / "root")


class TestLocalExclusion:
    """Everything but generations that publish at the very same moment: there a rename into a taken
    name is an error, and the batch is tried again.
    """

    @pytest.fixture
    def files(self, tmp_path: Path) -> Files:
        return LocalFiles(tmp_path / "root")

    test_create = FencedFilesContract.test_of_many_at_the_same_moment_one_creates
    test_swap = FencedFilesContract.test_of_many_at_the_same_moment_one_swaps


class TestFilesInMemory(FilesContract):
    @pytest.fixture
    def files(self) -> Files:
        return open_files(f"memory://{uuid.uuid4().hex}")


class TestFilesThroughFsspec(FilesContract):
    @pytest.fixture
    def files(self, tmp_path: Path) -> Files:
        return FsspecFiles(f"file://{tmp_path}/root", {})


def test_a_local_write_leaves_no_draft_and_a_draft_that_was_left_is_no_file_of_ours(
    tmp_path: Path,
) -> None:
    files = LocalFiles(tmp_path)
    files.write("a/b", b"1")
    files.create("a/c", b"1")
    files.create("a/c", b"2")
    assert sorted(os.listdir(tmp_path / "a")) == ["b", "c"]


def test_what_cannot_be_removed_is_told_and_the_rest_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = LocalFiles(tmp_path)
    files.write_tree("a", {"x/1": b"", "y/1": b"", "z/1": b""})
    real = os.unlink

    def unlink(path: str, **more: int) -> None:
        if os.readlink(f"/proc/self/fd/{more['dir_fd']}").endswith("/y"):
            raise PermissionError(13, "not allowed", path)
        real(path, **more)

    monkeypatch.setattr(os, "unlink", unlink)
    with pytest.raises(PermissionError):
        files.remove_tree("a")
    assert [path for path, _ in files.walk("a")] == ["a/y/1"]


def test_links_are_listed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x").write_bytes(b"1")
    files = LocalFiles(tmp_path / "root")
    files.write("a/b", b"1")
    (tmp_path / "root" / "link").symlink_to(tmp_path / "elsewhere")
    assert [path for path, _ in files.walk("")] == ["a/b", "link"]
    files.remove_tree("a")
    assert (tmp_path / "elsewhere" / "x").exists()


def test_the_storage_is_where_the_settings_say(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    assert open_storage(CheckpointSettings(), home).files.describe("5") == f"{home.checkpoints}/5"
    assert open_storage(CheckpointSettings(storage_root="/x/y"), home).files.describe() == "/x/y"
    address = CheckpointSettings(
        storage_root="s3://bucket/folder/",
        storage_options={"fs.s3a.secret.key": "hunter2", "fs.s3a.access.key": "a"},
    )
    assert open_storage(address, home).files.describe("5/1") == "s3://bucket/folder/5/1"
    assert "hunter2" not in repr(address)


@pytest.mark.parametrize("address", ["nothing-like-this://x/y", "abfs://container/x"])
def test_a_file_system_that_is_not_installed_is_a_mistake_with_a_name(address: str) -> None:
    with pytest.raises(UserError, match=address.partition(":")[0]):
        open_files(address)


def test_what_is_out_of_reach_is_tried_again_while_the_patience_lasts() -> None:
    left, asked = [StorageUnavailable("away"), StorageUnavailable("away")], []

    def act() -> str:
        if left:
            raise left.pop()
        return "done"

    def patience(failures: int) -> bool:
        asked.append(failures)
        return failures < 3

    assert retry_unavailable(act, patience, "s3://x") == "done"
    assert asked == [1, 2]
    left.extend([StorageUnavailable("away")] * 5)
    with pytest.raises(StorageUnavailable):
        retry_unavailable(act, patience, "s3://x")
    assert asked == [1, 2, 1, 2, 3]
