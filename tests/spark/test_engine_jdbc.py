"""The Jdbc connectors in Spark's workers, fused and through a DataFrame."""

from contextlib import closing
from pathlib import Path
from sqlite3 import connect

import psycopg
import pytest

from tidegate.home import Home
from tidegate.model.records import JobStatus
from tidegate.spark.engine import SparkEngine
from tidegate.testing.in_process import Shared, run_in_process
from tidegate.testing.servers.postgres import PostgresServer

ENV = (
    'env { job.mode = "BATCH", job.name = "copy", checkpoint.interval = 10, batch.max-rows = 400 }'
)


def numbers(file: Path) -> None:
    with closing(connect(file)) as db:
        db.execute("create table numbers (id integer primary key, word text)")
        db.executemany("insert into numbers values (?, ?)", [(i, f"word {i}") for i in range(1000)])
        db.commit()


@pytest.mark.parametrize(
    "sql",
    ["", "select id, upper(word) as word from dual where id >= 500"],
    ids=["fused", "through a frame"],
)
def test_rows_are_copied_between_databases(engine: SparkEngine, tmp_path: Path, sql: str) -> None:
    numbers(tmp_path / "source.db")
    with PostgresServer(settings={"fsync": "off"}) as server:
        job = tmp_path / "job.conf"
        transform = f'transform {{ Sql {{ query = "{sql}" }} }}' if sql else ""
        job.write_text(
            f"""{ENV}
source {{ Jdbc {{
  url = "jdbc:sqlite:{tmp_path}/source.db", table_path = "numbers", split.size = 50
}} }}
{transform}
sink {{ Jdbc {{
  url = "jdbc:postgresql://127.0.0.1:{server.port}/postgres", username = "postgres"
  table = "copied", primary_keys = ["id"]
}} }}"""
        )
        ran = run_in_process(str(job), Home(tmp_path / "home"), Shared(engine))
        assert [failure.message for failure in ran.outcome.failures] == []
        assert ran.outcome.status is JobStatus.FINISHED
        with psycopg.connect(server.url) as connection:
            rows = connection.execute("select id, word from copied order by id").fetchall()
            left = connection.execute(
                "select relname from pg_class where relname like 'tidegate_s_%'"
            ).fetchall()
    assert rows == [
        (i, f"WORD {i}" if sql else f"word {i}") for i in range(500 if sql else 0, 1000)
    ]
    assert [name for (name,) in left if not name.startswith("tidegate_sink_record")] == []
