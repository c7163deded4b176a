"""Parsing of the binary log: events, table maps, values by both decoders, corrupt packets."""

import random
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.databases.mysql import binlog_values as values
from tidegate.databases.mysql.binlog_charsets import codec_of
from tidegate.databases.mysql.binlog_ddl import Effect, table_statement
from tidegate.databases.mysql.binlog_definition import Recorded, RecordedColumn, difference
from tidegate.databases.mysql.binlog_errors import LogDamaged, PartialImages
from tidegate.databases.mysql.binlog_events import (
    ROW_EVENTS,
    EventReader,
    EventType,
    RowChangeKind,
    decompress,
    read_table_map,
    rotation,
    row_event,
    statement,
)
from tidegate.databases.mysql.binlog_json import json_text
from tidegate.databases.mysql.binlog_position import LogPosition
from tidegate.databases.mysql.binlog_row_layout import LogColumn
from tidegate.databases.mysql.binlog_values import compiled_module, decoder, raw_column
from tidegate.model.errors import TidegateError, Unsupported

DECODERS = [None, *([compiled_module()] if compiled_module() is not None else [])]
"""The Python decoder, and the compiled one if it was built."""
TYPES = [
    (1, 0),
    (2, 0),
    (3, 0),
    (4, 4),
    (5, 8),
    (7, 0),
    (8, 0),
    (9, 0),
    (10, 0),
    (11, 0),
    (12, 0),
    (13, 0),
    (15, 40),
    (15, 4000),
    (16, 5 << 8 | 1),
    (17, 0),
    (17, 6),
    (18, 3),
    (18, 6),
    (19, 0),
    (19, 2),
    (19, 6),
    (246, 12 << 8 | 2),
    (246, 38 << 8 | 10),
    (246, 9 << 8),
    (246, 65 << 8 | 30),
    (252, 1),
    (252, 2),
    (252, 4),
    (254, 254 << 8 | 40),
    (254, 247 << 8 | 1),
    (254, 248 << 8 | 2),
]


