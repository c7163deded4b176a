"""Every character of every character set is equal in the log and on the server."""

from typing import Any

import pytest
from binlog_kit import BinlogShop
from cdc_kit import restored, rows_of

from tidegate.databases.mysql.binlog_charsets import MULTI, SINGLE, codec_of, table_of
from tidegate.plugin.contract import Limit
from tidegate.testing.servers.mysql import MySqlServer

UNICODE = ("utf8mb3", "utf8mb4", "ucs2", "utf16", "utf16le", "utf32")
CHARACTERS_EACH = 32
FOUR_BYTES = [
    bytes.fromhex(digits)
    for digits in (
        "8135f437",
        "8130 8130",
        "8431a439",
        "8431a530",
        "90308130",
        "e3329a35",
        "e3329a36",
        "fe39fe39",
    )
]


def sequences(charset: str, *, is_mysql: bool) -> list[bytes]:
    """Return the bytes of all characters that a column of this set can store.

    NUL and blanks are left out.
    """
    if charset in UNICODE:
        last = 0xFFFF if charset in ("utf8mb3", "ucs2") else 0x10FFFF
        codec = {"ucs2": "utf-16-be"}.get(charset) or codec_of(charset)
        points = [
            *range(0x21, 0x3000, 3),
            *range(0xE000, 0x10000, 7),
            *range(0x10000, 0x110000, 4096),
            0x10FFFF,
        ]
        return [chr(point).encode(codec) for point in points if point <= last]
    found = [sequence for sequence in table_of(charset) if sequence not in (b"\0", b" ")]
    if charset == "ascii" and is_mysql:
        return [sequence for sequence in found if sequence < b"\x80"]
    return found + (FOUR_BYTES if charset == "gb18030" else [])


def log_rows(source: Any, start: Any, end: Any) -> dict[str, dict[int, str]]:
    found: dict[str, dict[int, str]] = {}
    for path, row in rows_of(source, start, end):
        found.setdefault(path.split(".")[1], {})[row["id"]] = row["v"]
    return found


def test_every_character_of_every_set_is_equal_in_the_log(
    binlog_shop: BinlogShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_mysql = isinstance(binlog_shop.server, MySqlServer)
    charsets = [name for name in (*SINGLE, *MULTI, *UNICODE) if name != "gb18030" or is_mysql]
    assert {*charsets, "binary"} == {
        name
        for (name,) in binlog_shop(
            "select character_set_name from information_schema.character_sets"
        )
    }
    binlog_shop(
        *(
            f"create table t_{name} (id int primary key, v varchar({CHARACTERS_EACH}) character set"
            f" {name})"
            for name in charsets
        )
    )
    source = binlog_shop.source(startup__mode="latest")
    start = restored(source.initial())
    for name in charsets:
        stored = sequences(name, is_mysql=is_mysql)
        rows = [
            b"".join(stored[at : at + CHARACTERS_EACH]).hex()
            for at in range(0, len(stored), CHARACTERS_EACH)
        ]
        binlog_shop(
            f"insert into t_{name} values "
            + ",".join(f"({n}, x'{row}')" for n, row in enumerate(rows))
        )
    end = source.latest(start, Limit())
    found = log_rows(source, start, end)
    for name in charsets:
        wanted = {row["id"]: row["v"] for row in binlog_shop.jdbc_rows(f"t_{name}")}
        assert found[f"t_{name}"] == wanted, name
        assert sum(map(len, wanted.values())) == len(sequences(name, is_mysql=is_mysql)), name
    monkeypatch.setenv("TIDEGATE_PURE_PYTHON", "1")
    assert log_rows(source, start, end) == found


def test_labels_of_every_set_are_equal_in_the_log(binlog_shop: BinlogShop) -> None:
    charsets = [
        name for name in (*SINGLE, *MULTI, *UNICODE) if name not in ("gb18030", "ascii", "swe7")
    ]
    last = {
        name: [text for text in table_of(name).values() if text > "\x80" and text.isalpha()][-1]
        for name in charsets
        if name not in UNICODE
    }
    last |= dict.fromkeys(UNICODE, "\uffee")
    binlog_shop(
        "set names utf8mb4",
        *(
            f"create table t_{name} (id int primary key, v enum('b', '{last[name]}') character set"
            f" {name})"
            for name in charsets
        ),
    )
    source = binlog_shop.source(startup__mode="latest")
    start = restored(source.initial())
    binlog_shop(*(f"insert into t_{name} values (1, 2), (2, 1)" for name in charsets))
    found = log_rows(source, start, source.latest(start, Limit()))
    for name in charsets:
        assert (
            found[f"t_{name}"]
            == {row["id"]: row["v"] for row in binlog_shop.jdbc_rows(f"t_{name}")}
            == {1: last[name], 2: "b"}
        ), name
