"""A changed table stops Postgres-CDC before the first row that differs.

The job resumes with the choice of an operator.
"""

import re
from contextlib import suppress

import psycopg
import pytest
from cdc_kit import Mirror
from postgres_kit import Shop

from tidegate.databases.cdc.errors import ColumnsAdded, NotSetUp, TableChanged

TABLE = "create table a (id int primary key, b int, c text, f boolean, m mood, p pair)"
SET_UP = (
    "create type mood as enum ('sad', 'ok')",
    "create type pair as (x int, y int)",
    TABLE,
    "alter table a replica identity full",
    "insert into a values (1, 7, 'x', true, 'sad', '(1,2)')",
    "create table b (id int primary key)",
    "alter table b replica identity full",
)
PARTS = (
    "create table p (id int, part int, v text, primary key (id, part)) partition by list (part)",
    "create table p1 partition of p for values in (1)",
    "create table p2 partition of p for values in (2)",
    "alter table p replica identity full",
    "alter table p1 replica identity full",
    "alter table p2 replica identity full",
    "insert into p values (1, 1, 'x'), (2, 2, 'y')",
)
VISIBLE = {
    "bool to int": (
        ["alter table a alter f type int using f::int"],
        "insert into a (id, f) values (9, 1)",
        "its columns were",
    ),
    "int to double": (
        ["alter table a alter b type double precision"],
        "insert into a (id, b) values (9, 0.5)",
        "its columns were",
    ),
    "text to bytea": (
        ["alter table a alter c type bytea using c::bytea"],
        "insert into a (id, c) values (9, 'x')",
        "its columns were",
    ),
    "longer text": (
        ["alter table a alter c type varchar(30)"],
        "insert into a (id, c) values (9, 'x')",
        "its columns were",
    ),
    "another type in the same words": (
        [
            "alter type mood rename to feeling",
            "create type mood as enum ('ok', 'sad')",
            "alter table a alter m type mood using m::text::mood",
        ],
        "insert into a (id, m) values (9, 'ok')",
        "the type of m was changed|its columns were",
    ),
    "drop and add": (
        ["alter table a drop column b, add column b int default 5"],
        "insert into a (id) values (9)",
        "in this order|its columns were",
    ),
    "swap of names": (
        [
            "alter table a rename b to t",
            "alter table a alter c type int using 3",
            "alter table a rename c to b",
            "alter table a rename t to c",
        ],
        "insert into a (id) values (9)",
        "its columns were",
    ),
    "drop and create": (
        ["drop table a", TABLE, "alter table a replica identity full"],
        "insert into a (id) values (9)",
        "dropped and created again",
    ),
    "rename swap": (
        [
            "create table a_new (like a including all)",
            "alter table a_new replica identity full",
            "begin",
            "alter table a rename to a_old",
            "alter table a_new rename to a",
            "commit",
        ],
        "insert into a_old (id) values (9)",
        "another table has its name now",
    ),
    "renamed away": (
        ["alter table a rename to z"],
        "insert into z (id) values (9)",
        "the table is gone|no longer has it",
    ),
    "dropped": (["drop table a"], "select 1", "the table is gone|no longer has it"),
    "changed and back": (
        [
            "alter table a alter f type int using f::int",
            "insert into a (id, f) values (8, 1)",
            "alter table a alter f type boolean using f = 1",
        ],
        "insert into a (id) values (9)",
        "was altered and all rows were rewritten",
    ),
    "added and dropped": (
        [
            "alter table a add column e int",
            "insert into a (id, e) values (8, 1)",
            "alter table a drop column e",
        ],
        "select 1",
        "it got e|columns were",
    ),
    "identity": (
        ["alter table a replica identity default"],
        "update a set b = 8",
        "REPLICA IDENTITY was FULL and is DEFAULT",
    ),
    "identity and back": (
        [
            "alter table a replica identity default",
            "update a set b = 8",
            "alter table a replica identity full",
        ],
        "select 1",
        "is DEFAULT",
    ),
}
AT_ONCE = ("changed and back",)
"""Rows after the change look like those before it."""
AT_ONCE_WHEN_RESTARTED = (
    "bool to int",
    "int to double",
    "text to bytea",
    "swap of names",
    "dropped",
    "renamed away",
)
"""The pipeline is built for the new types, or without the table: older rows do not fit it."""
SILENT = {
    "rewritten by an expression": (
        ["alter table a alter b type int using b * 100"],
        "all rows were rewritten",
    ),
    "drop and add of the last column": (
        ["alter table a drop column p", "alter table a add column p pair"],
        "p was dropped",
    ),
    "label renamed": (
        ["alter type mood rename value 'sad' to 'down'"],
        "labels of an enum were renamed: sad",
    ),
    "label renamed and back": (
        [
            "alter type mood rename value 'sad' to 'down'",
            "insert into a (id, m) values (8, 'down')",
            "alter type mood rename value 'down' to 'sad'",
        ],
        "labels of an enum were renamed: sad",
    ),
    "attribute added": (
        ["alter type pair add attribute z int"],
        "a composite type of its columns was altered",
    ),
    "attribute renamed": (
        ["alter type pair rename attribute x to u"],
        "a composite type of its columns was altered",
    ),
    "longer key": (
        ["alter table a drop constraint a_pkey, alter b set not null, add primary key (id, b)"],
        "its key was id and is id, b",
    ),
    "key dropped": (["alter table a drop constraint a_pkey"], "its key was id and is gone"),
    "key made anew": (
        ["alter table a drop constraint a_pkey", "alter table a add primary key (id)"],
        "dropped and created again",
    ),
}
HARMLESS = {
    "vacuum full": ["vacuum full a"],
    "cluster": ["cluster a using a_pkey"],
    "reindex": ["reindex table a", "reindex index concurrently a_pkey"],
    "statistics": ["analyze a", "alter table a alter b set statistics 200", "vacuum a"],
    "index": ["create index on a (b)", "create unique index on a (id, c)"],
    "grant": [
        "grant select on a to public",
        "comment on table a is 'x'",
        "alter table a set (fillfactor = 90)",
    ],
    "new label": ["alter type mood add value 'fine' before 'ok'"],
    "default and checks": [
        "alter table a alter b set default 3",
        "alter table a add check (b > 0)",
        "alter table a alter c set not null",
    ],
    "tablespace": ["alter table a set tablespace pg_default"],
    "full again": ["alter table a replica identity full"],
}


