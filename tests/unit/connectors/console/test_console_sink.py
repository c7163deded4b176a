"""Console: row format, only committed rows, and row numbers that continue."""

import io
import pickle
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidegate.connectors.console import sink as sink_module
from tidegate.connectors.console.options import OPTIONS
from tidegate.connectors.console.sink import Console, ConsoleCommitter
from tidegate.connectors.console.text import text
from tidegate.model.job import JobMode
from tidegate.model.problem import Location
from tidegate.model.types import ROW_KIND, Column, Table, parse_type
from tidegate.plugin.arrow import table_schema
from tidegate.plugin.contract import Commit, Message, OperatorContext, SinkRestore, WriteTask
from tidegate.plugin.option import Block


def console(**options: Any) -> Console:
    values, problems = OPTIONS.read(Block(options, lambda _: Location(""), "sink[0]"))
    assert problems == []
    return Console(
        values,
        OperatorContext(
            job_id=1,
            job_name="j",
            pipeline=1,
            operator="Sink[0]-Console",
            mode=JobMode.BATCH,
            parallelism=1,
        ),
    )


def table_of(columns: dict[str, Any], *, kinds: bool = False) -> Table:
    return Table(
        path="db.t",
        columns=tuple(Column(name=n, type=parse_type(k)) for n, k in columns.items()),
        kinds=kinds,
    )


def written(sink: Console, table: Table, rows: list[dict[str, Any]], subtask: int = 0) -> Message:
    writer = pickle.loads(pickle.dumps(sink)).writer(
        WriteTask(lineage="l", checkpoint=1, generation=1, subtask=subtask, token="a")
    )
    writer.write(table, pa.RecordBatch.from_pylist(rows, schema=table_schema(table)))
    message: Message = writer.close()
    return message


def committed(committer: ConsoleCommitter, checkpoint: int, *messages: Message) -> None:
    committer.commit(
        Commit(
            lineage="l",
            pipeline=1,
            checkpoint=checkpoint,
            generation=1,
            offsets={},
            messages=messages,
        )
    )


def opened(state: Any = None) -> tuple[ConsoleCommitter, io.StringIO]:
    out = io.StringIO()
    committer = ConsoleCommitter(out)
    committer.open(SinkRestore(lineage="l", generation=1, checkpoint=0, state=state))
    return committer, out


ROWS = table_of({"id": "bigint", "name": "string"})


def test_committed_row_is_printed_as_by_seatunnel() -> None:
    committer, out = opened()
    message = written(console(), ROWS, [{"id": 1, "name": "a"}, {"id": 2, "name": None}])
    assert message["rows"] == 2
    assert out.getvalue() == ""
    committed(committer, 1, message)
    assert out.getvalue().splitlines() == [
        "output rowType: id<BIGINT>, name<STRING>",
        "subtaskIndex=0  rowIndex=1:  SeaTunnelRow#tableId=db.t SeaTunnelRow#kind=INSERT : 1, a",
        "subtaskIndex=0  rowIndex=2:  SeaTunnelRow#tableId=db.t SeaTunnelRow#kind=INSERT : 2, ",
    ]


def test_row_kinds_are_printed_and_their_column_is_not() -> None:
    committer, out = opened()
    committed(
        committer,
        1,
        written(
            console(),
            table_of({"id": "int"}, kinds=True),
            [{"id": n, ROW_KIND: n} for n in range(4)],
        ),
    )
    assert [line.partition("kind=")[2] for line in out.getvalue().splitlines()[1:]] == [
        "INSERT : 0",
        "UPDATE_BEFORE : 1",
        "UPDATE_AFTER : 2",
        "DELETE : 3",
    ]


def test_subtasks_are_printed_in_order_with_their_own_row_numbers() -> None:
    sink = console()
    committer, out = opened()
    row = [{"id": 1, "name": "a"}]
    committed(committer, 1, written(sink, ROWS, row, 1), written(sink, ROWS, row, 0))
    committed(committer, 2, written(sink, ROWS, row, 0))
    assert [line.split(":")[0] for line in out.getvalue().splitlines()[1:]] == [
        "subtaskIndex=0  rowIndex=1",
        "subtaskIndex=1  rowIndex=1",
        "subtaskIndex=0  rowIndex=2",
    ]


