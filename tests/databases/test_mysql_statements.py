"""Statements in the log of MariaDB and MySQL.

They are decoded in the client's character set and case, for every table they name, and instead of
rows.
"""

from collections.abc import Iterator

import pymysql
import pytest
from binlog_kit import BinlogShop
from change_kit import LATEST, RestartableJob, set_row_metadata, shop_on, source_rows

from tidegate.databases.cdc.errors import TableChanged
from tidegate.model.table_changes import ChangeChoice
from tidegate.testing.servers.mariadb import MariaDbServer

FAST = {"innodb-flush-method": "nosync", "sync-binlog": "0"}


def as_client(shop: BinlogShop, charset: str, *statements: str) -> None:
    """Run statements in a client's character set."""
    server = shop.server
    connection = pymysql.connect(
        host="127.0.0.1",
        port=server.port,
        user="root",
        database=shop.name,
        autocommit=True,
        charset=charset,
        ssl_disabled=True,
        connect_timeout=60,
    )
    with connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@pytest.mark.parametrize(
    ("charset", "name"),
    [("latin1", "tä"), ("cp1251", "таб"), ("sjis", "表ソ"), ("gbk", "表"), ("utf8mb4", "tä表")],
)
@pytest.mark.parametrize(
    "statement",
    [
        "truncate table `{}`",
        "alter table {} modify e enum('b','a')",
        "alter table `{}` add column `{}` int",
    ],
)
def test_statements_are_read_in_the_character_set_of_their_client(
    binlog_shop: BinlogShop, charset: str, name: str, statement: str
) -> None:
    binlog_shop(
        f"create table `{name}` (id int primary key, e enum('a','b'))",
        f"insert into `{name}` values (1, 'a')",
    )
    with set_row_metadata(binlog_shop, full=False):
        job = RestartableJob(binlog_shop)
        as_client(
            binlog_shop,
            charset,
            statement.format(name, name),
            f"insert into `{name}` (id, e) values (2, 'a')",
        )
        stop = job.expect_stop()
    assert stop.path == f"{binlog_shop.name}.{name}"
    assert name in stop.statement


@pytest.fixture(scope="module")
def folding() -> Iterator[MariaDbServer]:
    """A server that ignores case in names of tables."""
    with MariaDbServer(settings={**FAST, "lower-case-table-names": "1"}) as server:
        yield server


@pytest.mark.parametrize(
    "statement",
    [
        "TRUNCATE TABLE Orders",
        "ALTER TABLE ORDERS MODIFY e ENUM('z','a','b')",
        "drop table other, `OrderS`",
        "rename table x to y, ORDERS to z",
    ],
)
def test_names_are_folded_like_the_server(folding: MariaDbServer, statement: str) -> None:
    shop = shop_on(folding)
    shop(
        "create table Orders (id int primary key, e enum('a','b','z'))",
        "create table other (id int)",
        "create table x (id int)",
        "create table kept (id int primary key)",
        "insert into orders values (1, 'a')",
    )
    with set_row_metadata(shop, full=False):
        job = RestartableJob(shop, **{"table-pattern": rf"{shop.name}\.(orders|kept)"})
        shop(statement)
        assert job.expect_stop().path == f"{shop.name}.orders"


def test_table_is_found_by_a_name_in_another_case(
    folding: MariaDbServer,
) -> None:
    shop = shop_on(folding)
    shop("create table orders (id int primary key, v int)", "insert into orders values (1, 1)")
    job = RestartableJob(shop, **{"table-names": [f"{shop.name}.Orders"]})
    shop("insert into orders values (2, 2)")
    job.run()
    assert [row["id"] for row in job.mirror.table(f"{shop.name}.Orders")] == [1, 2]
    shop("truncate orders")
    job.expect_stop("truncate")


def test_quotes_and_backslashes_follow_the_sql_mode(
    binlog_shop: BinlogShop,
) -> None:
    binlog_shop(
        "create table a (id int primary key)",
        "insert into a values (1)",
        "create table other (id int primary key)",
    )
    job = RestartableJob(binlog_shop, **{"table-pattern": rf"{binlog_shop.name}\.a"})
    binlog_shop(
        "set sql_mode = 'NO_BACKSLASH_ESCAPES'",
        r"alter table other comment 'x\', comment ', rename to a, '",
        "insert into a values (2)",
    )
    job.run()
    assert job.rows("a") == [(1,), (2,)]
    binlog_shop("set sql_mode = 'ANSI_QUOTES'", 'truncate table "a"')
    job.expect_stop("truncate")


