"""A CDC job that a table change stops, for the tests of decisions about it."""

from pathlib import Path
from typing import Any

import psycopg
from database_kit import Place

from tidegate.coordinator.accepted_changes import table_stops
from tidegate.home import Home
from tidegate.model.records import JobOutcome, JobStatus
from tidegate.model.table_changes import ChangeChoice, ChangeStop
from tidegate.testing.in_process import run_in_process
from tidegate.testing.plain_engine import PlainEngine
from tidegate.testing.servers.postgres import PostgresServer


class CopyJob:
    """A job from tables of MariaDB or PostgreSQL into PostgreSQL, with its home and target.

    The tables are `orders` and `notes`.
    """

    def __init__(self, source: Place, target: Place, server: PostgresServer, root: Path) -> None:
        self.source = source
        self.server = server
        self.root = root
        self.target = target
        self.home = Home(root / "home")
        self.file = root / "job.conf"
        maria = source.url.startswith("jdbc:mysql")
        prefix = source.database if maria else f"{source.database}.public"
        self.tables = [f"{prefix}.orders", f"{prefix}.notes"]
        reader = "MySQL-CDC" if maria else "Postgres-CDC"
        own = {} if maria else {"slot.name": f"s_{source.database}"}
        read = source.block(**{"table-names": self.tables, "snapshot.split.size": 2, **own})
        written = target.block(
            generate_sink_sql=True,
            database=target.database,
            table="public.${table_name}",
            primary_keys=["id"],
        )
        self.file.write_text(
            f"""env {{ job.mode = "STREAMING", job.name = "cdc", checkpoint.interval = 10
  job.retry.interval.seconds = 0, job.retry.times = 5 }}
source {{ {reader} {{ {read} }} }}
sink {{ Jdbc {{ driver = "org.postgresql.Driver"
{written} }} }}"""
        )
        self.change(
            "create table orders (id int primary key, v varchar(20), w varchar(20))",
            "create table notes (id int primary key, v varchar(20))",
        )
        if not maria:
            self.change(
                "alter table orders replica identity full",
                "alter table notes replica identity full",
            )
        self.change(
            "insert into orders values (1, 'a', 'x'), (2, 'b', 'y'), (3, 'c', 'z')",
            "insert into notes values (1, 'n')",
        )
        assert self.run(rows=4).status is JobStatus.CANCELED

    def change(self, *statements: str) -> None:
        self.source.execute(*statements)

    def run(self, *accept: str, rows: int | None = None, restore: str = "auto") -> JobOutcome:
        """Run until this number of rows is read in total, or the job fails."""
        return run_in_process(
            str(self.file),
            self.home,
            PlainEngine(),
            restore=restore,
            accept_changes=accept,
            stop_at_rows=rows,
        ).outcome

    def expect_stop(self) -> ChangeStop:
        """Check that it fails at one change, and at the same one after a restart."""
        first = table_stops(self.run(restore="latest"))
        assert len(first) == 1
        assert table_stops(self.run(restore="latest")) == first
        return first[0]

    def accept(self, stop: ChangeStop, choice: ChangeChoice, rows: int) -> None:
        ended = self.run(f"{stop.table}@{stop.at}={choice.value}", rows=rows, restore="latest")
        assert ended.status is JobStatus.CANCELED, ended.failures

    def copied(self, table: str = "orders") -> list[tuple[Any, ...]]:
        with psycopg.connect(
            f"postgresql://postgres@127.0.0.1:{self.server.port}/{self.target.database}",
            autocommit=True,
        ) as connection:
            return connection.execute(f"select * from {table} order by id".encode()).fetchall()


def copy_job_of(source: Place, server: PostgresServer, root: Path) -> CopyJob:
    """Create a job into a database of its own."""
    name = f"{source.database}_copy"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"create database {name}".encode())
    target = Place(
        url=f"jdbc:postgresql://127.0.0.1:{server.port}/{name}",
        user="postgres",
        password="any",
        database=name,
    )
    return CopyJob(source, target, server, root)
