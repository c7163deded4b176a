"""What a continuous source remembers of missing files, and while its directory is missing."""

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from tidegate.connectors.localfile import seen_files
from tidegate.connectors.localfile import source as source_module
from tidegate.connectors.localfile.position import FilePosition
from tidegate.connectors.localfile.source import LocalFileSource
from tidegate.connectors.localfile.source_errors import TooManyFiles
from tidegate.connectors.localfile.source_options import SOURCE_OPTIONS
from tidegate.model.errors import SourceUnreachable
from tidegate.model.job import JobMode
from tidegate.model.problem import Location
from tidegate.plugin.contract import Limit, OperatorContext
from tidegate.plugin.option import Block

DAY_MS = 24 * 3_600_000


def make(*paths: Path | str, skip: tuple[str, ...] = (), **options: Any) -> LocalFileSource:
    entries = [
        {"path": str(path), "file_format_type": "text", "schema": {"table": f"t{i}"}}
        for i, path in enumerate(paths)
    ]
    given = {
        "tables_configs": entries,
        "discovery_mode": "continuous",
        "scan_interval": 0,
        **options,
    }
    values, problems = SOURCE_OPTIONS.read(
        Block(given, lambda _: Location("job.conf"), "source[0]")
    )
    assert not problems
    context = OperatorContext(
        job_id=1,
        job_name="j",
        pipeline=1,
        operator="s",
        mode=JobMode.STREAMING,
        parallelism=1,
        skip_files=skip,
    )
    return LocalFileSource(values, context)


def run_batch(source: LocalFileSource, start: Any) -> tuple[Any, list[str]]:
    end = json.loads(json.dumps(source.latest(start, Limit())))
    if end == start:
        return end, []
    batches = (batch for split in source.splits(start, end, 2) for batch in source.read(split))
    return end, [row["content"] for batch in batches for row in batch.to_pylist()]


def put(place: Path, *names: str) -> None:
    place.mkdir(exist_ok=True)
    for name in names:
        (place / name).write_text(f"{name}\n")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    now = [1_800_000_000_000]
    monkeypatch.setattr(source_module, "_now_ms", lambda: now[0])
    return now


