"""A CDC source reports whether a batch left a backlog, in its tables or its log.

Then a stream does not wait for its interval.
"""

from typing import Any

import psycopg
import pytest
from cdc_kit import make_source, restored
from database_kit import Place

from tidegate.plugin.contract import Limit
from tidegate.testing.servers.mariadb import MariaDbServer
from tidegate.testing.servers.postgres import PostgresServer

ROUNDS_MAX = 200


def steps(source: Any, offset: Any, limit: Limit) -> tuple[Any, list[bool]]:
    """Run batches until there is nothing new; return the offset and what each reported."""
    said: list[bool] = []
    for _ in range(ROUNDS_MAX):
        end = restored(source.latest(offset, limit))
        if end == offset:
            assert not source.has_backlog(end)
            return end, said
        said.append(source.has_backlog(end))
        offset = end
    raise AssertionError("the source does not come to an end")


@pytest.mark.timeout(600)
def test_mariadb_has_backlog_until_tables_and_log_are_read(
    mariadb: MariaDbServer, maria: Place
) -> None:
    mariadb.execute("create table orders (id int primary key, name text)", database=maria.database)
    mariadb.execute("insert into orders select seq, 'x' from seq_1_to_500", database=maria.database)
    options = {
        "url": maria.url,
        "username": maria.user,
        "password": maria.password,
        "table-names": [f"{maria.database}.orders"],
        "snapshot.split.size": 100,
    }
    source = make_source("MySQL-CDC", options)
    offset = restored(source.initial())
    assert source.has_backlog(offset)  # nothing was polled yet
    offset, said = steps(source, offset, Limit(rows=200))
    assert said == [True] * (len(said) - 1) + [False]
    assert len(said) > 1
    for number in range(5):
        mariadb.execute(
            "insert into orders select seq, 'y' from"
            f" seq_{1000 + number * 100}_to_{1099 + number * 100}",
            database=maria.database,
        )
    offset, said = steps(source, offset, Limit(rows=1))  # a transaction each
    assert said[:-1] == [True] * 4
    mariadb.execute("delete from orders where id < 10", database=maria.database)
    assert steps(source, offset, Limit(rows=100_000))[1] == [False]


@pytest.mark.timeout(600)
def test_postgres_has_backlog_until_tables_and_log_are_read(
    pg: Place, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.connectors.postgrescdc.source.RANGE_BYTES_MIN", 4096)
    slot = f"behind_{pg.database}"
    with psycopg.connect(
        f"host=127.0.0.1 port={postgres.port} user=postgres dbname={pg.database}", autocommit=True
    ) as connection:
        connection.execute("create table orders (id int primary key, name text)")
        connection.execute("alter table orders replica identity full")
        connection.execute("insert into orders select n, 'x' from generate_series(1, 500) n")
        names = [f"{pg.database}.public.orders"]
        options = {
            "url": pg.url,
            "username": pg.user,
            "password": pg.password,
            "slot.name": slot,
            "table-names": names,
            "snapshot.split.size": 100,
        }
        source = make_source("Postgres-CDC", options)
        try:
            offset, said = steps(source, restored(source.initial()), Limit(rows=200, bytes=1 << 30))
            assert said[:-1] == [True] * (len(said) - 1)
            assert len(said) > 1
            connection.execute(
                "insert into orders select n, repeat('y', 2000) from generate_series(1001, 2000) n"
            )
            end = restored(source.latest(offset, Limit(bytes=1)))
            assert (end != offset, source.has_backlog(end)) == (True, True)
            _, said = steps(source, end, Limit(bytes=1 << 30))
            assert not any(said)
        finally:
            connection.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots where"
                " slot_name = %s",
                (slot,),
            )
