"""What is measured: copy, sql, small, start.

Called by __main__.py. Each part starts its sides, warms them, alternates between them, and takes
medians.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset

from benchmarks.figures import Figure, Report, median
from benchmarks.jobs import job_file
from benchmarks.rows import csv_file, small_files
from benchmarks.sides import Side, Trouble, ours, raw

BATCHES_LEFT_OUT = 5  # the first ones of a run warm it up
CHECKPOINTS = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """The settings of a run. `place` is scratch on a disk, `shm` scratch in memory, `cache` keeps
    the rows for the next run. `jobs`, `updates` (of a store that must not grow) and `stores` are
    for the control plane; rows of a table, whether others are measured too, and how long, for the
    databases.
    """

    place: Path
    shm: Path
    cache: Path
    rows: int
    repeats: int
    batches: int
    report: Report
    jobs: int = 2_000
    updates: int = 100_000
    stores: tuple[str, ...] = ("sqlite", "postgresql", "etcd")
    database_rows: int = 2_000_000
    peers: bool = True
    steady_s: float = 30.0
    changes: tuple[int, ...] = (250_000, 1_000_000, 4_000_000)


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """One way to do the work: who is asked what. The target is removed before each time."""

    name: str
    side: Side
    request: dict[str, Any]
    target: Path
    against: str = ""
    aim: float | None = None

    def once(self) -> dict[str, Any]:
        shutil.rmtree(self.target, ignore_errors=True)
        return self.side.ask(**self.request)


def copy(bench: Bench) -> None:
    """CSV to Parquet as it is: in one batch, in ten checkpoints, by raw PySpark."""
    source = csv_file(bench.cache, bench.rows)
    tenth = -(-source.stat().st_size // CHECKPOINTS)
    with raw(bench.place) as plain, ours(bench.place, light=True) as mine:
        ways = [
            _raw_way(bench, plain, source, "copy"),
            _our_way(bench, mine, source, "one batch", aim=3.5),
            _our_way(
                bench, mine, source, "ten checkpoints", aim=2.5, env=[f"batch.max-bytes = {tenth}"]
            ),
        ]
        race(bench, "copy", ways, same_ids)


def sql(bench: Bench) -> None:
    """CSV through a filter and a projection to Parquet."""
    source = csv_file(bench.cache, bench.rows)
    with raw(bench.place) as plain, ours(bench.place, light=False) as mine:
        race(
            bench,
            "sql",
            [
                _raw_way(bench, plain, source, "sql"),
                _our_way(bench, mine, source, "filter and project", aim=1.2, sql=True),
            ],
            same_ids,
        )


def _raw_way(bench: Bench, side: Side, source: Path, part: str) -> Way:
    target = bench.place / f"raw-{part}"
    return Way(
        name="raw PySpark",
        side=side,
        request={"do": "copy", "source": str(source), "target": str(target), "sql": part == "sql"},
        target=target,
    )


def _our_way(
    bench: Bench,
    side: Side,
    source: Path,
    name: str,
    *,
    aim: float,
    sql: bool = False,
    env: Sequence[str] = (),
) -> Way:
    target = bench.place / name.replace(" ", "-")
    file = job_file(bench.place, target.name, source, target, sql=sql, env=env)
    request = {"file": str(file), "home": str(bench.place / "home")}
    return Way(
        name=f"tidegate, {name}",
        side=side,
        request=request,
        target=target,
        against="raw PySpark",
        aim=aim,
    )


def race(
    bench: Bench, part: str, ways: Sequence[Way], check: Callable[[Sequence[Path]], None]
) -> None:
    """Every way in turn, again and again: what disturbs one disturbs the others.

    The first turn warms up, the last one measures memory.
    """
    for way in ways:
        way.once()
    check([way.target for way in ways])
    seen: dict[str, list[dict[str, Any]]] = {way.name: [] for way in ways}
    for turn in range(bench.repeats):
        for way in ways if turn % 2 == 0 else list(reversed(ways)):
            seen[way.name].append(way.once())
    medians = {name: median([a["seconds"] for a in answers]) for name, answers in seen.items()}
    for way in ways:
        shutil.rmtree(way.target, ignore_errors=True)
        peak = way.side.peak(**way.request)
        seconds = [a["seconds"] for a in seen[way.name]]
        ratio = medians[way.against] / medians[way.name] if way.against else None
        bench.report.add(
            Figure(
                part=part,
                name=way.name,
                value=medians[way.name],
                unit="s",
                spread=(min(seconds), max(seconds)),
                cpu_s=median([a["cpu_s"] for a in seen[way.name]]),
                against=way.against,
                ratio=ratio,
                aim=f">= {way.aim}x" if way.aim else "",
                met=ratio >= way.aim if ratio is not None and way.aim is not None else None,
                rss_mib=peak.rss_mib,
                uss_mib=peak.uss_mib,
            )
        )
        shutil.rmtree(way.target, ignore_errors=True)


def same_ids(targets: Sequence[Path]) -> None:
    """All targets hold the same rows, as far as their number and the sum of their ids tell."""
    found = []
    for target in targets:
        ids = pyarrow.dataset.dataset(
            target, format="parquet", exclude_invalid_files=True
        ).to_table(columns=["id"])["id"]
        found.append((len(ids), pc.sum(ids).as_py()))
    if len(set(found)) != 1:
        raise Trouble(f"the sides wrote different rows: {found}")


def small(bench: Bench) -> None:
    """Batches of ten rows: what the protocol adds to the Spark job in them, what of that is the
    disk's, and what others take.
    """
    source = small_files(bench.cache, bench.batches + BATCHES_LEFT_OUT)
    with (
        raw(bench.place) as plain,
        ours(bench.place, light=True) as mine,
        ours(bench.place, light=False) as full,
    ):
        ways = {
            "tidegate, fused": (mine, _small_job(bench, source, "small", bench.place)),
            "tidegate, fused, all on tmpfs": (
                mine,
                _small_job(bench, source, "small-shm", bench.shm),
            ),
            "tidegate, through SQL": (
                full,
                _small_job(bench, source, "small-sql", bench.place, sql=True),
            ),
            "raw PySpark, read and write in a loop": (plain, _raw_small(bench, source, "loop")),
            "Structured Streaming, foreachBatch": (plain, _raw_small(bench, source, "stream")),
        }
        for side, request in list(ways.values()):  # to warm up
            _small_once(bench, side, request)
        seen: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
        for turn in range(bench.repeats):
            for name in ways if turn % 2 == 0 else reversed(ways):
                seen[name].append(_small_once(bench, *ways[name]))
        peaks = {name: _small_peak(bench, *ways[name]) for name in ways}
    _show_small(bench, seen, peaks)


def _small_job(
    bench: Bench, source: Path, name: str, place: Path, *, sql: bool = False
) -> dict[str, Any]:
    file = job_file(bench.place, name, source, place / name, sql=sql, env=["batch.max-files = 1"])
    return {"file": str(file), "home": str(place / f"home-{name}"), "target": str(place / name)}


def _raw_small(bench: Bench, source: Path, do: str) -> dict[str, Any]:
    return {
        "do": do,
        "source": str(source),
        "target": str(bench.place / f"raw-{do}"),
        "sql": False,
        "checkpoints": str(bench.place / "stream-checkpoints"),
    }


def _small_once(bench: Bench, side: Side, request: dict[str, Any]) -> dict[str, Any]:
    for place in (request["target"], bench.place / "stream-checkpoints"):
        shutil.rmtree(place, ignore_errors=True)
    answer = side.ask(**request)
    return {
        key: value[BATCHES_LEFT_OUT:] if isinstance(value, list) else value
        for key, value in answer.items()
    }


def _small_peak(bench: Bench, side: Side, request: dict[str, Any]) -> tuple[int, int]:
    for place in (request["target"], bench.place / "stream-checkpoints"):
        shutil.rmtree(place, ignore_errors=True)
    peak = side.peak(**request)
    return peak.rss_mib, peak.uss_mib


def _show_small(
    bench: Bench, seen: dict[str, list[dict[str, Any]]], peaks: dict[str, tuple[int, int]]
) -> None:
    medians = {
        name: median([ms for a in answers for ms in a["batches"]]) * 1000
        for name, answers in seen.items()
    }
    jobs = {
        name: median([ms for a in answers for ms in a["jobs"]]) * 1000
        for name, answers in seen.items()
        if "jobs" in answers[0]
    }
    for name, value in medians.items():
        each = sorted(ms * 1000 for a in seen[name] for ms in a["batches"])
        spread = (each[len(each) // 10], each[len(each) * 9 // 10])
        ratio, against, aim = None, "", None
        if name in jobs:
            pairs = [
                (whole, job)
                for a in seen[name]
                for whole, job in zip(a["batches"], a["jobs"], strict=False)
            ]
            ratio, against, aim = (
                median([whole / job for whole, job in pairs]),
                f"Spark job in it, {jobs[name]:.0f} ms",
                1.25,
            )
        rss, uss = peaks[name]
        # The disk's part is not the protocol's: where it is in the measure, the aim is not judged.
        judged = aim is not None and "tmpfs" in name
        bench.report.add(
            Figure(
                part="small",
                name=name,
                value=value,
                unit="ms",
                spread=spread,
                against=against,
                ratio=ratio,
                aim=f"<= {aim}x" + ("" if judged else " + fsync") if aim else "",
                met=ratio is not None and aim is not None and ratio <= aim if judged else None,
                rss_mib=rss,
                uss_mib=uss,
            )
        )
    mine = medians["tidegate, fused"]
    for other in ("raw PySpark, read and write in a loop", "Structured Streaming, foreachBatch"):
        ratio = medians[other] / mine
        bench.report.add(
            Figure(
                part="small",
                name="tidegate, fused, as above",
                value=mine,
                unit="ms",
                against=other.partition(",")[0],
                ratio=ratio,
            )
        )