BY_STATEMENT = [
    "insert into a values (3, 'lost?')",
    "replace into {db}.a values (1, 'changed?')",
    "update a set v = 'changed?' where id = 1",
    "update a, other set a.v = 'x' where a.id = other.id",
    "delete from a where id = 1",
    "delete a from a join other on a.id = other.id",
    "delete from other using other, a where a.id = 1",
    "insert into `a` select id + 10, 'x' from a",
    "insert into other select f(1)",
    "insert into fires values (1)",
    "set @v = 'x'; update a set v = @v",
    "call p()",
]


@pytest.mark.parametrize("mode", ["STATEMENT", "MIXED"])
@pytest.mark.parametrize("statement", BY_STATEMENT)
def test_statement_instead_of_rows_stops_the_job(
    binlog_shop: BinlogShop, mode: str, statement: str
) -> None:
    binlog_shop(
        "create table a (id int primary key, v varchar(20))",
        "create table other (id int)",
        "create table fires (id int)",
        "create trigger t after insert on fires for each row insert into a values (77, 'by a"
        " trigger')",
        "create procedure p() update a set v = 'by a procedure'",
        "insert into a values (1, 'x')",
        "insert into other values (1)",
    )
    binlog_shop(
        "set global log_bin_trust_function_creators = 1",
        "create function f(x int) returns int modifies sql data begin update a set v = 'by a"
        " function'; return x; end",
    )
    job = RestartableJob(binlog_shop, **{"table-pattern": rf"{binlog_shop.name}\.a"})
    binlog_shop("insert into a values (2, 'y')")
    binlog_shop(
        f"set session binlog_format = {mode}",
        *statement.format(db=binlog_shop.name).split("; "),
        "set session binlog_format = ROW",
    )
    binlog_shop("insert into a values (4, 'later')")
    if mode == "MIXED" and (
        "f(1)" in statement or statement.startswith(("call", "insert into fires"))
    ):
        try:  # the server logs statements that it deems unsafe as rows
            job.run()
        except TableChanged:
            return
        assert job.rows("a") == source_rows(binlog_shop, "a")
        return
    stop = job.expect_stop("instead of rows")
    assert [row[0] for row in job.rows("a")] == [1, 2]
    job.accept(stop, ChangeChoice.REREAD)
    job.mirror.rows.clear()
    job.run()
    assert job.rows("a") == source_rows(binlog_shop, "a")


def test_statements_instead_of_rows_of_other_tables_are_skipped(binlog_shop: BinlogShop) -> None:
    binlog_shop(
        "create table a (id int primary key)",
        "create table other (id int primary key auto_increment, v double)",
    )
    job = RestartableJob(binlog_shop, **{"table-pattern": rf"{binlog_shop.name}\.a", **LATEST})
    binlog_shop(
        "set session binlog_format = STATEMENT",
        "insert into other (v) values (rand())",
        "begin",
        "set @a = 5",
        "update other set v = @a where id = last_insert_id()",
        "delete from other where v = 5",
        "commit",
        "set session binlog_format = ROW",
        "insert into a values (1)",
    )
    job.run()
    assert job.rows("a") == [(1,)]


def test_a_file_that_is_loaded_by_a_statement_stops_the_job(
    binlog_shop: BinlogShop, tmp_path: object
) -> None:
    binlog_shop("create table a (id int primary key, v varchar(20))")
    path = f"{tmp_path}/rows.txt"
    with open(path, "w", encoding="utf-8") as file:
        file.write("5\tx\n")
    job = RestartableJob(binlog_shop, **LATEST)
    connection = pymysql.connect(
        host="127.0.0.1",
        port=binlog_shop.server.port,
        user="root",
        database=binlog_shop.name,
        autocommit=True,
        local_infile=True,
    )
    with connection, connection.cursor() as cursor:
        cursor.execute("set session binlog_format = STATEMENT")
        cursor.execute(f"load data local infile '{path}' into table a")
    job.expect_stop("instead of rows")


def test_unparsable_statement_that_names_a_table_stops_the_job(
    binlog_shop: BinlogShop,
) -> None:
    """All statements of a server can be parsed, so this one is made up."""
    from tidegate.databases.mysql.binlog_ddl import Effect, table_statement

    for text in ("shuffle table a", "import table from '/a.sdi'", "alter something a"):
        found = table_statement(binlog_shop.name, text)
        assert found is not None
        assert (found.effect, found.lists_all) == (Effect.UNKNOWN, False)
