"""Values of MariaDB and MySQL: the log, the snapshot and the Jdbc read give the same."""

from binlog_kit import BinlogShop
from capture_kit import Mirror


def test_a_snapshot_and_the_changes_after_it_are_the_table(binlog_shop: BinlogShop) -> None:
    binlog_shop("create table t (id int primary key, v varchar(20))", "insert into t values (1, 'a'), (2, 'b')")
    mirror = Mirror(binlog_shop.source())
    mirror.run()
    binlog_shop("insert into t values (3, 'ü')", "update t set v = 'c' where id = 1", "delete from t where id = 2")
    mirror.run()
    assert mirror.table(f"{binlog_shop.name}.t") == binlog_shop.rows("t") == binlog_shop.by_jdbc("t")
