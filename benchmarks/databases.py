"""What is measured with databases: a table copied from MariaDB and from PostgreSQL into PostgreSQL,
by Tidegate and by others, on the same servers. The log of changes is in databases_cdc.py. Called by
__main__.py.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from benchmarks.databases_cdc import changes
from benchmarks.databases_jobs import copy_job
from benchmarks.databases_latency import latency
from benchmarks.databases_peers import Peers, peers
from benchmarks.databases_rows import DATABASE, Servers, fill, servers
from benchmarks.figures import Figure, median
from benchmarks.parts import Bench
from benchmarks.sides import Side, Trouble, ours

TABLE, FEW = "orders", "few"
ROWS_FEW = 5_000
REPEATS_MAX = 3
SPARK, DLT = "raw PySpark JDBC", "dlt, connectorx"
AIMS = {SPARK: 2.0, DLT: 1.0}
Act = Callable[[str, int], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Way:
    """One way to copy a table: (its name, its rows) -> an answer. `into` is where the rows are
    then; some remember it, and replace the rows themselves.
    """

    name: str
    act: Act
    into: str
    drops: bool = True


def databases(bench: Bench) -> None:
    """Everything, on one pair of servers."""
    there = peers() if bench.peers else None
    with servers() as place:
        with ours(bench.place, light=True) as mine:
            copies(bench, place, mine, there)
            changes(bench, place, mine, there)
        latency(bench, place)


def copies(bench: Bench, place: Servers, mine: Side, there: Peers | None) -> None:
    """Both pairs, each by every way in turn."""
    fill(place, TABLE, bench.database_rows)
    fill(place, FEW, min(ROWS_FEW, bench.database_rows))
    with ExitStack() as stack:
        spark = (
            stack.enter_context(
                Side(bench.place, "databases_spark_side", os.pathsep.join(map(str, there.jars)))
            )
            if there and there.jars
            else None
        )
        other = (
            stack.enter_context(Side(bench.place, "databases_peer_side", python=str(there.python)))
            if there
            else None
        )
        for source in ("MariaDB", "PostgreSQL"):
            ways = [_ours(bench, place, mine, source)]
            ways += [_spark(place, spark, source)] if spark else []
            ways += list(_others(place, other, there, source)) if other and there else []
            race(bench, place, source, ways)


def race(bench: Bench, place: Servers, source: str, ways: Sequence[Way]) -> None:
    """A small table first, to warm up; who cannot copy that takes no part.

    Then every way in turn.
    """
    part = [way for way in ways if _copied(place, way, FEW, min(ROWS_FEW, bench.database_rows))]
    seen: dict[str, list[dict[str, Any]]] = {way.name: [] for way in part}
    for turn in range(min(bench.repeats, REPEATS_MAX)):
        for way in part if turn % 2 == 0 else list(reversed(part)):
            if answer := _copied(place, way, TABLE, bench.database_rows):
                seen[way.name].append(answer)
    medians = {
        name: median([a["seconds"] for a in answers]) for name, answers in seen.items() if answers
    }
    for name, seconds in medians.items():
        _show(bench, source, name, seconds, seen[name])
    for other in [name for name in medians if name != "tidegate"]:
        ratio, aim = medians[other] / medians["tidegate"], AIMS.get(other)
        figure = Figure(
            part="db",
            name=f"{source} -> PostgreSQL: tidegate, as above",
            value=medians["tidegate"],
            unit="s",
            against=other,
            ratio=ratio,
            aim=f">= {aim:g}x" if aim else "",
            met=ratio >= aim if aim else None,
        )
        bench.report.add(figure)


def _show(
    bench: Bench, source: str, name: str, seconds: float, answers: Sequence[dict[str, Any]]
) -> None:
    rate = bench.database_rows / seconds
    each = [a["seconds"] for a in answers]
    line = (
        f"{source} -> PostgreSQL, {bench.database_rows:,} rows: {name}, {rate / 1000:,.0f}k rows/s"
    )
    bench.report.add(
        Figure(
            part="db",
            name=line,
            value=seconds,
            unit="s",
            spread=(min(each), max(each)),
            cpu_s=median([a["cpu_s"] for a in answers]),
        )
    )
    if "jobs" in answers[0]:
        job = median([sum(a["jobs"]) for a in answers])
        bench.report.add(
            Figure(
                part="db",
                name=f"{source} -> PostgreSQL: of that, reading and staging",
                value=job,
                unit="s",
            )
        )
        rest = median([a["seconds"] - sum(a["jobs"]) for a in answers])
        bench.report.add(
            Figure(
                part="db",
                name=f"{source} -> PostgreSQL: of that, merging and the protocol",
                value=rest,
                unit="s",
            )
        )


def _copied(place: Servers, way: Way, table: str, rows: int) -> dict[str, Any] | None:
    """One copy into a target that is not there yet; the rows must be the source's."""
    if way.drops:
        place.drop(way.into)
    before_s = place.cpu_s()
    answer = way.act(table, rows)
    answer["cpu_s"] = answer["cpu_s"] + place.cpu_s() - before_s
    if "failed" in answer:
        print(f"{way.name} did not copy {table}: {answer['failed']}", flush=True)
        return None
    if (found := place.sums(way.into)) != (wanted := place.sums(table)):
        raise Trouble(f"{way.name} wrote other rows: {found} instead of {wanted}")
    return answer


def _ours(bench: Bench, place: Servers, side: Side, source: str) -> Way:
    return Way(
        "tidegate",
        lambda table, _: side.ask(
            file=str(copy_job(bench.place, place, source, table)), home=str(bench.place / "home-db")
        ),
        "by_tidegate",
    )


def _spark(place: Servers, side: Side, source: str) -> Way:
    target = (
        f"jdbc:postgresql://127.0.0.1:{place.postgres.port}/{DATABASE}"
        "?user=postgres&password=any&reWriteBatchedInserts=true"
    )
    maria = (
        f"jdbc:mysql://127.0.0.1:{place.maria.port}/{DATABASE}"
        "?user=root&useSSL=false&useCursorFetch=true&allowPublicKeyRetrieval=true"
    )
    read = maria if source == "MariaDB" else target
    return Way(
        SPARK,
        lambda table, rows: side.ask(
            source=read, table=table, target=target, into="by_spark", rows=rows
        ),
        "by_spark",
    )


def _others(place: Servers, side: Side, there: Peers, source: str) -> Iterator[Way]:
    read = place.maria_url if source == "MariaDB" else place.postgres_url
    if "dlt" in there.found:
        yield Way(
            DLT,
            lambda table, _: side.ask(
                do="dlt", source=read, table=table, target=place.postgres_url, into="copied"
            ),
            "by_dlt.copied",
            drops=False,
        )
    if "sling" in there.found:
        schema = DATABASE if source == "MariaDB" else "public"
        address = read + ("" if source == "MariaDB" else "?sslmode=disable")
        more = {
            "program": str(there.sling),
            "into": "public.by_sling",
            "target": place.postgres_url + "?sslmode=disable",
        }
        yield Way(
            "sling",
            lambda table, _: side.ask(
                do="sling", source=address, stream=f"{schema}.{table}", **more
            ),
            "by_sling",
        )
