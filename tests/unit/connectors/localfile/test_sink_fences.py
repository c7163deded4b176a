"""Fences of the file sink have an identity.

Covers two drivers of one generation, two installations on one path, and replaced directories.
"""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tidegate.connectors.localfile.durable_io import DiskRefused, DiskTrouble, disk_errors
from tidegate.connectors.localfile.fence import (
    DirectoryRemoved,
    SinkFilesDropped,
    highest_fence,
)
from tidegate.connectors.localfile.rollback import NewerFiles
from tidegate.model.errors import Fenced, OtherCopy
from tidegate.plugin.contract import BatchCommitted

OURS, THEIRS = {"installation": "one"}, {"installation": "two"}


def snapshot(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


# -- two drivers of one generation


def test_first_of_two_drivers_of_one_generation_wins(kit: Any, tmp_path: Path) -> None:
    first = kit.Generation(tmp_path, 8).open(token="aa")
    second = kit.Generation(tmp_path, 8)
    before = snapshot(tmp_path)
    for act in (second.committer.uncheckpointed_commits, second.committer.open):
        with pytest.raises(OtherCopy, match="another copy of this installation"):
            act(second.resume(token="bb"))
    assert snapshot(tmp_path) == before, "the second one changes nothing"
    assert first.batch(1, [1]) == BatchCommitted()


def test_a_driver_that_opens_again_finds_its_own_fence(kit: Any, tmp_path: Path) -> None:
    driver = kit.Generation(tmp_path, 8).open(token="aa")
    driver.batch(1, [1])
    kit.Generation(tmp_path, 8).open(checkpoint=1, token="aa").batch(2, [2])
    assert kit.rows(tmp_path) == [1, 2]


def test_fence_is_created_atomically(kit: Any, tmp_path: Path, at: Any) -> None:
    at("filesink.fence.middle", kit.crash)
    with pytest.raises(kit.Crash):
        kit.Generation(tmp_path, 8).open(token="aa")
    with pytest.raises(OtherCopy):
        kit.Generation(tmp_path, 8).open(token="bb")
    kit.Generation(tmp_path, 9).open(token="bb").batch(1, [1])
    assert list(tmp_path.glob(".tidegate/*/*/draft-*")) == []


def test_directory_removed_while_it_is_opened_is_a_transient_error(
    kit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(
        "tidegate.connectors.localfile.fence.link", gone
    )  # another copy has finished right here
    with pytest.raises(DirectoryRemoved, match="while the file sink"):
        kit.Generation(tmp_path, 8).open(token="aa")


def test_a_fence_of_an_older_release_counts_by_its_number(kit: Any, tmp_path: Path) -> None:
    old = kit.Generation(tmp_path, 3).open()
    base = next(tmp_path.glob(".tidegate/*/*"))
    (base / "fence-g3").write_bytes(b"")
    new = kit.Generation(tmp_path, 4).open(token="aa")
    with pytest.raises(Fenced):
        old.batch(1, [1])
    assert new.batch(1, [1]) == BatchCommitted()
    assert (highest_fence(new.sink._directory.layout("L")) or 0).token == "aa"


def test_zombie_of_the_same_generation_cannot_commit_into_a_successors_directory(
    kit: Any, tmp_path: Path
) -> None:
    zombie = kit.Generation(tmp_path, 8).open(token="aa")
    messages = zombie.stage(1, [1])
    shutil.rmtree(tmp_path / ".tidegate")
    other = kit.Generation(tmp_path, 8).open(token="bb")
    with pytest.raises(OtherCopy):
        zombie.commit(1, messages)
    assert kit.rows(tmp_path) == []
    assert other.batch(1, [2]) == BatchCommitted()


def test_superseded_zombie_keeps_the_records_when_it_closes(kit: Any, tmp_path: Path) -> None:
    zombie = kit.Generation(tmp_path, 1).open(token="aa")
    zombie.batch(1, [1])
    zombie.committer.finish()
    successor = kit.Generation(tmp_path, 2).open(checkpoint=1, token="bb")
    with pytest.raises(Fenced):
        zombie.committer.close()
    assert kit.records(tmp_path) == ["1.json"]
    assert successor.batch(2, [2]) == BatchCommitted()


@pytest.mark.parametrize("stale", [3, 4])
def test_stale_copy_does_not_roll_back_a_finished_job(kit: Any, tmp_path: Path, stale: int) -> None:
    winner = kit.Generation(tmp_path, 3).open(token="aa")
    for number in range(1, 4):
        winner.batch(number, [number])
    winner.committer.finish()
    winner.committer.close()
    with pytest.raises((OtherCopy, NewerFiles)):
        kit.Generation(tmp_path, stale).open(checkpoint=1, pending=2, token="bb")
    assert kit.rows(tmp_path) == [1, 2, 3]


# -- what a target remembers


def remembered(driver: Any, checkpoint: int, state: Any = None) -> int:
    return int(driver.committer.target_record(driver.resume(checkpoint, state=state)).checkpoint)


def test_target_record_is_the_newest_record_or_the_checkpoint_of_the_fence(
    kit: Any, tmp_path: Path
) -> None:
    driver = kit.Generation(tmp_path, 1).open()
    for number in range(1, 6):
        driver.batch(number, [number])
    driver.committer.retain(5)
    assert remembered(kit.Generation(tmp_path, 2), 4) == 5
    kit.Generation(tmp_path, 2).open(checkpoint=4, rewind=True)
    assert remembered(kit.Generation(tmp_path, 3), 4) == 4, (
        "its record was pruned and the later ones rolled back: the fence holds the checkpoint"
    )
    assert remembered(kit.Generation(tmp_path, 3), 5) == 4


def test_target_record_creates_nothing_in_a_missing_target(kit: Any, tmp_path: Path) -> None:
    driver = kit.Generation(tmp_path / "unmounted", 2)
    assert remembered(driver, 3) == 0
    assert not (tmp_path / "unmounted").exists()


def test_target_record_of_a_finished_target_comes_from_file_names(kit: Any, tmp_path: Path) -> None:
    driver = kit.Generation(tmp_path, 1).open()
    driver.batch(1, [1])
    driver.batch(2, [2])
    driver.batch(3, [])
    driver.commit(3, [])
    state = driver.committer.state()
    assert state["filled"] == 2
    driver.committer.finish()
    driver.committer.close()
    assert not (tmp_path / ".tidegate").exists()
    after = kit.Generation(tmp_path, 2)
    assert remembered(after, 3, state) == 3
    next(
        path
        for path in kit.visible(tmp_path)
        if "_2_" in path.name or path.read_text().strip() == "2"
    ).unlink()
    assert remembered(after, 3, state) == 1
    assert remembered(after, 3, {**state, "filled": 0}) == 3, "never a file: nothing can be missing"


def test_directory_replaced_by_a_copy_of_itself_must_be_opened_again(
    kit: Any, tmp_path: Path
) -> None:
    root = tmp_path / "out"
    driver = kit.Generation(root, 1).open(token="aa")
    messages = driver.stage(1, [1])
    shutil.copytree(root, tmp_path / "copy")
    root.rename(tmp_path / "away")
    (tmp_path / "copy").rename(root)
    with pytest.raises(DirectoryRemoved, match="was replaced"):
        driver.commit(1, messages)
    assert kit.rows(root) == []


def test_task_reports_a_removed_directory(kit: Any, tmp_path: Path) -> None:
    driver = kit.Generation(tmp_path / "out", 1).open()
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(DirectoryRemoved, match="was removed") as raised:
        driver.stage(1, [1])
    assert "hosts share" not in str(raised.value)
    assert isinstance(raised.value, DiskTrouble), "retried, as a full disk is"
    driver.sink._host = "another-host"
    with pytest.raises(DirectoryRemoved, match="all hosts share"):
        driver.stage(1, [1])


@pytest.mark.parametrize(
    "code",
    [
        errno.EROFS,
        errno.ENOSPC,
        errno.EIO,
        errno.ESTALE,
        errno.EDQUOT,
        errno.ENOENT,
        errno.ENOTCONN,
        errno.ENODEV,
    ],
)
def test_transient_disk_errors_are_retried(code: int) -> None:
    with pytest.raises(DiskTrouble), disk_errors("writing"):
        raise OSError(code, os.strerror(code))


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ENOTDIR])
def test_permanent_disk_errors_are_terminal(code: int) -> None:
    with pytest.raises(DiskRefused), disk_errors("writing"):
        raise OSError(code, os.strerror(code))


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("kind", ["link", "dangling", "file"])
def test_bookkeeping_paths_must_be_directories(
    kit: Any, tmp_path: Path, depth: int, kind: str
) -> None:
    root, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    driver = kit.Generation(root, 1)
    layout = driver.sink._directory.layout("L")
    path = Path(
        [driver.sink._directory.bookkeeping, os.path.dirname(layout.base), layout.base][depth]
    )
    path.parent.mkdir(parents=True)
    if kind == "file":
        path.write_text("")
    else:
        if kind == "link":
            elsewhere.mkdir()
        path.symlink_to(elsewhere)
    with pytest.raises(DiskRefused, match="is a link" if kind != "file" else "is not a directory"):
        driver.committer.target_record(driver.resume())
    with pytest.raises(DiskRefused):
        driver.open()


