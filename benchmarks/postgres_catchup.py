"""Catching up with PostgreSQL's log, the reading alone, beside `pg_recvlogical`: at several lengths
of the log. Called by __main__.py.

The cost of a change must not grow with the log. Rows have three columns, transactions 1,000 rows.
Both read the same log, each through a slot of its own, in turns; nothing moves Tidegate's slot
meanwhile, as where a savepoint holds it.
"""

import subprocess
import time

import psycopg

from benchmarks.databases_cdc import read_alone
from benchmarks.figures import Figure, median
from benchmarks.parts import Bench
from benchmarks.sides import Trouble
from tidegate.databases.postgres.shared_stream import close_streams
from tidegate.testing.servers.postgres import PostgresServer, find_binaries

ROWS_EACH = 1000
REPEATS_MAX = 3
RATIO_MIN = 0.8
JUDGED_FROM = 4_000_000
SETTINGS = {
    "wal_level": "logical",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
    "fsync": "off",
    "max_wal_size": "32GB",
}


def postgres_catchup(bench: Bench) -> None:
    """Each length on a server of its own."""
    for changes in bench.changes:
        with PostgresServer(settings=SETTINGS) as server:
            _catch_up(bench, server, changes)
            close_streams()


def _catch_up(bench: Bench, server: PostgresServer, changes: int) -> None:
    repeats = min(bench.repeats, REPEATS_MAX)
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("create table changed (id bigint primary key, amount bigint, note text)")
        connection.execute("alter table changed replica identity full")
        connection.execute("create publication bench for table changed")
        for turn in range(repeats):
            for reader in ("tidegate", "recvlogical"):
                connection.execute(
                    "select pg_create_logical_replication_slot(%s, 'pgoutput')",
                    (f"{reader}_{turn}",),
                )
        for low in range(1, changes, ROWS_EACH):
            sql = (
                "insert into changed select n, n * 7, 'note ' || n from generate_series(%s::bigint,"
                " %s) n"
            )
            connection.execute(sql, (low, low + ROWS_EACH - 1))
        found = connection.execute("select pg_current_wal_flush_lsn()::text").fetchone()
        assert found is not None
    seen: dict[str, list[float]] = {"pg_recvlogical": [], "tidegate, reading alone": []}
    for turn in range(repeats):
        seen["pg_recvlogical"].append(_recvlogical(server, f"recvlogical_{turn}", str(found[0])))
        seen["tidegate, reading alone"].append(_tidegate(server, f"tidegate_{turn}", changes))
    other = median(seen["pg_recvlogical"])
    for name, seconds in seen.items():
        value = median(seconds)
        ratio = None if name == "pg_recvlogical" else other / value
        judged = ratio is not None and changes >= JUDGED_FROM
        bench.report.add(
            Figure(
                part="catchup",
                name=f"PostgreSQL, {changes:,} changes: {name}, {changes / value / 1000:,.0f}k/s",
                value=value,
                unit="s",
                spread=(min(seconds), max(seconds)),
                against="pg_recvlogical" if ratio is not None else "",
                ratio=ratio,
                aim=f">= {RATIO_MIN}x" if judged else "",
                met=ratio >= RATIO_MIN if judged and ratio is not None else None,
            )
        )


def _tidegate(server: PostgresServer, slot: str, changes: int) -> float:
    where = {
        "url": f"jdbc:postgresql://127.0.0.1:{server.port}/postgres",
        "username": "postgres",
        "password": "any",
    }
    options = {
        **where,
        "table-names": ["postgres.public.changed"],
        "slot.name": slot,
        "publication.name": "bench",
    }
    answer = read_alone(
        "Postgres-CDC",
        {**options, "startup.mode": "committed-offset", "stop.mode": "latest"},
        changes,
    )
    return float(answer["seconds"])


def _recvlogical(server: PostgresServer, slot: str, end: str) -> float:
    command = [
        str(find_binaries() / "pg_recvlogical"),
        "--dbname",
        server.url,
        "--slot",
        slot,
        "--start",
        "--endpos",
        end,
    ]
    command += [
        "--file",
        "/dev/null",
        "--option",
        "proto_version=1",
        "--option",
        "publication_names=bench",
    ]
    began = time.perf_counter()
    if subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode:
        raise Trouble("pg_recvlogical failed")
    return time.perf_counter() - began
