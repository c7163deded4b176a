"""The files contract, on a local disk and on file systems of fsspec."""

import os
import uuid
from pathlib import Path

import pytest

from tidegate.checkpoints.files.base import Files
from tidegate.checkpoints.files.errors import StorageUnavailable
from tidegate.checkpoints.files.fsspec import FsspecFiles
from tidegate.checkpoints.files.local import LocalFiles
from tidegate.checkpoints.files.retry import retry_unavailable
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
    """Exclusive writes, without two generations that publish at the same moment.

    There a rename to an existing name is an error, and the batch is repeated.
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


def test_local_write_leaves_no_temporary_file(
    tmp_path: Path,
) -> None:
    files = LocalFiles(tmp_path)
    files.write("a/b", b"1")
    files.create("a/c", b"1")
    files.create("a/c", b"2")
    assert sorted(os.listdir(tmp_path / "a")) == ["b", "c"]


def test_remove_tree_removes_the_rest_and_raises_the_error(
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


def test_links_are_listed_but_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x").write_bytes(b"1")
    files = LocalFiles(tmp_path / "root")
    files.write("a/b", b"1")
    (tmp_path / "root" / "link").symlink_to(tmp_path / "elsewhere")
    assert [path for path, _ in files.walk("")] == ["a/b", "link"]
    files.remove_tree("a")
    assert (tmp_path / "elsewhere" / "x").exists()


def test_storage_is_opened_at_the_configured_root(tmp_path: Path) -> None:
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
def test_missing_file_system_is_a_user_error_that_names_it(address: str) -> None:
    with pytest.raises(UserError, match=address.partition(":")[0]):
        open_files(address)


def test_unavailable_storage_is_retried_until_the_caller_gives_up() -> None:
    left, failed = [StorageUnavailable("away"), StorageUnavailable("away")], []

    def act() -> str:
        if left:
            raise left.pop()
        return "done"

    def pause(failures: int) -> bool:
        failed.append(failures)
        return failures < 3

    assert retry_unavailable(act, pause, "s3://x") == "done"
    assert failed == [1, 2]
    left.extend([StorageUnavailable("away")] * 5)
    with pytest.raises(StorageUnavailable):
        retry_unavailable(act, pause, "s3://x")
    assert failed == [1, 2, 1, 2, 3]
