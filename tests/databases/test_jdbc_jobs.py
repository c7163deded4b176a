"""Copies between databases, killed at every durable step of the sink.

Also with servers that are killed in between, and once on Spark.
"""

import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from threading import Semaphore

import pytest
from database_kit import Place

from tidegate.home import Home
from tidegate.model.records import JobStatus
from tidegate.pipeline.engine import Batch, Written
from tidegate.pipeline.graph import Graph
from tidegate.testing.crash_runs import KILLED, CrashRuns, RunRequest
from tidegate.testing.failpoints import failpoint_names
from tidegate.testing.in_process import run_in_process
from tidegate.testing.plain_engine import PlainEngine
from tidegate.testing.servers.mariadb import MariaDbServer
from tidegate.testing.servers.postgres import PostgresServer

ROWS = 240
WANTED = [(i, f"näme {i}" if i % 3 else None, Decimal(i) / 4) for i in range(1, ROWS + 1)]


@pytest.fixture(scope="module")
def runs() -> Iterator[CrashRuns]:
    """Runs of a job as processes that can be killed anywhere."""
    with CrashRuns() as zygote:
        yield zygote


@pytest.fixture
def quick_disk(tmp_path: Path) -> Iterator[Path]:
    """Where fsync costs nothing: a kill -9 does not care."""
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if Path("/dev/shm").is_dir() else tmp_path, prefix="tidegate-"
    ) as directory:
        yield Path(directory)


def fill(place: Place, *, first: int = 1, last: int = ROWS) -> None:
    place.execute(
        "create table orders (id bigint primary key, name varchar(40), amount decimal(12,2))",
        "create table visits (page varchar(40), seconds int)",
    )
    with place.session() as session, session.transaction():
        session.execute_many(
            "insert into orders values (%s, %s, %s)",
            [(i, n, str(a)) for i, n, a in WANTED if first <= i <= last],
        )
        session.execute_many(
            "insert into visits values (%s, %s)", [(f"page {i}", i) for i in range(40)]
        )


def job(
    source: Place, target: Place, env: str = "checkpoint.interval = 10, batch.max-rows = 20"
) -> str:
    """Both tables, in many batches."""
    tables = [{"table_path": "orders"}, {"table_path": "visits", "partition_column": "seconds"}]
    return f"""env {{ job.mode = "BATCH", job.name = "copy", {env} }}
source {{ Jdbc {{ {source.block(table_list=tables, use_select_count=True)}, split.size = 10 }} }}
sink {{ Jdbc {{ {target.block(generate_sink_sql=True, table="${table_name}", data_save_mode="DROP_DATA")} }} }}"""


def check(target: Place) -> None:
    assert [
        (i, n, Decimal(str(a)))
        for i, n, a in target.execute("select id, name, amount from orders order by id")
    ] == WANTED
    assert sorted(target.execute("select page, seconds from visits"), key=lambda row: row[1]) == [
        (f"page {i}", i) for i in range(40)
    ]
    assert target.our_tables() == []
    assert target.execute("select count(*) from tidegate_sink_record") == [(0,)]


@pytest.mark.parametrize(("origin", "goal"), [("maria", "pg"), ("pg", "maria")])
def test_a_copy_that_is_killed_at_every_step_of_the_sink_has_every_row_once(
    request: pytest.FixtureRequest, runs: CrashRuns, quick_disk: Path, origin: str, goal: str
) -> None:
    source, target = request.getfixturevalue(origin), request.getfixturevalue(goal)
    fill(source)
    file = quick_disk / "job.conf"
    file.write_text(job(source, target))
    killed = []
    for name in [
        n
        for n in failpoint_names()
        if n.startswith("jdbcsink.") and not n.startswith("jdbcsink.finish.")
    ]:
        result = runs.run(
            RunRequest(home=str(quick_disk / "home"), file=str(file), failpoints=name)
        )
        assert result.code == KILLED or name.startswith("jdbcsink.prepare"), f"{name}: {result}"
        killed += [name] if result.code == KILLED else []
    assert len(killed) >= 10
    assert (
        runs.run(RunRequest(home=str(quick_disk / "home"), file=str(file))).status
        == JobStatus.FINISHED.value
    )
    check(target)


