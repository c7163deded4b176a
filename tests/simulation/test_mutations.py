"""The product is broken on purpose, in one place after the other, and the simulation must catch each of them: what it cannot catch it does not prove.

Each mutation runs in a process of its own, on the same seeds; how many of them it takes is a measure of how sharp the checkers are (shown with `pytest -rP`).
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.testing.simulation.mutations import MUTATIONS

SOURCE = Path(__file__).parents[2] / "src"
SEEDS_MAX = 1500  # most need a handful, the rarest some hundred


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutation", sorted(MUTATIONS))
def test_the_simulation_catches_a_mistake(mutation: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tidegate.testing.simulation", "--seed", "1", "--count", str(SEEDS_MAX), "--mutation", mutation],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1, f"{mutation} was not caught within {SEEDS_MAX} seeds:\n{ended.stdout}{ended.stderr[-2000:]}"
    found = re.search(r"^seed (\d+), .*\n(.*)", ended.stderr, re.MULTILINE)
    assert found, ended.stderr[-4000:]
    print(f"{mutation}: caught by seed {found[1]}: {found[2]}")
