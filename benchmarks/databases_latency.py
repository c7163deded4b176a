"""From a commit in the source to the row's sight in the sink, while the source changes steadily.
Called by databases.py.

The job is a real `tidegate run`. One thread commits ten rows every ten milliseconds and notes when
each commit returned; another asks the target for its newest row and notes when that is first seen.
Batches become visible in order, so that the newest tells of all before it.
"""

import bisect
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.databases_jobs import follow_job, maria_reader, postgres_reader
from benchmarks.databases_rows import DATABASE, Servers, make, maria_insert, postgres_insert
from benchmarks.figures import Figure
from benchmarks.installation import until
from benchmarks.parts import Bench
from benchmarks.sides import ROOT, Trouble, environ

TABLE = "steady"
ROWS_EACH, EVERY_S = 10, 0.01
INTERVAL_MS = 100
LOOK_S = 0.005
FIRST_S, LEFT_OUT_S = 120.0, 5.0


def latency(bench: Bench, place: Servers) -> None:
    make(place, TABLE)
    readers = {
        "MariaDB": maria_reader(place, TABLE, 'startup.mode = "latest"'),
        "PostgreSQL": postgres_reader(
            place, TABLE, 'slot.name = "steady", startup.mode = "latest"'
        ),
    }
    for name, reader in readers.items():
        place.drop("by_tidegate")
        file = follow_job(bench.place, place, reader, f"steady-{name}", INTERVAL_MS)
        latencies, rate = _measured(bench, place, name, file)
        at = [
            sorted(latencies)[min(len(latencies) - 1, int(len(latencies) * share))] * 1000
            for share in (0.5, 0.99)
        ]
        line = f"{name} -> PostgreSQL, {rate:,.0f} rows/s, commit -> visible"
        bench.report.add(
            Figure(
                part="cdc",
                name=f"{line}, p50",
                value=at[0],
                unit="ms",
                spread=(min(latencies) * 1000, max(latencies) * 1000),
            )
        )
        bench.report.add(Figure(part="cdc", name=f"{line}, p99", value=at[1], unit="ms"))


def _measured(bench: Bench, place: Servers, name: str, file: Path) -> tuple[list[float], float]:
    """The latency of every commit after the first seconds, and the rate that was kept."""
    said = bench.place / f"steady-{name}.said"
    command = [
        str(Path(sys.executable).with_name("tidegate")),
        "run",
        str(file),
        "--home",
        str(bench.place / f"home-steady-{name}"),
    ]
    with said.open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environ(), cwd=ROOT
        )
    try:
        with Writer(place, name) as writer, place.connect() as looking:
            until(
                f"the first row of {name} in the target (see {said})",
                FIRST_S,
                lambda: newest_row(looking) > 0,
                every_s=0.05,
            )
            begin_s = time.perf_counter() + LEFT_OUT_S
            seen = _watch(looking, writer, begin_s, begin_s + bench.steady_s)
        found = _latencies(writer.commits, seen, begin_s)
        if not found:
            raise Trouble(f"no change of {name} came into the target for {FIRST_S:g} s; see {said}")
        return found, writer.rate
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Writer:
    """Commits rows at a steady rate in a thread of its own. `commits`: (when, the newest row)."""

    def __init__(self, place: Servers, name: str) -> None:
        self.commits: list[tuple[float, int]] = []
        self.trouble: BaseException | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(_committer(place, name),), daemon=True
        )

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self.trouble is not None:
            raise self.trouble

    def _run(self, commit: Callable[[int, int], None]) -> None:
        try:
            began_s, number = time.perf_counter(), 0
            while not self._over.wait(max(0.0, began_s + number * EVERY_S - time.perf_counter())):
                commit(number * ROWS_EACH + 1, (number + 1) * ROWS_EACH)
                number += 1
                self.commits.append((time.perf_counter(), number * ROWS_EACH))
        except BaseException as error:
            self.trouble = error

    @property
    def rate(self) -> float:
        return len(self.commits) * ROWS_EACH / (self.commits[-1][0] - self.commits[0][0])


def _committer(place: Servers, name: str) -> Callable[[int, int], None]:
    if name == "MariaDB":
        connection = place.maria.connect(DATABASE)
        return lambda first, last: _execute(connection.cursor(), maria_insert(TABLE, first, last))
    postgres = place.connect()
    return lambda first, last: _execute(
        postgres.cursor(), postgres_insert(TABLE, first, last).encode()
    )


def _execute(cursor: Any, statement: str | bytes) -> None:
    with cursor:
        cursor.execute(statement)


def newest_row(connection: "psycopg.Connection[tuple[int | None, ...]]") -> int:
    """The number of the newest row in the target; 0 where there is none, or no table."""
    try:
        found = connection.execute("select max(id) from by_tidegate").fetchone()
    except psycopg.errors.UndefinedTable:
        return 0
    return (found[0] or 0) if found else 0


def _watch(
    connection: "psycopg.Connection[tuple[int | None, ...]]",
    writer: Writer,
    begin_s: float,
    end_s: float,
) -> list[tuple[float, int]]:
    """When each new row was the newest in the target for the first time; at least until one is seen
    that was committed after the beginning.
    """
    seen: list[tuple[float, int]] = []
    while writer.trouble is None:
        newest = newest_row(connection)
        now_s = time.perf_counter()
        if not seen or newest > seen[-1][1]:
            seen.append((now_s, newest))
        if now_s > end_s and (
            now_s > end_s + FIRST_S or _latencies(writer.commits[:], seen, begin_s)
        ):
            break
        time.sleep(LOOK_S)  # between two polls of another process
    return seen


def _latencies(
    commits: list[tuple[float, int]], seen: list[tuple[float, int]], begin_s: float
) -> list[float]:
    """Of every commit that came after the beginning and was seen."""
    newest = [row for _, row in seen]
    found = [(when, bisect.bisect_left(newest, row)) for when, row in commits if when >= begin_s]
    return [seen[at][0] - when for when, at in found if at < len(seen)]
