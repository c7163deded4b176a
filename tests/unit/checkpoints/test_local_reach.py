"""A disk with checkpoints that is full, gone or covered for a while is waited for by drivers, and
nothing is written beside it.
"""

import errno
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidegate.checkpoints.files.base import LocalFiles
from tidegate.checkpoints.files.local import WaitedForFiles
from tidegate.checkpoints.files.retry import StorageUnavailable
from tidegate.checkpoints.open import open_files


class Patience:
    """Has something done at the second failure, and keeps what was said then."""

    def __init__(self, repair: object) -> None:
        self.repair = repair
        self.said: list[str] = []
        self.files: Any = None

    def __call__(self, failures: int) -> bool:
        self.said.append(self.files.trouble)
        if failures == 2:
            self.repair()
        return failures < 5


def waited_for(root: Path, repair: object) -> tuple[WaitedForFiles, Patience]:
    patience = Patience(repair)
    patience.files = WaitedForFiles(root, patience)
    return patience.files, patience


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"this test needs to mount a small disk: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_is_waited_for_and_named(small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(b"x" * 60_000)
    files, patience = waited_for(small_disk / "root", lambda: (small_disk / "filler").unlink())
    files.write_tree("7/1/3", {"state": b"y" * 20_000})
    assert files.read("7/1/3/state") == b"y" * 20_000
    assert (
        patience.said
        == [f"the checkpoint storage {small_disk}/root is full (no space left): make room"] * 2
    )
    assert files.trouble == ""


@pytest.mark.parametrize("covered", [False, True])
def test_a_root_that_is_away_is_waited_for_and_not_made_anew(tmp_path: Path, covered: bool) -> None:
    root = tmp_path / "root"
    root.mkdir()

    def bring_back() -> None:
        if covered:
            assert list(root.iterdir()) == []
            root.rmdir()
        assert not root.exists()
        (tmp_path / "away").rename(root)

    files, patience = waited_for(root, bring_back)
    files.write("7/1/_manifest.json", b"1")
    root.rename(tmp_path / "away")
    if covered:
        root.mkdir()
    files.write("7/2/_manifest.json", b"2")
    assert [files.read(f"7/{n}/_manifest.json") for n in (1, 2)] == [b"1", b"2"]
    assert all(
        ("is empty, and was not before" if covered else "is gone") in said for said in patience.said
    )


def test_who_has_no_patience_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    files = WaitedForFiles(tmp_path / "root", lambda _: False)
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
def test_faults_of_a_disk_are_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, "raw")

    monkeypatch.setattr(LocalFiles, "write", fail)
    with pytest.raises(StorageUnavailable, match=words) as error:
        WaitedForFiles(tmp_path, lambda _: False).write("a", b"")
    assert "Errno" not in str(error.value)


def test_only_drivers_wait(tmp_path: Path) -> None:
    assert type(open_files(str(tmp_path))) is LocalFiles
    assert type(open_files(str(tmp_path), {}, lambda _: True)) is WaitedForFiles
