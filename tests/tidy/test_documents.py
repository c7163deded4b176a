"""The documents that a change must keep: changelog, decisions, commands."""

import os
import re


def test_the_changelog_has_a_place_for_the_next_change(tree) -> None:
    assert re.search(
        r"^## \[?Unreleased\]?$", (tree.root / "CHANGELOG.md").read_text(), flags=re.MULTILINE
    )


def test_decisions_are_numbered_without_gaps(tree) -> None:
    names = sorted(path.name for path in (tree.root / "docs" / "decisions").glob("*.md"))
    assert [name for name in names if not re.fullmatch(r"\d{3}-[a-z0-9-]+\.md", name)] == []
    assert [int(name[:3]) for name in names] == list(range(1, len(names) + 1))


def test_every_target_of_the_makefile_that_a_document_names_is_there(tree) -> None:
    targets = set(
        re.findall(r"^([a-z]+):", (tree.root / "Makefile").read_text(), flags=re.MULTILINE)
    )
    named = {
        target
        for path, text in tree.files(suffix=".md")
        for target in re.findall(r"`make ([a-z]+)", text)
    }
    assert named - targets == set()


def test_the_command_of_the_continuous_check_can_be_run(tree) -> None:
    run = tree.root / ".ci" / "run"
    assert os.access(run, os.X_OK)
    assert {"make check", "make test"} <= set(
        re.findall(r"^make \w+", run.read_text(), flags=re.MULTILINE)
    )
