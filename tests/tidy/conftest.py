"""The files that the rules of this folder look at.

Rules take text and return complaints, so that each is also shown a text that breaks it.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "golden"))
MADE_HERE = {
    ".git",
    ".venv",
    "build",
    "dist",
    "__pycache__",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
    ".import_linter_cache",
}


class Tree:
    """The repository as text: what a person wrote, not what was made from it."""

    root = ROOT

    def files(self, *folders: str, suffix: str = "") -> Iterator[tuple[str, str]]:
        """(path from the root, text) of the files under these folders; of all without folders."""
        for folder in folders or (".",):
            for path in sorted((ROOT / folder).rglob(f"*{suffix}")):
                parts = path.relative_to(ROOT).parts
                if (
                    path.is_file()
                    and not MADE_HERE & set(parts)
                    and not any(part.endswith(".egg-info") for part in parts)
                ):
                    yield "/".join(parts), path.read_text(encoding="utf-8", errors="replace")

    def python(self, *folders: str) -> Iterator[tuple[str, str]]:
        """The Python files, of everything that is ours unless folders are named."""
        return self.files(
            *(folders or ("src", "tests", "scripts", "benchmarks", "docs")), suffix=".py"
        )


@pytest.fixture
def tree() -> Tree:
    return Tree()
