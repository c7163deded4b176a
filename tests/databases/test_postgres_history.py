"""Rows that the log or the user does not see, and servers with another history.

All of these are rejected by Postgres-CDC.
"""

import shutil
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from cdc_kit import Mirror, make_source, restored
from database_kit import Place, everything
from database_kit import source as jdbc_source
from postgres_kit import Shop

from tidegate.databases.cdc.errors import NoTables, NotSetUp, PositionGone
from tidegate.databases.errors import AccessDenied
from tidegate.plugin.contract import Limit
from tidegate.testing.servers.postgres import PostgresServer

A = (
    "create table a (id int primary key, v text)",
    "alter table a replica identity full",
    "insert into a values (1, 'x'), (2, 'y')",
)


def test_rows_of_a_table_that_inherits_are_its_own_only(shop: Shop) -> None:
    shop(
        *A,
        "create table child (primary key (id)) inherits (a)",
        "alter table child replica identity full",
        "insert into child values (2, 'child'), (3, 'c')",
    )
    mirror = Mirror(shop.source())
    mirror.run()
    assert [(row["id"], row["v"]) for row in mirror.table(shop.path("a"))] == [(1, "x"), (2, "y")]
    shop(
        "update a set v = v || '!'",
        "delete from a where id = 2",
        "insert into child values (4, 'd')",
    )
    mirror.run()
    assert [(row["id"], row["v"]) for row in mirror.table(shop.path("a"))] == [(1, "x!")]
    assert mirror.table(shop.path("child")) == shop.rows("child")


@pytest.fixture
def reader(shop: Shop) -> Iterator[Place]:
    """A user that sees rows with id < 2 only."""
    shop(
        *A,
        "drop role if exists only_some",
        "create role only_some login replication",
        "grant select on a to only_some",
    )
    shop(
        "alter table a enable row level security",
        "create policy few on a for select to only_some using (id < 2)",
    )
    yield Place(url=shop.place.url, user="only_some", password="any", database=shop.name)
    shop("drop owned by only_some", "drop role only_some")


def test_policy_that_hides_rows_is_rejected(shop: Shop, reader: Place) -> None:
    with pytest.raises(AccessDenied, match="row-level security"):
        everything(jdbc_source(reader, query="select id, v from a"))
    with pytest.raises(AccessDenied, match="row-level security"):
        everything(jdbc_source(reader, table_path=shop.path("a")))
    options = {
        "url": reader.url,
        "username": reader.user,
        "password": "any",
        "slot.name": shop.slot,
        "table-names": [shop.path("a")],
    }
    with pytest.raises(NotSetUp, match=r"row security hides rows of .*a from the user only_some"):
        make_source("Postgres-CDC", options).initial()
    shop("alter role only_some bypassrls", "create publication mine for table a")
    mirror = Mirror(make_source("Postgres-CDC", {**options, "publication.name": "mine"}))
    mirror.run()
    assert len(mirror.rows) == 2
    assert everything(jdbc_source(reader, table_path=shop.path("a"))).num_rows == 2


@pytest.fixture
def own() -> Iterator[PostgresServer]:
    """A server that a test may stop."""
    with PostgresServer(settings={"wal_level": "logical", "fsync": "off"}) as server:
        yield server


