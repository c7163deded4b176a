"""Every choice that a stop of MySQL-CDC offers works from the same checkpoint."""

from typing import Any

import pytest
from binlog_kit import BinlogShop
from change_kit import RestartableJob, source_rows
from database_kit import Driven, Place, sink

from tidegate.databases.cdc.errors import ColumnsAdded, TableChanged
from tidegate.model.table_changes import ChangeChoice
from tidegate.plugin.contract import Limit

TABLE = "create table a (id int primary key, v varchar(20), n int)"
CHANGES = {
    "truncate": ["truncate table a"],
    "drop and create": [
        "drop table a",
        "create table a (id int primary key, v varchar(20), n int)",
    ],
    "rename away and back": ["rename table a to b", "rename table b to a"],
    "modify": ["alter table a modify n bigint"],
    "modify to text": ["alter table a modify n varchar(10)"],
    "rename column": ["alter table a change n m int"],
    "drop column": ["alter table a drop column n"],
    "add column": ["alter table a add column z int default 5"],
    "key": ["alter table a drop primary key, add primary key (id, v)"],
    "character set": ["alter table a convert to character set latin1"],
    "engine": ["alter table a engine = myisam"],
    "statement": [
        "set session binlog_format = STATEMENT",
        "update a set n = n + 1",
        "set session binlog_format = ROW",
    ],
}

OFFERED = {
    "truncate": (ChangeChoice.REREAD, ChangeChoice.SKIP),
    "statement": (ChangeChoice.REREAD, ChangeChoice.SKIP),
    "drop and create": (ChangeChoice.REREAD, ChangeChoice.SKIP),
    "rename away and back": (ChangeChoice.REREAD,),
}
"""By default adopt and reread; rows that were emptied or replaced have no definition to adopt."""


@pytest.mark.parametrize("choice", list(ChangeChoice))
@pytest.mark.parametrize("kind", CHANGES)
def test_offered_choice_works(binlog_shop: BinlogShop, kind: str, choice: ChangeChoice) -> None:
    binlog_shop(TABLE, "insert into a values (1, 'x', 1), (2, 'y', 2)")
    job = RestartableJob(binlog_shop)
    binlog_shop("insert into a values (3, 'z', 3)")
    job.run()
    binlog_shop(*CHANGES[kind])
    later = [f"insert into a (id, v) values ({n}, 'later')" for n in (8, 9)]
    binlog_shop(*later, "delete from a where id = 8")
    chosen = False
    for _ in range(4):  # each statement is a stop of its own
        try:
            job.run()
            break
        except TableChanged as stop:
            taken = (
                choice if choice in stop.choices else ChangeChoice.ADOPT
            )  # a table that is recreated after a skipped DROP is adopted
            if taken not in stop.choices or (taken is not choice and not chosen):
                break
            chosen = True
            if taken is ChangeChoice.REREAD:
                job.mirror.rows.clear()  # a sink replaces what it has
            job.accept(stop, taken)
    assert chosen == (choice in OFFERED.get(kind, (ChangeChoice.ADOPT, ChangeChoice.REREAD)))
    if not chosen:
        return
    path = f"{binlog_shop.name}.a"
    found = {row["id"]: row for row in job.mirror.table(path)}
    if choice is ChangeChoice.REREAD:
        assert job.rows("a") == source_rows(binlog_shop, "a")
    else:
        assert sorted(found) == [1, 2, 3, 9]  # existing rows stay, later ones are added
        assert found[9]["v"] == "later"


def test_dropped_table_can_be_skipped(binlog_shop: BinlogShop) -> None:
    binlog_shop(TABLE, "create table kept (id int primary key)", "insert into a values (1, 'x', 1)")
    job = RestartableJob(binlog_shop)
    binlog_shop("insert into kept values (1)", "drop table a", "insert into kept values (2)")
    stop = job.expect_stop()
    assert (stop.path, stop.choices) == (f"{binlog_shop.name}.a", (ChangeChoice.SKIP,))
    job.accept(stop, ChangeChoice.SKIP)
    job.run()
    assert job.rows("kept") == [(1,), (2,)]


ADDED = {
    "decimal(10,2) not null default 0": "0",
    "decimal(9,3) default 1.5": "1.5",
    "datetime default '2024-01-01'": "2024-01-01 00:00:00",
    "datetime(3) default '2024-01-01 10:00:00.5'": "2024-01-01 10:00:00.500000",
    "time default '10:00'": "10:00:00",
    "varbinary(5) default 'ab'": "b'ab'",
    "bit(8) default b'101'": "b'\\x05'",
    "varchar(9) default 'a\\\\b'": "a\\b",
    "varchar(9) default 'it''s, so'": "it's, so",
    "int not null": "0",
    "int default -5": "-5",
    "tinyint(1) default true": "True",
    "date default '2024-02-29'": "2024-02-29",
    "enum('p','q') not null default 'q'": "q",
}


@pytest.mark.parametrize("definition", ADDED)
def test_a_column_is_added_with_the_default_of_its_statement(
    binlog_shop: BinlogShop, pg: Place, definition: str
) -> None:
    binlog_shop("create table a (id int primary key)", "insert into a values (1)")
    job = RestartableJob(binlog_shop, **{"schema-changes.enabled": True})
    driven = Driven(sink(pg, table="${table_name}"))
    path = f"{binlog_shop.name}.a"
    driven.batch(1, (next(t for t in job.mirror.source.tables() if t.path == path), [("+I", 1)]))
    binlog_shop(f"alter table a add c {definition}", "insert ignore into a (id) values (2)")
    job.run()
    (table,) = job.mirror.source.tables()
    Driven(sink(pg, table="${table_name}"), 2, checkpoint=1).batch(2, (table, [("+I", 3, None)]))
    (found,) = pg.execute("select c from a where id = 1")
    text = str(found[0])
    assert text == ADDED[definition] or float_of(text) == float_of(ADDED[definition])


def float_of(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


@pytest.mark.parametrize(
    ("definition", "later"),
    [
        ("int default 10", "1"),
        ("varchar(9) default 'abc'", "'b'"),
        ("datetime default '2024-01-01'", "'2025-01-01'"),
    ],
)
@pytest.mark.parametrize("stopped", [False, True])
def test_default_changed_later_stops_the_job(
    binlog_shop: BinlogShop, definition: str, later: str, stopped: bool
) -> None:
    binlog_shop("create table a (id int primary key)", "insert into a values (1)")
    job = RestartableJob(binlog_shop, **{"schema-changes.enabled": True})
    binlog_shop(
        "insert into a values (2)",
        f"alter table a add c {definition}",
        f"alter table a alter c set default {later}",
        "insert into a (id) values (3)",
    )
    if stopped:
        job.restart()
    stop = job.expect_stop("its default was changed later")
    assert "c" not in job.mirror.rows[f"{binlog_shop.name}.a", 1]  # type: ignore[index]  # keys are numbers too
    job.accept(stop, ChangeChoice.REREAD)
    job.mirror.rows.clear()
    job.run()
    assert [row[0] for row in job.rows("a")] == [1, 2, 3]


def test_an_expression_as_default_stops_the_job(binlog_shop: BinlogShop) -> None:
    binlog_shop("create table a (id int primary key)", "insert into a values (1)")
    job = RestartableJob(binlog_shop, **{"schema-changes.enabled": True})
    binlog_shop("alter table a add c varchar(40) default (concat('a', 'b'))")
    with pytest.raises((TableChanged, ColumnsAdded), match="in existing rows is unknown"):
        job.mirror.source.latest(job.mirror.offset, Limit())
