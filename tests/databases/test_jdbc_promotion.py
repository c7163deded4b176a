"""Staging tables of PostgreSQL that become the target.

Rows, keys and guarantees are the same as with a merge, whatever happens in between.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from database_kit import Driven, Place, batch_of, sink, table

from tidegate.connectors.jdbc import staging_postgres, writer
from tidegate.connectors.jdbc.promotion import can_promote
from tidegate.connectors.jdbc.staged_table import StagedRowsLost
from tidegate.connectors.jdbc.target import target_of
from tidegate.databases.errors import StatementRefused, TransientDatabaseError
from tidegate.model.errors import Fenced
from tidegate.model.records import JobStatus
from tidegate.plugin.contract import AlreadyCommitted, BatchCommitted, WriteTask
from tidegate.testing.crash_runs import KILLED, CrashRuns, RunRequest
from tidegate.testing.servers.postgres import PostgresServer

ORDERS = table("shop.orders", ["id"], id="bigint", name="string")
ROWS = 6_000
"""Enough of them in each of two tasks."""


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging_postgres, "FEW_ROWS", 0)


@pytest.fixture(scope="module")
def runs() -> Iterator[CrashRuns]:
    """Runs of a job as processes that can be killed anywhere."""
    with CrashRuns() as zygote:
        yield zygote


def orders(place: Place) -> list[tuple[Any, ...]]:
    return place.execute("select id, name from orders order by id")


def identities(place: Place, *names: str) -> list[int]:
    """What stays when a table gets another name."""
    return [int(place.execute(f"select to_regclass('{name}')::oid")[0][0]) for name in names]


def keys(place: Place, name: str = "orders") -> list[tuple[str, str]]:
    sql = (
        "select conname, pg_get_constraintdef(oid) from pg_constraint where conrelid ="
        f" '{name}'::regclass and contype = 'p'"
    )
    return [(str(found), str(text)) for found, text in place.execute(sql)]


@pytest.mark.usefixtures("many")
def test_largest_staging_table_becomes_the_missing_target(pg: Place) -> None:
    commented = replace(ORDERS, comment="it's all")
    driven = Driven(sink(pg, table="orders"))
    messages = driven.stage(1, (commented, [(3, "c")]))
    messages += driven.stage(1, (commented, [(1, "a"), (2, None)]), subtask=1)
    messages += driven.stage(1, (commented, []), subtask=2)
    staged = identities(pg, *pg.our_tables())
    assert len(staged) == 2
    assert pg.execute("select to_regclass('orders')") == [(None,)], (
        "nothing is visible before the commit"
    )
    assert isinstance(driven.commit(1, messages), BatchCommitted)
    assert orders(pg) == [(1, "a"), (2, None), (3, "c")]
    assert identities(pg, "orders")[0] in staged
    assert pg.execute(
        "select relpersistence::text, obj_description(oid) from pg_class where relname = 'orders'"
    ) == [("p", "it's all")]
    assert keys(pg) == [("orders_pkey", "PRIMARY KEY (id)")]
    assert pg.our_tables() == []
    driven.batch(2, (commented, [(2, "b"), (4, "d"), (4, "e")]))
    assert orders(pg) == [(1, "a"), (2, "b"), (3, "c"), (4, "e")]
    assert driven.committer.state()["prepared"] == [f"{pg.database}.public.orders"]


@pytest.mark.usefixtures("many")
def test_a_repeated_batch_is_skipped_and_an_old_generation_is_fenced(pg: Place) -> None:
    plain = replace(ORDERS, primary_key=())
    old = Driven(sink(pg, table="orders"))
    late = old.stage(1, (plain, [(9, "late")]))
    new = Driven(sink(pg, table="orders"), 2)
    assert pg.our_tables() == []
    with pytest.raises(Fenced):
        old.commit(1, late)
    messages = new.stage(1, (plain, [(1, "a")]))
    assert isinstance(new.commit(1, messages), BatchCommitted)
    assert isinstance(new.commit(1, messages), AlreadyCommitted), (
        "an answer that was lost: what was staged is the target now"
    )
    assert isinstance(
        Driven(sink(pg, table="orders"), 3, pending=1).batch(1, (plain, [(1, "a")])),
        AlreadyCommitted,
    )
    assert orders(pg) == [(1, "a")]
    assert keys(pg) == []


@pytest.mark.usefixtures("many")
def test_last_row_of_a_repeated_key_wins(pg: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wide rows and narrow ones, in many loads: a gap that a wide one left would be filled by a
    narrow one that came later.
    """
    monkeypatch.setattr(writer, "BUFFERED_ROWS_MAX", 400)
    rows = [
        (number * 7919 % 300, f"{number} " + "x" * (number * 31 % 3000)) for number in range(3_000)
    ]
    driven = Driven(sink(pg, table="orders"))
    task = WriteTask(lineage="L", checkpoint=1, generation=1, subtask=0, token=uuid4().hex)
    writing = driven.sink.writer(task)
    for first in range(0, len(rows), 400):
        writing.write(ORDERS, batch_of(ORDERS, rows[first : first + 400]))
    message = writing.close()
    later = driven.stage(1, (ORDERS, [(5, "of a later task")]), subtask=1)
    assert message["tables"][0]["shaped"]
    assert isinstance(driven.commit(1, [*later, message]), BatchCommitted)
    assert orders(pg) == sorted({**dict(rows), 5: "of a later task"}.items())
    assert pg.our_tables() == []


