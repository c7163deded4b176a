"""What all CDC sources share: row kinds where keys change or are not read yet, rows taken back, chunks, options."""

from typing import Any

import pyarrow as pa
import pytest

from tidegate.databases.capture import spool
from tidegate.databases.capture.changes import TakenBack, settle
from tidegate.databases.capture.progress import Chunk, budget, chunks_between, is_done, split_column
from tidegate.databases.patience import patiently
from tidegate.model.errors import TransientError, UserError
from tidegate.model.job import BlockKind
from tidegate.model.problem import Location
from tidegate.model.types import ROW_KIND, Column, Table, parse_type
from tidegate.plugin.option import Block
from tidegate.plugin.registry import find
from tidegate.plugin.secret import packed, unpacked

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), (ROW_KIND, pa.int8())])


def batch(*rows: tuple[int, str, int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(list(column), field.type) for column, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)], schema=SCHEMA
    )


def rows(found: pa.RecordBatch) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in found.to_pylist()]


def test_a_changed_key_is_a_delete_and_an_insert() -> None:
    changes = batch((1, "a", 1), (1, "b", 2), (2, "a", 1), (3, "a", 2), (4, "x", 0), (5, "y", 3))
    assert rows(settle(changes, ["id"])) == [(1, "a", 1), (1, "b", 2), (2, "a", 3), (3, "a", 0), (4, "x", 0), (5, "y", 3)]


def test_rows_that_are_not_read_yet_are_not_there() -> None:
    changes = batch(
        (1, "a", 1), (1, "b", 2), (2, "a", 1), (30, "a", 2), (40, "a", 1), (4, "a", 2), (50, "x", 0), (5, "x", 0), (60, "y", 3), (70, "q", 1), (71, "r", 2)
    )
    assert rows(settle(changes, ["id"], "id", 10)) == [(1, "a", 1), (1, "b", 2), (2, "a", 3), (4, "a", 0), (5, "x", 0)]


def test_rows_are_taken_back_to_what_they_were_before_their_first_change() -> None:
    back = TakenBack(["id"], "id", Chunk(0, 10))
    back.add(settle(batch((1, "old", 1), (1, "new", 2), (2, "gone", 3), (3, "fresh", 0), (20, "outside", 3)), ["id"]))
    back.add(settle(batch((1, "new", 3), (4, "was four", 1), (5, "was four", 2)), ["id"]))
    now = [batch((3, "fresh", 0), (5, "was four", 0)), batch((6, "same", 0))]
    found = [row for one in back.apply(now, SCHEMA) for row in rows(one)]
    assert sorted(found) == [(1, "old", 0), (2, "gone", 0), (4, "was four", 0), (6, "same", 0)]


def test_chunks_are_the_ranges_between_two_offsets() -> None:
    first = {"upto": 20, "cuts": [10, 20]}
    last = {"upto": None, "cuts": [30, None]}
    assert chunks_between(None, first) == [Chunk(None, 10), Chunk(10, 20)]
    assert chunks_between(first, last) == [Chunk(20, 30), Chunk(30, None)]
    assert chunks_between(last, last) == chunks_between(None, None) == []
    assert is_done(last)
    assert not is_done(first)
    assert Chunk(10, 20).holds(20)
    assert not Chunk(10, 20).holds(10)
    assert budget(1, 8096, 2) == 2


@pytest.mark.parametrize(("kind", "column"), [("bigint", "id"), ("decimal(20,0)", "id"), ("string", None), ("decimal(20,2)", None), ("timestamp", None)])
def test_only_whole_numbers_are_cut_into_chunks(kind: str, column: str | None) -> None:
    table = Table(path="t", columns=(Column(name="id", type=parse_type(kind)),), primary_key=("id",))
    assert split_column(table) == column


def test_a_spool_gives_back_what_it_got_also_from_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "MEMORY_BYTES_MAX", 200)
    with spool.Spool(SCHEMA) as waiting:
        for n in range(20):
            waiting.add(batch((n, "x" * 10, 0)))
        assert [row[0] for one in waiting for row in rows(one)] == list(range(20))


def test_a_lost_server_is_asked_again_and_a_mistake_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.databases.patience.FIRST_PAUSE_S", 0.0)
    asked: list[int] = []

    def failing(error: Exception, times: int) -> Any:
        def act() -> str:
            asked.append(1)
            if len(asked) <= times:
                raise error
            return "there"

        asked.clear()
        return act

    assert patiently(failing(TransientError("away"), 3), 3) == "there"
    with pytest.raises(TransientError):
        patiently(failing(TransientError("away"), 4), 3)
    with pytest.raises(UserError):
        patiently(failing(UserError("wrong"), 1), 3)
    assert len(asked) == 1


def problems(name: str, **more: Any) -> list[str]:
    connector = find(BlockKind.SOURCE, name)
    given = {"username": "u", "password": "p", "table-names": ["a.b"], **more}
    block = Block({k: v for k, v in given.items() if v is not None}, lambda _: Location(""), "source[0]")
    values, found = connector.options.read(block)
    return [p.message for p in (*found, *connector.check(block, values))]


def test_all_problems_of_the_options_are_told_at_once() -> None:
    assert problems("MySQL-CDC", url="jdbc:mysql://h/d") == []
    assert problems("Postgres-CDC", url="jdbc:postgresql://h/d") == []
    many = problems(
        "MySQL-CDC",
        url="jdbc:postgresql://h/d",
        **{"table-names": None, "table-pattern": "(", "startup.mode": "specific", "format": "COMPATIBLE_DEBEZIUM_JSON"},
    )
    assert len(many) == 5
    assert "no name of a slot" in problems("Postgres-CDC", url="jdbc:postgresql://h/d", **{"slot.name": "No-Good"})[0]
    assert "no log file" in " ".join(problems("MySQL-CDC", url="jdbc:mysql://h/d", **{"stop.specific-offset.file": "x"}))


def test_secrets_of_a_plan_are_not_readable_and_come_back() -> None:
    options = find(BlockKind.SOURCE, "MySQL-CDC").options
    values = {"password": 'p"ss word', "username": "u"}
    hidden = packed(values, options)
    assert "ss word" not in str(hidden)
    assert hidden["username"] == "u"
    assert unpacked(hidden) == values
