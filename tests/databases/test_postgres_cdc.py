"""Postgres-CDC on a real PostgreSQL: snapshot, slot, handover, types, positions, changes."""

import random
from typing import Any

import psycopg
import pytest
from cdc_kit import Mirror, restored, rows_of
from postgres_kit import FULL, ORDERS, Shop

from tidegate.databases.cdc.errors import ColumnsAdded, NotSetUp, PositionGone, TableChanged
from tidegate.databases.postgres import lsn
from tidegate.databases.postgres.pgoutput_errors import IdentityMissing
from tidegate.plugin.contract import Limit
from tidegate.testing.servers.postgres import PostgresServer

ROWS = (
    "insert into orders select s, 'name ' || s, s / 4.0, case when s % 3 = 0 then repeat('x', s %"
    " 50) end from generate_series(1, {}) s"
)


def change(rng: random.Random, number: int) -> list[str]:
    """Run a transaction with all kinds of changes."""
    steps = ["begin"]
    for step in range(rng.choice([1, 3, 20])):
        key, what = rng.randrange(1, 500), rng.random()
        fresh = 1000 + number * 100 + step
        if what < 0.4:
            steps.append(
                f"insert into orders values ({fresh}, 'new {number}', {number} / 100.0, null)"
            )
        elif what < 0.7:
            steps.append(
                f"update orders set name = 'changed {number} é', amount = amount + 1 where id"
                f" between {key} and {key + 5}"
            )
        elif what < 0.85:
            steps.append(f"delete from orders where id = {key}")
        else:
            steps.append(f"update orders set id = {10**7 + fresh} where id = {key}")
    return [*steps, "rollback" if rng.random() < 0.05 else "commit"]


def test_snapshot_and_concurrent_changes_equal_the_table(shop: Shop, seed: int) -> None:
    shop(ORDERS, FULL, ROWS.format(500))
    rng = random.Random(seed)
    mirror = Mirror(shop.source())
    numbers = iter(range(10_000))

    def write() -> None:
        for _ in range(3):
            shop(*change(rng, next(numbers)))

    for turn in range(8):
        write()
        mirror.step(Limit(rows=100), between=write)
        if turn % 4 == 3:
            mirror.source.release(mirror.offset)
    mirror.run()
    assert mirror.table(shop.path("orders")) == shop.rows("orders")


def test_snapshot_batch_is_repeatable_at_any_time(shop: Shop) -> None:
    shop(ORDERS, FULL, ROWS.format(300))
    source = shop.source()
    start = source.initial()
    end = source.latest(start, Limit(rows=200))
    first = sorted(str(row) for row in rows_of(source, start, end))
    shop(
        "update orders set name = 'later'",
        "delete from orders where id % 2 = 0",
        "insert into orders values (-5, 'new', 1, null)",
        "update orders set id = id + 1000",
    )
    assert sorted(str(row) for row in rows_of(source, start, end)) == first
    assert len(first) == 200


EVERY_TYPE = """create table everything (id int primary key, s smallint, b bigint, f real, g double precision, n numeric(12,2), nn numeric(38,10),
  un numeric, bo boolean, t text, v varchar(30), c char(5), by bytea, d date, ti time,
    ts timestamp, tz timestamptz, j json, jb jsonb, u uuid,
  i interval, inet inet, ia int[], ta text[], na numeric(6,2)[], mood mood,
    gen int generated always as (id * 2) stored)"""
VALUES = [
    (
        "(1, -32768, 9223372036854775807, 1.5, -2.25e100, -1234567890.12,"
        " 1234567890123456789012345678.0123456789, 12.5, true, 'tëxt', 'vär', 'ab', '\\x00ff',"
        " '2020-02-29', '23:59:59.123456', '1999-12-31 23:59:59.999999', '2024-05-06"
        " 07:08:09.000001+02', '{\"a\": 1}', '{\"b\":2}', '123e4567-e89b-12d3-a456-426614174000',"
        " '1 day 2 hours', '10.0.0.1', '{1,NULL,3}', '{\"a"
        ' b",NULL,"q\\"x\\\\y","","NULL"}\', \'{1.50,2.25}\', \'sad\')'
    ),
    (
        "(2, 0, 0, 'Infinity', '-Infinity', 0, 0, 0, false, '', '', '', '', 'infinity', '00:00',"
        " 'infinity', '-infinity', 'null', '[]', null, null, null, '{}', '{}', null, null)"
    ),
    (
        "(3, null, null, null, null, null, null, null, null, null, null, null, null, null, null,"
        " null, null, null, null, null, null, null, null, null, null, null)"
    ),
]


