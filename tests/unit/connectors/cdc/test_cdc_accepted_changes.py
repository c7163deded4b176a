"""Decisions of an operator about a table change: how the source applies each choice."""

# ruff: noqa: ARG002  # a scripted source has no use for most of what it is given
import json
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidegate.databases.cdc.column_defaults import ColumnDefaults
from tidegate.databases.cdc.errors import ChangeChoice, ColumnsAdded, TableChanged
from tidegate.databases.cdc.progress import is_done
from tidegate.databases.cdc.selection import CdcTable
from tidegate.databases.cdc.source import CdcSource
from tidegate.databases.cdc.window import LogWindow
from tidegate.databases.errors import TableMissing
from tidegate.databases.session import Session, open_session
from tidegate.databases.url import System
from tidegate.model.document import from_document, to_document
from tidegate.model.errors import UserError
from tidegate.model.job import JobMode
from tidegate.model.records import Failure
from tidegate.model.table_changes import AcceptedChange, ChangeStop, choice_for, merge_accepted
from tidegate.pipeline.failures import failure_of
from tidegate.plugin.contract import Limit, Offset, OperatorContext

ADOPT, REREAD, SKIP = ChangeChoice
ALTERED, LOST = "log.1:200", "log.1:300"


class ScriptedSource(CdcSource):
    """Tables of SQLite, with a list of entries as the log.

    The entries are ("row", path), ("alter", path) and ("truncate", path).
    """

    system = System.SQLITE
    log: list[tuple[str, str]]

    def session(self) -> Session:
        return open_session(self.address)

    def check_server(self, session: Session) -> None:
        pass

    def position_text(self, log: Mapping[str, Any]) -> str:
        return f"log.1:{log['n']}"

    def start_position(self, session: Session) -> dict[str, Any]:
        return {"n": 0}

    def stop_position(self, session: Session) -> dict[str, Any] | None:
        return None

    def has_reached(self, log: Mapping[str, Any], stop: Mapping[str, Any]) -> bool:
        return bool(log["n"] >= stop["n"])

    def current_position(self, session: Session) -> dict[str, Any]:
        return {"n": len(self.log)}

    def columns_of(self, cdc_table: CdcTable) -> list[Any]:
        return [[c.name, c.native] for c in cdc_table.info.columns]

    def column_defaults(self, session: Session, cdc_table: CdcTable) -> ColumnDefaults:
        return {}

    def next_window(self, session: Session, start: Offset, limit: Limit) -> LogWindow:
        at = start["log"]["n"]
        for place in range(at, len(self.log)):
            kind, path = self.log[place]
            if kind == "row":
                continue
            if place > at:
                return LogWindow(
                    log={"n": place}, touched=self._touched(at, place), caught_up=False
                )
            return self._decide(session, kind, path, place)
        return LogWindow(
            log={"n": len(self.log)}, touched=self._touched(at, len(self.log)), caught_up=True
        )

    def _touched(self, first: int, last: int) -> frozenset[str]:
        return frozenset(path for _, path in self.log[first:last])

    def _decide(self, session: Session, kind: str, path: str, place: int) -> LogWindow:
        at = f"log.1:{place + 1}00"
        choices = (ADOPT, REREAD) if kind == "alter" else (REREAD, SKIP)
        choice = self.accepted(path, at)
        if choice not in choices:
            raise TableChanged(path, f"{kind} {path}", at, choices=choices)
        info = self.dialect.table_info(session, self.cdc_tables[path].info.name)
        assert info is not None
        columns = {} if choice is SKIP else {path: [[c.name, c.native] for c in info.columns]}
        reread = frozenset([path]) if choice is REREAD else frozenset()
        return LogWindow(
            log={"n": place + 1},
            touched=frozenset(),
            caught_up=False,
            columns=columns,
            reread=reread,
            definitions={path: place},
        )

    def read_log(
        self, start: Mapping[str, Any], end: Mapping[str, Any], columns: Mapping[str, list[Any]]
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        return iter(())


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "source.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table orders (id integer primary key, v text)")
        connection.execute("create table notes (id integer primary key, v text)")
        connection.executemany(
            "insert into orders values (?, ?)", [(n, f"v{n}") for n in range(20)]
        )
        connection.execute("insert into notes values (1, 'n')")
    return path


def source_of(
    database: Path,
    *log: tuple[str, str],
    accept: tuple[str, ...] = (),
    names: tuple[str, ...] = ("orders", "notes"),
) -> ScriptedSource:
    values = {
        "url": f"jdbc:sqlite:{database}",
        "username": None,
        "password": None,
        "debezium": {},
        "connect.timeout.ms": 1000,
        "database-names": [],
        "table-names": list(names),
        "table-names-config": [],
        "schema-changes.enabled": False,
        "startup.mode": "initial",
        "stop.mode": "never",
        "snapshot.split.size": 8,
        "snapshot.fetch.size": 100,
    }
    changes = tuple(map(AcceptedChange.parse, accept))
    context = OperatorContext(
        job_id=7,
        job_name="j",
        pipeline=1,
        operator="S",
        mode=JobMode.STREAMING,
        parallelism=2,
        accepted_changes=changes,
    )
    source = ScriptedSource(values, context)
    source.log = list(log)
    return source


