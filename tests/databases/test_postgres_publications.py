"""Postgres-CDC with publications of all kinds.

A publication that leaves out changes is rejected before anything is read, and stops a running job.
"""

import re
from typing import Any

import psycopg
import pytest
from cdc_kit import Mirror, restored, rows_of
from postgres_kit import Shop

from tidegate.databases.cdc.errors import NotSetUp, TableChanged
from tidegate.plugin.contract import Limit

A = (
    "create table a (id int primary key, v text)",
    "alter table a replica identity full",
    "insert into a values (1, 'x'), (2, 'y')",
)
P = (
    "create table p (id int primary key, v text) partition by range (id)",
    "create table p1 partition of p for values from (0) to (100)",
    "alter table p replica identity full",
    "alter table p1 replica identity full",
    "insert into p values (1, 'x')",
)
MINE = {"publication.name": "mine"}


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            "create publication mine for table a with (publish = 'insert')",
            (
                r"does not publish update, delete, truncate.*SET \(publish = 'insert, update,"
                r" delete, truncate'\)"
            ),
        ),
        (
            "create publication mine for all tables with (publish = 'insert, update, delete')",
            "does not publish truncate",
        ),
        (
            "create publication mine for table a where (id > 1)",
            r"publishes only rows of .*a.* where \(id > 1\)",
        ),
        ("create publication mine for table a (id)", "publishes only the columns id of"),
    ],
)
def test_incomplete_publication_is_rejected_before_reading(
    shop: Shop, made: str, said: str
) -> None:
    shop(*A, made)
    with pytest.raises(NotSetUp, match=said):
        shop.source(**MINE).initial()
    assert shop("select 1 from pg_replication_slots where database = current_database()") == []


@pytest.mark.parametrize(
    "made",
    [
        "create publication mine for all tables",
        "create publication mine for table p",
        "create publication mine for tables in schema public",
    ],
)
def test_publication_without_via_root_is_rejected(shop: Shop, made: str) -> None:
    shop(*P, made)
    with pytest.raises(
        NotSetUp,
        match=(
            r"under the names of its partitions; run: ALTER PUBLICATION \"mine\" SET"
            r" \(publish_via_partition_root = true\)"
        ),
    ):
        shop.source(**MINE).initial()
    shop("alter publication mine set (publish_via_partition_root = true)")
    mirror = Mirror(shop.source(**MINE))
    mirror.run()
    shop("insert into p values (5, 'z')", "update p set v = 'u' where id = 1")
    mirror.source = shop.source(**MINE)
    mirror.run()
    assert mirror.table(shop.path("p")) == shop.rows("p")


@pytest.mark.parametrize(
    "made",
    [
        "create publication mine",
        "create publication mine for table a",
        "create publication mine for all tables",
    ],
)
def test_existing_publication_is_used_and_completed(shop: Shop, made: str) -> None:
    shop(*A, "create table c (id int primary key)", "alter table c replica identity full", made)
    mirror = Mirror(shop.source(**MINE))
    mirror.run()
    shop(
        "insert into c values (1)",
        "update a set v = 'u' where id = 1",
        "delete from a where id = 2",
    )
    mirror.source = shop.source(**MINE)
    mirror.run()
    assert mirror.table(shop.path("a")) == shop.rows("a")
    assert len(mirror.table(shop.path("c"))) == 1


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    ("made", "altered", "said", "mended"),
    [
        (
            "for table a",
            ["alter publication mine drop table a"],
            "does not have the table",
            "alter publication mine add table a",
        ),
        (
            "for table a",
            ["alter publication mine set (publish = 'insert')"],
            "does not publish update, delete, truncate",
            "alter publication mine set (publish = 'insert, update, delete, truncate')",
        ),
        (
            "for table a",
            ["alter publication mine set (publish = 'insert, update, delete')"],
            "does not publish truncate",
            "alter publication mine set (publish = 'insert, update, delete, truncate')",
        ),
        (
            "for table a",
            ["alter publication mine set table a where (id > 5)"],
            "publishes only rows of",
            "alter publication mine set table a",
        ),
        (
            "for table a",
            [
                "alter publication mine drop table a",
                "update a set v = 'lost'",
                "alter publication mine add table a",
            ],
            "the table was removed from it",
            "",
        ),
        (
            "for all tables",
            [
                "alter publication mine set (publish = 'insert')",
                "update a set v = 'lost'",
                "alter publication mine set (publish = 'insert, update, delete, truncate')",
            ],
            "its publication was altered",
            "",
        ),
        (
            "for tables in schema public",
            ["alter publication mine drop tables in schema public"],
            "does not have the table",
            "alter publication mine add tables in schema public",
        ),
    ],
)
def test_altered_publication_stops_the_job_until_a_reread(
    shop: Shop, made: str, altered: list[str], said: str, mended: str, restarted: bool
) -> None:
    shop(*A, f"create publication mine {made}")
    mirror = Mirror(shop.source(**MINE))
    mirror.run()
    shop(
        *altered,
        "update a set v = 'u' where id = 1",
        "delete from a where id = 2",
        "insert into a values (3, 'z')",
    )
    if restarted:
        mirror.source = shop.source(**MINE)
    with pytest.raises(TableChanged) as raised:
        mirror.run()
    assert re.search(said, raised.value.statement), raised.value.statement
    assert len(mirror.rows) == 2
    chosen = [f"{raised.value.at}=reread"]
    if mended:
        mirror.source = shop.source(accept=chosen, **MINE)
        shop(mended)
    mirror.rows.clear()
    mirror.source = shop.source(accept=chosen, **MINE)
    mirror.run()
    shop("update a set v = 'v' where id = 1")
    mirror.run()
    assert mirror.table(shop.path("a")) == shop.rows("a")


