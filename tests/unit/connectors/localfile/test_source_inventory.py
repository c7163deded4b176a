"""A bounded source reads the files that it listed.

What is missing or changed is an error by name, whatever the number of files.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tidegate.connectors.localfile import inventory
from tidegate.connectors.localfile.inventory import LIST_CHARS_MAX, Inventory, record_listing
from tidegate.connectors.localfile.listing import FileInfo
from tidegate.connectors.localfile.position import FilePosition
from tidegate.connectors.localfile.source import LocalFileSource
from tidegate.connectors.localfile.source_errors import (
    FileChanged,
    FilesMissing,
    ListedFileChanged,
    ListedFileExcluded,
    RangeChanged,
)
from tidegate.connectors.localfile.source_options import SOURCE_OPTIONS
from tidegate.model.errors import SourceUnreachable, UserError
from tidegate.model.job import JobMode
from tidegate.model.problem import Location
from tidegate.plugin.contract import Limit, OperatorContext
from tidegate.plugin.option import Block

TWO = Limit(files=2)


def make(
    path: Path, skip: tuple[str, ...] = (), accept: tuple[str, ...] = (), **options: Any
) -> LocalFileSource:
    given = {"path": str(path), "file_format_type": "text", **options}
    values, problems = SOURCE_OPTIONS.read(
        Block(given, lambda _: Location("job.conf"), "source[0]")
    )
    assert not problems
    return LocalFileSource(
        values,
        OperatorContext(
            job_id=1,
            job_name="j",
            pipeline=1,
            operator="s",
            mode=JobMode.BATCH,
            parallelism=1,
            skip_files=skip,
            accept_files=accept,
        ),
    )


def run_batch(source: LocalFileSource, start: Any, limit: Limit = TWO) -> tuple[Any, list[str]]:
    end = json.loads(json.dumps(source.latest(start, limit)))
    if end == start:
        return end, []
    batches = (batch for split in source.splits(start, end, 2) for batch in source.read(split))
    return end, [row["content"] for batch in batches for row in batch.to_pylist()]


def rest(source: LocalFileSource, offset: Any) -> list[str]:
    found: list[str] = []
    while not source.is_exhausted(offset):
        offset, lines = run_batch(source, offset)
        found += lines
    return found


@pytest.fixture(params=["names", "ranges"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run once with every file by name, once with ranges of three."""
    if request.param == "ranges":
        monkeypatch.setattr(inventory, "NAMES_MAX", 0)
        monkeypatch.setattr(inventory, "RANGES_MAX", 3)
    return str(request.param)


def begun(tmp_path: Path, count: int = 9) -> tuple[Path, Any]:
    """Create nine files, the first four of which are read."""
    root = tmp_path / "in"
    root.mkdir()
    for number in range(count):
        (root / f"{number}").write_text(f"{number}\n")
        os.utime(root / f"{number}", (1_000_000 + number, 1_000_000 + number))
    source = make(root)
    offset, first = run_batch(source, source.initial())
    offset, second = run_batch(source, offset)
    assert [*first, *second] == ["0", "1", "2", "3"]
    return root, offset


def test_read_files_may_be_deleted_and_added_ones_are_not_read(tmp_path: Path, kind: str) -> None:
    root, offset = begun(tmp_path)
    assert kind in offset["listed"]
    for number in range(4):
        (root / f"{number}").unlink()
    (root / "45").write_text("added\n")
    (root / "00").write_text("added\n")
    (root / "zz").write_text("added\n")
    assert rest(make(root), offset) == ["4", "5", "6", "7", "8"]


@pytest.mark.parametrize("number", [4, 5, 6, 8])
def test_a_missing_file_is_an_error_by_name_until_it_is_back(
    tmp_path: Path, kind: str, number: int
) -> None:
    root, offset = begun(tmp_path)
    path = root / f"{number}"
    path.rename(tmp_path / "saved")
    message = f"1 file to be read is missing: {path} \\(2 bytes\\), listed at 20"
    if kind == "ranges":
        message = (
            f"of [23] files that were listed after .* up to {root}/[58] at 20.*, 1 are missing"
        )
    for look in (lambda: make(root).latest(offset, TWO), lambda: make(root).is_exhausted(offset)):
        with pytest.raises((FilesMissing, RangeChanged), match=message):
            look()
    os.utime(
        tmp_path / "saved", (1_000_000 + number, 1_000_000 + number)
    )  # its change time is new, as after a copy from a backup
    (tmp_path / "saved").rename(path)
    assert rest(make(root), offset) == ["4", "5", "6", "7", "8"]


def test_empty_or_missing_directory_does_not_end_the_source(tmp_path: Path, kind: str) -> None:
    root, offset = begun(tmp_path)
    root.rename(tmp_path / "away")
    with pytest.raises(SourceUnreachable, match=f"{root} does not exist"):
        make(root).is_exhausted(offset)
    root.mkdir()
    with pytest.raises((FilesMissing, RangeChanged)) as error:
        make(root).is_exhausted(offset)
    if kind == "names":
        assert f"5 files to be read are missing: {root}/4 (2 bytes), {root}/5" in str(error.value)


