"""A log full of other tables is skipped, even by small batches."""

from contextlib import closing

import psycopg
from cdc_kit import Mirror, make_source
from database_kit import Place

from tidegate.plugin.contract import Limit
from tidegate.testing.servers.mariadb import MariaDbServer
from tidegate.testing.servers.postgres import PostgresServer

SMALL = Limit(rows=5, bytes=500)
NEIGHBOURS = 40


def test_small_mariadb_batch_advances_past_other_tables(
    mariadb: MariaDbServer, maria: Place
) -> None:
    mariadb.execute(
        "create table orders (id int primary key, name varchar(40))",
        "create table others (id int, text text)",
        database=maria.database,
    )
    mariadb.execute("insert into orders values (1, 'a')", database=maria.database)
    options = {
        "url": maria.url,
        "username": maria.user,
        "password": maria.password,
        "table-names": [f"{maria.database}.orders"],
    }
    mirror = Mirror(make_source("MySQL-CDC", options))
    mirror.run(SMALL)
    mariadb.execute(
        *["insert into others values (1, repeat('x', 400))"] * NEIGHBOURS,
        "insert into orders values (2, 'b')",
        database=maria.database,
    )
    mirror.run(SMALL)
    assert [row["id"] for row in mirror.table(f"{maria.database}.orders")] == [1, 2]


def test_small_postgres_batch_advances_past_other_tables(
    postgres: PostgresServer, pg: Place
) -> None:
    with closing(
        psycopg.connect(
            f"postgresql://postgres@127.0.0.1:{postgres.port}/{pg.database}", autocommit=True
        )
    ) as connection:
        connection.execute("create table orders (id int primary key, name varchar(40))")
        connection.execute("create table others (id int, text text)")
        connection.execute("alter table orders replica identity full")
        connection.execute("insert into orders values (1, 'a')")
        options = {
            "url": pg.url,
            "username": pg.user,
            "password": pg.password,
            "table-names": [f"{pg.database}.public.orders"],
            "slot.name": pg.database,
        }
        mirror = Mirror(make_source("Postgres-CDC", options))
        mirror.run(SMALL)
        for _ in range(NEIGHBOURS):
            connection.execute("insert into others values (1, repeat('x', 400))")
        connection.execute("insert into orders values (2, 'b')")
        mirror.run(SMALL)
        assert [row["id"] for row in mirror.table(f"{pg.database}.public.orders")] == [1, 2]
        connection.execute("select pg_drop_replication_slot(%s)", (pg.database,))
