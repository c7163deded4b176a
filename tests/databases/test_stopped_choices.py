"""Every kind of change with each of its choices: the job resumes with the promised target."""

from pathlib import Path

import pytest
from accept_kit import copy_job_of

from tidegate.model.table_changes import ChangeChoice
from tidegate.testing.servers.postgres import PostgresServer

ADOPT, REREAD, SKIP = ChangeChoice
BOTH = {
    "a column is dropped": ("alter table orders drop column w", (ADOPT, REREAD)),
    "a column is added": ("alter table orders add column x int default 3", (ADOPT, REREAD)),
    "a column is renamed": ("alter table orders rename column w to x", (ADOPT, REREAD)),
    "the table is emptied": ("truncate table orders", (REREAD, SKIP)),
    "the table is made anew": (
        "drop table orders; create table orders (id int primary key, v varchar(20), w varchar(20))",
        (REREAD,),
    ),
}
MARIA = {
    "another type": ("alter table orders modify w varchar(19)", (ADOPT, REREAD)),
    "a prefix before the statement": (
        "set statement max_statement_time = 100 for truncate table orders",
        (REREAD, SKIP),
    ),
    "another key": (
        "alter table orders drop primary key, add primary key (id, v)",
        (ADOPT, REREAD),
    ),
}
POSTGRES = {
    "another type": ("alter table orders alter column w type varchar(19)", (ADOPT, REREAD)),
    "all rows are written anew": (
        "alter table orders alter column v type varchar(20) using lower(v)",
        (ADOPT, REREAD),
    ),
    "dropped and added again": (
        "alter table orders drop column w; alter table orders add column w varchar(20)",
        (ADOPT, REREAD),
    ),
}
ADDED = {
    "alter table orders add column x int default 3": "x int",
    "alter table orders rename column w to x": "x varchar(20)",
}
CASES = [
    pytest.param(engine, statement, choice, id=f"{engine}: {kind}: {choice.value}")
    for engine, kinds in (("maria", BOTH | MARIA), ("pg", BOTH | POSTGRES))
    for kind, (statement, choices) in kinds.items()
    for choice in choices
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("engine", "statement", "choice"), CASES)
def test_job_resumes_with_the_choice(
    request: pytest.FixtureRequest,
    postgres: PostgresServer,
    tmp_path: Path,
    engine: str,
    statement: str,
    choice: ChangeChoice,
) -> None:
    flow = copy_job_of(request.getfixturevalue(engine), postgres, tmp_path)
    flow.change(*statement.split("; "))
    if engine == "pg" and "create table" in statement:
        flow.change("alter table orders replica identity full")
    flow.change("insert into orders (id, v) values (5, 'e')", "insert into notes values (2, 'm')")
    stop = flow.expect_stop()
    assert (stop.table, choice in stop.choices) == (flow.tables[0], True), stop
    now = flow.source.execute("select id, v from orders order by id")
    if column := ADDED.get(statement):  # the sink may not change its table here: operators do
        flow.target.execute(f"alter table orders add column {column}")
    flow.accept(stop, choice, rows=5 + len(now) if choice is REREAD else 6)
    found = [row[:2] for row in flow.copied()]
    assert (5, "e") in found
    assert len(flow.copied("notes")) == 2
    if choice is REREAD:
        assert set(now) <= set(found)
    else:
        assert found[:3] == [(1, "a"), (2, "b"), (3, "c")]
