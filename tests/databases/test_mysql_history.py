"""A position is valid only in the log that it was taken in.

Servers that were reset, rebuilt or replaced are rejected with the cause.
"""

from collections.abc import Iterator

import pytest
from binlog_kit import BinlogShop
from cdc_kit import restored
from change_kit import RestartableJob, shop_on, source_rows

from tidegate.databases.cdc.errors import PositionGone
from tidegate.plugin.contract import Limit
from tidegate.testing.servers.binlog import BinlogServer
from tidegate.testing.servers.database import ServerMissing
from tidegate.testing.servers.mariadb import MariaDbServer
from tidegate.testing.servers.mysql import MySqlServer


@pytest.fixture(params=["mariadb", "mysql", "mysql without ids"])
def server(request: pytest.FixtureRequest) -> Iterator[BinlogServer]:
    """A server that a test may reset."""
    durable = {
        "innodb-flush-log-at-trx-commit": "1",
        "sync-binlog": "1",
        "innodb-flush-method": "fsync",
    }
    without = {"gtid-mode": "OFF", "enforce-gtid-consistency": "OFF"}
    try:
        made = (
            MariaDbServer()
            if request.param == "mariadb"
            else MySqlServer(
                settings={**durable, **(without if "without" in request.param else {})}
            )
        )
    except ServerMissing as missing:
        pytest.skip(str(missing))
    with made:
        yield made


def reset(server: BinlogServer) -> None:
    server.execute("reset master" if server.called == "MariaDB" else "reset binary logs and gtids")


def test_reset_log_with_equal_positions_is_another_history(
    server: BinlogServer,
) -> None:
    shop = shop_on(server)
    shop("create table a (id int primary key, v int)")
    reset(server)
    job = RestartableJob(shop)
    shop("insert into a values (1, 1)", "insert into a values (2, 2)")
    job.run()
    at = restored(job.mirror.offset)
    assert job.mirror.source.log_retention(at).held
    shop("truncate table a")
    reset(server)
    shop(
        "insert into a values (5, 5)", "insert into a values (6, 6)", "insert into a values (7, 7)"
    )
    assert not job.mirror.source.log_retention(at).held
    for _ in range(2):
        with pytest.raises(PositionGone, match="another history"):
            job.run()
        job.restart()
    assert job.rows("a") == [(1, 1), (2, 2)]


def test_job_resumes_after_a_server_crash_and_log_rotation(
    server: BinlogServer,
) -> None:
    shop = shop_on(server)
    shop("create table a (id int primary key, v int)", "insert into a values (1, 1)")
    job = RestartableJob(shop)
    for number in range(2, 8):
        shop(f"insert into a values ({number}, {number})")
        if number % 3 == 0:
            server.kill()
            server.start()
        elif number % 3 == 1:
            shop("flush binary logs")
        job.run()
        job.restart()
        job.run()
    assert job.rows("a") == source_rows(shop, "a")


def test_position_of_a_former_version_is_accepted_and_completed(
    server: BinlogServer,
) -> None:
    shop = shop_on(server)
    shop("create table a (id int primary key, v int)", "insert into a values (1, 1)")
    job = RestartableJob(shop)
    shop("insert into a values (2, 2)")
    start, end = job.mirror.offset, restored(job.mirror.source.latest(job.mirror.offset, Limit()))
    old = {"file", "pos", "gtid", "server"}
    for offset in (start, end):
        offset["log"] = {k: v for k, v in offset["log"].items() if k in old}
        for entry in offset["tables"].values():
            entry.pop("definition")
            entry["columns"] = [c[:3] for c in entry["columns"]]
    job.restart()
    for split in job.mirror.source.shared_splits(
        start, end, 4
    ):  # a batch that a former version had begun
        assert [
            row["id"] for batch in job.mirror.source.read(split) for row in batch.to_pylist()
        ] == [2]
    job.run()
    offset = job.mirror.offset
    assert {"begun", "last", "skip"} <= set(offset["log"])
    assert offset["tables"][f"{shop.name}.a"]["definition"] == {
        "engine": "InnoDB",
        "transactional": True,
    }
    assert job.rows("a") == source_rows(shop, "a")


def test_another_server_with_the_same_server_id_is_detected() -> None:
    try:
        first, second = MySqlServer(), MySqlServer()
    except ServerMissing as missing:
        pytest.skip(str(missing))
    with first, second:
        for server in (first, second):
            server.execute("create database shop")
            server.execute(
                "create table a (id int primary key, v int)",
                "insert into a values (1, 1)",
                database="shop",
            )
        shop = shop_on(first)
        place = shop.place
        shop("create table a (id int primary key, v int)", "insert into a values (1, 1)")
        job = RestartableJob(shop)
        second.execute(f"create database {shop.name}")
        second.execute(
            "create table a (id int primary key, v int)",
            "insert into a values (1, 9)",
            database=shop.name,
        )
        job.mirror.source = BinlogShop(
            second, type(place)(second.url(shop.name), place.user, place.password, shop.name)
        ).source()
        with pytest.raises(
            Exception, match=r"has not caught up|this is server|never was a replica"
        ):
            job.mirror.run()