def after(source: ScriptedSource, start: Offset) -> tuple[Offset, list[int]]:
    """Return the offset at the end, and the keys of orders that snapshots returned."""
    keys = []
    for _ in range(50):
        end = json.loads(json.dumps(source.latest(start, Limit())))
        if end == start:
            return end, keys
        for split in source.splits(start, end, 2):
            keys += [
                row["id"]
                for batch in source.read(split)
                for row in batch.to_pylist()
                if split.table == "orders"
            ]
        start = end
    raise AssertionError("it does not come to an end")


def snapshot_done(database: Path) -> Offset:
    source = source_of(database)
    offset, keys = after(source, source.initial())
    assert sorted(keys) == list(range(20))
    return offset


LOG = (("row", "orders"), ("alter", "orders"), ("truncate", "notes"), ("row", "orders"))


def test_undecided_change_stops_the_job_before_it(database: Path) -> None:
    source = source_of(database, *LOG)
    before = source.latest(snapshot_done(database), Limit())
    assert before["log"] == {"n": 1}
    for _ in range(2):  # the same after a restart
        with pytest.raises(TableChanged) as stop:
            source_of(database, *LOG).latest(before, Limit())
        assert stop.value.change == ChangeStop(
            table="orders", at=ALTERED, statement="alter orders", choices=(ADOPT, REREAD)
        )
    text = str(stop.value)
    assert f"tidegate accept-change 7 --at {ALTERED} --table orders --choice adopt" in text
    assert f"tidegate accept-change 7 --at {ALTERED} --table orders --choice reread" in text
    assert "--choice skip" not in text


def test_adopt_continues_and_records_the_new_definition(database: Path) -> None:
    start = snapshot_done(database)
    with sqlite3.connect(database) as connection:
        connection.execute("alter table orders add column w text")
    source = source_of(database, *LOG[:2], accept=(f"{ALTERED}=adopt",))
    end, keys = after(source, start)
    assert keys == []
    assert (
        end["log"],
        [c[0] for c in end["tables"]["orders"]["columns"]],
        end["tables"]["orders"]["definition"],
    ) == ({"n": 2}, ["id", "v", "w"], 1)
    assert is_done(end["tables"]["orders"]["read"])


def test_reread_reads_only_the_changed_table_again(database: Path) -> None:
    start = snapshot_done(database)
    source = source_of(database, *LOG[:2], accept=(f"orders@{ALTERED}=reread",))
    first = json.loads(json.dumps(source.latest(source.latest(start, Limit()), Limit())))
    assert (
        first["log"],
        first["tables"]["orders"]["read"],
        is_done(first["tables"]["notes"]["read"]),
    ) == ({"n": 2}, None, True)
    assert source.has_backlog(first)
    end, keys = after(
        source_of(database, *LOG[:2]), first
    )  # a restart after the checkpoint no longer needs the decision
    assert sorted(keys) == list(range(20))
    assert is_done(end["tables"]["orders"]["read"])


def test_skip_continues_without_changing_the_table(database: Path) -> None:
    start = snapshot_done(database)
    end, keys = after(source_of(database, *LOG, accept=(f"{ALTERED}=adopt", f"{LOST}=skip")), start)
    assert (keys, end["log"], is_done(end["tables"]["notes"]["read"])) == ([], {"n": 4}, True)


@pytest.mark.parametrize(
    "accepted", [f"{ALTERED}=skip", f"notes@{ALTERED}=adopt", "log.1:201=adopt"]
)
def test_decision_about_another_change_or_unavailable_choice_has_no_effect(
    database: Path, accepted: str
) -> None:
    with pytest.raises(TableChanged, match=ALTERED):
        after(source_of(database, *LOG, accept=(accepted,)), snapshot_done(database))


def test_pipeline_built_before_the_change_restarts_with_the_new_columns(
    database: Path,
) -> None:
    source = source_of(database, *LOG[:2], accept=(f"{ALTERED}=adopt",))
    start = source.latest(snapshot_done(database), Limit())
    assert [c.name for c in source.tables()[0].columns] == ["id", "v"]
    with sqlite3.connect(database) as connection:
        connection.execute("alter table orders drop column v")
    with pytest.raises(ColumnsAdded, match="orders has other columns"):
        source.latest(start, Limit())


