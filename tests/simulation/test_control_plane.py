"""Hundreds of seeded worlds of servers, workers, drivers and people, without processes, sockets and
Spark: the real election, picture, reconciler, recorder, housekeeper, commands, worker,
registration, ledger, loop, figures and watch, under kills, pauses, lost answers, power cuts,
partitions and moved clocks. What must hold is in tidegate/testing/simulation/checkers.py and
reckoning.py. The seed of a world that went wrong is printed with the command that repeats it.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
WORLDS = 300
WORLDS_OF_A_SOAK = int(os.environ.get("SIMULATED_WORLDS") or 20_000)
SHARES = 2  # processes: as many as this machine can be expected to have cores
# What has to happen in a hundred worlds, at least: a simulation in which nothing happens proves
# nothing.
IN_A_HUNDRED = {
    "submitted": 150,
    "wishes": 80,
    "checkpoints": 500,
    "terms": 200,
    "worker terms": 300,
    "SCHEDULED": 150,
    "RECOVERING": 40,
    "CANCELED": 50,
    "FAILED": 30,
    "FINISHED": 30,
    "savepoints": 30,
    "savepoint: done": 10,
    "savepoint: failed": 10,
    "ended: exit": 100,
    "ended: session empty": 10,
    "ended: lease expired": 5,
}


def worlds(first: int, count: int) -> Counter[str]:
    """So many worlds from this seed on; what has happened in them."""
    share = count // SHARES
    running = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tidegate.testing.simulation",
                "--seed",
                str(first + number * share),
                "--count",
                str(share),
            ],
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(SHARES)
    ]
    ended = [(process, *process.communicate()) for process in running]
    for process, _, complaint in ended:
        assert process.returncode == 0, complaint[-8000:]
    totals: Counter[str] = Counter()
    for _, said, _ in ended:
        totals.update(json.loads(said))
    return totals


def check(totals: Counter[str], count: int) -> None:
    assert totals["worlds"] == count
    assert {
        what: totals[what]
        for what, least in IN_A_HUNDRED.items()
        if totals[what] < least * count // 100
    } == {}


def test_hundreds_of_worlds_keep_every_promise(seed: int) -> None:
    check(worlds(seed, WORLDS), WORLDS)


@pytest.mark.soak
def test_many_thousand_worlds_keep_every_promise(seed: int) -> None:
    check(worlds(seed + WORLDS, WORLDS_OF_A_SOAK), WORLDS_OF_A_SOAK // SHARES * SHARES)


def test_a_world_that_breaks_prints_the_command_that_repeats_it() -> None:
    ended = _run("--seed", "1", "--count", "50", "--mutation", "end-without-a-cleanup-record")
    assert ended.returncode == 1
    again = ended.stderr.splitlines()[-1]
    assert again.startswith("again: python -m tidegate.testing.simulation --seed ")
    repeated = _run(*again.split()[4:])
    assert repeated.returncode == 1
    complaint = next(line for line in ended.stderr.splitlines() if line.startswith("at "))
    assert complaint in repeated.stderr.splitlines()


def test_the_same_seed_makes_the_same_world() -> None:
    first, second = _run("--seed", "11", "--count", "10"), _run("--seed", "11", "--count", "10")
    assert {**json.loads(first.stdout), "took_s": 0} == {**json.loads(second.stdout), "took_s": 0}


def _run(*options: str) -> "subprocess.CompletedProcess[str]":
    environ = {**os.environ, "PYTHONPATH": str(SOURCE)}
    return subprocess.run(
        [sys.executable, "-m", "tidegate.testing.simulation", *options],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
