"""Tables whose log is incomplete are rejected before anything is read.

InnoDB changes rows by foreign keys, and system versioning keeps former rows.
"""

import pytest
from binlog_kit import BinlogShop
from change_kit import RestartableJob, shop_on, source_of, source_rows
from database_kit import Place

from tidegate.databases.cdc.errors import NoTables, NotSetUp, TableChanged
from tidegate.testing.servers.mariadb import MariaDbServer
from tidegate.testing.servers.mysql import MySqlServer


@pytest.fixture
def shop(mariadb: MariaDbServer, maria: Place) -> BinlogShop:
    return BinlogShop(mariadb, maria)


@pytest.mark.parametrize(
    "action", ["on delete cascade", "on update cascade", "on delete set null", "on update set null"]
)
def test_unlogged_foreign_key_changes_are_rejected(shop: BinlogShop, action: str) -> None:
    shop(
        "create table p (id int primary key)",
        "create table c (id int primary key, p int, constraint to_p foreign key (p) references p"
        f" (id) {action})",
    )
    with pytest.raises(
        NotSetUp,
        match=rf"{shop.name}\.c by to_p \({shop.name}\.p: on delete .*foreign-key-cascades",
    ):
        source_of(shop).tables()
    assert len(source_of(shop, **{"foreign-key-cascades": "ignore"}).tables()) == 2
    assert (
        len(source_of(shop, **{"table-pattern": rf"{shop.name}\.p"}).tables()) == 1
    )  # the rows of the parent are all in the log


def test_restricting_foreign_key_is_accepted(shop: BinlogShop) -> None:
    shop(
        "create table p (id int primary key)",
        "create table c (id int primary key, p int, foreign key (p) references p (id) on delete"
        " restrict)",
    )
    assert len(source_of(shop).tables()) == 2


def test_foreign_key_added_later_stops_the_job(shop: BinlogShop) -> None:
    shop(
        "create table p (id int primary key)",
        "create table c (id int primary key, p int)",
        "insert into p values (1)",
        "insert into c values (1, 1)",
    )
    job = RestartableJob(shop)
    shop(
        "alter table c add constraint to_p foreign key (p) references p (id) on delete cascade",
        "delete from p",
    )
    with pytest.raises(NotSetUp, match=rf"{shop.name}\.c by to_p"):
        job.run()
    assert job.rows("c") == [(1, 1)]


def test_cascades_that_are_in_the_log_are_read(mysql: MySqlServer) -> None:

    shop = shop_on(mysql)
    shop(
        "create table p (id int primary key)",
        "create table c (id int primary key, p int, foreign key (p) references p (id) on delete"
        " cascade on update cascade)",
    )
    shop("insert into p values (1), (2), (3)", "insert into c values (10, 1), (20, 2), (30, 3)")
    job = RestartableJob(shop)
    shop("delete from p where id = 1", "update p set id = 33 where id = 3")
    job.run()
    assert job.rows("c") == source_rows(shop, "c") == [(20, 2), (30, 33)]


def test_system_versioned_table_is_rejected(shop: BinlogShop) -> None:
    shop(
        "create table kept (id int primary key)",
        "create table v (id int primary key, n int) with system versioning",
    )
    for options in ({}, {"table-names": [f"{shop.name}.v"]}):
        with pytest.raises(NoTables, match=rf"{shop.name}\.v keeps former versions"):
            source_of(shop, **options).tables()
    assert len(source_of(shop, **{"table-pattern": rf"{shop.name}\.(?!v$).*"}).tables()) == 1


def test_added_system_versioning_stops_the_job(shop: BinlogShop) -> None:
    shop("create table a (id int primary key, n int)", "insert into a values (1, 1)")
    job = RestartableJob(shop)
    shop("alter table a add system versioning", "insert into a values (2, 2)")
    with pytest.raises(TableChanged, match="system versioning"):
        job.run()
    assert job.rows("a") == [(1, 1)]