def test_dropped_publication_stops_the_job(shop: Shop) -> None:
    shop(*A)
    mirror = Mirror(shop.source())
    mirror.run()
    shop(f"drop publication tidegate_{shop.slot}", "update a set v = 'u' where id = 1")
    for _ in range(2):
        with pytest.raises(TableChanged, match="its publication is gone"):
            mirror.run()
        mirror.source = shop.source()
    shop(f"create publication tidegate_{shop.slot} for table a")
    with pytest.raises(TableChanged, match=r"its publication was recreated.*--restore fresh"):
        mirror.run()
    mirror = Mirror(shop.source())  # fresh, with the slot that is there
    mirror.run()
    shop("update a set v = 'w' where id = 1")
    mirror.run()
    assert mirror.table(shop.path("a")) == shop.rows("a")


def test_other_tables_of_a_publication_do_not_matter(shop: Shop) -> None:
    shop(*A, "create table z (id int)", "create publication mine for all tables")
    source = shop.source(**MINE, **{"table-names": [shop.path("a")]})
    offset: Any = restored(source.initial())
    for _ in range(3):
        shop(
            "alter table z add column c int",
            "insert into z (id) values (1)",
            "drop table z",
            "create table z (id int)",
            "update a set v = v || '.'",
        )
        end = restored(source.latest(offset, Limit()))
        assert {path for path, _ in rows_of(source, offset, end)} == {shop.path("a")}
        offset = end


BACK = [
    "alter table a set unlogged",
    "update a set v = 'lost' where id = 1",
    "delete from a where id = 2",
    "alter table a set logged",
]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    "more",
    [[], ["vacuum full a"], ["insert into a values (3, 'z')", "grant select on a to public"]],
)
@pytest.mark.parametrize("made", ["for all tables", "for tables in schema public"])
def test_a_table_that_was_unlogged_for_a_while_stops_the_job(
    shop: Shop, made: str, more: list[str], restarted: bool
) -> None:
    shop(*A, f"create publication mine {made}")
    mirror = Mirror(shop.source(**MINE))
    mirror.run()
    shop("update a set v = 'seen'")
    mirror.run()
    shop(*BACK, *more)
    if restarted:
        mirror.source = shop.source(**MINE)
    for _ in range(2):
        with pytest.raises(TableChanged, match="it was UNLOGGED for a while") as raised:
            mirror.run()
    assert {choice.value for choice in raised.value.choices} == {"skip", "reread"}
    mirror.rows.clear()
    mirror.source = shop.source(accept=[f"{raised.value.at}=reread"], **MINE)
    mirror.run()
    shop("update a set v = 'later'")
    mirror.run()
    assert mirror.table(shop.path("a")) == shop.rows("a")


def test_partitions_that_are_unlogged_are_refused_and_stop_the_job(shop: Shop) -> None:
    shop(*P, "alter table p1 set unlogged")
    with pytest.raises(NotSetUp, match="as it or a partition is unlogged"):
        shop.source().initial()
    shop("alter table p1 set logged")
    mirror = Mirror(shop.source())
    mirror.run()
    shop("alter table p1 set unlogged", "update p set v = 'lost'")
    with pytest.raises(TableChanged, match="was changed between unlogged and logged") as raised:
        mirror.run()
    mirror.source = shop.source(accept=[f"{raised.value.at}=reread"])
    with pytest.raises(NotSetUp, match="is unlogged"):
        mirror.run()
    shop("alter table p1 set logged")
    mirror.rows.clear()
    mirror.source = shop.source(accept=[f"{raised.value.at}=reread"])
    mirror.run()
    assert mirror.table(shop.path("p")) == shop.rows("p")


def test_rewritten_table_with_older_rows_continues(shop: Shop) -> None:
    shop(*A, "create publication mine for all tables")
    mirror = Mirror(shop.source(**MINE))
    mirror.run()
    for statement in ("vacuum full a", "cluster a using a_pkey", "truncate a"):
        shop("update a set v = v || '.' where id = 1", statement)
        if statement == "truncate a":
            with pytest.raises(TableChanged, match="TRUNCATE"):
                mirror.run()
        else:
            mirror.run()
            assert mirror.table(shop.path("a")) == shop.rows("a")


def test_a_table_that_is_named_by_the_publication_cannot_become_unlogged(shop: Shop) -> None:
    shop(*A)
    mirror = Mirror(shop.source())
    mirror.run()
    with pytest.raises(psycopg.Error, match="part of a publication"):
        shop("alter table a set unlogged")
    shop("update a set v = 'all'", "vacuum full a")
    mirror.run()
    assert mirror.table(shop.path("a")) == shop.rows("a")
