"""MySQL-CDC resumes at a promoted replica: two real servers, one after the other."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from cdc_kit import Mirror, make_source, restored, rows_of

from tidegate.databases.cdc.errors import PositionGone
from tidegate.databases.mysql.binlog_errors import LogBehind
from tidegate.plugin.contract import Limit
from tidegate.testing.servers.mariadb import MariaDbServer

FAST = {"innodb-flush-method": "nosync", "sync-binlog": "0"}


@pytest.fixture
def primary() -> Iterator[MariaDbServer]:
    with MariaDbServer(settings=FAST) as server:
        yield server


@pytest.fixture
def replica(primary: MariaDbServer) -> Iterator[MariaDbServer]:
    with MariaDbServer(settings={**FAST, "server-id": "2", "log-slave-updates": "1"}) as server:
        server.execute(
            "drop user tidegate@'127.0.0.1'", "reset master"
        )  # everything comes from the primary, including the user
        password = server.password.replace("'", "''")
        server.execute(
            f"change master to master_host='127.0.0.1', master_port={primary.port},"
            f" master_user='tidegate', master_password='{password}', master_use_gtid=slave_pos,"
            " master_connect_retry=1",
            "start slave",
        )
        yield server


def wait_until_same(primary: MariaDbServer, replica: MariaDbServer) -> None:
    wanted = primary.execute("select @@gtid_binlog_pos")
    deadline_s = time.monotonic() + 120
    while replica.execute("select @@gtid_slave_pos") != wanted:
        assert time.monotonic() < deadline_s, (
            f"the replica does not follow: {replica.log()[-3000:]}"
        )
        time.sleep(0.05)  # poll interval


def source_of(server: MariaDbServer) -> Any:
    options = {
        "url": server.url("shop"),
        "username": server.user,
        "password": server.password,
        "snapshot.split.size": 100,
    }
    return make_source("MySQL-CDC", {**options, "table-names": ["shop.orders"]})


@pytest.mark.timeout(600)
def test_job_resumes_at_the_promoted_replica(
    primary: MariaDbServer, replica: MariaDbServer
) -> None:
    primary.execute("create database shop")
    primary.execute("create table orders (id int primary key, name varchar(80))", database="shop")
    primary.execute("insert into orders select seq, 'first' from seq_1_to_300", database="shop")
    mirror = Mirror(source_of(primary))
    mirror.step(Limit(rows=100))  # during the snapshot
    primary.execute(
        "update orders set name = 'second' where id < 50",
        "delete from orders where id = 7",
        "flush binary logs",
        database="shop",
    )
    wait_until_same(primary, replica)
    start, end = mirror.offset, restored(mirror.source.latest(mirror.offset, Limit(rows=100)))
    batch = sorted(str(row) for row in rows_of(mirror.source, start, end))

    replica.execute("stop slave")
    primary.execute("insert into orders values (1001, 'late')", database="shop")
    mirror.run()
    moved = source_of(replica)
    assert (
        sorted(str(row) for row in rows_of(moved, start, end)) == batch
    )  # an earlier batch is equal on the other server
    with pytest.raises(LogBehind, match="has not caught up"):
        moved.latest(
            mirror.offset, Limit()
        )  # a row was delivered that the replica does not have yet
    assert not moved.log_retention(mirror.offset).held
    replica.execute("start slave")
    wait_until_same(primary, replica)

    primary.kill()
    replica.execute("stop slave", "reset slave all")
    replica.execute(
        "insert into orders values (1002, 'new')",
        "update orders set name = 'third' where id > 290",
        database="shop",
    )
    mirror.source = moved
    assert mirror.offset["log"]["server"] == "1"
    assert moved.log_retention(mirror.offset).held
    mirror.run()
    assert mirror.offset["log"]["server"] == "2"
    rows = {row["id"]: row["name"] for row in mirror.table("shop.orders")}
    assert rows == dict(replica.execute("select id, name from orders", database="shop"))

    strange = {**mirror.offset, "log": {**mirror.offset["log"], "server": "9", "gtid": ""}}
    with pytest.raises(PositionGone, match="wrote no global transaction ids"):
        moved.latest(strange, Limit())
