"""Batches after the restore point that the file sink has committed.

Which of them it returns, keeps when it is opened, and rolls back.
"""

from pathlib import Path
from typing import Any

import pytest

from tidegate.model.errors import Fenced
from tidegate.plugin.contract import AlreadyCommitted, BatchCommitted, SinkRestore


def resume(generation: int, checkpoint: int, **more: Any) -> SinkRestore:
    return SinkRestore(lineage="L", generation=generation, checkpoint=checkpoint, **more)


def four_batches(kit: Any, root: Path) -> Any:
    driver = kit.Generation(root, 1).open()
    for checkpoint in range(1, 5):
        driver.batch(checkpoint, [checkpoint])
    return driver


def test_every_record_after_the_restore_point_is_returned_with_its_offsets(
    kit: Any, tmp_path: Path
) -> None:
    four_batches(kit, tmp_path)
    ranges = kit.Generation(tmp_path, 2).committer.uncheckpointed_commits(resume(2, 2))
    assert [(r.checkpoint, r.offsets) for r in ranges] == [
        (3, {"Source[0]": [2, 3]}),
        (4, {"Source[0]": [3, 4]}),
    ]
    assert kit.rows(tmp_path) == [1, 2, 3, 4]


def test_sink_that_was_never_opened_returns_nothing_and_creates_nothing(
    kit: Any, tmp_path: Path
) -> None:
    assert list(kit.Generation(tmp_path, 2).committer.uncheckpointed_commits(resume(2, 2))) == []
    assert list(tmp_path.iterdir()) == []


def test_query_fences_lower_generations_so_that_it_stays_valid(kit: Any, tmp_path: Path) -> None:
    old = four_batches(kit, tmp_path)
    messages = old.stage(5, [5])
    assert len(kit.Generation(tmp_path, 2).committer.uncheckpointed_commits(resume(2, 2))) == 2
    with pytest.raises(Fenced):
        old.commit(5, messages)
    with pytest.raises(Fenced):
        kit.Generation(tmp_path, 1).committer.uncheckpointed_commits(resume(1, 2))


def test_uncheckpointed_batches_are_kept_and_their_repetition_is_skipped(
    kit: Any, tmp_path: Path
) -> None:
    four_batches(kit, tmp_path)
    driver = kit.Generation(tmp_path, 2)
    driver.committer.uncheckpointed_commits(resume(2, 2))
    driver.committer.open(resume(2, 2, uncheckpointed_commits=(3, 4)))
    assert kit.rows(tmp_path) == [1, 2, 3, 4]
    assert [driver.batch(c, [c]) for c in (3, 4, 5)] == [
        AlreadyCommitted(),
        AlreadyCommitted(),
        BatchCommitted(),
    ]
    assert kit.rows(tmp_path) == [1, 2, 3, 4, 5]
    assert kit.staged(tmp_path) == []


def test_a_sink_that_lacks_a_batch_gets_it_under_its_old_id(kit: Any, tmp_path: Path) -> None:
    four_batches(kit, tmp_path)
    driver = kit.Generation(tmp_path, 2)
    driver.committer.open(resume(2, 4, uncheckpointed_commits=(5,)))  # another sink has it
    assert driver.batch(5, [5]) == BatchCommitted()
    assert kit.rows(tmp_path) == [1, 2, 3, 4, 5]


def test_batch_before_a_record_is_published_even_if_its_own_record_was_pruned(
    kit: Any, tmp_path: Path
) -> None:
    four_batches(kit, tmp_path).committer.retain(4)
    assert kit.records(tmp_path) == ["4.json"]
    driver = kit.Generation(tmp_path, 2)
    driver.committer.open(resume(2, 2, uncheckpointed_commits=(3, 4)))
    assert driver.batch(3, [3]) == AlreadyCommitted()
    assert kit.rows(tmp_path) == [1, 2, 3, 4]


def test_rewind_rolls_back_records_and_pruned_batches(kit: Any, tmp_path: Path) -> None:
    four_batches(kit, tmp_path).committer.retain(4)
    other = kit.Generation(tmp_path, 1, operator="b").open()
    other.batch(4, [40])
    driver = kit.Generation(tmp_path, 2)
    driver.committer.uncheckpointed_commits(resume(2, 2, rewind=True))
    driver.committer.open(resume(2, 2, rewind=True))
    assert kit.rows(tmp_path) == [1, 2, 40]
    assert driver.batch(5, [3]) == BatchCommitted()
    assert kit.rows(tmp_path) == [1, 2, 3, 40]


def test_rewind_keeps_the_batch_begun_before_a_crash(kit: Any, tmp_path: Path) -> None:
    four_batches(kit, tmp_path)
    first = kit.Generation(tmp_path, 2)
    first.committer.open(resume(2, 2, rewind=True))
    first.batch(5, [3])
    again = kit.Generation(tmp_path, 3)
    again.committer.open(resume(3, 2, rewind=True, pending=5))
    assert again.batch(5, [3]) == AlreadyCommitted()
    assert kit.rows(tmp_path) == [1, 2, 3]


def test_without_transactions_there_is_no_record(kit: Any, tmp_path: Path) -> None:
    driver = kit.Generation(tmp_path, 1, is_enable_transaction=False).open()
    driver.batch(1, [1])
    assert (
        list(
            kit.Generation(
                tmp_path, 2, is_enable_transaction=False
            ).committer.uncheckpointed_commits(resume(2, 0))
        )
        == []
    )
