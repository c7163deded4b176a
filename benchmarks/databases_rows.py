"""The servers and tables of the database benchmarks: the same rows in MariaDB and PostgreSQL, and a
sum of everything by which copies are compared.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.memory import cpu_s
from tidegate.testing.servers.mariadb import MariaDbServer
from tidegate.testing.servers.postgres import PostgresServer

DATABASE = "shop"
# As durable as they come; only large enough for the rows, so that the servers do not work for want
# of room.
MARIADB_SETTINGS = {
    "innodb-log-file-size": "512M",
    "innodb-buffer-pool-size": "512M",
    "max-allowed-packet": "64M",
}
POSTGRES_SETTINGS = {
    "wal_level": "logical",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
    "shared_buffers": "256MB",
    "max_wal_size": "8GB",
}

_MARIADB_COLUMNS = """id bigint primary key, customer int not null, rating smallint,
    name varchar(64) not null, amount decimal(12,2) not null, made datetime(6) not null,
    details text not null, note text, weight double not null, seen datetime(6)"""
_POSTGRES_COLUMNS = """id bigint primary key, customer int not null, rating smallint,
    name varchar(64) not null, amount decimal(12,2) not null, made timestamp(6) not null,
    details text not null, note text, weight double precision not null, seen timestamp(6)"""
_MARIADB_ROW = """seq, seq * 7919 % 1000003, if(seq % 5, seq % 100, null),
    concat('customer number ', seq * 31 % 77777), seq % 100000 / 100,
    '2024-01-01' + interval seq second + interval seq % 1000000 microsecond,
    concat('{"order": ', seq, ', "lines": ', seq % 12, ', "city": "Lund"}'),
    if(seq % 3, null, concat('left at the door ', seq % 1000)), seq / 4,
    if(seq % 2, '2025-06-01' + interval seq % 86400 second, null)"""
_POSTGRES_ROW = """seq, seq * 7919 % 1000003, case when seq % 5 <> 0 then seq % 100 end,
    'customer number ' || seq * 31 % 77777, seq % 100000 / 100.0,
    timestamp '2024-01-01' + seq * interval '1 second'
      + seq % 1000000 * interval '1 microsecond',
    '{"order": ' || seq || ', "lines": ' || seq % 12 || ', "city": "Lund"}',
    case when seq % 3 = 0 then 'left at the door ' || seq % 1000 end,
    seq / 4.0::double precision,
    case when seq % 2 <> 0 then timestamp '2025-06-01' + seq % 86400 * interval '1 second' end"""
_SUMS = """count(*), sum(id), sum(customer), sum(rating), sum(length(name)),
    sum(amount), sum(length(details)), count(note), sum(length(note)), sum(weight),
    sum(extract(epoch from made)), count(seen), sum(extract(epoch from seen))"""


@dataclass(frozen=True, slots=True)
class Servers:
    maria: MariaDbServer
    postgres: PostgresServer

    @property
    def maria_url(self) -> str:
        """As connectorx, SQLAlchemy and sling write it, without the driver's name."""
        return f"mysql://root:@127.0.0.1:{self.maria.port}/{DATABASE}"

    @property
    def postgres_url(self) -> str:
        return f"postgresql://postgres:any@127.0.0.1:{self.postgres.port}/{DATABASE}"

    def connect(self) -> "psycopg.Connection[Any]":
        """PostgreSQL, in autocommit and UTC."""
        return psycopg.connect(self.postgres_url, autocommit=True, options="-c TimeZone=UTC")

    def sums(self, table: str) -> tuple[Any, ...]:
        """One line that tells a table's rows from others."""
        with self.connect() as connection:
            found = connection.execute(f"select {_SUMS} from {table}".encode()).fetchone()
            assert found is not None
            return tuple(None if value is None else round(float(value), 3) for value in found)

    def cpu_s(self) -> float:
        """The processor time of both servers so far."""
        (file,) = self.maria.execute("select @@pid_file")[0]
        with self.connect() as connection:
            found = connection.execute("select pg_read_file('postmaster.pid')").fetchone()
        assert found is not None
        return sum(
            cpu_s(pid) for pid in (int(Path(str(file)).read_text()), int(found[0].split()[0]))
        )

    def drop(self, table: str) -> None:
        """A target goes, before it is written again."""
        with self.connect() as connection:
            connection.execute(f"drop table if exists {table}".encode())


@contextmanager
def servers() -> Iterator[Servers]:
    """Fresh ones, gone at the end."""
    with (
        MariaDbServer(settings=MARIADB_SETTINGS) as maria,
        PostgresServer(settings=POSTGRES_SETTINGS) as postgres,
    ):
        maria.execute(f"create database {DATABASE} character set utf8mb4")
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute(f"create database {DATABASE}".encode())
        yield Servers(maria, postgres)


def fill(place: Servers, table: str, rows: int) -> None:
    """So many rows in both; PostgreSQL's table can be followed by its changes too."""
    make(place, table)
    place.maria.execute(
        f"insert into {table} select {_MARIADB_ROW} from seq_1_to_{rows}",
        f"analyze table {table}",
        database=DATABASE,
    )
    with place.connect() as connection:
        connection.execute(
            f"insert into {table} select {_POSTGRES_ROW} from generate_series(1::bigint,"
            f" {rows}) seq".encode()
        )
        connection.execute(f"vacuum analyze {table}".encode())


def make(place: Servers, table: str) -> None:
    """An empty table in both."""
    place.maria.execute(f"create table {table} ({_MARIADB_COLUMNS})", database=DATABASE)
    with place.connect() as connection:
        connection.execute(f"create table {table} ({_POSTGRES_COLUMNS})".encode())
        connection.execute(f"alter table {table} replica identity full".encode())


def maria_insert(table: str, first: int, last: int) -> str:
    """Rows with these numbers, made by the server."""
    return f"insert into {table} select {_MARIADB_ROW} from seq_{first}_to_{last}"


def postgres_insert(table: str, first: int, last: int) -> str:
    return (
        f"insert into {table} select {_POSTGRES_ROW} from generate_series({first}::bigint,"
        f" {last}) seq"
    )