def test_every_type_is_equal_in_log_and_table(shop: Shop) -> None:
    shop(
        "create type mood as enum ('sad', 'ok')",
        EVERY_TYPE,
        "alter table everything replica identity full",
    )
    mirror = Mirror(shop.source())
    mirror.run()
    shop(
        "set time zone 'Asia/Tokyo'",
        "set datestyle = 'German'",
        *(f"insert into everything values {values}" for values in VALUES),
    )
    shop("update everything set s = 7", "update everything set c = 'x' where id = 1", "reset all")
    mirror.run()
    got = mirror.table(shop.path("everything"))
    assert got == shop.rows("everything")
    assert "gen" not in got[0]  # it is not in the log


def test_unchanged_large_values_are_kept(shop: Shop) -> None:
    shop(ORDERS, FULL, "alter table orders alter note set storage external")
    shop("insert into orders select 1, 'x', 1, repeat('large', 5000)")
    mirror = Mirror(shop.source())
    mirror.run()
    shop("update orders set name = 'y'", "update orders set id = 2")
    mirror.run()
    assert mirror.table(shop.path("orders")) == shop.rows("orders")
    shop("alter table orders replica identity default", "update orders set name = 'z'")
    with pytest.raises(TableChanged, match="REPLICA IDENTITY was FULL and is DEFAULT"):
        mirror.run()
    mirror = Mirror(shop.source(startup__mode="latest", **{"require-replica-identity-full": False}))
    shop("update orders set name = 'z'")
    with pytest.raises(IdentityMissing, match="left note unchanged"):
        mirror.run()


def test_tables_that_publishing_would_block_are_rejected(shop: Shop) -> None:
    shop(
        ORDERS,
        FULL,
        "create table halves (id int primary key) partition by range (id)",
        "create table first_half partition of halves for values from (0) to (9)",
    )
    shop("alter table halves replica identity full")
    with pytest.raises(
        NotSetUp, match=r'run: ALTER TABLE "public"\."first_half" REPLICA IDENTITY FULL \(or'
    ):
        shop.source().initial()
    shop("alter table orders replica identity nothing")
    with pytest.raises(
        NotSetUp,
        match=r'rejects updates and deletes.*ALTER TABLE "public"\."orders" REPLICA IDENTITY FULL$',
    ):
        shop.source(**{"require-replica-identity-full": False}).initial()


def test_tables_with_only_keys_in_the_log_are_rejected_or_upserted(shop: Shop) -> None:
    shop(ORDERS, ROWS.format(20))
    with pytest.raises(NotSetUp, match=r'ALTER TABLE "public"\."orders" REPLICA IDENTITY FULL'):
        shop.source().initial()
    source = shop.source(**{"require-replica-identity-full": False})
    offset = restored(source.initial())
    rows: dict[int, Any] = {}
    for _ in range(2):
        end = restored(source.latest(offset, Limit()))
        shop(
            "update orders set name = 'new' where id = 3",
            "delete from orders where id = 4",
            "update orders set id = 105 where id = 5",
        )
        for _, row in rows_of(source, offset, end):
            if row.pop("__row_kind") in (0, 2):
                rows[row["id"]] = row
            else:
                rows.pop(row["id"], None)
        offset = end
    assert sorted(rows.values(), key=lambda r: str(r["id"])) == shop.rows("orders")


def test_a_transaction_belongs_to_the_range_of_its_commit(
    shop: Shop, postgres: PostgresServer
) -> None:
    shop(ORDERS, FULL)
    mirror = Mirror(shop.source())
    mirror.run()
    with psycopg.connect(f"postgresql://postgres@127.0.0.1:{postgres.port}/{shop.name}") as long:
        long.execute("insert into orders values (1, 'long', 1, null)")
        shop("insert into orders values (2, 'short', 1, null)")
        mirror.run()
        assert [row["id"] for row in mirror.table(shop.path("orders"))] == [2]
        long.commit()
    mirror.run()
    assert [row["id"] for row in mirror.table(shop.path("orders"))] == [1, 2]


def test_slot_in_use_is_read_through_a_copy(shop: Shop, postgres: PostgresServer) -> None:
    shop(ORDERS, FULL)
    source = shop.source(startup__mode="latest")
    start = restored(source.initial())
    shop(ROWS.format(400))
    end = restored(source.latest(start, Limit()))
    other = psycopg.connect(
        f"postgresql://postgres@127.0.0.1:{postgres.port}/{shop.name}?replication=database",
        autocommit=True,
    )
    try:
        begin = (
            f"START_REPLICATION SLOT {shop.slot} LOGICAL 0/0 (proto_version '1', publication_names"
            f" 'tidegate_{shop.slot}')"
        )
        assert other.pgconn.exec_(begin.encode()).status == psycopg.pq.ExecStatus.COPY_BOTH
        assert len(list(rows_of(source, start, end))) == 400
        source.release(end)  # does not move, as the slot is in use, and does no harm
        assert source.log_retention(start).held
    finally:
        other.close()


