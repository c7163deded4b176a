"""Whole jobs that a table change stops, and that resume with each choice."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from accept_kit import CopyJob, copy_job_of

from tidegate.model.records import JobStatus
from tidegate.model.table_changes import ChangeChoice
from tidegate.testing.crash_runs import KILLED, CrashRuns, RunRequest
from tidegate.testing.servers.postgres import PostgresServer

ADOPT, REREAD, SKIP = ChangeChoice


@pytest.fixture(params=["maria", "pg"])
def flow(request: pytest.FixtureRequest, postgres: PostgresServer, tmp_path: Path) -> CopyJob:
    return copy_job_of(request.getfixturevalue(request.param), postgres, tmp_path)


def test_adopt_takes_new_columns_and_keeps_existing_rows(flow: CopyJob) -> None:
    flow.change(
        "alter table orders drop column w",
        "insert into orders values (5, 'e')",
        "insert into notes values (2, 'm')",
    )
    stop = flow.expect_stop()
    assert (stop.table, stop.choices) == (flow.tables[0], (ADOPT, REREAD))
    assert [row[0] for row in flow.copied()] == [1, 2, 3]
    flow.accept(stop, ADOPT, rows=6)
    assert flow.copied() == [(1, "a", "x"), (2, "b", "y"), (3, "c", "z"), (5, "e", None)]
    assert flow.copied("notes") == [(1, "n"), (2, "m")]


def test_reread_delivers_all_rows_in_their_current_state(flow: CopyJob) -> None:
    flow.change("alter table orders drop column w", "insert into orders values (5, 'e')")
    stop = flow.expect_stop()
    flow.change("update orders set v = 'seen' where id = 2")
    flow.accept(stop, REREAD, rows=8)
    assert [(row[0], row[1]) for row in flow.copied()] == [
        (1, "a"),
        (2, "seen"),
        (3, "c"),
        (5, "e"),
    ]
    flow.change("update orders set v = 'after' where id = 1")
    flow.run(rows=10)
    assert flow.copied()[0][:2] == (1, "after")


def test_undelivered_rows_from_before_the_change_keep_their_values(
    flow: CopyJob,
) -> None:
    flow.change(
        "insert into orders values (4, 'd', 'u')",
        "alter table orders drop column w",
        "insert into orders values (5, 'e')",
    )
    stop = flow.expect_stop()
    assert [row[0] for row in flow.copied()] == [1, 2, 3]
    flow.accept(stop, REREAD, rows=9)
    assert [(row[0], row[1]) for row in flow.copied()] == [
        (1, "a"),
        (2, "b"),
        (3, "c"),
        (4, "d"),
        (5, "e"),
    ]


def test_skip_leaves_the_target_as_it_was(flow: CopyJob) -> None:
    flow.change("truncate table orders", "insert into orders values (5, 'e', 'f')")
    stop = flow.expect_stop()
    assert SKIP in stop.choices
    flow.accept(stop, SKIP, rows=5)
    assert [row[0] for row in flow.copied()] == [1, 2, 3, 5]


def test_dropped_table_is_skipped_and_others_continue(flow: CopyJob) -> None:
    flow.change("drop table orders", "insert into notes values (2, 'm')")
    stop = flow.expect_stop()
    assert stop.choices == (SKIP,)
    flow.accept(stop, SKIP, rows=5)
    assert (len(flow.copied()), flow.copied("notes")) == (3, [(1, "n"), (2, "m")])
    flow.change("insert into notes values (3, 'o')")
    assert flow.run(rows=6).status is JobStatus.CANCELED  # a later run needs no decision
    assert len(flow.copied("notes")) == 3


BEFORE = (
    "ledger.begin.before",
    "ledger.begin.after",
    "ledger.complete.after",
)  # the change is applied, and the table counts as unread
READING = (
    "capture.chunk.before",
    "capture.chunk.middle",
    "capture.chunk.after",
    "batch.commit.after",
    "ledger.complete.after",
)


@pytest.mark.timeout(300)
def test_killed_reread_resumes(runs: CrashRuns, flow: CopyJob) -> None:
    flow.change("alter table orders drop column w", "insert into orders values (4, 'd'), (5, 'e')")
    stop = flow.expect_stop()
    accept = (f"{stop.at}=reread",)
    for place in (*BEFORE, *READING):
        request = RunRequest(
            home=str(flow.home.root),
            file=str(flow.file),
            restore="latest",
            accept_changes=accept,
            failpoints=f"{place}@1",
        )
        assert runs.run(request).code == KILLED, place
        flow.change("update orders set v = concat(v, '+') where id = 5")
        accept = ()  # it is kept with the job
    flow.run(rows=9 + 2 * len(READING), restore="latest")
    assert [(row[0], row[1]) for row in flow.copied()] == [
        (1, "a"),
        (2, "b"),
        (3, "c"),
        (4, "d"),
        (5, "e" + "+" * len(BEFORE + READING)),
    ]


@pytest.fixture(scope="module")
def runs() -> Iterator[CrashRuns]:
    with CrashRuns() as started:
        yield started
