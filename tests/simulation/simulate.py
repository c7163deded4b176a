"""`python simulate.py FIRST COUNT [--trace]`: run COUNT seeds from FIRST on in one process.

Run by test_protocol_simulation.py, and by hand to repeat a seed. Needs TIDEGATE_FAILPOINT in its
environment (may be empty). Exits with 1 at the first seed that violates an invariant, and prints
that seed.
"""

import json
import logging
import os
import sys
import tempfile
import time
from pathlib import Path

from sim_run import Broken, Simulation

from tidegate.plugin import registry


def run_seed(seed: int, place: Path, trace: bool) -> dict[str, int]:
    simulation = Simulation(seed, place / str(seed))
    try:
        simulation.run()
    except Broken as error:
        print(simulation.turns.trace(100_000 if trace else 60), file=sys.stderr)
        print(f"seed {seed} ({simulation.fault_rates}): {error}", file=sys.stderr)
        raise SystemExit(1) from (error if trace else None)
    return {
        "processes": len(simulation.processes),
        "streaming": int(simulation.streaming),
        "checkpoints": len(simulation.watch.completed_by),
        "damaged": simulation.damages,
        "lost stores": simulation.lost_stores,
        "backs": simulation.backs,
        "ahead": simulation.ahead,
        "savepoints": len(simulation.savepoints.list()),
        "from savepoints": simulation.from_savepoints,
    }


def main(first: int, count: int, trace: bool) -> None:
    logging.disable(logging.CRITICAL)
    os.fsync = lambda _: None  # a simulated kill loses nothing that was written
    registry.BUILT_IN = ("sim_parts",)
    registry.loaded.cache_clear()
    totals: dict[str, int] = {}
    began = time.monotonic()
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if Path("/dev/shm").is_dir() else None, prefix="tidegate-sim-"
    ) as place:
        for seed in range(first, first + count):
            for name, number in run_seed(seed, Path(place), trace).items():
                totals[name] = totals.get(name, 0) + number
    print(json.dumps({"runs": count, "seconds": round(time.monotonic() - began, 1), **totals}))


if __name__ == "__main__":
    assert "TIDEGATE_FAILPOINT" in os.environ, "without it failpoints are empty functions"
    main(int(sys.argv[1]), int(sys.argv[2]), "--trace" in sys.argv[3:])