def test_a_large_transaction_comes_in_many_batches(shop: Shop) -> None:
    shop(ORDERS, FULL)
    source = shop.source(startup__mode="latest")
    start = restored(source.initial())
    shop(ROWS.format(50_000))
    end = restored(source.latest(start, Limit(bytes=1000)))
    (split,) = source.shared_splits(start, end, 4)
    sizes = [batch.num_rows for batch in source.read(split)]
    assert sum(sizes) == 50_000
    assert max(sizes) < 20_000


def test_slot_advances_only_by_release(shop: Shop) -> None:
    shop(ORDERS, FULL)
    mirror = Mirror(shop.source())
    mirror.run()
    before = _confirmed(shop)
    shop("create table other (id int)", "insert into other select generate_series(1, 100000)")
    assert mirror.step()  # no changes of our tables, but much log
    assert mirror.rows == {}
    assert _confirmed(shop) == before
    mirror.source.release(mirror.offset)
    assert _confirmed(shop) >= lsn.number(mirror.offset["log"]["lsn"]) > before
    mirror.source.release(mirror.offset)


def _confirmed(shop: Shop) -> int:
    return lsn.number(
        shop(
            "select confirmed_flush_lsn::text from pg_replication_slots where slot_name ="
            f" '{shop.slot}'"
        )[0][0]
    )


def test_lost_slot_position_is_reported_with_the_choices(shop: Shop) -> None:
    shop(ORDERS, FULL, ROWS.format(5))
    source = shop.source()
    old = restored(source.initial())
    assert source.log_retention(old).held
    shop("update orders set name = 'x'")
    shop(f"select pg_replication_slot_advance('{shop.slot}', pg_current_wal_lsn())")
    with pytest.raises(
        PositionGone,
        match=(
            f"(?s)from {old['log']['lsn']} on.*advanced by another client.*its oldest position"
            " is .*--restore fresh"
        ),
    ):
        source.latest(old, Limit())
    shop(f"select pg_drop_replication_slot('{shop.slot}')")
    with pytest.raises(PositionGone, match="no longer exists"):
        source.latest(old, Limit())
    assert "no longer exists" in source.log_retention(old).reason


def test_many_tables_are_one_read_of_the_log_and_new_ones_are_read_on_restore(shop: Shop) -> None:
    shop(
        ORDERS,
        FULL,
        "create table codes (code text, part int, v int, primary key (code, part))",
        "alter table codes replica identity full",
    )
    shop("insert into codes values ('a', 1, 1), ('B', 2, 2)")
    mirror = Mirror(shop.source())
    mirror.run()
    shop(
        ROWS.format(20),
        "update codes set code = 'A' where code = 'a'",
        "insert into codes values ('c', 1, 1)",
    )
    end = mirror.source.latest(mirror.offset, Limit())
    assert [split.table for split in mirror.source.shared_splits(mirror.offset, end, 4)] == [""]
    mirror.step(joint=False)
    shop(
        "create table later (id int primary key, v int)",
        "alter table later replica identity full",
        "insert into later values (1, 1), (2, 2)",
    )
    mirror.source = shop.source()  # like a new driver
    mirror.step(between=lambda: shop("update later set v = 9 where id = 1"))
    mirror.run()
    for table in ("orders", "codes", "later"):
        assert mirror.table(shop.path(table)) == shop.rows(table)


def test_startup_and_stop_modes_set_the_range(shop: Shop) -> None:
    shop(ORDERS, FULL, ROWS.format(10))
    source = shop.source(startup__mode="snapshot-only")
    assert len(_all(source)) == 10
    shop("update orders set name = 'x' where id = 1")
    assert [
        row["__row_kind"]
        for row in _all(shop.source(startup__mode="committed-offset", stop__mode="latest"))
    ] == [1, 2]
    assert _all(shop.source(startup__mode="latest", stop__mode="latest")) == []


def _all(source: Any) -> list[dict[str, Any]]:
    """Return all rows of a source that ends."""
    offset, found = source.initial(), []
    for _ in range(50):
        if source.is_exhausted(offset):
            return found
        end = source.latest(offset, Limit())
        found += [row for _, row in rows_of(source, offset, end)]
        offset = end
    raise AssertionError("the source does not end")


