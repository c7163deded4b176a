"""The definition of a table is part of the position.

MySQL-CDC stops before the first row that another definition would decode.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from binlog_kit import BinlogShop
from change_kit import LATEST, RestartableJob, set_row_metadata, source_rows
from database_kit import Place

from tidegate.databases.cdc.errors import TableChanged
from tidegate.model.table_changes import ChangeChoice
from tidegate.testing.servers.mariadb import MariaDbServer

LABELS = (
    "create table a (id int primary key, e enum('a','b','c'), s set('x','y'), n int not null"
    " default 0)"
)


@pytest.fixture(params=[True, False], ids=["full", "least"])
def full(request: pytest.FixtureRequest, binlog_shop: BinlogShop) -> Iterator[None]:
    """With full metadata of columns in the log, and with the minimum."""
    with set_row_metadata(binlog_shop, bool(request.param)):
        yield


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("column", ["e", "s"])
def test_labels_reordered_and_restored_while_stopped_stop_the_job(
    binlog_shop: BinlogShop, column: str
) -> None:
    binlog_shop(LABELS, "insert into a values (1, 'a', 'x', 1)")
    job = RestartableJob(binlog_shop)
    was, other = {
        "e": ("enum('a','b','c')", "enum('b','a','c')"),
        "s": ("set('x','y')", "set('y','x')"),
    }[column]
    binlog_shop(
        "insert into a values (2, 'b', 'y', 1)",
        f"alter table a modify {column} {other}",
        "insert into a values (3, 'a', 'x', 1)",
    )
    binlog_shop(f"alter table a modify {column} {was}", "insert into a values (4, 'c', 'x,y', 1)")
    job.restart()
    job.expect_stop("modify")
    assert [row[0] for row in job.rows("a")] == [1, 2]


def test_table_map_that_differs_stops_the_job(
    binlog_shop: BinlogShop,
) -> None:
    """Without any statement: the table map alone shows it."""
    binlog_shop(LABELS, "insert into a values (1, 'a', 'x', 1)")
    job = RestartableJob(binlog_shop, **LATEST)
    columns = job.mirror.offset["tables"][f"{binlog_shop.name}.a"]["columns"]
    good = [list(c) for c in columns]
    for number, changed in (
        (1, {1: "enum('b','a','c')"}),
        (2, {1: "set('y','x')"}),
        (3, {1: "int(10) unsigned"}),
        (3, {1: "bigint(20)"}),
        (3, {3: True}),
        (3, {4: 2}),
        (3, {0: "m"}),
        (1, {2: "latin1"}),
    ):
        columns[:] = [list(c) for c in good]
        for at, value in changed.items():
            columns[number][at] = value
        binlog_shop("replace into a values (2, 'b', 'y', 1)")
        stop = job.expect_stop("in the log")
        assert stop.at.startswith(job.mirror.offset["log"]["file"])
    columns[:] = [c[:3] for c in good]  # as a former version wrote it
    job.restart()
    rows: Any = job.mirror.rows
    rows[f"{binlog_shop.name}.a", 1] = {"id": 1, "e": "a", "s": "x", "n": 1}
    job.run()
    assert job.mirror.offset["tables"][f"{binlog_shop.name}.a"]["columns"] == good
    assert job.rows("a") == source_rows(binlog_shop, "a")


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("stopped", [False, True])
def test_another_primary_key_stops_the_job(binlog_shop: BinlogShop, stopped: bool) -> None:
    binlog_shop(
        "create table a (id int, n int not null, v varchar(20), primary key (id))",
        "insert into a values (1, 1, 'first')",
    )
    job = RestartableJob(binlog_shop)
    binlog_shop(
        "alter table a drop primary key, add primary key (id, n)",
        "insert into a values (1, 2, 'second row'), (2, 2, 'x')",
    )
    if stopped:
        job.restart()
    job.expect_stop("primary key")
    assert len(job.rows("a")) == 1


def test_another_key_that_is_not_the_primary_one_stops_the_job(binlog_shop: BinlogShop) -> None:
    binlog_shop(
        "create table a (x int not null, y int not null, unique key m (x))",
        "insert into a values (1, 1)",
    )
    job = RestartableJob(binlog_shop)
    binlog_shop(
        "create index harmless on a (y)",
        "insert into a values (2, 2)",
        "alter table a drop index m, add unique key n (y)",
        "insert into a values (2, 3)",
    )
    job.expect_stop("drop index m")
    assert job.rows("a") == [(1, 1), (2, 2)]


SPELLINGS = [
    "truncate table a",
    "TRUNCATE a",
    "/* hint */ truncate /*!50000 table */ `a`",
    "truncate -- why\n table {db}.a",
    "truncate # why\n a",
    "alter table a modify n bigint not null default 0",
    "alter table a change n m int not null default 0",
    "alter table a rename column n to m",
    "alter table a drop column s",
    "alter table a add column z int first",
    "alter table a add (z int)",
    "alter table a convert to character set latin1",
    "alter table a modify n int not null default 0 first",
    "alter table a modify n int",
    "alter table {db}.`a` modify n int unsigned not null default 0",
    "alter table a engine = myisam",
    "alter table a comment = 'x', engine myisam",
    "alter table a rename to b",
    "rename table a to b",
    "rename table other to c, a to b",
    "drop table a",
    "drop table if exists other, a",
    "alter table a change n N int not null default 0",
]
MARIADB_SPELLINGS = [
    "set statement max_statement_time=100 for truncate table a",
    (
        "set statement max_statement_time=100, lock_wait_timeout=5 for alter table a modify e"
        " enum('b','a','c')"
    ),
    "create or replace table a (id int primary key)",
    "alter online table a add column z int",
    "alter table if exists a wait 5 modify n bigint not null default 0",
    "truncate table a nowait",
]


@pytest.mark.parametrize("statement", SPELLINGS)
def test_statement_stops_the_job_in_every_spelling(binlog_shop: BinlogShop, statement: str) -> None:
    check_spelling(binlog_shop, statement)


@pytest.mark.parametrize("statement", MARIADB_SPELLINGS)
def test_mariadb_statement_stops_the_job_in_every_spelling(
    shop: BinlogShop, statement: str
) -> None:
    check_spelling(shop, statement)


@pytest.fixture
def shop(mariadb: MariaDbServer, maria: Place) -> BinlogShop:
    return BinlogShop(mariadb, maria)


def check_spelling(shop: BinlogShop, statement: str) -> None:
    shop(LABELS, "create table other (id int primary key)", "insert into a values (1, 'a', 'x', 1)")
    job = RestartableJob(shop, **{"table-pattern": rf"{shop.name}\.a"})
    shop("insert into a values (2, 'b', 'y', 1)", statement.format(db=shop.name))
    with pytest.raises(TableChanged) as stopped:
        job.run()
    assert stopped.value.path == f"{shop.name}.a"
    assert [row[0] for row in job.rows("a")] == [1, 2]


PASSED = [
    "alter table a add index by_n (n)",
    "alter table a comment 'do not rename to anything, or drop it; truncate table a'",
    "alter table a modify n int not null default 5 comment 'why'",
    "alter table a alter column n set default 7, alter e drop default",
    "alter table a engine = InnoDB row_format = dynamic comment 'x'",
    "alter table a add unique key u (id, n)",
    "alter table a add constraint c check (n > -1), algorithm = copy",
    "alter table a auto_increment = 100, default character set utf8mb4",
    "alter table a force",
    "analyze table a",
    "create index i on a (n)",
    "create view seen as select * from a",
    "create trigger t before insert on a for each row set new.n = new.n",
    "create procedure p() truncate table a",
    "alter database {db} character set utf8mb4",
    "truncate table other",
    "alter table other add column a int",
    "drop table other",
    "create table more like a",
    "create table more as select * from a",
    "create temporary table a2 (id int)",
    "grant select on {db}.a to tidegate",
]


@pytest.mark.parametrize("statement", PASSED)
def test_statement_that_keeps_the_table_is_skipped(binlog_shop: BinlogShop, statement: str) -> None:
    binlog_shop(
        LABELS, "create table other (id int primary key)", "insert into a values (1, 'a', 'x', 1)"
    )
    job = RestartableJob(binlog_shop, **{"table-pattern": rf"{binlog_shop.name}\.a"})
    if statement.startswith("grant"):
        statement = (
            "grant select on {db}.a to"
            f" {'tidegate@127.0.0.1' if binlog_shop.server.called == 'MariaDB' else 'tidegate'}"
        )
    binlog_shop(statement.format(db=binlog_shop.name), "insert into a values (2, 'b', 'y', 1)")
    job.run()
    assert [tuple(r) for r in job.rows("a")] == source_rows(binlog_shop, "a")


def test_tables_named_second_stop_the_job(shop: BinlogShop) -> None:
    parts = (
        "partition by range (id) (partition p0 values less than (100), partition p1 values less"
        " than maxvalue)"
    )
    shop(
        "create table a (id int primary key, n int)",
        f"create table p (id int primary key, n int) {parts}",
        "insert into a values (1, 1)",
    )
    job = RestartableJob(shop, **{"table-pattern": rf"{shop.name}\.a"})
    shop("alter table p exchange partition p0 with table a")
    assert job.expect_stop("exchange").path == f"{shop.name}.a"


def test_table_that_becomes_a_partition_stops_the_job(shop: BinlogShop) -> None:
    parts = "partition by range (id) (partition p1 values less than (10))"
    shop(
        "create table a (id int primary key, n int)",
        f"create table p (id int primary key, n int) {parts}",
        "insert into a values (15, 1)",
    )
    job = RestartableJob(shop, **{"table-pattern": rf"{shop.name}\.a"})
    shop("alter table p convert table a to partition p2 values less than (100)")
    with pytest.raises(TableChanged, match="convert table"):
        job.run()


def test_rows_before_an_alteration_are_not_decoded_with_later_columns(
    binlog_shop: BinlogShop,
) -> None:
    binlog_shop("create table a (id int primary key, v int)", "insert into a values (1, 1)")
    job = RestartableJob(binlog_shop)
    binlog_shop(
        "insert into a values (2, 2)",
        "alter table a modify v varchar(20)",
        "insert into a values (3, 'x')",
    )
    job.restart()
    stop = job.expect_stop("the log has rows with v int")
    assert job.rows("a") == [(1, 1)]
    job.accept(stop, ChangeChoice.REREAD)
    job.mirror.rows.clear()
    job.run()
    assert job.rows("a") == source_rows(binlog_shop, "a")


def test_start_in_the_past_is_rejected_after_an_alteration(
    binlog_shop: BinlogShop,
) -> None:
    with set_row_metadata(binlog_shop, full=False):
        file, pos = binlog_shop(
            "show binary log status"
            if binlog_shop.server.called == "MySQL"
            else "show master status"
        )[0][:2]
        binlog_shop(
            LABELS,
            "insert into a values (1, 'a', 'x', 1)",
            "alter table a modify e enum('b','a','c')",
        )
        past = {
            "startup.mode": "specific",
            "startup.specific-offset.file": file,
            "startup.specific-offset.pos": pos,
        }
        with pytest.raises(TableChanged, match=r"startup\.mode begins before it"):
            RestartableJob(binlog_shop, **past)
