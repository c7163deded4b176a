"""A thousand seeded lives of a job without processes and without Spark: the real claim, ledger, loop and checkpoint storage, under kills, exceptions,
long pauses, a store that fails, generations that overlap and checkpoints that are damaged. Rows exactly once, ids only grow, one generation completes a
checkpoint, none is lost. The seed of a life that went wrong is printed: `TIDEGATE_FAILPOINT= python tests/simulation/simulate.py SEED 1 --trace`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PLACE = Path(__file__).parent
LIVES = 1000
LIVES_OF_A_SOAK = 20_000
SHARES = 2


def lives(first: int, count: int) -> list[dict[str, int]]:
    """So many lives from this seed on, in as many processes as this machine can be expected to have cores."""
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


def check(totals: list[dict[str, int]], count: int) -> None:
    """A simulation in which nothing happens proves nothing."""
    assert sum(total["lives"] for total in totals) == count
    for fact, least in {"processes": 3 * count, "checkpoints": 5 * count, "streaming": count // 10, "damaged": count // 100}.items():
        assert sum(total[fact] for total in totals) > least, (fact, totals)


def test_a_thousand_lives_of_a_job_keep_every_promise(seed: int) -> None:
    check(lives(seed, LIVES), LIVES)


@pytest.mark.soak
def test_many_thousand_lives_of_a_job_keep_every_promise(seed: int) -> None:
    check(lives(seed + LIVES, LIVES_OF_A_SOAK), LIVES_OF_A_SOAK)
