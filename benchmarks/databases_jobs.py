"""The job files of the database benchmarks, as a person writes them, with nothing tuned.

Called by databases.py, databases_cdc.py and databases_latency.py.
"""

from pathlib import Path

from benchmarks.databases_rows import DATABASE, Servers

BATCH_ROWS, BATCH_BYTES = 250_000, 64 << 20


def copy_job(directory: Path, place: Servers, source: str, table: str) -> Path:
    """One table as it is."""
    reader = (
        f'url = "jdbc:mysql://127.0.0.1:{place.maria.port}/{DATABASE}", username = "root", password'
        f' = "", table_path = "{DATABASE}.{table}"'
        if source == "MariaDB"
        else (
            f'url = "jdbc:postgresql://127.0.0.1:{place.postgres.port}/{DATABASE}", username ='
            f' "postgres", password = "any", table_path = "public.{table}"'
        )
    )
    path = directory / f"copy-{source}-{table}.conf"
    path.write_text(
        f"""env {{ job.name = "copy-{source}-{table}", job.mode = "BATCH"
  parallelism = 2, spark.master = "local[2]" }}
source {{ Jdbc {{ {reader} }} }}
sink {{ {jdbc_sink(place, "by_tidegate")} }}
"""
    )
    return path


def jdbc_sink(place: Servers, table: str) -> str:
    """A block that writes a table of PostgreSQL."""
    where = (
        f'url = "jdbc:postgresql://127.0.0.1:{place.postgres.port}/{DATABASE}", username ='
        ' "postgres", password = "any"'
    )
    return (
        f'Jdbc {{ {where}, generate_sink_sql = true, database = "{DATABASE}", table ='
        f' "public.{table}", primary_keys = ["id"] }}'
    )


def follow_job(directory: Path, place: Servers, reader: str, name: str, interval_ms: int) -> Path:
    """The changes of a table, in STREAMING mode.

    The size of a batch is given: by itself it shrinks where an interval is shorter than the least
    batch takes.
    """
    pace = (
        f"checkpoint.interval = {interval_ms}, batch.max-rows = {BATCH_ROWS}, batch.max-bytes ="
        f" {BATCH_BYTES}"
    )
    path = directory / f"{name}.conf"
    path.write_text(
        f"""env {{ job.name = "{name}", job.mode = "STREAMING", parallelism = 2
  {pace}, spark.master = "local[2]" }}
source {{ {reader} }}
sink {{ {jdbc_sink(place, "by_tidegate")} }}
"""
    )
    return path


def maria_reader(place: Servers, table: str, more: str) -> str:
    where = (
        f'url = "jdbc:mysql://127.0.0.1:{place.maria.port}/{DATABASE}", username = "root", password'
        ' = ""'
    )
    return f'MySQL-CDC {{ {where}, table-names = ["{DATABASE}.{table}"], {more} }}'


def postgres_reader(place: Servers, table: str, more: str) -> str:
    where = (
        f'url = "jdbc:postgresql://127.0.0.1:{place.postgres.port}/{DATABASE}", username ='
        ' "postgres", password = "any"'
    )
    return f'Postgres-CDC {{ {where}, table-names = ["{DATABASE}.public.{table}"], {more} }}'
