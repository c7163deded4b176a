"""Drivers retry while the disk of the checkpoints is full, removed or hidden by another mount."""

import errno
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidegate.checkpoints.files.errors import StorageUnavailable
from tidegate.checkpoints.files.local import LocalFiles
from tidegate.checkpoints.files.local_retry import RetryingLocalFiles
from tidegate.checkpoints.open import open_files


class RepairingPause:
    """Repairs the disk at the second failure, and keeps the reasons of the failures."""

    def __init__(self, repair: object) -> None:
        self.repair = repair
        self.reasons: list[str] = []
        self.files: Any = None

    def __call__(self, failures: int) -> bool:
        self.reasons.append(self.files.trouble)
        if failures == 2:
            self.repair()
        return failures < 5


def retrying_files(root: Path, repair: object) -> tuple[RetryingLocalFiles, RepairingPause]:
    pause = RepairingPause(repair)
    pause.files = RetryingLocalFiles(root, pause)
    return pause.files, pause


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount_point = tmp_path / "disk"
    mount_point.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mount_point)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"this test needs to mount a small disk: {mounted.stderr.strip()}")
    yield mount_point
    subprocess.run(["umount", str(mount_point)], check=True)


def test_write_is_retried_while_the_disk_is_full(small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(b"x" * 60_000)
    files, pause = retrying_files(small_disk / "root", lambda: (small_disk / "filler").unlink())
    files.write_tree("7/1/3", {"state": b"y" * 20_000})
    assert files.read("7/1/3/state") == b"y" * 20_000
    assert (
        pause.reasons
        == [f"the checkpoint storage {small_disk}/root is full (no space left): make room"] * 2
    )
    assert files.trouble == ""


@pytest.mark.parametrize("covered", [False, True])
def test_missing_root_is_waited_for_and_not_created_again(tmp_path: Path, covered: bool) -> None:
    root = tmp_path / "root"
    root.mkdir()

    def bring_back() -> None:
        if covered:
            assert list(root.iterdir()) == []
            root.rmdir()
        assert not root.exists()
        (tmp_path / "away").rename(root)

    files, pause = retrying_files(root, bring_back)
    files.write("7/1/_manifest.json", b"1")
    root.rename(tmp_path / "away")
    if covered:
        root.mkdir()
    files.write("7/2/_manifest.json", b"2")
    assert [files.read(f"7/{n}/_manifest.json") for n in (1, 2)] == [b"1", b"2"]
    assert all(
        ("is empty, and was not before" if covered else "is gone") in reason
        for reason in pause.reasons
    )


def test_without_retries_a_missing_root_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    files = RetryingLocalFiles(tmp_path / "root", lambda _: False)
    (tmp_path / "root").rmdir()
    with pytest.raises(
        StorageUnavailable, match="is gone: it was removed, or its disk is not mounted"
    ):
        files.read("7/1/_manifest.json")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EROFS, "is read-only"),
        (errno.EIO, "has failed"),
        (errno.EDQUOT, "its quota is used up"),
    ],
)
def test_disk_errors_have_readable_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, "raw")

    monkeypatch.setattr(LocalFiles, "write", fail)
    with pytest.raises(StorageUnavailable, match=words) as error:
        RetryingLocalFiles(tmp_path, lambda _: False).write("a", b"")
    assert "Errno" not in str(error.value)


def test_only_drivers_retry(tmp_path: Path) -> None:
    assert type(open_files(str(tmp_path))) is LocalFiles
    assert type(open_files(str(tmp_path), {}, lambda _: True)) is RetryingLocalFiles