@pytest.mark.parametrize(
    "statement", ["alter table orders drop column v", "alter table orders rename column v to w"]
)
def test_older_rows_that_do_not_fit_the_pipeline_stop_it(database: Path, statement: str) -> None:
    start = snapshot_done(database)
    with sqlite3.connect(database) as connection:
        connection.execute(statement)
    assert source_of(database, ("row", "notes"), *LOG[1:2]).latest(start, Limit())["log"] == {
        "n": 1
    }  # none of this table: the change itself stops it
    with pytest.raises(
        TableChanged, match="the log has rows with v TEXT, from before a later change"
    ) as stop:
        source_of(database, *LOG[:2]).latest(start, Limit())
    assert stop.value.change == ChangeStop(
        table="orders", at="log.1:0", statement=stop.value.statement, choices=(ADOPT, REREAD)
    )
    adopted = source_of(database, *LOG[:2], accept=("orders@log.1:0=adopt",)).latest(start, Limit())
    assert (adopted["log"], adopted["touched"], is_done(adopted["tables"]["orders"]["read"])) == (
        {"n": 1},
        ["orders"],
        True,
    )
    reread = source_of(database, *LOG[:2], accept=("orders@log.1:0=reread",)).latest(start, Limit())
    assert (reread["log"], reread["touched"], reread["tables"]["orders"]["read"]) == (
        {"n": 1},
        [],
        None,
    )


def test_change_of_an_unread_table_needs_no_decision(database: Path) -> None:
    start = source_of(database).initial()
    end, keys = after(source_of(database, *LOG[1:2]), start)
    assert (sorted(keys), end["log"]) == (list(range(20)), {"n": 1})


def test_rows_from_before_an_added_column_are_delivered(database: Path) -> None:
    start = snapshot_done(database)
    with sqlite3.connect(database) as connection:
        connection.execute("alter table orders add column w text")
    assert source_of(database, *LOG[:1]).latest(start, Limit())["touched"] == ["orders"]


def test_dropped_table_stops_the_job_until_it_is_skipped_once(
    database: Path,
) -> None:
    start = snapshot_done(database)
    with sqlite3.connect(database) as connection:
        connection.execute("drop table notes")
    with pytest.raises(TableChanged, match=r"--at log\.1:0 --table notes --choice skip"):
        source_of(database).latest(start, Limit())
    end, keys = after(source_of(database, accept=("notes@log.1:0=skip",)), start)
    assert (keys, list(end["tables"]), end["gone"]) == ([], ["orders"], ["notes"])
    assert after(source_of(database, ("row", "orders")), end)[0]["gone"] == ["notes"]
    with sqlite3.connect(database) as connection:
        connection.execute("create table notes (id integer primary key, v text)")
    again, _ = after(source_of(database), end)
    assert (is_done(again["tables"]["notes"]["read"]), again["gone"]) == (True, [])


def test_table_removed_from_the_job_file_is_left_out(database: Path) -> None:
    end, _ = after(source_of(database, names=("orders",)), snapshot_done(database))
    assert "gone" not in end


def test_table_that_never_existed_is_an_error(database: Path) -> None:
    other = source_of(database, names=("orders", "none"))
    with pytest.raises(TableMissing, match="none"):
        other.initial()
    with pytest.raises(TableMissing, match="none"):
        other.latest(snapshot_done(database), Limit())


def test_decision_with_a_table_takes_precedence() -> None:
    changes = tuple(map(AcceptedChange.parse, ["p:1=adopt", "a.b@p:1=reread"]))
    assert (
        choice_for(changes, "a.b", "p:1"),
        choice_for(changes, "a.c", "p:1"),
        choice_for(changes, "a.b", "p:2"),
    ) == (REREAD, ADOPT, None)


def test_newer_decision_about_a_change_wins() -> None:
    earlier = tuple(map(AcceptedChange.parse, ["p:1=adopt", "p:2=skip"]))
    assert [str(c) for c in merge_accepted(earlier, (AcceptedChange.parse("p:1=reread"),))] == [
        "p:2=skip",
        "p:1=reread",
    ]


@pytest.mark.parametrize(
    "text", ["mysql-bin.000004:1234=adopt", "shop.public.o=x@0/1A2B=reread", "a@b@0/1=skip"]
)
def test_decision_is_parsed_as_written(text: str) -> None:
    assert str(AcceptedChange.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["", "adopt", "=adopt", "a@=adopt", "0/1", "0/1=", "0/1=drop", "x" * 300 + "=adopt"]
)
def test_invalid_decision_is_rejected(text: str) -> None:
    with pytest.raises(UserError, match="--accept-change"):
        AcceptedChange.parse(text)


def test_failure_record_keeps_the_choices() -> None:
    error = TableChanged(
        "shop.orders", "ALTER TABLE orders ...", "f:4", choices=(ADOPT, SKIP)
    ).for_job(7)
    failure = failure_of(error, 1, 2, 3)
    assert (failure.condition, failure.change) == ("table-changed", error.change)
    assert from_document(Failure, json.loads(json.dumps(to_document(failure)))) == failure
    assert failure_of(ValueError("x"), 1, 2, 3).change is None
