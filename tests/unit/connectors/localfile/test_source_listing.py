"""Listing of files: recursion, links, and unreadable directories."""

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from tidegate.connectors.localfile import listing
from tidegate.connectors.localfile.listing import list_files, matches_nothing, scan
from tidegate.connectors.localfile.options import SOURCE_OPTIONS
from tidegate.connectors.localfile.source import LocalFileSource
from tidegate.model.errors import SourceUnreachable
from tidegate.model.job import JobMode
from tidegate.model.problem import Location
from tidegate.plugin.contract import OperatorContext
from tidegate.plugin.option import Block


def values(path: Path | str, **options: Any) -> Any:
    given = {"path": str(path), "file_format_type": "text", **options}
    found, problems = SOURCE_OPTIONS.read(Block(given, lambda _: Location("job.conf"), "source[0]"))
    assert not problems
    return found


def names(root: Path, path: Path | str | None = None, **options: Any) -> list[str]:
    return [
        os.path.relpath(info.path, root) for info in list_files(values(path or root, **options))
    ]


def put(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{path.name}\n")


def test_only_files_directly_in_the_path_are_read_without_recursion(tmp_path: Path) -> None:
    put(
        tmp_path / "a.txt",
        tmp_path / "b.csv",
        tmp_path / "below" / "c.txt",
        tmp_path / "below" / "deep" / "d.txt",
    )
    (tmp_path / "link").symlink_to(tmp_path / "below" / "deep")
    everything = ["a.txt", "b.csv", "below/c.txt", "below/deep/d.txt"]
    assert names(tmp_path) == everything
    assert names(tmp_path, recursive_file_scan=True) == everything
    assert names(tmp_path, recursive_file_scan=False) == ["a.txt", "b.csv"]
    assert names(tmp_path, recursive_file_scan="false", file_filter_pattern=r".*\.txt") == ["a.txt"]
    assert names(tmp_path, recursive_file_scan=False, filename_extension="csv") == ["b.csv"]
    assert names(tmp_path, f"{tmp_path}/bel*", recursive_file_scan=False) == ["below/c.txt"]
    assert names(tmp_path, tmp_path / "a.txt", recursive_file_scan=False) == ["a.txt"]
    only_below = values(tmp_path, recursive_file_scan=False, file_filter_pattern="d.txt")
    assert matches_nothing(only_below)


def test_patterns_match_files_and_directories_at_any_depth(tmp_path: Path) -> None:
    put(
        tmp_path / "x.txt",
        tmp_path / "a" / "x.txt",
        tmp_path / "a" / "b" / "x1.csv",
        tmp_path / "a" / ".c" / "x.txt",
    )
    assert names(tmp_path, f"{tmp_path}/**") == ["a/b/x1.csv", "a/x.txt", "x.txt"]
    assert names(tmp_path, f"{tmp_path}/**/*.txt") == ["a/x.txt", "x.txt"]
    assert names(tmp_path, f"{tmp_path}/**/b") == ["a/b/x1.csv"]
    assert names(tmp_path, f"{tmp_path}/**/x[0-9].*") == ["a/b/x1.csv"]
    assert names(tmp_path, f"{tmp_path}/**/[!a-w].txt") == ["a/x.txt", "x.txt"]
    assert names(tmp_path, f"{tmp_path}/**/a", recursive_file_scan=False) == ["a/x.txt"]
    assert names(tmp_path, f"{tmp_path}/*") == ["a/b/x1.csv", "a/x.txt", "x.txt"]
    assert names(tmp_path, f"{tmp_path}/nothing/**") == []


def test_an_entry_of_tables_configs_has_a_scan_of_its_own(tmp_path: Path) -> None:
    put(tmp_path / "a.txt", tmp_path / "below" / "c.txt")
    entry = {"path": str(tmp_path), "file_format_type": "text"}
    given = {"tables_configs": [{**entry, "recursive_file_scan": False}, entry]}
    found, _ = SOURCE_OPTIONS.read(Block(given, lambda _: Location("job.conf"), "source[0]"))
    context = OperatorContext(
        job_id=1, job_name="j", pipeline=1, operator="s", mode=JobMode.BATCH, parallelism=1
    )
    source = LocalFileSource(found, context)
    assert [len(table.files()) for table in source.files] == [1, 2]


def test_links_to_parent_directories_are_harmless_and_each_directory_is_read_once(
    tmp_path: Path,
) -> None:
    put(
        tmp_path / "in" / "a.txt",
        tmp_path / "in" / "z" / "deep" / "b.txt",
        tmp_path / "outside" / "c.txt",
    )
    root = tmp_path / "in"
    (root / "loop").symlink_to(".")
    (root / "z" / "up").symlink_to("..")
    (root / "a-first").symlink_to(root / "z" / "deep")  # sorts before the real one
    (root / "more").symlink_to(tmp_path / "outside")
    (tmp_path / "outside" / "back").symlink_to(root)
    assert names(root) == ["a.txt", "more/c.txt", "z/deep/b.txt"]
    assert names(root, f"{root}/**") == ["a.txt", "more/c.txt", "z/deep/b.txt"]


def test_a_link_to_a_file_is_read_unless_that_file_is_read_anyway(tmp_path: Path) -> None:
    put(tmp_path / "in" / "data-1.txt", tmp_path / "outside.txt")
    root = tmp_path / "in"
    (root / "current.txt").symlink_to("data-1.txt")
    (root / "far.txt").symlink_to(tmp_path / "outside.txt")
    (root / "far-again.txt").symlink_to(tmp_path / "outside.txt")
    os.link(tmp_path / "outside.txt", root / "hard.txt")
    assert names(root) == ["data-1.txt", "hard.txt"]
    (root / "hard.txt").unlink()
    assert names(root) == ["data-1.txt", "far-again.txt"]
    assert names(root, file_filter_pattern="current.*") == ["current.txt"]


def test_broken_links_are_named_and_do_no_harm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path / "a.txt")
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere")
    (tmp_path / "self.txt").symlink_to("self.txt")
    (tmp_path / "through.txt").symlink_to("a.txt/x")
    (tmp_path / "other.bak").symlink_to(tmp_path / "nowhere")
    found = scan(values(tmp_path, filename_extension="txt"))
    assert [os.path.basename(path) for path in found.broken] == [
        "gone.txt",
        "self.txt",
        "through.txt",
    ]
    context = OperatorContext(
        job_id=1, job_name="j", pipeline=1, operator="s", mode=JobMode.BATCH, parallelism=1
    )
    with caplog.at_level(logging.WARNING, "tidegate.localfile"):
        LocalFileSource(values(tmp_path, filename_extension="txt"), context).initial()
    named = sorted(record.__dict__["path"] for record in caplog.records)
    assert named == sorted(str(tmp_path / name) for name in ("gone.txt", "self.txt", "through.txt"))


def test_a_directory_that_cannot_be_listed_is_an_error_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "a.txt", tmp_path / "closed" / "b.txt")
    scandir = os.scandir

    def refusing(path: str) -> Any:
        if path.endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(listing.os, "scandir", refusing)
    with pytest.raises(
        SourceUnreachable, match=f"{tmp_path}/closed cannot be listed: Permission denied"
    ):
        list_files(values(tmp_path))
    assert names(tmp_path, recursive_file_scan=False) == ["a.txt"]


def test_missing_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        SourceUnreachable, match=f"{tmp_path}/in does not exist: mount or restore it"
    ):
        list_files(values(tmp_path / "in"))
    (tmp_path / "in").symlink_to(tmp_path / "nowhere")
    with pytest.raises(SourceUnreachable, match="in does not exist"):
        list_files(values(tmp_path / "in"))
