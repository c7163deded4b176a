"""The reference pages are what the code declares."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def docs(tree) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "docs_under_test", tree.root / "scripts" / "docs.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_pages_are_what_the_code_says(docs: ModuleType) -> None:
    assert docs.stale(docs.FOLDER, docs.pages()) == [], "run `make docs`"


def test_every_option_of_every_connector_is_in_the_reference(docs: ModuleType) -> None:
    pages = docs.pages()
    for connector in docs.connectors():
        page = pages[f"{connector.kind.value}s.md"]
        section = page.partition(f"\n## {connector.name}\n")[2].partition("\n## ")[0]
        assert [
            option.key
            for option in connector.options.options
            if f"| `{option.key}` |" not in section
        ] == []
    assert [
        option.key
        for option in docs.ENV_OPTIONS.options
        if f"| `{option.key}` |" not in pages["env.md"]
    ] == []


def test_every_command_is_in_the_reference(docs: ModuleType) -> None:
    assert [
        verb for verb in docs.COMMANDS if f"## tidegate {verb}\n" not in docs.pages()["commands.md"]
    ] == []


def test_every_route_is_in_the_reference(docs: ModuleType) -> None:
    pages = docs.pages()
    assert "## POST /submit-job\n" in pages["rest-v2.md"]
    assert "## GET /api/v1/jobs/{job_id}\n" in pages["api-v1.md"]
    for name in ("rest-v2.md", "api-v1.md"):
        sections = pages[name].partition("\n# Objects\n")[0].split("\n## ")[1:]
        assert [
            section.splitlines()[0]
            for section in sections
            if "\nRole: " not in section or "\n- 2" not in section
        ] == []


def test_pages_that_are_missing_changed_or_left_over_are_found_and_others_left_alone(
    docs: ModuleType, tmp_path: Path
) -> None:
    wanted = {name: docs.MARK + name for name in ("same.md", "changed.md", "missing.md")}
    (tmp_path / "same.md").write_text(wanted["same.md"])
    (tmp_path / "changed.md").write_text(wanted["changed.md"] + "by hand")
    (tmp_path / "left.md").write_text(docs.MARK)
    (tmp_path / "by-hand.md").write_text("# Written by a person")
    assert docs.stale(tmp_path, wanted) == ["changed.md", "left.md", "missing.md"]


def test_writing_mends_what_the_check_complains_about(
    docs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docs, "FOLDER", tmp_path / "reference")
    assert docs.main(["--check"]) == 1
    assert docs.main([]) == 0
    assert docs.main(["--check"]) == 0


def test_a_cell_of_a_table_cannot_end_early(docs: ModuleType) -> None:
    assert docs._cell("a|b\nc") == "a\\|b c"
