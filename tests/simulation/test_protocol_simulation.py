"""Hundreds of seeded runs of a job without processes and without Spark: the real claim, ledger,
loop, savepoints and checkpoint storage.

Under kills, exceptions, long pauses, a store that fails or is lost, generations that overlap,
damaged checkpoints, and users who restore older ones: rows exactly once, ids only grow, one
generation completes a checkpoint, none is lost. The seed of a failed run is printed:
`TIDEGATE_FAILPOINT= python tests/simulation/simulate.py SEED 1 --trace`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RUNS = 300
FIRST = 7_000_000  # always the same seeds here; the soak draws its own
SOAK_RUNS = 20_000
SHARES = 2


def run_seeds(first: int, count: int) -> list[dict[str, int]]:
    """Run so many seeds from the first on, in as many processes as a machine surely has cores."""
    share = count // SHARES
    environ = {**os.environ, "TIDEGATE_FAILPOINT": "", "PYTHONPATH": str(HERE.parents[1] / "src")}
    running = [
        subprocess.Popen(
            [sys.executable, str(HERE / "simulate.py"), str(first + number * share), str(share)],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(SHARES)
    ]
    ended = [(process, *process.communicate()) for process in running]
    for process, _, complaint in ended:
        assert process.returncode == 0, complaint[-8000:]
    return [json.loads(output) for _, output, _ in ended]


LEAST = {
    "processes": 3.0,
    "checkpoints": 5.0,
    "streaming": 0.1,
    "damaged": 0.05,
    "lost stores": 0.1,
    "backs": 0.02,
    "ahead": 0.05,
    "savepoints": 0.03,
    "from savepoints": 0.01,
}
"""The least that must happen per run: a simulation without events proves nothing."""


def check(totals: list[dict[str, int]], count: int) -> None:
    assert sum(total["runs"] for total in totals) == count
    for fact, least in LEAST.items():
        assert sum(total[fact] for total in totals) > least * count, (fact, totals)


@pytest.mark.timeout(900)
def test_hundreds_of_runs_of_a_job_keep_every_invariant() -> None:
    check(run_seeds(FIRST, RUNS), RUNS)


@pytest.mark.soak
def test_many_thousand_runs_of_a_job_keep_every_invariant(seed: int) -> None:
    check(run_seeds(seed, SOAK_RUNS), SOAK_RUNS)
