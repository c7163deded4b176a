"""A source that scans continuously for new files."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tidegate.connectors.localfile import source as source_module
from tidegate.connectors.localfile.position import FilePosition
from tidegate.connectors.localfile.source import LocalFileSource
from tidegate.connectors.localfile.source_options import SOURCE_OPTIONS
from tidegate.model.job import JobMode
from tidegate.model.problem import Location
from tidegate.plugin.contract import Limit, OperatorContext
from tidegate.plugin.option import Block


def make(path: Path, scan_interval: int = 0, **options: Any) -> LocalFileSource:
    given = {
        "path": str(path),
        "file_format_type": "text",
        "discovery_mode": "continuous",
        "scan_interval": scan_interval,
        **options,
    }
    values, problems = SOURCE_OPTIONS.read(
        Block(given, lambda _: Location("job.conf"), "source[0]")
    )
    assert not problems
    return LocalFileSource(
        values,
        OperatorContext(
            job_id=1, job_name="j", pipeline=1, operator="s", mode=JobMode.STREAMING, parallelism=1
        ),
    )


def run_batch(
    source: LocalFileSource, start: Any, limit: Limit | None = None
) -> tuple[Any, list[str]]:
    """Run one batch; return its end and its lines."""
    end = json.loads(json.dumps(source.latest(start, limit or Limit())))
    if end == start:
        return end, []
    return end, [
        row["content"]
        for split in source.splits(start, end, 2)
        for batch in source.read(split)
        for row in batch.to_pylist()
    ]


def test_new_files_are_read_once_whatever_their_names_and_times(tmp_path: Path) -> None:
    source = make(tmp_path)
    offset = source.initial()
    assert run_batch(source, offset) == (offset, [])
    (tmp_path / "m").write_text("m\n")
    offset, lines = run_batch(source, offset)
    assert lines == ["m"]
    for name in "za":
        (tmp_path / name).write_text(f"{name}\n")
        os.utime(tmp_path / name, (1, 1))
    offset, lines = run_batch(source, offset)
    assert lines == ["a", "z"]
    assert run_batch(source, offset) == (offset, [])
    assert run_batch(make(tmp_path), offset) == (offset, [])  # nor by the next driver
    assert not source.is_exhausted(offset)
    assert not source.bounded
    assert source.progress(offset) is None


def test_without_a_retention_missing_files_are_forgotten_at_once(tmp_path: Path) -> None:
    source = make(tmp_path, file_retention=0)
    offset = source.initial()
    sizes = []
    for i in range(20):
        (tmp_path / f"{i}").write_text(f"{i}\n")
        offset, lines = run_batch(source, offset)
        assert lines == [f"{i}"]
        (tmp_path / f"{i}").unlink()
        sizes.append(len(FilePosition.of(offset).seen or ()))
    assert max(sizes) <= 2


def test_file_is_read_only_when_it_no_longer_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1_000_000_000]
    monkeypatch.setattr(source_module, "_now_ms", lambda: clock[0])
    (tmp_path / "old").write_text("old\n")
    (tmp_path / "new").write_text("new\n")
    os.utime(tmp_path / "old", (clock[0] / 1000 - 11, clock[0] / 1000 - 11))
    os.utime(tmp_path / "new", (clock[0] / 1000 - 5, clock[0] / 1000 - 5))
    source = make(tmp_path, scan_interval=10_000)
    offset, lines = run_batch(source, source.initial())
    assert lines == ["old"]
    clock[0] += 6_000
    assert run_batch(source, offset)[1] == ["new"]


def test_file_from_the_future_is_read_when_two_listings_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "_now_ms", lambda: 0)
    (tmp_path / "f").write_text("x\n")
    source = make(tmp_path, scan_interval=10_000)
    offset = source.initial()
    assert run_batch(source, offset) == (offset, [])
    assert run_batch(source, offset) == (offset, [])  # within the interval: not listed again
    source._listed_at -= 10
    (tmp_path / "f").write_text("x\ny\n")
    assert run_batch(source, offset) == (offset, [])
    source._listed_at -= 10
    assert run_batch(source, offset)[1] == ["x", "y"]


def test_a_large_file_is_read_over_several_batches_while_others_come(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("".join(f"{i}\n" for i in range(100)))
    source = make(tmp_path)
    offset = source.initial()
    found: list[str] = []
    for i in range(15):
        (tmp_path / f"a{i}").write_text("a\n")
        offset, lines = run_batch(source, offset, Limit(rows=20))
        assert len(lines) <= 20
        found += lines
    assert [line for line in found if line != "a"] == [str(i) for i in range(100)]
    assert found.count("a") == 15


def test_once_in_a_streaming_job_ends(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x\n")
    source = make(tmp_path, discovery_mode="once")
    assert source.bounded
    offset, lines = run_batch(source, source.initial())
    assert lines == ["x"]
    assert source.is_exhausted(offset)


def test_has_backlog_while_files_or_parts_wait_for_the_next_batch(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_text("1\n2\n3\n")
    source = make(tmp_path)
    offset, found = source.initial(), []
    assert source.has_backlog(offset)  # nothing was listed yet
    read = 0
    while read < 9:
        offset, lines = run_batch(source, offset, Limit(rows=4))
        read += len(lines)
        found.append(source.has_backlog(offset))
    assert found == [True] * (len(found) - 1) + [False]
    assert len(found) > 2
    assert (run_batch(source, offset)[1], source.has_backlog(offset)) == ([], False)
    (tmp_path / "d").write_text("1\n")
    assert [run_batch(source, offset, Limit(files=1))[1], source.has_backlog(offset)] == [
        ["1"],
        False,
    ]
