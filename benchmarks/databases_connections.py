"""How many connections a batch opens, in the source and in the target together, as the servers
count them. Called by __main__.py.

The job is a real `tidegate run`, the rows come steadily, and the batches are those that the
target's record counts.
"""

import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.databases_jobs import follow_job, maria_reader, postgres_reader
from benchmarks.databases_latency import FIRST_S, LEFT_OUT_S, TABLE, Writer, newest_row
from benchmarks.databases_rows import DATABASE, Servers, make, servers
from benchmarks.figures import Figure
from benchmarks.installation import until
from benchmarks.parts import Bench
from benchmarks.sides import ROOT, Trouble, environ

INTERVALS_MS = (500, 10_000)
BATCHES_MIN = 4


def connections(bench: Bench) -> None:
    """From both sources, at both intervals."""
    with servers() as place:
        make(place, TABLE)
        for name in ("MariaDB", "PostgreSQL"):
            for interval_ms in INTERVALS_MS:
                place.drop("by_tidegate")
                place.maria.execute(f"delete from {TABLE}", database=DATABASE)
                with place.connect() as connection:
                    connection.execute(f"delete from {TABLE}".encode())
                found = _measured(bench, place, name, interval_ms)
                line = (
                    f"{name}-CDC -> Jdbc (PostgreSQL), interval {interval_ms / 1000:g} s:"
                    " connections of a batch"
                )
                bench.report.add(Figure(part="conns", name=line, value=found, unit=""))


def _measured(bench: Bench, place: Servers, name: str, interval_ms: int) -> float:
    title = f"connections-{name}-{interval_ms}"
    more = 'startup.mode = "latest"' + (
        f', slot.name = "connections_{interval_ms}"' if name == "PostgreSQL" else ""
    )
    reader = (maria_reader if name == "MariaDB" else postgres_reader)(place, TABLE, more)
    file = follow_job(bench.place, place, reader, title, interval_ms)
    command = [
        str(Path(sys.executable).with_name("tidegate")),
        "run",
        str(file),
        "--home",
        str(bench.place / f"home-{title}"),
    ]
    said = bench.place / f"{title}.said"
    with said.open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environ(), cwd=ROOT
        )
    try:
        with Writer(place, name), place.connect() as looking:
            until(
                f"the first row of {name} in the target (see {said})",
                FIRST_S,
                lambda: newest_row(looking) > 0,
                every_s=0.05,
            )
            time.sleep(LEFT_OUT_S)  # the first batches of a job open more
            before, opened = _batches(place), _opened(place)
            wait_s = max(bench.steady_s, (BATCHES_MIN + 1) * interval_ms / 1000)
            time.sleep(wait_s)  # the time in which connections are counted
            batches = _batches(place) - before
            if batches < BATCHES_MIN:
                raise Trouble(f"{title} made {batches} batches in {wait_s:g} s; see {said}")
            return (_opened(place) - opened - 2 - 1) / batches
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def _opened(place: Servers) -> int:
    """How many connections both servers have seen, the two that ask among them."""
    (_, maria), *_ = place.maria.execute("show global status like 'Connections'")
    with place.connect() as connection:
        time.sleep(1)  # the server counts when a session has been idle or has ended
        found = connection.execute("select sum(sessions) from pg_stat_database").fetchone()
    assert found is not None
    return int(maria) + int(found[0])


def _batches(place: Servers) -> int:
    """The checkpoints of all jobs so far, of which one runs."""
    with place.connect() as connection:
        found = connection.execute("select sum(checkpoint) from tidegate_sink_record").fetchone()
    assert found is not None
    return int(found[0] or 0)