@pytest.mark.usefixtures("kind")
def test_changed_file_is_read_or_skipped_by_option(tmp_path: Path) -> None:
    root, offset = begun(tmp_path)
    path = root / "6"
    path.write_text("six\n")
    with pytest.raises((ListedFileChanged, RangeChanged), match="--accept-file") as error:
        make(root).latest(offset, TWO)
    advised = str(error.value).partition("--accept-file ")[2].split(",")[0]
    assert rest(make(root, accept=(advised,)), offset) == ["4", "5", "six", "7", "8"]
    assert rest(make(root, accept=(str(path),)), offset) == ["4", "5", "six", "7", "8"]
    assert rest(make(root, skip=(str(path),)), offset) == ["4", "5", "7", "8"]
    path.unlink()
    assert rest(make(root, skip=(str(path),)), offset) == ["4", "5", "7", "8"]
    assert rest(make(root, skip=(str(root),)), offset) == []


@pytest.mark.usefixtures("kind")
def test_skipped_files_stay_skipped_after_a_restart(tmp_path: Path) -> None:
    root, offset = begun(tmp_path)
    (root / "8").unlink()
    offset, lines = run_batch(make(root, skip=(str(root / "8"),)), offset)
    assert lines == ["4", "5"]
    assert rest(make(root), offset) == ["6", "7"]


def test_truncated_file_counts_as_changed_and_filtered_file_as_excluded(
    tmp_path: Path,
) -> None:
    root, offset = begun(tmp_path)
    with pytest.raises(
        ListedFileExcluded,
        match=f"{root}/8 was listed at .*the options of the job file exclude it now",
    ):
        make(root, file_filter_pattern="[0-7]").latest(offset, TWO)
    (root / "5").write_text("")
    with pytest.raises(ListedFileChanged, match=f"{root}/5 had 2 bytes when .* has 0 now"):
        make(root).latest(offset, TWO)
    assert rest(make(root, accept=(str(root / "5"),)), offset) == ["4", "6", "7", "8"]


def test_a_file_that_changes_while_the_job_runs_is_named_before_it_is_read(tmp_path: Path) -> None:
    root, offset = begun(tmp_path)
    source = make(root)
    offset, _ = run_batch(source, offset)
    (root / "6").write_text("longer\n")
    with pytest.raises(ListedFileChanged, match=f"{root}/6 had 2 bytes when it was listed"):
        source.latest(offset, TWO)
    (root / "6").unlink()
    with pytest.raises(FilesMissing, match=f"{root}/6"):
        source.latest(offset, TWO)


def test_partly_read_file_must_be_unchanged(tmp_path: Path) -> None:
    root = tmp_path / "in"
    root.mkdir()
    (root / "big").write_text("".join(f"{i}\n" for i in range(100)))
    (root / "next").write_text("next\n")
    source = make(root)
    offset, lines = run_batch(source, source.initial(), Limit(rows=10))
    assert len(lines) == 10
    (root / "big").write_text("other\n")
    with pytest.raises(
        FileChanged, match=r"Rows of this file are in earlier checkpoints.*--restore checkpoint:N"
    ):
        make(root).latest(offset, TWO)
    assert rest(make(root, skip=(str(root / "big"),)), offset) == ["next"]


def test_a_position_of_version_1_is_read_and_compared_by_bytes(tmp_path: Path) -> None:
    root, offset = begun(tmp_path)
    old = {
        key: offset[key]
        for key in ("after", "until", "seen", "partial", "batch", "files", "bytes", "total")
    }
    old |= {"version": 1, "total": 18}
    (root / "0").unlink()
    assert rest(make(root), old) == ["4", "5", "6", "7", "8"]
    (root / "7").unlink()
    with pytest.raises(
        UserError, match=r"10 bytes of files in .* were still to be read, but only 8 bytes exist"
    ):
        make(root).latest(old, TWO)
    assert rest(make(root, skip=(str(root / "7"),)), old) == ["4", "5", "6", "8"]


def test_a_list_of_very_many_files_stays_small() -> None:
    def listed(count: int) -> list[tuple[int, FileInfo]]:
        return [
            (
                0,
                FileInfo(
                    f"/data/day={i // 500:05}/part-{i:07}-{i * 7919 % 99991}.csv",
                    i * 31 % 99991,
                    10**18 + i * 7919,
                ),
            )
            for i in range(count)
        ]

    few, many = listed(1_000), listed(100_000)
    assert Inventory.of(record_listing(few, 1)).names == {
        (t, i.path): (i.size, i.mtime_ns) for t, i in few
    }
    ranges = Inventory.of(record_listing(many, 1)).ranges
    assert sum(each.files for each in ranges) == len(many)
    assert ranges[-1].last == (0, many[-1][1].path)
    deep = [
        (
            0,
            FileInfo(
                f"/{i:04}" + "/".join(f"{i * 7919 % (j + 99991):05}" for j in range(600)), 1, i
            ),
        )
        for i in range(3_000)
    ]
    assert (
        max(len(json.dumps(record_listing(files, 1))) for files in (few, many, deep))
        < LIST_CHARS_MAX + 100
    )
    assert (
        len(json.dumps(FilePosition(listed=record_listing(many, 1)).to_json()))
        < LIST_CHARS_MAX + 1_000
    )
