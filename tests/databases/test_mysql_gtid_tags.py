"""MySQL-CDC on a MySQL whose history has tagged transactions."""

from binlog_kit import BinlogShop
from cdc_kit import Mirror
from database_kit import Place

from tidegate.testing.servers.mysql import MySqlServer


def test_transactions_with_tags_are_read_and_counted(mysql: MySqlServer) -> None:
    mysql.execute(
        "create database tags",
        "set gtid_next = 'automatic:before'",
        "create table tags.t (id int primary key)",
    )
    shop = BinlogShop(
        mysql,
        Place(url=mysql.url("tags"), user=mysql.user, password=mysql.password, database="tags"),
    )
    mirror = Mirror(shop.source())
    mirror.run()
    shop(
        "set gtid_next = 'automatic:mytag'",
        "insert into t values (1)",
        "insert into t values (2)",
        "set gtid_next = 'automatic'",
        "insert into t values (3)",
    )
    mirror.run()
    assert [row["id"] for row in mirror.table("tags.t")] == [1, 2, 3]
    assert shop(
        f"select gtid_subset(@@global.gtid_executed, '{mirror.offset['log']['gtid']}')"
    ) == [(1,)]
    assert ":mytag:1-2" in mirror.offset["log"]["gtid"]
