"""Transactions that are rolled back, partly or completely, and XA transactions."""

import random
from typing import Any

import pytest
from binlog_kit import BinlogShop
from cdc_kit import Mirror, rows_of
from change_kit import LATEST, RestartableJob, shop_on, source_of, source_rows
from database_kit import Place

from tidegate.databases.cdc.errors import PositionGone
from tidegate.databases.mysql.binlog_errors import LogRefused
from tidegate.model.errors import Unsupported
from tidegate.plugin.contract import Limit
from tidegate.testing.servers.mariadb import MariaDbServer
from tidegate.testing.servers.mysql import MySqlServer

TABLES = (
    "create table a (id int primary key, v varchar(20))",
    "create table b (id int primary key, v varchar(20))",
    "create table plain (id int primary key, v varchar(20)) engine = myisam",
    "create table other (id int primary key, v varchar(20))",
)


@pytest.fixture(params=["compiled", "pure"], autouse=True)
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_PURE_PYTHON", "1" if request.param == "pure" else "")


@pytest.fixture
def shop(mariadb: MariaDbServer, maria: Place) -> BinlogShop:
    return BinlogShop(mariadb, maria)


def reading(shop: BinlogShop, **options: Any) -> RestartableJob:
    shop(*TABLES)
    return RestartableJob(shop, **{"table-pattern": rf"{shop.name}\.(a|b|plain)", **options})


ROLLED_BACK = {
    "rollback with a temporary table": [
        "begin",
        "insert into a values (1, 'undone')",
        "create temporary table t (id int)",
        "rollback",
    ],
    "rollback after a temporary table was dropped": [
        "create temporary table t (id int)",
        "begin",
        "insert into a values (1, 'undone')",
        "drop temporary table t",
        "rollback",
    ],
    "savepoint": [
        "begin",
        "insert into a values (1, 'kept')",
        "savepoint s",
        "insert into a values (2, 'undone')",
        "insert into plain values (1, 'kept')",
        "rollback to savepoint s",
        "insert into a values (3, 'kept')",
        "commit",
    ],
    "savepoint before everything": [
        "begin",
        "savepoint s",
        "insert into a values (2, 'undone')",
        "insert into plain values (1, 'kept')",
        "rollback to s",
        "insert into a values (3, 'kept')",
        "commit",
    ],
    "savepoints within each other": [
        "begin",
        "insert into a values (1, 'kept')",
        "savepoint `x y`",
        "insert into b values (2, 'undone')",
        "savepoint two",
        "insert into a values (2, 'undone')",
        "insert into plain values (1, 'kept')",
        "rollback to two",
        "insert into a values (3, 'undone')",
        "rollback to `x y`",
        "update a set v = 'again' where id = 1",
        "savepoint two",
        "delete from a where id = 1",
        "rollback to two",
        "insert into b values (4, 'kept')",
        "commit",
    ],
    "the same name twice": [
        "begin",
        "savepoint s",
        "insert into a values (1, 'kept')",
        "savepoint s",
        "insert into a values (2, 'undone')",
        "insert into plain values (1, 'kept')",
        "rollback to s",
        "commit",
    ],
    "rollback of a statement that fires a trigger": [
        "create trigger t after insert on a for each row insert into plain values (new.id, 'kept')",
        "begin",
        "insert into a values (1, 'undone')",
        "rollback",
        "begin",
        "insert into a values (2, 'kept')",
        "savepoint s",
        "insert into a values (3, 'undone')",
        "rollback to s",
        "commit",
    ],
}


@pytest.mark.parametrize("case", ROLLED_BACK)
def test_rolled_back_changes_are_not_delivered(shop: BinlogShop, case: str) -> None:
    job = reading(shop, **LATEST)
    shop(*ROLLED_BACK[case])
    shop("insert into a values (100, 'after')")
    job.run()
    for table in ("a", "b", "plain"):
        assert job.rows(table) == source_rows(shop, table)


def test_changes_rolled_back_during_a_snapshot_are_not_delivered(shop: BinlogShop) -> None:
    shop(*TABLES, "insert into a select seq, 'first' from seq_1_to_300")
    mirror = Mirror(source_of(shop, **{"table-pattern": rf"{shop.name}\.(a|b|plain)"}))
    numbers = iter(range(1000))

    def write() -> None:
        shop(
            "begin",
            "delete from a where id % 2 = 0",
            "create temporary table t (id int)",
            "rollback",
        )
        undone = [
            "savepoint s",
            "delete from a",
            f"insert into plain values ({next(numbers)}, 'x')",
            "rollback to s",
        ]
        shop("begin", "update a set v = 'kept' where id % 3 = 0", *undone, "commit")

    for _ in range(5):
        write()
        mirror.step(Limit(rows=100), between=write)
    mirror.run()
    assert sorted(tuple(r.values()) for r in mirror.table(f"{shop.name}.a")) == source_rows(
        shop, "a"
    )