def expect_stop(mirror: Mirror) -> TableChanged:
    """Return the stop of a job; it must be the same at the next attempt."""
    with pytest.raises(TableChanged) as first:
        mirror.run()
    with pytest.raises(TableChanged) as second:
        mirror.run()
    assert first.value.at == second.value.at
    return first.value


def resume_with(shop: Shop, mirror: Mirror, stop: TableChanged, choice: str) -> None:
    """Resume with a choice; the pipeline is rebuilt if columns differ."""
    mirror.source = shop.source(accept=[f"{stop.path}@{stop.at}={choice}"])
    for _ in range(3):
        with suppress(ColumnsAdded):
            mirror.run()
            return
        mirror.source = shop.source(accept=[f"{stop.path}@{stop.at}={choice}"])
    raise AssertionError("the pipeline starts again and again")


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("case", VISIBLE)
def test_rows_before_a_change_are_delivered_and_the_job_stops(
    shop: Shop, case: str, restarted: bool
) -> None:
    statements, row, said = VISIBLE[case]
    shop(*SET_UP)
    mirror = Mirror(shop.source())
    mirror.run()
    shop(
        "insert into a values (2, 8, 'y', false, 'ok', null)",
        *statements,
        row,
        "insert into b values (1)",
    )
    if restarted:
        mirror.source = shop.source()
    stop = expect_stop(mirror)
    assert re.search(said, stop.statement), stop.statement
    assert stop.path == shop.path("a")
    assert [r["id"] for r in mirror.table(shop.path("a"))] == (
        [1] if case in AT_ONCE or (restarted and case in AT_ONCE_WHEN_RESTARTED) else [1, 2]
    )
    if restarted and "gone" in said:
        resume_with(shop, mirror, stop, "skip")
        shop("insert into b values (2)")
        mirror.run()
        assert [r["id"] for r in mirror.table(shop.path("b"))] == [1, 2]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("case", SILENT)
def test_silent_change_stops_the_job_at_its_checkpoint(
    shop: Shop, case: str, restarted: bool
) -> None:
    statements, said = SILENT[case]
    shop(*SET_UP)
    mirror = Mirror(shop.source())
    mirror.run()
    shop(*statements, "insert into a (id, b) values (9, 1)")
    if restarted:
        mirror.source = shop.source(
            **(
                {"table-names-config": [{"table": shop.path("a"), "primaryKeys": ["id"]}]}
                if case == "key dropped"
                else {}
            )
        )
    stop = expect_stop(mirror)
    if restarted and case == "key dropped":
        said = "its key id is no longer unique"
    assert re.search(said, stop.statement), stop.statement
    assert [r["id"] for r in mirror.table(shop.path("a"))] == [1]