def execute(server: PostgresServer, *statements: str) -> list[Any]:
    with psycopg.connect(server.url, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def source_of(server: PostgresServer) -> Any:
    url = f"jdbc:postgresql://127.0.0.1:{server.port}/postgres"
    return make_source(
        "Postgres-CDC",
        {
            "url": url,
            "username": "postgres",
            "password": "any",
            "slot.name": "s",
            "table-pattern": r"postgres\.public\..*",
        },
    )


def test_position_of_another_server_or_history_is_rejected(
    own: PostgresServer, postgres: PostgresServer
) -> None:
    execute(own, *A)
    mirror = Mirror(source_of(own))
    mirror.run()
    own.stop()
    earlier = own._data.with_name("earlier")
    shutil.copytree(own._data, earlier, symlinks=True, copy_function=shutil.copy2)
    _give(earlier, own)
    own.start()
    execute(
        own,
        "insert into a select s, 'later' from generate_series(10, 2000) s",
        "select pg_switch_wal()",
    )
    mirror.source = source_of(own)
    mirror.run()
    later = mirror.offset
    own.stop()
    shutil.rmtree(own._data)
    earlier.rename(own._data)
    own.start()
    source = source_of(own)
    with pytest.raises(PositionGone, match="it was restored to an earlier state"):
        source.latest(later, Limit())
    assert not source.log_retention(later).held
    mirror = Mirror(source)
    mirror.run()
    own.stop()
    (own._data / "standby.signal").touch()
    _give(own._data, own)
    own.start()
    execute(own, "select pg_promote()")
    source = source_of(own)
    with pytest.raises(
        PositionGone,
        match="another history: it is on timeline 2, and the position is of timeline 1",
    ):
        source.latest(mirror.offset, Limit())
    execute(postgres, "drop table if exists a", *A)
    other = source_of(postgres)
    other.initial()
    try:
        with pytest.raises(PositionGone, match="this is another server: its system identifier is"):
            other.latest(
                restored({**mirror.offset, "log": {**mirror.offset["log"], "lsn": "0/1"}}), Limit()
            )
    finally:
        execute(
            postgres,
            "select pg_drop_replication_slot('s')",
            "drop publication tidegate_s",
            "drop table a",
        )


@pytest.mark.parametrize("bulk", [False, True])
def test_restored_server_past_the_position_is_rejected(own: PostgresServer, bulk: bool) -> None:
    execute(own, *A)
    mirror = Mirror(source_of(own))
    mirror.run()
    own.stop()
    earlier = own._data.with_name("earlier")
    shutil.copytree(own._data, earlier, symlinks=True, copy_function=shutil.copy2)
    _give(earlier, own)
    own.start()
    execute(own, *(f"insert into a values ({n}, 'lost')" for n in range(10, 60)))
    mirror.run()
    own.stop()
    own.start()  # a restart alone does not change the history
    mirror.source = source_of(own)
    execute(own, "insert into a values (60, 'lost too')")
    mirror.run()
    assert len(mirror.rows) == 53
    own.stop()
    shutil.rmtree(own._data)
    earlier.rename(own._data)
    own.start()
    if bulk:
        execute(own, "insert into a select n, repeat('x', 100) from generate_series(100, 3000) n")
        mirror.offset["log"].pop("mark", None)
    else:
        execute(own, *(f"insert into a values ({n}, 'other')" for n in range(100, 300)))
    execute(own, "select pg_switch_wal()")
    said = (
        "transactions, and .* at the time of the position"
        if bulk
        else "does not have the transaction"
    )
    for _ in range(2):
        source = source_of(own)
        with pytest.raises(PositionGone, match=said):
            source.latest(mirror.offset, Limit())
    mirror = Mirror(source_of(own))
    mirror.run()
    assert {row["v"] for row in mirror.rows.values()} >= {"x", "y"}


def test_position_without_recorded_history_is_accepted(shop: Shop) -> None:
    shop(*A, "create publication mine for all tables")
    mirror = Mirror(shop.source(**{"publication.name": "mine"}))
    mirror.run()
    mirror.offset["log"] = {
        key: mirror.offset["log"][key] for key in ("lsn", "history")
    }  # as earlier versions wrote it
    shop("update a set v = 'later' where id = 1", "alter table a add check (id > 0)")
    mirror.source = shop.source(**{"publication.name": "mine"})
    mirror.run()
    assert mirror.table(shop.path("a")) == shop.rows("a")
    assert {"xmin", "started", "mark"} <= set(mirror.offset["log"])


def _give(path: Any, server: PostgresServer) -> None:
    """Give a path to the user of the server."""
    owner = server._base.stat()
    for found in (path, *path.rglob("*")):
        shutil.chown(found, owner.st_uid, owner.st_gid)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("create view x as select * from a", "is a view"),
        ("create materialized view x as select * from a", "is a materialized view"),
        ("create sequence x", "is a sequence"),
        ("create unlogged table x (id int primary key)", "is unlogged"),
        (
            (
                "create foreign data wrapper w; create server s foreign data wrapper w; create"
                " foreign table x (id int) server s"
            ),
            "is a foreign table",
        ),
    ],
)
def test_relation_without_a_log_is_rejected_with_its_kind(shop: Shop, made: str, said: str) -> None:
    shop(*A, made)
    with pytest.raises(NoTables, match=rf"{shop.path('x')} {said}"):
        shop.source(**{"table-names": [shop.path("a"), shop.path("x")]}).initial()
    if "unlogged" in made:
        with pytest.raises(NotSetUp, match="as it or a partition is unlogged"):
            shop.source().initial()
        assert shop("select 1 from pg_publication") == []
    else:  # a pattern is for tables
        assert [table.path for table in shop.source().tables()] == [shop.path("a")]


def test_fresh_start_recreates_a_lost_slot() -> None:
    settings = {
        "wal_level": "logical",
        "fsync": "off",
        "max_slot_wal_keep_size": "1MB",
        "wal_keep_size": "0",
        "min_wal_size": "32MB",
        "max_wal_size": "32MB",
    }
    with PostgresServer(settings=settings) as server:
        execute(server, *A)
        mirror = Mirror(source_of(server))
        mirror.run()
        for _ in range(6):
            execute(
                server,
                "insert into a select s, repeat('x', 900) from generate_series(10, 9000) s",
                "delete from a where id >= 10",
                "checkpoint",
            )
            execute(server, "select pg_switch_wal()", "checkpoint")
        with pytest.raises(
            PositionGone,
            match=(
                r"was invalidated, as it held back more log than max_slot_wal_keep_size"
                r" allows.*--restore fresh"
            ),
        ):
            mirror.run()
        mirror = Mirror(source_of(server))
        mirror.run()
        execute(server, "update a set v = 'after'")
        mirror.run()
        assert {row["v"] for row in mirror.rows.values()} == {"after"}
