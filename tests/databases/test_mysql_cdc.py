"""MySQL-CDC on a real MariaDB: snapshot, log, handover, types, positions, table changes."""

import random
import re
import time
from typing import Any

import pytest
from binlog_kit import BinlogShop
from cdc_kit import Mirror, rows_of
from database_kit import Driven, Place, sink

from tidegate.databases.cdc.errors import (
    ColumnsAdded,
    NoKey,
    NotSetUp,
    PositionGone,
    TableChanged,
)
from tidegate.plugin.arrow import table_schema
from tidegate.plugin.contract import Limit
from tidegate.testing.servers.mariadb import MariaDbServer

ORDERS = (
    "create table orders (id bigint primary key, name varchar(80), amount decimal(12,2), note text)"
    " character set utf8mb4"
)
ROWS = (
    "insert into orders select seq, concat('name ', seq), seq / 4, if(seq % 3, null, repeat('x',"
    " seq % 50)) from seq_1_to_{}"
)


@pytest.fixture
def shop(mariadb: MariaDbServer, maria: Place) -> BinlogShop:
    return BinlogShop(mariadb, maria)


def change(rng: random.Random, number: int) -> list[str]:
    """Run a transaction with all kinds of changes."""
    steps = ["begin"]
    for step in range(rng.choice([1, 3, 20])):
        key, what = rng.randrange(1, 500), rng.random()
        fresh = 1000 + number * 100 + step
        if what < 0.4:
            steps.append(
                f"insert into orders values ({fresh}, 'new {number}', {number} / 100, null)"
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


def test_snapshot_and_concurrent_changes_equal_the_table(shop: BinlogShop, seed: int) -> None:
    shop(ORDERS, ROWS.format(500))
    rng = random.Random(seed)
    mirror = Mirror(shop.source())
    numbers = iter(range(10_000))

    def write() -> None:
        for _ in range(3):
            shop(*change(rng, next(numbers)))

    for _ in range(12):
        write()
        mirror.step(Limit(rows=100), between=write)
    mirror.run()
    assert mirror.table(f"{shop.name}.orders") == shop.rows("orders")


def test_snapshot_batch_is_repeatable_at_any_time(shop: BinlogShop) -> None:
    shop(ORDERS, ROWS.format(300))
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


def test_log_range_is_repeatable(shop: BinlogShop) -> None:
    shop(ORDERS)
    source = shop.source(startup__mode="latest")
    start = source.initial()
    shop(
        ROWS.format(50),
        "update orders set id = id + 100 where id < 10",
        "delete from orders where id > 140",
    )
    end = source.latest(start, Limit())
    first = list(rows_of(source, start, end))
    shop("update orders set name = 'later'")
    assert list(rows_of(source, start, end)) == first
    assert [row["__row_kind"] for _, row in first[50:52]] == [
        3,
        0,
    ]  # a changed key is a delete and an insert


EVERY_TYPE = """create table everything (id int primary key,
  u int unsigned, s smallint, su smallint unsigned, ti tinyint, b1 tinyint(1), ub bigint unsigned,
    m mediumint, mu mediumint unsigned,
  d decimal(12,2), dd decimal(38,10), d65 decimal(60,5), d0 decimal(9,0), f float, g double, y year,
  dt date, t0 time, t6 time(6), dt0 datetime, dt3 datetime(3), dt6 datetime(6),
    ts0 timestamp null, ts6 timestamp(6) null,
  c char(10), cl char(255), v varchar(300), l varchar(50) character set latin1,
    g2 varchar(20) character set gbk, u2 varchar(20) character set utf16,
  bi binary(8), vb varbinary(20), tx text, bl blob, lt longtext, mb mediumblob, j json,
  e enum('a','it''s','c'), st set('x','y','z'), bt bit(12), b1t bit(1), uu uuid, i6 inet6, i4 inet4,
  gen int as (s + 1) stored, vir int as (s + 2) virtual) character set utf8mb4"""
VALUES = [
    (
        "(1, 4294967295, -5, 65535, -7, 1, 18446744073709551615, -8388608, 16777215,"
        " -1234567890.12, 1234567890123456789012345678.0123456789,"
        " -1234567890123456789012345678901234567890123456789012345.12345, 7, 1.5, -2.25e100, 1999,"
        " '2020-02-29', '23:59:59', '11:22:33.123456', '1999-12-31 23:59:59', '2024-01-02"
        " 03:04:05.678', '9999-12-31 23:59:59.999999', '2024-05-06 07:08:09', '2024-05-06"
        " 07:08:09.000001', 'chär', repeat('ü', 255), 'vär', 'äö€', '中文', 'é😀', x'0102',"
        " '\\0a\\0', 'text', 'blob', repeat('long', 5000), x'00ff', '{\"a\": [1, 2]}', 'it''s',"
        " 'x,z', b'101010101010', b'1', '123e4567-e89b-12d3-a456-426614174000',"
        " '2001:db8::ff00:42:8329', '10.1.2.3', default, default)"
    ),
    (
        "(2, 0, 32767, 0, 127, 0, 0, 8388607, 0, 0.00, -0.0000000001, 0.00001, -999999999, -0.0,"
        " 1e-300, 2155, '0001-01-01', '00:00:00', '00:00:00.5', '0001-01-01 00:00:00', '1970-01-01"
        " 00:00:00.001', '1969-12-31 23:59:59.999999', '2038-01-19 03:14:07', '1970-01-01"
        " 00:00:01.5', '', '', '', '', '', '', '', '', '', '', '', '', 'null', 'c', '', b'0', b'0',"
        " '00000000-0000-0000-0000-000000000000', '::', '0.0.0.0', default, default)"
    ),
]


@pytest.mark.parametrize("metadata", ["FULL", "NO_LOG"])
def test_every_type_is_equal_in_log_and_table(shop: BinlogShop, metadata: str) -> None:
    shop(EVERY_TYPE)
    mirror = Mirror(shop.source())
    mirror.run()
    zero = (
        "insert into everything (id, dt, dt0, ts0, y, t0) values (4, '0000-00-00', '2020-00-10"
        " 00:00:00', '0000-00-00 00:00:00', 0, '00:00:01')"
    )
    shop(f"set global binlog_row_metadata = {metadata}")
    shop(
        "set session time_zone = '+00:00'",
        *(f"insert into everything values {values}" for values in VALUES),
        "insert into everything (id) values (3)",
        "set session sql_mode = ''",
        zero,
        "update everything set c = 'other' where id < 3",
        "set global binlog_row_metadata = FULL",
    )
    mirror.run()
    assert mirror.table(f"{shop.name}.everything") == shop.rows("everything")


def test_compressed_events_are_read(shop: BinlogShop) -> None:
    shop(ORDERS)
    mirror = Mirror(shop.source())
    mirror.run()
    try:
        shop("set global log_bin_compress = ON", "set global log_bin_compress_min_len = 10")
        shop(
            ROWS.format(200),
            "update orders set name = repeat('a', 70)",
            "delete from orders where id > 150",
        )
    finally:
        shop("set global log_bin_compress = OFF", "set global log_bin_compress_min_len = 256")
    mirror.run()
    assert mirror.table(f"{shop.name}.orders") == shop.rows("orders")


def test_range_spans_files_and_ends_with_a_transaction(shop: BinlogShop) -> None:
    shop(ORDERS)
    mirror = Mirror(shop.source(startup__mode="latest"))
    for number in range(4):
        first = number * 100
        shop(
            "begin",
            *(f"insert into orders values ({first + n}, 'x', 1, null)" for n in range(10)),
            "commit",
            "flush binary logs",
        )
    assert mirror.step(Limit(bytes=1))
    assert len(mirror.rows) == 10  # one transaction at least, and a whole one
    mirror.run(Limit(rows=1))
    assert len(mirror.rows) == 40
    assert mirror.offset["log"]["gtid"].count("-") == 2


def test_a_large_transaction_comes_in_many_batches(shop: BinlogShop) -> None:
    shop(ORDERS)
    source = shop.source(startup__mode="latest")
    start = source.initial()
    shop(ROWS.format(50_000))
    end = source.latest(start, Limit(bytes=1000))
    (split,) = source.shared_splits(start, end, 4)
    sizes = [batch.num_rows for batch in source.read(split)]
    assert sum(sizes) == 50_000
    assert max(sizes) < 20_000


def test_many_tables_are_one_read_of_the_log_and_new_ones_are_read_on_restore(
    shop: BinlogShop,
) -> None:
    shop(
        ORDERS,
        "create table codes (code varchar(20), part int, v int, primary key (code, part))",
        "insert into codes values ('a', 1, 1), ('B', 2, 2)",
    )
    mirror = Mirror(shop.source())
    mirror.run()
    shop(
        ROWS.format(20),
        "replace into codes values ('a', 1, 5), ('c', 1, 1)",
        "update codes set code = 'A' where code = 'a'",
    )
    source = mirror.source
    end = source.latest(mirror.offset, Limit())
    assert [split.table for split in source.shared_splits(mirror.offset, end, 4)] == [""]
    assert sorted(split.table for split in source.splits(mirror.offset, end, 4)) == [
        f"{shop.name}.codes",
        f"{shop.name}.orders",
    ]
    assert list(rows_of(source, mirror.offset, end, joint=True))
    mirror.step(joint=False)
    shop(
        "create table later (id int primary key, v int)", "insert into later values (1, 1), (2, 2)"
    )
    mirror.source = shop.source()  # like a new driver
    shop("update later set v = 9 where id = 1")
    mirror.run()
    for table in ("orders", "codes", "later"):
        assert mirror.table(f"{shop.name}.{table}") == shop.rows(table)


def test_empty_table_is_created_in_the_target(shop: BinlogShop, pg: Place) -> None:
    shop("create table bare (id int primary key, v int)")
    source = shop.source()
    start = source.initial()
    (split,) = source.shared_splits(start, source.latest(start, Limit()), 4)
    (bare,) = source.tables()
    (rows,) = source.read(split)
    assert (rows.num_rows, rows.schema) == (0, table_schema(bare))
    Driven(sink(pg, table="${table_name}")).batch(1, (bare, rows.to_pylist()))
    assert pg.execute("select id, v from bare") == []


def test_table_without_a_key_is_rejected_unless_one_is_configured(shop: BinlogShop) -> None:
    shop("create table loose (a int, b int)", "insert into loose values (1, 2)")
    with pytest.raises(NoKey, match="loose has no primary key"):
        shop.source().tables()
    config = [{"table": f"{shop.name}.loose", "primaryKeys": ["a"]}]
    mirror = Mirror(shop.source(**{"table-names-config": config}))
    mirror.run()
    assert mirror.table(f"{shop.name}.loose") == [{"a": 1, "b": 2}]


def test_startup_and_stop_modes_set_the_range(shop: BinlogShop) -> None:
    shop(ORDERS, ROWS.format(10))
    file, pos = shop("show master status")[0][:2]
    shop("update orders set name = 'x' where id = 1")
    at = {"startup__specific-offset.file": file, "startup__specific-offset.pos": pos}
    kinds = [
        row["__row_kind"]
        for row in _all(shop.source(startup__mode="specific", stop__mode="latest", **at))
    ]
    assert kinds == [1, 2]
    assert [
        r["__row_kind"]
        for r in _all(
            shop.source(startup__mode="earliest", stop__mode="specific", **_stop(file, pos))
        )
    ] == [0] * 10
    assert (
        len(
            _all(
                shop.source(startup__mode="timestamp", startup__timestamp=1000, stop__mode="latest")
            )
        )
        == 12
    )
    assert len(_all(shop.source(startup__mode="snapshot-only"))) == 10
    assert _all(shop.source(startup__mode="latest", stop__mode="latest")) == []


def _stop(file: str, pos: int) -> dict[str, Any]:
    return {"stop__specific-offset.file": file, "stop__specific-offset.pos": pos}


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


def test_purged_position_is_reported_with_the_oldest_one_and_choices(
    shop: BinlogShop,
) -> None:
    shop(ORDERS, ROWS.format(10))
    source = shop.source(startup__mode="latest")
    old = source.initial()
    assert source.log_retention(old).held
    shop(
        "flush binary logs",
        "insert into orders values (77, 'x', 1, null)",
        "flush binary logs",
        "insert into orders values (78, 'x', 1, null)",
        "flush binary logs",
    )
    newest = shop("show master status")[0][0]
    deadline_s = time.monotonic() + 60
    while old["log"]["file"] in [
        row[0] for row in shop("show binary logs")
    ]:  # a file stays until nothing in the engine needs it
        assert time.monotonic() < deadline_s, "the file is not purged"
        shop(
            f"purge binary logs to '{newest}'",
            "insert into orders values (79, 'x', 1, null)",
            "delete from orders where id = 79",
        )
    oldest = shop("show binary logs")[0][0]
    with pytest.raises(
        PositionGone,
        match=(
            rf"(?s){old['log']['file']}:{old['log']['pos']}.*{old['log']['file']} was"
            rf" purged.*oldest.*{oldest}.*--restore fresh"
        ),
    ):
        source.latest(old, Limit())
    gone = source.log_retention(old)
    assert not gone.held
    assert (gone.position, gone.oldest) == (
        f"{old['log']['file']}:{old['log']['pos']}",
        f"{oldest}:4",
    )
    assert not source.log_retention({"log": {"file": "binlog.999999", "pos": 4}}).held


def test_position_of_an_idle_table_advances(shop: BinlogShop, mariadb: MariaDbServer) -> None:
    shop(ORDERS)
    mirror = Mirror(shop.source(startup__mode="latest"))
    mariadb.execute(
        "create database if not exists elsewhere",
        "create or replace table elsewhere.t (id int primary key)",
        "insert into elsewhere.t values (1)",
    )
    assert not mirror.step()  # a few changes of other tables are skipped
    mariadb.execute("flush binary logs")
    assert mirror.step()
    assert mirror.offset["log"]["file"] == shop("show master status")[0][0]
    assert mirror.rows == {}


def test_statement_that_keeps_the_columns_is_skipped(shop: BinlogShop) -> None:
    shop(ORDERS)
    mirror = Mirror(shop.source(startup__mode="latest"))
    shop(
        "insert into orders values (1, 'x', 1, null)",
        "alter table orders add index by_name (name)",
        "insert into orders values (2, 'y', 1, null)",
    )
    mirror.run()
    assert len(mirror.rows) == 2


@pytest.mark.parametrize(
    "statement",
    [
        "truncate table orders",
        "alter table orders drop column note",
        "alter table orders modify name text",
        "drop table orders",
    ],
)
def test_other_table_changes_stop_the_job_before_them(shop: BinlogShop, statement: str) -> None:
    shop(ORDERS)
    mirror = Mirror(shop.source(startup__mode="latest", **{"schema-changes.enabled": True}))
    shop("insert into orders values (1, 'x', 1, null)", statement)
    assert mirror.step()
    assert len(mirror.rows) == 1
    with pytest.raises(TableChanged, match=f"(?i){statement.replace('orders', '`?orders')}"):
        mirror.run()


@pytest.mark.parametrize("turned", ["before", "between", "after"])
def test_stopping_statement_is_found_across_log_rotation(
    shop: BinlogShop, mariadb: MariaDbServer, turned: str
) -> None:
    shop(ORDERS)
    mirror = Mirror(shop.source(startup__mode="latest"))
    mariadb.execute(
        "create database if not exists elsewhere",
        "create or replace table elsewhere.t (id int primary key)",
    )
    for place, statement in (
        ("before", "insert into orders values (1, 'x', 1, null)"),
        ("between", "truncate table orders"),
        ("after", "do 1"),
    ):
        mariadb.execute(
            "insert into elsewhere.t select count(*) from elsewhere.t",
            *(["flush binary logs"] if place == turned else []),
        )
        shop(statement)
    assert mirror.step()
    assert len(mirror.rows) == 1
    for source in (
        mirror.source,
        shop.source(startup__mode="latest"),
    ):  # a restart from here stops at it too
        mirror.source = source
        with pytest.raises(TableChanged, match=r"(?i)truncate table orders"):
            mirror.run()


def test_added_columns_are_propagated_if_enabled(shop: BinlogShop) -> None:
    shop(ORDERS)
    mirror = Mirror(shop.source(startup__mode="latest"))
    wanting = Mirror(shop.source(startup__mode="latest", **{"schema-changes.enabled": True}))
    shop(
        "insert into orders values (1, 'x', 1, null)",
        "alter table orders add column extra int after name, add more text",
    )
    shop("insert into orders values (2, 'y', 7, 1, null, 'm')")
    mirror.step()
    with pytest.raises(TableChanged):
        mirror.run()
    wanting.step()
    with pytest.raises(ColumnsAdded, match="extra, more"):
        wanting.run()
    wanting.source = shop.source(
        startup__mode="latest", **{"schema-changes.enabled": True}
    )  # the pipeline is rebuilt
    wanting.run()
    added = wanting.table(f"{shop.name}.orders")[1]
    assert (added["id"], added["extra"], added["more"]) == (2, 7, "m")


def test_successively_added_columns_have_values_in_existing_rows(
    shop: BinlogShop,
) -> None:
    wanting = {"schema-changes.enabled": True}
    shop(ORDERS)
    mirror = Mirror(shop.source(startup__mode="latest", **wanting))
    shop(
        "insert into orders values (1, 'x', 1, null)",
        "alter table orders add (a int default 5, b varchar(20) not null default 'it''s, so')",
        "insert into orders values (2, 'y', 1, null, 6, 'b')",
        "alter table orders add column if not exists a int, add column c enum('p','q') not null,"
        " add d decimal(9,2) not null after name, algorithm=copy",
        "alter table orders add key (c)",
        "insert into orders (id, name, c, d) values (3, 'z', 'q', 1)",
        "alter table orders add column e date default '2024-02-29', add f tinyint(1) default 1",
    )
    for _ in range(4):
        try:
            mirror.run()
        except ColumnsAdded:
            mirror.source = shop.source(
                startup__mode="latest", **wanting
            )  # the pipeline is rebuilt
    (table,) = mirror.source.tables()
    defaults = table.options["defaults"]
    expected = {"a": "5", "b": "it's, so", "c": "p", "d": "0", "e": "2024-02-29", "f": True}
    assert {name: defaults[name] for name in expected} == expected
    assert mirror.table(f"{shop.name}.orders")[1:] == shop.rows("orders")[1:]
    shop(
        "alter table orders add column g varchar(40) default uuid()",
        "insert into orders (id, c, d) values (4, 'q', 2)",
    )
    with pytest.raises(TableChanged, match="the value of g in existing rows is unknown"):
        mirror.run()


@pytest.mark.parametrize(
    "statements",
    [
        ["alter table orders drop column note, add column note text"],
        [
            "alter table orders change name title varchar(80)",
            "alter table orders change title name varchar(80)",
        ],
    ],
)
def test_replaced_columns_of_equal_definition_stop_the_job(
    shop: BinlogShop, statements: list[str]
) -> None:
    shop(ORDERS)
    mirror = Mirror(shop.source(startup__mode="latest"))
    shop("insert into orders values (1, 'x', 1, 'y')", *statements)
    assert mirror.step()
    with pytest.raises(TableChanged, match=re.escape(statements[0])):
        mirror.run()


def test_server_without_row_format_is_rejected_with_the_cause(shop: BinlogShop) -> None:
    shop(ORDERS)
    try:
        shop("set global binlog_row_image = MINIMAL")
        with pytest.raises(NotSetUp, match=r"binlog_row_image = FULL \(it is MINIMAL\)"):
            shop.source().tables()
    finally:
        shop("set global binlog_row_image = FULL")


def test_killed_server_is_retried(shop: BinlogShop, mariadb: MariaDbServer) -> None:
    shop(ORDERS, ROWS.format(250))
    mirror = Mirror(shop.source())
    mirror.step(Limit(rows=100))
    mariadb.kill()
    mariadb.start()
    shop("update orders set name = 'after' where id < 20")
    mirror.run()
    assert mirror.table(f"{shop.name}.orders") == shop.rows("orders")