def xa(shop: BinlogShop, xid: str, *statements: str) -> None:
    shop(f"xa start {xid}", *statements, f"xa end {xid}", f"xa prepare {xid}")


@pytest.mark.parametrize("restarts", [False, True])
def test_xa_transaction_is_delivered_with_its_commit(
    binlog_shop: BinlogShop, restarts: bool
) -> None:
    shop, job = binlog_shop, reading(binlog_shop, **LATEST)

    def goes_on() -> None:
        if restarts:
            job.restart()
        job.run()
        if restarts:
            assert job.mirror.offset["log"].get("xa") is not None or not shop("xa recover")

    shop("insert into a values (1, 'first'), (2, 'second')")
    xa(
        shop,
        "'one'",
        "insert into a values (10, 'xa')",
        "update a set v = 'by xa' where id = 1",
        "insert into other values (1, 'x')",
    )
    goes_on()
    assert job.rows("a") == [(1, "first"), (2, "second")]
    shop("insert into b values (1, 'between')", "flush binary logs")
    xa(
        shop,
        "'two','branch',7",
        "delete from a where id = 2",
        "insert into b values (20, 'undone')",
    )
    goes_on()
    shop("xa rollback 'two','branch',7", "update a set v = 'later' where id = 2")
    goes_on()
    shop("xa commit 'one'", "insert into a values (11, 'after')")
    goes_on()
    assert job.rows("a") == source_rows(shop, "a")
    assert job.rows("b") == source_rows(shop, "b")
    shop(
        "xa start 'three'",
        "insert into a values (12, 'one phase')",
        "xa end 'three'",
        "xa commit 'three' one phase",
    )
    goes_on()
    assert job.rows("a") == source_rows(shop, "a")
    assert "xa" not in job.mirror.offset["log"]


def test_range_with_xa_is_repeatable(binlog_shop: BinlogShop) -> None:
    shop, job = binlog_shop, reading(binlog_shop, **LATEST)
    xa(shop, "'one'", "insert into a values (10, 'xa')")
    job.run()
    shop("insert into a values (1, 'x')")
    xa(shop, "'two'", "insert into a values (11, 'xa')")
    shop("xa commit 'two'", "xa commit 'one'", "insert into a values (2, 'x')")
    start, end = job.mirror.offset, job.mirror.source.latest(job.mirror.offset, Limit())
    first = [row["id"] for _, row in rows_of(job.mirror.source, start, end)]
    assert first == [1, 11, 10, 2]
    shop("delete from a")
    job.restart()
    assert [row["id"] for _, row in rows_of(job.mirror.source, start, end)] == first


def test_an_xa_transaction_that_was_prepared_before_the_job_began_is_found(
    binlog_shop: BinlogShop,
) -> None:
    shop = binlog_shop
    shop(*TABLES, "insert into a values (1, 'x')")
    xa(
        shop,
        "'early'",
        "insert into a values (2, 'early')",
        "update a set v = 'by xa' where id = 1",
    )
    xa(shop, "'others'", "insert into other values (1, 'x')")
    shop("flush binary logs", "flush binary logs", "insert into b values (1, 'x')")
    job = RestartableJob(shop, **{"table-pattern": rf"{shop.name}\.(a|b)"})
    assert job.rows("a") == [(1, "x")]
    shop("xa commit 'others'", "xa commit 'early'")
    job.run()
    assert job.rows("a") == source_rows(shop, "a")


def test_xa_transaction_is_rolled_back_during_a_snapshot(binlog_shop: BinlogShop) -> None:
    shop = binlog_shop
    shop(*TABLES, *(f"insert into a values ({n}, 'first')" for n in range(1, 301)))
    xa(
        shop,
        "'one'",
        "update a set v = 'by xa' where id in (5, 150, 250)",
        "insert into a values (400, 'xa')",
    )
    mirror = Mirror(source_of(shop, **{"table-pattern": rf"{shop.name}\.a"}))
    mirror.step(Limit(rows=100), between=lambda: shop("xa commit 'one'"))
    mirror.run(Limit(rows=100))
    assert sorted(tuple(r.values()) for r in mirror.table(f"{shop.name}.a")) == source_rows(
        shop, "a"
    )


