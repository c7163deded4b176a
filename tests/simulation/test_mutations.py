"""Mutations of the product that the simulation must catch: what it misses it does not prove.

Each mutation runs in a process of its own. Which seed catches it is a measure of how sharp the
checkers are (shown with `pytest -rP`); for mutations that are rarely caught the search starts near
a seed that is known to catch them, and continues if the product has changed since.
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
FIRST = {
    "figures-of-a-driver-that-nobody-knows": 283,
    "finished-pipeline-counts-as-progress-for-ever": 43,
    "ledger-without-the-fence": 187,
    "numbers-begin-anew-when-the-history-is-forgotten": 99,
    "restart-without-proof-of-death": 53,
    "restore-of-what-is-being-deleted": 36,
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutation", sorted(MUTATIONS))
def test_the_simulation_catches_a_mistake(mutation: str) -> None:
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "tidegate.testing.simulation",
            "--seed",
            str(FIRST.get(mutation, 1)),
            "--count",
            str(SEEDS_MAX),
            "--mutation",
            mutation,
        ],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1, (
        f"{mutation} was not caught within {SEEDS_MAX} seeds:\n{ended.stdout}{ended.stderr[-2000:]}"
    )
    found = re.search(r"^seed (\d+), .*\n(.*)", ended.stderr, re.MULTILINE)
    assert found, ended.stderr[-4000:]
    print(f"{mutation}: caught by seed {found[1]}: {found[2]}")


def test_only_mistakes_that_there_are_have_a_first_seed() -> None:
    assert set(FIRST) <= set(MUTATIONS)
