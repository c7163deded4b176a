"""The parts beside this file can be imported by name."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from coordinator_parts import Installation  # after its folder is on the path


@pytest.fixture
def here(tmp_path: Path) -> Installation:
    """An installation of this test's own."""
    return Installation(tmp_path)
