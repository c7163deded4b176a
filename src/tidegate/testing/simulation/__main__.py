"""`python -m tidegate.testing.simulation [--seed N] [--count N] [--trace] [--mutation NAME]`:
worlds of so many seeds, from one on. Ends with 1 at the first world in which a promise was broken,
and prints the command that makes it happen again.
"""

import argparse
import faulthandler
import gc
import json
import os
import signal
import sys
import time
from collections import Counter

ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "TIDEGATE_FAILPOINT": "",
}  # the order of sets is part of a seed; failpoints are places where something may happen

HANGS_AFTER_S = 60  # a world takes a tenth of a second
# worlds: what they leave is collected at once, and not looked through again and again while they
# last
SWEPT_EVERY = 20


def main() -> int:
    """Run the worlds that the command line asks for."""
    options = _options()
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tidegate.testing.simulation", *sys.argv[1:]],
            {**os.environ, **ENVIRONMENT},
        )
    from tidegate.testing.simulation import installed, mutations
    from tidegate.testing.simulation.cluster import SimulatedCluster

    installed.prepare()
    if options.mutation:
        mutations.apply(options.mutation)
    gc.collect()
    gc.freeze()
    gc.disable()
    totals: Counter[str] = Counter()
    began_s = time.monotonic()
    for seed in range(options.seed, options.seed + options.count):
        _watch_over(seed)
        if (seed - options.seed) % SWEPT_EVERY == 0:
            gc.collect()
        cluster = SimulatedCluster(seed, trace=options.trace)
        complaint = cluster.live()
        if complaint:
            if options.trace:
                print("\n".join(cluster.said), file=sys.stderr)
            print(f"seed {seed}, {cluster.fault_rates}\n{complaint}", file=sys.stderr)
            mutation = f" --mutation {options.mutation}" if options.mutation else ""
            print(
                f"again: python -m tidegate.testing.simulation --seed {seed}{mutation} --trace",
                file=sys.stderr,
            )
            return 1
        totals.update(cluster.checker.counts)
        totals.update(
            transactions=cluster.checker.transactions,
            processes=cluster.next_number() - 1,
            seconds=round(cluster.scheduler.now_s),
            switches=cluster.scheduler.switches,
        )
    took_s = time.monotonic() - began_s
    print(
        json.dumps(
            {"worlds": options.count, "took_s": round(took_s, 1), **dict(sorted(totals.items()))}
        )
    )
    return 0


def _watch_over(seed: int) -> None:
    """A world that hangs says who waits for whom, and is a failure."""

    def hangs(*_: object) -> None:
        faulthandler.dump_traceback()
        print(
            f"seed {seed} hangs\nagain: python -m tidegate.testing.simulation --seed {seed}"
            " --trace",
            file=sys.stderr,
            flush=True,
        )
        os._exit(1)

    signal.signal(signal.SIGALRM, hangs)
    signal.alarm(HANGS_AFTER_S)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tidegate.testing.simulation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument(
        "--trace", action="store_true", help="print all that happened in a world that broke"
    )
    parser.add_argument(
        "--mutation", default="", help="break the product on purpose first; see mutations.py"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