@pytest.mark.usefixtures("many")
def test_repeated_key_is_rejected_without_upsert(pg: Place) -> None:
    driven = Driven(sink(pg, table="orders", enable_upsert=False))
    with pytest.raises(StatementRefused, match="orders_pkey"):
        driven.batch(1, (ORDERS, [(1, "a"), (1, "b")]))
    assert pg.execute("select to_regclass('orders')") == [(None,)]


@pytest.mark.usefixtures("many")
def test_table_created_meanwhile_receives_the_rows(pg: Place) -> None:
    driven = Driven(sink(pg, table="orders"))
    messages = driven.stage(1, (ORDERS, [(1, "a"), (2, "b"), (1, "c")]))
    pg.execute(
        "create table orders (name varchar(20), id integer primary key, other text default 'mine')",
        "insert into orders values ('old', 2), ('kept', 3)",
    )
    driven.commit(1, messages)
    assert pg.execute("select id, name, other from orders order by id") == [
        (1, "c", "mine"),
        (2, "b", "mine"),
        (3, "kept", "mine"),
    ]


@pytest.mark.usefixtures("many")
def test_log_readers_see_the_rows_in_the_target(pg: Place) -> None:
    pg.execute("create publication everything for all tables")
    driven = Driven(sink(pg, table="orders"))
    messages = driven.stage(1, (ORDERS, [(1, "a")]))
    staged = identities(pg, *pg.our_tables())
    driven.commit(1, messages)
    assert orders(pg) == [(1, "a")]
    assert identities(pg, "orders") != staged


@pytest.mark.usefixtures("many")
def test_names_of_columns_and_tables_are_quoted(pg: Place) -> None:
    odd = table(
        "shop.odd", ['c1 "so"', "C0"], **{"c1": "int", "C0": "string", 'c1 "so"': "decimal(12,2)"}
    )
    Driven(sink(pg, table="Odd 'one'")).batch(1, (odd, [(1, "x", Decimal("2.00"))]))
    assert pg.execute("select * from \"Odd 'one'\"") == [(1, "x", Decimal("2.00"))]
    assert keys(pg, "\"Odd ''one''\"") == [("Odd 'one'_pkey", 'PRIMARY KEY ("c1 ""so""", "C0")')]


