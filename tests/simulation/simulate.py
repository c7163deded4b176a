"""`python simulate.py FIRST COUNT [--trace]`: the lives of COUNT seeds from FIRST on, in one
process. Run by test_protocol_simulation.py, and by hand to repeat a seed. Needs TIDEGATE_FAILPOINT
in its environment (empty will do). Ends with 1 at the first life in which a promise was broken, and
says its seed.
"""

import json
import logging
import os
import sys
import tempfile
import time
from pathlib import Path

from sim_world import Broken, World

from tidegate.plugin import registry


def live(seed: int, place: Path, trace: bool) -> dict[str, int]:
    world = World(seed, place / str(seed))
    try:
        world.live()
    except Broken as error:
        print(world.turns.trace(100_000 if trace else 60), file=sys.stderr)
        print(f"seed {seed} ({world.fault_rates}): {error}", file=sys.stderr)
        raise SystemExit(1) from (error if trace else None)
    return {
        "processes": len(world.processes),
        "streaming": int(world.streaming),
        "checkpoints": len(world.watch.completed_by),
        "damaged": world.damages,
        "lost stores": world.lost_stores,
        "backs": world.backs,
        "ahead": world.ahead,
        "savepoints": len(world.savepoints.list()),
        "from savepoints": world.from_savepoints,
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
            for name, number in live(seed, Path(place), trace).items():
                totals[name] = totals.get(name, 0) + number
    print(json.dumps({"lives": count, "seconds": round(time.monotonic() - began, 1), **totals}))


if __name__ == "__main__":
    assert "TIDEGATE_FAILPOINT" in os.environ, "without it failpoints are empty functions"
    main(int(sys.argv[1]), int(sys.argv[2]), "--trace" in sys.argv[3:])