def test_changed_table_stops_the_job_or_is_propagated(shop: Shop) -> None:
    shop(ORDERS, FULL)
    mirror = Mirror(shop.source(startup__mode="latest", **{"schema-changes.enabled": True}))
    shop(
        "insert into orders values (1, 'x', 1, null)",
        "alter table orders add column extra int",
        "insert into orders values (2, 'y', 1, null, 7)",
    )
    mirror.step()
    assert [row["id"] for row in mirror.table(shop.path("orders"))] == [1]
    with pytest.raises(ColumnsAdded, match="extra"):
        mirror.run()
    mirror.source = shop.source(
        startup__mode="latest", **{"schema-changes.enabled": True}
    )  # the pipeline is rebuilt
    mirror.run()
    assert mirror.table(shop.path("orders"))[1]["extra"] == 7
    shop(
        "insert into orders values (3, 'z', 1, null, 8)",
        "alter table orders drop column note",
        "insert into orders values (4, 'z', 1, 9)",
    )
    mirror.step()
    assert len(mirror.rows) == 3
    with pytest.raises(TableChanged, match="its columns were"):
        mirror.run()


def test_truncate_stops_the_job_before_it(shop: Shop) -> None:
    shop(
        ORDERS,
        FULL,
        ROWS.format(3),
        "create table other (id int primary key)",
        "alter table other replica identity full",
    )
    mirror = Mirror(shop.source())
    mirror.run()
    shop(
        "insert into orders values (4, 'x', 1, null)",
        "vacuum full orders",
        "insert into orders values (5, 'y', 1, null)",
    )
    mirror.run()
    assert len(mirror.rows) == 5  # new files, and no rows were removed
    shop(
        "insert into orders values (6, 'z', 1, null)",
        "begin",
        "insert into other values (1)",
        "truncate orders",
        "commit",
        "insert into other values (2)",
    )
    mirror.source = shop.source()  # like a new driver
    assert mirror.step()
    assert len(mirror.rows) == 6
    with pytest.raises(TableChanged, match=r"public\.orders was changed at .*/.*TRUNCATE"):
        mirror.run()
    with pytest.raises(TableChanged, match="TRUNCATE"):
        mirror.step()


def test_truncate_is_detected_without_reading_every_message(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop(ORDERS, FULL, ROWS.format(3))
    mirror = Mirror(shop.source())
    mirror.run()
    calls: list[Any] = []
    monkeypatch.setattr(
        "tidegate.connectors.postgrescdc.check.find_first_change", lambda *args: calls.append(args)
    )
    shop("insert into orders values (4, 'x', 1, null)")
    mirror.run()
    assert calls == []
    mirror.source = shop.source()
    shop("insert into orders values (5, 'x', 1, null)")
    mirror.run()
    assert calls == []  # a new driver has the files from the offset


def test_successively_added_columns_have_values_in_existing_rows(
    shop: Shop,
) -> None:
    wanting = {"schema-changes.enabled": True}
    shop(ORDERS, FULL)
    mirror = Mirror(shop.source(startup__mode="latest", **wanting))
    shop(
        "insert into orders values (1, 'x', 1, null)",
        "alter table orders add column a int not null default 5, add column b text default 'it''s,"
        " {so}'",
        "insert into orders values (2, 'y', 1, null)",
        "alter table orders add column if not exists a int, add column c timestamptz default now(),"
        " add column d boolean default true",
        "insert into orders values (3, 'z', 1, null, 6, 'b', '2024-01-01 00:00:00+00', false)",
    )
    for _ in range(3):
        try:
            mirror.run()
        except ColumnsAdded:
            mirror.source = shop.source(
                startup__mode="latest", **wanting
            )  # the pipeline is rebuilt
    (table,) = mirror.source.tables()
    assert {name: value for name, value in table.options["defaults"].items() if name in "abd"} == {
        "a": "5",
        "b": "it's, {so}",
        "d": True,
    }
    first, second, third = mirror.table(shop.path("orders"))
    assert [{**table.options["defaults"], **first}["a"], second["a"], third["a"]] == ["5", 5, 6]
    assert second == shop.rows("orders")[1]
    shop(
        "alter table orders add column e double precision default random()",
        "insert into orders values (4, 'z', 1, null)",
    )
    with pytest.raises(TableChanged, match="whose value in existing rows is unknown"):
        mirror.run()


def test_killed_server_is_retried(shop: Shop, postgres: PostgresServer) -> None:
    shop(ORDERS, FULL, ROWS.format(250))
    mirror = Mirror(shop.source())
    mirror.step(Limit(rows=100))
    shop.connection.close()
    postgres.kill()
    postgres.start()
    shop.connection = psycopg.connect(
        f"postgresql://postgres@127.0.0.1:{postgres.port}/{shop.name}", autocommit=True
    )
    shop("update orders set name = 'after' where id < 20")
    mirror.run()
    assert mirror.table(shop.path("orders")) == shop.rows("orders")
