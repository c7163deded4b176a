"""Whole jobs from a CDC source into PostgreSQL, killed -9 at failpoints during changes.

The plain engine runs the protocol; kills are real. With stop.mode = latest the target must end
exactly as the source was when the job began, however late its chunks were read.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from database_kit import Place

from tidegate.coordinator.external_resources import drop_unneeded
from tidegate.home import Home
from tidegate.model.external_resources import RESOURCES
from tidegate.store.open import open_store
from tidegate.testing.crash_runs import KILLED, CrashRuns, RunRequest
from tidegate.testing.failpoints import failpoint_names
from tidegate.testing.in_process import run_in_process
from tidegate.testing.plain_engine import PlainEngine
from tidegate.testing.servers.mariadb import MariaDbServer
from tidegate.testing.servers.postgres import PostgresServer

COLUMNS = "id, name, amount, note"
CHUNKS = tuple(
    name for name in failpoint_names() if name.startswith("capture.")
)  # a chunk is read, and rolled back
CHANGES = (
    "update orders set name = 'later', amount = amount + 1 where id > 20",
    "delete from orders where id % 7 = 3",
    "update orders set id = id + 100000 where id % 11 = 5",
    "insert into orders select max(id) + 1, 'new', 1, null from orders",
)


@pytest.fixture(scope="module")
def runs() -> Iterator[CrashRuns]:
    with CrashRuns() as started:
        yield started


def job(reader: str, target: Place) -> str:
    return f"""
env {{ job.mode = "STREAMING", job.name = "cdc", parallelism = 2, checkpoint.interval = 10,
  batch.max-rows = 100, checkpoint.max-retained = 2 }}