@pytest.mark.parametrize("case", HARMLESS)
def test_harmless_change_does_not_stop_the_job(shop: Shop, case: str) -> None:
    shop(*SET_UP)
    mirror = Mirror(shop.source())
    mirror.run()
    for number, statement in enumerate(HARMLESS[case]):
        shop(
            f"insert into a (id, b, c) values ({10 + number}, 1, 'x')",
            statement,
            f"insert into a (id, b, c) values ({50 + number}, 2, 'y')",
        )
        mirror.run()
        mirror.source = shop.source()
        mirror.run()
    assert mirror.table(shop.path("a")) == shop.rows("a")


def test_rewrite_with_a_default_differs_from_one_that_changes_values(
    shop: Shop,
) -> None:
    shop(*SET_UP, "alter table a add column e int default 5")
    mirror = Mirror(shop.source())
    mirror.run()
    shop("vacuum full a", "insert into a (id) values (2)")
    mirror.run()
    assert mirror.table(shop.path("a")) == shop.rows("a")
    shop("alter table a add column g int default 6")
    stop = expect_stop(mirror)
    mirror.rows.clear()
    resume_with(shop, mirror, stop, "reread")
    shop("alter table a alter g type int using g * 100")
    assert "column 8 was altered" in expect_stop(mirror).statement


ONLY_REREAD = ("changed and back", "added and dropped", "drop and create", "label renamed and back")
"""The log has rows of an interim definition, or of another table."""
NO_CHOICE = (
    "dropped",
    "renamed away",
    "identity",
    "identity and back",
    "rename swap",
    "key dropped",
)
CHOICES = [
    *((case, "reread") for case in (*VISIBLE, *SILENT) if case not in NO_CHOICE),
    *((case, "adopt") for case in (*VISIBLE, *SILENT) if case not in (*NO_CHOICE, *ONLY_REREAD)),
]


@pytest.mark.parametrize(("case", "choice"), CHOICES)
def test_each_choice_resumes_from_the_stop(shop: Shop, case: str, choice: str) -> None:
    statements = VISIBLE[case][0] if case in VISIBLE else SILENT[case][0]
    shop(*SET_UP)
    mirror = Mirror(shop.source())
    mirror.run()
    shop(*statements)
    stop = expect_stop(mirror)
    mirror.rows.clear()  # like an operator who empties or changes the target
    if choice == "adopt":
        mirror.source = shop.source(accept=[f"{stop.path}@{stop.at}=adopt"])
        mirror.rows = {
            (shop.path("a"), *([r["id"], r["b"]] if case == "longer key" else [r["id"]])): r
            for r in shop.rows("a")
            if r["id"] == 1
        }
    resume_with(shop, mirror, stop, choice)
    shop("update a set b = 3", "insert into a (id, b) values (20, 4)", "delete from a where id = 1")
    mirror.source = shop.source()  # what was chosen is part of the checkpoint now
    mirror.run()
    assert mirror.table(shop.path("a")) == shop.rows("a")