def test_log_of_a_prepared_transaction_is_needed_until_it_completes(shop: BinlogShop) -> None:
    job = reading(shop, **LATEST)
    xa(shop, "'needed'", "insert into a values (10, 'xa')")
    shop("insert into b values (1, 'x')")
    job.run()
    prepared = job.mirror.offset["log"]["xa"]
    assert [entry[3] for entry in prepared.values()] == [[f"{shop.name}.a"]]
    job.mirror.offset["log"]["xa"] = {
        xid: ["binlog.000000", *entry[1:]] for xid, entry in prepared.items()
    }
    assert not job.mirror.source.log_retention(job.mirror.offset).held
    with pytest.raises((PositionGone, LogRefused), match="XA transaction"):
        job.run()
    shop("xa rollback 'needed'")


@pytest.mark.parametrize("seed", range(3))
def test_random_transactions_equal_the_source(shop: BinlogShop, seed: int) -> None:
    rng = random.Random(seed)
    job = reading(shop)
    numbers = iter(range(1000, 100_000))
    open_xa: list[str] = []
    for round_ in range(25):
        steps: list[str] = []
        what = rng.random()
        for _ in range(rng.randrange(1, 6)):
            table = rng.choice(["a", "plain"])
            changes = [
                f"insert into {table} values ({next(numbers)}, 'n')",
                f"savepoint s{rng.randrange(3)}",
                f"update {table} set v = '{round_}' where id % 5 = {rng.randrange(5)}",
                f"delete from {table} where id % 11 = {rng.randrange(11)}",
            ]
            steps.append(rng.choice(changes))
        if what < 0.3:
            points = [s.split()[1] for s in steps if s.startswith("savepoint")]
            shop(
                "begin",
                *steps,
                *([f"rollback to {rng.choice(points)}"] if points else []),
                f"insert into a values ({next(numbers)}, 'end')",
                "commit",
            )
        elif what < 0.5:
            shop("begin", *steps, "create temporary table t (id int)", "rollback")
        elif what < 0.7:
            xid = f"'{shop.name}.{round_}'"
            xa(
                shop,
                xid,
                f"insert into b values ({next(numbers)}, 'xa')",
                f"insert into other values ({next(numbers)}, 'xa')",
            )
            open_xa.append(xid)
        elif open_xa:
            shop(
                f"xa {rng.choice(['commit', 'rollback'])}"
                f" {open_xa.pop(rng.randrange(len(open_xa)))}"
            )
        if rng.random() < 0.5:
            job.restart()
            job.run()
    for xid in open_xa:
        shop(f"xa {rng.choice(['commit', 'rollback'])} {xid}")
    job.run()
    for table in ("a", "b", "plain"):
        assert job.rows(table) == source_rows(shop, table)


def test_compressed_transactions_and_partial_json_stop_only_for_read_tables(
    mysql: MySqlServer,
) -> None:
    shop = shop_on(mysql)
    shop(
        "create table a (id int primary key, j json)",
        "create table other (id int primary key, j json)",
        """insert into a values (1, '{"x": [1,2,3]}')""",
    )
    job = RestartableJob(shop, **{"table-pattern": rf"{shop.name}\.a"})
    shop(
        """insert into other values (1, '{"x": "long long long long long long long long long text", "y": 1}')"""
    )
    partial = "update {} set j = json_set(j, '$.y', 2)"
    shop("set session binlog_row_value_options = PARTIAL_JSON", partial.format("other"))
    shop(
        "set session binlog_transaction_compression = ON",
        "insert into other values (2, '{}')",
        partial.format("other"),
    )
    shop("insert into a values (2, '[]')")
    job.run()
    assert [row[0] for row in job.rows("a")] == [1, 2]
    offset = job.mirror.offset
    shop("set session binlog_transaction_compression = ON", "insert into a values (3, '{}')")
    with pytest.raises(Unsupported, match=rf"{shop.name}\.a.*binlog_transaction_compression = OFF"):
        job.run()
    job.mirror.offset = {
        **offset,
        "log": job.mirror.source.start_position(shop_session := shop.place.session()),
    }
    shop_session.close()
    shop("set session binlog_row_value_options = PARTIAL_JSON", partial.format("a"))
    with pytest.raises(Unsupported, match=rf"{shop.name}\.a as partial JSON"):
        job.run()
