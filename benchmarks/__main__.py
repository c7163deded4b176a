"""`python -m benchmarks [--only copy,sql,...] [--rows N] [--jobs N] [--updates N] [--quick] [--json
FILE]`: the composition root of the benchmarks.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.api import api
from benchmarks.collector import collector
from benchmarks.control_plane import serve
from benchmarks.databases import databases
from benchmarks.databases_connections import connections
from benchmarks.figures import HEADER, Report
from benchmarks.parts import Bench, copy, small, sql
from benchmarks.postgres_catchup import postgres_catchup
from benchmarks.starts import start
from benchmarks.storage import storage
from benchmarks.store_growth import growth
from benchmarks.warm_start import warm

PARTS = {
    "copy": copy,
    "sql": sql,
    "small": small,
    "start": start,
    "serve": serve,
    "api": api,
    "growth": growth,
    "warm": warm,
    "storage": storage,
    "collector": collector,
    "databases": databases,
    "pg-catchup": postgres_catchup,
    "connections": connections,
}
ROWS, ROWS_QUICK = 5_000_000, 500_000
REPEATS, REPEATS_QUICK = 5, 3
BATCHES, BATCHES_QUICK = 60, 50
JOBS, JOBS_QUICK = 2_000, 200
UPDATES, UPDATES_QUICK = 100_000, 10_000
DATABASE_ROWS, DATABASE_ROWS_QUICK = 2_000_000, 20_000
CHANGES, CHANGES_QUICK = "250000,1000000,4000000", "100000"
STEADY_S, STEADY_S_QUICK = 30.0, 3.0
STORES = ("sqlite", "postgresql", "etcd")


def main() -> int:
    """Measure the parts that are wanted, and show them."""
    given = parse()
    report = Report(command=f"python -m benchmarks {' '.join(sys.argv[1:])}".strip())
    given.cache.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(
            prefix="bench-", dir=given.cache, ignore_cleanup_errors=True
        ) as place,
        memory_place() as shm,
    ):
        bench = Bench(
            place=Path(place),
            shm=Path(shm),
            cache=given.cache,
            rows=given.rows or (ROWS_QUICK if given.quick else ROWS),
            repeats=given.repeats or (REPEATS_QUICK if given.quick else REPEATS),
            batches=BATCHES_QUICK if given.quick else BATCHES,
            report=report,
            jobs=given.jobs or (JOBS_QUICK if given.quick else JOBS),
            updates=given.updates or (UPDATES_QUICK if given.quick else UPDATES),
            stores=tuple(given.stores),
            database_rows=given.rows or (DATABASE_ROWS_QUICK if given.quick else DATABASE_ROWS),
            peers=not given.quick,
            changes=tuple(
                map(int, (given.changes or (CHANGES_QUICK if given.quick else CHANGES)).split(","))
            ),
            steady_s=STEADY_S_QUICK if given.quick else STEADY_S,
        )
        print(HEADER, flush=True)
        for name in given.only:
            PARTS[name](bench)
    print("\n" + report.text())
    if given.json:
        given.json.write_text(report.as_json())
    return 0


def memory_place() -> "tempfile.TemporaryDirectory[str]":
    """A directory without a disk below it, where there is one."""
    shm = Path("/dev/shm")
    return tempfile.TemporaryDirectory(
        prefix="tidegate-bench-", dir=shm if shm.is_dir() else None, ignore_cleanup_errors=True
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only",
        type=lambda text: text.split(","),
        default=list(PARTS),
        help=f"parts to measure: {','.join(PARTS)}",
    )
    parser.add_argument(
        "--rows",
        type=int,
        help=f"rows of the big file ({ROWS:,}), or of a table ({DATABASE_ROWS:,})",
    )
    parser.add_argument("--repeats", type=int, help=f"times that each way is measured ({REPEATS})")
    parser.add_argument("--jobs", type=int, help=f"jobs of the control plane ({JOBS:,})")
    parser.add_argument(
        "--updates", type=int, help=f"updates of a store that must not grow ({UPDATES:,})"
    )
    parser.add_argument(
        "--stores",
        type=lambda text: text.split(","),
        default=list(STORES),
        help=f"stores of the control plane: {','.join(STORES)}",
    )
    parser.add_argument("--changes", help=f"lengths of PostgreSQL's log for pg-catchup ({CHANGES})")
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{ROWS_QUICK:,} rows, {REPEATS_QUICK} repeats: to see that it runs, not to quote",
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path(tempfile.gettempdir()) / "tidegate-benchmarks",
        help="where rows are kept, and scratch",
    )
    given = parser.parse_args()
    if unknown := set(given.only) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    return given


if __name__ == "__main__":
    sys.exit(main())