# -- a second installation on the path


def test_lineage_of_another_installation_is_kept(kit: Any, tmp_path: Path) -> None:
    theirs = kit.Generation(tmp_path, 1, lineage="7-18a0f").open(**THEIRS)
    theirs.batch(1, [1])
    messages = theirs.stage(2, [2])
    kit.Generation(tmp_path, 5, lineage="7-18b11").open(**OURS).batch(1, [10])
    assert theirs.commit(2, messages) == BatchCommitted()
    assert kit.rows(tmp_path) == [1, 2, 10]


def test_lineage_continued_by_a_copy_of_this_installation_is_kept(kit: Any, tmp_path: Path) -> None:
    copy = kit.Generation(tmp_path, 9, lineage="7-18a0f").open(**OURS)
    copy.batch(1, [1])
    kit.Generation(tmp_path, 9, lineage="7-18b11").open(**OURS)
    assert copy.batch(2, [2]) == BatchCommitted()


def test_lineage_of_this_installation_is_removed(kit: Any, tmp_path: Path) -> None:
    kit.Generation(tmp_path, 1, lineage="7-18a0f").open(**OURS).batch(1, [1])
    kit.Generation(tmp_path, 2, lineage="7-18b11").open(**OURS)
    assert not (tmp_path / ".tidegate" / "7-18a0f").exists()
    assert kit.rows(tmp_path) == [1]


