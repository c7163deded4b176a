"""Existing files before a job's first row: handled once per lineage.

Files of a successor are never removed.
"""

from pathlib import Path
from typing import Any

import pytest

from tidegate.model.errors import UserError


def test_drop_data_removes_existing_files_once_per_lineage(kit: Any, tmp_path: Path) -> None:
    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=1" / "old.csv").write_text("100\n")
    driver = kit.Generation(tmp_path, 1, data_save_mode="DROP_DATA").open()
    assert kit.visible(tmp_path) == []
    driver.batch(1, [1])
    (tmp_path / "neighbour.csv").write_text("200\n")
    kit.Generation(tmp_path, 2, data_save_mode="DROP_DATA").open(checkpoint=1)
    kit.Generation(tmp_path, 3, data_save_mode="DROP_DATA").open(checkpoint=0, pending=1)
    assert kit.rows(tmp_path) == [1, 200]


@pytest.mark.parametrize(
    "name", ["filesink.prepare.before", "filesink.prepare.middle", "filesink.prepare.after"]
)
def test_crash_or_zombie_during_drop_data_loses_no_row(
    kit: Any, tmp_path: Path, at: Any, name: str
) -> None:
    (tmp_path / "old.csv").write_text("100\n")
    at(name, lambda: kit.Generation(tmp_path, 2, data_save_mode="DROP_DATA").open().batch(1, [1]))
    kit.Generation(tmp_path, 1, data_save_mode="DROP_DATA").open()
    assert kit.rows(tmp_path) == [1]


def test_table_directories_are_dropped_before_their_first_files(kit: Any, tmp_path: Path) -> None:
    for name in ("orders", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "old.csv").write_text("100\n")
    driver = kit.Generation(tmp_path / "${table_name}", 1, data_save_mode="DROP_DATA").open()
    driver.batch(1, [1])
    driver.batch(2, [2])
    assert kit.rows(tmp_path / "orders") == [1, 2]
    assert kit.rows(tmp_path / "other") == [100]


def test_save_modes_that_refuse_give_the_reason(kit: Any, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(UserError, match=r"missing does not exist.*ERROR_WHEN_SCHEMA_NOT_EXIST"):
        kit.Generation(missing, 1, schema_save_mode="ERROR_WHEN_SCHEMA_NOT_EXIST").open()
    assert not missing.exists()
    (tmp_path / "old.csv").write_text("100\n")
    with pytest.raises(UserError, match=r"old\.csv.*ERROR_WHEN_DATA_EXISTS"):
        kit.Generation(tmp_path, 1, data_save_mode="ERROR_WHEN_DATA_EXISTS").open()
    assert kit.rows(tmp_path) == [100]


def test_recreate_schema_removes_directories_and_data(kit: Any, tmp_path: Path) -> None:
    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=1" / "old.csv").write_text("100\n")
    kit.Generation(tmp_path, 1, schema_save_mode="RECREATE_SCHEMA").open().batch(1, [1])
    assert kit.rows(tmp_path) == [1]
    assert not (tmp_path / "day=1").exists()