def test_a_file_that_comes_back_within_the_retention_is_not_read_again(
    tmp_path: Path, clock: list[int]
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    put(one, "a", "b")
    put(other, "c")
    source = make(one, other)
    offset, lines = run_batch(source, source.initial())
    assert lines == ["a", "b", "c"]
    one.rename(tmp_path / "away")
    one.mkdir()
    for day in range(6):
        clock[0] += DAY_MS
        put(other, f"d{day}")
        offset, lines = run_batch(make(one, other), offset)
        assert lines == [f"d{day}"]
    one.rmdir()
    (tmp_path / "away").rename(one)
    assert run_batch(make(one, other), offset) == (offset, [])
    put(one, "new")
    offset, lines = run_batch(make(one, other), offset)
    assert lines == ["new"]
    assert not FilePosition.of(offset).missing_since


def test_a_file_that_was_found_missing_longer_than_the_retention_ago_is_forgotten(
    tmp_path: Path, clock: list[int]
) -> None:
    root = tmp_path / "in"
    put(root, "a")
    source = make(root, file_retention=DAY_MS)
    offset, _ = run_batch(source, source.initial())
    (root / "a").unlink()
    clock[0] += 30 * DAY_MS  # idle: nobody has found it missing yet
    put(root, "b")
    offset, _ = run_batch(make(root, file_retention=DAY_MS), offset)
    put(root, "a")
    assert run_batch(make(root, file_retention=DAY_MS), offset) == (offset, [])
    (root / "a").unlink()
    clock[0] += 2 * DAY_MS
    put(root, "c")
    offset, _ = run_batch(make(root, file_retention=DAY_MS), offset)
    put(root, "a")
    assert run_batch(make(root, file_retention=DAY_MS), offset)[1] == ["a"]


def test_files_missing_longest_are_forgotten_first_with_a_warning(
    tmp_path: Path,
    clock: list[int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(source_module, "SEEN_FILES_MAX", 3)
    root = tmp_path / "in"
    put(root, "a", "b")
    source = make(root)
    offset, _ = run_batch(source, source.initial())
    (root / "a").unlink()
    put(root, "c")
    offset, _ = run_batch(make(root), offset)
    (root / "b").unlink()
    put(root, "d")
    with pytest.raises(TooManyFiles, match="missing for less than an hour"):
        make(root).latest(offset, Limit())
    clock[0] += DAY_MS
    with caplog.at_level(logging.WARNING, "tidegate.localfile"):
        offset, lines = run_batch(make(root), offset)
    assert lines == ["d"]
    assert ["file_marks_forgotten" in record.message for record in caplog.records] == [True]
    put(root, "b")
    assert run_batch(make(root), offset) == (offset, [])


@pytest.mark.parametrize("pattern", ["", "/*.txt", "/**"])
def test_missing_directory_is_unreachable_and_nothing_is_forgotten(
    tmp_path: Path, pattern: str
) -> None:
    root = tmp_path / "in"
    put(root, "a.txt")
    source = make(f"{root}{pattern}")
    offset, lines = run_batch(source, source.initial())
    assert lines == ["a.txt"]
    root.rename(tmp_path / "away")
    for looking in (source, make(f"{root}{pattern}")):
        with pytest.raises(SourceUnreachable, match=f"{root} does not exist"):
            looking.latest(offset, Limit())
    (tmp_path / "away").rename(root)
    assert run_batch(source, offset) == (offset, [])


def test_source_waits_for_files_of_a_batch_in_a_missing_directory(tmp_path: Path) -> None:
    root = tmp_path / "in"
    put(root, "a")
    source = make(root)
    start = source.initial()
    end = source.latest(start, Limit())
    (split,) = source.splits(start, end, 1)
    root.rename(tmp_path / "away")
    with pytest.raises(SourceUnreachable, match=f"{root} does not exist any more"):
        source.splits(start, end, 1)
    with pytest.raises(SourceUnreachable, match=f"{root} does not exist"):
        list(source.read(split))


def test_unmounted_disk_is_unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounted = {str(tmp_path / "disk"), "/"}
    monkeypatch.setattr(os.path, "ismount", lambda path: str(path) in mounted)
    root = tmp_path / "disk" / "in"
    root.mkdir(parents=True)
    put(root, "a")
    source = make(root)
    offset, _ = run_batch(source, source.initial())
    assert FilePosition.of(offset).mounts == (str(tmp_path / "disk"),)
    (root / "a").rename(tmp_path / "a")
    assert run_batch(make(root), offset) == (offset, [])  # only moved away
    mounted.clear()
    mounted.add("/")
    with pytest.raises(SourceUnreachable, match=f"{tmp_path}/disk is no longer mounted"):
        make(root).latest(offset, Limit())
    put(root, "b")
    assert run_batch(make(root, skip=(str(tmp_path / "disk"),)), offset) == (offset, [])
    (tmp_path / "a").rename(root / "a")  # it is a plain directory now
    assert run_batch(make(root), offset)[1] == ["b"]


def test_file_written_after_it_was_read_is_logged_and_not_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path / "in", "a")
    source = make(tmp_path / "in")
    offset, _ = run_batch(source, source.initial())
    put(tmp_path / "in", "b")
    (tmp_path / "in" / "a").write_text("a\nmore\n")
    with caplog.at_level(logging.WARNING, "tidegate.localfile"):
        offset, lines = run_batch(source, offset)
        run_batch(source, offset)
    assert lines == ["b"]
    assert [record.__dict__["path"] for record in caplog.records] == [str(tmp_path / "in" / "a")]


def test_file_that_grows_between_listing_and_planning_is_postponed(tmp_path: Path) -> None:
    put(tmp_path / "in", "a", "b")
    source = make(tmp_path / "in", scan_interval=600_000)
    for name in "ab":
        os.utime(tmp_path / "in" / name, (1, 1))
    source._list()
    (tmp_path / "in" / "a").write_text("a\nmore\n")
    offset, lines = run_batch(source, source.initial())
    assert lines == ["b"]
    os.utime(tmp_path / "in" / "a", (1, 1))
    assert run_batch(make(tmp_path / "in", scan_interval=600_000), offset)[1] == ["a", "more"]


def test_times_of_many_missing_files_are_few(clock: list[int]) -> None:
    position = FilePosition(seen=frozenset())
    for step in range(700):
        now_ms = clock[0] + step * DAY_MS // 100
        done = {step.to_bytes(8, "big")}
        kept = seen_files.update_seen_files(
            position, (), done, now_ms=now_ms, retention_ms=7 * DAY_MS, limit=20_000
        )
        position = FilePosition(seen=kept.seen, missing_since=kept.missing_since)
    assert len(kept.seen) == 700
    assert len(position.to_json()["away"]) <= 102
