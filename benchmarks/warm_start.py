"""From the submit to the first committed row, on a real server with Spark: by a driver that waits
with a started JVM, and by one that has to be started.

Called by __main__.py. Both servers run all the time, and the jobs alternate between them.
"""

import json
import shutil
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Figure, median
from benchmarks.installation import Server, until
from benchmarks.parts import Bench
from benchmarks.rows import FIELDS, small_files

PART = "warm"
WARM_S_AIM = 0.5
WITHIN_S = 180.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """A server, with or without a driver that waits."""

    name: str
    home: Path
    server: Server
    warm: bool

    def once(self, source: Path, number: int) -> float:
        """Seconds from the submit until the first file has its final name."""
        target = self.home / f"out-{number}"
        if self.warm:
            until(
                "a driver waits",
                WITHIN_S,
                lambda: any((self.home / "work" / "warm").glob("*/ready")),
            )
        with self.server.connect() as line:
            began_s = time.perf_counter()
            job_id = json.loads(line.post("/submit-job", job(source, target)))["jobId"]
            until("a row", WITHIN_S, lambda: next(target.glob("[!._]*.parquet"), None) is not None)
            first_s = time.perf_counter() - began_s
            until(
                "its end",
                WITHIN_S,
                lambda: json.loads(line.get(f"/job-info/{job_id}"))["jobStatus"] == "FINISHED",
            )
        shutil.rmtree(target, ignore_errors=True)
        return first_s


def warm(bench: Bench) -> None:
    """In turns; the first turn of each is left out."""
    source = small_files(bench.cache, 1)
    seen: dict[str, list[float]] = {}
    with ExitStack() as stack:
        ways = [
            way(bench, stack, "a driver is started", count=0),
            way(bench, stack, "a driver waits (driver.warm: 1)", count=1),
        ]
        for turn in range(bench.repeats + 1):
            for each in ways:
                seconds = each.once(source, turn)
                if turn:
                    seen.setdefault(each.name, []).append(seconds)
    cold = median(seen[ways[0].name])
    for each in ways:
        figure(bench, each, seen[each.name], cold)


def way(bench: Bench, stack: ExitStack, name: str, *, count: int) -> Way:
    """A server with so many drivers that wait."""
    home = bench.place / f"warm-{count}"
    server = stack.enter_context(Server(home, {"driver.warm": count}, worker=True))
    return Way(name=name, home=home, server=server, warm=count > 0)


def figure(bench: Bench, way: Way, seconds: list[float], cold: float) -> None:
    value = median(seconds)
    bench.report.add(
        Figure(
            part=PART,
            name=f"submit -> first row, {way.name}",
            value=value,
            unit="s",
            spread=(min(seconds), max(seconds)),
            ratio=cold / value if way.warm else None,
            against="a driver is started" if way.warm else "",
            aim=f"<= {WARM_S_AIM:g} s" if way.warm else "",
            met=value <= WARM_S_AIM if way.warm else None,
        )
    )


def job(source: Path, target: Path) -> str:
    """CSV to Parquet, with nothing of Spark that the engine does not give to all: so that a driver
    that waits will do.
    """
    return json.dumps(
        {
            "env": {"job.mode": "BATCH", "job.name": "warm"},
            "source": [
                {
                    "plugin_name": "LocalFile",
                    "plugin_output": "rows",
                    "path": str(source),
                    "file_format_type": "csv",
                    "schema": {"fields": FIELDS},
                }
            ],
            "sink": [
                {
                    "plugin_name": "LocalFile",
                    "plugin_input": "rows",
                    "path": str(target),
                    "file_format_type": "parquet",
                }
            ],
        }
    )