def test_truncated_table_is_reread_or_skipped_by_choice(shop: Shop) -> None:
    shop(*SET_UP)
    mirror = Mirror(shop.source())
    mirror.run()
    shop("truncate a", "insert into a (id) values (5)")
    stop = expect_stop(mirror)
    position = mirror.offset
    resume_with(shop, mirror, stop, "skip")
    assert [r["id"] for r in mirror.table(shop.path("a"))] == [1, 5]
    mirror.rows = {}
    mirror.offset = position
    resume_with(shop, mirror, stop, "reread")
    assert [r["id"] for r in mirror.table(shop.path("a"))] == [5]
    shop("insert into a (id) values (6)")
    mirror.source = shop.source()
    mirror.run()
    assert mirror.table(shop.path("a")) == shop.rows("a")


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (["drop table p1"], "its partition .*p1.* was dropped or detached"),
        (["alter table p detach partition p1"], "was dropped or detached"),
        (["truncate p1"], "its partition .*p1.* was emptied"),
        (
            ["truncate p1", "insert into p values (8, 1, 'n')", "vacuum full p1", "analyze p1"],
            "its partition .*p1.* was emptied .*or rewritten",
        ),
        (
            [
                "alter table p detach partition p1",
                "alter table p attach partition p1 for values in (1)",
            ],
            "detached and attached again",
        ),
        (
            [
                "create table p3 (like p including all)",
                "insert into p3 values (9, 3, 'z')",
                "alter table p attach partition p3 for values in (3)",
            ],
            "attached with rows",
        ),
        (
            [
                "begin",
                "create table p3 (like p including all)",
                "insert into p3 values (9, 3, 'z')",
                "alter table p attach partition p3 for values in (3)",
                "commit",
            ],
            "attached with rows",
        ),
        (
            [
                "begin",
                "create table p3 (like p including all)",
                "savepoint s",
                "insert into p3 values (9, 3, 'z')",
                "release savepoint s",
                "alter table p attach partition p3 for values in (3)",
                "commit",
                "insert into p values (10, 3, 'of the log')",
            ],
            "attached with rows",
        ),
        (["truncate p"], "TRUNCATE"),
    ],
)
@pytest.mark.parametrize("restarted", [False, True])
def test_partitions_attached_or_detached_with_rows_stop_the_job(
    shop: Shop, statements: list[str], said: str, restarted: bool
) -> None:
    shop(*PARTS)
    mirror = Mirror(shop.source())
    mirror.run()
    shop(*statements)
    if any("p3" in s for s in statements):
        shop("alter table p3 replica identity full")
    if restarted:
        mirror.source = shop.source()
    stop = expect_stop(mirror)
    assert re.search(said, stop.statement), stop.statement
    mirror.rows.clear()
    resume_with(shop, mirror, stop, "reread")
    shop("insert into p values (5, 2, 'later')")
    mirror.run()
    assert mirror.table(shop.path("p")) == shop.rows("p")


def test_rows_of_a_concurrent_transaction_before_attaching_stop_the_job(
    shop: Shop,
) -> None:
    shop(*PARTS)
    mirror = Mirror(shop.source())
    mirror.run()
    shop("create table p3 (like p including all)", "alter table p3 replica identity full")
    with psycopg.connect(shop.connection.info.dsn, autocommit=True) as other:
        shop("begin", "select pg_current_xact_id()")
        other.execute("insert into p3 values (9, 3, 'z')")
        shop("alter table p attach partition p3 for values in (3)", "commit")
    shop("insert into p values (10, 3, 'of the log')")
    stop = expect_stop(mirror)
    assert "attached with rows" in stop.statement
    mirror.rows.clear()
    resume_with(shop, mirror, stop, "reread")
    assert mirror.table(shop.path("p")) == shop.rows("p")


def test_new_partitions_and_moves_between_them_are_delivered(shop: Shop) -> None:
    shop(*PARTS)
    mirror = Mirror(shop.source())
    mirror.run()
    shop(
        "create table p3 partition of p for values in (3)",
        "alter table p3 replica identity full",
        "insert into p values (3, 3, 'new')",
    )
    mirror.run()
    shop(
        "begin",
        "create table p4 partition of p for values in (4)",
        "alter table p4 replica identity full",
        "insert into p values (4, 4, 'n')",
        "commit",
    )
    shop(
        "create table p5 (like p including all)",
        "alter table p5 replica identity full",
        "alter table p attach partition p5 for values in (5)",
    )
    shop(
        "insert into p values (5, 5, 'z')",
        "update p set part = 3 where id = 1",
        "vacuum p2",
        "update p set v = 'w' where id = 2",
    )
    mirror.run()
    assert mirror.table(shop.path("p")) == shop.rows("p")
    mirror.source = shop.source()
    mirror.run()
    shop("create table p6 partition of p for values in (6)")
    with pytest.raises(NotSetUp, match=r'"public"."p6" REPLICA IDENTITY FULL'):
        mirror.run()
    shop(
        "insert into p values (6, 6, 'z')",
        "update p set v = 'keys only' where id = 6",
        "alter table p6 replica identity full",
    )
    with pytest.raises(Exception, match="came without the complete row before it"):
        mirror.run()


def test_a_schema_that_is_renamed_stops_the_job(shop: Shop) -> None:
    shop(
        "create schema s",
        "create table s.a (id int primary key)",
        "alter table s.a replica identity full",
        *SET_UP,
    )
    mirror = Mirror(shop.source(**{"table-pattern": rf"{shop.name}\.(s|public)\.a"}))
    mirror.run()
    shop("alter schema s rename to t", "insert into t.a values (1)")
    assert "the table is gone" in expect_stop(mirror).statement
