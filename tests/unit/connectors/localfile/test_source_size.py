"""Offsets stay small enough for the store, whatever the number of files."""

import json
from pathlib import Path
from typing import Any

import pytest

from tidegate.connectors.localfile import source as source_module
from tidegate.connectors.localfile.inventory import LIST_CHARS_MAX
from tidegate.connectors.localfile.position import (
    BATCH_CHARS_MAX,
    SEEN_FILES_MAX,
    FilePosition,
    file_hash,
)
from tidegate.connectors.localfile.source import LocalFileSource
from tidegate.connectors.localfile.source_errors import TooManyFiles
from tidegate.connectors.localfile.source_options import SOURCE_OPTIONS
from tidegate.model.job import JobMode
from tidegate.model.problem import Location
from tidegate.plugin.contract import Limit, OperatorContext
from tidegate.plugin.option import Block
from tidegate.store.encoding import VALUE_BYTES_MAX


def make(path: Path, mode: JobMode = JobMode.BATCH, **options: Any) -> LocalFileSource:
    given = {"path": str(path), "file_format_type": "text", "scan_interval": 0, **options}
    values, problems = SOURCE_OPTIONS.read(
        Block(given, lambda _: Location("job.conf"), "source[0]")
    )
    assert not problems
    return LocalFileSource(
        values,
        OperatorContext(job_id=1, job_name="j", pipeline=1, operator="s", mode=mode, parallelism=1),
    )


def fill(path: Path, count: int, name: str = "{:05}") -> None:
    path.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        (path / name.format(i)).write_text(f"{i}\n")


def test_without_any_limit_many_files_are_a_few_batches_and_every_one_is_read_once(
    tmp_path: Path,
) -> None:
    deep = tmp_path / ("d" * 200) / ("東" * 50)
    fill(deep, 600)
    source = make(tmp_path)
    offset = source.initial()
    batches = []
    while not source.is_exhausted(offset):
        end = source.latest(offset, Limit())
        assert len(json.dumps([offset, end])) < 2 * (BATCH_CHARS_MAX + LIST_CHARS_MAX) + 8_000
        batches.append(
            [part[0] for split in source.splits(offset, end, 2) for part in split.payload[1]]
        )
        offset = end
    assert 1 < len(batches) < 20
    assert sorted(path for batch in batches for path in batch) == sorted(
        str(p) for p in deep.iterdir()
    )
    assert source.latest(offset, Limit()) == offset


def test_a_few_files_without_a_limit_are_one_batch(tmp_path: Path) -> None:
    fill(tmp_path, 50)
    source = make(tmp_path)
    assert source.is_exhausted(source.latest(source.initial(), Limit()))


def test_continuous_source_advises_about_too_many_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "SEEN_FILES_MAX", 5)
    source = make(tmp_path, JobMode.STREAMING, discovery_mode="continuous")
    fill(tmp_path, 5)
    offset = source.latest(source.initial(), Limit())
    assert len(FilePosition.of(offset).batch) == 5
    (tmp_path / "x").write_text("x\n")
    with pytest.raises(
        TooManyFiles,
        match=(
            rf"there are 6 files in {tmp_path}: discovery_mode = continuous handles at most 5;"
            r" move files away"
        ),
    ):
        source.latest(offset, Limit())
    (tmp_path / "00000").unlink()
    with pytest.raises(
        TooManyFiles, match=r"1 of them missing for less than an hour.*lower file_retention"
    ):
        source.latest(offset, Limit())
    source = make(tmp_path, JobMode.STREAMING, discovery_mode="continuous", file_retention=0)
    assert [s.part.path for s in FilePosition.of(source.latest(offset, Limit())).batch] == [
        str(tmp_path / "x")
    ]
    fill(tmp_path, 9)
    assert make(tmp_path).latest(make(tmp_path).initial(), Limit())  # a bounded one does not mind


def test_the_largest_offset_fits_into_the_store_as_start_and_end() -> None:
    seen = frozenset(file_hash(0, str(i)) for i in range(SEEN_FILES_MAX))
    offset = json.dumps(FilePosition(seen=seen).to_json())
    assert 2 * (len(offset) + BATCH_CHARS_MAX) < VALUE_BYTES_MAX * 0.8
