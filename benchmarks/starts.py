"""How long until something is seen: whole cold processes, and the first batch of a warm driver.
Called by __main__.py.
"""

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.figures import Figure, median
from benchmarks.jobs import console_job, job_file
from benchmarks.memory import PeakMemory
from benchmarks.parts import Bench
from benchmarks.rows import csv_file, small_files
from benchmarks.sides import ROOT, Trouble, environ, ours

COLD_S_AIM = 5.0
WARM_S_AIM = 0.3
POLL_S = 0.005


def start(bench: Bench) -> None:
    """Cold runs to their first row and to their end; first batches of warm drivers."""
    tiny = small_files(bench.cache, 1)
    target, raw_target = bench.place / "cold", bench.place / "cold-raw"
    console = console_job(bench.place)
    file = job_file(bench.place, "cold", tiny, target)
    mine = {
        "tidegate run, first Console row": lambda: _cold(bench, _run(bench, console), None),
        "tidegate run, first Parquet file": lambda: _cold(bench, _run(bench, file), target),
    }
    program = {
        "raw PySpark program, first Parquet file": lambda: _cold(
            bench, _raw(bench, tiny, raw_target), raw_target
        )
    }
    seen = _alternate(bench, {**mine, **program})
    for name, pairs in seen.items():
        first = [a for a, _ in pairs]
        _cold_figure(bench, name, first, aim=COLD_S_AIM if name in mine else None)
        _cold_figure(
            bench, f"  ... whole process ({name.partition(',')[0]})", [b for _, b in pairs]
        )
    _warm(bench, tiny)
    _whole(bench)


def _whole(bench: Bench) -> None:
    """The big copy as whole cold processes, as a person sees it."""
    source = csv_file(bench.cache, bench.rows)
    target, raw_target = bench.place / "whole", bench.place / "whole-raw"
    file = job_file(bench.place, "whole", source, target)
    ways = {
        "raw PySpark program, copy, cold process": lambda: _cold(
            bench, _raw(bench, source, raw_target), raw_target
        ),
        "tidegate run, copy, cold process": lambda: _cold(bench, _run(bench, file), target),
    }
    seen = {name: [whole for _, whole in pairs] for name, pairs in _alternate(bench, ways).items()}
    baseline = median(seen["raw PySpark program, copy, cold process"])
    for name, seconds in seen.items():
        ratio = baseline / median(seconds) if name.startswith("tidegate") else None
        _cold_figure(bench, name, seconds, ratio=ratio, against="raw PySpark" if ratio else "")
    peak = _peak(_run(bench, file))
    bench.report.add(
        Figure(
            part="start",
            name="tidegate run, copy: peak RSS",
            value=peak.rss_mib,
            unit="MiB",
            rss_mib=peak.rss_mib,
            uss_mib=peak.uss_mib,
        )
    )


def _alternate(
    bench: Bench, ways: dict[str, Callable[[], tuple[float, float]]]
) -> dict[str, list[tuple[float, float]]]:
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for turn in range(bench.repeats):
        for name in ways if turn % 2 == 0 else reversed(ways):
            seen[name].append(ways[name]())
    return seen


def _run(bench: Bench, file: Path) -> list[str]:
    shutil.rmtree(bench.place / "cold-home", ignore_errors=True)
    return [
        str(Path(sys.executable).with_name("tidegate")),
        "run",
        str(file),
        "--home",
        str(bench.place / "cold-home"),
    ]


def _raw(bench: Bench, source: Path, target: Path) -> list[str]:
    request = {
        "do": "copy",
        "source": str(source),
        "target": str(target),
        "sql": False,
        "work": str(bench.place / "cold-work"),
    }
    return [sys.executable, "-m", "benchmarks.raw_side", "--once", json.dumps(request)]


def _cold(bench: Bench, command: Sequence[str], target: Path | None) -> tuple[float, float]:
    """Seconds until the first row (a line of a Console sink, or a Parquet file under its final
    name), and until the end.
    """
    if target is not None:
        shutil.rmtree(target, ignore_errors=True)
    began = time.perf_counter()
    with (bench.place / "cold.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environ(),
            cwd=ROOT,
        )
        firsts: list[float] = []
        reader = threading.Thread(target=_first_row, args=(process, firsts), daemon=True)
        reader.start()
        while target is not None and process.poll() is None and not firsts:
            if next(target.glob("[!._]*.parquet"), None) is not None:
                firsts.append(time.perf_counter())
            time.sleep(POLL_S)
        code = process.wait()
        ended = time.perf_counter()
        reader.join()
    if code != 0 or not firsts:
        raise Trouble(
            f"{' '.join(command)} ended with code {code}; its last words:"
            f" {_last_words(bench.place / 'cold.log')}"
        )
    return firsts[0] - began, ended - began


def _first_row(process: "subprocess.Popen[bytes]", firsts: list[float]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if b"rowIndex" in line and not firsts:
            firsts.append(time.perf_counter())
    process.stdout.close()


def _peak(command: Sequence[str]) -> PeakMemory:
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environ(),
        cwd=ROOT,
    )
    with PeakMemory(process.pid) as peak:
        process.wait()
    return peak


def _cold_figure(
    bench: Bench,
    name: str,
    seconds: Sequence[float],
    *,
    aim: float | None = None,
    ratio: float | None = None,
    against: str = "",
) -> None:
    value = median(seconds)
    bench.report.add(
        Figure(
            part="start",
            name=name,
            value=value,
            unit="s",
            spread=(min(seconds), max(seconds)),
            ratio=ratio,
            against=against,
            aim=f"<= {aim:g} s" if aim else "",
            met=value <= aim if aim else None,
        )
    )


def _warm(bench: Bench, tiny: Path) -> None:
    """A new warm process for each time: its second batch would be quicker."""
    target = bench.place / "warm"
    file = job_file(bench.place, "warm", tiny, target)
    firsts, wholes = [], []
    for _ in range(bench.repeats):
        shutil.rmtree(target, ignore_errors=True)
        with ours(bench.place, light=True) as side:
            answer = side.ask(file=str(file), home=str(bench.place / "warm-home"))
        firsts.append(answer["jobs"][0])
        wholes.append(answer["seconds"])
    _cold_figure(bench, "warm driver, Spark job of the first batch", firsts, aim=WARM_S_AIM)
    _cold_figure(bench, "warm driver, whole run: plan, claim, batch, end", wholes)


def _last_words(log: Path) -> str:
    return "; ".join(log.read_text(errors="replace").strip().splitlines()[-3:])
