"""Hundreds of seeded lives of a job without processes and without Spark: the real claim, ledger,
loop, savepoints and checkpoint storage.

Under kills, exceptions, long pauses, a store that fails or is lost, generations that overlap,
checkpoints that are damaged, and people who go back on purpose: rows exactly once, ids only grow,
one generation completes a checkpoint, none is lost. The seed of a life that went wrong is printed:
`TIDEGATE_FAILPOINT= python tests/simulation/simulate.py SEED 1 --trace`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PLACE = Path(__file__).parent
LIVES = 300
FIRST = 7_000_000  # always the same lives here; the soak draws its own
LIVES_OF_A_SOAK = 20_000
SHARES = 2


def lives(first: int, count: int) -> list[dict[str, int]]:
    """So many lives from this seed on, in as many processes as this machine can be expected to have
    cores.
    """
    share = count // SHARES
    environ = {**os.environ, "TIDEGATE_FAILPOINT": "", "PYTHONPATH": str(PLACE.parents[1] / "src")}
    running = [
        subprocess.Popen(
            [sys.executable, str(PLACE / "simulate.py"), str(first + number * share), str(share)],
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
    return [json.loads(said) for _, said, _ in ended]


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
"""What must have happened, for each life: a simulation in which nothing happens proves nothing."""


def check(totals: list[dict[str, int]], count: int) -> None:
    assert sum(total["lives"] for total in totals) == count
    for fact, least in LEAST.items():
        assert sum(total[fact] for total in totals) > least * count, (fact, totals)


@pytest.mark.timeout(900)
def test_hundreds_of_lives_of_a_job_keep_every_promise() -> None:
    check(lives(FIRST, LIVES), LIVES)


@pytest.mark.soak
def test_many_thousand_lives_of_a_job_keep_every_promise(seed: int) -> None:
    check(lives(seed, LIVES_OF_A_SOAK), LIVES_OF_A_SOAK)
