"""One MariaDB, one MySQL and one PostgreSQL for the whole tier.

Each test uses its own database or schema.
"""

import itertools
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from binlog_kit import BinlogShop  # found beside this file
from database_kit import Place  # found beside this file
from postgres_kit import Shop

from tidegate.testing.servers.binlog import BinlogServer
from tidegate.testing.servers.database import ServerMissing
from tidegate.testing.servers.mariadb import MariaDbServer
from tidegate.testing.servers.mysql import MySqlServer
from tidegate.testing.servers.postgres import PostgresServer

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDbServer]:
    """A server shared by all tests that do not stop it."""
    with MariaDbServer(settings={"innodb-flush-method": "nosync", "sync-binlog": "0"}) as server:
        yield server


@pytest.fixture(scope="session")
def mysql() -> Iterator[MySqlServer]:
    """For all that do not end it; fetched once for each user, and where it cannot be had these
    tests are skipped.
    """
    with ExitStack() as stack:
        try:
            server = stack.enter_context(MySqlServer())
        except ServerMissing as missing:
            pytest.skip(str(missing))
        yield server


@pytest.fixture(params=["mariadb", "mysql"])
def binlog_server(request: pytest.FixtureRequest) -> BinlogServer:
    """Both servers that write a binary log."""
    found: BinlogServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server shared by all tests that do not stop it."""
    settings = {
        "wal_level": "logical",
        "max_replication_slots": "200",
        "max_wal_senders": "200",
        "fsync": "off",
        "max_connections": "100",
    }
    with PostgresServer(settings=settings) as server:
        yield server


@pytest.fixture
def maria(mariadb: MariaDbServer) -> Place:
    """An empty database of MariaDB."""
    return binlog_place_on(mariadb)


@pytest.fixture
def my(mysql: MySqlServer) -> Place:
    """An empty database of MySQL."""
    return binlog_place_on(mysql)


@pytest.fixture
def binlog_place(binlog_server: BinlogServer) -> Place:
    """An empty database of MariaDB, and one of MySQL."""
    return binlog_place_on(binlog_server)


@pytest.fixture
def binlog_shop(binlog_server: BinlogServer, binlog_place: Place) -> BinlogShop:
    """An empty database with a binary log, for CDC sources."""
    return BinlogShop(binlog_server, binlog_place)


def binlog_place_on(server: BinlogServer) -> Place:
    name = f"shop{next(_numbers)}"
    server.execute(f"create database {name} character set utf8mb4")
    return Place(url=server.url(name), user=server.user, password=server.password, database=name)


@pytest.fixture
def pg(postgres: PostgresServer) -> Place:
    """An empty database of PostgreSQL."""
    name = f"shop{next(_numbers)}"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"create database {name}")  # type: ignore[call-overload]  # the name is ours
    return Place(
        url=f"jdbc:postgresql://127.0.0.1:{postgres.port}/{name}",
        user="postgres",
        password="any",
        database=name,
    )


@pytest.fixture
def shop(postgres: PostgresServer, pg: Place) -> Iterator[Shop]:
    """An empty database of PostgreSQL that a CDC source reads."""
    made = Shop(postgres, pg)
    yield made
    made.drop_slots()
    made.connection.close()


@pytest.fixture
def lite(tmp_path: Path) -> Place:
    """An empty file of SQLite."""
    return Place(url=f"jdbc:sqlite:{tmp_path / 'shop.db'}", user="", password="", database="")


@pytest.fixture(params=["maria", "pg", "lite"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found