def test_row_numbers_continue_after_a_restart() -> None:
    sink = console()
    committer, _ = opened()
    committed(committer, 1, written(sink, ROWS, [{"id": 1, "name": "a"}] * 3))
    again, out = opened(committer.state())
    committed(again, 2, written(sink, ROWS, [{"id": 1, "name": "a"}]))
    assert "rowIndex=4:" in out.getvalue()


def test_nothing_is_printed_if_printing_is_disabled() -> None:
    committer, out = opened()
    message = written(console(**{"log.print.data": False}), ROWS, [{"id": 1, "name": "a"}])
    committed(committer, 1, message)
    assert message["rows"] == 1
    assert "rowIndex" not in out.getvalue()


def test_line_ends_inside_a_value_do_not_make_two_rows() -> None:
    committer, out = opened()
    committed(committer, 1, written(console(), ROWS, [{"id": 1, "name": "a\nb\x1ec"}]))
    assert out.getvalue().count("rowIndex=") == 1
    assert "a\nb c" in out.getvalue()


def test_delay_applies_to_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(sink_module.time, "sleep", slept.append)
    written(console(**{"log.print.delay.ms": 20}), ROWS, [{"id": 1, "name": "a"}] * 5)
    assert slept == [pytest.approx(0.1)]


def test_rows_beyond_the_limit_of_a_task_are_counted_and_not_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sink_module, "_PACKED_BYTES_MAX", 0)
    committer, out = opened()
    committed(committer, 1, written(console(), ROWS, [{"id": 1, "name": "a"}] * 5))
    assert "5 more rows" in out.getvalue()
    assert committer.state() == {"printed": {"0": 5}}


def test_long_texts_are_unpacked_completely() -> None:
    committer, out = opened()
    rows = [{"id": n, "name": "é" * 1_000} for n in range(2_000)]
    committed(committer, 1, written(console(), ROWS, rows))
    assert out.getvalue().count("é") == 2_000_000


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ("boolean", True, "true"),
        ("double", 1.0, "1.0"),
        ("double", 12345678.9, "1.23456789E7"),
        ("double", 0.0001, "1.0E-4"),
        ("double", 1e300, "1.0E300"),
        ("double", -0.0, "-0.0"),
        ("double", 100.25, "100.25"),
        ("float", 3.1, "3.1"),
        ("decimal(10, 2)", Decimal("5.00"), "5.00"),
        ("bytes", b"a\xff", "[97, -1]"),
        ("date", date(2024, 1, 2), "2024-01-02"),
        ("time", time(12, 30), "12:30"),
        ("time", time(12, 30, 5), "12:30:05"),
        ("timestamp", datetime(2024, 1, 2, 3, 4), "2024-01-02T03:04"),
        ("timestamp", datetime(2024, 1, 2, 3, 4, 5, 120000), "2024-01-02T03:04:05.120"),
        ("timestamp", datetime(2024, 1, 2, 3, 4, 5, 123456), "2024-01-02T03:04:05.123456"),
        ("array<int>", [1, None], "[1, null]"),
        ("map<int, string>", [(1, "x"), (2, None)], '{"1":"x","2":null}'),
        ("map<string, array<double>>", [("k", [1.5])], '{"k":[1.5]}'),
        (
            "map<string, map<string, date>>",
            [("k", [("d", date(2024, 1, 2))])],
            '{"k":{"d":"2024-01-02"}}',
        ),
        ("row<a int, b row<c string>>", {"a": None, "b": {"c": "x"}}, "[null, [x]]"),
        ("float_vector", [0.5], "[0.5]"),
    ],
)
def test_values_are_formatted_as_by_seatunnel(kind: str, value: Any, shown: str) -> None:
    assert text(parse_type(kind), value) == shown