def table_map_body(types: bytes, metas: bytes, extra: bytes = b"") -> bytes:
    nulls = b"\xff" * ((len(types) + 7) // 8)
    return (
        b"\x07\0\0\0\0\0\1\0\4shop\0\6orders\0"
        + bytes([len(types)])
        + types
        + bytes([len(metas)])
        + metas
        + nulls
        + extra
    )


def event(kind: int, body: bytes, end: int = 1000, *, checksum: bool = False) -> bytes:
    data = struct.pack("<IBIIIH", 1, kind, 1, 19 + len(body) + 4 * checksum, end, 0) + body
    return data + (zlib.crc32(data).to_bytes(4, "little") if checksum else b"")


def format_body(algorithm: int) -> bytes:
    return (
        struct.pack("<H", 4)
        + b"10.11".ljust(50, b"\0")
        + b"\0\0\0\0"
        + b"\x13"
        + b"\0" * 40
        + bytes([algorithm])
    )


def test_checksums_are_removed_if_the_format_announces_them() -> None:
    reader = EventReader()
    assert rotation(
        reader.event(
            event(EventType.ROTATE, struct.pack("<Q", 4) + b"binlog.000002", 0, checksum=True)
        )
    ) == ("binlog.000002", 4)
    assert rotation(
        reader.event(event(EventType.ROTATE, struct.pack("<Q", 4) + b"binlog.000002", 0))
    ) == ("binlog.000002", 4)
    reader.event(event(EventType.FORMAT, format_body(1), checksum=True))
    assert reader.event(event(EventType.XID, b"12345678", checksum=True)).body == b"12345678"
    without = EventReader()
    without.event(event(EventType.FORMAT, format_body(0) + b"\0\0\0\0"))
    assert without.event(event(EventType.XID, b"12345678")).body == b"12345678"


def test_layout_has_optional_names_and_signs() -> None:
    signs, names = b"\1\1\x40", b"\4\6\2id\2an"
    found = read_table_map(table_map_body(b"\x08\x03", b"", signs + names))
    assert (found.database, found.table, found.path) == ("shop", "orders", "shop.orders")
    assert (found.metadata.names, found.metadata.unsigned, found.metadata.key) == (
        ("id", "an"),
        (False, True),
        (),
    )
    assert (
        difference(found, known(LogColumn("id", "bigint(20)"), LogColumn("an", "int(10) unsigned")))
        == ""
    )
    assert "column 2, another int, is called an in the log" in difference(
        found, known(LogColumn("id", "bigint(20)"), LogColumn("another", "int"))
    )
    assert "is unsigned in the log" in difference(
        found, known(LogColumn("id", "bigint(20)"), LogColumn("an", "int"))
    )
    assert "has 2 columns in the log, and 1 are recorded" in difference(
        found, known(LogColumn("id", "bigint(20)"))
    )


def known(*columns: LogColumn) -> Recorded:
    return tuple(RecordedColumn(column) for column in columns)


def test_row_events_of_both_versions_and_compressed_ones_are_equal() -> None:
    images = b"\0" + struct.pack("<i", 5)
    body = b"\7\0\0\0\0\0\1\0"
    reader = EventReader()
    first = row_event(reader.event(event(EventType.WRITE_V1, body + b"\1\xff" + images)))
    second = row_event(
        reader.event(event(EventType.WRITE_V2, body + b"\4\0xx" + b"\1\xff" + images))
    )
    packed = b"\x81" + bytes([len(images)]) + zlib.compress(images)
    third = row_event(reader.event(event(EventType.WRITE_PACKED_V1, body + b"\1\xff" + packed)))
    assert first == second == third
    assert (first.table_id, first.change, first.images) == (7, RowChangeKind.INSERT, images)
    with pytest.raises(PartialImages, match="binlog_row_image = FULL"):
        row_event(reader.event(event(EventType.WRITE_V1, body + b"\2\1" + images)))


@pytest.mark.parametrize("fast", DECODERS)
def test_truncated_values_raise_damage(fast: Any) -> None:
    columns = [raw_column(kind, meta, unsigned=False, name="c") for kind, meta in TYPES]
    rng = random.Random(7)
    decode = decoder(columns, fast)
    for _ in range(300):
        data = b"\0\0\0\0" + rng.randbytes(rng.randrange(0, 400))
        lists: list[list[Any]] = [[] for _ in columns]
        try:
            decode(data, 0, len(data), lists)
        except LogDamaged:
            continue


@pytest.mark.parametrize("fast", DECODERS)
@pytest.mark.parametrize(("kind", "meta"), TYPES)
@pytest.mark.parametrize("unsigned", [False, True])
def test_compiled_decoder_equals_the_python_decoder(
    fast: Any, kind: int, meta: int, unsigned: bool
) -> None:
    column = raw_column(kind, meta, unsigned=unsigned, name="c")
    plain, other = decoder([column]), decoder([column], fast)
    rng = random.Random(kind * 1000 + meta)
    for _ in range(60):
        data = b"".join(
            (b"\1" if rng.random() < 0.2 else b"\0" + rng.randbytes(rng.randrange(0, 14)))
            for _ in range(2)
        )
        assert outcome(plain, data) == outcome(other, data)


def outcome(decode: Any, data: bytes) -> str:
    found: list[Any] = []
    try:
        return f"{decode(data, 0, len(data), [found])} {found!r}"
    except LogDamaged:
        return "damaged"


def test_environment_disables_the_compiled_decoder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TIDEGATE_PURE_PYTHON", "1")
    assert values.compiled_module() is None


@settings(derandomize=True, max_examples=300)
@given(st.binary(max_size=80), st.sampled_from(sorted({int(k) for k in EventType})))
def test_random_events_are_parsed_or_rejected(body: bytes, kind: int) -> None:
    reader = EventReader()
    try:
        found = reader.event(event(kind, body))
        if kind in (EventType.QUERY, EventType.QUERY_PACKED):
            statement(found)
        elif kind == EventType.TABLE_MAP:
            reader.table_map(found.body)
        elif kind == EventType.ROTATE:
            rotation(found)
        elif kind in ROW_EVENTS:
            row_event(found)
    except TidegateError:
        return


@settings(derandomize=True, max_examples=200)
@given(st.data())
def test_corrupt_layouts_are_parsed_or_rejected(data: st.DataObject) -> None:
    whole = bytearray(table_map_body(b"\x08\x0f\xf6", b"\x28\0\x0c\2", b"\1\1\x40\4\6\2id\2an"))
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        EventReader().table_map(cut)
    except LogDamaged:
        return


def test_small_packet_cannot_allocate_much_memory() -> None:
    with pytest.raises(ValueError, match="after decompression"):
        decompress(b"\x84\xff\xff\xff\xff" + zlib.compress(b"x"))
    with pytest.raises(ValueError, match="after decompression"):
        decompress(b"\x81\x02" + zlib.compress(b"x" * 100_000)[:-20])


@pytest.mark.parametrize(
    ("text", "effect", "tables"),
    [
        ("alter table orders add column x int", Effect.ADD_COLUMN, [("shop", "orders")]),
        (
            (
                "ALTER TABLE `shop2`.`or``ders` ADD `x` decimal(10,2) default 1 after y, add column"
                " z text"
            ),
            Effect.ADD_COLUMN,
            [("shop2", "or`ders")],
        ),
        ("alter table orders add index (a)", Effect.HARMLESS, [("shop", "orders")]),
        ("alter table orders add column x int, drop y", Effect.ALTER, [("shop", "orders")]),
        ("alter table orders drop column y", Effect.ALTER, [("shop", "orders")]),
        (
            "alter table orders drop index y, drop primary key, algorithm=inplace",
            Effect.ALTER,
            [("shop", "orders")],
        ),
        ("alter table orders truncate partition p0", Effect.REMOVE, [("shop", "orders")]),
        ("alter table orders drop partition p0", Effect.REMOVE, [("shop", "orders")]),
        ("alter table orders change a b int", Effect.ALTER, [("shop", "orders")]),
        ("alter table orders change a `A` bigint", Effect.ALTER, [("shop", "orders")]),
        (
            "alter table orders comment 'do not rename to anything, or drop it'",
            Effect.HARMLESS,
            [("shop", "orders")],
        ),
        (
            "alter table orders rename to other",
            Effect.REMOVE,
            [("shop", "orders"), ("shop", "other")],
        ),
        ("alter table orders rename column a to b", Effect.ALTER, [("shop", "orders")]),
        ("alter table orders rename index a to b", Effect.HARMLESS, [("shop", "orders")]),
        ("/* hi */ drop table if exists a, shop2.b", Effect.DROP, [("shop", "a"), ("shop2", "b")]),
        ("DROP TABLE `orders` /* generated by server */", Effect.DROP, [("shop", "orders")]),
        ("truncate orders", Effect.TRUNCATE, [("shop", "orders")]),
        (
            "set statement a=(select 1), b='for x' for truncate table `o r`",
            Effect.TRUNCATE,
            [("shop", "o r")],
        ),
        (
            "(( /*!50000 truncate */ /*M!100100 table */ orders))",
            Effect.TRUNCATE,
            [("shop", "orders")],
        ),
        ("label: drop table orders;", Effect.DROP, [("shop", "orders")]),
        (
            "alter table p exchange partition p0 with table a without validation",
            Effect.REMOVE,
            [("shop", "p"), ("shop", "a")],
        ),
        (
            "alter table p convert table x.a to partition p0 values less than (3)",
            Effect.REMOVE,
            [("shop", "p"), ("x", "a")],
        ),
        (
            "alter table p convert partition p0 to table a",
            Effect.REMOVE,
            [("shop", "p"), ("shop", "a")],
        ),
        (
            (
                "alter table t engine=innodb row_format dynamic default charset utf8mb4"
                " collate=utf8mb4_bin"
            ),
            Effect.HARMLESS,
            [("shop", "t")],
        ),
        ("alter table t order by a, b, analyze partition p0, p1", Effect.HARMLESS, [("shop", "t")]),
        ("alter table t partition by hash (a) partitions 4", Effect.HARMLESS, [("shop", "t")]),
        ("alter table t drop index `PRIMARY`", Effect.ALTER, [("shop", "t")]),
        ("alter table t drop constraint u", Effect.INDEX, [("shop", "t")]),
        ("alter table t add c int primary key", Effect.ALTER, [("shop", "t")]),
        ("alter table t do something new", Effect.ALTER, [("shop", "t")]),
        ("drop index `PRIMARY` on t", Effect.ALTER, [("shop", "t")]),
        ("insert into t values (1)", Effect.ROWS, [("shop", "t")]),
        ("load data local infile 'x' replace into table t", Effect.ROWS, [("shop", "t")]),
        ("update a, b set a.x = 1", Effect.ROWS, []),
        ("with x as (select 1) delete from t", Effect.ROWS, []),
        ("begin not atomic truncate t; end", Effect.UNKNOWN, []),
        (
            "rename table a to b, c.d to e",
            Effect.REMOVE,
            [("shop", "a"), ("shop", "b"), ("c", "d"), ("shop", "e")],
        ),
        ("create table if not exists n (a int)", Effect.CREATE, [("shop", "n")]),
        ("create or replace table n (a int)", Effect.REMOVE, [("shop", "n")]),
        ("drop database shop2", Effect.DROP, [("shop2", None)]),
    ],
)
def test_statements_are_parsed_to_tables_and_effects(
    text: str, effect: Effect, tables: list[tuple[str, str | None]]
) -> None:
    found = table_statement("shop", text)
    assert found is not None
    assert (found.effect, list(found.tables)) == (effect, tables)


@pytest.mark.parametrize(
    ("text", "added"),
    [
        ("alter table orders add x int", ("x",)),
        (
            "alter table orders add column if not exists `x y` decimal(3,1) default 1.5 after z",
            ("x y",),
        ),
        ("alter table orders add (a int default 5, b enum('x,y', 'z'))", ("a", "b")),
        ("alter table orders add column(a int, key (a))", ("a",)),
        (
            (
                "alter table orders nowait add a int, add column b varchar(3) comment 'a, drop b',"
                " add key (b), algorithm=instant, lock=none"
            ),
            ("a", "b"),
        ),
        ("alter table orders add index (a)", ()),
        ("alter table orders add constraint c check (a > 0)", ()),
        ("alter table orders modify a bigint", ()),
    ],
)
def test_added_columns_are_parsed(text: str, added: tuple[str, ...]) -> None:
    found = table_statement("shop", text)
    assert found is not None
    assert tuple(column.name for column in found.added) == added
    assert (found.effect is Effect.ADD_COLUMN) == bool(added)


def test_definition_of_an_added_column_is_complete() -> None:
    found = table_statement(
        "shop",
        "alter table t add (a varchar(9) default '#f, \\'x' /* why */, b int not null), add c int #"
        " the last",
    )
    assert found is not None
    assert [(c.name, c.text) for c in found.added] == [
        ("a", "varchar ( 9 ) default '#f, \\'x'"),
        ("b", "int not null"),
        ("c", "int"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "drop view v",
        "create temporary table t (a int)",
        "grant all on *.* to x",
        "create definer=`a`@`%` trigger t before insert on o for each row set @a=1",
    ],
)
def test_statements_that_change_no_table_are_skipped(text: str) -> None:
    assert table_statement("shop", text) is None


def test_binary_json_has_the_format_of_the_server() -> None:
    document = (
        b"\0"
        + struct.pack("<HH", 2, 29)
        + struct.pack("<HHHH", 18, 1, 19, 1)
        + b"\5\x05\0"
        + b"\x0c\x14\0"
        + b"ab"
        + b"\2hi"
    )
    assert json_text(document) == '{"a": 5, "b": "hi"}'
    assert json_text(b"\2" + struct.pack("<HH", 2, 10) + b"\4\0\0" + b"\4\1\0") == "[null, true]"
    assert json_text(b"\x0f\xf6\4\4\2\x8c\x22") == "12.34"
    assert json_text(b"") == "null"


@settings(derandomize=True, max_examples=300)
@given(st.binary(max_size=60))
def test_random_json_is_parsed_or_rejected(data: bytes) -> None:
    try:
        json_text(data)
    except LogDamaged:
        return


def test_positions_are_ordered_by_the_number_of_their_file() -> None:
    assert LogPosition("b.999999", 5).key < LogPosition("b.1000000", 4).key
    assert LogPosition.of(LogPosition("b.000001", 7).json()) == LogPosition("b.000001", 7)
    with pytest.raises(ValueError, match="not the name of a binary log file"):
        LogPosition("nothing", 1).key  # noqa: B018  # asking is the point


def test_character_sets_are_those_of_the_server() -> None:
    assert b"\x80\x81".decode(codec_of("latin1")) == "€\x81"
    with pytest.raises(Unsupported, match="koi7"):
        codec_of("koi7")
