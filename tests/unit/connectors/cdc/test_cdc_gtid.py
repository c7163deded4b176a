"""Global transaction ids of MariaDB and MySQL: sets, and lists at the head of log files."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.databases.mysql.binlog_errors import LogDamaged
from tidegate.databases.mysql.binlog_events import EventType, LogEvent
from tidegate.databases.mysql.binlog_gtid import GtidSet, gtid_of, listed_transactions

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"


def event(kind: EventType, body: bytes, server: int = 3) -> LogEvent:
    return LogEvent(kind, 1, server, 1000, body)


def test_transaction_id_is_parsed() -> None:
    assert gtid_of(event(EventType.GTID_MARIADB, struct.pack("<QIB", 77, 5, 0))) == "5-3-77"
    assert (
        gtid_of(
            event(
                EventType.GTID_MYSQL,
                b"\0" + bytes.fromhex(A.replace("-", "")) + struct.pack("<Q", 9),
            )
        )
        == f"{A}:9"
    )
    assert gtid_of(event(EventType.GTID_MARIADB, b"short")) is None
    assert gtid_of(event(EventType.XID, bytes(40))) is None


@pytest.mark.parametrize(
    ("text", "more", "then"),
    [
        ("", "0-1-5", "0-1-5"),
        ("0-1-5,7-2-1", "0-3-6", "0-3-6,7-2-1"),
        ("", f"{A}:1", f"{A}:1"),
        (f"{A}:1-5", f"{A}:6", f"{A}:1-6"),
        (f"{A}:1-5:9-10, {B}:3", f"{A}:7-8", f"{A}:1-5:7-10,{B}:3"),
        (f"{A.upper()}:1-5:7", f"{A}:6", f"{A}:1-7"),
        (f"{A}:5", f"{A}:1-3", f"{A}:1-3:5"),
    ],
)
def test_a_set_grows(text: str, more: str, then: str) -> None:
    found = GtidSet(text)
    found.add(more)
    assert str(found) == then
    assert found.covers(GtidSet(text))
    assert found.covers(GtidSet(more))
    assert not found.covers(GtidSet("0-1-99"))
    assert not found.covers(GtidSet(f"{B}:50"))


def test_set_contains_its_transactions() -> None:
    maria, mysql = GtidSet("0-1-5,7-2-1"), GtidSet(f"{A}:1-5:7")
    assert [g in maria for g in ("0-9-5", "0-1-6", "3-1-1", f"{A}:1")] == [
        True,
        False,
        False,
        False,
    ]
    assert [g in mysql for g in (f"{A}:5", f"{A}:6", f"{A}:7", f"{B}:1")] == [
        True,
        False,
        True,
        False,
    ]
    assert (maria.has_several_lines, mysql.has_several_lines, bool(GtidSet())) == (
        True,
        False,
        False,
    )
    assert GtidSet("0-2-5").diverges(maria)
    assert not GtidSet("0-1-5,8-1-1").diverges(maria)
    assert not GtidSet("0-2-4").diverges(maria)


def test_the_head_of_a_file_lists_what_came_before_it() -> None:
    listed = (
        struct.pack("<I", 2 | 1 << 28) + struct.pack("<IIQ", 0, 1, 5) + struct.pack("<IIQ", 3, 2, 9)
    )
    assert str(listed_transactions(event(EventType.GTID_LIST, listed))) == "0-1-5,3-2-9"
    previous = (
        struct.pack("<Q", 1)
        + bytes.fromhex(A.replace("-", ""))
        + struct.pack("<QQQQQ", 2, 1, 6, 8, 9)
    )
    assert str(listed_transactions(event(EventType.PREVIOUS_GTIDS, previous))) == f"{A}:1-5:8"
    assert listed_transactions(event(EventType.XID, b"")) is None


@settings(derandomize=True, max_examples=200)
@given(st.binary(max_size=60), st.sampled_from([EventType.GTID_LIST, EventType.PREVIOUS_GTIDS]))
def test_random_lists_are_parsed_or_rejected(body: bytes, kind: EventType) -> None:
    try:
        listed_transactions(event(kind, body))
    except LogDamaged:
        return