@pytest.mark.usefixtures("many")
def test_failed_task_leaves_no_table(pg: Place) -> None:
    driven = Driven(sink(pg, table="orders"))
    task = WriteTask(lineage="L", checkpoint=1, generation=1, subtask=0, token=uuid4().hex)
    writing = driven.sink.writer(task)
    writing.write(ORDERS, batch_of(ORDERS, [(1, "a")]))
    writing._load(writing._stagings["shop.orders"])
    writing.abort()
    assert pg.our_tables() == []


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("loss", ["delete from", "drop table"])
def test_rows_that_the_server_lost_are_staged_again(pg: Place, loss: str) -> None:
    driven = Driven(sink(pg, table="orders"))
    messages = driven.stage(1, (ORDERS, [(1, "a"), (2, "b")]))
    pg.execute(f"{loss} {pg.our_tables()[0]}")
    with pytest.raises(StagedRowsLost) as caught:
        driven.commit(1, messages)
    found = None if loss == "drop table" else 0
    assert (caught.value.expected, caught.value.found) == (2, found)
    assert pg.execute("select to_regclass('orders')") == [(None,)]
    assert isinstance(driven.batch(1, (ORDERS, [(1, "a"), (2, "b")])), BatchCommitted)
    assert orders(pg) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize(
    ("changed", "options"),
    [
        ({"kinds": True}, {}),
        ({}, {"schema_save_mode": "IGNORE"}),
        ({}, {"schema_save_mode": "ERROR_WHEN_SCHEMA_NOT_EXIST"}),
        ({}, {"data_save_mode": "CUSTOM_PROCESSING", "custom_sql": "select 1"}),
        ({}, {"table": "elsewhere.orders"}),
        ({"columns": table("t", id="bigint", name="map<string,int>").columns}, {}),
    ],
    ids=["changes", "ignore", "must be there", "custom statement", "other schema", "other types"],
)
def test_other_options_merge_the_rows(
    pg: Place, changed: dict[str, Any], options: dict[str, Any]
) -> None:
    usual, wanted = sink(pg, table="orders"), sink(pg, **({"table": "orders"} | options))
    assert can_promote(
        target_of(ORDERS, usual.values, pg.dialect, pg.address),
        usual.values,
        pg.dialect,
        pg.address,
    )
    assert not can_promote(
        target_of(replace(ORDERS, **changed), wanted.values, pg.dialect, pg.address),
        wanted.values,
        pg.dialect,
        pg.address,
    )


@pytest.mark.usefixtures("many")
def test_server_killed_between_staging_and_commit_loses_no_row() -> None:
    rows = [(number, f"name {number}") for number in range(2_000)]
    with PostgresServer() as server:
        place = Place(
            f"jdbc:postgresql://127.0.0.1:{server.port}/postgres", "postgres", "any", "postgres"
        )
        driven = Driven(sink(place, table="orders"))
        messages = driven.stage(1, (ORDERS, rows))
        server.kill()
        server.start()
        try:
            driven.commit(1, messages)
        except TransientDatabaseError:  # it had not written the end of the staging yet
            driven.batch(1, (ORDERS, rows))
        server.kill()
        server.start()
        assert orders(place) == rows
        assert keys(place) == [("orders_pkey", "PRIMARY KEY (id)")]
        assert place.our_tables() == []


def test_a_copy_into_a_new_table_that_is_killed_at_every_step_has_every_row_once(
    pg: Place, runs: CrashRuns, tmp_path: Path
) -> None:
    pg.execute(
        "create table origin (id bigint primary key, name text)",
        f"insert into origin select n, 'name ' || n from generate_series(1, {ROWS}) n",
    )
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if Path("/dev/shm").is_dir() else tmp_path, prefix="tidegate-"
    ) as directory:
        file, home = Path(directory) / "job.conf", str(Path(directory) / "home")
        file.write_text(f"""env {{ job.mode = "BATCH", job.name = "new", parallelism = 2 }}
source {{ Jdbc {{ {pg.block(table_path="origin", use_select_count=True)}, split.size = {ROWS // 2} }} }}
sink {{ Jdbc {{ {pg.block(generate_sink_sql=True, table="orders")} }} }}""")
        for step in (
            "stage.before",
            "stage.middle",
            "stage.after",
            "settle.before",
            "settle.after",
            "merge.before",
            "merge.middle",
            "merge.after",
        ):
            assert (
                runs.run(RunRequest(home=home, file=str(file), failpoints=f"jdbcsink.{step}")).code
                == KILLED
            ), step
            there = pg.execute("select to_regclass('orders') is not null") == [(True,)]
            assert there == (step == "merge.after"), step
            if step == "merge.before":
                columns = pg.execute(
                    "select distinct column_name::text from information_schema.columns where"
                    " left(table_name, 11) = 'tidegate_s_' order by 1"
                )
                assert columns == [("id",), ("name",)], "what is staged has the shape of the target"
        assert runs.run(RunRequest(home=home, file=str(file))).status == JobStatus.FINISHED.value
    assert orders(pg) == [(number, f"name {number}") for number in range(1, ROWS + 1)]
    assert keys(pg) == [("orders_pkey", "PRIMARY KEY (id)")]
    assert pg.our_tables() == []