@pytest.mark.parametrize(
    "mode", [{"data_save_mode": "DROP_DATA"}, {"schema_save_mode": "RECREATE_SCHEMA"}]
)
def test_save_mode_that_removes_files_of_a_running_job_stops_that_job(
    kit: Any, tmp_path: Path, mode: dict[str, str]
) -> None:
    theirs = kit.Generation(tmp_path, 3, lineage="7-18a0f", operator="other").open(**THEIRS)
    theirs.batch(1, [1])
    messages = theirs.stage(2, [2])
    kit.Generation(tmp_path, 1, lineage="9-18b11", **mode).open(**OURS).batch(1, [10])
    assert kit.rows(tmp_path) == [10]
    with pytest.raises(SinkFilesDropped, match="job 9"):
        theirs.commit(2, messages)
    again = kit.Generation(tmp_path, 4, lineage="7-18a0f", operator="other")
    memory = again.committer.target_record(again.resume(1, **THEIRS))
    assert memory.checkpoint == 0
    assert "job 9" in memory.target
    again.open(checkpoint=1, **THEIRS)  # as if the user has accepted the loss
    assert again.batch(2, [2]) == BatchCommitted()


@pytest.mark.parametrize("name", ["filesink.dropped.before", "filesink.dropped.after"])
def test_crash_while_another_job_is_stopped_is_repaired_by_opening_again(
    kit: Any, tmp_path: Path, at: Any, name: str
) -> None:
    theirs = kit.Generation(tmp_path, 3, lineage="7-18a0f", operator="other").open(**THEIRS)
    theirs.batch(1, [1])
    messages = theirs.stage(2, [2])
    at(name, kit.crash)
    with pytest.raises(kit.Crash):
        kit.Generation(tmp_path, 1, lineage="9-18b11", data_save_mode="DROP_DATA").open(**OURS)
    kit.Generation(tmp_path, 2, lineage="9-18b11", data_save_mode="DROP_DATA").open(**OURS).batch(
        1, [10]
    )
    with pytest.raises(SinkFilesDropped):
        theirs.commit(2, messages)
    assert kit.rows(tmp_path) == [10]


def test_save_mode_does_not_stop_a_job_whose_files_it_keeps(kit: Any, tmp_path: Path) -> None:
    theirs = kit.Generation(tmp_path, 3, lineage="7-18a0f", operator="other").open(**THEIRS)
    (tmp_path / "old.txt").write_text("99")
    kit.Generation(tmp_path, 1, lineage="9-18b11", data_save_mode="DROP_DATA").open(**OURS)
    assert theirs.batch(1, [1]) == BatchCommitted()
    assert kit.rows(tmp_path) == [1]


def test_foreign_files_are_reported_only_to_a_fresh_start_that_appends(
    kit: Any, tmp_path: Path
) -> None:
    kit.Generation(tmp_path, 1, lineage="7-18a0f").open().batch(1, [1], [2])
    fresh = kit.Generation(tmp_path, 1, lineage="7-18b11")
    assert fresh.committer.target_record(fresh.resume()).others == "2 files"
    assert fresh.committer.target_record(fresh.resume(pending=1)).others == ""
    dropping = kit.Generation(tmp_path, 1, lineage="7-18b11", data_save_mode="DROP_DATA")
    assert dropping.committer.target_record(dropping.resume()).others == ""
    empty = kit.Generation(tmp_path / "new", 1)
    assert empty.committer.target_record(empty.resume()).others == ""
