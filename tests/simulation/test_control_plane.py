"""Hundreds of seeds of a simulated cluster with servers, workers, drivers and users, without
processes, sockets and Spark.

It runs the real election, cache, reconciler, recorder, housekeeper, commands, worker, registration,
ledger, loop, metrics and watchdog, under kills, pauses, lost answers, power cuts, partitions and
moved clocks. The invariants are in tidegate/testing/simulation. A failed seed is printed with the
command that repeats it.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
SEEDS = 300
SOAK_SEEDS = int(os.environ.get("SIMULATED_WORLDS") or 20_000)
SHARES = 2  # processes: as many as this machine can be expected to have cores
# The least that must happen in a hundred seeds: a simulation without events proves nothing.
IN_A_HUNDRED = {
    "submitted": 150,
    "stop requests": 80,
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


def run_seeds(first: int, count: int) -> Counter[str]:
    """Run so many seeds from the first on; return the counts of their events."""
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
    for _, output, _ in ended:
        totals.update(json.loads(output))
    return totals


def check(totals: Counter[str], count: int) -> None:
    assert totals["worlds"] == count
    assert {
        what: totals[what]
        for what, least in IN_A_HUNDRED.items()
        if totals[what] < least * count // 100
    } == {}


def test_hundreds_of_seeds_keep_every_invariant(seed: int) -> None:
    check(run_seeds(seed, SEEDS), SEEDS)


@pytest.mark.soak
def test_many_thousand_seeds_keep_every_invariant(seed: int) -> None:
    check(run_seeds(seed + SEEDS, SOAK_SEEDS), SOAK_SEEDS // SHARES * SHARES)


def test_a_failed_seed_prints_the_command_that_repeats_it() -> None:
    ended = _run("--seed", "1", "--count", "50", "--mutation", "end-without-a-cleanup-record")
    assert ended.returncode == 1
    again = ended.stderr.splitlines()[-1]
    assert again.startswith("again: python -m tidegate.testing.simulation --seed ")
    repeated = _run(*again.split()[4:])
    assert repeated.returncode == 1
    complaint = next(line for line in ended.stderr.splitlines() if line.startswith("at "))
    assert complaint in repeated.stderr.splitlines()


def test_a_seed_is_deterministic() -> None:
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