@pytest.mark.parametrize(
    ("name", "left"), [("jdbcsink.finish.before", 1), ("jdbcsink.finish.after", 0)]
)
def test_copy_killed_while_removing_its_record_finishes(
    pg: Place, lite: Place, runs: CrashRuns, quick_disk: Path, name: str, left: int
) -> None:
    """The pipeline is FINISHED in the store by then: at most the row of its record stays in the
    target.
    """
    fill(pg)
    file = quick_disk / "job.conf"
    file.write_text(job(pg, lite))
    assert (
        runs.run(RunRequest(home=str(quick_disk / "home"), file=str(file), failpoints=name)).code
        == KILLED
    )
    assert (
        runs.run(RunRequest(home=str(quick_disk / "home"), file=str(file))).status
        == JobStatus.FINISHED.value
    )
    assert lite.execute("select count(*) from tidegate_sink_record") == [(left,)]
    lite.execute("delete from tidegate_sink_record")
    check(lite)


def test_killed_read_resumes_at_its_split(
    maria: Place, pg: Place, runs: CrashRuns, quick_disk: Path
) -> None:
    fill(maria)
    file = quick_disk / "job.conf"
    file.write_text(job(maria, pg))
    assert (
        runs.run(
            RunRequest(
                home=str(quick_disk / "home"), file=str(file), failpoints="ledger.complete.after@6"
            )
        ).code
        == KILLED
    )
    done = len(pg.execute("select id from orders"))
    assert 100 <= done < ROWS
    maria.execute(f"update orders set name = 'changed behind the reader' where id <= {done - 20}")
    assert (
        runs.run(RunRequest(home=str(quick_disk / "home"), file=str(file))).status
        == JobStatus.FINISHED.value
    )
    check(pg)


class Deadly(PlainEngine):
    """Requests kills of servers: one before a read, one between staging and commit."""

    def __init__(self) -> None:
        self.kill_requested = Semaphore(0)
        self.done = Semaphore(0)
        self.batches = 0

    def run(self, graph: Graph, batch: Batch) -> Written:
        self.batches += 1
        if self.batches == 3:
            self._kill()
        written = super().run(graph, batch)
        if self.batches == 5:
            self._kill()
        return written

    def _kill(self) -> None:
        self.kill_requested.release()
        assert self.done.acquire(timeout=240)


def test_killed_servers_cost_a_retry_and_no_row(tmp_path: Path) -> None:
    """Both servers are killed -9 and started again while the job runs; it waits for
    them and continues.
    """
    with MariaDbServer() as mariadb, PostgresServer() as postgres:
        mariadb.execute("create database shop character set utf8mb4")
        source = Place(mariadb.url("shop"), mariadb.user, mariadb.password, "shop")
        target = Place(
            f"jdbc:postgresql://127.0.0.1:{postgres.port}/postgres", "postgres", "any", "postgres"
        )
        fill(source)

        file = tmp_path / "job.conf"
        file.write_text(
            job(
                source,
                target,
                "checkpoint.interval = 10, batch.max-rows = 40, job.retry.times = 5,"
                " job.retry.interval.seconds = 1",
            )
        )
        engine = Deadly()
        with ThreadPoolExecutor(1) as thread:
            running = thread.submit(run_in_process, str(file), Home(tmp_path / "home"), engine)
            for server in (
                mariadb,
                postgres,
            ):  # here, as a server ends with the thread that started it
                assert engine.kill_requested.acquire(timeout=240)
                server.kill()
                server.start()
                engine.done.release()
            ran = running.result(timeout=240)
        assert ran.outcome.status is JobStatus.FINISHED, ran.outcome
        check(target)


@pytest.mark.parametrize("damaged", [0, 2], ids=["store lost", "newest checkpoints damaged"])
def test_batches_beyond_the_checkpoints_are_kept(
    runs: CrashRuns, quick_disk: Path, pg: Place, maria: Place, damaged: int
) -> None:
    """Rows without a key come once too: batches that the database has are repeated within their old
    bounds, and skipped.
    """
    fill(pg)
    file, home = quick_disk / "job.conf", Home(quick_disk / "home")
    file.write_text(job(pg, maria))
    assert (
        runs.run(
            RunRequest(home=str(home.root), file=str(file), failpoints="batch.commit.after@7")
        ).code
        == KILLED
    )
    shutil.rmtree(home.root / "store")
    manifests = sorted(
        home.checkpoints.glob("7/1/*/_manifest.json"), key=lambda path: int(path.parent.name)
    )
    for manifest in manifests[len(manifests) - damaged :]:
        manifest.write_bytes(b"")
    result = runs.run(RunRequest(home=str(home.root), file=str(file), restore="latest"))
    assert result.status == JobStatus.FINISHED.value, result.error
    check(maria)
