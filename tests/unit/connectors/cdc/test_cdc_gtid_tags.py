"""Tagged global transaction ids, with bytes of a server of MySQL 9.7."""

import pytest

from tidegate.databases.mysql.binlog_errors import LogDamaged
from tidegate.databases.mysql.binlog_events import EventType, LogEvent
from tidegate.databases.mysql.binlog_gtid import GtidSet, gtid_of, listed_transactions

A = "cf581ed5-e36b-11f1-b2c4-02fc00000001"
UUID = "cf 58 1e d5 e3 6b 11 f1 b2 c4 02 fc 00 00 00 01"
PACKED = "3d 03 b0 3c 55 03 8d 03 d6 22 c5 03 c9 02 11 03 04 f1 03 00 00 00 02"
REST = "08 08 0a 0c 0c 7f 15 19 19 6c 8f 60 06 10 59 04 12 83 12 0b"


def event(kind: int, digits: str) -> LogEvent:
    return LogEvent(kind, 1, 3, 1000, bytes.fromhex(digits))


@pytest.mark.parametrize(
    ("number", "tag", "told"),
    [
        ("04", "0a 6d 79 74 61 67", f"{A}:mytag:1"),
        ("61 09", "04 7a 7a", f"{A}:zz:300"),
        ("ff f0 ff ff ff ff ff ff ff", "04 7a 7a", f"{A}:zz:9223372036854775800"),
        ("04", "00", f"{A}:1"),
    ],
)
def test_id_of_a_tagged_transaction_is_parsed(number: str, tag: str, told: str) -> None:
    digits = f"02 74 00 00 00 02 {PACKED} 04 {number} 06 {tag}"
    assert gtid_of(event(EventType.GTID_TAGGED, f"{digits} {REST}")) == told
    with pytest.raises(LogDamaged):
        gtid_of(event(EventType.GTID_TAGGED, digits[:30]))


def test_the_head_of_a_file_lists_tags() -> None:
    def long(number: int) -> str:
        return number.to_bytes(8, "little").hex()

    body = (
        f"01 02 00 00 00 00 00 01 {UUID} 00 {long(1)} {long(1)} {long(4)} {UUID} 0a 6d 79 74 61 67"
        f" {long(2)} {long(1)} {long(3)} {long(7)} {long(8)}"
    )
    assert str(listed_transactions(event(EventType.PREVIOUS_GTIDS, body))) == f"{A}:1-3:mytag:1-2:7"


def test_each_tag_is_numbered_separately() -> None:
    found = GtidSet(f"{A}:1-3:MyTag:1-2:other:5")
    found.add(f"{A}:mytag:3")
    found.add(f"{A}:4")
    assert str(found) == f"{A}:1-4:mytag:1-3:other:5"
    assert str(GtidSet(str(found))) == str(found)
    assert [
        text in found
        for text in (
            f"{A}:4",
            f"{A}:5",
            f"{A}:mytag:3",
            f"{A}:mytag:4",
            f"{A}:other:5",
            f"{A}:none:1",
        )
    ] == [
        True,
        False,
        True,
        False,
        True,
        False,
    ]
    assert found.covers(GtidSet(f"{A}:mytag:2-3"))
    assert not found.covers(GtidSet(f"{A}:1-4:mytag:1-4"))
    assert not GtidSet(f"{A}:1-9").covers(GtidSet(f"{A}:mytag:1"))
    assert found.has_several_lines
