"""A fresh start removes what older lineages left for this sink, and nothing else."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidegate.connectors.localfile.fence import DirectoryRemoved, Fence
from tidegate.connectors.localfile.lineage_cleanup import remove_older_lineages
from tidegate.plugin.contract import BatchCommitted

OLD, NEW = "7-18a0f", "7-18b11"


def kept(root: Path) -> list[str]:
    return sorted(f"{p.parent.name}/{p.name}" for p in root.glob(".tidegate/*/*"))


def test_fresh_start_removes_older_lineages_of_the_same_job_only(kit: Any, tmp_path: Path) -> None:
    for lineage in (OLD, "7-1", "77-1", "-7-1", "7-xyz", "other"):
        kit.Generation(tmp_path, 1, lineage=lineage).open(state={}).batch(1, [1])
    kit.Generation(tmp_path, 1, lineage=OLD, operator="b").open()
    kit.Generation(tmp_path, 1, lineage=OLD, pipeline=2).open()
    files = kit.visible(tmp_path)
    before = kept(tmp_path)
    kit.Generation(tmp_path, 2, lineage=NEW).open().batch(1, [2])
    gone = {name for name in before if name.startswith((f"{OLD}/p1-Sink", "7-1/p1-Sink"))}
    assert len(gone) == 2
    assert [name for name in kept(tmp_path) if not name.startswith(NEW)] == [
        name for name in before if name not in gone
    ]
    assert not (tmp_path / ".tidegate" / "7-1").exists()
    assert set(files) < set(kit.visible(tmp_path))


def test_only_a_fresh_start_removes_lineages(kit: Any, tmp_path: Path) -> None:
    kit.Generation(tmp_path, 1, lineage=OLD).open().batch(1, [1])
    for more in ({"checkpoint": 1}, {"pending": 1}, {"state": {"checkpoint": 0}}):
        kit.Generation(tmp_path, 2, lineage=NEW).open(**more)
        assert any(name.startswith(OLD) for name in kept(tmp_path))


def test_recorded_batch_is_published_before_its_record_is_removed(
    kit: Any, at: Any, tmp_path: Path
) -> None:
    at("filesink.publish.middle", kit.crash)
    with contextlib.suppress(kit.Crash):
        kit.Generation(tmp_path, 1, lineage=OLD).open().batch(1, [1], [2])
    assert len(kit.visible(tmp_path)) == 1
    kit.Generation(tmp_path, 2, lineage=NEW).open()
    assert kit.rows(tmp_path) == [1, 2]
    assert not any(name.startswith(OLD) for name in kept(tmp_path))


def test_damaged_record_of_an_older_lineage_is_skipped(kit: Any, tmp_path: Path) -> None:
    kit.Generation(tmp_path, 1, lineage=OLD).open().batch(1, [1])
    next(tmp_path.glob(".tidegate/*/*/commits/1.json")).write_text("{")
    kit.Generation(tmp_path, 2, lineage=NEW).open().batch(1, [2])
    assert kit.rows(tmp_path) == [1, 2]
    assert not any(name.startswith(OLD) for name in kept(tmp_path))


@pytest.mark.parametrize(
    "name", [f"filesink.lineages.{step}" for step in ("before", "middle", "after")]
)
def test_kill_during_removal_is_repaired_by_the_next_start(
    kit: Any, at: Callable[[str, Any], None], tmp_path: Path, name: str
) -> None:
    kit.Generation(tmp_path, 1, lineage=OLD).open().batch(1, [1])
    at(name, kit.crash)
    with pytest.raises(kit.Crash):
        kit.Generation(tmp_path, 2, lineage=NEW).open()
    kit.Generation(tmp_path, 3, lineage=NEW).open().batch(1, [2])
    assert kit.rows(tmp_path) == [1, 2]
    assert not any(entry.startswith(OLD) for entry in kept(tmp_path))


def test_live_driver_of_a_removed_lineage_fails_and_recovers(kit: Any, tmp_path: Path) -> None:
    old = kit.Generation(tmp_path, 1, lineage=OLD).open()
    old.batch(1, [1])
    messages = old.stage(2, [2])
    kit.Generation(tmp_path, 5, lineage=NEW).open()
    with pytest.raises(DirectoryRemoved):
        old.commit(2, messages)
    again = kit.Generation(tmp_path, 2, lineage=OLD).open(checkpoint=1, pending=2)
    again.batch(2, [2])
    assert kit.rows(tmp_path) == [1, 2]


def test_lineage_taken_over_by_another_job_is_kept(kit: Any, tmp_path: Path) -> None:
    taken, mine = "5-18a0f", "5-18b11"  # the drivers of this kit are job 7's
    driver = kit.Generation(tmp_path, 2, lineage=taken).open(checkpoint=1)
    driver.batch(2, [2])
    remove_older_lineages(driver.sink._directory, mine, Fence(generation=3))
    assert [name.startswith(f"{taken}/") for name in kept(tmp_path)] == [True]
    assert driver.batch(3, [3]) == BatchCommitted()


def test_lineage_taken_over_again_by_its_job_is_removed(kit: Any, tmp_path: Path) -> None:
    driver = kit.Generation(tmp_path, 1, lineage=OLD).open(checkpoint=1)
    (mark := Path(driver.sink._directory.layout(OLD).owner(8))).touch()
    kit.Generation(tmp_path, 2, lineage=OLD).open(checkpoint=1)
    assert not mark.exists()
    kit.Generation(tmp_path, 3, lineage=NEW).open()
    assert not any(name.startswith(OLD) for name in kept(tmp_path))