source {{ {reader} }}
sink {{ Jdbc {{ url = "{target.url}", driver = "org.postgresql.Driver",
  username = "{target.user}", password = "{target.password}"
  generate_sink_sql = true, database = "{target.database}", table = "public.copied",
    primary_keys = ["id"] }} }}"""


def copied(target: Place, server: PostgresServer) -> list[tuple[Any, ...]]:
    with psycopg.connect(
        f"postgresql://postgres@127.0.0.1:{server.port}/{target.database}", autocommit=True
    ) as connection:
        return connection.execute(f"select {COLUMNS} from copied order by id".encode()).fetchall()


class KilledJob:
    """One job, killed at one failpoint after the other, each in a run of its own."""

    def __init__(self, runs: CrashRuns, root: Path, text: str) -> None:
        self.runs = runs
        self.home = root / "home"
        self.file = root / "job.conf"
        self.file.write_text(text)

    def kill_at(self, failpoint: str) -> None:
        result = self.runs.run(
            RunRequest(home=str(self.home), file=str(self.file), failpoints=f"{failpoint}@1")
        )
        assert result.code == KILLED, f"{failpoint} was not reached: {result}"

    def finish(self) -> None:
        result = self.runs.run(RunRequest(home=str(self.home), file=str(self.file)))
        assert (result.code, result.status) == (0, "FINISHED"), result.error


@pytest.mark.timeout(600)
def test_killed_mariadb_snapshot_resumes_at_the_chunk(
    runs: CrashRuns,
    mariadb: MariaDbServer,
    maria: Place,
    pg: Place,
    postgres: PostgresServer,
    tmp_path: Path,
) -> None:
    create = (
        "create table orders (id bigint primary key, name varchar(80), amount decimal(12,2), note"
        " text) character set utf8mb4"
    )
    fill = (
        "insert into orders select seq, concat('name ', seq), seq / 4, if(seq % 3, null, 'x') from"
        " seq_1_to_200"
    )
    mariadb.execute(create, fill, database=maria.database)
    before = list(
        mariadb.execute(f"select {COLUMNS} from orders order by id", database=maria.database)
    )
    reader = f"""MySQL-CDC {{ url = "{maria.url}", username = "root", password = ""
  table-names = ["{maria.database}.orders"]
      stop.mode = "latest", snapshot.split.size = 40 }}"""
    story = KilledJob(runs, tmp_path, job(reader, pg))
    first = (
        "ledger.begin.after",
        *CHUNKS,
        "batch.write.after",
        "jdbcsink.merge.middle",
        "batch.commit.after",
        "ledger.complete.after",
    )
    later = ("capture.chunk.middle", "ledger.complete.after")  # with rows that are read already
    last = ("capture.chunk.after", "ledger.complete.after")  # from the last chunk to the log
    for failpoint in (*first, *later, *last):
        story.kill_at(failpoint)
        mariadb.execute(*CHANGES, database=maria.database)
    story.finish()
    assert copied(pg, postgres) == before


@pytest.mark.timeout(600)
def test_an_added_column_reaches_the_target_of_a_running_job(
    mariadb: MariaDbServer, maria: Place, pg: Place, postgres: PostgresServer, tmp_path: Path
) -> None:
    mariadb.execute(
        "create table orders (id int primary key, name varchar(80))",
        "insert into orders values (1, 'a'), (2, 'b')",
        database=maria.database,
    )
    reader = f"""MySQL-CDC {{ url = "{maria.url}", username = "root", password = ""
  table-names = ["{maria.database}.orders"]
      schema-changes.enabled = true }}"""
    file = tmp_path / "job.conf"
    file.write_text(
        job(reader, pg).replace(
            "parallelism = 2,", "parallelism = 2, job.retry.interval.seconds = 1,"
        )
    )
    trouble: list[BaseException] = []

    def alter() -> None:
        try:
            wait_for_rows(postgres, pg, 2)
            mariadb.execute(
                "insert into orders values (3, 'c')",
                "alter table orders add (extra int default 7, word varchar(20) not null default"
                " 'it''s')",
                "insert into orders values (4, 'd', 40, 'w')",
                "update orders set extra = 10 where id = 1",
                database=maria.database,
            )
        except BaseException as error:
            trouble.append(error)

    writer = threading.Thread(target=alter)
    writer.start()
    run_in_process(str(file), Home(tmp_path / "home"), PlainEngine(), stop_at_rows=6)
    writer.join()
    assert trouble == []
    with psycopg.connect(
        f"postgresql://postgres@127.0.0.1:{postgres.port}/{pg.database}", autocommit=True
    ) as connection:
        rows = connection.execute("select id, name, extra, word from copied order by id").fetchall()
    assert rows == [
        (1, "a", 10, "it's"),
        (2, "b", 7, "it's"),
        (3, "c", 7, "it's"),
        (4, "d", 40, "w"),
    ]


def wait_for_rows(server: PostgresServer, target: Place, rows: int) -> None:
    deadline_s = time.monotonic() + 120
    with psycopg.connect(
        f"postgresql://postgres@127.0.0.1:{server.port}/{target.database}", autocommit=True
    ) as connection:
        while True:
            there = connection.execute("select to_regclass('copied') is not null").fetchone()
            if there == (True,) and connection.execute(
                "select count(*) from copied"
            ).fetchone() == (rows,):
                return
            assert time.monotonic() < deadline_s, "the rows do not come"
            time.sleep(0.05)  # poll interval


@pytest.mark.timeout(600)
def test_killed_slot_job_loses_no_rows(
    runs: CrashRuns, pg: Place, postgres: PostgresServer, tmp_path: Path
) -> None:
    with psycopg.connect(
        f"postgresql://postgres@127.0.0.1:{postgres.port}/{pg.database}", autocommit=True
    ) as connection:
        connection.execute(
            "create table orders (id bigint primary key, name varchar(80), amount decimal(12,2),"
            " note text)"
        )
        connection.execute("alter table orders replica identity full")
        connection.execute(
            "insert into orders select s, 'name ' || s, s / 4.0, case when s % 3 = 0 then 'x' end"
            " from generate_series(1, 200) s"
        )
        reader = f"""Postgres-CDC {{ url = "{pg.url}", username = "postgres", password = "any"
  table-names = ["{pg.database}.public.orders"]
          slot.name = "jobs", stop.mode = "latest", snapshot.split.size = 40 }}"""
        story = KilledJob(runs, tmp_path, job(reader, pg))
        making = [
            f"postgrescdc.{step}.{side}"
            for step in ("publication", "slot")
            for side in ("before", "after")
        ]
        moving = ["postgrescdc.advance.before", "postgrescdc.advance.after"]
        assert {*making, *moving} == {
            name for name in failpoint_names() if name.startswith("postgrescdc.")
        }
        for failpoint in making:
            story.kill_at(failpoint)
        change(connection)  # after the slot was made, and before the job has begun
        before = connection.execute(f"select {COLUMNS} from orders order by id".encode()).fetchall()
        for failpoint in (*CHUNKS, "batch.commit.after", *moving):
            story.kill_at(failpoint)
            change(connection)
        story.finish()
        assert copied(pg, postgres) == before
        assert_resources_dropped(connection, Home(tmp_path / "home"))


def change(connection: "psycopg.Connection[Any]") -> None:
    for statement in CHANGES:
        connection.execute(statement.encode())


def assert_resources_dropped(connection: "psycopg.Connection[Any]", home: Home) -> None:
    """Check that resources on the server are dropped when no restore can need them.

    A killed reader may hold the slot for a moment.
    """
    slots, publications = (
        "select count(*) from pg_replication_slots where slot_name = 'jobs'",
        "select count(*) from pg_publication",
    )
    with closing(open_store(home.store_url)) as store:
        for turn in range(600):
            drop_unneeded(store, now_ms=(turn + 1) << 50)
            if connection.execute(slots).fetchone() == (0,):
                break
            connection.execute("select pg_sleep(0.1)")
        assert connection.execute(slots).fetchone() == (0,)
        assert connection.execute(publications).fetchone() == (0,)
        assert store.list(RESOURCES) == []
