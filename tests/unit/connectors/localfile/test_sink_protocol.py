"""Exactly-once of the file sink: each batch is visible once, whatever crashes or revives."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidegate.connectors.localfile import (
    committer,
    lineage_cleanup,
    publishing,
    rollback,
    save_mode,
    writer,
)
from tidegate.connectors.localfile.commit_record import BadRecord, CommitOffsetsDiffer
from tidegate.connectors.localfile.durable_io import DiskRefused, DiskTrouble
from tidegate.model.errors import Fenced, UserError
from tidegate.plugin.contract import AlreadyCommitted, BatchCommitted, WriteTask


def failpoints(*steps: str) -> list[str]:
    """The names in the source, so that a new one cannot be forgotten here."""
    source = "".join(
        Path(str(m.__file__)).read_text()
        for m in (committer, writer, lineage_cleanup, publishing, save_mode, rollback)
    )
    found = sorted(set(re.findall(r'failpoint\("(filesink\.[a-z.]+)"\)', source)))
    return [name for name in found if name.split(".")[1] in steps]


# -- one generation


def test_a_batch_is_invisible_until_it_is_committed_and_then_visible_once(
    kit: Any, tmp_path: Path
) -> None:
    driver = kit.Generation(tmp_path, 1).open()
    messages = driver.stage(1, [1, 2], [3])
    assert kit.visible(tmp_path) == []
    assert driver.commit(1, messages) == BatchCommitted()
    assert kit.rows(tmp_path) == [1, 2, 3]
    assert kit.staged(tmp_path) == []
    assert [m["rows"] for m in messages] == [2, 1]


def test_file_names_contain_seatunnels_transaction_id(kit: Any, tmp_path: Path) -> None:
    kit.Generation(tmp_path, 1).open().batch(1, [1], [2])
    assert all(
        re.fullmatch(r"T_7_[0-9a-f]{10}_[01]_1_0\.csv", p.name) for p in kit.visible(tmp_path)
    )
    assert len(kit.visible(tmp_path)) == 2


def test_a_repeated_commit_is_recognised_and_its_staged_files_are_removed(
    kit: Any, tmp_path: Path
) -> None:
    driver = kit.Generation(tmp_path, 1).open()
    driver.batch(1, [1, 2])
    assert driver.batch(1, [1, 2]) == AlreadyCommitted()
    assert kit.rows(tmp_path) == [1, 2]
    assert kit.staged(tmp_path) == []


def test_the_same_checkpoint_with_other_offsets_is_an_error(kit: Any, tmp_path: Path) -> None:
    driver = kit.Generation(tmp_path, 1).open()
    driver.batch(1, [1, 2])
    with pytest.raises(CommitOffsetsDiffer, match="other source offsets"):
        driver.commit(1, driver.stage(1, [1, 2, 3]), offsets={"Source[0]": [0, 99]})
    assert kit.rows(tmp_path) == [1, 2]


def test_a_batch_without_rows_leaves_a_record_and_no_file(kit: Any, tmp_path: Path) -> None:
    driver = kit.Generation(tmp_path, 1).open()
    assert driver.commit(1, driver.stage(1, [], [])) == BatchCommitted()
    assert kit.visible(tmp_path) == []
    assert driver.commit(1, driver.stage(1, [], [])) == AlreadyCommitted()


def test_two_writers_with_one_task_index_do_not_overwrite_each_other(
    kit: Any, tmp_path: Path
) -> None:
    driver = kit.Generation(tmp_path, 1).open()
    driver.commit(1, driver.stage(1, [1]) + driver.stage(1, [2]))
    assert kit.rows(tmp_path) == [1, 2]


def test_an_aborted_task_and_a_failed_attempt_leave_nothing(kit: Any, tmp_path: Path) -> None:
    driver = kit.Generation(tmp_path, 1).open()
    writer = driver.sink.writer(
        WriteTask(lineage="L", checkpoint=1, generation=1, subtask=0, token="aborted")
    )
    writer.write(kit.TABLE, pa.record_batch({"id": pa.array([9])}))
    writer.abort()
    assert kit.staged(tmp_path) == []
    driver.stage(1, [8])  # an attempt whose message never came
    driver.batch(1, [1])
    assert kit.rows(tmp_path) == [1]
    assert kit.staged(tmp_path) == []


def test_two_sinks_of_one_job_can_share_a_directory(kit: Any, tmp_path: Path) -> None:
    first, second = (
        kit.Generation(tmp_path, 1, operator="a").open(),
        kit.Generation(tmp_path, 1, operator="b").open(),
    )
    third = kit.Generation(tmp_path, 1, operator="a", pipeline=2).open()
    for driver, ids in ((first, [1]), (second, [2]), (third, [3])):
        driver.batch(1, ids)
    kit.Generation(tmp_path, 2, operator="a").open(checkpoint=0)  # rolls back its own batch only
    assert kit.rows(tmp_path) == [2, 3]


def test_missing_staged_file_is_not_recorded(kit: Any, tmp_path: Path) -> None:
    driver = kit.Generation(tmp_path, 1).open()
    messages = driver.stage(1, [1])
    kit.staged(tmp_path)[0].unlink()
    with pytest.raises(DiskTrouble, match="disappeared"):
        driver.commit(1, messages)
    assert kit.records(tmp_path) == []


def test_impossible_path_is_refused_in_one_sentence(kit: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskRefused, match=r"opening the file sink .* failed at .*file"):
        kit.Generation(tmp_path / "file" / "below", 1).open()
    with pytest.raises(UserError, match="same for all"):
        kit.Generation(Path("/${table_name}"), 1)


# -- zombies


def test_an_older_generation_can_neither_stage_nor_commit_nor_open(
    kit: Any, tmp_path: Path
) -> None:
    old = kit.Generation(tmp_path, 1).open()
    messages = old.stage(1, [1])
    kit.Generation(tmp_path, 2).open(pending=1)
    for act in (
        lambda: old.commit(1, messages),
        lambda: old.stage(1, [1]),
        lambda: kit.Generation(tmp_path, 1).open(),
    ):
        with pytest.raises(Fenced, match="generation 2"):
            act()
    assert kit.visible(tmp_path) == []


def test_a_zombie_that_committed_first_wins_and_the_repeat_is_skipped(
    kit: Any, tmp_path: Path
) -> None:
    old = kit.Generation(tmp_path, 1).open()
    old.batch(1, [1, 2], [3])
    new = kit.Generation(tmp_path, 2).open(pending=1)
    assert new.batch(1, [1], [2, 3]) == AlreadyCommitted()
    assert kit.rows(tmp_path) == [1, 2, 3]
    assert kit.staged(tmp_path) == []


@pytest.mark.parametrize("name", failpoints("record", "publish", "stage"))
def test_zombie_superseded_in_the_middle_of_its_commit_changes_nothing(
    kit: Any, tmp_path: Path, at: Any, name: str
) -> None:
    old = kit.Generation(tmp_path, 1).open()
    outcomes = []
    at(
        name,
        lambda: outcomes.append(
            kit.Generation(tmp_path, 2).open(pending=1).batch(1, [1], [2], [3])
        ),
    )
    with contextlib.suppress(Fenced):
        old.batch(1, [1, 2], [3])
    assert outcomes != []
    assert kit.rows(tmp_path) == [1, 2, 3]
    assert len(kit.records(tmp_path)) == 1
    kit.Generation(tmp_path, 3).open(checkpoint=1)
    assert kit.rows(tmp_path) == [1, 2, 3]


@pytest.mark.parametrize("name", failpoints("fence", "rewind", "publish"))
def test_generation_superseded_while_it_opens_changes_nothing(
    kit: Any, tmp_path: Path, at: Any, name: str
) -> None:
    first = kit.Generation(tmp_path, 1).open()
    first.batch(1, [1], [2])
    first.batch(2, [3], [4])
    at("filesink.publish.middle", kit.crash)
    with pytest.raises(kit.Crash):
        first.batch(3, [5], [6])
    passed = []

    def overtake() -> None:
        passed.append(name)
        new = kit.Generation(tmp_path, 3).open(
            checkpoint=1, pending=3 if "publish" in name else None
        )
        if "publish" not in name:
            new.batch(2, [3, 4])
        new.batch(3, [5, 6])

    at(name, overtake)
    with contextlib.suppress(Fenced):
        kit.Generation(tmp_path, 2).open(checkpoint=1, pending=3 if "publish" in name else None)
    assert passed == [name]
    assert kit.rows(tmp_path) == ([1, 2, 5, 6] if "publish" in name else [1, 2, 3, 4, 5, 6])


def test_generation_superseded_before_it_has_a_staging_directory_does_not_open(
    kit: Any, tmp_path: Path, at: Any
) -> None:
    at("filesink.fence.after", lambda: kit.Generation(tmp_path, 2).open())
    with pytest.raises(Fenced, match="generation 2"):
        kit.Generation(tmp_path, 1).open()
    assert [p.name for p in tmp_path.glob(".tidegate/*/*/staging/*")] == ["g2"]


# -- crashes


@pytest.mark.parametrize("name", failpoints("stage", "record", "publish"))
def test_a_crash_anywhere_in_a_batch_is_repaired_by_the_repeat(
    kit: Any, tmp_path: Path, at: Any, name: str
) -> None:
    old = kit.Generation(tmp_path, 1).open()
    old.batch(1, [1])
    at(name, kit.crash)
    with pytest.raises(kit.Crash):
        old.batch(2, [2], [3])
    new = kit.Generation(tmp_path, 2).open(checkpoint=1, pending=2)
    assert new.batch(2, [2, 3]) == (
        BatchCommitted()
        if name.split(".")[1] == "stage"
        or name in ("filesink.record.before", "filesink.record.middle")
        else AlreadyCommitted()
    )
    assert kit.rows(tmp_path) == [1, 2, 3]
    assert kit.staged(tmp_path) == []


@pytest.mark.parametrize(
    "name", ["filesink.stage.middle", "filesink.record.after", "filesink.publish.middle"]
)
def test_a_process_that_is_killed_in_a_batch_leaves_it_to_its_successor(
    kit: Any, tmp_path: Path, name: str
) -> None:
    kit.Generation(tmp_path, 1).open().batch(1, [1])
    script = (
        "import importlib.util, pathlib, sys\n"
        "spec = importlib.util.spec_from_file_location('conftest', sys.argv[1])\n"
        "kit = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(kit)\n"
        "kit.Generation(pathlib.Path(sys.argv[2]), 2).open(1).batch(2, [2], [3])\n"
    )
    command = [
        sys.executable,
        "-c",
        script,
        str(Path(__file__).with_name("conftest.py")),
        str(tmp_path),
    ]
    environment = {
        **os.environ,
        "TIDEGATE_FAILPOINT": name,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    died = subprocess.run(
        command, env=environment, start_new_session=True, capture_output=True, check=False
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    kit.Generation(tmp_path, 3).open(1, pending=2).batch(2, [2, 3])
    assert kit.rows(tmp_path) == [1, 2, 3]
    assert kit.staged(tmp_path) == []


def test_half_published_batch_is_completed_if_its_checkpoint_is_the_restore_point(
    kit: Any, tmp_path: Path, at: Any
) -> None:
    old = kit.Generation(tmp_path, 1).open()
    at("filesink.publish.middle", kit.crash)
    with pytest.raises(kit.Crash):
        old.batch(1, [1], [2])
    assert kit.rows(tmp_path) == [1]
    kit.Generation(tmp_path, 2).open(checkpoint=1)
    assert kit.rows(tmp_path) == [1, 2]


@pytest.mark.parametrize("name", failpoints("fence", "rewind", "retain", "publish"))
def test_a_crash_anywhere_in_opening_is_repaired_by_opening_again(
    kit: Any, tmp_path: Path, at: Any, name: str
) -> None:
    old = kit.Generation(tmp_path, 1).open()
    old.batch(1, [1], [2])
    old.batch(2, [3], [4])
    at("filesink.publish.middle", kit.crash)
    with pytest.raises(kit.Crash):
        old.batch(3, [5], [6])
    at(name, kit.crash)
    pending = 3 if "publish" in name else None
    with pytest.raises(kit.Crash):
        kit.Generation(tmp_path, 2).open(checkpoint=1, pending=pending).committer.retain(2)
    new = kit.Generation(tmp_path, 3).open(checkpoint=1, pending=pending)
    if pending is None:
        assert kit.rows(tmp_path) == [1, 2]
        new.batch(2, [3, 4])
    new.batch(3, [5, 6])
    assert kit.rows(tmp_path) == ([1, 2, 5, 6] if pending else [1, 2, 3, 4, 5, 6])
    assert kit.staged(tmp_path) == []


def test_recovery_tolerates_published_files_that_were_removed(
    kit: Any, tmp_path: Path, at: Any
) -> None:
    old = kit.Generation(tmp_path, 1).open()
    at("filesink.publish.middle", kit.crash)
    with pytest.raises(kit.Crash):
        old.batch(1, [1], [2])
    kit.visible(tmp_path)[0].unlink()
    assert kit.Generation(tmp_path, 2).open(pending=1).batch(1, [1, 2]) == AlreadyCommitted()
    assert kit.rows(tmp_path) == [2]


# -- going back, keeping, ending


def test_batches_after_the_restore_point_are_rolled_back_except_the_pending_one(
    kit: Any, tmp_path: Path
) -> None:
    old = kit.Generation(tmp_path, 1).open()
    for n in range(1, 6):
        old.batch(n, [n])
    kit.Generation(tmp_path, 2).open(checkpoint=2, pending=3)
    assert kit.rows(tmp_path) == [1, 2, 3]
    assert kit.records(tmp_path) == ["1.json", "2.json", "3.json"]


def test_a_mark_that_a_zombie_sets_late_does_not_count_for_a_later_record(
    kit: Any, tmp_path: Path, at: Any
) -> None:
    old = kit.Generation(tmp_path, 1).open()
    old.batch(1, [1])
    mark = next(tmp_path.glob(".tidegate/*/*/commits/1-*.done"))
    new = kit.Generation(tmp_path, 2).open(checkpoint=0)
    mark.touch()
    at("filesink.publish.before", kit.crash)
    with pytest.raises(kit.Crash):
        new.batch(1, [10])
    kit.Generation(tmp_path, 3).open(checkpoint=1)
    assert kit.rows(tmp_path) == [10]


def test_records_before_the_oldest_restore_point_are_pruned_and_the_files_stay(
    kit: Any, tmp_path: Path
) -> None:
    driver = kit.Generation(tmp_path, 1).open()
    for n in range(1, 11):
        driver.batch(n, [n])
        driver.committer.retain(n - 2)
    assert kit.records(tmp_path) == ["10.json", "8.json", "9.json"]
    assert kit.rows(tmp_path) == list(range(1, 11))
    assert len(list(tmp_path.glob(".tidegate/*/*/commits/*"))) == 6


def test_pruning_is_bounded_in_each_call(
    kit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "_PRUNED_MAX", 3)
    driver = kit.Generation(tmp_path, 1).open()
    for n in range(1, 9):
        driver.batch(n, [n])
    driver.committer.retain(8)
    assert len(kit.records(tmp_path)) == 5
    driver.committer.retain(8)
    driver.committer.retain(8)
    assert kit.records(tmp_path) == ["8.json"]


def test_a_finished_job_leaves_only_its_output(kit: Any, tmp_path: Path) -> None:
    driver = kit.Generation(tmp_path, 1).open()
    driver.batch(1, [1], [2])
    driver.committer.finish()
    assert kit.records(tmp_path) == ["1.json"]
    driver.committer.close()
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".csv", ".csv"]


@pytest.mark.parametrize("name", failpoints("finish"))
def test_crash_during_the_cleanup_of_a_finished_job_is_harmless(
    kit: Any, tmp_path: Path, at: Any, name: str
) -> None:
    driver = kit.Generation(tmp_path, 1).open()
    driver.batch(1, [1], [2])
    driver.committer.finish()
    at(name, kit.crash)
    with pytest.raises(kit.Crash):
        driver.committer.close()
    again = kit.Generation(tmp_path, 2).open(pending=1)
    again.batch(1, [1, 2])
    assert kit.rows(tmp_path) == [1, 2]
    again.committer.finish()
    again.committer.close()
    assert kit.rows(tmp_path) == [1, 2]
    assert not (tmp_path / ".tidegate").exists()


def test_finished_job_can_be_restored_from_an_older_checkpoint(kit: Any, tmp_path: Path) -> None:
    other = kit.Generation(tmp_path, 1, operator="neighbour").open()
    driver = kit.Generation(tmp_path, 1, file_name_expression="x_${transactionId}_${now}").open()
    for n in range(1, 13):
        driver.batch(n, [n])
        other.batch(n, [n * 100])
    driver.committer.finish()
    driver.committer.close()
    kit.Generation(tmp_path, 2, file_name_expression="x_${transactionId}_${now}").open(
        checkpoint=2, rewind=True
    ).batch(3, [33])
    assert [r for r in kit.rows(tmp_path) if r < 100] == [1, 2, 33]
    assert len(kit.rows(tmp_path)) == 15


@pytest.mark.parametrize("name", [*failpoints("takeback"), ""])
def test_batch_is_repeated_exactly_without_its_record(
    kit: Any, tmp_path: Path, at: Any, name: str
) -> None:
    driver = kit.Generation(tmp_path, 1).open()
    driver.batch(1, [1], [2])
    shutil.rmtree(tmp_path / ".tidegate")
    if name:
        at(name, kit.crash)
        with pytest.raises(kit.Crash):
            kit.Generation(tmp_path, 2).open(pending=1)
    assert kit.Generation(tmp_path, 3).open(pending=1).batch(1, [1, 2]) == BatchCommitted()
    assert kit.rows(tmp_path) == [1, 2]


def test_a_stopped_job_keeps_its_records_and_no_empty_staging_directory(
    kit: Any, tmp_path: Path
) -> None:
    driver = kit.Generation(tmp_path, 1).open()
    driver.batch(1, [1])
    driver.committer.close()
    assert kit.records(tmp_path) == ["1.json"]
    assert list(tmp_path.glob(".tidegate/*/*/staging/*")) == []
    assert kit.Generation(tmp_path, 2).open(checkpoint=1).batch(2, [2]) == BatchCommitted()


def test_a_record_of_a_newer_version_is_refused_by_name(kit: Any, tmp_path: Path) -> None:
    kit.Generation(tmp_path, 1).open().batch(1, [1])
    record = next(tmp_path.glob(".tidegate/*/*/commits/1.json"))
    record.write_text(record.read_text().replace('"version":1', '"version":9'))
    with pytest.raises(BadRecord, match="version 9"):
        kit.Generation(tmp_path, 2).open(checkpoint=1)


# -- without transactions


def test_without_transactions_files_are_complete_never_overwritten_and_not_recorded(
    kit: Any, tmp_path: Path
) -> None:
    driver = kit.Generation(
        tmp_path, 1, is_enable_transaction=False, file_name_expression="out"
    ).open()
    driver.batch(1, [1], [2])
    driver.batch(2, [3])
    driver.batch(2, [3])
    assert kit.rows(tmp_path) == [1, 2, 3, 3]
    assert [p.name for p in kit.visible(tmp_path)] == [
        "out_0-1.csv",
        "out_0-2.csv",
        "out_0-3.csv",
        "out_0.csv",
    ]
    assert kit.records(tmp_path) == []


@pytest.mark.parametrize("name", failpoints("append", "stage"))
def test_without_transactions_a_crash_may_repeat_rows_but_loses_none(
    kit: Any, tmp_path: Path, at: Any, name: str
) -> None:
    old = kit.Generation(tmp_path, 1, is_enable_transaction=False).open()
    at(name, kit.crash)
    with pytest.raises(kit.Crash):
        old.batch(1, [1], [2])
    kit.Generation(tmp_path, 2, is_enable_transaction=False).open(pending=1).batch(1, [1, 2])
    assert set(kit.rows(tmp_path)) == {1, 2}
    assert kit.staged(tmp_path) == []
